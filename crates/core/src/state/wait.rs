//! Waiting and being woken: `waiting`, `signal`, `timer`.

use rpds::QueueSync;

use super::step::{Status, Step};
use super::{State, Why};
use crate::body::{Signal, StepKind, Timer, Waiting};
use crate::digest::EntryId;
use crate::ids::StepId;
use crate::time::UnixMs;

impl State {
    pub(super) fn may_wait(&self, id: &StepId) -> Result<(), Why> {
        match self.kind_of(id) {
            Some(StepKind::Loop) => self.may_rest(id),
            _ => self.may_work(id, &[StepKind::Wait]),
        }
    }

    /// Whether a loop may say that nothing can be done until something below it moves: if that is so of
    /// every step that could begin. Only whoever tried knows whether more could be begun below it.
    pub(super) fn may_rest(&self, id: &StepId) -> Result<(), Why> {
        self.may_work(id, &[StepKind::Loop])?;
        if self.check_nothing_below(id).is_ok() {
            return Err(Why::WrongStepKind(id.clone()));
        }
        let waits = |id: &StepId| {
            self.unconfirmed.contains_key(id)
                || self.step(id).is_some_and(Step::rests)
                || self.kind_of(id) == Some(StepKind::Loop) && self.check_nothing_below(id).is_err()
        };
        let settled = self.wanting == 0 && self.meetings.is_empty() && !self.quiet;
        if settled && self.idle.iter().all(waits) { Ok(()) } else { Err(Why::Restless) }
    }

    pub(super) fn waiting(&mut self, body: &Waiting, entry: EntryId) -> Result<(), Why> {
        self.may_wait(&body.step)?;
        if self.kind_of(&body.step) == Some(StepKind::Loop) {
            // It stands where it stood: `apply` notes that it is quiet.
            return if body.rests() { Ok(()) } else { Err(Why::WrongStepKind(body.step.clone())) };
        }
        if body.key.is_none() && body.until.is_none() {
            return Err(Why::EmptyWait);
        }
        let mut step = self.step_or_fresh(&body.step);
        step.status = Status::Waiting { entry, key: body.key.clone(), until: body.until };
        self.put(&body.step, step);
        Ok(())
    }

    /// A signal waits in the chain until a wait takes it. The caller's id makes it one signal.
    pub(super) fn signal(&mut self, body: &Signal, entry: EntryId) -> Result<(), Why> {
        if self.signals.contains(&body.id) {
            return Err(Why::SignalTwice);
        }
        self.signals.insert_mut(body.id.clone());
        let mut queue = self.mailbox.get(&body.key).cloned().unwrap_or_else(QueueSync::new_sync);
        queue.enqueue_mut(entry);
        self.mailbox.insert_mut(body.key.clone(), queue);
        self.meet(&body.key);
        Ok(())
    }

    pub(super) fn may_fire(&self, id: &StepId, now: UnixMs) -> Result<EntryId, Why> {
        match self.step(id).map(|step| &step.status) {
            Some(Status::Waiting { entry, until: Some(until), .. }) if now >= *until => Ok(*entry),
            Some(Status::Waiting { .. }) => Err(Why::NotYet),
            other => Err(Why::StepStatus {
                step: id.clone(),
                status: other.map_or("idle", Status::as_str),
            }),
        }
    }

    pub(super) fn timer(&mut self, body: &Timer, entry: EntryId, at: UnixMs) -> Result<(), Why> {
        if self.may_fire(&body.step, at)? != body.waiting {
            return Err(Why::NotWoken);
        }
        let mut step = self.step_or_fresh(&body.step);
        step.status = Status::Fired { timer: entry };
        self.put(&body.step, step);
        Ok(())
    }

    /// What woke a step: its timer, or the oldest signal on its key.
    pub fn woken_by(&self, id: &StepId) -> Option<EntryId> {
        match &self.step(id)?.status {
            Status::Fired { timer } => Some(*timer),
            Status::Waiting { key: Some(key), .. } => self.mailbox.get(key)?.peek().copied(),
            _ => None,
        }
    }

    pub(super) fn check_woken(&self, id: &StepId, by: EntryId) -> Result<(), Why> {
        match self.woken_by(id) {
            Some(woken) if woken == by => Ok(()),
            _ => Err(Why::NotWoken),
        }
    }

    /// Takes the signal that woke a step out of the mailbox.
    pub(super) fn take_signal(&mut self, id: &StepId, by: EntryId) {
        let Some(Status::Waiting { key: Some(key), .. }) =
            self.step(id).map(|step| step.status.clone())
        else {
            return;
        };
        let Some(mut queue) = self.mailbox.get(&key).cloned() else { return };
        if queue.peek() == Some(&by) {
            queue.dequeue_mut();
        }
        if queue.is_empty() {
            self.mailbox.remove_mut(&key);
        } else {
            self.mailbox.insert_mut(key.clone(), queue);
        }
        self.meet(&key);
    }
}
