//! News of what happened in a store, for those who wait for it. Hearing saves asking; it promises
//! nothing: whoever listens also looks from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gesta_core::entry::Author;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// How much may be unheard before the oldest is dropped.
const UNHEARD: usize = 1024;

/// Something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// To this trajectory: there may be something to do.
    Changed(TrajectoryId),
    /// Something was missed: anything may have changed.
    Missed,
}

/// Rings for all who listen in this process.
#[derive(Clone)]
pub(crate) struct Bell {
    rung: broadcast::Sender<News>,
    hears_all: Arc<AtomicBool>,
}

impl Bell {
    /// A bell that nobody listens to yet.
    pub(crate) fn new(hears_all: bool) -> Self {
        let hears_all = Arc::new(AtomicBool::new(hears_all));
        Self { rung: broadcast::Sender::new(UNHEARD), hears_all }
    }

    /// Tells those who listen, if anybody does.
    pub(crate) fn ring(&self, news: News) {
        let _nobody_listens = self.rung.send(news);
    }

    /// Whether news of other processes arrive from now on.
    #[cfg(feature = "postgres")]
    pub(crate) fn hears_all(&self, hears_all: bool) {
        self.hears_all.store(hears_all, Ordering::Relaxed);
    }

    pub(crate) fn listen(&self) -> Listening {
        Listening { heard: self.rung.subscribe(), hears_all: Arc::clone(&self.hears_all) }
    }
}

/// Hears the news, one by one.
#[derive(Debug)]
pub struct Listening {
    heard: broadcast::Receiver<News>,
    hears_all: Arc<AtomicBool>,
}

impl Listening {
    /// The next piece of news. Waits for ever once the store is closed.
    pub async fn next(&mut self) -> News {
        match self.heard.recv().await {
            Ok(news) => news,
            Err(RecvError::Lagged(_)) => News::Missed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Tells how much is heard.
    pub fn hearing(&self) -> Hearing {
        Hearing(Arc::clone(&self.hears_all))
    }
}

/// How much is heard.
#[derive(Clone, Debug)]
pub struct Hearing(Arc<AtomicBool>);

impl Hearing {
    /// Whether news of other processes are heard at present. If not, looking is all there is.
    pub fn all(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether an append concerns others than its author: an owner knows what it wrote itself.
pub(crate) fn concerns_others(admitted: &Admitted) -> bool {
    admitted.entries().iter().any(|entry| matches!(entry.payload().by, Author::Principal(_)))
}
