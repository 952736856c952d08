//! Step 3 of the path of a call: every input of the Guardian is gathered, and its verdict is signed.

use gesta_core::amounts::Amounts;
use gesta_core::body::Proposal;
use gesta_core::document::Decision;
use gesta_core::entry::Head;
use gesta_core::guardian::{self, Allowance, Inputs, Judgement, Standing, ToolFacts};
use gesta_core::ids::StepId;
use gesta_core::keys::Sign as _;
use gesta_core::policy::{Answer, Asking, Evidence, Query};
use gesta_core::repeat::{Repeat, Repeats};
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::Status;
use gesta_core::temporal::Pace;
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::Draft;

use crate::budgets::{self, Hold};
use crate::desk::Desk;
use crate::error::RunError;
use crate::facts::Facts;
use crate::limits::{self, Pass, Slot};
use crate::quarantine;
use crate::tools::Tool;

/// A signed verdict, and what follows from it.
pub(crate) struct Decided {
    pub(crate) decision: Signed<Decision>,
    /// How people are asked, if they must be.
    pub(crate) asking: Option<Asking>,
    /// What a refusal waits for, if it may pass.
    pub(crate) passes: Option<guardian::Hold>,
}

/// What a decision and its permit rest on beside the chain, the registry and what is in force. A worker
/// gathers it; a replay reads it from the record.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// What the tenant's account says, if its use is limited.
    pub(crate) account: Option<Allowance>,
    /// What the accounts of the standing writs above say, as far as those are limited.
    pub(crate) standing: Vec<Standing>,
    /// Until when a call may be sent, as far as the worker's lease goes.
    pub(crate) dispatch_by: UnixMs,
    /// Why the tool may not be called, if it is not what was pinned.
    pub(crate) frozen: Option<String>,
    /// Whether it was refused for good because of that: older workers did not hold it.
    pub(crate) for_good: bool,
    /// How full each window is.
    pub(crate) pace: Vec<Pace>,
    /// What of the trajectories above a branch the call would repeat, as far as they had come.
    pub(crate) repeats: Vec<Repeat>,
    /// Whether what those trajectories have done stands in for doing it.
    pub(crate) takes_over: bool,
}

/// What is set aside for a call. Dropping it gives up what was not used.
#[derive(Default)]
pub(crate) struct Taken {
    /// A place among the calls under way.
    pub(crate) slot: Option<Slot>,
    /// A part of its tenant's budget.
    pub(crate) hold: Option<Hold>,
    /// A place in its principal's windows.
    pub(crate) pass: Option<Pass>,
}

/// What a decision rests on beside the chain.
#[derive(Clone, Copy)]
pub(crate) enum Basis<'a> {
    /// Whatever there is.
    Present,
    /// The same, but for what would have to be set aside: to see whether a step is held.
    Glance,
    /// What is on record.
    Recorded(&'a Outside),
}

impl Basis<'_> {
    /// Whether it is decided here and now.
    pub(crate) fn is_new(self) -> bool {
        !matches!(self, Self::Recorded(_))
    }
}

/// What a decision rests on, and what is set aside for the call. None when something of it must be waited for.
pub(crate) fn gathered(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    (tool, timeout_ms): (Option<&Tool>, Option<u64>),
    basis: Basis<'_>,
    now: UnixMs,
) -> Option<(Outside, Taken)> {
    match basis {
        Basis::Recorded(recorded) => Some((recorded.clone(), Taken::default())),
        Basis::Glance => {
            let pace = quarantine::own_pace(desk, draft, now);
            Some((glance(desk, draft, proposal, tool, pace), Taken::default()))
        }
        Basis::Present => gather(desk, draft, proposal, tool, timeout_ms, now),
    }
}

/// Sets aside what the call needs of limits and budgets, and looks at what the chain does not hold. None
/// when something of it must be waited for.
fn gather(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    tool: Option<&Tool>,
    timeout_ms: Option<u64>,
    now: UnixMs,
) -> Option<(Outside, Taken)> {
    let slot = limits::slot(desk, tool, timeout_ms).ok()?;
    let standing = desk.standing.ask(draft, tool).ok()?;
    let account = budgets::reserve(desk, tool, timeout_ms, now).ok()?;
    #[cfg(feature = "sabotage")]
    let account =
        account.filter(|_| desk.shared.options.sabotage != Some(crate::Sabotage::IgnoreAccounts));
    let (account, hold) = account.map_or((None, None), |(told, hold)| (Some(told), hold));
    let (pace, pass) = quarantine::pace(desk, draft, now).ok()?;
    let outside = Outside { account, standing, ..glance(desk, draft, proposal, tool, pace) };
    Some((outside, Taken { slot, hold, pass }))
}

/// What the chain does not hold, but for what would have to be set aside.
fn glance(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    tool: Option<&Tool>,
    pace: Vec<Pace>,
) -> Outside {
    Outside {
        account: None,
        standing: Vec::new(),
        dispatch_by: desk.shared.pulse.lease_ends(),
        frozen: tool.and_then(Tool::frozen).map(str::to_owned),
        for_good: false,
        pace,
        repeats: repeats(desk, draft, proposal, tool),
        takes_over: true,
    }
}

/// What a decision on handing a task to a child rests on beside the chain: it sends nothing, so it
/// takes no place in its principal's windows, and what the child uses of accounts is set aside call by call.
pub(crate) fn gather_for_child(desk: &Desk, draft: &Draft<Facts>, now: UnixMs) -> Outside {
    Outside {
        account: None,
        standing: Vec::new(),
        dispatch_by: now,
        frozen: None,
        for_good: false,
        pace: quarantine::own_pace(desk, draft, now),
        repeats: Vec::new(),
        takes_over: true,
    }
}

/// Whether the step is held already for the same reason, until somebody lets it go on: that is on record, and to say it
/// again would only make the chain longer.
pub(crate) fn is_held(
    draft: &Draft<Facts>,
    step: &StepId,
    decision: &Signed<Decision>,
    hold: Option<guardian::Hold>,
) -> bool {
    let before = draft.view().held(step).and_then(|(_, reason)| reason);
    hold == Some(guardian::Hold::Thaw) && before.is_some() && before == decision.doc().reason
}

/// Asks everything, and signs the verdict.
pub(crate) fn decide(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    tool: Option<&Tool>,
    outside: &Outside,
    now: UnixMs,
) -> Result<Decided, RunError> {
    let state = draft.state();
    let registry = desk.shared.registry();
    let options = &desk.shared.options;
    let evidence: Vec<Evidence> = draft.view().evidence().cloned().collect();
    let approvals = desk.approvals(draft, &proposal.step, registry.as_deref());
    let channels = desk.in_force.channels();
    let known = match tool {
        Some(tool) => Some(facts(tool, outside.frozen.clone())),
        None => proposal.tool.delegates().map(handing_over),
    };
    let effect = known.as_ref().map(|known| known.effect);
    let inputs = Inputs {
        now,
        tool: known,
        published: desk.published(&proposal.tool, registry.as_deref()),
        writ: desk.writ(registry.as_deref()),
        writ_chain: &desk.writ_chain,
        mismatches: tool
            .map(|tool| {
                tool.check_committed(&proposal.args).iter().map(ToString::to_string).collect()
            })
            .unwrap_or_default(),
        preconditions: desk
            .shared
            .rules(&proposal.tool)
            .map(|rules| rules.preconditions(&proposal.args, state.world()))
            .unwrap_or_default(),
        policy: ask_policies(desk, draft, proposal, effect, (&approvals, &evidence), now),
        evidence: &evidence,
        approvals,
        channels: &channels,
        registry: registry.as_ref().map(|state| state.registry()),
        account: outside.account.clone(),
        standing: outside.standing.clone(),
        pace: outside.pace.clone(),
        max_args_bytes: options.max_args_bytes,
        repeats: Repeats {
            found: outside.repeats.clone(),
            told: draft.view().told(&proposal.step).to_vec(),
        },
    };
    #[cfg(feature = "sabotage")]
    let inputs = sabotaged(inputs, state, &proposal.step, options.sabotage);
    let judgement = guardian::judge(proposal, state, &inputs)?;
    if let Some(target) = &judgement.quarantine {
        desk.shared
            .suspects()
            .insert(target.clone(), format!("{} by step `{}`", desk.trajectory, proposal.step));
    }
    let (asking, passes) = (judgement.asking.clone(), judgement.hold);
    let head = registry.as_ref().and_then(|state| state.head());
    let decision = decision(desk, draft, proposal, (judgement, head), now)?;
    Ok(Decided { decision, asking, passes })
}

/// What is asked of a Guardian that is broken on purpose.
#[cfg(feature = "sabotage")]
fn sabotaged<'a>(
    inputs: Inputs<'a>,
    state: &gesta_core::state::State,
    step: &gesta_core::ids::StepId,
    sabotage: Option<crate::Sabotage>,
) -> Inputs<'a> {
    let grant = state.step(step).and_then(|step| step.grant.as_deref());
    match sabotage {
        Some(crate::Sabotage::IgnoreFreeze) => Inputs { registry: None, ..inputs },
        Some(crate::Sabotage::IgnoreRevocation) => Inputs { writ_chain: &[], ..inputs },
        Some(crate::Sabotage::IgnoreExpiry) => {
            let now = grant.map_or(inputs.now, |grant| inputs.now.min(grant.expires));
            Inputs { now, ..inputs }
        }
        _ => inputs,
    }
}

/// The verdict as it is signed, with the head of the registry that it was reached on.
pub(crate) fn decision(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    (judgement, registry): (Judgement, Option<Head>),
    now: UnixMs,
) -> Result<Signed<Decision>, RunError> {
    let state = draft.state();
    let Judgement { verdict, reason, trace, .. } = judgement;
    desk.sign(Decision {
        at: now,
        environment: desk.in_force.digest,
        key: desk.shared.guardian.id(),
        parent: state.head().map(|head| head.id).ok_or(RunError::NotBegun)?,
        proposal: proposal.id()?,
        reason,
        registry,
        step: proposal.step.clone(),
        trace,
        trajectory: desk.trajectory,
        type_: Tag::default(),
        verdict,
        writ: state.writ().map(|(id, _)| id).ok_or(RunError::NotBegun)?,
    })
}

/// Makes the append depend on the registry that a decision in it was reached on. Whatever was published, frozen
/// or revoked before the append begins is known to the decision, be it a yes or a no, or the append is refused:
/// the head is the decision's own, for the registry may have been read again.
pub(crate) fn rest_on(desk: &Desk, draft: &mut Draft<Facts>, decided_on: Option<Head>) {
    if let (Some((registry, _)), Some(head)) = (desk.shared.registry_head(), decided_on) {
        draft.under(registry, head);
    }
}

/// What the policies in force say of a proposal.
fn ask_policies(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    effect: Option<Effect>,
    (approvals, evidence): (&[String], &[Evidence]),
    now: UnixMs,
) -> Result<Answer, String> {
    let state = draft.state();
    let (Some(effect), Some((_, writ))) = (effect, state.writ()) else {
        return Err("there is no such tool, or no writ".to_owned());
    };
    let spent = state.spent().plus(state.reserved());
    let asked = draft.view().asked(&proposal.step);
    desk.in_force.answer(&Query {
        principal: &writ.principal,
        tenant: &writ.tenant,
        tool: &proposal.tool,
        effect,
        args: &proposal.args,
        now,
        tries: asked.map_or(0, |asked| asked.failures + asked.turned_away),
        spent,
        left: writ.budget.left(&spent),
        approvals: approvals.iter().filter_map(|name| name.parse().ok()).collect(),
        evidence,
    })
}

/// What a branch's call would repeat. A read repeats nothing; what this trajectory has sent itself, and
/// does not know the end of, was agreed to when it was sent; an undo takes back what was done here.
fn repeats(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    tool: Option<&Tool>,
) -> Vec<Repeat> {
    let step = draft.state().step(&proposal.step);
    let unknown = step.is_some_and(|step| matches!(step.status, Status::Unknown { .. }));
    let reads = tool.is_some_and(|tool| tool.manifest().effect == Effect::Read);
    if reads || unknown || draft.state().undoes(&proposal.step).is_some() {
        return Vec::new();
    }
    desk.lineage.repeats(proposal)
}

/// What the Guardian must know of a tool.
fn facts(tool: &Tool, frozen: Option<String>) -> ToolFacts {
    let manifest = tool.manifest();
    ToolFacts { effect: manifest.effect, reserve: manifest.cost, frozen }
}

/// What the Guardian must know of handing a task to a child: it costs nothing by itself, and does what the
/// child may do.
fn handing_over(effect: Effect) -> ToolFacts {
    ToolFacts { effect, reserve: Amounts::default(), frozen: None }
}
