//! A server behind a URL, over streamable HTTP. Every message is a request of its own on a connection
//! of its own, under the rules of HTTP tools: addresses are checked, nothing is followed, kept or sent
//! a second time. An answer that breaks off is lost: streams are not resumed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rmcp::model::RequestId;
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::exchange::Answer;
use super::gated::Gated;
use super::headers;
use super::inbox::Inbox;
use super::sse::Events;
use super::wire::{BACKLOG, Outgoing, Outlet, Sending, Wire, WireError};
use crate::tools::http::{NotConnected, Url, chain, connect as connect_to, retry_after_ms};
use crate::tools::size::SizeBytes;

/// How long a connection may take to come about, and a message without an answer to be taken.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// How much of a refusal is read.
const MAX_REFUSAL: usize = 64 << 10;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Where a server is, and how it is spoken to.
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) target: Uri,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) allow_private: bool,
    pub(super) most: SizeBytes,
    /// The input schemas of its tools: some arguments travel in headers too.
    pub(super) schemas: BTreeMap<String, Value>,
}

struct Http {
    endpoint: Endpoint,
    inbox: Arc<Inbox>,
    session: Mutex<Option<HeaderValue>>,
    under_way: Mutex<HashMap<RequestId, AbortHandle>>,
    listening: Mutex<Option<AbortHandle>>,
}

/// Ends everything that is under way when it is dropped.
struct Posts(Arc<Http>);

/// Connects the SDK with a server. Nothing is sent yet.
pub(super) fn connect(endpoint: Endpoint) -> (Wire, Arc<Inbox>) {
    let (to_sdk, from_server) = mpsc::channel(BACKLOG);
    let inbox = Arc::new(Inbox::new(to_sdk));
    let http = Arc::new(Http {
        endpoint,
        inbox: Arc::clone(&inbox),
        session: Mutex::default(),
        under_way: Mutex::default(),
        listening: Mutex::default(),
    });
    (Wire { outlet: Box::new(Posts(http)), inbox: Arc::clone(&inbox), from_server }, inbox)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Posts {
    fn drop(&mut self) {
        for (_, task) in lock(&self.0.under_way).drain() {
            task.abort();
        }
        if let Some(task) = lock(&self.0.listening).take() {
            task.abort();
        }
    }
}

impl Outlet for Posts {
    fn send(&self, message: Outgoing) -> Sending {
        let http = Arc::clone(&self.0);
        if let Some(cancelled) = &message.cancels {
            let stream = lock(&http.under_way).remove(cancelled);
            // Without sessions, a closed connection is the cancellation. With one, it is a message.
            if lock(&http.session).is_none() && http.version().as_deref() >= Some(headers::MODERN) {
                stream.inspect(AbortHandle::abort);
                return Box::pin(async { Ok(()) });
            }
            let posted = http.begin(message);
            return Box::pin(async move {
                let posted = posted.await;
                stream.inspect(AbortHandle::abort);
                posted
            });
        }
        http.begin(message)
    }

    fn close(&self) -> Sending {
        let http = Arc::clone(&self.0);
        Box::pin(async move {
            if lock(&http.session).is_some() {
                // A server that does not hear of it forgets the session in its own time.
                let _unheard = timeout(CLOSE_WITHIN, http.ask(Method::DELETE)).await;
            }
            Ok(())
        })
    }
}

impl Http {
    fn begin(self: Arc<Self>, message: Outgoing) -> Sending {
        let (accepted, head) = oneshot::channel();
        let id = message.id.clone();
        let opens = message.method.as_deref() == Some("notifications/initialized");
        let http = Arc::clone(&self);
        let task = tokio::spawn(async move { http.post(message, accepted).await });
        if let Some(id) = id {
            lock(&self.under_way).insert(id, task.abort_handle());
        }
        Box::pin(async move {
            let gone = || Err(WireError::NotTaken("called off before it was answered".to_owned()));
            let accepted = head.await.unwrap_or_else(|_| gone());
            if opens && accepted.is_ok() {
                let listener = Arc::clone(&self);
                let task = tokio::spawn(async move { listener.listen().await });
                lock(&self.listening).replace(task.abort_handle());
            }
            accepted
        })
    }

    /// The version that was agreed on in the handshake.
    fn version(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Greeting {
            protocol_version: Option<String>,
        }
        let greeting = self.inbox.greeting()?;
        let greeting: Greeting = serde_json::from_str(&greeting).ok()?;
        // Without one there was no handshake: every request names its version.
        Some(greeting.protocol_version.unwrap_or_else(|| headers::MODERN.to_owned()))
    }

    /// Sends one message and takes everything that is answered to it.
    async fn post(&self, message: Outgoing, accepted: oneshot::Sender<Result<(), WireError>>) {
        let id = message.id.clone();
        let answer = match self.deliver(&message).await {
            Ok(response) => self.received(&message, response, accepted).await,
            Err(answer) => {
                let why = told(&answer);
                // Whoever is there next is asked who it is.
                self.inbox.retire(&why);
                if let Some(exchange) = &message.exchange {
                    exchange.answered(answer.clone());
                }
                let _gone = accepted.send(Err(WireError::NotTaken(why)));
                Some(answer)
            }
        };
        let Some(id) = id else { return };
        lock(&self.under_way).remove(&id);
        if message.method.as_deref() == Some("subscriptions/listen") {
            self.inbox.retire("the server tells of changes no more");
        }
        let answer = answer.unwrap_or_else(|| {
            Answer::Lost("the server ended its reply without an answer".to_owned())
        });
        self.inbox.lost(id, answer).await;
    }

    async fn deliver(&self, message: &Outgoing) -> Result<Response<Incoming>, Answer> {
        let request =
            self.request(message).map_err(|why| Answer::NotSent { why, refused: true })?;
        self.send(request, message.exchange.clone()).await
    }

    fn request(&self, message: &Outgoing) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::new(Full::new(Bytes::from(message.text.clone())));
        *request.method_mut() = Method::POST;
        let to = request.headers_mut();
        to.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let version = message.version.clone().or_else(|| self.version());
        let schema = message.tool.as_ref().and_then(|tool| self.endpoint.schemas.get(tool));
        if version.as_deref() >= Some(headers::MODERN) {
            headers::standard(message, schema, to)?;
        }
        if let Some(version) = version.and_then(|version| HeaderValue::from_str(&version).ok()) {
            to.insert(VERSION, version);
        }
        self.common(&mut request);
        Ok(request)
    }

    fn common(&self, request: &mut Request<Full<Bytes>>) {
        *request.uri_mut() = self.endpoint.target.clone();
        let to = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&self.endpoint.url.authority) {
            to.insert(header::HOST, host);
        }
        let agent = concat!("gesta/", env!("CARGO_PKG_VERSION"));
        to.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        let accepts = HeaderValue::from_static("application/json, text/event-stream");
        to.insert(header::ACCEPT, accepts);
        to.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        to.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(session) = lock(&self.session).clone() {
            to.insert(SESSION, session);
        }
        for (name, value) in &self.endpoint.headers {
            to.insert(name.clone(), value.clone());
        }
    }

    /// One request on a connection of its own.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        exchange: Option<Arc<super::exchange::Exchange>>,
    ) -> Result<Response<Incoming>, Answer> {
        let Endpoint { url, tls, allow_private, .. } = &self.endpoint;
        let by = Instant::now() + CONNECT_WITHIN;
        let stream = connect_to(url, *allow_private, tls.as_ref(), by).await.map_err(|error| {
            let refused = !error.may_pass() || matches!(error, NotConnected::Refused { .. });
            Answer::NotSent { why: error.to_string(), refused }
        })?;
        let stream = TokioIo::new(Gated { stream, exchange: exchange.clone() });
        let broke = |error: hyper::Error| match &exchange {
            Some(exchange) if exchange.withdraw() => {
                Answer::NotSent { why: chain(&error), refused: false }
            }
            _ => Answer::Lost(chain(&error)),
        };
        let (mut sender, connection) = http1::handshake(stream).await.map_err(broke)?;
        // Ends with the response: whoever drops that closes the connection.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(broke)
    }

    /// Takes a response. Nothing, if every message in it was taken.
    async fn received(
        &self,
        message: &Outgoing,
        response: Response<Incoming>,
        accepted: oneshot::Sender<Result<(), WireError>>,
    ) -> Option<Answer> {
        let (head, mut body) = response.into_parts();
        if head.status.is_success() {
            if message.method.as_deref() == Some("initialize")
                && let Some(session) = head.headers.get(&SESSION)
            {
                *lock(&self.session) = Some(session.clone());
            }
            let _gone = accepted.send(Ok(()));
            return self.messages(&head.headers, &mut body).await.err();
        }
        let refusal = read(&mut body, MAX_REFUSAL).await.unwrap_or_default();
        if self.is_error(message, &refusal).await {
            let _gone = accepted.send(Ok(()));
            return None;
        }
        let answer = self.refused(message, head.status, &head.headers, &refusal);
        // Before the SDK hears of it: whoever waits looks here then.
        if let Some(exchange) = &message.exchange {
            exchange.answered(answer.clone());
        }
        let _gone = match (&answer, message.method.as_deref()) {
            // The SDK tells by this that the server is of an older kind.
            (Answer::Error { raw, .. }, Some("server/discover")) => {
                let raw = serde_json::from_str::<&RawValue>(raw).ok();
                if let (Some(id), Some(raw)) = (message.id.clone(), raw) {
                    self.inbox.error(id, raw).await;
                }
                accepted.send(Ok(()))
            }
            (answer, _) => accepted.send(Err(WireError::NotTaken(told(answer)))),
        };
        Some(answer)
    }

    fn refused(
        &self,
        message: &Outgoing,
        status: StatusCode,
        headers: &HeaderMap,
        refusal: &[u8],
    ) -> Answer {
        let authority = &self.endpoint.url.authority;
        let refusal: Option<Value> = serde_json::from_slice(refusal).ok();
        let why = refusal.as_ref().and_then(|refusal| refusal.pointer("/error/message")?.as_str());
        let said = match (status.is_redirection(), why) {
            (true, _) => format!("`{authority}` answered {status}; redirects are not followed"),
            (false, None) => format!("`{authority}` answered {status}"),
            (false, Some(why)) => format!("`{authority}` answered {status}: {why}"),
        };
        if status == StatusCode::NOT_FOUND && lock(&self.session).is_some() {
            // The session has ended: the next call begins another.
            self.inbox.retire(&format!("{said}: the session has ended"));
        }
        let is_old = status.is_client_error()
            && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if message.method.as_deref() == Some("server/discover") && is_old {
            let raw = serde_json::json!({ "code": -32600, "message": said }).to_string();
            return Answer::Error { code: -32600, message: said, raw };
        }
        let retry_after_ms = retry_after_ms(headers);
        Answer::Status { status: status.as_u16(), message: said, retry_after_ms }
    }

    /// Whether a refusal is a JSON-RPC error, which then is the answer.
    async fn is_error(&self, message: &Outgoing, refusal: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Refusal<'a> {
            #[serde(borrow)]
            error: &'a RawValue,
        }
        // What came of a call is for the status to say, unless it is known to be about this call.
        let call = message.tool.is_some();
        match (serde_json::from_slice::<Refusal<'_>>(refusal), &message.id) {
            (Ok(Refusal { error }), Some(id)) if !call => {
                self.inbox.error(id.clone(), error).await;
                true
            }
            _ => false,
        }
    }

    /// Takes every message of a body.
    async fn messages(&self, headers: &HeaderMap, body: &mut Incoming) -> Result<(), Answer> {
        let most = self.endpoint.most;
        let authority = &self.endpoint.url.authority;
        let too_large = || Answer::TooLarge(format!("`{authority}` sent more than {most} at once"));
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let bytes = read(body, most.bytes()).await.map_err(|error| match error {
                Some(error) => Answer::Lost(chain(&error)),
                None => too_large(),
            })?;
            self.inbox.take(&bytes).await;
            return Ok(());
        }
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Answer::Lost(chain(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            for event in events.feed(&data, most.bytes()).map_err(|_| too_large())? {
                self.inbox.take(&event).await;
            }
        }
        Ok(())
    }

    /// Hears what the server says unasked, if it offers that. When that ends, its tools may have
    /// changed unheard.
    async fn listen(&self) {
        if let Ok(response) = self.ask(Method::GET).await
            && response.status().is_success()
        {
            let (head, mut body) = response.into_parts();
            let _ended = self.messages(&head.headers, &mut body).await;
            self.inbox.mark_stale();
        }
    }

    async fn ask(&self, method: Method) -> Result<Response<Incoming>, Answer> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        if let Some(version) = self.version().and_then(|text| HeaderValue::from_str(&text).ok()) {
            request.headers_mut().insert(VERSION, version);
        }
        self.common(&mut request);
        self.send(request, None).await
    }
}

/// A whole body, or why not: an error, or nothing if it is larger than it may be.
async fn read(body: &mut Incoming, most: usize) -> Result<Vec<u8>, Option<hyper::Error>> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Status { message: why, .. }
        | Answer::Error { message: why, .. }
        | Answer::NotSent { why, .. }
        | Answer::Lost(why)
        | Answer::TooLarge(why) => why.clone(),
        Answer::Result(_) => String::new(),
    }
}
