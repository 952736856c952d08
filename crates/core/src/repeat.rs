//! What a branch would do once more: effects that the trajectories above it have sent and that it did
//! not inherit. Values only: who looks for them is not known here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::EntryId;
use crate::document::{Decision, Stage};
use crate::ids::{StepId, TrajectoryId};
use crate::time::{Day, UnixMs};

/// The stage of a decision that looks for repeats. It is in the trace of a branch's decision only.
pub const STAGE: &str = "branch";

/// An effect that a trajectory above a branch has sent, and that a proposal would repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// When it was sent first.
    pub at: UnixMs,
    /// What is known of it.
    pub fate: Fate,
    /// The key that the other side was given.
    pub key: String,
    /// The `started` that sent it first.
    pub started: EntryId,
    /// Its step.
    pub step: StepId,
    /// Whose it is.
    pub trajectory: TrajectoryId,
}

/// What is known of an effect that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is under way.
    Open,
    /// It happened.
    Happened,
    /// It happened, and was undone or is being undone.
    Undone,
    /// Nobody knows.
    Unknown,
    /// It did not happen.
    DidNotHappen,
}

impl Fate {
    fn as_str(self) -> &'static str {
        match self {
            Self::Open => "is under way",
            Self::Happened => "happened",
            Self::Undone => "happened and was undone",
            Self::Unknown => "may have happened",
            Self::DidNotHappen => "was tried and did not happen",
        }
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, fate, key, step, trajectory, .. } = self;
        let fate = fate.as_str();
        let seconds = at.0 % Day::MS / 1000;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let at = format!("{} {hour:02}:{minute:02}:{second:02} UTC", at.day());
        write!(f, "`{step}` of {trajectory} {fate}, sent {at} with the key `{key}`")
    }
}

/// What the branch's stage found, as a decision records it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Who has agreed, knowing of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<String>,
    /// What would be repeated.
    pub repeats: Vec<Repeat>,
}

impl Found {
    /// What a decision says it found; nothing if it did not look.
    pub fn of(decision: &Decision) -> Self {
        let stage = decision.trace.iter().find(|Stage { stage, .. }| stage == STAGE);
        let found = stage.and_then(|stage| stage.found.as_ref());
        found.and_then(|found| found.read().ok()).unwrap_or_default()
    }
}

/// How many repeats are spelled out to people; the trace has all of them.
const SPELLED_OUT: usize = 3;

/// What a decision on a branch's proposal looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// What would be repeated.
    pub found: Vec<Repeat>,
    /// What the people who were last asked about the step were told of, by its `started`.
    pub told: Vec<EntryId>,
}

impl Repeats {
    /// Whether whoever was asked knew of every one.
    pub(crate) fn all_told(&self) -> bool {
        self.found.iter().all(|repeat| self.told.contains(&repeat.started))
    }

    /// Why people are asked.
    pub(crate) fn reason(&self) -> String {
        let shown = self.found.iter().take(SPELLED_OUT).map(ToString::to_string);
        let shown = shown.collect::<Vec<_>>().join("; ");
        let more = match self.found.len().saturating_sub(SPELLED_OUT) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!("what this branched from has sent it before: {shown}{more}")
    }
}
