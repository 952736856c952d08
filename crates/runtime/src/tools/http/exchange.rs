//! One request, one reply, and what they mean for the effect.

use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{DATE, ETAG, HeaderMap, HeaderName, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::fmt::rfc2822;
use rustls::ClientConfig;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

use super::connect::{NotConnected, Stream, connect};
use super::declaration::{BadHttp, HttpDeclaration};
use super::request::Plan;
use super::template::Url;
use super::tls;
use crate::tools::code;
use crate::tools::driver::{Call, Reply};
use crate::tools::manifest::Manifest;
use crate::tools::secrets::{Mask, Secrets, Transport};
use crate::tools::size::SizeBytes;
use crate::tools::verdict::{Verdict, Verdicts, failing};

/// The longest pause that the other side may ask for.
const MAX_RETRY_AFTER_MS: u64 = 3_600_000;

/// Nobody reads what is answered to a notice.
const MAX_ANSWER: usize = 64 << 10;

/// A tool that is an HTTP request.
pub(in crate::tools) struct Http {
    plan: Plan,
    effect: Effect,
    allow_private: bool,
    tls: Option<Arc<ClientConfig>>,
    status: Verdicts,
    max_output: SizeBytes,
    /// Whether the reply itself is what is asked for, its status and entity tag included.
    whole: bool,
}

impl Http {
    /// A request that returns the whole reply as a document: status, entity tag, body and its hash.
    pub(in crate::tools) fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    pub(in crate::tools) fn new(
        declaration: &HttpDeclaration,
        manifest: &Manifest,
        base_dir: &Arc<PathBuf>,
    ) -> Result<Self, BadHttp> {
        let plan = Plan::new(declaration, manifest)?;
        if let Some(odd) = declaration.status.keys().find(|key| !is_status(key)) {
            return Err(BadHttp::Status(odd.clone()));
        }
        let ca = declaration.ca.as_ref().map(|ca| base_dir.join(ca));
        let tls = plan.url.https.then(|| tls::config(ca.as_deref())).transpose();
        Ok(Self {
            plan,
            effect: manifest.effect,
            allow_private: declaration.allow_private,
            tls: tls.map_err(BadHttp::Authorities)?,
            status: declaration.status.clone(),
            max_output: declaration.max_output,
            whole: false,
        })
    }
}

fn is_status(key: &str) -> bool {
    match key.strip_suffix("xx") {
        Some(class) => matches!(class, "2" | "3" | "4" | "5"),
        None => key.len() == 3 && key.parse().is_ok_and(|code: u16| (200..600).contains(&code)),
    }
}

#[async_trait]
impl Transport for Http {
    async fn send(&self, call: Call, secrets: Arc<Secrets>, _: &Mask) -> Reply {
        let request = match self.plan.request(&call, &secrets) {
            Ok(request) => request,
            Err(reply) => return reply,
        };
        let (tls, deadline) = (self.tls.as_ref(), call.deadline);
        let stream = match connect(&self.plan.url, self.allow_private, tls, deadline).await {
            Ok(stream) => stream,
            Err(error) => return not_connected(&error),
        };
        let sent = Arc::new(AtomicBool::new(false));
        let stream = Watched { stream, sent: Arc::clone(&sent) };
        let exchange = Box::pin(exchange(stream, request, self.max_output.bytes()));
        // Nothing is tried again: a request that was sent and not answered stays unknown.
        match timeout_at(deadline, exchange).await {
            Ok(Ok(received)) => self.judge(received),
            Ok(Err(error)) => self.lost(&sent, code::REPLY_LOST, &chain(&error)),
            Err(_) => self.lost(&sent, code::DEADLINE_PASSED, "the deadline passed"),
        }
    }
}

/// Sends a request that is no call of a tool, once, and says how it was answered.
pub(in crate::tools) async fn post(
    url: &Url,
    allow_private: bool,
    tls: Option<&Arc<ClientConfig>>,
    request: Request<Full<Bytes>>,
    deadline: Instant,
) -> Result<StatusCode, String> {
    let stream = connect(url, allow_private, tls, deadline).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let stream = Watched { stream, sent: Arc::default() };
    match timeout_at(deadline, Box::pin(exchange(stream, request, MAX_ANSWER))).await {
        Ok(Ok(received)) => Ok(received.status),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err("the deadline passed".to_owned()),
    }
}

fn not_connected(error: &NotConnected) -> Reply {
    let verdict = if error.may_pass() { Verdict::Retry } else { Verdict::DidNotHappen };
    let code = match error {
        NotConnected::Refused { .. } => code::ADDRESS_REFUSED,
        _ => code::NOT_CONNECTED,
    };
    verdict.failed(code, format!("nothing was sent: {error}"))
}

/// What came back.
struct Received {
    status: StatusCode,
    retry_after_ms: Option<u64>,
    etag: Option<String>,
    /// Nothing if it is larger than it may be.
    body: Option<Vec<u8>>,
}

/// Sends the request and reads the whole reply. The connection lives and ends with this future.
async fn exchange(
    stream: Watched,
    request: Request<Full<Bytes>>,
    max_output: usize,
) -> hyper::Result<Received> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut connection = pin!(connection);
    let mut talk = pin!(async move {
        let response = sender.send_request(request).await?;
        receive(response, max_output).await
    });
    tokio::select! {
        received = &mut talk => received,
        // A connection that has ended may have left a whole reply behind, or will say why not.
        _ = &mut connection => talk.await,
    }
}

async fn receive(response: Response<Incoming>, max_output: usize) -> hyper::Result<Received> {
    let (head, mut incoming) = response.into_parts();
    let retry_after_ms = retry_after_ms(&head.headers);
    let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let mut received = Received { status: head.status, retry_after_ms, etag, body: None };
    let mut body = Vec::new();
    if incoming.size_hint().lower() > max_output as u64 {
        return Ok(received);
    }
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if body.len() + data.len() > max_output {
            return Ok(received);
        }
        body.extend_from_slice(&data);
    }
    received.body = Some(body);
    Ok(received)
}

/// The pause that is asked for: in seconds, or until a date, counted from the reply's own.
pub(in crate::tools) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let after = text(&RETRY_AFTER)?;
    let ms = match after.parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1_000),
        Err(_) => {
            let at = |text| Some(rfc2822::parse(text).ok()?.timestamp().as_millisecond());
            let pause = at(after)?.saturating_sub(at(text(&DATE)?)?);
            u64::try_from(pause).unwrap_or(0)
        }
    };
    Some(ms.min(MAX_RETRY_AFTER_MS))
}

impl Http {
    fn judge(&self, received: Received) -> Reply {
        if self.whole
            && let Some(reply) = reported(&received)
        {
            return reply;
        }
        let Received { status, retry_after_ms, body, etag: _ } = received;
        let (method, authority) = (&self.plan.method, &self.plan.url.authority);
        let verdict = self.verdict(status);
        let Some(body) = body else {
            let limit = self.max_output;
            let message =
                format!("`{authority}` answered {status} to {method} with more than {limit}");
            // An answer means that it was done, even if it cannot be taken.
            let verdict = match verdict {
                Verdict::Answered if self.effect == Effect::Read => Verdict::DidNotHappen,
                Verdict::Answered => Verdict::Happened,
                other => other,
            };
            return verdict.failed(code::OUTPUT_TOO_LARGE, message);
        };
        let code = if status.is_redirection() { code::REDIRECT_REFUSED } else { code::HTTP_STATUS };
        let message = match code {
            code::REDIRECT_REFUSED => {
                format!("`{authority}` answered {status} to {method}; redirects are not followed")
            }
            _ => format!("`{authority}` answered {status} to {method}"),
        };
        let output = match verdict {
            Verdict::Answered if body.is_empty() => b"null".to_vec(),
            _ => body,
        };
        let mut reply = verdict.reply(output, failing(code, message));
        if let Reply::Failed { retryable: true, retry_after_ms: after, .. } = &mut reply {
            *after = retry_after_ms;
        }
        reply
    }

    fn verdict(&self, status: StatusCode) -> Verdict {
        let class = format!("{}xx", status.as_u16() / 100);
        let declared = self.status.get(status.as_str()).or_else(|| self.status.get(&class));
        match (declared, status.as_u16()) {
            (Some(declared), _) => *declared,
            (None, 200..=299) => Verdict::Answered,
            (None, status) => refusal(status, self.effect),
        }
    }

    /// There is no whole reply. What that means depends on whether anything was sent.
    fn lost(&self, sent: &AtomicBool, code: &str, why: &str) -> Reply {
        let (method, authority) = (&self.plan.method, &self.plan.url.authority);
        if sent.load(Ordering::SeqCst) {
            let message =
                format!("{method} was sent to `{authority}`, and there is no whole reply: {why}");
            Verdict::Unknown.failed(code, message)
        } else {
            let message = format!("nothing was sent to `{authority}`: {why}");
            Verdict::Retry.failed(code::NOT_CONNECTED, message)
        }
    }
}

/// What a status other than 2xx means where nobody declares it. 4xx are refusals by whoever knows the
/// request. The rest may come from somebody in between, who cannot say what was done behind them: a gateway
/// answers 503 or 408 when a payment took too long, and a redirect often follows one.
pub(in crate::tools) fn refusal(status: u16, effect: Effect) -> Verdict {
    match (status, effect) {
        // By their meaning nothing was done: too many requests, or one that may have been replayed.
        (425 | 429, _) => Verdict::Retry,
        (400..=407 | 409..=499, _) | (300..=399, Effect::Read) => Verdict::DidNotHappen,
        (_, Effect::Read) => Verdict::Retry,
        (_, Effect::Write | Effect::External | Effect::Irreversible) => Verdict::Unknown,
    }
}

/// The reply as a document. Only a reply that says how the resource stands is one: it is there, or it is
/// not.
fn reported(received: &Received) -> Option<Reply> {
    #[derive(Serialize)]
    struct Found<'a> {
        body: Option<Canon>,
        etag: Option<&'a str>,
        sha256: Digest,
        status: u16,
    }
    let Received { status, etag, body, .. } = received;
    let body = body.as_ref().filter(|_| {
        status.is_success() || matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE)
    })?;
    let found = Found {
        body: Canon::parse(body).ok(),
        etag: etag.as_deref(),
        sha256: Digest::of(body),
        status: status.as_u16(),
    };
    let output = serde_json::to_vec(&found).ok()?;
    Some(Reply::Answered { output, cost: None })
}

/// An error with its causes.
pub(in crate::tools) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Notes when the first byte of the request is handed over. From then on nobody can say that it was
/// not sent.
struct Watched {
    stream: Box<dyn Stream>,
    sent: Arc<AtomicBool>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sent.store(true, Ordering::SeqCst);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
