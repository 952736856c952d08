//! The outside world: a server that counts effects by item and by key, and answers whether a key
//! happened. It also knows how many calls were under way at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::http::{reply, request};
use crate::{PATIENCE, pause};

/// A server. Its threads end with the test.
pub(crate) struct Witness {
    pub(crate) port: u16,
    inside: Arc<Inside>,
}

#[derive(Default)]
struct Inside {
    /// How long a call takes.
    takes: Duration,
    book: Mutex<Book>,
    written: Condvar,
}

#[derive(Default)]
struct Book {
    /// Whether calls wait.
    held: bool,
    /// Effects by item.
    effects: BTreeMap<u64, usize>,
    keys: BTreeSet<String>,
    /// Calls that have arrived, each as often as it did.
    arrived: usize,
    /// Calls under way, and the most that were; of each tool too, by its path.
    all: Busy,
    by_path: BTreeMap<String, Busy>,
}

#[derive(Clone, Copy, Default)]
struct Busy {
    now: usize,
    most: usize,
}

impl Busy {
    fn begin(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }
}

impl Witness {
    pub(crate) fn new(takes: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inside = Arc::new(Inside { takes, ..Inside::default() });
        let serving = Arc::clone(&inside);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inside = Arc::clone(&serving);
                std::thread::spawn(move || inside.serve(&stream));
            }
        });
        Self { port, inside }
    }

    /// Has calls wait inside, or lets them go.
    pub(crate) fn hold(&self, held: bool) {
        self.inside.book.lock().unwrap().held = held;
        self.inside.written.notify_all();
    }

    /// Counts the most at once anew: from now on of calls that arrive.
    pub(crate) fn count_anew(&self) {
        self.inside.book.lock().unwrap().by_path.values_mut().for_each(|busy| busy.most = 0);
    }

    /// How many effects each item has had.
    pub(crate) fn effects(&self) -> BTreeMap<u64, usize> {
        self.inside.book.lock().unwrap().effects.clone()
    }

    /// How many effects there are.
    pub(crate) fn count(&self) -> usize {
        self.inside.book.lock().unwrap().effects.values().sum()
    }

    /// How many calls have arrived, repetitions included.
    pub(crate) fn arrived(&self) -> usize {
        self.inside.book.lock().unwrap().arrived
    }

    /// The most calls that were under way at once.
    pub(crate) fn busiest(&self) -> usize {
        self.inside.book.lock().unwrap().all.most
    }

    /// The same of one tool.
    pub(crate) fn busiest_of(&self, tool: &str) -> usize {
        let book = self.inside.book.lock().unwrap();
        book.by_path.get(&format!("/{tool}")).map_or(0, |busy| busy.most)
    }

    /// Waits until there are so many effects.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) {
        let book = self.inside.book.lock().unwrap();
        let enough = |book: &mut Book| book.effects.values().sum::<usize>() < count;
        let (book, waited) =
            self.inside.written.wait_timeout_while(book, PATIENCE, enough).unwrap();
        assert!(!waited.timed_out(), "{} effects, {count} wanted", book.effects.len());
    }
}

impl Inside {
    fn serve(&self, stream: &TcpStream) {
        let Some((path, key, body)) = request(stream) else { return };
        if path == "/asked" {
            let happened =
                self.book.lock().unwrap().keys.contains(body["key"].as_str().unwrap_or_default());
            return reply(stream, &json!({ "happened": happened, "result": { "n": 1 } }));
        }
        {
            let mut book = self.book.lock().unwrap();
            book.arrived += 1;
            book.all.begin();
            book.by_path.entry(path.clone()).or_default().begin();
        }
        let book = self.book.lock().unwrap();
        drop(self.written.wait_while(book, |book| book.held).unwrap());
        pause(self.takes);
        {
            let mut book = self.book.lock().unwrap();
            book.all.now -= 1;
            book.by_path.entry(path.clone()).or_default().now -= 1;
            let new = book.keys.insert(key);
            // Only the tool that is declared `keyed` is deduplicated.
            if new || path != "/keyed" {
                *book.effects.entry(body["item"].as_u64().unwrap()).or_default() += 1;
            }
        }
        self.written.notify_all();
        reply(stream, &json!({ "n": 1 }));
    }
}
