//! The bodies of entries, one type a kind. Shapes only: what may follow what is the state's to say.

mod delegation;
mod plan;
mod proposal;

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::content::{BlobRef, Content, some};
use crate::digest::{Digest, EntryId, ProposalId, Seed, WritId};
use crate::document::{
    ApprovalStatement, Certainty, Decision, EffectReport, Environment, Failing, Outcome, Permit,
    Receipt, RegistrationStatement, ResolutionStatement,
};
use crate::entry::Head;
use crate::ids::{Channel, Principal, SignalKey, StepId, TrajectoryId};
use crate::json::Canon;
use crate::keys::KeyId;
use crate::signed::Signed;
use crate::time::UnixMs;
use crate::world::{Delta, ResourceRef};
use crate::writ::Writ;

pub use delegation::{
    Delegation, DelegationResult, Delivered, Delivery, OnChildFailure, OnStop, Task,
};
pub use plan::{Plan, PlanStep, StepKind};
pub use proposal::{Proposal, external_key, step_seed};

/// Begins a trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// The version of what compiled it.
    pub compiler: String,
    /// Who asked for it.
    pub principal: Principal,
    /// What it is for.
    pub purpose: Purpose,
    /// The seed that all random values of the trajectory are derived from.
    pub seed: Seed,
}

/// What a trajectory is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Purpose {
    /// A plan that workers drive to its end.
    Job(Mandate),
    /// Calls as they come, without a plan.
    Session(Mandate),
    /// Keys, policies, limits, freezes.
    Registry {
        /// The key that may register others.
        owner: KeyId,
    },
}

/// What a job or session starts with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mandate {
    /// The delegation that this trajectory carries out, if it is a child.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<DelegatedBy>,
    /// What was in force at the start.
    pub environment: Environment,
    /// What it works on.
    pub input: Content,
    /// The head of the registry at the start.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryHead>,
    /// The chain of writs, from the issuer's to the one that roots this trajectory.
    pub writs: Vec<Signed<Writ>>,
}

impl Mandate {
    /// The trajectory that a writ above this one's roots, unless this one says that it was delegated there: a
    /// writ that roots a trajectory is that trajectory's to carve from, by its `delegation`.
    pub fn uncarved(&self) -> Option<TrajectoryId> {
        let (_, above) = self.writs.split_last()?;
        let bound = above.iter().rev().find_map(|writ| writ.doc().trajectory)?;
        let carves = above.last().and_then(|writ| writ.doc().trajectory);
        let by = self.delegated_by.as_ref().map(|by| by.trajectory);
        (carves.is_none() || carves != by).then_some(bound)
    }
}

/// Which delegation a child carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegatedBy {
    /// The `delegation` entry.
    pub delegation: EntryId,
    /// The parent.
    pub trajectory: TrajectoryId,
}

/// Which registry, at which head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryHead {
    /// Its head.
    pub head: Head,
    /// The registry.
    pub trajectory: TrajectoryId,
}

/// What a branch does about effects that its source committed after the branching point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchMode {
    /// Take the source's result for the same step, tool and arguments; else ask.
    Recorded,
    /// Ask each time.
    Ask,
    /// Run.
    Live,
}

/// Begins a trajectory from a commit of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// The version of what compiled it.
    pub compiler: String,
    /// What this trajectory starts with.
    pub mandate: Mandate,
    /// What to do about the source's later effects.
    pub mode: BranchMode,
    /// Why it was made.
    pub note: String,
    /// Who asked for it.
    pub principal: Principal,
    /// The seed of this trajectory.
    pub seed: Seed,
    /// The trajectory it begins from.
    pub source: TrajectoryId,
    /// The commit it begins from.
    pub source_commit: EntryId,
    /// The source's head when the branch was made.
    pub source_head: Head,
}

/// A worker claimed the trajectory. The number is in the entry's author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// When the worker before this one was known to be dead, if it was: what it sent cannot have been
    /// sent later.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub died: Option<UnixMs>,
    /// What is in force for everything that this attempt decides.
    pub environment: Environment,
    /// Why: claimed, or reclaimed from a worker that is gone.
    pub note: String,
    /// That it goes on in a restored copy, if this is the first attempt there.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
}

/// A trajectory goes on in a copy of its store: calls may have been made that its chain does not know of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restored {
    /// Whether every call that may have happened waits for a person, whatever its tool declares.
    pub ask: bool,
    /// Who has let it go on.
    pub by: Principal,
    /// From when on things may have happened.
    pub copied_at: UnixMs,
    /// The epoch of the store, opened when the copy was put in place.
    pub epoch: u64,
    /// What they said to it.
    pub note: String,
}

/// The barrier: once this is durable, the effect may have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// The commit that this call undoes, if it does.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub compensates: Option<EntryId>,
    /// Why it may.
    pub decision: Signed<Decision>,
    /// That it may, once.
    pub permit: Signed<Permit>,
    /// What.
    pub proposal: Proposal,
    /// The seed of its random values.
    pub seed: Seed,
}

/// Where a commit's result came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// A tool was called.
    Effect {
        /// What the executor reported, when another attempt than its own commits it.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        evidence: Option<Box<Signed<EffectReport>>>,
        /// The proposal that was carried out.
        proposal: ProposalId,
        /// How the permit ended.
        receipt: Box<Signed<Receipt>>,
        /// The `started` that this closes.
        started: EntryId,
    },
    /// Computed from what the trajectory already holds.
    Computed,
    /// The step's condition was not met.
    Skipped,
    /// The wait is over.
    Woken {
        /// The `signal` or `timer` that ended it.
        by: EntryId,
    },
    /// Taken over from the source of a branch, at no cost.
    RecordedFrom {
        /// The source's commit.
        commit: EntryId,
        /// The proposal, the same as in the source.
        proposal: Box<Proposal>,
    },
}

/// A step is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The version of what compiled it.
    pub compiler: String,
    /// What it cost.
    pub cost: Amounts,
    /// What it changed.
    pub delta: Delta,
    /// What it returned.
    pub observation: Content,
    /// Where the result came from.
    pub origin: Origin,
    /// How it ended.
    pub outcome: Outcome,
    /// The commit before this one, if there is one.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub parent_commit: Option<EntryId>,
    /// The step.
    pub step: StepId,
    /// The writ it was done under.
    pub writ: WritId,
}

/// A step's call, or a step before any call, failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What is known of the effect.
    pub certainty: Certainty,
    /// What it cost.
    pub cost: Amounts,
    /// Whether the call was handed to the tool at all.
    pub dispatched: bool,
    /// What went wrong.
    pub error: Failing,
    /// What the executor reported, when another attempt than its own records it.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Box<Signed<EffectReport>>>,
    /// How it ended.
    pub outcome: Outcome,
    /// What was received, as it was received.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub output: Option<BlobRef>,
    /// How the permit ended.
    pub receipt: Signed<Receipt>,
    /// When the step may be tried again; only when it may.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<UnixMs>,
    /// The `started` that this closes; absent when the step failed before there was one.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub started: Option<EntryId>,
    /// The step.
    pub step: StepId,
}

/// A proposal was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// The Guardian's no.
    pub decision: Signed<Decision>,
    /// What was refused.
    pub proposal: Proposal,
    /// The record of it.
    pub receipt: Signed<Receipt>,
    /// When the step may be proposed again. Absent, the refusal is for good; only what a person or
    /// time can lift is not.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<UnixMs>,
}

/// A proposal waits for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingApproval {
    /// Where it is asked.
    pub channels: Vec<Channel>,
    /// Until when.
    pub deadline: UnixMs,
    /// The Guardian's escalation.
    pub decision: Signed<Decision>,
    /// Exactly what would happen.
    pub proposal: Proposal,
    /// How many distinct approvers it takes.
    pub quorum: u64,
    /// Why it is asked.
    pub reason: String,
}

/// An approver has spoken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// What they said.
    pub statement: Signed<ApprovalStatement>,
    /// The step that it is about.
    pub step: StepId,
}

/// Nobody knows whether the effect happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InDoubt {
    /// What is known.
    pub known: Failing,
    /// What was received, as it was received.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub output: Option<BlobRef>,
    /// The `started` in question.
    pub started: EntryId,
    /// The step.
    pub step: StepId,
}

/// A doubt is over, or a blocked undo decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// What was found out, signed.
    pub statement: Signed<ResolutionStatement>,
    /// The step.
    pub step: StepId,
}

/// An effect arrived after its `started` was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateEffect {
    /// What arrived.
    pub report: Signed<EffectReport>,
    /// The step.
    pub step: StepId,
}

/// What a verifier found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// The world agrees.
    Ok,
    /// The world differs.
    Mismatch,
    /// It could not be checked. Never a mismatch.
    Unknown,
}

/// One check of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What was found.
    pub found: Canon,
    /// What was checked.
    pub resource: ResourceRef,
    /// The answer.
    pub verdict: CheckVerdict,
    /// Which verifier.
    pub verifier: String,
}

/// What a mismatch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationMode {
    /// The job fails.
    Strict,
    /// It is recorded, and the job goes on.
    Warn,
    /// The step parks until a person confirms.
    Human,
}

/// Verifiers were run, or a person confirmed what they found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// What was found.
    pub checks: Vec<Check>,
    /// The parked confirmation that a person answers with this entry.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub confirms: Option<EntryId>,
    /// What a mismatch leads to.
    pub mode: ConfirmationMode,
    /// The step that is about to use the resources.
    pub step: StepId,
}

/// One effect to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The commit to undo.
    pub commit: EntryId,
    /// Its step.
    pub step: StepId,
}

/// Opens a rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensation {
    /// Why.
    pub reason: String,
    /// What to undo, newest commit first.
    pub undo: Vec<Undo>,
}

/// A step parks on a key, a time, or whichever comes first. A loop that names neither says that nothing
/// can be done until something below it moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The key that a signal may arrive on.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub key: Option<SignalKey>,
    /// The step.
    pub step: StepId,
    /// The time at which it wakes anyway.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMs>,
}

impl Waiting {
    /// Whether it waits for what is below it.
    pub fn rests(&self) -> bool {
        self.key.is_none() && self.until.is_none()
    }
}

/// Something arrived from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// The caller's id: the same one twice is the same signal.
    pub id: SignalKey,
    /// The key that a wait takes it by.
    pub key: SignalKey,
    /// What it carries.
    pub payload: Content,
}

/// The time that a step waited for has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timer {
    /// The step.
    pub step: StepId,
    /// The `waiting` entry.
    pub waiting: EntryId,
}

/// How a trajectory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All steps are done.
    Completed,
    /// A step failed, or the job was given up.
    Failed,
    /// Someone asked for it.
    Cancelled,
}

/// The world as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The digest of the folded world.
    pub world: Digest,
}

/// The registry changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// What is registered, signed.
    pub statement: Signed<RegistrationStatement>,
}

/// Content was destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erased {
    /// Why.
    pub reason: String,
    /// What: the trajectory's data key, by its digest.
    pub what: Digest,
}

/// Someone wants it to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequested {
    /// Whether what was done is to be undone.
    pub compensate: bool,
    /// Why.
    pub reason: String,
}

/// It is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completed {
    /// The answer.
    pub answer: Content,
    /// What was done, without time, worker or signature.
    pub run_hash: Digest,
}

/// It failed, or was cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// Why.
    pub error: Failing,
    /// What was done, without time, worker or signature.
    pub run_hash: Digest,
}
