//! Not knowing: `in_doubt`, `resolution`, `late_effect`.

use super::settle::{Done, account, success};
use super::step::{Opened, RowOutcome, RunRow, Status};
use super::{Phase, State, Why};
use crate::body::{InDoubt, LateEffect, Resolution};
use crate::digest::EntryId;
use crate::document::{CallResult, ResolutionStatement, ResolutionVerdict, ResolvedBy, Settlement};
use crate::entry::Entry;
use crate::ids::StepId;
use crate::time::UnixMs;

impl State {
    /// The call that may be declared in doubt.
    pub(super) fn may_doubt(&self, id: &StepId) -> Result<&Opened, Why> {
        match self.step(id).map(|step| &step.status) {
            Some(Status::Open(opened) | Status::Unknown { opened, .. }) => Ok(opened),
            other => Err(Why::StepStatus {
                step: id.clone(),
                status: other.map_or("idle", Status::as_str),
            }),
        }
    }

    pub(super) fn in_doubt(&mut self, body: &InDoubt, entry: EntryId) -> Result<(), Why> {
        let opened = self.may_doubt(&body.step)?.clone();
        if opened.started != body.started {
            return Err(Why::OtherStarted);
        }
        let mut step = self.step_or_fresh(&body.step);
        if matches!(step.status, Status::Open(_)) {
            // The reservation is kept as spent: it may have happened.
            self.reserved = self.reserved.minus(opened.reserve);
            self.spent = self.spent.plus(opened.reserve);
            step.keep(&opened);
        }
        step.status = Status::InDoubt { entry, opened: Box::new(opened) };
        self.put(&body.step, step);
        Ok(())
    }

    pub(super) fn resolution(&mut self, body: &Resolution, entry: &Entry) -> Result<(), Why> {
        let statement = body.statement.doc();
        match self.step(&body.step).map(|step| step.status.clone()) {
            Some(Status::InDoubt { entry: doubt, opened }) if doubt == statement.doubt => {
                self.resolve_doubt(body, statement, &opened, entry)
            }
            Some(Status::Blocked { entry: blocked }) if blocked == statement.doubt => {
                self.resolve_blocked(&body.step, &statement.verdict, entry)
            }
            Some(Status::InDoubt { .. } | Status::Blocked { .. }) => Err(Why::OtherDoubt),
            other => Err(Why::StepStatus {
                step: body.step.clone(),
                status: other.as_ref().map_or("idle", Status::as_str),
            }),
        }
    }

    /// "It did not happen" is believed only once it cannot land any more, unless it is forced.
    pub(super) fn may_deny(opened: &Opened, forced: bool, now: UnixMs) -> Result<(), Why> {
        let landing = opened.recovery.waits_for_death() && now < opened.dead_at;
        if landing && !forced { Err(Why::TooEarly) } else { Ok(()) }
    }

    fn resolve_doubt(
        &mut self,
        body: &Resolution,
        statement: &ResolutionStatement,
        opened: &Opened,
        entry: &Entry,
    ) -> Result<(), Why> {
        let id = &body.step;
        let mut step = self.step_or_fresh(id);
        let given_up = statement.verdict == ResolutionVerdict::GiveUp;
        let arrived = !given_up && !step.release(opened);
        if statement.source == ResolvedBy::Inbox {
            // Its executor's report is what resolves it: it cannot arrive once more.
            account(&mut step);
        }
        match &statement.verdict {
            ResolutionVerdict::Happened(Settlement { cost, delta, observation }) => {
                let done = Done {
                    outcome: success(opened),
                    observation: observation.digest(),
                    delta: delta.digest()?,
                };
                let closed = done.settle(id, step, entry)?;
                self.world.apply(delta)?;
                self.spent = self.spent.minus(opened.reserve).plus(*cost);
                if arrived {
                    self.twice = self.twice.minus(opened.reserve).plus(*cost);
                }
                self.put_done(id, closed);
            }
            ResolutionVerdict::DidNotHappen => {
                Self::may_deny(opened, statement.forced, entry.payload().at)?;
                self.spent = self.spent.minus(opened.reserve);
                if arrived {
                    self.twice = self.twice.minus(opened.reserve);
                }
                step.generation += 1;
                step.status = Status::Idle;
                self.put(id, step);
            }
            ResolutionVerdict::GiveUp => {
                step.row = Some(RunRow::new(id, &step, RowOutcome::GivenUp).digest()?);
                let undoing = opened.compensates.is_some();
                step.status = Status::Failed { by: entry.head() };
                self.put(id, step);
                if undoing {
                    self.undo_settled();
                }
            }
        }
        Ok(())
    }

    /// A blocked undo is tried again, or left undone.
    fn resolve_blocked(
        &mut self,
        id: &StepId,
        verdict: &ResolutionVerdict,
        entry: &Entry,
    ) -> Result<(), Why> {
        let mut step = self.step_or_fresh(id);
        match verdict {
            ResolutionVerdict::Happened(_) => return Err(Why::Outcome),
            ResolutionVerdict::DidNotHappen => {
                step.generation += 1;
                step.status = Status::Idle;
                self.put(id, step);
            }
            ResolutionVerdict::GiveUp => {
                step.row = Some(RunRow::new(id, &step, RowOutcome::GivenUp).digest()?);
                step.status = Status::Failed { by: entry.head() };
                self.put(id, step);
                self.undo_settled();
            }
        }
        Ok(())
    }

    /// Legal in every state once its `started` is closed, ended ones included: the world does not
    /// ask whether we are still listening.
    pub(super) fn late_effect(&mut self, body: &LateEffect) -> Result<(), Why> {
        if self.phase == Phase::Unbegun {
            return Err(Why::NotBegun);
        }
        let report = body.report.doc();
        if report.trajectory != self.trajectory || report.step != body.step {
            return Err(Why::Evidence);
        }
        let mut step = self.step_or_fresh(&body.step);
        if !step.late().any(|start| start == report.started) {
            return Err(Why::NotClosed);
        }
        let kept = step.unaccounted.iter().find(|it| it.started == report.started);
        let kept = kept.and_then(|it| it.kept).unwrap_or_default();
        step.unaccounted.retain(|it| it.started != report.started);
        let cost = match &report.result {
            CallResult::Succeeded(settlement) => settlement.cost,
            CallResult::Failed { cost, .. } => *cost,
        };
        self.spent = self.spent.plus(cost);
        // What was kept because nobody knew is known now: it is what it cost.
        self.twice = self.twice.plus(kept);
        self.put(&body.step, step);
        Ok(())
    }
}
