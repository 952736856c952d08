//! What a request of the protocol's later versions repeats in its headers: its method, its tool, and the
//! arguments that the tool's schema marks for that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::wire::Outgoing;

/// The first version without a handshake: every request speaks for itself.
pub(super) const MODERN: &str = "2026-07-28";
/// How a schema marks an argument.
const MARK: &str = "x-mcp-header";
const DEEPEST: usize = 64;

/// Adds the headers of a request, or says why it cannot be sent.
pub(super) fn standard(
    message: &Outgoing,
    schema: Option<&Value>,
    to: &mut HeaderMap,
) -> Result<(), String> {
    let mut add = |name: &str, text: &str| {
        let name: HeaderName =
            name.parse().map_err(|_| format!("no header can be called `{name}`"))?;
        let value = HeaderValue::from_str(&encoded(text)).map_err(|error| error.to_string())?;
        to.insert(name, value);
        Ok::<_, String>(())
    };
    if let Some(method) = &message.method {
        add("mcp-method", method)?;
    }
    if let Some(tool) = &message.tool {
        add("mcp-name", tool)?;
    }
    let args = message.exchange.as_ref().and_then(|exchange| exchange.args.as_ref());
    let args: Option<Value> = args.and_then(|args| serde_json::from_str(args.as_str()).ok());
    if let (Some(schema), Some(args)) = (schema, &args) {
        let mut marked = Vec::new();
        collect(schema, args, DEEPEST, &mut marked);
        for (name, text) in marked {
            add(&format!("mcp-param-{name}"), &text)?;
        }
    }
    Ok(())
}

/// The marked arguments that are given and are no lists or objects.
fn collect(schema: &Value, args: &Value, depth: usize, marked: &mut Vec<(String, String)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(left) = depth.checked_sub(1) else { return };
    for (name, schema) in properties.into_iter().flatten() {
        let Some(value) = args.get(name) else { continue };
        if let Some(header) = schema.get(MARK).and_then(Value::as_str) {
            let text = match value {
                Value::String(text) => Some(text.clone()),
                Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            };
            marked.extend(text.map(|text| (header.to_owned(), text)));
        }
        collect(schema, value, left, marked);
    }
}

/// A value as a header can hold it.
fn encoded(text: &str) -> String {
    let printable = text.bytes().all(|b| (0x20..=0x7e).contains(&b));
    let bare = text.trim_matches([' ', '\t']) == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if printable && bare {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gesta_core::json::Canon;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::tools::mcp::exchange::Exchange;

    #[test]
    fn marked_arguments_travel_in_headers() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "plain": {"type": "string"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
        }});
        let args = json!({"region": "zü", "plain": "x", "deep": {"n": 7}});
        let exchange = Exchange::call(Canon::of(&args).unwrap(), mpsc::channel(1).0);
        let message = Outgoing {
            text: String::new(),
            method: Some("tools/call".into()),
            id: None,
            tool: Some("pay".into()),
            version: None,
            exchange: Some(Arc::new(exchange)),
            cancels: None,
        };
        let mut headers = HeaderMap::new();
        standard(&message, Some(&schema), &mut headers).unwrap();
        let got = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(got("mcp-method"), Some("tools/call"));
        assert_eq!(got("mcp-name"), Some("pay"));
        assert_eq!(got("mcp-param-region"), Some("=?base64?esO8?="));
        assert_eq!(got("mcp-param-n"), Some("7"));
        assert_eq!(headers.len(), 4);
    }
}
