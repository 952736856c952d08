//! The threads that read. Each has a connection of its own, which in WAL mode neither waits for the
//! writer nor makes it wait. Every read begins a new snapshot, so it sees all that was committed.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::store_error;
use crate::error::StoreError;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The reading half of the store.
pub(super) struct Readers {
    place: String,
    reads: Option<mpsc::Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>, place: String) -> std::io::Result<Self> {
        let (reads, waiting) = mpsc::channel(64);
        let waiting = Arc::new(Mutex::new(waiting));
        let threads = connections
            .into_iter()
            .map(|db| {
                let waiting = Arc::clone(&waiting);
                std::thread::Builder::new()
                    .name("gesta-reader".to_owned())
                    .spawn(move || serve(&db, &waiting))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { place, reads: Some(reads), threads })
    }

    /// Reads something.
    pub(super) async fn run<F, T>(&self, read: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let read = Box::new(move |db: &Connection| {
            // Whoever asked may have stopped waiting.
            let _ = answer.send(read(db));
        });
        let reads = self.reads.as_ref().ok_or(StoreError::Closed)?;
        reads.send(read).await.map_err(|_| StoreError::Closed)?;
        let result = answered.await.map_err(|_| StoreError::Closed)?;
        result.map_err(|error| store_error(&self.place, &error))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reader thread had died");
            }
        }
    }
}

fn serve(db: &Connection, waiting: &Mutex<mpsc::Receiver<Read>>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        match next {
            Some(read) => read(db),
            None => return,
        }
    }
}
