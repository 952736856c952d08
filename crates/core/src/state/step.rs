//! A step as the fold sees it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::amounts::Amounts;
use crate::body::{OnChildFailure, OnStop};
use crate::digest::{Digest, EntryId, PermitId, ProposalId};
use crate::document::{Outcome, Recovery};
use crate::entry::Head;
use crate::ids::{SignalKey, StepId, ToolName, TrajectoryId};
use crate::json::{JsonError, to_canonical};
use crate::keys::KeyId;
use crate::time::UnixMs;
use crate::writ::Effect;

/// A step: where it stands, and what of its past still binds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the effect that is open or comes next, from 1.
    pub generation: u64,
    /// What was frozen by the first `started` or `pending_approval`.
    pub frozen: Option<Box<Frozen>>,
    /// An approval that is not spent.
    pub grant: Option<Box<Grant>>,
    /// Every `started` whose effect is not in the chain: it is open, or could still arrive late.
    pub unaccounted: Vec<Unaccounted>,
    /// Where it stands.
    pub status: Status,
    /// Whether a branch took it over from its source as done.
    pub inherited: bool,
    /// The digest of its row in the run hash, once there is something to say.
    pub row: Option<Digest>,
    /// When it may be tried again, if not at once.
    pub retry_at: Option<UnixMs>,
}

impl Step {
    pub(super) fn fresh() -> Self {
        Self {
            generation: 1,
            frozen: None,
            grant: None,
            unaccounted: Vec::new(),
            status: Status::Idle,
            inherited: false,
            row: None,
            retry_at: None,
        }
    }

    /// Whether it may begin, but not before some time.
    pub(super) fn rests(&self) -> bool {
        self.status == Status::Idle && self.retry_at.is_some()
    }

    /// Whether a worker has something to do about it, whatever the time.
    pub(super) fn wants_worker(&self) -> bool {
        self.status.wants_worker()
            && !(self.retry_at.is_some() && matches!(self.status, Status::Unknown { .. }))
    }

    /// When something changes about it by itself.
    pub(super) fn wakes_at(&self) -> Option<UnixMs> {
        match &self.status {
            Status::Idle => self.retry_at,
            Status::Unknown { refused: false, .. } => self.status.wakes_at().max(self.retry_at),
            status => status.wakes_at(),
        }
    }

    /// The `started` that is not closed, or in doubt.
    pub(super) fn open_start(&self) -> Option<EntryId> {
        match &self.status {
            Status::Open(opened) | Status::InDoubt { opened, .. } => Some(opened.started),
            _ => None,
        }
    }

    /// The effects of this step that could still arrive late.
    pub fn late(&self) -> impl Iterator<Item = EntryId> {
        let open = self.open_start();
        self.unaccounted.iter().map(|it| it.started).filter(move |start| Some(*start) != open)
    }

    /// Whether the effect of this `started` is not in the chain.
    pub fn is_unaccounted(&self, started: EntryId) -> bool {
        self.unaccounted.iter().any(|it| it.started == started)
    }

    /// Its reserve stays spent for this call: it may have happened.
    pub(super) fn keep(&mut self, opened: &Opened) {
        let own = self.unaccounted.iter_mut().find(|it| it.started == opened.started);
        if let Some(own) = own {
            own.kept = Some(opened.reserve);
        }
    }

    /// Nothing is kept for this call any more. False when nothing was: its effect has arrived. A send that
    /// was turned away had nothing kept for it; what is in doubt then is the one before it.
    pub(super) fn release(&mut self, opened: &Opened) -> bool {
        if !self.is_unaccounted(opened.started) {
            return false;
        }
        let kept = |it: &Unaccounted| it.kept.is_some();
        let own = self.unaccounted.iter().position(|it| it.started == opened.started && kept(it));
        let which = own.or_else(|| self.unaccounted.iter().rposition(kept));
        let kept = which.and_then(|which| self.unaccounted.get_mut(which)?.kept.take());
        kept.is_some()
    }
}

/// A `started` whose effect is not in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unaccounted {
    /// The `started`.
    pub started: EntryId,
    /// What stays spent for it as long as nobody knows whether it happened, or for good if nobody ever will.
    pub kept: Option<Amounts>,
}

/// What every retry must propose again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// The proposal.
    pub proposal: ProposalId,
    /// Its tool.
    pub tool: ToolName,
    /// The digest of its arguments.
    pub args: Digest,
}

/// An approval by a full quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The `pending_approval` that was approved.
    pub pending: EntryId,
    /// Until when.
    pub expires: UnixMs,
}

/// An open call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The `started`.
    pub started: EntryId,
    /// Its permit.
    pub permit: PermitId,
    /// The attempt that may have dispatched it.
    pub attempt: u64,
    /// What it does to the world.
    pub effect: Effect,
    /// How it may be recovered.
    pub recovery: Recovery,
    /// From when it cannot land any more.
    pub dead_at: UnixMs,
    /// For how long it can land after it was sent.
    pub lasts_ms: u64,
    /// What is set aside for it.
    pub reserve: Amounts,
    /// The commit that it undoes.
    pub compensates: Option<EntryId>,
    /// Whether the same effect was sent before, without anyone knowing what became of it. Then
    /// nothing that becomes of this call can tell that the effect did not happen.
    pub again: bool,
}

/// On what terms a child works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What was carved out.
    pub carved: Amounts,
    /// The most that it may do to the world.
    pub effect: Effect,
    /// Whether the child is known to have begun.
    pub begun: bool,
    /// Whether the child was asked to stop because its parent does.
    pub told: bool,
    /// What it means if the child does not complete.
    pub on_failure: OnChildFailure,
    /// What becomes of the child if its parent stops first.
    pub on_stop: OnStop,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It may begin, or begin again.
    Idle,
    /// A call is open.
    Open(Box<Opened>),
    /// A call ended without anyone knowing how; it may be sent again.
    Unknown {
        /// The call.
        opened: Box<Opened>,
        /// Whether sending it again was refused.
        refused: bool,
    },
    /// Nobody knows, and nobody may try.
    InDoubt {
        /// The `in_doubt` entry.
        entry: EntryId,
        /// The call.
        opened: Box<Opened>,
    },
    /// It waits for approvers.
    Pending(Box<Pending>),
    /// An approver said no.
    Denied {
        /// The `pending_approval`.
        pending: EntryId,
    },
    /// It waits for a signal or a time.
    Waiting {
        /// The `waiting` entry.
        entry: EntryId,
        /// The signal's key.
        key: Option<SignalKey>,
        /// The time.
        until: Option<UnixMs>,
    },
    /// The time it waited for has come.
    Fired {
        /// The `timer` entry.
        timer: EntryId,
    },
    /// A child works on it.
    Delegated {
        /// The `delegation` entry.
        entry: EntryId,
        /// The child.
        child: TrajectoryId,
        /// On what terms.
        terms: Box<Terms>,
    },
    /// An undo that was refused or failed: a person must decide.
    Blocked {
        /// The entry that blocked it.
        entry: EntryId,
    },
    /// Done.
    Done {
        /// The entry that says so.
        by: Head,
        /// How.
        outcome: Outcome,
    },
    /// Failed, refused or given up.
    Failed {
        /// The entry that says so.
        by: Head,
    },
}

/// A proposal before its approvers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The `pending_approval` entry.
    pub entry: EntryId,
    /// How many approvers it takes.
    pub quorum: u64,
    /// Who has approved.
    pub approvers: Arc<BTreeSet<KeyId>>,
    /// Until when approvals are taken.
    pub deadline: UnixMs,
    /// The earliest expiry among the approvals.
    pub expires: Option<UnixMs>,
    /// Where it is asked.
    pub channels: Arc<str>,
    /// Why it is asked.
    pub reason: Arc<str>,
}

impl Status {
    /// One word or two, for errors.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Open(_) => "open",
            Self::Unknown { .. } => "of unknown outcome",
            Self::InDoubt { .. } => "in doubt",
            Self::Pending(_) => "pending approval",
            Self::Denied { .. } => "denied",
            Self::Waiting { .. } => "waiting",
            Self::Fired { .. } => "woken by its timer",
            Self::Delegated { .. } => "delegated",
            Self::Blocked { .. } => "blocked",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
        }
    }

    /// Whether nothing more happens to the step.
    pub fn settled(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. })
    }

    /// Whether the trajectory may not end while a step stands so.
    pub(super) fn holds(&self) -> bool {
        matches!(
            self,
            Self::Open(_)
                | Self::Unknown { .. }
                | Self::InDoubt { .. }
                | Self::Delegated { .. }
                | Self::Blocked { .. }
        )
    }

    fn wants_worker(&self) -> bool {
        match self {
            Self::Open(_) | Self::Denied { .. } | Self::Fired { .. } => true,
            Self::Unknown { opened, refused } => *refused || !opened.recovery.waits_for_death(),
            // Its child may not have begun.
            Self::Delegated { terms, .. } => !terms.begun,
            _ => false,
        }
    }

    fn wakes_at(&self) -> Option<UnixMs> {
        match self {
            Self::Waiting { until, .. } => *until,
            Self::Pending(pending) => Some(pending.deadline),
            Self::Unknown { opened, refused: false } if opened.recovery.waits_for_death() => {
                Some(opened.dead_at)
            }
            Self::InDoubt { opened, .. } if opened.recovery == Recovery::Probe => {
                Some(opened.dead_at)
            }
            _ => None,
        }
    }
}

/// How a step's row in the run hash ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOutcome {
    /// As the entry says.
    Step(Outcome),
    /// The Guardian said no.
    Rejected,
    /// Nobody will ever know.
    GivenUp,
}

impl Serialize for RowOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Step(outcome) => outcome.serialize(serializer),
            Self::Rejected => serializer.serialize_str("rejected"),
            Self::GivenUp => serializer.serialize_str("given_up"),
        }
    }
}

/// What the run hash says of a step: no time, no worker, no signature.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RunRow<'a> {
    /// The digest of its arguments.
    pub(super) args: Option<Digest>,
    /// The digest of what it changed.
    pub(super) delta: Option<Digest>,
    /// The generation that ended.
    pub(super) generation: u64,
    /// The digest of what it returned.
    pub(super) observation: Option<Digest>,
    /// How it ended.
    pub(super) outcome: RowOutcome,
    /// The step.
    pub(super) step: &'a StepId,
    /// The tool, if one was called.
    pub(super) tool: Option<&'a ToolName>,
}

impl<'a> RunRow<'a> {
    /// The row of a step that ended so, with nothing to show for it.
    pub(super) fn new(id: &'a StepId, step: &'a Step, outcome: RowOutcome) -> Self {
        Self {
            args: step.frozen.as_ref().map(|frozen| frozen.args),
            delta: None,
            generation: step.generation,
            observation: None,
            outcome,
            step: id,
            tool: step.frozen.as_ref().map(|frozen| &frozen.tool),
        }
    }

    /// The digest of the canonical row, which stands for it in the run hash.
    pub(super) fn digest(&self) -> Result<Digest, JsonError> {
        to_canonical(self).map(|bytes| Digest::of(&bytes))
    }
}
