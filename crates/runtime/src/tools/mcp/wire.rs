//! Our end of the wire: a transport of the SDK. It writes every message itself, so that a call's
//! arguments go out as the bytes that were permitted, and knows of each whether it was sent. How bytes
//! travel is the outlet's business.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, JsonRpcMessage,
    ProgressToken, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::exchange::Exchange;
use super::inbox::Inbox;

/// How many messages of a server may wait for the SDK.
pub(super) const BACKLOG: usize = 64;
/// Where a request says which version of the protocol it is of, if there was no handshake.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A message could not be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// For this reason.
    #[error("{0}")]
    NotTaken(String),
    /// The server has ended, and how it did will be known in a moment.
    #[error("the server has ended: {0}")]
    Ended(String),
}

/// A message on its way out.
pub(super) struct Outgoing {
    pub(super) text: String,
    /// What kind of message; nothing for an answer.
    pub(super) method: Option<String>,
    /// The request's number, if it is one.
    pub(super) id: Option<RequestId>,
    /// The tool that is called.
    pub(super) tool: Option<String>,
    /// The version that the message itself names.
    pub(super) version: Option<String>,
    pub(super) exchange: Option<Arc<Exchange>>,
    /// The request that this message calls off.
    pub(super) cancels: Option<RequestId>,
}

pub(super) type Sending = Pin<Box<dyn Future<Output = Result<(), WireError>> + Send>>;

/// Where messages go.
pub(super) trait Outlet: Send + Sync + 'static {
    /// Queues a message at once; what is returned waits until it was sent, and accepted if the other
    /// side says so.
    fn send(&self, message: Outgoing) -> Sending;

    /// Ends the connection.
    fn close(&self) -> Sending;
}

/// See the module.
pub(super) struct Wire {
    pub(super) outlet: Box<dyn Outlet>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) from_server: mpsc::Receiver<ServerJsonRpcMessage>,
}

impl Transport<RoleClient> for Wire {
    type Error = WireError;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        let sending = self.outgoing(&item).map(|message| self.outlet.send(message));
        async move { sending?.await }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.from_server.recv().await
    }

    async fn close(&mut self) -> Result<(), WireError> {
        self.outlet.close().await
    }
}

impl Wire {
    /// Writes a message and notes what answer is expected.
    fn outgoing(&self, message: &ClientJsonRpcMessage) -> Result<Outgoing, WireError> {
        let bad = |error: serde_json::Error| WireError::NotTaken(error.to_string());
        let value = serde_json::to_value(message).map_err(bad)?;
        let meta = value.get("params").and_then(|params| params.get("_meta"));
        let text_of = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let mut outgoing = Outgoing {
            text: String::new(),
            method: text_of(value.get("method")),
            id: None,
            tool: None,
            version: text_of(meta.and_then(|meta| meta.get(VERSION))),
            exchange: None,
            cancels: None,
        };
        match message {
            JsonRpcMessage::Request(request) => {
                let id = request.id.clone();
                match &request.request {
                    ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_) => {
                        self.inbox.expect_greeting(&id);
                    }
                    other => match other.extensions().get::<Arc<Exchange>>() {
                        Some(exchange) => {
                            let token = meta.and_then(|meta| meta.get("progressToken"));
                            let token = token.and_then(|token| {
                                serde_json::from_value::<ProgressToken>(token.clone()).ok()
                            });
                            self.inbox.expect(&id, token, exchange);
                            outgoing.exchange = Some(Arc::clone(exchange));
                        }
                        None => self.inbox.expect_typed(&id),
                    },
                }
                if let ClientRequest::CallToolRequest(call) = &request.request {
                    outgoing.tool = Some(call.params.name.to_string());
                }
                outgoing.id = Some(id);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                {
                    outgoing.cancels.clone_from(&cancelled.params.request_id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        let args = outgoing.exchange.as_ref().and_then(|exchange| exchange.args.as_ref());
        outgoing.text = match (args, &outgoing.id, &outgoing.tool) {
            (Some(args), Some(id), Some(name)) => {
                let arguments: &RawValue = serde_json::from_str(args.as_str()).map_err(bad)?;
                let params = CallParams { name, arguments, meta };
                let call = CallMessage { jsonrpc: "2.0", id, method: "tools/call", params };
                serde_json::to_string(&call).map_err(bad)?
            }
            _ => serde_json::to_string(&value).map_err(bad)?,
        };
        Ok(outgoing)
    }
}

/// A call, with its arguments as they were permitted.
#[derive(Serialize)]
struct CallMessage<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    method: &'static str,
    params: CallParams<'a>,
}

#[derive(Serialize)]
struct CallParams<'a> {
    name: &'a str,
    arguments: &'a RawValue,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

#[cfg(test)]
mod tests {
    use gesta_core::json::Canon;
    use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult};

    use super::*;

    struct Nowhere;

    impl Outlet for Nowhere {
        fn send(&self, _: Outgoing) -> Sending {
            Box::pin(async { Ok(()) })
        }

        fn close(&self) -> Sending {
            Box::pin(async { Ok(()) })
        }
    }

    fn call(arguments: Option<&Canon>, extension: Option<Arc<Exchange>>) -> ClientJsonRpcMessage {
        let mut params = CallToolRequestParams::new("pay");
        params.arguments = arguments.map(|args| serde_json::from_str(args.as_str()).unwrap());
        let mut request = CallToolRequest::new(params);
        if let Some(exchange) = extension {
            request.extensions.insert(exchange);
        }
        let id = RequestId::Number(7);
        ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), id)
    }

    #[test]
    fn arguments_go_out_as_they_were_permitted() {
        let args = Canon::parse("{\"\u{10002}\":0.000001,\"\u{ff61}\":1}".as_bytes()).unwrap();
        let (to_sdk, from_server) = mpsc::channel(1);
        let inbox = Arc::new(Inbox::new(to_sdk));
        let wire = Wire { outlet: Box::new(Nowhere), inbox, from_server };
        let exchange = Arc::new(Exchange::call(args.clone(), mpsc::channel(1).0));
        let sent = wire.outgoing(&call(None, Some(exchange))).unwrap().text;
        assert!(sent.contains(&format!("\"arguments\":{args}")), "{sent}");
        // The SDK alone would have sent other bytes.
        let typed = serde_json::to_string(&call(Some(&args), None)).unwrap();
        assert!(!typed.contains(args.as_str()), "{typed}");
    }

    #[test]
    fn the_sdks_results_lose_what_they_do_not_know() {
        let raw = r#"{"content":[],"x-extra":1}"#;
        let typed: CallToolResult = serde_json::from_str(raw).unwrap();
        assert!(!serde_json::to_string(&typed).unwrap().contains("x-extra"));
    }
}
