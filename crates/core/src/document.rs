//! The signed documents of the path of a call: decision, permit, effect, receipt, approval,
//! resolution, registration. Field order is alphabetical, as the canonical form wants it.

mod registry;

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::content::{Content, some};
use crate::digest::{
    DecisionId, Digest, EntryId, IdempotencyKey, PermitId, ProposalId, ReceiptId, WritId,
};
use crate::entry::Head;
use crate::ids::{Principal, StepId, TrajectoryId};
use crate::json::{Canon, JsonError};
use crate::keys::KeyId;
use crate::signed::{Document, Signed, Tag};
use crate::time::UnixMs;
use crate::trust::Role;
use crate::world::Delta;
use crate::writ::Effect;

pub use self::registry::{
    FreezeTarget, KeyRevocation, RegistrationStatement, RegistryItem, TenantLimit, Threshold,
};

/// Ties a document to its type and to the roles that may sign it.
macro_rules! document {
    ($name:ident, $type:literal, $roles:expr) => {
        impl Document for $name {
            const TYPE: &'static str = $type;
            const ROLES: &'static [Role] = $roles;

            fn key(&self) -> KeyId {
                self.key
            }
        }
    };
}

document!(Decision, "gesta.decision.v1", &[Role::Guardian]);
document!(Permit, "gesta.permit.v1", &[Role::Guardian]);
document!(EffectReport, "gesta.effect.v1", &[Role::Executor]);
document!(Receipt, "gesta.receipt.v1", &[Role::Executor]);
document!(ApprovalStatement, "gesta.approval.v1", &[Role::Approver]);
document!(ResolutionStatement, "gesta.resolution.v1", &[Role::Operator, Role::Executor]);
document!(
    RegistrationStatement,
    "gesta.registration.v1",
    &[Role::Owner, Role::Operator, Role::Guardian]
);

/// What was in force when something was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// The digest of the configuration.
    pub config: Digest,
    /// The digest of the policy set.
    pub policy: Digest,
    /// The digest of the tool catalogue.
    pub tools: Digest,
}

impl Environment {
    /// What decisions name it by.
    pub fn digest(&self) -> Result<Digest, JsonError> {
        Canon::of(self).map(|canon| Digest::of(canon.as_bytes()))
    }
}

/// The Guardian's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// May happen.
    Allow,
    /// May not.
    Deny,
    /// A person must say.
    Escalate,
}

/// Why a proposal was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The writ's signature, window, scope, ceiling, tenant or revocation.
    InvalidAuthority,
    /// A policy says no.
    PolicyDenied,
    /// Evidence that a policy demands is missing.
    MissingRequirement,
    /// The budget does not reach.
    BudgetExhausted,
    /// The world is not as the step demands.
    PreconditionFailed,
    /// No such tool.
    UnknownTool,
    /// The tool is frozen.
    ToolFrozen,
    /// The arguments do not fit the tool's schema.
    TypeMismatch,
    /// Too fast, or quarantined.
    TemporalIntervention,
    /// Too large or malformed.
    EnvelopeInvalid,
    /// An approver said no.
    ApprovalDenied,
    /// Nobody approved in time.
    ApprovalExpired,
    /// A delegation that would widen.
    DelegationExceedsAuthority,
}

impl Reason {
    /// The code, as in the entry.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidAuthority => "invalid_authority",
            Self::PolicyDenied => "policy_denied",
            Self::MissingRequirement => "missing_requirement",
            Self::BudgetExhausted => "budget_exhausted",
            Self::PreconditionFailed => "precondition_failed",
            Self::UnknownTool => "unknown_tool",
            Self::ToolFrozen => "tool_frozen",
            Self::TypeMismatch => "type_mismatch",
            Self::TemporalIntervention => "temporal_intervention",
            Self::EnvelopeInvalid => "envelope_invalid",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::DelegationExceedsAuthority => "delegation_exceeds_authority",
        }
    }
}

/// One stage of a decision. Only the last one can have refused, and then the verdict says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What it found, and every input that neither the chain nor the environment holds.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub found: Option<Canon>,
    /// Its name.
    pub stage: String,
}

/// The Guardian's verdict on a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// When it was decided.
    pub at: UnixMs,
    /// The digest of what was in force: the environment that the `attempt` names.
    pub environment: Digest,
    /// Who signs.
    pub key: KeyId,
    /// The head of the trajectory on which it was decided.
    pub parent: EntryId,
    /// The proposal.
    pub proposal: ProposalId,
    /// Why not, if not.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The head of the registry on which it was decided.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub registry: Option<Head>,
    /// The step.
    pub step: StepId,
    /// Every stage, in order.
    pub trace: Vec<Stage>,
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// Always `gesta.decision.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
    /// The answer.
    pub verdict: Verdict,
    /// The writ it was decided under.
    pub writ: WritId,
}

impl Signed<Decision> {
    /// The decision's id.
    pub fn id(&self) -> DecisionId {
        DecisionId::new(self.digest())
    }
}

/// How a tool may be recovered after an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// May run again.
    Safe,
    /// May run again with the same key, once the first cannot land any more.
    Keyed,
    /// As `keyed`, and concurrent sends of one key are deduplicated too.
    KeyedConcurrent,
    /// A read-only tool tells whether it happened.
    Probe,
    /// Only an operator can tell.
    Never,
}

impl Recovery {
    /// Whether the call may be sent again under the same key.
    pub fn reruns(self) -> bool {
        matches!(self, Self::Safe | Self::Keyed | Self::KeyedConcurrent)
    }

    /// Whether recovery must wait until the first call cannot land any more.
    pub fn waits_for_death(self) -> bool {
        matches!(self, Self::Keyed | Self::Probe | Self::Never)
    }
}

/// A single-use permission to execute exactly one effect. Its decision names the entry that the
/// `started` follows, so it fits one place of one chain and can be spent only there; its key says
/// exactly what may run: trajectory, step, tool and arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permit {
    /// The attempt that may dispatch.
    pub attempt: u64,
    /// From when the effect cannot land any more.
    pub dead_at: UnixMs,
    /// The decision that allows it.
    pub decision: DecisionId,
    /// Until when it may be dispatched.
    pub dispatch_by: UnixMs,
    /// What the tool does to the world.
    pub effect: Effect,
    /// How often the effect was opened.
    pub generation: u64,
    /// The key of the call: what is about to run must have this one.
    pub idempotency_key: IdempotencyKey,
    /// Who signs.
    pub key: KeyId,
    /// How the tool may be recovered.
    pub recovery: Recovery,
    /// What is set aside for it.
    pub reserve: Amounts,
    /// Always `gesta.permit.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
}

impl Signed<Permit> {
    /// The permit's id.
    pub fn id(&self) -> PermitId {
        PermitId::new(self.digest())
    }
}

/// How a step ended, as a fact about the world (seed 002).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done, and the world is as before.
    Pure,
    /// Done, and the world has changed.
    SideEffectCommitted,
    /// Failed, and may be tried again.
    RetryableFailure,
    /// Failed for good.
    PermanentFailure,
    /// Failed half-way, and can be undone.
    CompensatableFailure,
    /// Undone.
    Compensated,
}

/// What is known of the effect behind a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It did not happen.
    DidNotHappen,
    /// It happened.
    Happened,
    /// Nobody knows.
    Unknown,
}

/// What went wrong, as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failing {
    /// A stable code.
    pub code: String,
    /// For people.
    pub message: String,
}

/// What a call left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// What it cost.
    pub cost: Amounts,
    /// What it changed.
    pub delta: Delta,
    /// What it returned.
    pub observation: Content,
}

/// How a dispatched call went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallResult {
    /// It succeeded.
    Succeeded(Settlement),
    /// It failed.
    Failed {
        /// What is known of the effect.
        certainty: Certainty,
        /// What it cost.
        cost: Amounts,
        /// What went wrong.
        error: Failing,
        /// Whether the same call may succeed later.
        retryable: bool,
    },
}

/// What an executor saw, in case its worker has lost the trajectory when it sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectReport {
    /// When it was seen.
    pub at: UnixMs,
    /// Who signs.
    pub key: KeyId,
    /// What was seen.
    pub result: CallResult,
    /// The `started` that it answers.
    pub started: EntryId,
    /// The step.
    pub step: StepId,
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// Always `gesta.effect.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
}

/// What a receipt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ReceiptResult {
    /// The permit ended in a commit.
    Committed {
        /// The digest of what it changed.
        delta: Digest,
        /// The digest of what it returned.
        observation: Digest,
        /// How it ended.
        outcome: Outcome,
    },
    /// The permit ended in a failure, or a step failed before there was one.
    Failed {
        /// What is known of the effect.
        certainty: Certainty,
        /// How it ended.
        outcome: Outcome,
    },
    /// There is no permit: the proposal was refused.
    Refused {
        /// Why.
        reason: Reason,
    },
}

/// The record of how one permit ended, or of a refusal. Receipts of a trajectory form a chain of
/// their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// When it ended.
    pub at: UnixMs,
    /// What it cost.
    pub cost: Amounts,
    /// Who signs.
    pub key: KeyId,
    /// One more than in the receipt before.
    pub lamport: u64,
    /// The permit that ended, if there was one.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitId>,
    /// The receipt before, if there is one.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub prev: Option<ReceiptId>,
    /// How it ended.
    pub result: ReceiptResult,
    /// The step.
    pub step: StepId,
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// Always `gesta.receipt.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
}

impl Signed<Receipt> {
    /// The receipt's id.
    pub fn id(&self) -> ReceiptId {
        ReceiptId::new(self.digest())
    }
}

/// What an approver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// It may happen.
    Approve,
    /// It may not.
    Deny,
}

/// An approver's word on one `pending_approval`, and on nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalStatement {
    /// Who.
    pub approver: Principal,
    /// When it was given.
    pub at: UnixMs,
    /// Until when it may be used.
    pub expires: UnixMs,
    /// Who signs.
    pub key: KeyId,
    /// Why, for people.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The `pending_approval` that it answers.
    pub pending: EntryId,
    /// Always `gesta.approval.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
    /// What they say.
    pub verdict: ApprovalVerdict,
}

/// How a doubt was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolutionVerdict {
    /// It happened, with this result.
    Happened(Settlement),
    /// It did not happen.
    DidNotHappen,
    /// Nobody will ever know.
    GiveUp,
}

/// Who found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    /// The tool's probe.
    Probe,
    /// A person.
    Operator,
    /// A report in the effects inbox.
    Inbox,
}

/// The answer to a doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolutionStatement {
    /// When it was given.
    pub at: UnixMs,
    /// The entry that put the step in doubt.
    pub doubt: EntryId,
    /// What it rests on. Untrusted data.
    pub evidence: Content,
    /// Whether "did not happen" was accepted while the effect could still land.
    pub forced: bool,
    /// Who signs.
    pub key: KeyId,
    /// Who found out.
    pub source: ResolvedBy,
    /// Always `gesta.resolution.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
    /// The answer.
    pub verdict: ResolutionVerdict,
}
