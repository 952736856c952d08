//! Handing a task to a child, and what the two chains then owe each other.

use serde::{Deserialize, Serialize};

use super::End;
use crate::amounts::Amounts;
use crate::content::{Content, some};
use crate::entry::Head;
use crate::ids::{StepId, TrajectoryId};
use crate::signed::Signed;
use crate::writ::Writ;

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

/// A task is handed to a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// The child, whose id follows from parent, step and generation.
    pub child: TrajectoryId,
    /// What it means if the child does not complete.
    pub on_failure: OnChildFailure,
    /// What becomes of the child if this trajectory stops first.
    pub on_stop: OnStop,
    /// The step.
    pub step: StepId,
    /// What the child is to do.
    pub task: Content,
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
