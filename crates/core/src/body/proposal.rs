//! What an agent wants done, and the keys and seeds that follow from it.

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, IdempotencyKey, ProposalId, Seed};
use crate::ids::{StepId, ToolName, TrajectoryId};
use crate::json::{Canon, JsonError};

/// What an agent wants done. Carries no authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The arguments.
    pub args: Canon,
    /// The step.
    pub step: StepId,
    /// The tool.
    pub tool: ToolName,
}

impl Proposal {
    /// The proposal's id.
    pub fn id(&self) -> Result<ProposalId, JsonError> {
        Canon::of(self).map(|canon| ProposalId::new(Digest::of(canon.as_bytes())))
    }

    /// Seed 001's key: trajectory, step, tool, canonical arguments.
    pub fn idempotency_key(&self, trajectory: TrajectoryId) -> IdempotencyKey {
        IdempotencyKey::new(Digest::of_parts(&[
            trajectory.to_string().as_bytes(),
            self.step.as_str().as_bytes(),
            self.tool.as_str().as_bytes(),
            self.args.as_bytes(),
        ]))
    }
}

/// The key that the other side sees: the same for every attempt at one effect.
pub fn external_key(trajectory: TrajectoryId, step: &StepId, generation: u64) -> String {
    let digest = Digest::of_parts(&[
        trajectory.to_string().as_bytes(),
        step.as_str().as_bytes(),
        generation.to_string().as_bytes(),
    ]);
    format!("gesta-{digest}")
}

/// The seed of a step's random values.
pub fn step_seed(root: Seed, step: &StepId, generation: u64) -> Seed {
    Seed::new(Digest::of_parts(&[
        b"gesta.seed",
        root.to_string().as_bytes(),
        step.as_str().as_bytes(),
        generation.to_string().as_bytes(),
    ]))
}
