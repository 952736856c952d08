//! The Guardian: whether a proposal may happen. Pure: values in, a verdict out. The stages run in
//! one order; each fails closed; each leaves what it found in the trace, together with every input
//! that the fold does not hold, so that the verdict can be derived again from the record.

use serde::Serialize;

use crate::amounts::{Amounts, Budget, Dimension};
use crate::body::Proposal;
use crate::digest::WritId;
use crate::document::{FreezeTarget, Reason, Stage, Verdict};
use crate::ids::{Tenant, ToolName};
use crate::json::{Canon, JsonError};
use crate::state::{Registry, State};
use crate::time::{Day, UnixMs};
use crate::writ::{Effect, Writ};

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

/// How fast a trajectory may call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// So many calls,
    pub calls: u64,
    /// in so many milliseconds.
    pub per_ms: u64,
}

/// What a tenant's account says to a call: it is in the store, and the fold holds none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// The day that the call counts towards.
    pub day: Day,
    /// What there is for it, where there is a limit.
    pub left: Budget,
    /// What the tenant may use that day.
    pub limit: Budget,
    /// The highest threshold that the tenant has reached that day, in percent, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<u8>,
    /// What is set aside for the call.
    pub reserve: Amounts,
    /// Whose account it is.
    pub tenant: Tenant,
}

/// Everything that a decision rests on and the fold does not hold.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The time of the decision.
    pub now: UnixMs,
    /// The tool, if the catalogue has it.
    pub tool: Option<ToolFacts>,
    /// Whether the writ's signatures hold, and if not, why.
    pub writ: Result<(), String>,
    /// The writs above the trajectory's own: revoking one revokes all below it.
    pub writ_chain: &'a [WritId],
    /// Where the arguments do not fit the tool's schema.
    pub mismatches: Vec<String>,
    /// The tool's conditions on the world, with what became of each.
    pub preconditions: Vec<(String, Result<bool, String>)>,
    /// What the registry says.
    pub registry: Option<&'a Registry>,
    /// What the tenant's account says, if its use is limited.
    pub account: Option<Allowance>,
    /// The limit on calls, and how many there were in its window.
    pub rate: Option<(Rate, u64)>,
    /// The largest arguments, in bytes.
    pub max_args_bytes: usize,
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
}

/// What a stage found, and why it refuses, if it does.
struct Found {
    found: Option<Canon>,
    refusal: Option<Reason>,
}

impl Found {
    /// It passes, and everything it looked at is in the chain or in the environment.
    const PASSED: Self = Self { found: None, refusal: None };

    fn new<T: Serialize>(found: &T, refusal: Option<Reason>) -> Result<Self, JsonError> {
        Ok(Self { found: Some(Canon::of(found)?), refusal })
    }

    fn refused<T: Serialize>(found: &T, reason: Reason) -> Result<Self, JsonError> {
        Self::new(found, Some(reason))
    }
}

type StageFn = fn(&Proposal, &State, &Inputs<'_>) -> Result<Found, JsonError>;

/// The stages, in the order in which they are asked.
const STAGES: [(&str, StageFn); 7] = [
    ("tool", tool),
    ("authority", authority),
    ("types", types),
    ("preconditions", preconditions),
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
    for (name, stage) in STAGES {
        let Found { found, refusal } = stage(proposal, state, inputs)?;
        trace.push(Stage { found, stage: name.to_owned() });
        if refusal.is_some() {
            return Ok(Judgement { verdict: Verdict::Deny, reason: refusal, trace });
        }
    }
    Ok(Judgement { verdict: Verdict::Allow, reason: None, trace })
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
    let by_registry = || frozen_by(&proposal.tool, state, inputs.registry);
    match facts.frozen.as_deref().or_else(by_registry) {
        Some(frozen) => Found::refused(&Frozen { frozen }, Reason::ToolFrozen),
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
    if !writ.allows(&proposal.tool) {
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

fn budget(_: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Exceeded {
        exceeded: Dimension,
        reserve: Amounts,
        used: Amounts,
    }
    #[derive(Serialize)]
    struct Account<'a> {
        account: &'a Allowance,
        #[serde(skip_serializing_if = "Option::is_none")]
        exceeded: Option<Dimension>,
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
    let Some(account) = &inputs.account else { return Ok(Found::PASSED) };
    let exceeded = account.left.exceeded_by(&account.reserve);
    let found = Account { account, exceeded };
    Found::new(&found, refuse(exceeded.is_some(), Reason::BudgetExhausted))
}

fn temporal(_: &Proposal, _: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
    #[derive(Serialize)]
    struct Pace {
        in_window: u64,
        limit: Rate,
    }
    let Some((limit, in_window)) = inputs.rate else { return Ok(Found::PASSED) };
    let refused = in_window >= limit.calls;
    Found::new(&Pace { in_window, limit }, refuse(refused, Reason::TemporalIntervention))
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
