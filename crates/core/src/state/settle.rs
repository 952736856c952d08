//! Closing a step: `commit` and `failure`.

use super::call::frozen;
use super::step::{Opened, RowOutcome, RunRow, Status, Step};
use super::{State, Why};
use crate::amounts::Amounts;
use crate::body::{BranchMode, Commit, Failure, Origin, StepKind};
use crate::content::Content;
use crate::digest::{Digest, EntryId, PermitId, ProposalId};
use crate::document::{CallResult, Certainty, EffectReport, Outcome, ReceiptResult, Settlement};
use crate::entry::{Author, Entry};
use crate::ids::StepId;
use crate::json::Canon;
use crate::signed::Signed;
use crate::world::Delta;
use crate::writ::Effect;

impl State {
    pub(super) fn commit(&mut self, body: &Commit, entry: &Entry) -> Result<(), Why> {
        if body.parent_commit != self.last_commit {
            return Err(Why::ParentCommit);
        }
        if Some(body.writ) != self.writ().map(|(id, _)| id) {
            return Err(Why::OtherWrit);
        }
        let id = &body.step;
        let done = Done {
            outcome: body.outcome,
            observation: body.observation.digest(),
            delta: body.delta.digest()?,
        };
        let closed;
        match &body.origin {
            Origin::Effect { evidence, proposal, receipt, started } => {
                let opened = self.open_call(id, *started)?.clone();
                self.check_settled(&opened, id, body, *proposal)?;
                let by = &entry.payload().by;
                self.check_knowledge(&opened, id, by, evidence.as_deref(), || {
                    CallResult::Succeeded(Settlement {
                        cost: body.cost,
                        delta: body.delta.clone(),
                        observation: body.observation.clone(),
                    })
                })?;
                let Done { outcome, observation, delta } = done;
                let result = ReceiptResult::Committed { delta, observation, outcome };
                self.check_receipt(receipt, id, Some(opened.permit), result)?;
                if receipt.doc().cost != body.cost {
                    return Err(Why::Receipt("cost"));
                }
                closed = done.settle(id, self.step_or_fresh(id), entry)?;
                self.world.apply(&body.delta)?;
                self.take_receipt(receipt);
                self.reserved = self.reserved.minus(opened.reserve);
                self.spent = self.spent.plus(body.cost);
            }
            origin => {
                self.check_effectless(origin, body)?;
                let mut step = self.step_or_fresh(id);
                if let Origin::RecordedFrom { proposal, .. } = origin {
                    // The source's effect, not ours: it is known by its proposal, and a rollback
                    // leaves it alone.
                    step.frozen = Some(frozen(proposal, proposal.id()?));
                    step.inherited = true;
                }
                closed = done.settle(id, step, entry)?;
                self.world.apply(&body.delta)?;
                if let Origin::Woken { by } = origin {
                    self.take_signal(id, *by);
                }
            }
        }
        self.put_done(id, closed);
        Ok(())
    }

    /// Stores a step that is done.
    pub(super) fn put_done(&mut self, id: &StepId, closed: Closed) {
        let Closed { by, step, undone } = closed;
        self.last_commit = Some(by);
        self.put(id, step);
        if undone {
            self.undo_settled();
        }
    }

    /// The open call that an entry closes.
    pub(super) fn open_call(&self, id: &StepId, started: EntryId) -> Result<&Opened, Why> {
        match self.step(id).map(|step| &step.status) {
            Some(Status::Open(opened)) if opened.started == started => Ok(opened),
            Some(Status::Open(_)) => Err(Why::OtherStarted),
            other => Err(Why::StepStatus {
                step: id.clone(),
                status: other.map_or("idle", Status::as_str),
            }),
        }
    }

    fn check_settled(
        &self,
        opened: &Opened,
        id: &StepId,
        body: &Commit,
        proposal: ProposalId,
    ) -> Result<(), Why> {
        let frozen =
            self.step(id).and_then(|step| step.frozen.as_ref()).map(|frozen| frozen.proposal);
        if frozen != Some(proposal) {
            return Err(Why::Frozen(id.clone()));
        }
        if body.outcome != success(opened) {
            return Err(Why::Outcome);
        }
        Ok(())
    }

    /// Only the attempt that made a call knows what became of it; any other needs its signed report.
    fn check_knowledge(
        &self,
        opened: &Opened,
        id: &StepId,
        by: &Author,
        evidence: Option<&Signed<EffectReport>>,
        result: impl FnOnce() -> CallResult,
    ) -> Result<(), Why> {
        match evidence {
            Some(report) => self.check_report(report, id, opened.started, &result()),
            None if matches!(by, Author::Worker { attempt, .. } if *attempt == opened.attempt) => {
                Ok(())
            }
            None => Err(Why::NoEvidence),
        }
    }

    fn check_report(
        &self,
        report: &Signed<EffectReport>,
        id: &StepId,
        started: EntryId,
        result: &CallResult,
    ) -> Result<(), Why> {
        let doc = report.doc();
        let fits = doc.trajectory == self.trajectory
            && doc.step == *id
            && doc.started == started
            && doc.result == *result;
        if fits { Ok(()) } else { Err(Why::Evidence) }
    }

    /// Results that no call stands behind: they cost nothing and change nothing outside.
    fn check_effectless(&self, origin: &Origin, body: &Commit) -> Result<(), Why> {
        let id = &body.step;
        if body.cost != Amounts::default() {
            return Err(Why::Cost);
        }
        let pure = body.outcome == Outcome::Pure;
        match origin {
            Origin::Effect { .. } => return Err(Why::Outcome),
            Origin::Computed => self.may_compute(id)?,
            Origin::Skipped => {
                self.may_skip(id)?;
                let empty = Content::Inline(Canon::null());
                if body.delta != Delta::default() || body.observation != empty {
                    return Err(Why::NotEmpty);
                }
            }
            Origin::Woken { by } => self.check_woken(id, *by)?,
            Origin::RecordedFrom { proposal, .. } => {
                self.may_take_over(id)?;
                let frozen = self.step(id).and_then(|step| step.frozen.as_deref());
                self.check_proposal(proposal, frozen)?;
                if proposal.step != *id {
                    return Err(Why::Frozen(id.clone()));
                }
                if !pure && body.outcome != Outcome::SideEffectCommitted {
                    return Err(Why::Outcome);
                }
                return Ok(());
            }
        }
        if pure { Ok(()) } else { Err(Why::Outcome) }
    }

    pub(super) fn may_compute(&self, id: &StepId) -> Result<(), Why> {
        self.may_work(id, &[StepKind::Compute, StepKind::Loop])?;
        self.check_nothing_below(id)
    }

    pub(super) fn may_skip(&self, id: &StepId) -> Result<(), Why> {
        use StepKind::{Call, Compute, Delegate, Loop, Wait};
        self.may_work(id, &[Call, Compute, Delegate, Loop, Wait])?;
        if self.step(id).is_some_and(|step| step.frozen.is_some()) {
            return Err(Why::Frozen(id.clone()));
        }
        self.check_nothing_below(id)
    }

    pub(super) fn may_take_over(&self, id: &StepId) -> Result<(), Why> {
        let branch = self.beginning.as_ref().and_then(|beginning| beginning.branch);
        if branch != Some(BranchMode::Recorded) {
            return Err(Why::WrongKindOfTrajectory);
        }
        self.may_work(id, &[StepKind::Call])
    }

    /// Whether a step may fail without a call: it could not be computed, or retrying is over.
    pub(super) fn may_fail_unstarted(&self, id: &StepId) -> Result<(), Why> {
        use StepKind::{Call, Compute, Delegate, Loop, Wait};
        if self.rollback.is_some() {
            self.is_next_undo(id)?;
            return self.check_idle(id);
        }
        self.may_work(id, &[Call, Compute, Delegate, Loop, Wait])?;
        self.check_nothing_below(id)
    }

    pub(super) fn failure(&mut self, body: &Failure, entry: &Entry) -> Result<(), Why> {
        let id = &body.step;
        let Failure { certainty, outcome, .. } = *body;
        let result = ReceiptResult::Failed { certainty, outcome };
        let opened = match body.started {
            Some(started) => {
                let opened = self.open_call(id, started)?.clone();
                self.check_failure(&opened, body, &entry.payload().by)?;
                Some(opened)
            }
            None => {
                self.may_fail_unstarted(id)?;
                let fits = outcome == Outcome::PermanentFailure
                    && certainty == Certainty::DidNotHappen
                    && !body.dispatched
                    && body.cost == Amounts::default()
                    && body.evidence.is_none();
                if !fits {
                    return Err(Why::Outcome);
                }
                None
            }
        };
        let may_say_when = outcome == Outcome::RetryableFailure;
        if body.retry_at.is_some_and(|at| !may_say_when || at < entry.payload().at) {
            return Err(Why::RetryAt);
        }
        let permit: Option<PermitId> = opened.as_ref().map(|opened| opened.permit);
        self.check_receipt(&body.receipt, id, permit, result)?;
        if body.receipt.doc().cost != body.cost {
            return Err(Why::Receipt("cost"));
        }
        self.settle_failure(body, opened, entry)?;
        self.take_receipt(&body.receipt);
        Ok(())
    }

    /// Which failures fit which call.
    fn check_failure(&self, opened: &Opened, body: &Failure, by: &Author) -> Result<(), Why> {
        if !failure_fits(opened, body.outcome, body.certainty, body.dispatched) {
            return Err(Why::Outcome);
        }
        let free =
            body.certainty == Certainty::DidNotHappen || body.certainty == Certainty::Unknown;
        if free && body.cost != Amounts::default() {
            return Err(Why::Cost);
        }
        if body.certainty == Certainty::Unknown {
            return if body.evidence.is_none() { Ok(()) } else { Err(Why::Evidence) };
        }
        let evidence = body.evidence.as_deref();
        let retryable = evidence.is_some_and(|report| {
            matches!(report.doc().result, CallResult::Failed { retryable: true, .. })
        });
        if evidence.is_some() && body.outcome == Outcome::RetryableFailure && !retryable {
            return Err(Why::Evidence);
        }
        self.check_knowledge(opened, &body.step, by, evidence, || {
            let (certainty, cost) = (body.certainty, body.cost);
            CallResult::Failed { certainty, cost, error: body.error.clone(), retryable }
        })
    }

    fn settle_failure(
        &mut self,
        body: &Failure,
        opened: Option<Opened>,
        entry: &Entry,
    ) -> Result<(), Why> {
        let id = &body.step;
        let mut step = self.step_or_fresh(id);
        let retryable = body.outcome == Outcome::RetryableFailure;
        let (mut reserved, mut spent) = (self.reserved, self.spent);
        let mut unknown = None;
        if let Some(opened) = opened {
            reserved = reserved.minus(opened.reserve);
            match body.certainty {
                // Turned away, and what was sent before is as unknown as it was.
                Certainty::DidNotHappen if opened.again => unknown = Some(opened),
                Certainty::DidNotHappen => step.generation += u64::from(body.dispatched),
                Certainty::Happened => {
                    account(&mut step);
                    step.grant = None;
                    spent = spent.plus(body.cost);
                }
                Certainty::Unknown => {
                    spent = spent.plus(opened.reserve);
                    step.keep(&opened);
                    unknown = Some(opened);
                }
            }
        }
        step.retry_at = body.retry_at;
        step.status = match unknown {
            Some(opened) if retryable => {
                Status::Unknown { opened: Box::new(opened), refused: false }
            }
            _ if retryable => Status::Idle,
            _ => {
                let outcome = RowOutcome::Step(body.outcome);
                step.row = Some(RunRow::new(id, &step, outcome).digest()?);
                self.failed_status(id, entry)
            }
        };
        (self.reserved, self.spent) = (reserved, spent);
        self.put(id, step);
        Ok(())
    }
}

/// How a step came to be done.
#[derive(Clone, Copy)]
pub(super) struct Done {
    pub(super) outcome: Outcome,
    /// The digest of what it returned.
    pub(super) observation: Digest,
    /// The digest of what it changed.
    pub(super) delta: Digest,
}

/// A step that is done, before the state knows.
pub(super) struct Closed {
    by: EntryId,
    step: Step,
    /// Whether it was an undo.
    undone: bool,
}

impl Done {
    /// What every way of being done leaves behind.
    pub(super) fn settle(self, id: &StepId, mut step: Step, entry: &Entry) -> Result<Closed, Why> {
        let Self { outcome, observation, delta } = self;
        let undone = match &step.status {
            Status::Open(opened) | Status::InDoubt { opened, .. } => opened.compensates.is_some(),
            _ => false,
        };
        account(&mut step);
        step.grant = None;
        let row = RunRow::new(id, &step, RowOutcome::Step(outcome));
        let row = RunRow { observation: Some(observation), delta: Some(delta), ..row };
        step.row = Some(row.digest()?);
        step.status = Status::Done { by: entry.head(), outcome };
        Ok(Closed { by: entry.id(), step, undone })
    }
}

/// How a call that succeeded must be called.
pub(super) fn success(opened: &Opened) -> Outcome {
    match (opened.compensates, opened.effect) {
        (Some(_), _) => Outcome::Compensated,
        (None, Effect::Read) => Outcome::Pure,
        (None, _) => Outcome::SideEffectCommitted,
    }
}

/// Whether an open call may close so.
pub(super) fn failure_fits(
    opened: &Opened,
    outcome: Outcome,
    certainty: Certainty,
    dispatched: bool,
) -> bool {
    use Outcome::{CompensatableFailure, PermanentFailure, RetryableFailure};
    match (certainty, outcome) {
        // One of several sends did not happen: that says nothing about the others.
        (Certainty::DidNotHappen, outcome) if opened.again => {
            !dispatched && outcome == RetryableFailure
        }
        (Certainty::DidNotHappen, RetryableFailure | PermanentFailure) => true,
        (Certainty::Happened, PermanentFailure | CompensatableFailure) => dispatched,
        // Nobody knows: it may be sent again, or, when it changes nothing, be given up.
        (Certainty::Unknown, RetryableFailure) => dispatched && opened.recovery.reruns(),
        (Certainty::Unknown, PermanentFailure) => {
            dispatched && opened.effect == Effect::Read && opened.compensates.is_none()
        }
        _ => false,
    }
}

/// The open `started`, if there is one, has its effect in the chain.
pub(super) fn account(step: &mut Step) {
    let open = step.open_start();
    step.unaccounted.retain(|it| Some(it.started) != open);
}
