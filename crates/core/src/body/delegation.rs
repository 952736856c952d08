//! Handing a task to a child, and what the two chains then owe each other.

use serde::{Deserialize, Serialize};

use super::{End, Proposal};
use crate::amounts::{Amounts, Budget};
use crate::content::{Content, some};
use crate::digest::Digest;
use crate::document::Decision;
use crate::entry::Head;
use crate::ids::{Principal, StepId, ToolName, TrajectoryId};
use crate::json::{Canon, JsonError};
use crate::signed::Signed;
use crate::writ::{Effect, ToolPattern, Writ};

/// What a child that does not complete means for the step that waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChildFailure {
    /// The step fails.
    #[default]
    Fail,
    /// The step is done, and its result says how the child ended.
    Return,
}

/// What becomes of a child when its parent stops before it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStop {
    /// It is asked to stop too.
    #[default]
    Cancel,
    /// It is waited for.
    Wait,
}

/// What is to be handed to a child: what it is to do, and what it may. This is what is proposed, decided
/// and, if people are asked, approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The most that it may use; where nothing is said, what there is when it is handed over.
    pub budget: Budget,
    /// How often it may hand on in turn.
    pub depth: u64,
    /// The most that it may do to the world.
    pub effect: Effect,
    /// What it is given.
    pub input: Content,
    /// The name of its job.
    pub job: String,
    /// The digest of its plan.
    pub plan: Digest,
    /// Who acts in it.
    pub principal: Principal,
    /// The tools that it may call.
    pub tools: Vec<ToolPattern>,
}

impl Task {
    /// Handing it over, as a step proposes it: like a call, of what stands for a tool.
    pub fn proposal(&self, step: &StepId) -> Result<Proposal, JsonError> {
        let tool = ToolName::of_delegation(self.effect);
        Ok(Proposal { args: Canon::of(self)?, step: step.clone(), tool })
    }

    /// Whether a writ hands over exactly this, and no more of the budget than it says.
    pub fn is_handed_by(&self, writ: &Writ) -> bool {
        let Self { budget, depth, effect, input: _, job: _, plan: _, principal, tools } = self;
        let limits = budget.dimensions().into_iter().zip(writ.budget.dimensions());
        let says = limits.into_iter().all(|((_, said), (_, has))| said.is_none() || said == has);
        let (same, who) = ((*depth, *effect) == (writ.depth, writ.effect), &writ.principal);
        says && same && principal == who && *tools == writ.tools
    }
}

/// A task is handed to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// The child, whose id follows from parent, step and generation.
    pub child: TrajectoryId,
    /// The Guardian's verdict on the task.
    pub decision: Signed<Decision>,
    /// What it means if the child does not complete.
    pub on_failure: OnChildFailure,
    /// What becomes of the child if this trajectory stops first.
    pub on_stop: OnStop,
    /// The step.
    pub step: StepId,
    /// What the child is to do, and what it may.
    pub task: Task,
    /// The child's writ, narrowed from this trajectory's.
    pub writ: Signed<Writ>,
}

/// A child has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegationResult {
    /// What it answered, or how it ended otherwise and why.
    pub answer: Content,
    /// The child.
    pub child: TrajectoryId,
    /// How it ended.
    pub end: End,
    /// Its last entry.
    pub head: Head,
    /// What it used of what was carved out for it.
    pub spent: Amounts,
    /// The step.
    pub step: StepId,
}

/// What one chain of a delegation owes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The parent owes the child its beginning.
    Beginning,
    /// A parent that stops owes the child the word that it is to stop too.
    Cancel,
    /// A child that has ended owes the parent its result.
    Result,
}

/// What was owed to the other chain is there. Until this stands here, somebody has to see to it, so a
/// crash between the two chains leaves a trajectory that workers claim, and nothing has to be searched
/// for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivered {
    /// The other chain's head, as it stood with the delivery in it.
    pub head: Head,
    /// The step that delegated; in the parent only.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
    /// The other chain.
    pub to: TrajectoryId,
    /// What.
    pub what: Delivery,
}
