//! Places at which a test can cut a worker off: killed or frozen, by a real signal that the process
//! sends itself. Only a build with the feature `cuts` has them; in any other these calls are empty.
//!
//! `GESTA_CUT=POINT[:N][:kill|stop]` cuts when POINT is reached for the N-th time.

#[cfg(feature = "cuts")]
pub(crate) use armed::append;
#[cfg(feature = "cuts")]
pub use armed::here;

/// A point of the path that a call takes.
#[cfg(not(feature = "cuts"))]
pub fn here(_point: &str) {}

/// One side of a turn's append.
#[cfg(not(feature = "cuts"))]
pub(crate) fn append(_side: &str, _holds: bool, _settles: bool, _starts: bool) {}

#[cfg(feature = "cuts")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    struct Cut {
        point: String,
        left: AtomicU64,
        signal: Signal,
    }

    static CUT: OnceLock<Option<Cut>> = OnceLock::new();
    /// Much longer than it takes the system to stop every thread.
    const STOPPING: Duration = Duration::from_millis(500);

    /// A point of the path that a call takes.
    pub fn here(point: &str) {
        let Some(cut) = CUT.get_or_init(ordered) else { return };
        if cut.point != point || cut.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        if let Err(error) = kill_process(getpid(), cut.signal) {
            tracing::error!(%error, point, "a cut failed");
        }
        // Another thread may be the one that takes the signal; this one must not get ahead of it.
        std::thread::sleep(STOPPING);
    }

    /// One side of a turn's append, `before` or `after`, when the append holds anything: of any append,
    /// of one that settles a call, and of one that starts a call.
    pub(crate) fn append(side: &str, holds: bool, settles: bool, starts: bool) {
        for (what, is_so) in [("append", true), ("settle", settles), ("start", starts)] {
            if holds && is_so {
                here(&format!("{side}_{what}"));
            }
        }
    }

    fn ordered() -> Option<Cut> {
        let order = std::env::var("GESTA_CUT").ok()?;
        let mut parts = order.split(':');
        let point = parts.next()?.to_owned();
        let (mut left, mut signal) = (1, Signal::KILL);
        for part in parts {
            match part {
                "kill" => signal = Signal::KILL,
                "stop" => signal = Signal::STOP,
                times => left = times.parse().ok()?,
            }
        }
        Some(Cut { point, left: AtomicU64::new(left), signal })
    }
}
