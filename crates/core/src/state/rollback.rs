//! Undoing: `compensation`. Each undo is then a call of its own, newest commit first.

use super::step::Status;
use super::{Rollback, State, Why};
use crate::body::{Compensation, Undo};
use crate::document::Outcome;
use crate::ids::StepId;

impl State {
    pub(super) fn may_compensate(&self) -> Result<(), Why> {
        if self.rollback.is_some() {
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
            if committed >= above || self.steps.contains_key(&id) {
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
