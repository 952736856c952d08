//! HTTP tools over TLS: whose certificates are believed, and that nothing is sent to anybody else.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use gesta_core::document::Certainty::{DidNotHappen, Unknown};
use gesta_runtime::tools::code;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::server::{Act, Server, serve};
use crate::world::{World, answer, ask, call_within, check_failure, failure, send};

/// An authority, as `ca.pem`, and its certificate for `localhost`, as `cert.pem` and `key.key`.
fn certificate(world: &World) {
    world.write("req", "[req]\ndistinguished_name = name\n[name]\n");
    world.write("leaf", "basicConstraints = critical,CA:FALSE\nsubjectAltName = DNS:localhost\n");
    world.write("ca", "basicConstraints = critical,CA:TRUE\n");
    let openssl = |command: &str| {
        let made = Command::new("openssl")
            .args(command.split(' '))
            .current_dir(world.dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{command}: {made:?}");
    };
    for (name, subject) in [("ca", "/CN=authority"), ("key", "/CN=localhost")] {
        openssl("ecparam -name prime256v1 -genkey -noout -out ec.pem");
        openssl(&format!("pkcs8 -topk8 -nocrypt -in ec.pem -out {name}.key"));
        openssl(&format!("req -new -config req -key {name}.key -subj {subject} -out {name}.csr"));
    }
    openssl("x509 -req -in ca.csr -signkey ca.key -days 2 -extfile ca -out ca.pem");
    openssl(
        "x509 -req -in key.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile leaf -out cert.pem",
    );
}

/// Serves TLS; what it hears comes out of the receiver.
async fn start(world: &World, act: Act) -> (u16, mpsc::UnboundedReceiver<Vec<u8>>) {
    let chain = CertificateDer::pem_file_iter(world.path("cert.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(world.path("key.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let sender = sender.clone();
            let hear = move |bytes: &[u8]| sender.send(bytes.to_vec()).unwrap();
            tokio::spawn(serve(stream, act.clone(), hear));
        }
    });
    (port, heard)
}

fn tool(host: &str, port: u16, more: &str) -> String {
    format!(
        "[tools.t]\neffect = \"write\"\n[tools.t.driver.http]\nmethod = \"POST\"\nurl = \"https://{host}:{port}/\"\nallow_private = true\n{more}\n"
    )
}

#[tokio::test]
async fn a_declared_authority_is_believed() {
    let world = World::new();
    certificate(&world);
    let (port, mut heard) = start(&world, Act::reply(200, "", "{\"a\":1}")).await;
    let catalogue = world.catalogue(&tool("localhost", port, "ca = \"ca.pem\""));
    assert_eq!(answer(ask(&catalogue, "t", &json!({"b": 2})).await), "{\"a\":1}");
    let heard = String::from_utf8(heard.recv().await.unwrap()).unwrap();
    assert!(heard.starts_with("POST / HTTP/1.1\r\n"), "{heard}");
    assert!(heard.contains(&format!("host: localhost:{port}\r\n")), "{heard}");
}

#[tokio::test]
async fn nothing_is_sent_to_somebody_else() {
    let world = World::new();
    certificate(&world);
    let (port, mut heard) = start(&world, Act::reply(200, "", "{}")).await;
    for toml in [tool("localhost", port, ""), tool("127.0.0.1", port, "ca = \"ca.pem\"")] {
        let (found, message) = failure(ask(&world.catalogue(&toml), "t", &json!({})).await);
        assert_eq!(found, (DidNotHappen, false, code::NOT_CONNECTED.to_owned()), "{message}");
        assert!(message.contains("is not who it should be"), "{message}");
    }
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn a_handshake_that_fails_means_that_nothing_happened() {
    let world = World::new();
    certificate(&world);
    let plain = Server::start(vec![Act::Reply(b"not TLS at all, sorry".to_vec())]).await;
    // The hello of TLS is no HTTP request, so the server that waits for one never answers.
    for (server, time) in [
        (Server::start(vec![Act::CloseAfter(1)]).await, Duration::from_secs(30)),
        (plain, Duration::from_millis(300)),
    ] {
        let toml = tool("localhost", server.address().port(), "ca = \"ca.pem\"");
        let reply = send(&world.catalogue(&toml), "t", call_within(&json!({}), time)).await;
        check_failure(reply, DidNotHappen, true, code::NOT_CONNECTED);
    }
}

#[tokio::test]
async fn a_cut_reply_leaves_the_effect_unknown() {
    let world = World::new();
    certificate(&world);
    for act in [Act::Close, Act::Reply(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec())] {
        let (port, mut heard) = start(&world, act).await;
        let catalogue = world.catalogue(&tool("localhost", port, "ca = \"ca.pem\""));
        let reply = ask(&catalogue, "t", &json!({})).await;
        check_failure(reply, Unknown, true, code::REPLY_LOST);
        assert!(heard.recv().await.is_some());
    }
}
