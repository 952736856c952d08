//! What every store must do, written once against the port. `conformance.rs` runs it on each.

mod accounts;
mod appends;
mod archive;
mod chain;
mod clocks;
mod contents;
mod differential;
mod epochs;
mod leases;
mod log;
mod mending;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod older;
mod projections;
mod queues;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gesta_core::entry::Entry;
use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_store::clock::Clock;
use gesta_store::{Profile, Store};

pub(crate) use accounts::*;
pub(crate) use appends::*;
pub(crate) use archive::*;
pub(crate) use chain::{Job, push_signal, report};
pub(crate) use clocks::*;
pub(crate) use contents::*;
pub(crate) use differential::agrees_with_memory;
pub(crate) use epochs::*;
pub(crate) use leases::*;
pub(crate) use log::*;
pub(crate) use mending::*;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use older::{Has, Past, fill, goes_on, holds};
pub(crate) use projections::*;
pub(crate) use queues::*;

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
            Self::Real => tokio::task::yield_now().await, // asking takes time
        }
    }
}

impl Subject {
    /// The store's time.
    pub(crate) async fn now(&self) -> UnixMs {
        self.store.heartbeat(&worker("clock"), &Profile::default(), 60_000).await.unwrap()
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

/// Folds a stored chain, which fails unless it is whole and legal.
pub(crate) async fn fold(store: &dyn Store, trajectory: TrajectoryId) -> State {
    let mut state = State::new(trajectory);
    for entry in store.entries(trajectory, 0, usize::MAX).await.unwrap() {
        state.apply(&Entry::from_bytes(&entry.bytes).unwrap()).unwrap();
        assert_eq!(state.head().map(|head| (head.seq, head.id)), Some((entry.seq, entry.id)));
    }
    let row = store.trajectory(trajectory).await.unwrap();
    assert_eq!(row.as_ref().map(|row| row.head), state.head());
    assert_eq!(row.map(|row| row.summary), state.summary());
    state
}
