//! HTTP tools: what is sent, and what a whole reply means.

use gesta_core::document::Certainty::{DidNotHappen, Happened, Unknown};
use gesta_runtime::tools::{Catalogue, Reply, code};
use serde_json::{Value, json};

use crate::server::{Act, Server};
use crate::world::{World, answer, ask, check_failure, failure};

/// A tool that sends to this place on the server.
pub(crate) fn tool(
    server: &Server,
    effect: &str,
    method: &str,
    place: &str,
    more: &str,
) -> Catalogue {
    let url = server.url();
    World::new().catalogue(&format!(
        "[tools.t]\neffect = \"{effect}\"\n[tools.t.driver.http]\nmethod = \"{method}\"\nurl = \"{url}{place}\"\nallow_private = true\n{more}\n"
    ))
}

async fn heard(method: &str, place: &str, more: &str, args: Value) -> String {
    let server = Server::start(vec![Act::reply(200, "", "{}")]).await;
    let catalogue = tool(&server, "write", method, place, more);
    assert_eq!(answer(ask(&catalogue, "t", &args).await), "{}");
    assert_eq!((server.connections(), server.deliveries()), (1, 1));
    server.heard(0)
}

#[tokio::test]
async fn a_post_sends_the_rest_of_the_arguments_as_json_with_the_key() {
    let request = heard(
        "POST",
        "/refunds/{order}?dry={dry}",
        "headers = { X-Shop = \"7\" }",
        json!({"order": "a/b c", "dry": false, "z": 1, "amount": {"cents": 5}}),
    )
    .await;
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("POST /refunds/a%2Fb%20c?dry=false HTTP/1.1"));
    assert_eq!(body, "{\"amount\":{\"cents\":5},\"z\":1}");
    let headers: Vec<&str> = lines.collect();
    for header in [
        "idempotency-key: gesta-0123",
        "x-shop: 7",
        "content-type: application/json",
        "accept-encoding: identity",
        "connection: close",
    ] {
        assert!(headers.contains(&header), "{header} in {headers:?}");
    }
}

#[tokio::test]
async fn get_and_delete_send_the_rest_as_a_query_and_only_delete_the_key() {
    let args = json!({"id": 5, "tag": ["x", "y z"], "all": true});
    let get = heard("GET", "/items/{id}?v=2", "", args.clone()).await;
    assert!(get.starts_with("GET /items/5?v=2&all=true&tag=x&tag=y%20z HTTP/1.1\r\n"), "{get}");
    assert!(!get.contains("idempotency-key") && get.ends_with("\r\n\r\n"), "{get}");
    let delete = heard("DELETE", "/items/{id}", "key_header = \"X-Key\"", args).await;
    assert!(
        delete.starts_with("DELETE /items/5?all=true&tag=x&tag=y%20z HTTP/1.1\r\n"),
        "{delete}"
    );
    assert!(delete.contains("\r\nx-key: gesta-0123\r\n"), "{delete}");
    let post = heard("POST", "/", "body = \"query\"\nkey_header = \"\"", json!({"a": 1})).await;
    assert!(post.starts_with("POST /?a=1 HTTP/1.1\r\n") && !post.contains("gesta-0123"), "{post}");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_not_sent() {
    let server = Server::start(vec![Act::Close]).await;
    for (method, args) in [
        ("POST", json!({})),
        ("POST", json!({"id": null})),
        ("POST", json!({"id": ".."})),
        ("POST", json!({"id": ""})),
        ("POST", json!([1])),
        ("GET", json!({"id": 1, "x": {"y": 1}})),
    ] {
        let catalogue = tool(&server, "write", method, "/a/{id}", "");
        let reply = ask(&catalogue, "t", &args).await;
        check_failure(reply, DidNotHappen, false, code::ARGUMENTS_UNSENDABLE);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn an_empty_answer_is_null_and_any_other_is_itself() {
    for (act, expected) in [
        (Act::reply(204, "", ""), "null"),
        (Act::reply(200, "", ""), "null"),
        (Act::reply(201, "", " {\"a\" : 1} "), " {\"a\" : 1} "),
        (Act::Reply(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n".to_vec()), "[1,2]"),
        (Act::Reply(b"HTTP/1.0 200 OK\r\n\r\n\"until the end\"".to_vec()), "\"until the end\""),
        (Act::Reply(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n5".to_vec()), "5"),
    ] {
        let server = Server::start(vec![act]).await;
        let catalogue = tool(&server, "write", "POST", "/", "");
        assert_eq!(answer(ask(&catalogue, "t", &json!({})).await), expected);
        assert_eq!((server.connections(), server.deliveries()), (1, 1));
    }
}

#[tokio::test]
async fn a_status_tells_what_is_known() {
    let permanent = (DidNotHappen, false, code::HTTP_STATUS);
    let retry = (DidNotHappen, true, code::HTTP_STATUS);
    let unknown = (Unknown, true, code::HTTP_STATUS);
    let redirect = (DidNotHappen, false, code::REDIRECT_REFUSED);
    let redirected = (Unknown, true, code::REDIRECT_REFUSED);
    for (effect, status, (certainty, retryable, code)) in [
        ("write", 400, permanent),
        ("write", 401, permanent),
        ("write", 404, permanent),
        ("write", 409, permanent),
        ("write", 422, permanent),
        ("write", 425, retry),
        ("irreversible", 429, retry),
        // Whoever stands in between says these too, whatever was done behind them.
        ("write", 408, unknown),
        ("irreversible", 500, unknown),
        ("write", 502, unknown),
        ("write", 503, unknown),
        ("external", 503, unknown),
        ("irreversible", 503, unknown),
        ("write", 504, unknown),
        ("write", 300, redirected),
        ("external", 303, redirected),
        ("write", 304, redirected),
        ("irreversible", 307, redirected),
        // What changes nothing may be asked again.
        ("read", 408, retry),
        ("read", 425, retry),
        ("read", 429, retry),
        ("read", 500, retry),
        ("read", 502, retry),
        ("read", 503, retry),
        ("read", 504, retry),
        ("read", 404, permanent),
        ("read", 302, redirect),
    ] {
        let server = Server::start(vec![Act::reply(status, "", "\"why\"")]).await;
        let reply = ask(&tool(&server, effect, "POST", "/", ""), "t", &json!({})).await;
        if let (Reply::Failed { output, .. }, false) = (&reply, status == 304) {
            assert_eq!(output, b"\"why\"");
        }
        check_failure(reply, certainty, retryable, code);
        assert_eq!((server.connections(), server.deliveries()), (1, 1), "{status}");
    }
}

#[tokio::test]
async fn a_declaration_says_what_a_status_means() {
    let status = "status = { \"409\" = \"happened\", \"5xx\" = \"did_not_happen\", \"500\" = \"retry\", \
        \"404\" = \"answered\", \"202\" = \"unknown\", \"429\" = \"permanent\", \"503\" = \"retry\" }";
    for (status_code, (certainty, retryable)) in [
        (409, (Happened, false)),
        (502, (DidNotHappen, false)),
        (500, (DidNotHappen, true)),
        (503, (DidNotHappen, true)),
        (202, (Unknown, true)),
        (429, (DidNotHappen, false)),
    ] {
        let server = Server::start(vec![Act::reply(status_code, "", "1")]).await;
        let reply = ask(&tool(&server, "write", "POST", "/", status), "t", &json!({})).await;
        check_failure(reply, certainty, retryable, code::HTTP_STATUS);
    }
    let server = Server::start(vec![Act::reply(404, "", "[]")]).await;
    let reply = ask(&tool(&server, "read", "GET", "/", status), "t", &json!({})).await;
    assert_eq!(answer(reply), "[]");
}

#[tokio::test]
async fn a_pause_is_honoured_up_to_an_hour() {
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (status, headers, expected) in [
        (429, "retry-after: 7\r\n".to_owned(), Some(7_000)),
        (503, "retry-after: 86400\r\n".to_owned(), Some(3_600_000)),
        (503, "retry-after: 99999999999999999999999\r\n".to_owned(), None),
        (503, format!("{date}retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\n"), Some(30_000)),
        (503, format!("{date}retry-after: Sun, 06 Nov 1994 07:00:00 GMT\r\n"), Some(0)),
        (503, "retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\n".to_owned(), None),
        (503, "retry-after: soon\r\n".to_owned(), None),
        (503, String::new(), None),
        (404, "retry-after: 7\r\n".to_owned(), None),
    ] {
        let server = Server::start(vec![Act::reply(status, &headers, "")]).await;
        let reply = ask(&tool(&server, "write", "POST", "/", ""), "t", &json!({})).await;
        let Reply::Failed { retry_after_ms, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(retry_after_ms, expected, "{headers}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(vec![Act::reply(200, "", "{}")]).await;
    for status in [301, 302, 303, 307, 308] {
        for place in [elsewhere.url(), "/other".to_owned()] {
            let location = format!("location: {place}/x\r\n");
            let server =
                Server::start(vec![Act::reply(status, &location, ""), Act::reply(200, "", "{}")])
                    .await;
            for method in ["GET", "POST"] {
                let before = server.connections();
                let reply = ask(&tool(&server, "read", method, "/", ""), "t", &json!({})).await;
                if before == 0 {
                    let (found, message) = failure(reply);
                    assert_eq!(found, (DidNotHappen, false, code::REDIRECT_REFUSED.to_owned()));
                    assert!(message.contains("redirects are not followed"), "{message}");
                }
                assert_eq!(server.connections(), before + 1);
            }
        }
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn cookies_are_not_kept() {
    let server = Server::start(vec![Act::reply(200, "set-cookie: a=b\r\n", "{}")]).await;
    let catalogue = tool(&server, "write", "POST", "/", "");
    for call in 0..3 {
        answer(ask(&catalogue, "t", &json!({})).await);
        assert_eq!(server.connections(), call + 1, "a fresh connection for each call");
        assert!(!server.heard(call).to_lowercase().contains("cookie"));
    }
}

#[tokio::test]
async fn a_reply_that_is_too_large_means_that_it_happened() {
    let body = "x".repeat(200);
    let chunk = "64\r\n".to_owned() + &"x".repeat(100) + "\r\n";
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(1_000));
    for act in [Act::reply(200, "", &body), Act::Reply(chunked.into_bytes())] {
        for (effect, certainty) in [("write", Happened), ("read", DidNotHappen)] {
            let server = Server::start(vec![act.clone()]).await;
            let catalogue = tool(&server, effect, "POST", "/", "max_output = 199");
            let reply = ask(&catalogue, "t", &json!({})).await;
            check_failure(reply, certainty, false, code::OUTPUT_TOO_LARGE);
            assert_eq!(server.deliveries(), 1);
        }
    }
    let server = Server::start(vec![Act::reply(500, "", &body)]).await;
    let reply =
        ask(&tool(&server, "write", "POST", "/", "max_output = 199"), "t", &json!({})).await;
    check_failure(reply, Unknown, true, code::OUTPUT_TOO_LARGE);
    let server = Server::start(vec![Act::reply(200, "", &body)]).await;
    let reply =
        ask(&tool(&server, "write", "POST", "/", "max_output = 200"), "t", &json!({})).await;
    assert_eq!(answer(reply), body);
}

#[test]
fn declarations_that_make_no_sense_are_refused() {
    let check = |http: &str, expected: &str| {
        let toml = format!(
            "[tools.t]\neffect = \"write\"\nsecrets = {{ KEY = {{ env = \"X\" }} }}\n\
             input = {{ properties = {{ id = {{}} }} }}\n[tools.t.driver.http]\n{http}\n"
        );
        let error = World::new().try_catalogue(&toml).unwrap_err().to_string();
        assert!(error.starts_with("tools.toml:1:8: tool `t`: "), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    let post = "method = \"POST\"\nurl = \"http://a.example/\"";
    check("method = \"post\"\nurl = \"http://a.example/\"", "`method` is `post`");
    check(
        "method = \"GET\"\nbody = \"json\"\nurl = \"http://a.example/\"",
        "a GET request has no body",
    );
    check(
        "method = \"GET\"\nurl = \"https://{id}.example/\"",
        "placeholder or user information before its path",
    );
    check(
        "method = \"GET\"\nurl = \"https://a.example/{nope}\"",
        "the argument `nope`, which the input schema",
    );
    check("method = \"GET\"\nurl = \"a.example\"", "`url` is not an http:// or https:// URL");
    check(
        &format!("{post}\nheaders = {{ Host = \"x\" }}"),
        "the header `Host` is set by the connection",
    );
    check(&format!("{post}\nheaders = {{ Content-Length = \"1\" }}"), "`Content-Length` is set by");
    check(
        &format!("{post}\nheaders = {{ Proxy-Authorization = \"1\" }}"),
        "is set by the connection",
    );
    check(&format!("{post}\nheaders = {{ \"a b\" = \"x\" }}"), "`a b` is not a header");
    check(&format!("{post}\nheaders = {{ A = \"x\\ny\" }}"), "`A` is not a header");
    check(&format!("{post}\nheaders = {{ A = \"{{id}}\" }}"), "only {secret:NAME}");
    check(&format!("{post}\nheaders = {{ A = \"{{secret:OTHER}}\" }}"), "`{secret:OTHER}`");
    check(&format!("{post}\nheaders = {{ A = \"{{secret:KEY\" }}"), "only {secret:NAME}");
    check(
        &format!("{post}\nheaders = {{ idempotency-key = \"x\" }}"),
        "`idempotency-key` is set by",
    );
    check(&format!("{post}\nstatus = {{ \"6xx\" = \"retry\" }}"), "`status` has `6xx`");
    check(&format!("{post}\nstatus = {{ \"99\" = \"retry\" }}"), "`status` has `99`");
    check(
        "method = \"GET\"\nurl = \"https://a.example/\"\nca = \"missing.pem\"",
        "cannot read certificates",
    );
}
