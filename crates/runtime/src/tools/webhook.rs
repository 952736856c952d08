//! Webhooks: where notices go, and how they are signed. A delivery is one request on a connection of
//! its own, like that of any tool: no redirect, no proxy, addresses checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gesta_core::ids::Channel;
use gesta_core::projection::{Notice, Topic};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request};
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Map;
use tokio::time::Instant;

use super::http::{BadHttp, Url, post, tls_config};
use super::secrets::{SecretSource, Secrets};

/// How long one delivery may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How a secret begins that is written in Base64.
const ENCODED: &str = "whsec_";

/// `[notify.NAME]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookDeclaration {
    /// Where notices are posted to.
    pub url: String,
    /// What they are signed with. As it is, or after `whsec_` in Base64.
    pub secret: SecretSource,
    /// Which notices; without it, all.
    #[serde(default)]
    pub events: Option<BTreeSet<Topic>>,
    /// Approvals of which channels; without it, of all.
    #[serde(default)]
    pub channels: Option<BTreeSet<Channel>>,
    /// Whether addresses that are not public may be reached.
    #[serde(default)]
    pub allow_private: bool,
    /// A PEM file with certificate authorities that are believed beside those of the system.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// Somebody who is told.
#[derive(Clone)]
pub struct Webhook {
    name: String,
    url: Url,
    events: Option<BTreeSet<Topic>>,
    channels: Option<BTreeSet<Channel>>,
    secret: SecretSource,
    allow_private: bool,
    tls: Option<Arc<ClientConfig>>,
    base_dir: PathBuf,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Webhook {
    /// A webhook as it is declared; paths begin at `base_dir`.
    pub fn new(
        name: String,
        declaration: WebhookDeclaration,
        base_dir: &Path,
    ) -> Result<Self, BadHttp> {
        let WebhookDeclaration { url, secret, events, channels, allow_private, ca } = declaration;
        let url = Url::parse(&url)?;
        if let Some(argument) = url.arguments().next() {
            return Err(BadHttp::Placeholder(argument.to_owned()));
        }
        let ca = ca.map(|ca| base_dir.join(ca));
        let tls = url.https.then(|| tls_config(ca.as_deref())).transpose();
        let (tls, base_dir) = (tls.map_err(BadHttp::Authorities)?, base_dir.to_owned());
        Ok(Self { name, url, events, channels, secret, allow_private, tls, base_dir })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is to be told of this. A notice that names channels is for those who hear one of them; what
    /// names none is for everybody.
    pub(crate) fn wants(&self, notice: &Notice) -> bool {
        let topic = self.events.as_ref().is_none_or(|events| events.contains(&notice.topic));
        let asked = notice.channels();
        let hears = |channels: &BTreeSet<Channel>| {
            asked.is_empty() || asked.iter().any(|channel| channels.contains(channel))
        };
        topic && self.channels.as_ref().is_none_or(hears)
    }

    /// Posts an event once. Ok when the other side says that it has it.
    pub(crate) async fn post(&self, id: &str, at_s: u64, body: Vec<u8>) -> Result<(), String> {
        let request = self.request(id, at_s, body)?;
        let (tls, deadline) = (self.tls.as_ref(), Instant::now() + TIMEOUT);
        let status = post(&self.url, self.allow_private, tls, request, deadline).await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("`{}` answered {status}", self.url.authority))
        }
    }

    fn request(&self, id: &str, at_s: u64, body: Vec<u8>) -> Result<Request<Full<Bytes>>, String> {
        let name = "webhook".parse().map_err(|error| format!("{error}"))?;
        let sources = BTreeMap::from([(name, self.secret.clone())]);
        let secrets = Secrets::find(&sources, &self.base_dir).map_err(|error| error.to_string())?;
        let signature = sign(secrets.get("webhook").unwrap_or_default(), id, at_s, &body)?;
        let target = self.url.target(&Map::new())?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target.into();
        let text = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        let headers = request.headers_mut();
        headers.insert(header::HOST, text(&self.url.authority)?);
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let version = concat!("gesta/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(version));
        let json = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert("webhook-id", text(id)?);
        headers.insert("webhook-timestamp", text(&at_s.to_string())?);
        headers.insert("webhook-signature", text(&signature)?);
        Ok(request)
    }
}

/// `v1,` and the code of id, time and body, so that none of them can be changed or sent again later.
fn sign(secret: &[u8], id: &str, at_s: u64, body: &[u8]) -> Result<String, String> {
    let encoded = std::str::from_utf8(secret).ok().and_then(|text| text.strip_prefix(ENCODED));
    let decoded = encoded.map(|text| BASE64.decode(text)).transpose();
    let decoded = decoded.map_err(|_| format!("the secret is not Base64 after `{ENCODED}`"))?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, decoded.as_deref().unwrap_or(secret));
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{id}.{at_s}.").as_bytes());
    context.update(body);
    Ok(format!("v1,{}", BASE64.encode(context.sign())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gesta_core::digest::Digest;

    /// HMAC as its definition says it, for keys that are shorter than a block.
    fn hmac_of(key: &[u8], message: &[u8]) -> [u8; 32] {
        let pad = |with: u8| {
            let mut block = [with; 64];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            block.to_vec()
        };
        let inner = Digest::of(&[pad(0x36), message.to_vec()].concat());
        *Digest::of(&[pad(0x5c), inner.as_bytes().to_vec()].concat()).as_bytes()
    }

    #[test]
    fn id_time_and_body_are_signed() {
        let expected =
            format!("v1,{}", BASE64.encode(hmac_of(b"secret", b"some-id.1700000000.{}")));
        assert_eq!(sign(b"secret", "some-id", 1_700_000_000, b"{}").unwrap(), expected);
        let encoded = format!("{ENCODED}{}", BASE64.encode(b"secret"));
        assert_eq!(sign(encoded.as_bytes(), "some-id", 1_700_000_000, b"{}").unwrap(), expected);
        assert_ne!(sign(b"secret", "some-id", 1_700_000_001, b"{}").unwrap(), expected);
        assert!(sign(b"whsec_?", "some-id", 1, b"").is_err());
    }
}
