//! From a declaration and a call to a request.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::json::Canon;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::declaration::{BadHttp, Body, HttpDeclaration};
use super::template::{Url, with_query};
use crate::tools::code;
use crate::tools::driver::{Call, Reply};
use crate::tools::manifest::Manifest;
use crate::tools::secrets::{SecretName, SecretSource, Secrets};
use crate::tools::verdict::Verdict;

/// Headers that frame or route a request: the connection's own.
const RESERVED: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Everything about a request but the call.
pub(super) struct Plan {
    pub(super) method: Method,
    pub(super) url: Url,
    body: Body,
    headers: Vec<(HeaderName, Parts)>,
    key_header: Option<HeaderName>,
}

/// The value of a header, with places for secrets.
pub(in crate::tools) struct Parts(Vec<Part>);

enum Part {
    Text(String),
    Secret(String),
}

impl Plan {
    pub(super) fn new(declaration: &HttpDeclaration, manifest: &Manifest) -> Result<Self, BadHttp> {
        let method = match declaration.method.as_str() {
            "GET" => Method::GET,
            "HEAD" => Method::HEAD,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            other => return Err(BadHttp::Method(other.to_owned())),
        };
        let bodyless = method == Method::GET || method == Method::HEAD;
        let body = match declaration.body {
            Some(Body::Json) if bodyless => return Err(BadHttp::NoBody(method.to_string())),
            Some(body) => body,
            None if bodyless || method == Method::DELETE => Body::Query,
            None => Body::Json,
        };
        let url = Url::parse(&declaration.url)?;
        check_arguments(&url, manifest)?;
        let key_header = match declaration.key_header.as_str() {
            "" => None,
            name => Some(header_name(name)?).filter(|_| !bodyless),
        };
        let headers = headers(&declaration.headers, &manifest.secrets)?;
        if let Some(name) = key_header.as_ref().filter(|key| headers.iter().any(|(n, _)| n == *key))
        {
            return Err(BadHttp::ReservedHeader(name.to_string()));
        }
        Ok(Self { method, url, body, headers, key_header })
    }

    /// The request, or the reply that it could not be made.
    pub(super) fn request(
        &self,
        call: &Call,
        secrets: &Secrets,
    ) -> Result<Request<Full<Bytes>>, Reply> {
        let unsendable = |why: String| {
            Verdict::DidNotHappen
                .failed(code::ARGUMENTS_UNSENDABLE, format!("nothing was sent: {why}"))
        };
        let (target, body) = self.target_and_body(&call.args).map_err(unsendable)?;
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        let text =
            |text: &str| HeaderValue::from_str(text).map_err(|error| unsendable(error.to_string()));
        headers.insert(header::HOST, text(&self.url.authority)?);
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("gesta/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if self.body == Body::Json {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(name) = &self.key_header {
            headers.insert(name.clone(), text(&call.key)?);
        }
        for (name, parts) in &self.headers {
            let value = header_value(name, parts, secrets).map_err(|message| {
                Verdict::DidNotHappen.failed(code::SECRET_UNAVAILABLE, message)
            })?;
            headers.insert(name.clone(), value);
        }
        Ok(request)
    }

    fn target_and_body(&self, args: &Canon) -> Result<(Uri, Option<Bytes>), String> {
        let Ok(Value::Object(mut rest)) = serde_json::from_str(args.as_str()) else {
            return Err("the arguments are not an object".to_owned());
        };
        let target = self.url.target(&rest)?;
        // Not one by one: a map that keeps its order would not keep it.
        rest.retain(|name, _| !self.url.arguments().any(|argument| argument == name));
        match self.body {
            Body::Query => Ok((with_query(&target, &rest)?.into(), None)),
            Body::Json => {
                let body = Canon::of(&rest).map_err(|error| error.to_string())?;
                Ok((target.into(), Some(Bytes::copy_from_slice(body.as_bytes()))))
            }
        }
    }
}

/// A schema that lists its properties knows every argument that the URL takes.
fn check_arguments(url: &Url, manifest: &Manifest) -> Result<(), BadHttp> {
    let properties = manifest.input.as_ref().and_then(|schema| schema.get("properties"));
    let Some(properties) = properties.and_then(Value::as_object) else { return Ok(()) };
    let known = |properties: &Map<String, Value>, name: &str| properties.contains_key(name);
    match url.arguments().find(|name| !known(properties, name)) {
        Some(name) => Err(BadHttp::UnknownArgument(name.to_owned())),
        None => Ok(()),
    }
}

fn header_name(name: &str) -> Result<HeaderName, BadHttp> {
    let parsed: HeaderName = name.parse().map_err(|_| BadHttp::Header(name.to_owned()))?;
    let text = parsed.as_str();
    if RESERVED.contains(&text) || text.starts_with("proxy-") {
        return Err(BadHttp::ReservedHeader(name.to_owned()));
    }
    Ok(parsed)
}

/// Headers as they are declared.
pub(in crate::tools) fn headers(
    declared: &BTreeMap<String, String>,
    secrets: &BTreeMap<SecretName, SecretSource>,
) -> Result<Vec<(HeaderName, Parts)>, BadHttp> {
    let mut seen = BTreeSet::new();
    let mut headers = Vec::new();
    for (name, value) in declared {
        let parsed = header_name(name)?;
        if !seen.insert(parsed.to_string()) {
            return Err(BadHttp::ReservedHeader(name.clone()));
        }
        headers.push((parsed, header_parts(name, value, secrets)?));
    }
    Ok(headers)
}

fn header_parts(
    header: &str,
    value: &str,
    secrets: &BTreeMap<SecretName, SecretSource>,
) -> Result<Parts, BadHttp> {
    let mut parts = Vec::new();
    let mut rest = value;
    loop {
        let (text, tail) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
        if HeaderValue::from_str(text).is_err() {
            return Err(BadHttp::Header(header.to_owned()));
        }
        parts.push(Part::Text(text.to_owned()));
        if tail.is_empty() {
            return Ok(Parts(parts));
        }
        let placeholder = tail.split_inclusive('}').next().unwrap_or(tail);
        let name = placeholder.strip_prefix("{secret:").and_then(|name| name.strip_suffix('}'));
        let declared = |name: &&str| secrets.keys().any(|known| known.as_str() == *name);
        match name.filter(declared) {
            Some(name) => parts.push(Part::Secret(name.to_owned())),
            None => {
                let (header, placeholder) = (header.to_owned(), placeholder.to_owned());
                return Err(BadHttp::HeaderPlaceholder { header, placeholder });
            }
        }
        rest = tail.get(placeholder.len()..).unwrap_or_default();
    }
}

/// A header's value with the secrets filled in.
pub(in crate::tools) fn header_value(
    name: &HeaderName,
    parts: &Parts,
    secrets: &Secrets,
) -> Result<HeaderValue, String> {
    let mut value = Zeroizing::new(Vec::new());
    for part in &parts.0 {
        value.extend_from_slice(match part {
            Part::Text(text) => text.as_bytes(),
            Part::Secret(secret) => secrets.get(secret).unwrap_or_default(),
        });
    }
    let mut value = HeaderValue::from_bytes(&value)
        .map_err(|_| format!("a secret in the header `{name}` holds bytes that no header can"))?;
    value.set_sensitive(true);
    Ok(value)
}
