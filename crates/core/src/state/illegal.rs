//! Why an entry may not follow: typed, naming the state and the entry.

use super::shelf::Forgotten;
use crate::amounts::Dimension;
use crate::body::End;
use crate::digest::EntryId;
use crate::entry::{EntryError, Kind};
use crate::ids::{StepId, TrajectoryId};
use crate::json::JsonError;
use crate::keys::{KeyError, KeyId};
use crate::trust::Distrust;
use crate::world::DeltaError;
use crate::writ::{Effect, Widening, WritChainError};

/// An entry that may not follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq} (`{kind}`) may not follow in state `{state}`: {why}")]
pub struct Illegal {
    /// The entry's number.
    pub seq: u64,
    /// The entry's kind.
    pub kind: Kind,
    /// The state that it meets.
    pub state: &'static str,
    /// Why not.
    pub why: Why,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each message is the documentation, and the fields are named by it"
)]
pub enum Why {
    // the envelope
    #[error("it belongs to another trajectory")]
    OtherTrajectory,
    #[error("its number is not {expected}")]
    Sequence { expected: u64 },
    #[error("its parent is not the head of the chain")]
    Parent,
    #[error("its time lies before its parent's")]
    TimeRunsBack,
    #[error("only `root` or `branch` begins a trajectory")]
    NotBegun,
    #[error("the trajectory has begun already")]
    Begun,
    #[error("the trajectory has ended ({0:?})")]
    Ended(End),
    #[error("the trajectory has not ended")]
    NotEnded,
    #[error("it is by attempt {by}, but attempt {current} owns the trajectory")]
    NotOwner { by: u64, current: u64 },
    #[error("only the worker that owns the trajectory may append it")]
    OwnerOnly,
    #[error("a worker must append it")]
    WorkerOnly,
    #[error("the attempt is not {expected}")]
    Attempt { expected: u64 },
    #[error("a trajectory of this kind has no such entry")]
    WrongKindOfTrajectory,
    #[error("it cannot be written canonically: {0}")]
    Json(JsonError),
    #[error(transparent)]
    Forgotten(#[from] Forgotten),

    // beginnings
    #[error(transparent)]
    Writs(#[from] WritChainError),
    #[error("the writ roots another trajectory, or none")]
    WritElsewhere,
    #[error("the writ is not valid at this time")]
    WritWindow,
    #[error("the source of the branch is not folded up to the commit it names")]
    Source,
    #[error("there is a plan already")]
    PlanTwice,
    #[error("there is no plan yet")]
    NoPlan,
    #[error("the plan's hash is not that of its steps")]
    PlanHash,
    #[error("the plan's priority is above {}", crate::body::Plan::MAX_PRIORITY)]
    PlanPriority,
    #[error("the plan's tools are not in order, each once")]
    PlanTools,
    #[error("the plan has step `{0}` twice")]
    PlanDuplicate(StepId),
    #[error("step `{step}` needs `{needs}`, which does not stand before it in the plan")]
    PlanOrder { step: StepId, needs: StepId },
    #[error("`{0}` is not the id of a plan's node (no `/`, at most 100 characters)")]
    PlanNode(StepId),

    // steps
    #[error("step `{0}` is not in the plan")]
    NotPlanned(StepId),
    #[error("step `{0}` is not ready: something it needs is not done")]
    NotReady(StepId),
    #[error("the plan's step `{0}` does something else")]
    WrongStepKind(StepId),
    #[error("step `{0}` may not be tried again yet")]
    Resting(StepId),
    #[error("only a step that may be tried again says when, and not for before now")]
    RetryAt,
    #[error("nobody can be known to have died later than now")]
    Died,
    #[error("step `{step}` is {status}")]
    StepStatus { step: StepId, status: &'static str },
    #[error("step `{0}` still has open steps below it")]
    OpenBelow(StepId),
    #[error("nothing new may start: the trajectory is failing, being cancelled or rolled back")]
    Stopping,
    #[error("step `{0}` is parked until a person confirms what a verifier found")]
    Unconfirmed(StepId),
    #[error("the proposal differs from the one that was frozen for step `{0}`")]
    Frozen(StepId),
    #[error("it names another `started` than the open one")]
    OtherStarted,
    #[error("the outcome does not fit what the permit and the certainty say")]
    Outcome,
    #[error("another attempt made this call: what became of it needs the executor's own report")]
    NoEvidence,
    #[error("the executor's report says something else")]
    Evidence,
    #[error("the effect can still land; it is too early to say that it did not or to try again")]
    TooEarly,
    #[error("a refused recovery leaves the step in doubt")]
    RecoveryRefused,

    // documents
    #[error("the decision is about something else (`{0}` differs)")]
    Decision(&'static str),
    #[error("the permit is about something else (`{0}` differs)")]
    Permit(&'static str),
    #[error("the receipt is about something else (`{0}` differs)")]
    Receipt(&'static str),
    #[error("the seed is not the one that follows from the root")]
    Seed,
    #[error("the writ does not allow the tool")]
    Tool,
    #[error("effect `{effect}` is above the writ's ceiling `{ceiling}`")]
    Ceiling { effect: Effect, ceiling: Effect },
    #[error("the budget `{0}` does not reach")]
    Budget(Dimension),
    #[error("it names another writ")]
    OtherWrit,
    #[error("the commit before is another one")]
    ParentCommit,
    #[error("a result without a call costs nothing")]
    Cost,
    #[error("a skipped step changes and returns nothing")]
    NotEmpty,
    #[error(transparent)]
    Delta(#[from] DeltaError),

    // approvals
    #[error("a quorum of at least one approver and one channel are needed")]
    Quorum,
    #[error("the deadline has passed already")]
    Deadline,
    #[error("the approval answers another `pending_approval`")]
    OtherPending,
    #[error("key `{0}` has approved already")]
    ApprovedTwice(KeyId),
    #[error("the approval has expired")]
    ApprovalExpired,
    #[error("the reason does not fit how the approval went")]
    Reason,

    // doubts
    #[error("it answers another doubt")]
    OtherDoubt,
    #[error("this `started` is unknown, still open, or already accounted for")]
    NotClosed,

    // waits, signals, children, confirmations, rollback
    #[error("a wait needs a key or a time")]
    EmptyWait,
    #[error("a signal with this id was received already")]
    SignalTwice,
    #[error("it is not what ended the wait")]
    NotWoken,
    #[error("the time has not come")]
    NotYet,
    #[error("the child's id does not follow from trajectory, step and generation")]
    ChildId,
    #[error("the child's writ is not what was decided on")]
    OtherTask,
    #[error("there is something to do")]
    Restless,
    #[error(transparent)]
    Widening(#[from] Widening),
    #[error("it names another child")]
    OtherChild,
    #[error("nothing of the kind is owed to the other chain now")]
    NotOwed,
    #[error("it confirms another entry, or nothing is parked")]
    OtherConfirmation,
    #[error("only a person confirms")]
    PersonOnly,
    #[error("something is still open, in doubt or delegated")]
    NotQuiet,
    #[error("nothing is failing or being cancelled")]
    NothingToUndo,
    #[error("a rollback was opened already")]
    RollbackTwice,
    #[error("`{0}` is not a commit of that step with an effect, or not in reverse order")]
    UndoOrder(EntryId),
    #[error("the rollback's next undo is another one")]
    UndoNext,
    #[error("the world's digest differs")]
    WorldDigest,
    #[error("the run hash differs")]
    RunHash,
    #[error("steps of the plan are not done")]
    StepsLeft,
    #[error("a step has failed")]
    Failing,
    #[error("cancelling was requested already")]
    CancelTwice,
    #[error("nobody asked to cancel")]
    NotCancelling,
    #[error("what was done must be undone first")]
    RollbackLeft,

    // registry
    #[error("{0}")]
    Signer(Distrust),
    #[error(transparent)]
    Key(#[from] KeyError),
}

// The cause is part of the message: as a source it would be told twice.
impl From<JsonError> for Why {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// Why entries were not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// The state machine refuses.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// It is not an entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// It would live on what another trajectory may, without having been handed it. Chains that hold such a
    /// beginning can be read: it is `verify` that names it.
    #[error(
        "a writ above its own roots {0}, which alone may hand on a part of what it may, by delegating"
    )]
    Uncarved(TrajectoryId),
    /// It was to be seen, and not to be let in.
    #[error("the entry was rehearsed, and nothing was appended")]
    Rehearsed,
}
