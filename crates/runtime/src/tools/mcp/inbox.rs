//! What a server sends, message by message: answers go to whoever asked, progress to its call, and
//! that the tools have changed is noted at once. The SDK is handed what its protocol needs, and an
//! empty result in place of every answer that is kept as it was written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ErrorData, JsonRpcError, JsonRpcMessage, JsonRpcResponse, JsonRpcVersion2_0, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

use super::exchange::{Answer, Exchange, Progressed};

/// The notifications that the SDK's protocol needs. Progress and changed tools are seen to here, and
/// everything else is nobody's business.
const FOR_THE_SDK: [&str; 2] =
    ["notifications/cancelled", "notifications/subscriptions/acknowledged"];

/// What is waited for.
enum Pending {
    /// The answer to the handshake: kept, and passed on.
    Greeting,
    /// An answer that is kept as it was written.
    Exchange(Arc<Exchange>),
    /// An answer for the SDK.
    Typed,
}

#[derive(Default)]
struct Waiting {
    requests: HashMap<RequestId, Pending>,
    tokens: HashMap<ProgressToken, Arc<Exchange>>,
    greeting: Option<String>,
    /// To the SDK; nothing once the connection has ended.
    to_sdk: Option<mpsc::Sender<ServerJsonRpcMessage>>,
    ended: Option<String>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    stale: AtomicBool,
    changed: Notify,
    finished: Notify,
}

/// The parts of a message, as they were written.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams {
    progress_token: ProgressToken,
    progress: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

impl Inbox {
    pub(super) fn new(to_sdk: mpsc::Sender<ServerJsonRpcMessage>) -> Self {
        let waiting = Waiting { to_sdk: Some(to_sdk), ..Waiting::default() };
        Self { waiting: Mutex::new(waiting), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to this request is a handshake's.
    pub(super) fn expect_greeting(&self, id: &RequestId) {
        self.lock().requests.insert(id.clone(), Pending::Greeting);
    }

    /// The answer to this request is the SDK's business.
    pub(super) fn expect_typed(&self, id: &RequestId) {
        self.lock().requests.insert(id.clone(), Pending::Typed);
    }

    /// The answer to this request is kept as it was written.
    pub(super) fn expect(
        &self,
        id: &RequestId,
        token: Option<ProgressToken>,
        exchange: &Arc<Exchange>,
    ) {
        let mut waiting = self.lock();
        waiting.requests.insert(id.clone(), Pending::Exchange(Arc::clone(exchange)));
        if let Some(token) = token {
            waiting.tokens.insert(token, Arc::clone(exchange));
        }
    }

    /// The server's answer to the handshake.
    pub(super) fn greeting(&self) -> Option<String> {
        self.lock().greeting.clone()
    }

    /// Why the connection has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        self.lock().ended.clone()
    }

    /// Whether the server's tools may have changed since this was asked last.
    pub(super) fn take_stale(&self) -> bool {
        self.stale.swap(false, Ordering::SeqCst)
    }

    pub(super) fn mark_stale(&self) {
        self.stale.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Waits until the server says that its tools have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes one message. What is no message is passed over: an answer that nobody can read is missed
    /// at the deadline, and never taken for one.
    pub(super) async fn take(&self, bytes: &[u8]) {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(bytes) else {
            tracing::debug!(bytes = bytes.len(), "an MCP server sent something that is no message");
            return;
        };
        match envelope {
            Envelope { method: Some(method), id: None, params, .. } => {
                self.noted(&method, params, bytes).await;
            }
            Envelope { method: Some(_), id: Some(_), .. } => self.pass(bytes).await,
            Envelope { id: Some(id), result: Some(raw), .. } => self.result(id, raw, bytes).await,
            Envelope { id: Some(id), error: Some(raw), .. } => self.error(id, raw).await,
            Envelope { id: Some(id), .. } => {
                let why = "its answer holds neither a result nor an error".to_owned();
                self.lost(id, Answer::Lost(why)).await;
            }
            Envelope { .. } => {}
        }
    }

    async fn noted(&self, method: &str, params: Option<&RawValue>, bytes: &[u8]) {
        match method {
            "notifications/tools/list_changed" => self.mark_stale(),
            "notifications/progress" => {
                let params = params.and_then(|raw| serde_json::from_str(raw.get()).ok());
                let Some(ProgressParams { progress_token, progress, total, message }) = params
                else {
                    return;
                };
                let exchange = self.lock().tokens.get(&progress_token).cloned();
                if let Some(exchange) = exchange {
                    exchange.progressed(Progressed { progress, total, message });
                }
            }
            method if FOR_THE_SDK.contains(&method) => self.pass(bytes).await,
            _ => {}
        }
    }

    async fn result(&self, id: RequestId, raw: &RawValue, bytes: &[u8]) {
        match self.remove(&id) {
            Some(Pending::Exchange(exchange)) => {
                exchange.answered(Answer::Result(raw.get().to_owned()));
                self.to_sdk(empty(id)).await;
            }
            Some(Pending::Greeting) => {
                self.lock().greeting = Some(raw.get().to_owned());
                self.pass_answer(id, bytes).await;
            }
            Some(Pending::Typed) => self.pass_answer(id, bytes).await,
            // A second answer, or one that nobody asked for.
            None => {}
        }
    }

    /// Takes a JSON-RPC error as the answer to a request.
    pub(super) async fn error(&self, id: RequestId, raw: &RawValue) {
        #[derive(Deserialize)]
        struct Said {
            code: i64,
            #[serde(default)]
            message: String,
        }
        let Some(pending) = self.remove(&id) else { return };
        let said = serde_json::from_str(raw.get());
        let Said { code, message } =
            said.unwrap_or_else(|_| Said { code: 0, message: "an error without a code".into() });
        if let Pending::Exchange(exchange) = &pending {
            let raw = raw.get().to_owned();
            exchange.answered(Answer::Error { code, message, raw });
        }
        let error = serde_json::from_str(raw.get());
        let error = error.unwrap_or_else(|_| ErrorData::internal_error("an odd error", None));
        self.to_sdk(JsonRpcMessage::Error(JsonRpcError::new(Some(id), error))).await;
    }

    /// No answer to this request will come any more.
    pub(super) async fn lost(&self, id: RequestId, answer: Answer) {
        let Some(pending) = self.remove(&id) else { return };
        let why = match &answer {
            Answer::Status { message: why, .. }
            | Answer::Lost(why)
            | Answer::TooLarge(why)
            | Answer::NotSent { why, .. } => why.clone(),
            Answer::Result(_) | Answer::Error { .. } => "there is no answer".to_owned(),
        };
        if let Pending::Exchange(exchange) = pending {
            exchange.answered(answer);
        }
        let error = ErrorData::internal_error(why, None);
        self.to_sdk(JsonRpcMessage::Error(JsonRpcError::new(Some(id), error))).await;
    }

    fn remove(&self, id: &RequestId) -> Option<Pending> {
        let mut waiting = self.lock();
        let removed = waiting.requests.remove(id);
        if let Some(Pending::Exchange(gone)) = &removed {
            waiting.tokens.retain(|_, exchange| !Arc::ptr_eq(exchange, gone));
        }
        removed
    }

    /// Nobody waits for the answer to this request any more.
    pub(super) fn forget(&self, id: &RequestId) {
        self.remove(id);
    }

    /// The connection has ended: whoever waits is told, the SDK too.
    pub(super) fn end(&self, why: &str, too_large: bool) {
        let mut waiting = self.lock();
        for pending in waiting.requests.values() {
            let Pending::Exchange(exchange) = pending else { continue };
            if too_large {
                exchange.answered(Answer::TooLarge(why.to_owned()));
            } else {
                exchange.broke(why);
            }
        }
        waiting.requests.clear();
        waiting.tokens.clear();
        waiting.ended.get_or_insert_with(|| why.to_owned());
        waiting.to_sdk = None;
        drop(waiting);
        self.finished.notify_one();
    }

    /// Nothing new is to be sent over this connection. What is under way may still be answered.
    pub(super) fn retire(&self, why: &str) {
        self.lock().ended.get_or_insert_with(|| why.to_owned());
    }

    /// Waits until the connection has ended.
    pub(super) async fn wait_for_end(&self) {
        if self.ended().is_none() {
            self.finished.notified().await;
        }
    }

    async fn pass_answer(&self, id: RequestId, bytes: &[u8]) {
        match serde_json::from_slice::<ServerJsonRpcMessage>(bytes) {
            Ok(message) => self.to_sdk(message).await,
            Err(_) => {
                let error = ErrorData::internal_error("its answer cannot be read", None);
                self.to_sdk(JsonRpcMessage::Error(JsonRpcError::new(Some(id), error))).await;
            }
        }
    }

    async fn pass(&self, bytes: &[u8]) {
        if let Ok(message) = serde_json::from_slice(bytes) {
            self.to_sdk(message).await;
        }
    }

    async fn to_sdk(&self, message: ServerJsonRpcMessage) {
        let to_sdk = self.lock().to_sdk.clone();
        if let Some(to_sdk) = to_sdk {
            // Without a receiver the connection is being closed.
            let _closing = to_sdk.send(message).await;
        }
    }
}

fn empty(id: RequestId) -> ServerJsonRpcMessage {
    let (jsonrpc, result) = (JsonRpcVersion2_0, ServerResult::empty(()));
    JsonRpcMessage::Response(JsonRpcResponse { jsonrpc, id, result })
}
