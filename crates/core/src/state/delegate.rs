//! Handing a task to a child: `delegation`, `delegation_result`.

use super::settle::Done;
use super::step::{RowOutcome, RunRow, Status};
use super::{State, Why};
use crate::body::{Delegation, DelegationResult, End, StepKind};
use crate::digest::{Digest, EntryId};
use crate::document::Outcome;
use crate::entry::Entry;
use crate::ids::{StepId, TrajectoryId};
use crate::time::UnixMs;
use crate::world::Delta;

impl State {
    pub(super) fn may_delegate(&self, id: &StepId) -> Result<(), Why> {
        self.may_work(id, &[StepKind::Delegate])
    }

    /// The child's writ narrows ours, roots the child, and its budget is carved out of what is left.
    pub(super) fn delegation(
        &mut self,
        body: &Delegation,
        entry: EntryId,
        at: UnixMs,
    ) -> Result<(), Why> {
        let id = &body.step;
        self.may_delegate(id)?;
        let mut step = self.step_or_fresh(id);
        if body.child != TrajectoryId::of_child(self.trajectory, id, step.generation) {
            return Err(Why::ChildId);
        }
        let (writ_id, writ) = self.writ().ok_or(Why::WrongKindOfTrajectory)?;
        let child = body.writ.doc();
        child.narrows(writ, writ_id)?;
        if child.trajectory != Some(body.child) {
            return Err(Why::WritElsewhere);
        }
        if !writ.window.contains(at) {
            return Err(Why::WritWindow);
        }
        let carved = child.budget.carved();
        let used = self.spent.plus(self.reserved).plus(carved);
        if let Some(dimension) = writ.budget.exceeded_by(&used) {
            return Err(Why::Budget(dimension));
        }
        self.reserved = self.reserved.plus(carved);
        step.status = Status::Delegated { entry, child: body.child, carved: Box::new(carved) };
        self.put(id, step);
        Ok(())
    }

    pub(super) fn delegation_result(
        &mut self,
        body: &DelegationResult,
        entry: &Entry,
    ) -> Result<(), Why> {
        let id = &body.step;
        let carved = match self.step(id).map(|step| &step.status) {
            Some(Status::Delegated { child, carved, .. }) if *child == body.child => **carved,
            Some(Status::Delegated { .. }) => return Err(Why::OtherChild),
            other => {
                return Err(Why::StepStatus {
                    step: id.clone(),
                    status: other.map_or("idle", Status::as_str),
                });
            }
        };
        let mut step = self.step_or_fresh(id);
        if body.end == End::Completed {
            let empty: Digest = Delta::default().digest()?;
            let done =
                Done { outcome: Outcome::Pure, observation: body.answer.digest(), delta: empty };
            let closed = done.settle(id, step, entry)?;
            self.put_done(id, closed);
        } else {
            let outcome = RowOutcome::Step(Outcome::PermanentFailure);
            step.row = Some(RunRow::new(id, &step, outcome).digest()?);
            step.status = Status::Failed { by: entry.head() };
            self.put(id, step);
        }
        self.reserved = self.reserved.minus(carved);
        self.spent = self.spent.plus(body.spent);
        Ok(())
    }
}
