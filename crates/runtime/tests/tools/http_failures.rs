//! HTTP tools whose replies do not come: never a second delivery, and never a wrong "did not happen".

use std::process::Command;
use std::time::Duration;

use gesta_core::document::Certainty::{DidNotHappen, Unknown};
use gesta_runtime::tools::{Catalogue, code};
use serde_json::json;
use tokio::net::TcpListener;

use crate::http::tool;
use crate::server::{Act, Server};
use crate::world::{World, answer, ask, call_within, check_failure, failure, send};

/// Set in the process that is started with proxies in its environment: the server's URL.
const ORDERS: &str = "GESTA_TEST_TOOLS_PROXIED";

fn get(url: &str, more: &str) -> Catalogue {
    World::new().catalogue(&format!(
        "[tools.t]\neffect = \"write\"\n[tools.t.driver.http]\nmethod = \"POST\"\nurl = \"{url}\"\n{more}\n"
    ))
}

#[tokio::test]
async fn a_connection_that_closes_in_the_request_leaves_the_effect_unknown() {
    // Larger than what the sockets hold, so that the request is cut off wherever the server stops.
    let args = json!({ "text": "x".repeat(900_000) });
    for bytes in [1, 10, 100, 5_000, 500_000] {
        let server = Server::start(vec![Act::CloseAfter(bytes)]).await;
        let reply = ask(&tool(&server, "write", "POST", "/", ""), "t", &args).await;
        check_failure(reply, Unknown, true, code::REPLY_LOST);
        assert_eq!((server.connections(), server.deliveries()), (1, 1), "{bytes}");
    }
}

/// Whether the request was written before the other side closed is a race; what may never be said is
/// that nothing happened when something arrived.
#[tokio::test]
async fn a_connection_that_closes_at_once_is_told_truthfully() {
    for _ in 0..50 {
        let server = Server::start(vec![Act::CloseAfter(0)]).await;
        let reply = ask(&tool(&server, "write", "POST", "/", ""), "t", &json!({})).await;
        let (found, message) = failure(reply);
        assert!(
            found == (Unknown, true, code::REPLY_LOST.to_owned())
                || found == (DidNotHappen, true, code::NOT_CONNECTED.to_owned()),
            "{found:?}: {message}"
        );
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_reply_that_is_not_whole_leaves_the_effect_unknown() {
    let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345";
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n";
    for reply in [&whole[..], &chunked[..]] {
        for cut in 0..reply.len() {
            let server = Server::start(vec![Act::Reply(reply[..cut].to_vec())]).await;
            for effect in ["write", "read"] {
                let before = server.deliveries();
                let reply = ask(&tool(&server, effect, "POST", "/", ""), "t", &json!({})).await;
                check_failure(reply, Unknown, true, code::REPLY_LOST);
                assert_eq!(server.deliveries(), before + 1, "{cut}");
            }
        }
    }
}

#[tokio::test]
async fn a_reply_that_is_no_http_leaves_the_effect_unknown() {
    for reply in
        ["garbage\r\n\r\n", "SSH-2.0-x\r\n", "HTTP/1.1 999999 No\r\n\r\n", "\0\0\0\0\0\0\0\0"]
    {
        let server = Server::start(vec![Act::Reply(reply.into())]).await;
        let found = ask(&tool(&server, "write", "POST", "/", ""), "t", &json!({})).await;
        check_failure(found, Unknown, true, code::REPLY_LOST);
        assert_eq!((server.connections(), server.deliveries()), (1, 1));
    }
}

#[tokio::test]
async fn silence_until_the_deadline_leaves_the_effect_unknown() {
    for act in [Act::Hang, Act::Close] {
        let hangs = matches!(act, Act::Hang);
        let server = Server::start(vec![act]).await;
        let catalogue = tool(&server, "write", "POST", "/", "");
        let time = Duration::from_millis(300);
        let reply = send(&catalogue, "t", call_within(&json!({}), time)).await;
        let code = if hangs { code::DEADLINE_PASSED } else { code::REPLY_LOST };
        check_failure(reply, Unknown, true, code);
        assert_eq!((server.connections(), server.deliveries()), (1, 1));
    }
}

#[tokio::test]
async fn without_a_connection_nothing_happened() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    for url in [format!("http://{closed}/"), "http://no-such-host.invalid/".to_owned()] {
        let reply = ask(&get(&url, "allow_private = true"), "t", &json!({})).await;
        check_failure(reply, DidNotHappen, true, code::NOT_CONNECTED);
    }
}

#[tokio::test]
async fn after_the_deadline_nothing_is_sent() {
    let server = Server::start(vec![Act::reply(200, "", "{}")]).await;
    let catalogue = tool(&server, "write", "POST", "/", "");
    let reply = send(&catalogue, "t", call_within(&json!({}), Duration::ZERO)).await;
    check_failure(reply, DidNotHappen, true, code::DEADLINE_PASSED);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_written() {
    let server = Server::start(vec![Act::reply(200, "", "{}")]).await;
    let port = server.address().port();
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00:ec2::254]",
        "[64:ff9b::7f00:1]",
    ] {
        let reply = ask(&get(&format!("http://{host}:{port}/"), ""), "t", &json!({})).await;
        let (found, message) = failure(reply);
        // A machine without IPv6 may not even resolve some of them.
        let unresolved = found == (DidNotHappen, true, code::NOT_CONNECTED.to_owned())
            && message.contains("cannot be found");
        let refused = found == (DidNotHappen, false, code::ADDRESS_REFUSED.to_owned());
        assert!(refused || (unresolved && host != "localhost"), "{host}: {found:?} {message}");
    }
    assert_eq!(server.connections(), 0);
    let allowed = get(&format!("http://localhost:{port}/"), "allow_private = true");
    assert_eq!(answer(ask(&allowed, "t", &json!({})).await), "{}");
}

/// In a process that was started with proxies in its environment, makes one call past them;
/// otherwise there is nothing to do here.
#[tokio::test]
async fn proxied_process() {
    let Ok(url) = std::env::var(ORDERS) else { return };
    let reply = ask(&get(&url, "allow_private = true"), "t", &json!({})).await;
    assert_eq!(answer(reply), "{}");
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    let proxy = Server::start(vec![Act::reply(502, "", "")]).await;
    let server = Server::start(vec![Act::reply(200, "", "{}")]).await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "http_failures::proxied_process", "--nocapture"]);
    command.env(ORDERS, server.url()).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        command.env(name, proxy.url());
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((proxy.connections(), server.deliveries()), (0, 1));
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let catalogue = get(&url, "allow_private = true");
    let accepted = async {
        use tokio::io::AsyncReadExt as _;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 4]).await.unwrap();
        stream
    };
    let mut stream = tokio::select! {
        reply = ask(&catalogue, "t", &json!({})) => panic!("{reply:?}"),
        stream = accepted => stream,
    };
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await.unwrap();
    assert!(rest.ends_with(b"{}"));
}
