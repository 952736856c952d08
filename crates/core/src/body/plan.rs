//! The task graph: nodes, what each needs, and the hash of it all.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::StepId;
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
    /// The steps, each after what it needs.
    pub steps: Vec<PlanStep>,
}

impl Plan {
    /// A plan of these steps.
    pub fn new(steps: Vec<PlanStep>) -> Result<Self, JsonError> {
        Ok(Self { hash: Self::hash_of(&steps)?, steps })
    }

    /// The digest of the canonical steps.
    pub fn hash_of(steps: &[PlanStep]) -> Result<Digest, JsonError> {
        Canon::of(steps).map(|canon| Digest::of(canon.as_bytes()))
    }
}
