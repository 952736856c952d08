//! What every store must do, written once against the port. `conformance.rs` runs it on each.

mod appends;
mod chain;
mod contents;
mod differential;
mod leases;
mod projections;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gesta_core::ids::WorkerId;
use gesta_core::time::UnixMs;
use gesta_store::Store;
use gesta_store::clock::Clock;

pub(crate) use appends::*;
pub(crate) use chain::{Job, report};
pub(crate) use contents::*;
pub(crate) use differential::agrees_with_memory;
pub(crate) use leases::*;
pub(crate) use projections::*;

/// When manual clocks begin.
const EPOCH: u64 = 1_800_000_000_000;

/// A store under test, the clock that its leases follow, and what keeps it alive.
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) time: Time,
    pub(crate) _home: Option<tempfile::TempDir>,
}

/// How time passes for a store.
#[derive(Clone)]
pub(crate) enum Time {
    /// When the test says so.
    Manual(Arc<AtomicU64>),
    #[cfg(feature = "postgres")]
    /// By itself: the clock is a database server's.
    Real,
}

impl Time {
    pub(crate) fn manual() -> (Self, Clock) {
        let now = Arc::new(AtomicU64::new(EPOCH));
        let clock = Arc::clone(&now);
        (Self::Manual(now), Arc::new(move || UnixMs(clock.load(Ordering::SeqCst))))
    }

    async fn pass(&self) {
        match self {
            Self::Manual(now) => {
                now.fetch_add(10, Ordering::SeqCst);
            }
            #[cfg(feature = "postgres")]
            Self::Real => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

impl Subject {
    /// The store's time.
    pub(crate) async fn now(&self) -> UnixMs {
        self.store.heartbeat(&worker("clock"), 60_000).await.unwrap()
    }

    /// Lets time pass until `attempt` yields something.
    pub(crate) async fn eventually<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        let started = Instant::now();
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
            self.time.pass().await;
        }
    }
}

pub(crate) fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}
