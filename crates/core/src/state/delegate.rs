//! Handing a task to a child: `delegation`, `delegation_result`; and what the two chains owe each
//! other until it is there: `delivered`.

use super::call::frozen;
use super::settle::Done;
use super::step::{RowOutcome, RunRow, Status, Terms};
use super::{Phase, State, Why};
use crate::body::{
    Delegation, DelegationResult, Delivered, Delivery, End, OnChildFailure, OnStop, StepKind,
};
use crate::digest::{Digest, EntryId};
use crate::document::{Outcome, Verdict};
use crate::entry::Entry;
use crate::ids::{StepId, TrajectoryId};
use crate::time::UnixMs;
use crate::world::Delta;
use crate::writ::Effect;

impl State {
    /// Whether a task may be handed out for this step now, as far as the step itself is concerned.
    pub fn delegable(&self, step: &StepId, now: UnixMs) -> bool {
        self.may_delegate(step, now).is_ok()
    }

    pub(super) fn may_delegate(&self, id: &StepId, now: UnixMs) -> Result<(), Why> {
        self.may_work(id, &[StepKind::Delegate])?;
        if self.rests(id, now) {
            return Err(Why::Resting(id.clone()));
        }
        match self.step(id).and_then(|step| step.grant.as_ref()) {
            Some(grant) if now > grant.expires => Err(Why::ApprovalExpired),
            _ => Ok(()),
        }
    }

    /// It was decided on; the child's writ is what was decided, narrows ours and roots the child; and its
    /// budget is carved out of what is left.
    pub(super) fn delegation(
        &mut self,
        body: &Delegation,
        entry: EntryId,
        at: UnixMs,
    ) -> Result<(), Why> {
        let id = &body.step;
        self.may_delegate(id, at)?;
        let mut step = self.step_or_fresh(id);
        let proposed = body.task.proposal(id)?;
        let proposal = self.check_proposal(&proposed, step.frozen.as_deref())?;
        self.check_decision(&body.decision, proposal, id, Verdict::Allow)?;
        if body.child != TrajectoryId::of_child(self.trajectory, id, step.generation) {
            return Err(Why::ChildId);
        }
        let (writ_id, writ) = self.writ().ok_or(Why::WrongKindOfTrajectory)?;
        let child = body.writ.doc();
        child.narrows(writ, writ_id)?;
        if child.trajectory != Some(body.child) {
            return Err(Why::WritElsewhere);
        }
        if !body.task.is_handed_by(child) {
            return Err(Why::OtherTask);
        }
        if !writ.window.contains(at) {
            return Err(Why::WritWindow);
        }
        let carved = child.budget.carved();
        let used = self.spent().plus(self.reserved).plus(carved);
        if let Some(dimension) = writ.budget.exceeded_by(&used) {
            return Err(Why::Budget(dimension));
        }
        self.reserved = self.reserved.plus(carved);
        let (on_failure, on_stop) = (body.on_failure, body.on_stop);
        let effect = child.effect;
        let terms = Terms { carved, effect, begun: false, told: false, on_failure, on_stop };
        step.frozen.get_or_insert_with(|| frozen(&proposed, proposal));
        // One approval, one child.
        step.grant = None;
        step.status = Status::Delegated { entry, child: body.child, terms: Box::new(terms) };
        self.put(id, step);
        Ok(())
    }

    pub(super) fn delegation_result(
        &mut self,
        body: &DelegationResult,
        entry: &Entry,
    ) -> Result<(), Why> {
        let id = &body.step;
        let terms = match self.step(id).map(|step| &step.status) {
            Some(Status::Delegated { child, terms, .. }) if *child == body.child => **terms,
            Some(Status::Delegated { .. }) => return Err(Why::OtherChild),
            other => {
                return Err(Why::StepStatus {
                    step: id.clone(),
                    status: other.map_or("idle", Status::as_str),
                });
            }
        };
        let mut step = self.step_or_fresh(id);
        if body.end == End::Completed || terms.on_failure == OnChildFailure::Return {
            // A child that could do something, and called, has done something, for all that is known here.
            let acted = terms.effect > Effect::Read && body.spent.calls > 0;
            let outcome = if acted { Outcome::SideEffectCommitted } else { Outcome::Pure };
            let delta: Digest = Delta::default().digest()?;
            let done = Done { outcome, observation: body.answer.digest(), delta };
            let closed = done.settle(id, step, entry)?;
            self.put_done(id, closed);
        } else {
            let outcome = RowOutcome::Step(Outcome::PermanentFailure);
            step.row = Some(RunRow::new(id, &step, outcome).digest()?);
            step.status = Status::Failed { by: entry.head() };
            self.put(id, step);
        }
        self.reserved = self.reserved.minus(terms.carved);
        self.spent = self.spent.plus(body.spent);
        Ok(())
    }

    /// What this chain owes the child of a step, if it owes it something now.
    pub(super) fn owes_child(&self, id: &StepId) -> Option<Delivery> {
        let Some(Status::Delegated { terms, .. }) = self.step(id).map(|step| &step.status) else {
            return None;
        };
        if !terms.begun {
            return Some(Delivery::Beginning);
        }
        let stops = self.stopping() && terms.on_stop == OnStop::Cancel && !terms.told;
        stops.then_some(Delivery::Cancel)
    }

    /// Everything that this chain owes to children now: what, to which, on behalf of which step.
    pub fn owed(&self) -> impl Iterator<Item = (Delivery, TrajectoryId, &StepId)> {
        let live = self.phase == Phase::Live;
        self.busy.iter().filter(move |_| live).filter_map(|id| {
            let what = self.owes_child(id)?;
            match self.step(id).map(|step| &step.status) {
                Some(Status::Delegated { child, .. }) => Some((what, *child, id)),
                _ => None,
            }
        })
    }

    /// The parent that this trajectory has ended for and that is not known to have its result.
    pub fn owes_parent(&self) -> Option<TrajectoryId> {
        let parent = self.beginning.as_ref()?.parent?;
        let ended = matches!(self.phase, Phase::Ended(_));
        (ended && !self.result_delivered).then_some(parent)
    }

    pub(super) fn delivered(&mut self, body: &Delivered) -> Result<(), Why> {
        let id = body.step.as_ref().ok_or(Why::NotOwed)?;
        if self.owes_child(id) != Some(body.what) {
            return Err(Why::NotOwed);
        }
        let mut step = self.step_or_fresh(id);
        match &mut step.status {
            Status::Delegated { child, terms, .. } if *child == body.to => match body.what {
                Delivery::Beginning => terms.begun = true,
                Delivery::Cancel => terms.told = true,
                Delivery::Result => return Err(Why::NotOwed),
            },
            _ => return Err(Why::OtherChild),
        }
        self.put(id, step);
        Ok(())
    }

    /// The only thing that is left to a child once it has ended, and anybody may see to it.
    pub(super) fn result_delivered(&mut self, body: &Delivered) -> Result<(), Why> {
        if body.step.is_some() || self.owes_parent() != Some(body.to) {
            return Err(Why::NotOwed);
        }
        self.result_delivered = true;
        Ok(())
    }
}
