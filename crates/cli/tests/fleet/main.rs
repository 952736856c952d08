//! Workers in several processes on one store, and everything that happens to them: they die, the
//! database dies, fails over or is cut off. A witness outside of all of them counts the effects.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod breaks;
mod budget;
mod crew;
#[path = "../shared/http.rs"]
mod http;
mod load;
mod notify;
mod proxy;
mod server;
mod takeover;
mod trips;
mod windows;
mod witness;

use std::time::{Duration, Instant};

/// Nothing here takes that long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something that is looked at from time to time.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        pause(Duration::from_millis(30));
    }
}

/// Lets time pass: nobody ever sends.
fn pause(time: Duration) {
    let (_silent, channel) = std::sync::mpsc::channel::<()>();
    let _passed = channel.recv_timeout(time);
}
