//! Where the embedded stores take the time from. PostgreSQL has a clock of its own.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_core::time::UnixMs;

/// Says what time it is. Leases are counted by it.
pub type Clock = Arc<dyn Fn() -> UnixMs + Send + Sync>;

/// The clock of the machine.
pub fn system() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    })
}
