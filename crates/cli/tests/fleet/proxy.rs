//! A way to a database that can be disturbed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pause;

/// What becomes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// They pass.
    Open,
    /// They pass, but slowly.
    Slow,
    /// They stay where they are, and nobody is told.
    Silent,
}

/// A proxy on a port of its own. Its threads end with the test.
pub(crate) struct Proxy {
    port: u16,
    inside: Arc<Inside>,
}

struct Inside {
    socket: PathBuf,
    way: AtomicU8,
    pairs: Mutex<Vec<(TcpStream, UnixStream)>>,
    /// How often the server was ready for more.
    answers: AtomicU64,
}

/// What a server says on one connection, as far as its messages have to be told apart.
#[derive(Default)]
struct Messages {
    head: Vec<u8>,
    left: usize,
}

impl Messages {
    /// How often it says that it is ready for more: once a round trip.
    fn ready(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ready = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let passed = self.left.min(bytes.len());
                self.left -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let [kind, a, b, c, d] = self.head[..] {
                // The length counts itself.
                self.left = u32::from_be_bytes([a, b, c, d]) as usize - 4;
                ready += u64::from(kind == b'Z');
                self.head.clear();
            }
        }
        ready
    }
}

impl Proxy {
    /// In front of a server's socket.
    pub(crate) fn new(socket: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = AtomicU8::new(Way::Open as u8);
        let (pairs, answers) = (Mutex::default(), AtomicU64::new(0));
        let inside = Inside { socket: socket.to_owned(), way, pairs, answers };
        let inside = Arc::new(inside);
        let serving = Arc::clone(&inside);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                serving.connect(client);
            }
        });
        Self { port, inside }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://gesta@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    pub(crate) fn go(&self, way: Way) {
        self.inside.way.store(way as u8, Ordering::Relaxed);
    }

    /// How many round trips there were.
    pub(crate) fn round_trips(&self) -> u64 {
        self.inside.answers.load(Ordering::Relaxed)
    }

    /// Every connection ends, on both sides.
    pub(crate) fn drop_all(&self) {
        for (client, server) in self.inside.pairs.lock().unwrap().drain(..) {
            let _gone = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
    }

    /// What the server says is heard no more; what it is told still arrives.
    pub(crate) fn half_close(&self) {
        for (client, _) in self.inside.pairs.lock().unwrap().drain(..) {
            let _gone = client.shutdown(Shutdown::Write);
        }
    }
}

impl Inside {
    fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = UnixStream::connect(&self.socket) else { return };
        let _faster = client.set_nodelay(true);
        let timeout = Some(Duration::from_millis(20));
        client.set_read_timeout(timeout).unwrap();
        server.set_read_timeout(timeout).unwrap();
        let other = (client.try_clone().unwrap(), server.try_clone().unwrap());
        self.pairs.lock().unwrap().push((client.try_clone().unwrap(), server.try_clone().unwrap()));
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || {
            let (mut from, mut to) = (client, server);
            there.pump(|bytes| from.read(bytes), |bytes| to.write_all(bytes));
            let _gone = to.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            let (mut to, mut from) = other;
            let mut messages = Messages::default();
            let count = |bytes: &[u8]| {
                back.answers.fetch_add(messages.ready(bytes), Ordering::Relaxed);
                to.write_all(bytes)
            };
            back.pump(|bytes| from.read(bytes), count);
            let _gone = to.shutdown(Shutdown::Both);
        });
    }

    fn pump(
        &self,
        mut read: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
        mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            if self.way.load(Ordering::Relaxed) == Way::Silent as u8 {
                pause(Duration::from_millis(10));
                continue;
            }
            let count = match read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => count,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => return,
            };
            if self.way.load(Ordering::Relaxed) == Way::Slow as u8 {
                pause(Duration::from_millis(150));
            }
            if write(&bytes[..count]).is_err() {
                return;
            }
        }
    }
}
