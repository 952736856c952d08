//! Notices of doubts, delivered to a server that fails, hangs up and comes back; by workers that die.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::crew::Crew;
use crate::server::Database;
use crate::until;

/// One delivery: its headers, in lower case, and its body.
type Delivery = (BTreeMap<String, String>, Value);

/// A server at which tools get no answer, and webhooks get what was ordered.
struct Desk {
    port: u16,
    /// Everything that was posted to `/hook`, whatever was answered.
    delivered: Arc<Mutex<Vec<Delivery>>>,
}

impl Desk {
    /// The first deliveries are answered so, in order; `hang up` is no answer. All others get 204.
    fn new(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&delivered);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some((path, headers, body)) = request(&stream) else { continue };
                if path != "/hook" {
                    continue; // Read, and never answered.
                }
                let mut seen = seen.lock().unwrap();
                let answer = answers.get(seen.len()).copied().unwrap_or("204 No Content");
                seen.push((headers, body));
                if answer != "hang up" {
                    let _ = (&stream).write_all(
                        format!(
                            "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                        )
                        .as_bytes(),
                    );
                }
            }
        });
        Self { port, delivered }
    }

    fn delivered(&self) -> Vec<Delivery> {
        self.delivered.lock().unwrap().clone()
    }

    /// A workspace with a tool of which nobody knows what it did, and this desk to be told.
    fn crew(&self, store: Option<&str>) -> Crew {
        let port = self.port;
        let settings = format!(
            "[notify.ops]\nurl = \"http://127.0.0.1:{port}/hook\"\nsecret = {{ file = \"hook.key\" }}\n\
             events = [\"doubt\"]\nallow_private = true\n\n[tools.vague]\neffect = \"external\"\n\
             driver.http = {{ method = \"POST\", url = \"http://127.0.0.1:{port}/vague\", allow_private = true }}\n"
        );
        let crew = Crew::new(store, 1, Duration::ZERO, &settings);
        std::fs::write(crew.path().join("hook.key"), "a secret of some length").unwrap();
        let job = "job: vague\nsteps:\n  - { id: it, tool: vague }\nanswer: 1\n";
        std::fs::write(crew.path().join("vague.yaml"), job).unwrap();
        crew
    }
}

fn request(stream: &TcpStream) -> Option<(String, BTreeMap<String, String>, Value)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((path, headers, serde_json::from_slice(&body).ok()?))
}

/// The entry that put the job in doubt.
fn doubt(crew: &Crew, job: &str) -> Option<String> {
    let log = crew.json(&["log", job]);
    let doubt = log.iter().find(|line| line["entry"]["kind"] == "in_doubt")?;
    Some(doubt["id"].as_str().unwrap().to_owned())
}

/// A doubt is told of until the other side says that it has it; then it leaves the outbox.
fn told_until_it_is_heard(store: Option<&str>) {
    let desk = Desk::new(&["500 Internal Server Error", "hang up"]);
    let crew = desk.crew(store);
    let job = crew.run(&["submit", "vague.yaml"]).trim().to_owned();
    let _worker = crew.worker("teller");
    until("it is delivered", || (desk.delivered().len() == 3).then_some(()));
    until("the outbox is empty", || crew.json(&["notices"]).is_empty().then_some(()));
    let entry = doubt(&crew, &job).unwrap();
    for (headers, event) in desk.delivered() {
        assert_eq!((event["id"].as_str(), &headers["webhook-id"]), (Some(entry.as_str()), &entry));
        assert_eq!((&event["specversion"], &event["type"]), (&"1.0".into(), &"gesta.doubt".into()));
        assert_eq!(event["data"]["trajectory"], job.as_str());
        assert_eq!(event["data"]["step"], "it");
        assert!(headers["content-type"].starts_with("application/cloudevents+json"));
        assert!(headers["webhook-signature"].starts_with("v1,"), "{headers:?}");
        assert!(headers["webhook-timestamp"].parse::<u64>().is_ok());
    }
}

/// A worker that dies after it has told, and before it says so: the next one tells again, and whoever
/// hears both knows by the id that it is one.
#[cfg(feature = "cuts")]
fn told_again_after_a_death(store: Option<&str>) {
    let desk = Desk::new(&[]);
    let crew = desk.crew(store);
    let job = crew.run(&["submit", "vague.yaml"]).trim().to_owned();
    let mut doomed = crew.worker_with("doomed", &[("GESTA_CUT", "after_notify")]);
    doomed.wait();
    assert_eq!(desk.delivered().len(), 1);
    assert_eq!(crew.json(&["notices"]).len(), 1, "it is still there");
    let _next = crew.worker("next");
    until("it is told again", || (desk.delivered().len() == 2).then_some(()));
    until("the outbox is empty", || crew.json(&["notices"]).is_empty().then_some(()));
    let entry = doubt(&crew, &job).unwrap();
    let ids: Vec<_> = desk.delivered().iter().map(|(_, event)| event["id"].clone()).collect();
    assert_eq!(ids, [entry.as_str(), entry.as_str()]);
}

#[test]
fn a_doubt_is_told_until_it_is_heard_on_sqlite() {
    told_until_it_is_heard(None);
}

#[test]
fn a_doubt_is_told_until_it_is_heard_on_postgres() {
    let database = Database::new();
    told_until_it_is_heard(Some(&database.url()));
}

#[cfg(feature = "cuts")]
#[test]
fn a_notice_outlives_its_teller_on_sqlite() {
    told_again_after_a_death(None);
}

#[cfg(feature = "cuts")]
#[test]
fn a_notice_outlives_its_teller_on_postgres() {
    let database = Database::new();
    told_again_after_a_death(Some(&database.url()));
}
