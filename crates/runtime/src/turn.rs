//! One turn of a trajectory: what is over is settled, what may happen is done or begun. Everything a
//! turn adds is one append. `State::next` says what may happen; this file says what is done about it.
//!
//! A turn is pure but for what it reads from the desk: when the append loses to someone else's, the
//! same turn runs again on the new state.

mod branch;
mod checkpoint;
mod confirm;
mod delegate;
mod fan;
mod rehearse;
mod sensitive;
mod undo;
mod values;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::amounts::Amounts;
use gesta_core::body::{Check, Completed, Delivered, Origin, Proposal, Stopped, step_seed};
use gesta_core::content::{Content, MAX_INLINE_BYTES};
use gesta_core::digest::{Digest, EntryId, Seed};
use gesta_core::document::{Certainty, EffectReport, Failing, Outcome, Reason};
use gesta_core::entry::Body;
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::signed::Signed;
use gesta_core::state::{Act, AdmitError, Opened, Scope as Reach, State, Status};
use gesta_core::time::UnixMs;
use gesta_core::world::{Delta, ResourceRef};
use gesta_store::{ChainError, Draft};
use serde_json::Value;

use crate::closing;
use crate::decide::Outside;
use crate::desk::{Desk, failing};
use crate::effects;
use crate::error::RunError;
use crate::facts::Facts;
use crate::job::{ANSWER, CallSpec, EvalError, Scope, Work};
use crate::pipeline::{self, Ask, Ended, How, Opening, Prepared};
use crate::probe::{self, Answer, Inquiry};
use crate::verify::Question;

pub(crate) use self::fan::Lists;
use self::fan::{Fan, items_of};
pub(crate) use self::rehearse::Part;
pub(crate) use self::sensitive::{Place, Sealed};
pub(crate) use self::values::Blobs;
use self::values::Lookup;

/// How many entries one turn adds at most: what does not fit comes with the next.
const ENTRIES_MOST: u64 = 256;
/// Steps at once, when the plan says nothing.
const PARALLEL: usize = 8;

/// What a turn works with.
pub(crate) struct Turn<'a> {
    pub(crate) desk: &'a Desk,
    /// What time it is.
    pub(crate) now: UnixMs,
    /// Calls that are over.
    pub(crate) ended: &'a [Ended],
    /// What probes have found.
    pub(crate) answers: &'a [Answer],
    /// Reports from the inbox.
    pub(crate) reports: &'a [Signed<EffectReport>],
    /// What the other chains of delegations have been given.
    pub(crate) delivered: &'a [Delivered],
    /// Calls that are under way, by their `started`.
    pub(crate) running: &'a BTreeSet<EntryId>,
    /// Doubts that a probe is looking into, or has looked into too often.
    pub(crate) probed: &'a BTreeSet<EntryId>,
    /// What verifiers have found in this attempt.
    pub(crate) findings: &'a BTreeMap<ResourceRef, Check>,
    /// What verifiers are looking at.
    pub(crate) looking: &'a BTreeSet<ResourceRef>,
    /// Whether new calls may be made.
    pub(crate) may_open: bool,
    /// Whether it is to be said when there is nothing to do.
    pub(crate) may_rest: bool,
    /// Whether it is only to be seen if there is anything to do: what is held is decided on before the world is
    /// looked at.
    pub(crate) trial: bool,
    /// What the decision rested on, in a replay.
    pub(crate) recorded: Option<&'a Outside>,
    pub(crate) blobs: &'a Blobs,
    pub(crate) sealed: &'a Sealed,
    pub(crate) lists: &'a Lists,
}

/// What a turn made beside the entries.
#[derive(Default)]
pub(crate) struct Made {
    /// Calls to dispatch once the append is durable.
    pub(crate) prepared: Vec<Prepared>,
    /// Doubts to look into.
    pub(crate) inquiries: Vec<Inquiry>,
    /// Resources to look at.
    pub(crate) questions: Vec<Question>,
    /// Blobs that are needed before some step can go on.
    pub(crate) wanted: Vec<Digest>,
    /// Values that must be blobs before some step can be recorded.
    pub(crate) to_keep: Vec<Canon>,
    /// Sensitive values that must be sealed before some step can be proposed,
    pub(crate) to_seal: Vec<(Place, Value)>,
    /// or whose key must be at hand.
    pub(crate) wants_safe: bool,
    /// Whether a tool was busy.
    pub(crate) busy: bool,
    /// Whether there was no room for everything that can be added now.
    pub(crate) more: bool,
    /// Reports that the chain has, or does not need.
    pub(crate) taken: Vec<Digest>,
    /// How many items of each fan-out are done without a gap.
    pub(crate) settled: BTreeMap<StepId, u64>,
}

impl Turn<'_> {
    /// Adds everything that can be added now.
    pub(crate) fn build(&self, draft: &mut Draft<Facts>) -> Result<Made, RunError> {
        let mut made = Made::default();
        let first = draft.state().head().map_or(0, |head| head.seq);
        for ended in self.ended {
            let ended = closing::telling(self.desk, draft, ended, self.now);
            pipeline::settle(self.desk, draft, &ended, None, self.now)?;
        }
        for report in self.reports {
            if effects::take_up(self.desk, draft, report, self.now)? {
                made.taken.push(report.digest());
            }
        }
        for answer in self.answers {
            probe::conclude(self.desk, draft, answer, self.now)?;
        }
        self.note_delivered(draft)?;
        self.checkpoint(draft)?;
        loop {
            let before = draft.state().head();
            self.pass(draft, first, &mut made)?;
            let after = draft.state().head();
            if after == before && self.may_rest && made.is_nothing() {
                self.rest(draft)?;
            }
            if after == before || made.more || draft.state().ended().is_some() {
                return Ok(made);
            }
        }
    }

    /// Answers every offer once, as long as there is room behind the entry that the turn began after.
    fn pass(&self, draft: &mut Draft<Facts>, after: u64, made: &mut Made) -> Result<(), RunError> {
        let mut seen: BTreeSet<StepId> = BTreeSet::new();
        for offer in draft.state().next(self.now) {
            if draft.state().head().is_some_and(|head| head.seq >= after + ENTRIES_MOST) {
                made.more = true;
                return Ok(());
            }
            let step = match (&offer.on, offer.act) {
                (Reach::Step(step), _) => step,
                (Reach::Below(node), Act::Start) => node,
                (Reach::Trajectory, act) => {
                    if self.whole(draft, act)? {
                        return Ok(());
                    }
                    continue;
                }
                _ => continue,
            };
            let first = !seen.contains(step);
            match offer.act {
                Act::CommitEffect if first => self.stale(draft, step, made)?,
                Act::CommitWoken => self.woken(draft, step)?,
                Act::FireTimer => self.fire(draft, step)?,
                Act::ResolveForced if first => self.inquire(draft, step, made),
                Act::Start | Act::CommitComputed | Act::Wait | Act::Delegate if first => {
                    self.work(draft, step, made)?;
                }
                // It waits for a person; meanwhile the world may agree again.
                Act::Confirm if first && draft.state().unconfirmed(step).is_some() => {
                    self.work(draft, step, made)?;
                }
                Act::Reject if first && self.asked_in_vain(draft.state(), step).is_some() => {
                    self.unapproved(draft, step)?;
                }
                // An approval that has run out is asked for again.
                Act::Escalate if first && draft.state().lapsed(step, self.now) => {
                    self.work(draft, step, made)?;
                }
                // A call of unknown outcome that may not be sent again.
                Act::Doubt if first && refused(draft.state(), step) => {
                    self.work(draft, step, made)?;
                }
                _ => continue,
            }
            seen.insert(step.clone());
        }
        Ok(())
    }

    /// Ends the trajectory, or opens its rollback, if it is time.
    fn whole(&self, draft: &mut Draft<Facts>, act: Act) -> Result<bool, RunError> {
        let state = draft.state();
        let facts = draft.view();
        let body = match act {
            Act::Compensate => match undo::rollback(self.desk, state, facts) {
                Some(body) => body,
                None => return Ok(false),
            },
            Act::Complete => {
                let answer = ANSWER.parse().ok().and_then(|id| facts.result(&id).cloned());
                let answer = answer
                    .map_or_else(|| Content::Inline(Canon::null()), |recorded| recorded.content);
                Body::Completed(Box::new(Completed { answer, run_hash: state.run_hash()? }))
            }
            Act::EndCancelled => {
                let error = failing("cancelled", facts.cancelled().unwrap_or("it was cancelled"));
                Body::Cancelled(Box::new(Stopped { error, run_hash: state.run_hash()? }))
            }
            Act::EndFailed if state.is_failing() && state.cancelling().is_none() => {
                let error = match facts.broken() {
                    Some((step, error)) => Failing {
                        code: error.code.clone(),
                        message: format!("step `{step}` failed: {}", error.message),
                    },
                    None => failing("failed", "a step failed"),
                };
                Body::Failed(Box::new(Stopped { error, run_hash: state.run_hash()? }))
            }
            Act::EndFailed if facts.fruitless() > self.desk.shared.options.fruitless_most => {
                let message =
                    format!("{} attempts in a row left nothing behind", facts.fruitless());
                let error = failing("poison", &message);
                Body::Failed(Box::new(Stopped { error, run_hash: state.run_hash()? }))
            }
            _ => return Ok(false),
        };
        draft.push(self.now, self.desk.author(), body)?;
        Ok(true)
    }

    /// A call that is open and that nobody here is making. If this attempt opened it, it was never
    /// dispatched: its append was of unknown fate, so there was no ticket. If an earlier one did, it
    /// may have happened.
    fn stale(&self, draft: &mut Draft<Facts>, step: &StepId, made: &Made) -> Result<(), RunError> {
        let Some(Status::Open(opened)) = draft.state().step(step).map(|step| &step.status) else {
            return Ok(());
        };
        let just_opened = made.prepared.iter().any(|call| call.started() == opened.started);
        if just_opened || self.running.contains(&opened.started) {
            return Ok(());
        }
        let opened: Opened = (**opened).clone();
        let Some(asked) = draft.view().asked(step) else { return Ok(()) };
        let (proposal, started) = ((*asked.proposal).clone(), opened.started);
        let mine = opened.attempt == self.desk.attempt;
        let how = How::TurnedAway(failing("not_dispatched", "the append's fate was unknown"));
        let ended = Ended { step: step.clone(), started, proposal, at: self.now, how };
        if mine {
            return pipeline::settle(self.desk, draft, &ended, None, self.now);
        }
        let what = format!("attempt {} ended without a word", opened.attempt);
        let how = How::failed(Certainty::Unknown, failing("worker_lost", &what));
        let ended = Ended { how, ..ended };
        let ended = closing::telling(self.desk, draft, &ended, self.now);
        let How::Failed { error, .. } = &ended.how else { return Ok(()) };
        closing::unknown(self.desk, draft, &opened, &ended, error, self.now)
    }

    fn inquire(&self, draft: &Draft<Facts>, step: &StepId, made: &mut Made) {
        let Some(Status::InDoubt { entry, opened }) = draft.state().step(step).map(|s| &s.status)
        else {
            return;
        };
        if opened.recovery != gesta_core::document::Recovery::Probe
            || self.probed.contains(entry)
            || !self.may_open
        {
            return;
        }
        if self.now < opened.dead_at && !self.believes_too_early() {
            return;
        }
        let generation = draft.state().step(step).map_or(1, |step| step.generation);
        if let Some(asked) = draft.view().asked(step) {
            let proposal = (*asked.proposal).clone();
            made.inquiries.push(Inquiry { doubt: *entry, generation, proposal });
        }
    }

    #[cfg(feature = "sabotage")]
    fn believes_too_early(&self) -> bool {
        self.desk.shared.options.sabotage == Some(crate::Sabotage::BelieveTooEarly)
    }

    #[cfg(not(feature = "sabotage"))]
    fn believes_too_early(&self) -> bool {
        false
    }

    /// Does what the plan says about a step that may go on.
    fn work(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        made: &mut Made,
    ) -> Result<(), RunError> {
        if draft.state().undoes(step).is_some() {
            return self.undo(draft, step, made);
        }
        let spec = match draft.view().spec(&step.node()) {
            Some(Ok(spec)) => spec,
            Some(Err(error)) => {
                let error = failing("plan_unreadable", &error.to_string());
                return self.fail(draft, step, error);
            }
            None => return Ok(()),
        };
        if let Some(Status::Unknown { opened, .. }) = draft.state().step(step).map(|s| &s.status) {
            let opened = (**opened).clone();
            let timeout_ms = spec.call().and_then(|call| call.timeout_ms);
            return self.again(draft, step, timeout_ms, &opened, made);
        }
        if draft.state().name() != "live" {
            // Something that this turn has added stops new work; what was offered before is stale.
            return Ok(());
        }
        if !step.is_node() {
            // The steps below a fan-out are begun by their node.
            return self.work(draft, &step.node(), made);
        }
        let held = self.trial && draft.view().all_held().any(|held| held.node() == *step);
        if !held && !self.confirm(draft, step, &spec, made)? {
            return Ok(());
        }
        let fresh = draft.view().asked(step).is_none();
        if fresh
            && !self.begun(draft, step)
            && let Some(when) = &spec.when
        {
            match self.evaluate(draft, step, None, made, |scope| when.test(scope)) {
                None => return Ok(()),
                Some(Err(error)) => return self.fail(draft, step, expression(&error)),
                Some(Ok(false)) => {
                    let nothing = Content::Inline(Canon::null());
                    return self.commit(draft, step, Origin::Skipped, nothing);
                }
                Some(Ok(true)) => {}
            }
        }
        match &spec.work {
            Work::Call(call) => self.call(draft, step, call, None, made),
            Work::Set { value } => {
                match self.evaluate(draft, step, None, made, |scope| value.resolve(scope)) {
                    None => Ok(()),
                    Some(Err(error)) => self.fail(draft, step, expression(&error)),
                    Some(Ok(value)) => self.computed(draft, step, &value, made),
                }
            }
            Work::Wait { .. } => self.wait(draft, step, &spec.work, made),
            Work::Delegate(delegate) => self.delegate(draft, step, delegate, None, made),
            Work::Each { .. } | Work::Delegates { .. } => match Fan::of(&spec.work) {
                Some(fan) => self.each(draft, step, &fan, made),
                None => Ok(()),
            },
        }
    }

    /// Whether a fan-out's list is fixed already.
    fn begun(&self, draft: &Draft<Facts>, node: &StepId) -> bool {
        items_of(node).is_some_and(|items| draft.view().result(&items).is_some())
    }

    /// Proposes a call: the frozen proposal, or a new one.
    fn call(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        call: &CallSpec,
        item: Option<(u64, &Value)>,
        made: &mut Made,
    ) -> Result<(), RunError> {
        if !self.has_room(draft, step, made) {
            return Ok(());
        }
        let proposal = match draft.view().asked(step) {
            Some(asked) => (*asked.proposal).clone(),
            None => {
                match self.evaluate(draft, step, item, made, |scope| call.args.resolve(scope)) {
                    None => return Ok(()),
                    Some(Err(error)) => return self.fail(draft, step, expression(&error)),
                    Some(Ok(args)) => {
                        let proposal =
                            Proposal { args, step: step.clone(), tool: call.tool.clone() };
                        match self.protected(proposal, made) {
                            None => return Ok(()),
                            Some(Err(error)) => return self.fail(draft, step, error),
                            Some(Ok(proposal)) => proposal,
                        }
                    }
                }
            }
        };
        if self.take_over(draft, &proposal)? {
            return Ok(());
        }
        self.open(draft, proposal, call.timeout_ms, made)
    }

    /// Takes a proposal through the pipeline.
    fn open(
        &self,
        draft: &mut Draft<Facts>,
        proposal: Proposal,
        timeout_ms: Option<u64>,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let step = proposal.step.clone();
        let ask = Ask { proposal, timeout_ms };
        match pipeline::open(self.desk, draft, ask, self.basis(), self.now) {
            Ok(Opening::Started(prepared)) => made.prepared.push(*prepared),
            Ok(Opening::Refused | Opening::Held) => {}
            Ok(Opening::Busy) => made.busy = true,
            Err(RunError::Chain(ChainError::Admit(error)))
                if !matches!(*error, AdmitError::Rehearsed) =>
            {
                self.fail(draft, &step, failing("not_admitted", &error.to_string()))?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether a call may be made for this step now.
    fn has_room(&self, draft: &Draft<Facts>, step: &StepId, made: &Made) -> bool {
        let state = draft.state();
        self.may_open
            && !self.full(draft.view(), made)
            && (state.startable(step, self.now) || state.lapsed(step, self.now))
    }

    /// What people were asked, and why it is refused now, if it is.
    fn asked_in_vain(&self, state: &State, step: &StepId) -> Option<(EntryId, Reason)> {
        match &state.step(step)?.status {
            Status::Denied { pending } => Some((*pending, Reason::ApprovalDenied)),
            Status::Pending(pending) if self.now.max(state.at()) > pending.deadline => {
                Some((pending.entry, Reason::ApprovalExpired))
            }
            _ => None,
        }
    }

    /// Refuses what people have denied, or have not approved in time.
    fn unapproved(&self, draft: &mut Draft<Facts>, step: &StepId) -> Result<(), RunError> {
        let Some((pending, reason)) = self.asked_in_vain(draft.state(), step) else {
            return Ok(());
        };
        let Some(asked) = draft.view().asked(step) else { return Ok(()) };
        let asked = ((*asked.proposal).clone(), pending);
        pipeline::unapproved(self.desk, draft, asked, reason, self.now)
    }

    /// Sends a call of unknown outcome again, or gives up knowing.
    fn again(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        timeout_ms: Option<u64>,
        opened: &Opened,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let Some(asked) = draft.view().asked(step) else { return Ok(()) };
        let proposal = (*asked.proposal).clone();
        let refused = refused(draft.state(), step);
        if refused || self.desk.key_expired(draft.view(), &proposal, opened, self.now) {
            let why = if refused { "sending it again was refused" } else { "its key has expired" };
            let (known, what) = (failing("not_sent_again", why), (step, opened.started));
            closing::doubt(self.desk, draft, what, known, None, self.now)?;
            return Ok(());
        }
        if !self.has_room(draft, step, made) {
            return Ok(());
        }
        self.open(draft, proposal, timeout_ms, made)
    }

    fn full(&self, facts: &Facts, made: &Made) -> bool {
        self.running.len() + made.prepared.len() >= self.parallel(facts)
    }

    /// Records a computed value; a large one must be a blob first.
    fn computed(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        value: &Canon,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let content = if value.as_bytes().len() <= MAX_INLINE_BYTES {
            Content::Inline(value.clone())
        } else {
            let blob = gesta_core::content::BlobRef::of(value.as_bytes());
            if self.blobs.get(&blob.sha256).is_none() {
                made.to_keep.push(value.clone());
                return Ok(());
            }
            Content::Blob(blob)
        };
        self.commit(draft, step, Origin::Computed, content)
    }

    fn commit(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        origin: Origin,
        content: Content,
    ) -> Result<(), RunError> {
        let (outcome, delta) = (Outcome::Pure, Delta::default());
        let free = Amounts::default();
        let body = closing::committed(draft, step, origin, outcome, delta, content, free)?;
        draft.push(self.now, self.desk.author(), body)?;
        Ok(())
    }

    fn fail(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        error: Failing,
    ) -> Result<(), RunError> {
        closing::fail_unstarted(self.desk, draft, step, error, self.now)
    }

    /// Evaluates in the scope of a step. None when a blob is needed first.
    fn evaluate<T>(
        &self,
        draft: &Draft<Facts>,
        step: &StepId,
        item: Option<(u64, &Value)>,
        made: &mut Made,
        evaluate: impl FnOnce(&Scope<'_>) -> Result<T, EvalError>,
    ) -> Option<Result<T, EvalError>> {
        let facts = draft.view();
        let input = self.value(&facts.mandate()?.input, made)?;
        let lookup = Lookup::new(facts, self.blobs);
        let outcome = evaluate(&Scope {
            input: &input,
            results: &lookup,
            world: draft.state().world(),
            now: self.now.max(draft.state().at()),
            seed: self.seed(draft, step)?,
            item,
        });
        let missing = lookup.missing();
        if missing.is_empty() {
            return Some(outcome);
        }
        made.wanted.extend(missing);
        None
    }

    fn value(&self, content: &Content, made: &mut Made) -> Option<Canon> {
        match content {
            Content::Inline(value) => Some(value.clone()),
            Content::Blob(blob) => {
                let value = self.blobs.get(&blob.sha256);
                if value.is_none() {
                    made.wanted.push(blob.sha256);
                }
                value
            }
        }
    }

    fn seed(&self, draft: &Draft<Facts>, step: &StepId) -> Option<Seed> {
        let generation = draft.state().step(step).map_or(1, |step| step.generation);
        draft.state().seed().map(|root| step_seed(root, step, generation))
    }

    fn parallel(&self, facts: &Facts) -> usize {
        let spec = ANSWER.parse().ok().and_then(|id| facts.spec(&id)).and_then(Result::ok);
        spec.and_then(|spec| spec.job.as_ref().map(|job| job.parallel as usize))
            .unwrap_or(PARALLEL)
            .max(1)
    }
}

/// Whether sending a call of unknown outcome again was refused.
fn refused(state: &State, step: &StepId) -> bool {
    let status = state.step(step).map(|step| &step.status);
    matches!(status, Some(Status::Unknown { refused: true, .. }))
}

fn expression(error: &EvalError) -> Failing {
    failing("expression_failed", &error.to_string())
}
