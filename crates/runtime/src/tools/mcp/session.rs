//! A conversation with a server: the handshake, what it offers, and calls. It lasts until the server
//! ends, or until it is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    ClientResult, ErrorCode, ErrorData, Implementation, ListToolsRequest, PaginatedRequestParams,
    ProtocolVersion, RequestMetaObject, ServerNotification, ServerRequest, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, PeerRequestOptions,
    RequestContext, RequestHandle, RoleClient, RunningService, Service, Subscription,
    serve_client_with_lifecycle,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::exchange::{Answer, Exchange, Progressed};
use super::headers::MODERN;
use super::inbox::Inbox;
use super::offer::{self, Offer, Page};
use super::wire::{Wire, WireError};
use crate::tools::driver::Call;

/// How many pages a list of tools may have, and how many tools.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 2_000;
/// How long a server may take to say that it will tell of changes.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);
/// How many reports of progress may wait.
const PROGRESS: usize = 16;
/// What a call tells the server beside its arguments.
const KEY: &str = "gesta/idempotencyKey";
const ATTEMPT: &str = "gesta/attempt";

/// See the module.
pub(super) struct Session {
    running: RunningService<RoleClient, Us>,
    inbox: Arc<Inbox>,
    protocol: String,
    identity: String,
    /// By which a server without a handshake tells of changes.
    _changes: Option<Subscription>,
}

/// What we are to a server: somebody who calls tools, and does nothing for it.
struct Us(ClientConfig);

impl Service<RoleClient> for Us {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            // Sampling, elicitation, roots and whatever else there is.
            _ => {
                let why = "gesta calls tools, and does nothing for a server";
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None))
            }
        }
    }

    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        self.0.clone()
    }
}

/// The versions that can be asked for.
pub(super) fn versions() -> impl Iterator<Item = &'static str> {
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN].into_iter()
}

impl Session {
    /// Shakes hands over a wire. Without a version the newest is tried first.
    pub(super) async fn begin(
        wire: Wire,
        inbox: Arc<Inbox>,
        protocol: Option<&str>,
    ) -> Result<Self, String> {
        let agent = Implementation::new("gesta", env!("CARGO_PKG_VERSION"));
        let mut config = ClientConfig::new(ClientCapabilities::default(), agent);
        let version = |text: &str| {
            serde_json::from_value::<ProtocolVersion>(Value::from(text))
                .unwrap_or(ProtocolVersion::LATEST)
        };
        let lifecycle = match protocol {
            None => ClientLifecycleMode::Auto {
                preferred_versions: vec![version(MODERN)],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Some(text) if text >= MODERN => {
                ClientLifecycleMode::Discover { preferred_versions: vec![version(text)] }
            }
            Some(text) => {
                config.protocol_version = version(text);
                ClientLifecycleMode::Initialize
            }
        };
        let begun = Box::pin(serve_client_with_lifecycle(Us(config), wire, lifecycle)).await;
        let running = match begun {
            Ok(running) => running,
            Err(error) => return Err(no_handshake(&error, &inbox).await),
        };
        let peer = running.peer();
        let info = peer.peer_info().ok_or("the server did not say which protocol it speaks")?;
        let agreed = info.protocol_version.to_string();
        if protocol.is_some_and(|wanted| wanted != agreed) {
            let wanted = protocol.unwrap_or_default();
            return Err(format!(
                "the server speaks version {agreed} of the protocol, not {wanted}; if that is right, run `gesta tools pin`, and mind `protocol`"
            ));
        }
        let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
        let changes = match tells == Some(true) && agreed.as_str() >= MODERN {
            true => listen(peer).await,
            false => None,
        };
        let identity = offer::identity(&inbox.greeting().unwrap_or_default());
        Ok(Self { running, inbox, protocol: agreed, identity, _changes: changes })
    }

    /// Why it has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        let closed = || self.running.is_closed() || self.running.peer().is_transport_closed();
        self.inbox.ended().or_else(|| closed().then(|| "the conversation was closed".to_owned()))
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Asks for everything that the server offers.
    pub(super) async fn offer(&self) -> Result<Offer, String> {
        let mut tools = BTreeMap::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let Page { tools: page, next } = offer::page(&self.list(cursor).await?)?;
            for (name, raw) in page {
                if tools.insert(name.clone(), raw).is_some() {
                    return Err(format!("the server offers two tools called `{name}`"));
                }
            }
            if tools.len() > MAX_TOOLS {
                return Err(format!("the server offers more than {MAX_TOOLS} tools"));
            }
            match next {
                None => {
                    let (protocol, server) = (self.protocol.clone(), self.identity.clone());
                    return Ok(Offer { protocol, server, tools });
                }
                next => cursor = next,
            }
        }
        Err("the server's list of tools has no end".to_owned())
    }

    async fn list(&self, cursor: Option<String>) -> Result<String, String> {
        let exchange = Arc::new(Exchange::question());
        let params = cursor.map(|cursor| {
            let mut params = PaginatedRequestParams::default();
            params.cursor = Some(cursor);
            params
        });
        let mut request = ListToolsRequest { params, ..ListToolsRequest::default() };
        request.extensions.insert(Arc::clone(&exchange));
        let request = ClientRequest::ListToolsRequest(request);
        let peer = self.running.peer();
        let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        if let Ok(handle) = sent {
            let mut asked = Asked(Some(handle), Arc::clone(&self.inbox));
            asked.answered().await;
            asked.0 = None;
        }
        match exchange.conclude("the server did not say what it offers") {
            Answer::Result(result) => Ok(result),
            Answer::Error { code, message, .. } => {
                Err(format!("the server does not say what it offers: {message} ({code})"))
            }
            Answer::Status { message: why, .. }
            | Answer::NotSent { why, .. }
            | Answer::Lost(why)
            | Answer::TooLarge(why) => Err(why),
        }
    }

    /// Makes a call. By the deadline it is called off, and so it is when this future is dropped.
    pub(super) async fn call(
        &self,
        tool: &str,
        call: &Call,
        mut progressed: impl FnMut(Progressed) + Send,
    ) -> (Answer, bool) {
        let (progress, mut reports) = mpsc::channel(PROGRESS);
        let exchange = Arc::new(Exchange::call(call.args.clone(), progress));
        let mut request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()));
        request.extensions.insert(Arc::clone(&exchange));
        let mut meta = RequestMetaObject::default();
        meta.insert(KEY.to_owned(), Value::from(call.key.as_str()));
        meta.insert(ATTEMPT.to_owned(), Value::from(call.attempt));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let request = ClientRequest::CallToolRequest(request);
        let sent = self.running.peer().send_cancellable_request(request, options).await;
        let Ok(handle) = sent else {
            return (exchange.conclude("the conversation has ended"), false);
        };
        let mut asked = Asked(Some(handle), Arc::clone(&self.inbox));
        let late = tokio::time::sleep_until(call.deadline);
        tokio::pin!(late);
        loop {
            tokio::select! {
                () = asked.answered() => {
                    asked.0 = None;
                    let why = self.ended().unwrap_or_else(|| "there is no answer".to_owned());
                    return (exchange.conclude(&why), false);
                }
                Some(report) = reports.recv() => progressed(report),
                () = &mut late => {
                    let answer = exchange.conclude("the deadline passed");
                    if let (Answer::NotSent { .. }, Some(handle)) = (&answer, &asked.0) {
                        // There is nothing to call off. The next call begins a new conversation.
                        self.inbox.forget(&handle.id);
                        self.inbox.retire("the server takes no messages");
                        asked.0 = None;
                    }
                    return (answer, true);
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.inbox.end("the conversation was closed", false);
    }
}

/// A request under way. Dropped unanswered, it is called off.
struct Asked(Option<RequestHandle<RoleClient>>, Arc<Inbox>);

impl Asked {
    /// Waits until there is an answer, or none will come.
    async fn answered(&mut self) {
        if let Some(handle) = &mut self.0 {
            let _kept = (&mut handle.rx).await;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        self.1.forget(&handle.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A server that has ended needs no telling.
                let _gone = handle.cancel(Some("nobody waits for it any more".to_owned())).await;
            });
        }
    }
}

async fn listen(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    timeout(LISTEN_WITHIN, peer.listen(filter)).await.ok()?.ok()
}

/// Why there was no handshake. A server that has ended says it best.
async fn no_handshake(error: &ClientInitializeError, inbox: &Inbox) -> String {
    if let ClientInitializeError::TransportError { error, .. } = error
        && let Some(WireError::Ended(_)) = error.error.downcast_ref()
    {
        inbox.wait_for_end().await;
    }
    match (inbox.ended(), error) {
        (Some(how), _) => how,
        (None, ClientInitializeError::TransportError { error, .. }) => error.error.to_string(),
        (None, ClientInitializeError::JsonRpcError(error)) => {
            format!("it refuses the handshake: {} ({})", error.message, error.code.0)
        }
        (None, ClientInitializeError::LegacyFallbackFailed { fallback, .. }) => {
            format!("there was no handshake: {fallback}")
        }
        (None, error) => format!("there was no handshake: {error}"),
    }
}
