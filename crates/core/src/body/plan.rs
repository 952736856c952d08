//! The task graph: nodes, what each needs, and the hash of it all.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{StepId, ToolName};
use crate::json::{Canon, JsonError};

/// What a plan's step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Calls a tool.
    Call,
    /// Computes, touching nothing.
    Compute,
    /// Waits for a signal or a time.
    Wait,
    /// Hands a task to a child trajectory.
    Delegate,
    /// An agent loop: steps of its own below it, then an answer.
    Loop,
}

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStep {
    /// Its id.
    pub id: StepId,
    /// What it does.
    pub kind: StepKind,
    /// The nodes that must have ended well before; all of them earlier in the plan.
    pub needs: Vec<StepId>,
    /// Everything else: tool, arguments, conditions. Opaque to the state.
    pub spec: Canon,
}

/// The task graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The digest of the canonical steps.
    pub hash: Digest,
    /// Whose turn it is before others: the greater first, at most [`Plan::MAX_PRIORITY`].
    pub priority: u8,
    /// The steps, each after what it needs.
    pub steps: Vec<PlanStep>,
    /// The tools that a worker must have, in order, each once.
    pub tools: Vec<ToolName>,
}

impl Plan {
    /// The greatest priority.
    pub const MAX_PRIORITY: u8 = 100;

    /// A plan of these steps, of the least priority, that any worker can drive.
    pub fn new(steps: Vec<PlanStep>) -> Result<Self, JsonError> {
        Ok(Self { hash: Self::hash_of(&steps)?, priority: 0, steps, tools: Vec::new() })
    }

    /// The same plan, for workers that have these tools.
    #[must_use]
    pub fn needing(self, tools: &BTreeSet<ToolName>) -> Self {
        Self { tools: tools.iter().cloned().collect(), ..self }
    }

    /// The digest of the canonical steps.
    pub fn hash_of(steps: &[PlanStep]) -> Result<Digest, JsonError> {
        Canon::of(steps).map(|canon| Digest::of(canon.as_bytes()))
    }
}
