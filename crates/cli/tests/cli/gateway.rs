//! A gateway in front of a service that pays: what it answers says nothing about what was done behind it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::http;
use crate::world::World;

/// What the service has done, and which keys it was sent.
#[derive(Default)]
struct Book {
    payments: BTreeMap<String, u64>,
    sent: Vec<String>,
}

/// Pays once a key, whatever is answered: the first time this status, from then on the payment.
fn gateway(first: &'static str) -> (u16, Arc<Mutex<Book>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let book = Arc::new(Mutex::new(Book::default()));
    let kept = Arc::clone(&book);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let Some((_, key, _)) = http::request(&stream) else { continue };
            let mut book = kept.lock().unwrap();
            book.sent.push(key.clone());
            let number = book.payments.len() as u64 + 1;
            let number = *book.payments.entry(key).or_insert(number);
            if book.sent.len() > 1 {
                http::reply(&stream, &json!({ "payment": number }));
                continue;
            }
            // Whoever asked may be gone.
            let _ = write!(
                stream,
                "HTTP/1.1 {first}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
    });
    (port, book)
}

/// A job that pays through the gateway.
fn paying(port: u16, effect: &str, recovery: &str, more: &str) -> World {
    let world = World::with_tools(&format!(
        "[tools.pay]\neffect = \"{effect}\"\nrecovery = \"{recovery}\"\ntimeout = \"5s\"\nretry = {{ attempts = 3, backoff = \"10ms\" }}\n[tools.pay.driver.http]\nmethod = \"POST\"\nurl = \"http://127.0.0.1:{port}/pay\"\nallow_private = true\n{more}\n"
    ));
    let job = "job: pay\nsteps:\n  - { id: a, tool: pay, args: { cents: 5 } }\nanswer: ${steps.a.result.payment}\n";
    world.write("job.yaml", job);
    world
}

#[test]
fn a_gateway_that_pays_and_says_503_is_asked_again_under_the_same_key() {
    for first in
        ["503 Service Unavailable", "504 Gateway Timeout", "408 Request Timeout", "302 Found"]
    {
        let (port, book) = gateway(first);
        let world = paying(port, "external", "keyed_concurrent", "");
        let report = world.gesta(&["run", "job.yaml", "--json"]).json();
        assert_eq!(
            (&report["status"], &report["answer"]),
            (&json!("completed"), &json!(1)),
            "{first}"
        );
        let book = book.lock().unwrap();
        assert_eq!((book.payments.len(), book.sent.len()), (1, 2), "{first}: {:?}", book.sent);
        let id = world.job();
        assert_eq!(world.bodies(&id, "failure")[0]["certainty"], "unknown");
        world.gesta(&["verify", &id]).ok();
        world.gesta(&["replay", &id]).ok();
    }
}

#[test]
fn a_gateway_that_pays_and_says_503_leaves_a_doubt_where_nothing_deduplicates() {
    let (port, book) = gateway("503 Service Unavailable");
    let world = paying(port, "irreversible", "never", "");
    world.gesta(&["run", "job.yaml"]).expect(12);
    assert_eq!(book.lock().unwrap().sent.len(), 1, "it is not sent again");
    let told = world.gesta(&["doubts"]).ok();
    assert!(told.contains("answered 503"), "{told}");
}

/// A refusal by its meaning, and one that the tool declares: another generation, and so another key.
#[test]
fn what_was_refused_is_tried_again_under_a_key_of_its_own() {
    for (first, more) in [
        ("429 Too Many Requests\r\nretry-after: 0", ""),
        ("503 Service Unavailable", "status = { \"503\" = \"retry\" }"),
    ] {
        let (port, book) = gateway(first);
        let world = paying(port, "external", "never", more);
        world.gesta(&["run", "job.yaml"]).ok();
        let book = book.lock().unwrap();
        assert_eq!(book.sent.len(), 2, "{first}");
        assert_ne!(book.sent[0], book.sent[1], "{first}");
        assert_eq!(world.bodies(&world.job(), "failure")[0]["certainty"], "did_not_happen");
    }
}
