//! Undoing: `compensation`. Each undo is then a call of its own, newest commit first.

use super::step::Status;
use super::{Rollback, State, Why};
use crate::body::{Compensation, Undo};
use crate::digest::EntryId;
use crate::document::Outcome;
use crate::ids::StepId;

impl State {
    pub(super) fn may_compensate(&self) -> Result<(), Why> {
        // Another may follow one that is over: there may be more to undo than one entry holds.
        if self.to_undo().is_some() {
            return Err(Why::RollbackTwice);
        }
        if !self.failing && self.cancelling.is_none() {
            return Err(Why::NothingToUndo);
        }
        if self.holding > 0 { Err(Why::NotQuiet) } else { Ok(()) }
    }

    pub(super) fn compensation(&mut self, body: &Compensation) -> Result<(), Why> {
        self.may_compensate()?;
        let mut above = u64::MAX;
        for undo in &body.undo {
            // Only what this trajectory did itself: what a branch took over is its source's to undo.
            let own = self.step(&undo.step).filter(|step| !step.inherited);
            let committed = match own.map(|step| &step.status) {
                Some(Status::Done { by, outcome: Outcome::SideEffectCommitted })
                    if by.id == undo.commit =>
                {
                    by.seq
                }
                _ => return Err(Why::UndoOrder(undo.commit)),
            };
            let id = undo.step.undo().map_err(|_| Why::UndoOrder(undo.commit))?;
            if committed >= above || self.knows(&id) {
                return Err(Why::UndoOrder(undo.commit));
            }
            above = committed;
        }
        self.rollback = Some(Rollback { undo: body.undo.as_slice().into(), done: 0 });
        Ok(())
    }

    /// The commit that is to be undone next.
    pub fn to_undo(&self) -> Option<&Undo> {
        self.rollback.as_ref()?.next()
    }

    /// The step that undoes the next commit.
    pub(super) fn next_undo(&self) -> Option<StepId> {
        self.to_undo()?.step.undo().ok()
    }

    /// The commit that a call of this step would undo, if it would undo one.
    pub fn undoes(&self, id: &StepId) -> Option<EntryId> {
        match self.step(id).map(|step| &step.status) {
            Some(Status::Unknown { opened, .. }) => opened.compensates,
            _ if self.is_next_undo(id).is_ok() => self.to_undo().map(|undo| undo.commit),
            _ => None,
        }
    }

    /// Whether a rollback is to be opened once nothing is open any more: whoever asked for the
    /// trajectory to stop wants it undone, or it fails and `on_failure` says so.
    pub fn wants_rollback(&self, on_failure: bool) -> bool {
        let asked = self.cancelling.is_some_and(|cancelling| cancelling.compensate);
        self.rollback.is_none() && (asked || on_failure && self.failing)
    }

    /// Whether there was a rollback, and all that it listed is settled.
    pub fn rolled_back(&self) -> bool {
        self.rollback.is_some() && self.to_undo().is_none()
    }

    /// Whether a step has failed for good, so that the trajectory can only fail or be cancelled.
    pub fn is_failing(&self) -> bool {
        self.failing
    }

    /// Whether someone has asked for the trajectory to stop; if so, whether it is to be undone.
    pub fn cancelling(&self) -> Option<bool> {
        self.cancelling.map(|cancelling| cancelling.compensate)
    }

    pub(super) fn is_next_undo(&self, id: &StepId) -> Result<(), Why> {
        if self.next_undo().as_ref() == Some(id) { Ok(()) } else { Err(Why::UndoNext) }
    }

    /// One undo is done, or left undone by a person's word.
    pub(super) fn undo_settled(&mut self) {
        if let Some(rollback) = &mut self.rollback {
            rollback.done += 1;
        }
    }
}
