//! The Guardian: whether a proposal may happen. Pure: values in, a verdict out. The stages run in
//! one order; each fails closed; each leaves what it found in the trace, together with every input
//! that the fold does not hold, so that the verdict can be derived again from the record.

use serde::Serialize;

use crate::amounts::Amounts;
use crate::body::Proposal;
use crate::digest::WritId;
use crate::document::{FreezeTarget, Reason, Stage, Verdict};
use crate::ids::ToolName;
use crate::json::{Canon, JsonError};
use crate::state::{Registry, State};
use crate::temporal::{Grade, Pace};
use crate::time::UnixMs;
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
    /// How full each window is.
    pub pace: Vec<Pace>,
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

/// What a stage found, and why it refuses, if it does.
struct Found {
    found: Option<Canon>,
    refusal: Option<Reason>,
    hold: Option<Hold>,
    quarantine: Option<FreezeTarget>,
}

impl Found {
    /// It passes, and everything it looked at is in the chain or in the environment.
    const PASSED: Self = Self { found: None, refusal: None, hold: None, quarantine: None };

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
        let Found { found, refusal, hold, quarantine } = stage(proposal, state, inputs)?;
        trace.push(Stage { found, stage: name.to_owned() });
        if refusal.is_some() {
            let verdict = Verdict::Deny;
            return Ok(Judgement { verdict, reason: refusal, trace, hold, quarantine });
        }
    }
    let (hold, quarantine) = (None, None);
    Ok(Judgement { verdict: Verdict::Allow, reason: None, trace, hold, quarantine })
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
    if let Some(frozen) = &facts.frozen {
        return Found::refused(&Frozen { frozen }, Reason::ToolFrozen);
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
        exceeded: &'static str,
        reserve: Amounts,
        used: Amounts,
    }
    let reserve = inputs.tool.as_ref().map(|tool| tool.reserve).unwrap_or_default();
    let used = state.spent().plus(state.reserved());
    let exceeded = match state.writ() {
        Some((_, writ)) => writ.budget.exceeded_by(&used.plus(reserve)),
        None => Some("calls"),
    };
    match exceeded {
        Some(exceeded) => {
            Found::refused(&Exceeded { exceeded, reserve, used }, Reason::BudgetExhausted)
        }
        None => Ok(Found::PASSED),
    }
}

/// What the registry holds in quarantine that this call would need.
pub fn quarantined_by(state: &State, registry: Option<&Registry>) -> Option<&'static str> {
    let (registry, (_, writ)) = (registry?, state.writ()?);
    if registry.is_quarantined(&FreezeTarget::Principal(writ.principal.clone())) {
        Some("the principal is in quarantine")
    } else if registry.is_quarantined(&FreezeTarget::Tenant(writ.tenant.clone())) {
        Some("the tenant is closed")
    } else {
        None
    }
}

fn temporal(_: &Proposal, state: &State, inputs: &Inputs<'_>) -> Result<Found, JsonError> {
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
        Grade::Interrupt => refused,
        Grade::Quarantine => {
            let quarantine = writ.map(|writ| FreezeTarget::Principal(writ.principal.clone()));
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
