//! The outside world of a call by HTTP: a server that counts effects by what was asked for and by key,
//! keeps them in a file too, can deduplicate, can hold a call, and answers whether a key happened.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::case::{Class, Cut};
use crate::http::{reply, request};

/// More than what stands in an entry: it becomes a blob.
const LARGE: usize = 20 * 1024;

/// A server for one case. Its threads end with the test.
pub(crate) struct Witness {
    pub(crate) port: u16,
    told: Receiver<()>,
    go: Sender<()>,
    inside: Arc<Inside>,
}

struct Inside {
    class: Class,
    /// Effects: which item, under which key.
    effects: Mutex<Vec<(u64, String)>>,
    file: Mutex<File>,
    /// What becomes of the first call.
    hold: Mutex<Option<Hold>>,
}

/// Where a call is held, whom to tell, and when to go on.
type Hold = (Cut, Sender<()>, Receiver<()>);

impl Witness {
    pub(crate) fn new(directory: &Path, class: Class, cut: Cut) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (say, told) = channel();
        let (go, wait) = channel();
        let file = OpenOptions::new().create(true).append(true).open(directory.join("witness"));
        let inside = Arc::new(Inside {
            class,
            effects: Mutex::default(),
            file: Mutex::new(file.unwrap()),
            hold: Mutex::new((!cut.is_point()).then_some((cut, say, wait))),
        });
        let serving = Arc::clone(&inside);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inside = Arc::clone(&serving);
                std::thread::spawn(move || inside.serve(&stream));
            }
        });
        Self { port, told, go, inside }
    }

    /// Waits until the first call has come as far as it is to come.
    pub(crate) fn reached(&self, patience: std::time::Duration) {
        self.told.recv_timeout(patience).unwrap();
    }

    /// Lets the first call go on.
    pub(crate) fn go(&self) {
        // A call that is not held needs no telling.
        let _ = self.go.send(());
    }

    /// How many effects each item has had, by both of its books.
    pub(crate) fn effects(&self, directory: &Path) -> BTreeMap<u64, usize> {
        let mut counted = BTreeMap::new();
        for (item, _) in self.inside.effects.lock().unwrap().iter() {
            *counted.entry(*item).or_default() += 1;
        }
        let lines = std::fs::read_to_string(directory.join("witness")).unwrap();
        assert_eq!(lines.lines().count(), counted.values().sum::<usize>(), "{lines}");
        counted
    }
}

impl Inside {
    fn serve(&self, stream: &TcpStream) {
        let Some((path, key, body)) = request(stream) else { return };
        if path == "/asked" {
            let key = body["key"].as_str().unwrap_or_default();
            let happened = self.knows(key);
            return reply(stream, &json!({ "happened": happened, "result": result() }));
        }
        let item = body["item"].as_u64().unwrap();
        let known = self.knows(&key);
        let held = self.hold.lock().unwrap().take();
        match held {
            None => self.act(item, &key, known),
            Some((cut, say, wait)) => {
                if cut == Cut::Acted {
                    self.act(item, &key, known);
                }
                say.send(()).unwrap();
                let gone = wait.recv().is_err();
                if cut == Cut::Landing && !gone {
                    self.act(item, &key, known);
                    say.send(()).unwrap();
                }
                if cut != Cut::Acted {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
        reply(stream, &result());
    }

    fn knows(&self, key: &str) -> bool {
        self.effects.lock().unwrap().iter().any(|(_, known)| known == key)
    }

    /// The effect. Keys are deduplicated as the class promises: when the call arrives, or even between
    /// calls at the same time.
    fn act(&self, item: u64, key: &str, known: bool) {
        let mut effects = self.effects.lock().unwrap();
        let done = match self.class {
            Class::Safe | Class::Probe | Class::Never => false,
            Class::Keyed => known,
            Class::KeyedConcurrent => effects.iter().any(|(_, known)| known == key),
        };
        if done {
            return;
        }
        effects.push((item, key.to_owned()));
        let mut file = self.file.lock().unwrap();
        writeln!(file, "{item} {key}").unwrap();
        file.sync_data().unwrap();
    }
}

/// What a call returns.
fn result() -> Value {
    json!({ "n": 1, "pad": "x".repeat(LARGE) })
}
