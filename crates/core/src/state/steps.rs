//! Keeping the indexes over steps in step: every change of a step goes through [`State::put`].

use std::sync::Arc;

use rpds::RedBlackTreeSetSync;

use super::step::{Status, Step};
use super::{State, Why};
use crate::body::StepKind;
use crate::ids::{SignalKey, StepId};
use crate::projection::TrajectoryKind;

impl State {
    /// A step, fresh if nothing has happened to it.
    pub(super) fn step_or_fresh(&self, id: &StepId) -> Step {
        self.step(id).cloned().unwrap_or_else(Step::fresh)
    }

    /// Whether anything has happened to a step.
    pub(super) fn knows(&self, id: &StepId) -> bool {
        self.steps.contains_key(id) || self.settled.contains(id)
    }

    /// Stores a step and brings every index up to date. Infallible: callers have checked.
    pub(super) fn put(&mut self, id: &StepId, mut step: Step) {
        if step.status.settled() {
            // Nothing binds it any more: what is to be known of it is in its row.
            step.frozen = None;
            step.grant = None;
        }
        if !matches!(step.status, Status::Idle | Status::Unknown { .. }) {
            step.retry_at = None;
        }
        let old = self.steps.get(id).map(Arc::clone);
        if let Some(old) = &old {
            self.unindex(id, old);
        }
        self.index(id, &step);
        let was_settled = old.as_ref().is_some_and(|old| old.status.settled());
        let settled = step.status.settled() && !was_settled;
        let done = matches!(step.status, Status::Done { .. });
        if !self.settled.insert(id, &step) {
            self.steps.insert_mut(id.clone(), Arc::new(step));
        } else if old.is_some() {
            self.steps.remove_mut(id);
        }
        if settled && id.is_node() {
            self.node_settled(id, done);
        }
    }

    fn index(&mut self, id: &StepId, step: &Step) {
        let status = &step.status;
        self.late += step.late().count();
        match status {
            Status::Idle => {
                self.idle.insert_mut(id.clone());
            }
            Status::Done { .. } | Status::Failed { .. } => {
                self.idle.remove_mut(id);
            }
            _ => {
                self.idle.remove_mut(id);
                self.busy.insert_mut(id.clone());
            }
        }
        self.holding += usize::from(status.holds());
        self.wanting += usize::from(step.wants_worker());
        self.resting += usize::from(step.rests());
        if let Some(at) = step.wakes_at() {
            self.timers.insert_mut((at, id.clone()));
        }
        if let Status::Waiting { key: Some(key), .. } = status {
            let mut steps = self.waits.get(key).cloned().unwrap_or_default();
            steps.insert_mut(id.clone());
            self.waits.insert_mut(key.clone(), steps);
            self.meet(key);
        }
    }

    fn unindex(&mut self, id: &StepId, step: &Step) {
        let status = &step.status;
        self.late -= step.late().count();
        self.busy.remove_mut(id);
        self.holding -= usize::from(status.holds());
        self.wanting -= usize::from(step.wants_worker());
        self.resting -= usize::from(step.rests());
        if let Some(at) = step.wakes_at() {
            self.timers.remove_mut(&(at, id.clone()));
        }
        if let Status::Waiting { key: Some(key), .. } = status {
            let mut steps =
                self.waits.get(key).cloned().unwrap_or_else(RedBlackTreeSetSync::default);
            steps.remove_mut(id);
            if steps.is_empty() {
                self.waits.remove_mut(key);
            } else {
                self.waits.insert_mut(key.clone(), steps);
            }
            self.meet(key);
        }
    }

    /// Notes whether a key has both a signal and a wait.
    pub(super) fn meet(&mut self, key: &SignalKey) {
        if self.waits.contains_key(key) && self.mailbox.contains_key(key) {
            self.meetings.insert_mut(key.clone());
        } else {
            self.meetings.remove_mut(key);
        }
    }

    /// A node has ended: what needs it may be ready, and steps below it are abandoned.
    fn node_settled(&mut self, id: &StepId, done: bool) {
        self.unconfirmed.remove_mut(id);
        let abandoned: Vec<StepId> = below(&self.idle, id).cloned().collect();
        for step in abandoned {
            // It is not tried again, so its time wakes nobody.
            let mut rested = self.step_or_fresh(&step);
            if rested.retry_at.take().is_some() {
                self.put(&step, rested);
            }
            self.idle.remove_mut(&step);
            self.unconfirmed.remove_mut(&step);
        }
        let Some(plan) = self.plan.clone() else { return };
        let Some(node) = plan.nodes.get(id) else { return };
        if !done {
            self.failing = true;
            return;
        }
        self.nodes_left -= 1;
        for dependent in &node.dependents {
            let left = self.missing.get(dependent).map_or(0, |missing| missing.saturating_sub(1));
            if left == 0 {
                self.missing.remove_mut(dependent);
                if !self.knows(dependent) {
                    self.idle.insert_mut(dependent.clone());
                }
            } else {
                self.missing.insert_mut(dependent.clone(), left);
            }
        }
    }

    /// Whether a step may be worked on at all: in the plan, ready, of a fitting kind, idle. Which
    /// kinds of node fit is the caller's to say; steps below a loop, and of a session, always do.
    pub(super) fn may_work(&self, id: &StepId, kinds: &[StepKind]) -> Result<(), Why> {
        self.may_look_at(id, kinds)?;
        self.check_confirmed(id)
    }

    /// The same, whether or not a person must confirm something first.
    pub(super) fn may_look_at(&self, id: &StepId, kinds: &[StepKind]) -> Result<(), Why> {
        if self.failing || self.cancelling.is_some() || self.rollback.is_some() {
            return Err(Why::Stopping);
        }
        self.fits(id, kinds)?;
        let step = self.step(id);
        let asks = step.and_then(|step| step.frozen.as_ref()).map(|frozen| {
            if frozen.tool.delegates().is_some() { StepKind::Delegate } else { StepKind::Call }
        });
        if asks.is_some_and(|asks| !kinds.contains(&asks)) {
            return Err(Why::Frozen(id.clone()));
        }
        check_idle_step(id, step)
    }

    /// Whether a step with this id belongs here and may do this kind of thing.
    pub(super) fn fits(&self, id: &StepId, kinds: &[StepKind]) -> Result<(), Why> {
        if self.kind() == Some(TrajectoryKind::Session) {
            return Ok(());
        }
        let plan = self.plan.as_ref().ok_or(Why::NoPlan)?;
        let node_id = id.node();
        let node = plan.nodes.get(&node_id).ok_or_else(|| Why::NotPlanned(id.clone()))?;
        if self.missing.contains_key(&node_id) {
            return Err(Why::NotReady(id.clone()));
        }
        if id.is_node() {
            return if kinds.contains(&node.kind) {
                Ok(())
            } else {
                Err(Why::WrongStepKind(id.clone()))
            };
        }
        if node.kind != StepKind::Loop {
            return Err(Why::WrongStepKind(id.clone()));
        }
        match self.step(&node_id) {
            Some(step) if step.status != Status::Idle => {
                Err(Why::StepStatus { step: node_id, status: step.status.as_str() })
            }
            _ => Ok(()),
        }
    }

    /// Whether a step is idle and needs no confirmation.
    pub(super) fn check_idle(&self, id: &StepId) -> Result<(), Why> {
        check_idle_step(id, self.step(id))?;
        self.check_confirmed(id)
    }

    fn check_confirmed(&self, id: &StepId) -> Result<(), Why> {
        if self.unconfirmed.contains_key(id) { Err(Why::Unconfirmed(id.clone())) } else { Ok(()) }
    }

    /// Whether no step below this one is busy.
    pub(super) fn check_nothing_below(&self, id: &StepId) -> Result<(), Why> {
        if below(&self.busy, id).next().is_some() {
            Err(Why::OpenBelow(id.clone()))
        } else {
            Ok(())
        }
    }
}

fn check_idle_step(id: &StepId, step: Option<&Step>) -> Result<(), Why> {
    match step {
        Some(step) if step.status != Status::Idle => {
            Err(Why::StepStatus { step: id.clone(), status: step.status.as_str() })
        }
        _ => Ok(()),
    }
}

/// The steps below a node, without looking at any other.
fn below<'a>(
    steps: &'a RedBlackTreeSetSync<StepId>,
    id: &StepId,
) -> impl Iterator<Item = &'a StepId> {
    // `-` sorts before every other character that may follow the slash.
    let from = (!steps.is_empty()).then(|| format!("{id}/-"));
    let from = from.and_then(|from| from.parse::<StepId>().ok());
    let prefix = id.clone();
    from.into_iter().flat_map(|from| steps.range(from..)).take_while(move |step| {
        step.as_str().strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('/'))
    })
}
