//! The Guardian: whether a proposal may happen. Pure: values in, a verdict out. The stages run in
//! one order; each fails closed; each leaves what it found in the trace, together with every input
//! that the fold does not hold, so that the verdict can be derived again from the record.

mod published;
mod told;

use serde::{Deserialize, Serialize};

use crate::amounts::{Amounts, Budget, Dimension};
use crate::body::Proposal;
use crate::digest::WritId;
use crate::document::{Decision, FreezeTarget, Reason, Stage, Verdict};
use crate::ids::{Channel, Tenant, ToolName};
use crate::json::{Canon, JsonError};
use crate::policy::{Answer, Asking, Channels, Deciding, Evidence, Requirement, Ruling, heard};
use crate::repeat::{self, Repeats};
use crate::state::{Registry, State, Status};
use crate::temporal::{Grade, Pace, Whose};
use crate::time::{Day, UnixMs};
use crate::writ::{Effect, Writ};

pub use self::published::Unpublished;
pub use self::told::{PolicyFound, refusal, refused};

/// What the Guardian must know of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFacts {
    /// What it does to the world.
    pub effect: Effect,
    /// What is set aside for a call.
    pub reserve: Amounts,
    /// Why it may not be called at all, if it may not.
    pub frozen: Option<String>,
}

/// What a tenant's account says to a call: it is in the store, and the fold holds none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// The day that the call counts towards.
    pub day: Day,
    /// What there is for it, where there is a limit.
    pub left: Budget,
    /// What the tenant may use that day.
    pub limit: Budget,
    /// The highest threshold that the tenant has reached that day, in percent, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<u8>,
    /// What is set aside for the call.
    pub reserve: Amounts,
    /// Whose account it is.
    pub tenant: Tenant,
}

/// What the account of a standing writ says to a call below it. What the call and all others of its
/// trajectory have used is in the fold; what is there for them is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// What there is for the call, where there is a limit.
    pub left: Budget,
    /// What all trajectories below the writ may use together.
    pub limit: Budget,
    /// What is set aside for the call.
    pub reserve: Amounts,
    /// Which writ.
    pub writ: WritId,
}

/// Everything that a decision rests on and the fold does not hold.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The time of the decision.
    pub now: UnixMs,
    /// The tool, if the catalogue has it.
    pub tool: Option<ToolFacts>,
    /// Whether the published catalogue, if there is one, has the tool as the worker has it.
    pub published: Result<(), Unpublished>,
    /// Whether the writ's signatures hold, and if not, why.
    pub writ: Result<(), String>,
    /// The writs above the trajectory's own: revoking one revokes all below it.
    pub writ_chain: &'a [WritId],
    /// Where the arguments do not fit the tool's schema.
    pub mismatches: Vec<String>,
    /// The tool's conditions on the world, with what became of each.
    pub preconditions: Vec<(String, Result<bool, String>)>,
    /// What the policy set answers, or why it cannot be asked.
    pub policy: Result<Answer, String>,
    /// What the trajectory has committed that may count as evidence.
    pub evidence: &'a [Evidence],
    /// Who has approved exactly this, by the names under which the registry trusts them.
    pub approvals: Vec<String>,
    /// Whose word counts on which channel.
    pub channels: &'a Channels,
    /// What the registry says.
    pub registry: Option<&'a Registry>,
    /// How full each window is.
    pub pace: Vec<Pace>,
    /// What the tenant's account says, if its use is limited.
    pub account: Option<Allowance>,
    /// What the accounts of the standing writs above say, as far as those are limited.
    pub standing: Vec<Standing>,
    /// The largest arguments, in bytes.
    pub max_args_bytes: usize,
    /// What of the trajectories above a branch the call would repeat.
    pub repeats: Repeats,
}

/// What the Guardian says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why not, if not.
    pub reason: Option<Reason>,
    /// Every stage up to the one that refused.
    pub trace: Vec<Stage>,
    /// How people are asked, if they must be.
    pub asking: Option<Asking>,
    /// Whether the refusal may pass, so that the step waits instead of failing.
    pub hold: Option<Hold>,
    /// What is to be put into quarantine because of it.
    pub quarantine: Option<FreezeTarget>,
}

/// What a refusal that may pass waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Somebody unfreezes, or lifts a quarantine.
    Thaw,
    /// A time.
    Until(UnixMs),
}

/// What a stage found, why it refuses, if it does, and whom it would have asked, if anybody.
struct Found {
    found: Option<Canon>,
    refusal: Option<Reason>,
    asking: Option<Asking>,
    hold: Option<Hold>,
    quarantine: Option<FreezeTarget>,
}

impl Found {
    /// It passes, and everything it looked at is in the chain or in the environment.
    const PASSED: Self =
        Self { found: None, refusal: None, asking: None, hold: None, quarantine: None };

    fn new<T: Serialize>(found: &T, refusal: Option<Reason>) -> Result<Self, JsonError> {
        Ok(Self { found: Some(Canon::of(found)?), refusal, ..Self::PASSED })
    }

    fn held(self, hold: Hold) -> Self {
        Self { hold: Some(hold), ..self }
    }

    fn refused<T: Serialize>(found: &T, reason: Reason) -> Result<Self, JsonError> {
        Self::new(found, Some(reason))
    }
}

type StageFn = fn(&Proposal, &State, &Inputs<'_>) -> Result<Found, JsonError>;

/// The stages, in the order in which they are asked.
const STAGES: [(&str, StageFn); 9] = [
    ("tool", tool),
    ("authority", authority),
    ("types", types),
    ("preconditions", preconditions),
    ("policy", policy),
    (repeat::STAGE, branch),
    ("budget", budget),
    ("temporal", temporal),
    ("envelope", envelope),
];

/// Judges a proposal on top of a state. An error means that the inputs have no canonical form: then
/// nothing may happen either.
pub fn judge(
    proposal: &Proposal,
    state: &State,
    inputs: &Inputs<'_>,
) -> Result<Judgement, JsonError> {
    let mut trace = Vec::with_capacity(STAGES.len());
    let mut asking = None;
    for (name, stage) in STAGES {
        if name == repeat::STAGE && inputs.repeats.found.is_empty() {
            continue;
        }
        let Found { found, refusal, asking: asks, hold, quarantine } =
            stage(proposal, state, inputs)?;
        trace.push(Stage { found, stage: name.to_owned() });
        if refusal.is_some() {
            let (verdict, reason) = (Verdict::Deny, refusal);
            return Ok(Judgement { verdict, reason, trace, asking: None, hold, quarantine });
        }
        // Nobody is asked about what a later stage refuses.
        asking = both(asking, asks);
    }
    let step = state.step(&proposal.step);
    let (verdict, reason) = match &asking {
        None => (Verdict::Allow, None),
        // A call of unknown outcome cannot be parked for people: it stays unknown.
        Some(_) if step.is_some_and(|step| matches!(step.status, Status::Unknown { .. })) => {
            (Verdict::Deny, Some(Reason::PolicyDenied))
        }
        Some(_) => (Verdict::Escalate, None),
    };
    Ok(Judgement { verdict, reason, trace, asking, hold: None, quarantine: None })
}

/// Everyone is asked whom either would ask: the highest quorum, the earliest end.
fn both(one: Option<Asking>, other: Option<Asking>) -> Option<Asking> {
    let (Some(mut one), Some(other)) = (one.clone(), other.clone()) else { return one.or(other) };
    one.channels.extend(other.channels);
    one.channels.sort();
    one.channels.dedup();
    one.quorum = one.quorum.max(other.quorum);
    one.reason = format!("{}; {}", one.reason, other.reason);
    one.within_ms = one.within_ms.min(other.within_ms);
    Some(one)
}

/// Why a decision is no, for people: what the stage that refused has found.
pub fn why(decision: &Decision) -> String {
    why_of(decision.reason, &decision.trace)
}

fn why_of(reason: Option<Reason>, trace: &[Stage]) -> String {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Found {
        call: Ruling,
        exceeded: Option<String>,
        frozen: Option<String>,
        missing: Vec<Requirement>,
        refused: Option<String>,
        unattended: Ruling,
    }
    let Some(last) = trace.last() else { return "no stage was asked".to_owned() };
    let text = last.found.as_ref().map_or("", Canon::as_str);
    let found: Found = serde_json::from_str(text).unwrap_or_default();
    let of_policies = |by: &[Deciding]| {
        let named = by.iter().map(|policy| match policy.annotations.get("reason") {
            Some(reason) => format!("policy `{}` ({reason})", policy.id),
            None => format!("policy `{}`", policy.id),
        });
        named.collect::<Vec<_>>().join(", ")
    };
    match reason {
        Some(Reason::ApprovalDenied) => "an approver said no".to_owned(),
        Some(Reason::ApprovalExpired) => "nobody approved it in time".to_owned(),
        Some(Reason::MissingRequirement) => {
            let missing = found.missing.iter().map(ToString::to_string);
            format!("nothing committed yet is {}", missing.collect::<Vec<_>>().join(", "))
        }
        Some(Reason::PolicyDenied) if last.stage == "policy" && found.refused.is_none() => {
            let errors = found.call.errors.iter().chain(&found.unattended.errors).next();
            match (errors, found.call.by.as_slice()) {
                (Some(error), _) => format!("policies cannot be evaluated: {error}"),
                (None, []) => "no policy permits it".to_owned(),
                (None, by) => of_policies(by),
            }
        }
        _ => match found.refused.or(found.frozen) {
            Some(why) => why,
            None => match (found.exceeded, text) {
                (Some(exceeded), _) => format!("the budget `{exceeded}` does not reach"),
                (None, "") => format!("stage `{}`", last.stage),
                (None, text) => format!("stage `{}` found {text}", last.stage),
            },
        },
    }
}

fn refuse(refused: bool, reason: Reason) -> Option<Reason> {
    refused.then_some(reason)
}

fn tool(proposal: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Frozen<'a> {
        frozen: &'a str,
    }
    let Some(facts) = &inputs.tool else {
        return Found::refused(&Refused { refused: "no such tool" }, Reason::UnknownTool);
    };
    match inputs.published {
        Ok(()) => {}
        Err(why @ Unpublished::Absent) => {
            return Found::refused(&Refused { refused: why.why() }, Reason::UnknownTool);
        }
        // A worker that has it as it was published may come, or somebody publishes it as it is.
        Err(why @ (Unpublished::Differs | Unpublished::Unreadable)) => {
            let found = Found::refused(&Frozen { frozen: why.why() }, Reason::ToolFrozen)?;
            return Ok(found.held(Hold::Thaw));
        }
    }
    if let Some(frozen) = &facts.frozen {
        // Somebody looks at it and pins it again, or a worker comes that has it as it was pinned.
        return Ok(Found::refused(&Frozen { frozen }, Reason::ToolFrozen)?.held(Hold::Thaw));
    }
    match frozen_by(&proposal.tool, state, inputs.registry) {
        Some(frozen) => {
            Ok(Found::refused(&Frozen { frozen }, Reason::ToolFrozen)?.held(Hold::Thaw))
        }
        None => Ok(Found::PASSED),
    }
}

/// What the registry has frozen that this call would need.
pub fn frozen_by(
    tool: &ToolName,
    state: &State,
    registry: Option<&Registry>,
) -> Option<&'static str> {
    let registry = registry?;
    let writ = state.writ().map(|(_, writ)| writ);
    if registry.is_frozen(&FreezeTarget::All) {
        Some("everything is frozen")
    } else if registry.is_frozen(&FreezeTarget::Tool(tool.clone())) {
        Some("the tool is frozen")
    } else if writ
        .is_some_and(|writ| registry.is_frozen(&FreezeTarget::Principal(writ.principal.clone())))
    {
        Some("the principal is frozen")
    } else if writ
        .is_some_and(|writ| registry.is_frozen(&FreezeTarget::Tenant(writ.tenant.clone())))
    {
        Some("the tenant is frozen")
    } else if registry.is_frozen(&FreezeTarget::Trajectory(state.trajectory())) {
        Some("the job is frozen")
    } else {
        None
    }
}

fn authority(proposal: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    let refusal = match state.writ() {
        None => Some("there is no writ".to_owned()),
        Some((_, writ)) => lacks_authority(proposal, writ, inputs),
    };
    match refusal {
        Some(why) => Found::refused(&Refused { refused: &why }, Reason::InvalidAuthority),
        None => Ok(Found::PASSED),
    }
}

#[derive(Serialize)]
struct Refused<'a> {
    refused: &'a str,
}

fn lacks_authority(proposal: &Proposal, writ: &Writ, inputs: &Inputs<'_>) -> Option<String> {
    if let Err(why) = &inputs.writ {
        return Some(why.clone());
    }
    let revoked = |writ: &WritId| inputs.registry.is_some_and(|registry| registry.is_revoked(writ));
    if let Some(revoked) = inputs.writ_chain.iter().find(|writ| revoked(writ)) {
        return Some(format!("writ `{revoked}` was revoked"));
    }
    if !writ.window.contains(inputs.now) {
        return Some("the writ is not valid now".to_owned());
    }
    // What a child is given is compared with the writ when it is handed over.
    let delegates = proposal.tool.delegates().is_some();
    if !delegates && !writ.allows(&proposal.tool) {
        return Some(format!("the writ does not name the tool `{}`", proposal.tool));
    }
    let effect = inputs.tool.as_ref().map_or(Effect::Irreversible, |tool| tool.effect);
    (effect > writ.effect)
        .then(|| format!("effect `{effect}` is above the writ's ceiling `{}`", writ.effect))
}

fn types(_: &Proposal, _: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    match inputs.mismatches.as_slice() {
        [] => Ok(Found::PASSED),
        mismatches => Found::refused(&mismatches, Reason::TypeMismatch),
    }
}

fn preconditions(_: &Proposal, _: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Condition<'a> {
        condition: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
        held: bool,
    }
    if inputs.preconditions.is_empty() {
        return Ok(Found::PASSED);
    }
    let found: Vec<_> = inputs
        .preconditions
        .iter()
        .map(|(condition, outcome)| Condition {
            condition,
            error: outcome.as_ref().err().map(String::as_str),
            held: *outcome.as_ref().unwrap_or(&false),
        })
        .collect();
    let failed = found.iter().any(|condition| !condition.held);
    Found::new(&found, refuse(failed, Reason::PreconditionFailed))
}

/// Who has approved it of those who are asked, and whether that has run out. Then it is asked for again,
/// whatever else is said now: the chain would not take a call under it.
fn granted<'a>(
    proposal: &Proposal,
    state: &State,
    inputs: &'a Inputs<'_>,
    asking: &Asking,
) -> (Vec<&'a str>, bool) {
    let asked =
        |name: &str| heard(asking.channels.iter().map(Channel::as_str), inputs.channels, name);
    let grant = state.step(&proposal.step).and_then(|step| step.grant.as_deref());
    match grant {
        Some(grant) if inputs.now > grant.expires => (Vec::new(), true),
        Some(_) => {
            let names = inputs.approvals.iter().map(String::as_str);
            (names.filter(|name| asked(name)).collect(), false)
        }
        None => (Vec::new(), false),
    }
}

/// May it be called; is what the deciding policies demand there; and may it be called unattended, or
/// have enough people agreed?
fn policy(proposal: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Policies<'a> {
        #[serde(flatten)]
        answer: &'a Answer,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        granted: Vec<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        missing: Vec<&'a Requirement>,
    }
    let answer = match &inputs.policy {
        Ok(answer) => answer,
        Err(why) => return Found::refused(&Refused { refused: why }, Reason::PolicyDenied),
    };
    let met = |requirement: &Requirement| {
        inputs.evidence.iter().any(|evidence| {
            evidence.type_ == requirement.type_
                && requirement.by.as_ref().is_none_or(|by| *by == evidence.by)
        })
    };
    let missing: Vec<_> = answer.requires.iter().filter(|requirement| !met(requirement)).collect();
    // What cannot be evaluated denies, even beside what allows.
    let errors = answer.call.errors.iter().chain(&answer.unattended.errors).next();
    let refusal = if !answer.call.allowed || errors.is_some() {
        Some(Reason::PolicyDenied)
    } else if missing.is_empty() {
        None
    } else {
        Some(Reason::MissingRequirement)
    };
    let asking = answer.asking.clone().unwrap_or_default();
    let (granted, lapsed) = granted(proposal, state, inputs, &asking);
    let enough = asking.quorum.max(1) <= granted.len() as u64;
    let asking = (!enough && (!answer.unattended.allowed || lapsed)).then_some(asking);
    let found = Found::new(&Policies { answer, granted, missing }, refusal)?;
    Ok(Found { asking, ..found })
}

/// Would it repeat what was done above the branch? Then only if somebody agrees who was told of it.
fn branch(proposal: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    let repeats = &inputs.repeats;
    let asking = Asking { reason: repeats.reason(), ..Asking::default() };
    let (granted, _) = granted(proposal, state, inputs, &asking);
    let told = granted.into_iter().filter(|_| repeats.all_told());
    let granted: Vec<String> = told.map(str::to_owned).collect();
    let asking = granted.is_empty().then_some(asking);
    let found = Found::new(&repeat::Found { granted, repeats: repeats.found.clone() }, None)?;
    Ok(Found { asking, ..found })
}

fn budget(_: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Exceeded {
        exceeded: Dimension,
        reserve: Amounts,
        used: Amounts,
    }
    #[derive(Serialize)]
    struct Accounts<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        account: Option<&'a Allowance>,
        #[serde(skip_serializing_if = "Option::is_none")]
        exceeded: Option<Dimension>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        writs: &'a [Standing],
    }
    let reserve = inputs.tool.as_ref().map(|tool| tool.reserve).unwrap_or_default();
    let used = state.spent().plus(state.reserved());
    let exceeded = match state.writ() {
        Some((_, writ)) => writ.budget.exceeded_by(&used.plus(reserve)),
        None => Some("calls"),
    };
    if let Some(exceeded) = exceeded {
        return Found::refused(&Exceeded { exceeded, reserve, used }, Reason::BudgetExhausted);
    }
    let (account, writs) = (inputs.account.as_ref(), inputs.standing.as_slice());
    if account.is_none() && writs.is_empty() {
        return Ok(Found::PASSED);
    }
    let exceeded = account.and_then(|account| account.left.exceeded_by(&account.reserve));
    let below = |writ: &Standing| writ.left.exceeded_by(&writ.reserve);
    let exceeded = exceeded.or_else(|| writs.iter().find_map(below));
    let found = Accounts { account, exceeded, writs };
    Found::new(&found, refuse(exceeded.is_some(), Reason::BudgetExhausted))
}

/// What the registry holds in quarantine that this call would need.
pub fn quarantined_by(state: &State, registry: Option<&Registry>) -> Option<&'static str> {
    let (registry, (_, writ)) = (registry?, state.writ()?);
    if registry.is_quarantined(&FreezeTarget::Principal(writ.principal.clone())) {
        Some("the principal is in quarantine")
    } else if registry.is_quarantined(&FreezeTarget::Tenant(writ.tenant.clone())) {
        Some("the tenant is closed")
    } else if registry.is_quarantined(&FreezeTarget::Trajectory(state.trajectory())) {
        Some("the job is in quarantine")
    } else {
        None
    }
}

fn temporal(proposal: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    let reason = Reason::TemporalIntervention;
    if let Some(refused) = quarantined_by(state, inputs.registry) {
        return Ok(Found::refused(&Refused { refused }, reason)?.held(Hold::Thaw));
    }
    if inputs.pace.is_empty() {
        return Ok(Found::PASSED);
    }
    let full = || inputs.pace.iter().filter(|pace| pace.full());
    let Some(grade) = full().map(|pace| pace.rule.then).max() else {
        return Found::new(&inputs.pace, None);
    };
    let refused = Found::refused(&inputs.pace, reason)?;
    let writ = state.writ().map(|(_, writ)| writ);
    Ok(match grade {
        Grade::Throttle => {
            let room = full().filter_map(|pace| pace.free_at).max().unwrap_or(inputs.now);
            refused.held(Hold::Until(room))
        }
        Grade::Interrupt => {
            let reason = "calls come faster than they may by themselves".to_owned();
            let asking = Asking { reason, ..Asking::default() };
            let agreed = !granted(proposal, state, inputs, &asking).0.is_empty();
            let asking = Some(asking).filter(|_| !agreed);
            Found { asking, refusal: None, ..refused }
        }
        Grade::Quarantine => {
            // A window of the principal says more than one of a single trajectory.
            let all = |pace: &Pace| pace.rule.then == grade && pace.whose == Whose::Principal;
            let quarantine = match writ {
                Some(writ) if full().any(all) => FreezeTarget::Principal(writ.principal.clone()),
                _ => FreezeTarget::Trajectory(state.trajectory()),
            };
            let quarantine = Some(quarantine);
            Found { quarantine, ..refused.held(Hold::Thaw) }
        }
        Grade::Close => {
            let quarantine = writ.map(|writ| FreezeTarget::Tenant(writ.tenant.clone()));
            Found { quarantine, ..refused.held(Hold::Thaw) }
        }
    })
}

fn envelope(proposal: &Proposal, _: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Envelope {
        max_args_bytes: usize,
    }
    let args = proposal.args.as_bytes();
    let max_args_bytes = inputs.max_args_bytes;
    let fits = args.first() == Some(&b'{') && args.len() <= max_args_bytes;
    Found::new(&Envelope { max_args_bytes }, refuse(!fits, Reason::EnvelopeInvalid))
}
