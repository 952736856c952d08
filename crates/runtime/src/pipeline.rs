//! The path of a call, read from top to bottom.
//!
//! 1 recall, 2 propose, 3 decide, 4 permit, 5 start: [`open`], inside one append.
//! 6 gate, 7 dispatch, 8 examine: [`carry_out`], under a ticket.
//! 9 settle: [`settle`], inside the next append, together with what may start then.
//!
//! There are two commit points, and both are marked. Everything else may be lost at any moment.

#[cfg(test)]
mod gate_tests;

use std::sync::Arc;
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::body::{PendingApproval, Proposal, Rejection, Started, external_key, step_seed};
use gesta_core::content::{BlobRef, Content};
use gesta_core::digest::EntryId;
use gesta_core::document::{
    CallResult, Certainty, Decision, EffectReport, Failing, Outcome, Permit, Reason, ReceiptResult,
    Settlement, Stage, Verdict,
};
use gesta_core::entry::Body;
use gesta_core::guardian::{self, Judgement};
use gesta_core::ids::{StepId, ToolName};
use gesta_core::json::Canon;
use gesta_core::keys::{KeyId, Sign as _};
use gesta_core::policy::Asking;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::Status;
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::Draft;
use tokio::time::Instant;

use crate::budgets::Hold;
use crate::clock::millis;
use crate::closing;
use crate::cut;
use crate::decide::{Basis, Decided, Taken, decide, decision, gathered, is_held, rest_on};
use crate::desk::{Desk, Opened, approved_by, failing};
use crate::effects;
use crate::error::RunError;
use crate::examine::examine;
use crate::facts::Facts;
use crate::limits::{Pass, Slot};
use crate::quarantine;
use crate::restored;
use crate::tools::{Call, Reply, Tool};
use crate::veil::Veil;

/// A permit is never good for longer, however long the lease.
const DISPATCH_WITHIN_MS: u64 = 5 * 60 * 1000;

/// What a step wants done.
pub(crate) struct Ask {
    /// The proposal; a step that was proposed before proposes the same bytes again.
    pub(crate) proposal: Proposal,
    /// How long the tool may take, if the step says so.
    pub(crate) timeout_ms: Option<u64>,
}

/// How an ask went.
pub(crate) enum Opening {
    /// `started` is part of the append.
    Started(Box<Prepared>),
    /// The Guardian said no, or that people must say, and that is part of the append.
    Refused,
    /// The tool is busy. Nothing was added.
    Busy,
    /// It is held, as it was before. Nothing was added.
    Held,
}

/// A call whose `started` is on its way. Worth nothing until the append is durable.
pub(crate) struct Prepared {
    started: EntryId,
    decision: Signed<Decision>,
    permit: Signed<Permit>,
    proposal: Proposal,
    timeout_ms: u64,
    slot: Option<Slot>,
    /// When the append was asked for: it is refused if the registry had changed by then.
    asked: Instant,
    hold: Option<Hold>,
    pass: Option<Pass>,
    /// Why it is not sent: it may have been, before the store was restored.
    sent_before: Option<Failing>,
    /// Whose approval it rests on, and from when.
    approved_by: Vec<(KeyId, UnixMs)>,
}

impl Prepared {
    pub(crate) fn started(&self) -> EntryId {
        self.started
    }

    /// The ticket. Called only with what a durable append made.
    pub(crate) fn into_ticket(mut self) -> Ticket {
        self.pass.iter_mut().for_each(Pass::started);
        Ticket(Box::new(self))
    }
}

/// The proof that `started` is durable. Not to be cloned; dispatch consumes it.
pub(crate) struct Ticket(Box<Prepared>);

impl Ticket {
    pub(crate) fn started(&self) -> EntryId {
        self.0.started
    }

    pub(crate) fn proposal(&self) -> &Proposal {
        &self.0.proposal
    }

    /// Whether the call changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        self.0.permit.doc().effect == Effect::Read
    }

    /// Whether the call may be abandoned when its result is no use to anyone.
    pub(crate) fn may_abandon(&self) -> bool {
        self.0.permit.doc().recovery == gesta_core::document::Recovery::Safe
    }
}

/// A call that is over, as far as this worker is concerned.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) step: StepId,
    pub(crate) started: EntryId,
    pub(crate) proposal: Proposal,
    pub(crate) at: UnixMs,
    pub(crate) how: How,
}

impl Ended {
    /// What was received, if it is kept.
    pub(crate) fn output(&self) -> Option<BlobRef> {
        match &self.how {
            How::Failed { output, .. } => *output,
            How::Succeeded { observation: Content::Blob(blob), .. } => Some(*blob),
            How::TurnedAway(_) | How::Succeeded { .. } => None,
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(crate) enum How {
    /// The gate turned it away: nothing was sent.
    TurnedAway(Failing),
    /// It succeeded.
    Succeeded {
        /// What it returned,
        value: Canon,
        /// and where that is kept.
        observation: Content,
        /// What it cost.
        cost: Amounts,
    },
    /// It failed, or nobody knows.
    Failed {
        /// What is known of the effect.
        certainty: Certainty,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// What it cost.
        cost: Amounts,
        /// What went wrong.
        error: Failing,
        /// When the other side asks to be tried again, in milliseconds.
        retry_after_ms: u64,
        /// What was received, as it was received.
        output: Option<BlobRef>,
    },
}

impl How {
    /// A failure of which nothing but this is known.
    pub(crate) fn failed(certainty: Certainty, error: Failing) -> Self {
        let cost = Amounts::default();
        Self::Failed { certainty, retryable: false, cost, error, retry_after_ms: 0, output: None }
    }
}

/// What nobody knows the end of, as if it had not been sent.
#[cfg(feature = "sabotage")]
fn refunded(how: &How, sabotage: Option<crate::Sabotage>) -> How {
    let refunds = sabotage == Some(crate::Sabotage::RefundUnknown);
    match how {
        How::Failed { certainty: Certainty::Unknown, error, .. } if refunds => {
            How::TurnedAway(error.clone())
        }
        how => how.clone(),
    }
}

#[cfg(feature = "sabotage")]
impl Ended {
    fn sabotaged(mut self, sabotage: Option<crate::Sabotage>) -> Self {
        if sabotage == Some(crate::Sabotage::RetryUnknown)
            && let How::Failed { certainty, .. } = &mut self.how
            && *certainty == Certainty::Unknown
        {
            *certainty = Certainty::DidNotHappen;
        }
        self
    }
}

#[cfg(feature = "sabotage")]
impl Prepared {
    /// A ticket for a call whose `started` is not durable.
    pub(crate) fn forge_ticket(&self) -> Ticket {
        Ticket(Box::new(Self {
            started: self.started,
            decision: self.decision.clone(),
            permit: self.permit.clone(),
            proposal: self.proposal.clone(),
            timeout_ms: self.timeout_ms,
            slot: None,
            asked: self.asked,
            hold: None,
            pass: None,
            sent_before: None,
            approved_by: self.approved_by.clone(),
        }))
    }
}

/// Steps 1 to 5. Adds `started`, `pending_approval` or `rejection` to the append.
pub(crate) fn open(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    ask: Ask,
    basis: Basis<'_>,
    now: UnixMs,
) -> Result<Opening, RunError> {
    // 1. recall: `State::next` offers no start for a step that has a result.
    // 2. propose: the arguments are resolved; what was frozen before is asked for again.
    let Ask { proposal, timeout_ms } = ask;
    let step = &proposal.step;
    let tool = desk.shared.catalogue.get(&proposal.tool);
    let gathered = gathered(desk, draft, &proposal, (tool, timeout_ms), basis, now);
    let Some((outside, Taken { slot, hold, pass })) = gathered else { return Ok(Opening::Busy) };

    // 3. decide: pure, signed, on this very head.
    let Decided { decision, asking, passes } = decide(desk, draft, &proposal, tool, &outside, now)?;
    let tool = match (decision.doc().verdict, tool, asking) {
        (Verdict::Allow, Some(tool), _) => tool,
        (Verdict::Escalate, _, Some(asking)) => {
            return escalate(desk, draft, proposal, decision, asking, now);
        }
        _ => {
            let passes = passes.filter(|_| !outside.for_good);
            if basis.is_new() && is_held(draft, step, &decision, passes) {
                return Ok(Opening::Held);
            }
            return refuse(desk, draft, proposal, decision, passes, now);
        }
    };

    // 4. permit: exactly this effect, once, until then.
    let timeout_ms = timeout_ms.unwrap_or(tool.manifest().timeout.ms());
    let until = (outside.dispatch_by, timeout_ms);
    let permit = permit(desk, draft, &proposal, &decision, tool, until, now)?;
    let (facts, by) = (draft.view(), permit.doc().dispatch_by);
    let sent_before = restored::may_have_happened(facts, draft.state(), tool, step, by);
    let approved_by = approved_by(draft, step);

    // 5. start.
    let generation = permit.doc().generation;
    let decided_on = decision.doc().registry;
    let seed = draft.state().seed().map(|root| step_seed(root, step, generation));
    let compensates = draft.state().undoes(step);
    let body = Body::Started(Box::new(Started {
        compensates,
        decision: decision.clone(),
        permit: permit.clone(),
        proposal: proposal.clone(),
        seed: seed.ok_or(RunError::NotBegun)?,
    }));
    // COMMIT POINT, once the append is durable: from here the effect may have happened.
    let started = draft.push(now, desk.author(), body)?.id();
    rest_on(desk, draft, decided_on);
    Ok(Opening::Started(Box::new(Prepared {
        started,
        decision,
        permit,
        proposal,
        timeout_ms,
        slot,
        asked: Instant::now(),
        hold,
        pass,
        sent_before,
        approved_by,
    })))
}

/// Steps 6 to 8. The ticket is consumed.
pub(crate) async fn carry_out(desk: Arc<Desk>, ticket: Ticket) -> Ended {
    let Ticket(mut prepared) = ticket;
    let (started, step) = (prepared.started, prepared.proposal.step.clone());

    // 6. gate: immediately before dispatch. The deadline counts from before it, so that a worker
    // that is frozen right here cannot send for longer than the permit allows for.
    let known = desk.knows_registry(prepared.asked).await;
    let opened = match known {
        Ok(()) => desk.open_sensitive(&prepared.proposal).await,
        Err(error) => Err(error),
    };
    let begun = Instant::now();
    let sent_before = prepared.sent_before.take();
    let may = opened.and_then(|opened| gate(&desk, &prepared).map(|()| opened));
    let how = match (sent_before, may) {
        (Some(error), _) => How::failed(Certainty::Unknown, error),
        (None, Err(error)) => How::TurnedAway(error),
        (None, Ok(Opened { unfit: Some(error), .. })) => {
            How::failed(Certainty::DidNotHappen, error)
        }
        (None, Ok(Opened { args, veil, .. })) => {
            cut::here("after_gate");
            // 7. dispatch: secrets are resolved in there and never come out.
            let deadline = begun + Duration::from_millis(prepared.timeout_ms);
            prepared.slot.iter_mut().for_each(|slot| slot.sent(deadline));
            prepared.hold.iter_mut().for_each(Hold::sent);
            let reply = dispatch(&desk, &prepared, (args, &veil), deadline).await;
            prepared.slot.iter_mut().for_each(Slot::answered);
            cut::here("after_dispatch");
            // 8. examine.
            let wall_ms = millis(begun.elapsed());
            let tool = desk.shared.catalogue.get(&prepared.proposal.tool);
            let asked = (&prepared.proposal, tool);
            let how = examine(&desk, asked, reply, &veil, wall_ms).await;
            if let Some(hold) = prepared.hold.take() {
                #[cfg(feature = "sabotage")]
                hold.charge(&refunded(&how, desk.shared.options.sabotage));
                #[cfg(not(feature = "sabotage"))]
                hold.charge(&how);
            }
            cut::here("after_examine");
            how
        }
    };
    Ended { step, started, proposal: prepared.proposal, at: desk.shared.pulse.now(), how }
}

/// Step 9. Adds the entry that closes the call to the append.
pub(crate) fn settle(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    ended: &Ended,
    evidence: Option<&Signed<EffectReport>>,
    now: UnixMs,
) -> Result<(), RunError> {
    let Some(step) = draft.state().step(&ended.step) else { return Ok(()) };
    let opened = match &step.status {
        Status::Open(opened) if opened.started == ended.started => (**opened).clone(),
        // Someone else closed it. What the chain does not know yet is late; the rest is settled.
        _ if step.is_unaccounted(ended.started) => {
            let report = match evidence {
                Some(report) => report.clone(),
                None => match desk.report(ended, draft.state())? {
                    Some(report) => report,
                    None => return Ok(()),
                },
            };
            effects::take_up(desk, draft, &report, now)?;
            return Ok(());
        }
        _ => return Ok(()),
    };
    #[cfg(feature = "sabotage")]
    let ended = &ended.clone().sabotaged(desk.shared.options.sabotage);
    // COMMIT POINT, once the append is durable: it is done and provable.
    match &ended.how {
        How::Succeeded { value, observation, cost } => {
            let delta = match evidence.map(|report| &report.doc().result) {
                Some(CallResult::Succeeded(settlement)) => Ok(settlement.delta.clone()),
                _ => desk.delta(&ended.proposal, value, draft.state().world()),
            };
            let done = delta.map(|delta| Settlement {
                cost: *cost,
                delta,
                observation: observation.clone(),
            });
            closing::done(desk, draft, &opened, ended, (*cost, done), evidence, now)
        }
        How::TurnedAway(error) => {
            let again = closing::turned_away_again(draft.view(), &ended.step, error);
            let outcome = closing::retryable(again || opened.again);
            let how = (outcome, Certainty::DidNotHappen, false);
            closing::fail(desk, draft, &opened, ended, how, Amounts::default(), error, None, now)
        }
        How::Failed { certainty, retryable, cost, error, .. } => match certainty {
            // What did not happen this time may have happened the time before.
            Certainty::DidNotHappen if opened.again => {
                closing::unknown(desk, draft, &opened, ended, error, now)
            }
            Certainty::Unknown => closing::unknown(desk, draft, &opened, ended, error, now),
            Certainty::Happened => {
                let how = (Outcome::PermanentFailure, *certainty, true);
                closing::fail(desk, draft, &opened, ended, how, *cost, error, evidence, now)
            }
            Certainty::DidNotHappen => {
                let left = desk.tries_left(draft.view(), &ended.proposal);
                let how = (closing::retryable(*retryable && left), *certainty, true);
                let free = Amounts::default();
                closing::fail(desk, draft, &opened, ended, how, free, error, evidence, now)
            }
        },
    }
}

/// People must say: the step parks.
pub(crate) fn escalate(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    proposal: Proposal,
    decision: Signed<Decision>,
    asking: Asking,
    now: UnixMs,
) -> Result<Opening, RunError> {
    let Asking { channels, quorum, reason, within_ms } = asking;
    let (deadline, quorum) = (now.plus(within_ms), quorum.max(1));
    let decided_on = decision.doc().registry;
    let body = PendingApproval { channels, deadline, decision, proposal, quorum, reason };
    draft.push(now, desk.author(), Body::PendingApproval(Box::new(body)))?;
    rest_on(desk, draft, decided_on);
    Ok(Opening::Refused)
}

/// People have said no, or nobody said yes in time: the step is refused.
pub(crate) fn unapproved(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    (proposal, pending): (Proposal, EntryId),
    reason: Reason,
    now: UnixMs,
) -> Result<(), RunError> {
    #[derive(serde::Serialize)]
    struct Asked {
        pending: EntryId,
    }
    let found = Some(Canon::of(&Asked { pending })?);
    let trace = vec![Stage { found, stage: "approval".to_owned() }];
    let (verdict, reason) = (Verdict::Deny, Some(reason));
    let judgement =
        Judgement { verdict, reason, trace, asking: None, hold: None, quarantine: None };
    let head = desk.shared.registry_head().map(|(_, head)| head);
    let decision = decision(desk, draft, &proposal, (judgement, head), now)?;
    refuse(desk, draft, proposal, decision, None, now)?;
    Ok(())
}

/// Adds the refusal. One that may pass says when the step is proposed again.
pub(crate) fn refuse(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    proposal: Proposal,
    decision: Signed<Decision>,
    hold: Option<guardian::Hold>,
    now: UnixMs,
) -> Result<Opening, RunError> {
    let reason = decision.doc().reason.ok_or(RunError::NotBegun)?;
    let result = ReceiptResult::Refused { reason };
    let receipt =
        closing::receipt(desk, draft, &proposal.step, None, Amounts::default(), result, now)?;
    let now = now.max(draft.state().at());
    let held = draft.view().held(&proposal.step).map_or(0, |(times, _)| times);
    let retry_at = hold.map(|hold| quarantine::retry_at(hold, held, now));
    let decided_on = decision.doc().registry;
    let body = Rejection { decision, proposal, receipt, retry_at };
    draft.push(now, desk.author(), Body::Rejection(Box::new(body)))?;
    rest_on(desk, draft, decided_on);
    Ok(Opening::Refused)
}

fn permit(
    desk: &Desk,
    draft: &Draft<Facts>,
    proposal: &Proposal,
    decision: &Signed<Decision>,
    tool: &Tool,
    (dispatch_by, timeout_ms): (UnixMs, u64),
    now: UnixMs,
) -> Result<Signed<Permit>, RunError> {
    let state = draft.state();
    // When `started` will say that it was added: never before the entry that it follows.
    let now = now.max(state.at());
    let manifest = tool.manifest();
    let step = state.step(&proposal.step);
    // What nobody knows about does not become harmless by being sent again: the class stays.
    let before = step.and_then(|step| match &step.status {
        Status::Unknown { opened, .. } => Some(&**opened),
        _ => None,
    });
    let recovery = restored::recovery(draft.view(), manifest.recovery);
    let dispatch_by = dispatch_by.min(now.plus(DISPATCH_WITHIN_MS)).max(now);
    let dead_at =
        dispatch_by.plus(timeout_ms).plus(manifest.settle.ms()).plus(desk.shared.options.skew_ms);
    desk.sign(Permit {
        attempt: desk.attempt,
        dead_at,
        decision: decision.id(),
        dispatch_by,
        effect: before.map_or(manifest.effect, |opened| opened.effect),
        generation: step.map_or(1, |step| step.generation),
        idempotency_key: proposal.idempotency_key(desk.trajectory),
        key: desk.shared.guardian.id(),
        recovery: before.map_or(recovery, |opened| opened.recovery),
        reserve: manifest.cost,
        type_: Tag::default(),
    })
}

/// Every reason not to send what was permitted a moment ago.
fn gate(desk: &Desk, prepared: &Prepared) -> Result<(), Failing> {
    let Prepared { decision, permit, proposal, .. } = prepared;
    let shared = &desk.shared;
    #[cfg(feature = "sabotage")]
    if shared.options.sabotage == Some(crate::Sabotage::IgnoreFence) {
        return Ok(());
    }
    if !decision.is_by(&shared.guardian) || !permit.is_by(&shared.guardian) {
        return Err(failing("gate_signature", "the decision or the permit is not signed"));
    }
    if decision.doc().verdict != Verdict::Allow || permit.doc().decision != decision.id() {
        return Err(failing("gate_verdict", "the permit does not rest on an allowing decision"));
    }
    if shared.pulse.now() > permit.doc().dispatch_by {
        return Err(failing("gate_too_late", "the permit has expired"));
    }
    if !desk.held() {
        return Err(failing("gate_lease_lost", "the lease may have ended"));
    }
    if prepared.slot.as_ref().is_some_and(|slot| !slot.holds()) {
        return Err(failing("gate_limit", "the share of a limit may have ended"));
    }
    if proposal.idempotency_key(desk.trajectory) != permit.doc().idempotency_key {
        return Err(failing("gate_digest", "what is about to run is not what was permitted"));
    }
    if shared.in_force().digest != decision.doc().environment {
        return Err(failing("gate_environment", "tools, policy or configuration have changed"));
    }
    let registry = shared.registry();
    let changed = shared.catalogue.get(&proposal.tool).and_then(Tool::frozen);
    if let Some(frozen) = desk.frozen(&proposal.tool, registry.as_deref()).or(changed) {
        return Err(failing(closing::GATE_FROZEN, frozen));
    }
    match registry.as_deref().filter(|state| state.head() != decision.doc().registry) {
        Some(registry) => desk
            .authorised(&prepared.approved_by, registry)
            .map_err(|why| failing("gate_authority", &why)),
        // What the decision rests on is what is known.
        None => Ok(()),
    }
}

/// The only call site of a tool's driver for an effect.
async fn dispatch(
    desk: &Desk,
    prepared: &Prepared,
    (args, veil): (Canon, &Arc<Veil>),
    deadline: Instant,
) -> Reply {
    let Prepared { permit, proposal, .. } = prepared;
    let permit = permit.doc();
    let call = Call {
        trajectory: desk.trajectory,
        step: proposal.step.clone(),
        attempt: permit.attempt,
        key: external_key(desk.trajectory, &proposal.step, permit.generation),
        args,
        deadline,
        progress: desk.progress(proposal, veil),
    };
    match desk.shared.catalogue.get(&proposal.tool) {
        Some(tool) => tool.call(call).await,
        None => not_there(&proposal.tool),
    }
}

fn not_there(tool: &ToolName) -> Reply {
    Reply::Failed {
        certainty: Certainty::DidNotHappen,
        retryable: false,
        retry_after_ms: None,
        error: failing("unknown_tool", &format!("the catalogue has no tool `{tool}`")),
        output: Vec::new(),
    }
}
