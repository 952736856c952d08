//! URLs with places for arguments. Where a call goes is written out; only what it asks for there is
//! filled in, and nothing that is filled in can lead out of its place.

use std::collections::BTreeSet;

use gesta_core::json::Canon;
use hyper::http::uri::{Authority, PathAndQuery};
use serde_json::{Map, Value};

use super::declaration::BadHttp;

/// A URL whose path and query have places for arguments.
#[derive(Clone, Debug)]
pub(in crate::tools) struct Url {
    pub(in crate::tools) https: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// As it is sent in the `Host` header.
    pub(in crate::tools) authority: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// An argument in the path.
    Path(String),
    /// An argument in the query.
    Query(String),
}

impl Url {
    pub(in crate::tools) fn parse(url: &str) -> Result<Self, BadHttp> {
        let bad = |why: &str| BadHttp::Url(why.to_owned());
        let (https, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) if url.starts_with('{') => return Err(BadHttp::TemplatedHost),
            (None, None) => return Err(bad("it begins with neither")),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains(['{', '}', '@']) {
            return Err(BadHttp::TemplatedHost);
        }
        if path.contains('#') {
            return Err(bad("it has a fragment"));
        }
        let parsed: Authority = authority.parse().map_err(|_| bad("its host cannot be read"))?;
        let port = match parsed.as_str().strip_prefix(parsed.host()) {
            Some("") => Some(if https { 443 } else { 80 }),
            _ => parsed.port_u16().filter(|port| *port > 0),
        };
        let host = parsed.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let url = Self {
            https,
            host: host.to_owned(),
            port: port.ok_or_else(|| bad("its port cannot be read"))?,
            authority: authority.to_owned(),
            parts: parts(path)?,
        };
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        let sample = url.arguments().map(|name| (name.to_owned(), Value::from("x"))).collect();
        match url.target(&sample) {
            Ok(_) => Ok(url),
            Err(why) => Err(BadHttp::Url(why)),
        }
    }

    /// The arguments that it takes.
    pub(in crate::tools) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Path(name) | Part::Query(name) => Some(name.as_str()),
        })
    }

    /// The path and query with the arguments filled in.
    pub(in crate::tools) fn target(
        &self,
        args: &Map<String, Value>,
    ) -> Result<PathAndQuery, String> {
        let mut target = String::new();
        for part in &self.parts {
            let (name, in_path) = match part {
                Part::Text(text) => {
                    target.push_str(text);
                    continue;
                }
                Part::Path(name) => (name, true),
                Part::Query(name) => (name, false),
            };
            let value =
                args.get(name).ok_or_else(|| format!("the argument `{name}` is missing"))?;
            let text = scalar(value).ok_or_else(|| {
                format!("the argument `{name}` stands in the URL; it can be text, a number, true or false")
            })?;
            if in_path && leads_away(&text) {
                return Err(format!(
                    "the argument `{name}` stands in the path; it can be neither empty nor hold `.`, `..` or control characters as a part"
                ));
            }
            push_encoded(&mut target, &text);
        }
        let path = target.split('?').next().unwrap_or_default();
        if path.split('/').any(|segment| segment == "." || segment == "..") {
            return Err("the path has a part `.` or `..`".to_owned());
        }
        if !target.starts_with('/') {
            target.insert(0, '/');
        }
        target.parse().map_err(|_| "the path or query cannot be read".to_owned())
    }
}

fn parts(path: &str) -> Result<Vec<Part>, BadHttp> {
    if let Some(odd) = path.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(BadHttp::Url(format!("it holds {odd:?}; percent-encode it")));
    }
    let mut parts = Vec::new();
    let (mut rest, mut in_query) = (path, false);
    while !rest.is_empty() {
        let (text, tail) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
        in_query |= text.contains('?');
        parts.push(Part::Text(text.to_owned()));
        let Some(begun) = tail.chars().next() else { break };
        let placeholder = tail.split_inclusive('}').next().unwrap_or(tail);
        let name = placeholder.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        let spelled = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        match name.filter(|name| begun == '{' && !name.is_empty() && name.bytes().all(spelled)) {
            Some(name) if in_query => parts.push(Part::Query(name.to_owned())),
            Some(name) => parts.push(Part::Path(name.to_owned())),
            None => return Err(BadHttp::Placeholder(placeholder.to_owned())),
        }
        rest = tail.get(placeholder.len()..).unwrap_or_default();
    }
    Ok(parts)
}

/// Arguments as a query, appended to what the URL has of one. Lists repeat their name.
pub(super) fn with_query(
    target: &PathAndQuery,
    args: &Map<String, Value>,
) -> Result<PathAndQuery, String> {
    let mut text = target.to_string();
    let mut separator = if target.query().is_some() { '&' } else { '?' };
    // Sorted, whatever order the map keeps.
    for name in args.keys().collect::<BTreeSet<_>>() {
        let values = match args.get(name) {
            Some(Value::Array(values)) => values.iter().collect(),
            value => Vec::from_iter(value),
        };
        for value in values {
            let value = scalar(value).ok_or_else(|| {
                format!("the argument `{name}` goes into the query; it can be text, a number, true, false or a list of them")
            })?;
            text.push(std::mem::replace(&mut separator, '&'));
            push_encoded(&mut text, name);
            text.push('=');
            push_encoded(&mut text, &value);
        }
    }
    text.parse().map_err(|_| "the query cannot be read".to_owned())
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Canon::of(value).ok().map(|text| text.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a server could take this for another place than one part of a path. Slashes are encoded,
/// but some servers decode them before they look.
fn leads_away(text: &str) -> bool {
    let dots = |part: &str| part == "." || part == "..";
    text.is_empty() || text.contains(char::is_control) || text.split(['/', '\\']).any(dots)
}

fn push_encoded(to: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            to.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(url: &str, args: &Value) -> Result<String, String> {
        let args = args.as_object().unwrap().clone();
        Url::parse(url).unwrap().target(&args).map(|target| target.to_string())
    }

    #[test]
    fn arguments_fill_path_and_query() {
        let url = "https://a.example/v1/{kind}/{id}.json?full={full}&q={q}";
        let args = json!({"kind": "übung/1", "id": 7, "full": true, "q": "a&b=c d?#"});
        assert_eq!(
            fill(url, &args).unwrap(),
            "/v1/%C3%BCbung%2F1/7.json?full=true&q=a%26b%3Dc%20d%3F%23"
        );
        assert_eq!(fill("http://a.example", &json!({})).unwrap(), "/");
        assert_eq!(fill("http://a.example?x={x}", &json!({"x": ""})).unwrap(), "/?x=");
    }

    #[test]
    fn no_argument_leads_out_of_its_place() {
        for id in ["", ".", "..", "../admin", "a/../b", "a\\..\\b", "a\nb", "a\0"] {
            assert!(fill("http://a.example/u/{id}", &json!({"id": id})).is_err(), "{id:?}");
        }
        assert!(fill("http://a.example/u/.{id}", &json!({"id": "."})).is_err());
        assert!(fill("http://a.example/u/{a}{b}", &json!({"a": ".", "b": "."})).is_err());
        for id in ["...", "a.b", "%2e%2e", "a?b#c", "@evil.example", "//evil.example"] {
            let filled = fill("http://a.example/u/{id}", &json!({"id": id})).unwrap();
            assert_eq!(filled.matches(['/', '?', '#', '@']).count(), 2, "{filled}");
        }
        for value in [json!(null), json!([1]), json!({"a": 1})] {
            assert!(fill("http://a.example/u/{id}", &json!({"id": value})).is_err());
        }
        assert!(fill("http://a.example/u/{id}", &json!({})).is_err());
    }

    #[test]
    fn scheme_host_and_port_are_written_out() {
        for url in [
            "{url}",
            "https://{host}/",
            "https://api.{region}.example/",
            "https://a.example:{port}/",
            "https://{user}@a.example/",
            "https://user:pw@a.example/",
            "https://a.example{path}",
        ] {
            assert_eq!(Url::parse(url).unwrap_err(), BadHttp::TemplatedHost, "{url}");
        }
        for url in [
            "ftp://a.example/",
            "a.example/",
            "https://",
            "https:///x",
            "http://a.example/#x",
            "http://a.example:0/",
            "http://a.example:99999/",
            "http://a.example:/",
            "http://a.example/a b",
            "http://a.example/é",
            "http://a.example/../x",
            "http://a b/",
        ] {
            assert!(matches!(Url::parse(url), Err(BadHttp::Url(_))), "{url}");
        }
        for url in [
            "http://a.example/{",
            "http://a.example/}",
            "http://a.example/{}",
            "http://a.example/{a b}",
            "http://a.example/{{a}}",
            "http://a.example/{secret:X}",
        ] {
            assert!(
                matches!(Url::parse(url), Err(BadHttp::Placeholder(_) | BadHttp::Url(_))),
                "{url}"
            );
        }
    }

    #[test]
    fn hosts_and_ports_are_told_apart() {
        let check = |url: &str, host: &str, port: u16| {
            let url = Url::parse(url).unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port));
        };
        check("https://a.example/x", "a.example", 443);
        check("http://a.example?x", "a.example", 80);
        check("http://[::1]:8080/x", "::1", 8080);
        check("https://[::ffff:127.0.0.1]", "::ffff:127.0.0.1", 443);
    }

    #[test]
    fn the_rest_goes_into_the_query() {
        let add = |url: &str, args: Value| {
            let target = Url::parse(url).unwrap().target(&Map::new()).unwrap();
            with_query(&target, args.as_object().unwrap()).map(|target| target.to_string())
        };
        let args = json!({"b": "x y", "a": [1, "ü"], "c": false, "d": []});
        assert_eq!(add("http://a.example/p", args).unwrap(), "/p?a=1&a=%C3%BC&b=x%20y&c=false");
        assert_eq!(add("http://a.example/p?z=1", json!({"a&": 1})).unwrap(), "/p?z=1&a%26=1");
        for args in [json!({"a": null}), json!({"a": {"b": 1}}), json!({"a": [[1]]})] {
            assert!(add("http://a.example/p", args).is_err());
        }
    }
}
