//! The sensitive values of a trajectory in hand: opened right before a call, committed to right after.

use std::sync::Arc;

use gesta_core::body::Proposal;
use gesta_core::document::Failing;
use gesta_core::json::Canon;
use gesta_core::sensitive::{Marks, may_hold};

use super::{Desk, STORE_AGAIN, failing};
use crate::vault::Safe;
use crate::veil::Veil;

/// The arguments of a call as its driver is given them.
pub(crate) struct Opened {
    pub(crate) args: Canon,
    /// Covers the sensitive values among them.
    pub(crate) veil: Arc<Veil>,
    /// How they depart from the tool's schema, which commitments do not tell.
    pub(crate) unfit: Option<Failing>,
}

impl Desk {
    /// The sensitive values of its family, if they are at hand.
    pub(crate) fn safe(&self) -> Option<&Arc<Safe>> {
        self.safe.get()
    }

    /// Takes the sensitive values of its family in hand.
    pub(crate) fn take_safe(&self, safe: Arc<Safe>) {
        // Whoever was first has the same key.
        let _ = self.safe.set(safe);
    }

    /// The arguments of a call with every commitment opened. Nothing is sent unless all of them open.
    pub(crate) async fn open_sensitive(&self, proposal: &Proposal) -> Result<Opened, Failing> {
        let args = proposal.args.clone();
        if !may_hold(args.as_bytes()) {
            return Ok(Opened { args, veil: Arc::default(), unfit: None });
        }
        let refused = |why: String| failing("gate_data_key", &why);
        let safe = self.safe().ok_or_else(|| refused("the data key is not at hand".to_owned()))?;
        let opened = safe.open(&args).await;
        let (args, values) = opened.map_err(|error| refused(error.to_string()))?;
        let tool = self.shared.catalogue.get(&proposal.tool);
        let mismatch = tool.and_then(|tool| tool.check_input(&args).into_iter().next());
        let unfit = mismatch.map(|mismatch| {
            let what = format!("a sensitive argument does not fit the tool's schema: {mismatch}");
            failing("type_mismatch", &what)
        });
        Ok(Opened { args, veil: Arc::new(Veil::over(&values)), unfit })
    }

    /// A result with what is marked committed to. Waits until that is durable: what has happened must not
    /// be lost because a disk is full.
    pub(crate) async fn protect(&self, value: &Canon, marks: &Marks) -> Canon {
        loop {
            let error = match self.safe() {
                Some(safe) => match safe.protect(value, marks).await {
                    Ok(value) => return value,
                    Err(error) => error.to_string(),
                },
                None => "the data key is not at hand".to_owned(),
            };
            tracing::warn!(trajectory = %self.trajectory, %error, "a result cannot be sealed yet");
            tokio::time::sleep(STORE_AGAIN).await;
        }
    }
}
