//! Why a trajectory could not be driven, or a request not be carried out.

use crate::anchor::Unfit;
use crate::authority::Unauthorised;
use gesta_core::digest::Digest;
use gesta_core::ids::{SignalKey, StepId, ToolName, TrajectoryId};
use gesta_core::json::JsonError;
use gesta_core::keys::KeyId;
use gesta_core::sensitive::SensitiveError;
use gesta_core::signed::SignError;
use gesta_core::state::{AdmitError, Forgotten};
use gesta_core::verification::Class;
use gesta_store::{AppendError, ChainError, StoreError};

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The chain could not be read or written.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// A value has no canonical form.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Something that a fold had put away is lost.
    #[error(transparent)]
    Forgotten(#[from] Forgotten),
    /// A document could not be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The trajectory has not begun, or is a registry.
    #[error("the trajectory has no mandate: it is not a job")]
    NotBegun,
    /// The lease ended, or another worker has taken over.
    #[error("another worker may own {0}: this one has lost its lease")]
    Lost(TrajectoryId),
    /// A key was used before, for something else.
    #[error(
        "the key `{key}` already stands for job {trajectory}, which has another plan or input; use another key"
    )]
    OtherJob {
        /// The key.
        key: String,
        /// The job that has it.
        trajectory: TrajectoryId,
    },
    /// The id of a signal stands for another one.
    #[error(
        "{trajectory} has a signal `{id}` already, with another key or payload; use another id"
    )]
    OtherSignal {
        /// The job that has it.
        trajectory: TrajectoryId,
        /// The sender's id of it.
        id: SignalKey,
    },
    /// The step is not in doubt.
    #[error("step `{step}` of {trajectory} is not in doubt; `gesta doubts` lists what is")]
    NoDoubt {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The step.
        step: StepId,
    },
    /// The executor has told what became of the step.
    #[error(
        "the executor has reported what became of step `{step}` of {trajectory}; `gesta resume {trajectory}`, or a worker, goes on from that"
    )]
    Reported {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The step.
        step: StepId,
    },
    /// Nothing waits for a person to confirm it.
    #[error("nothing of {0} waits to be confirmed; `gesta doubts` lists what does")]
    NothingToConfirm(TrajectoryId),
    /// What was said of a doubt cannot be believed yet.
    #[error(
        "the effect of step `{step}` can still land; try again after {dead_at_ms} (unix milliseconds), or force it"
    )]
    TooEarly {
        /// The step.
        step: StepId,
        /// From when it cannot.
        dead_at_ms: u64,
    },
    /// The trajectory has ended.
    #[error("{0} has ended already")]
    Ended(TrajectoryId),
    /// A key that may not approve.
    #[error("this key may not approve: {0}")]
    NoApprover(String),
    /// Somebody who is not asked.
    #[error(
        "`{name}` is not asked: only who is bound to {asked} counts here; `gesta policy show` lists who is"
    )]
    NotAsked {
        /// Who spoke.
        name: String,
        /// The channels that are asked.
        asked: String,
    },
    /// Nobody is asked.
    #[error(
        "step `{step}` of {trajectory} waits for no approval; `gesta approvals` lists what does"
    )]
    NothingAsked {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The step.
        step: StepId,
    },
    /// It is another question now.
    #[error(
        "step `{step}` of {trajectory} asks something else by now; look at it again with `gesta approvals`"
    )]
    AskedAnew {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The step.
        step: StepId,
    },
    /// It is too late.
    #[error("the time to approve step `{step}` of {trajectory} is over")]
    AskedInVain {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The step.
        step: StepId,
    },
    /// One approver is one voice.
    #[error("`{0}` has spoken already; a quorum is of distinct approvers")]
    SpokenTwice(String),
    /// A policy set that does not hold together.
    #[error("{0}")]
    Policy(String),
    /// The chain that stands where a child is to begin was begun by something else.
    #[error("{child} is to be a child of {parent}, but something else has begun it")]
    OtherChild {
        /// The child.
        child: TrajectoryId,
        /// Its parent.
        parent: TrajectoryId,
    },
    /// A tool declares an expression that is none.
    #[error("tool `{tool}` declares a bad expression: {why}")]
    Rule {
        /// The tool.
        tool: ToolName,
        /// What is wrong.
        why: String,
    },
    /// A job cannot be given authority.
    #[error(transparent)]
    Unauthorised(#[from] Unauthorised),
    /// The input does not fit the job.
    #[error("{0}")]
    Input(String),
    /// There is no commit to branch from.
    #[error("{what}; a branch begins at a commit{nearest}")]
    NoPoint {
        /// What was asked for, and what is wrong with it.
        what: String,
        /// The commits that are nearest.
        nearest: String,
    },
    /// Nothing that could be branched.
    #[error("{0} is not a job: only jobs have branches")]
    NotAJob(TrajectoryId),
    /// A step that is done where a branch begins cannot be changed in it.
    #[error("step `{step}` {why}; branch from an earlier commit to change it")]
    Committed {
        /// The step.
        step: StepId,
        /// What was to be changed.
        why: String,
    },
    /// What a branch would inherit as done has been undone.
    #[error(
        "step `{step}` was undone by entry {seq} of {trajectory}, so a branch that takes it as done would be wrong; branch from a commit before it"
    )]
    Undone {
        /// The step.
        step: StepId,
        /// Whose undo it is.
        trajectory: TrajectoryId,
        /// The entry that began it.
        seq: u64,
    },
    /// A branch belongs to whoever its source belongs to.
    #[error("{0} belongs to another tenant than the writ that a branch of it would act under")]
    OtherTenant(TrajectoryId),
    /// A changed plan does not hold together.
    #[error("{0}")]
    Plan(String),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Entropy(String),
    /// A name that no worker can have.
    #[error("`{0}` cannot be the name of a worker")]
    WorkerName(String),
    /// The worker's key cannot sign.
    #[error("the key `{key}` cannot sign: {why}")]
    Key {
        /// The key.
        key: KeyId,
        /// What is wrong.
        why: String,
    },
    /// What drove the trajectory died of a bug.
    #[error("driving {trajectory} died: {why}; what it left open is recovered by the next attempt")]
    Died {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// What was seen of it.
        why: String,
    },
    /// Sensitive values are to be kept, and there is nowhere to keep their keys.
    #[error("{what} is sensitive, and there is no place for data keys; {remedy}")]
    NoVault {
        /// What is sensitive.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The key that sensitive values are encrypted under is not there.
    #[error(
        "the data key of {trajectory} is not in {place}; without it, its sensitive values cannot be used. Put it back, or give the trajectory up with `gesta cancel`"
    )]
    NoDataKey {
        /// Whose key it is.
        trajectory: TrajectoryId,
        /// Where it was looked for.
        place: String,
    },
    /// The key that sensitive values were encrypted under is destroyed.
    #[error("the sensitive values of {0} are erased")]
    Erased(TrajectoryId),
    /// A commitment that cannot be opened.
    #[error("the sensitive value `{commitment}` cannot be opened: {why}")]
    Unopened {
        /// The commitment.
        commitment: Digest,
        /// What is wrong.
        why: String,
    },
    /// What it shares with others is not erased without them.
    #[error(
        "{trajectory} shares its sensitive values with {}; `--tree` erases them all", list(.others)
    )]
    Relatives {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// Its children and branches that have them too.
        others: Vec<TrajectoryId>,
    },
    /// Its values are another's.
    #[error(
        "the sensitive values of {trajectory} are under the key of {family}; erase that, with `--tree`"
    )]
    OfFamily {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The one that begins its family.
        family: TrajectoryId,
    },
    /// What may still use its values keeps them.
    #[error("{} has not ended, and may use its sensitive values; wait for it, or cancel it first", list(.0))]
    NotEnded(Vec<TrajectoryId>),
    /// It has no sensitive values.
    #[error("{0} has no sensitive values to erase")]
    NothingToErase(TrajectoryId),
    /// A value from outside that would pass for a commitment.
    #[error(
        "at `{0}`: `$commit` is not a key that an object may have: it stands for sensitive values"
    )]
    Reserved(String),
    /// A commitment that cannot be made.
    #[error(transparent)]
    Sensitive(#[from] SensitiveError),
    /// The store is not the one that its workers remember.
    #[error(transparent)]
    Unfit(#[from] Box<Unfit>),
    /// Others have added to the trajectory meanwhile.
    #[error("others were faster; what they have added is looked at first")]
    Overtaken,
    /// Something in the chain is not by whom it has to be.
    #[error(
        "entry {seq} of {trajectory} is forged ({code}): {why}; nothing goes on from it. `gesta verify {trajectory}` gives a full report, `gesta branch` goes on from a commit before it"
    )]
    Forged {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The entry's number.
        seq: u64,
        /// What it means.
        class: Class,
        /// The code of the finding.
        code: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A file of the worker could not be read or written.
    #[error("cannot use `{path}`: {why}")]
    File {
        /// Which.
        path: String,
        /// What the system said.
        why: String,
    },
}

impl RunError {
    /// Whether another attempt owns the trajectory.
    pub fn fence_lost(&self) -> bool {
        matches!(self, Self::Chain(ChainError::Append(AppendError::FenceLost { .. })))
    }

    /// Whether the registry has changed since something was decided under it.
    pub fn outdated(&self) -> bool {
        matches!(self, Self::Chain(ChainError::Append(AppendError::Outdated { .. })))
    }

    /// Whether the inbox holds a report that was not read before something was said of a doubt.
    pub fn unread(&self) -> bool {
        matches!(self, Self::Chain(ChainError::Append(AppendError::Unread { .. })))
    }

    /// Whether the store failed, so that trying again later may help.
    pub fn transient(&self) -> bool {
        matches!(
            self,
            Self::Chain(
                ChainError::Append(AppendError::Unknown(_) | AppendError::Refused(_))
                    | ChainError::Contended(_)
            )
        ) || matches!(self, Self::Chain(ChainError::Store(error)) if reachable_later(error))
    }
}

fn list(trajectories: &[TrajectoryId]) -> String {
    trajectories.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn reachable_later(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unreachable { .. } | StoreError::Full { .. } | StoreError::Refused { .. }
    )
}

impl From<AdmitError> for RunError {
    fn from(error: AdmitError) -> Self {
        Self::Chain(error.into())
    }
}

impl From<Unfit> for RunError {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(Box::new(unfit))
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Chain(error.into())
    }
}
