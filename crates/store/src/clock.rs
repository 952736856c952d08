//! Where the embedded stores take the time from. PostgreSQL has a clock of its own.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_core::time::UnixMs;

/// Says what time it is. Leases and sleeps are counted by it.
///
/// All processes that open one file must read the same clock, as those of one machine do: then nobody
/// sees a lease end before its time. The machine's clock may still be set while they run:
///
/// - *Back*: no lease ends early. Its holder's next heartbeat makes it as long as it should be; that
///   of a dead holder lasts as much longer as the clock was set back.
/// - *Ahead*: leases end early and others take over. The fence stops whoever held them before.
///
/// Recorded time does not run back in either case: an entry is never older than its parent.
pub type Clock = Arc<dyn Fn() -> UnixMs + Send + Sync>;

/// The clock of the machine.
pub fn system() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    })
}
