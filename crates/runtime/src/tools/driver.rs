//! The port to a tool: one call, one reply. A driver never retries, never hides what it does not
//! know, and never sees an entry, a key file or a store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use gesta_core::amounts::Amounts;
use gesta_core::document::{Certainty, Failing};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use tokio::time::Instant;

/// One call of a tool, as it is handed to a driver.
#[derive(Clone, Debug)]
pub struct Call {
    /// The trajectory on whose behalf.
    pub trajectory: TrajectoryId,
    /// The step on whose behalf.
    pub step: StepId,
    /// The attempt that sends it.
    pub attempt: u64,
    /// The key that the other side deduplicates by: the same for every attempt at one effect.
    pub key: String,
    /// The arguments.
    pub args: Canon,
    /// When the driver gives up waiting. What it does not know by then is unknown.
    pub deadline: Instant,
    /// Who wants to hear how far the tool says it is.
    pub progress: Option<Progress>,
}

/// Hears how far a tool says it is, in a line for people, with secrets masked.
#[derive(Clone)]
pub struct Progress(pub Arc<dyn Fn(String) + Send + Sync>);

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// What a driver knows when a call is over. The transport decides the certainty: not sent is *did not
/// happen*; sent without a whole reply is *unknown*; a reply is what the tool's mapping says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The tool answered, and says that it did what was asked.
    Answered {
        /// What it returned, as it was received, with secrets masked; not yet examined.
        output: Vec<u8>,
        /// What it says it cost, if it says so.
        cost: Option<Amounts>,
    },
    /// It did not, or nobody knows.
    Failed {
        /// What is known of the effect.
        certainty: Certainty,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// When the other side asks to be tried again, in milliseconds from now.
        retry_after_ms: Option<u64>,
        /// What went wrong, with secrets masked.
        error: Failing,
        /// What was received, if anything, with secrets masked.
        output: Vec<u8>,
    },
}

/// Reaches one tool. Dropping the future abandons the call: the driver stops what it can.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Makes the call. Always returns by the deadline.
    async fn call(&self, call: Call) -> Reply;

    /// Why the tool may not be called, if the driver has seen that it is not what was pinned.
    fn frozen(&self) -> Option<&str> {
        None
    }
}
