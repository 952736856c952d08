//! Time for a worker: the store's clock between heartbeats, and the lease that they extend.
//!
//! The wall clock of the machine is never asked. What time it is follows from what the store said at
//! the last heartbeat and from how long ago that was; whether the lease is held, from when the last
//! good heartbeat was *sent*.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gesta_core::time::UnixMs;
use tokio::time::Instant;

/// A worker's clock and lease. Both change only when a heartbeat succeeds.
#[derive(Debug)]
pub(crate) struct Pulse {
    beat: Mutex<Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    /// What the store said,
    store: UnixMs,
    /// and when it was heard.
    heard: Instant,
    /// Until when the lease is certainly held.
    held_until: Instant,
    /// How many leases there were before this one: a heartbeat that comes too late begins another,
    /// under which nothing is held that was claimed under the last.
    lease: u64,
}

impl Pulse {
    /// After a first heartbeat that was sent at `sent` and answered just now with `store`.
    pub(crate) fn new(store: UnixMs, sent: Instant, lease_ms: u64) -> Self {
        Self { beat: Mutex::new(Beat::new(store, sent, lease_ms, 0)) }
    }

    /// Another heartbeat succeeded.
    pub(crate) fn beat(&self, store: UnixMs, sent: Instant, lease_ms: u64) {
        let mut beat = self.lock();
        let lease = beat.lease + u64::from(Instant::now() >= beat.held_until);
        *beat = Beat::new(store, sent, lease_ms, lease);
    }

    /// What time it is for the store, as far as this worker can tell.
    pub(crate) fn now(&self) -> UnixMs {
        let beat = *self.lock();
        beat.store.plus(millis(beat.heard.elapsed()))
    }

    /// Which lease this is.
    pub(crate) fn lease(&self) -> u64 {
        self.lock().lease
    }

    /// Whether this lease is certainly still held.
    pub(crate) fn held(&self, lease: u64) -> bool {
        let beat = *self.lock();
        beat.lease == lease && Instant::now() < beat.held_until
    }

    /// Until when the lease is certainly held.
    pub(crate) fn held_until(&self) -> Instant {
        self.lock().held_until
    }

    /// The end of the lease, by the store's clock.
    pub(crate) fn lease_ends(&self) -> UnixMs {
        let left = self.held_until().saturating_duration_since(Instant::now());
        self.now().plus(millis(left))
    }

    /// When it will be `at` for the store.
    pub(crate) fn instant_of(&self, at: UnixMs) -> Instant {
        Instant::now() + Duration::from_millis(at.0.saturating_sub(self.now().0))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Beat> {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Beat {
    fn new(store: UnixMs, sent: Instant, lease_ms: u64, lease: u64) -> Self {
        let held_until = sent + Duration::from_millis(lease_ms);
        Self { store, heard: Instant::now(), held_until, lease }
    }
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
