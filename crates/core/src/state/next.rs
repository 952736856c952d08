//! What may happen now. Built from the very checks that `apply` begins with, and as large as what
//! is in flight, not as the history.

use super::step::Status;
use super::{Phase, State};
use crate::body::{BranchMode, StepKind};
use crate::document::{Certainty, Outcome};
use crate::ids::StepId;
use crate::projection::TrajectoryKind;
use crate::time::UnixMs;

/// Something that may happen now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    /// What.
    pub act: Act,
    /// To what.
    pub on: Scope,
}

/// To what something may happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// To the trajectory.
    Trajectory,
    /// To this step.
    Step(StepId),
    /// To any step below this one that nothing has happened to yet.
    Below(StepId),
    /// To any step that nothing has happened to yet.
    NewStep,
}

/// What may happen: a kind of entry, told apart where one kind closes things in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named after the kinds of entries")]
pub enum Act {
    Begin,
    Plan,
    Attempt,
    Start,
    CommitEffect,
    CommitComputed,
    CommitSkipped,
    CommitWoken,
    CommitRecorded,
    Fail(Failed),
    FailUnstarted,
    Reject,
    Escalate,
    Approve,
    Doubt,
    ResolveHappened,
    ResolveDidNotHappen,
    ResolveForced,
    ResolveGiveUp,
    LateEffect,
    Confirm,
    ConfirmByPerson,
    Compensate,
    Wait,
    Signal,
    FireTimer,
    Delegate,
    PullChild,
    Deliver,
    Checkpoint,
    Register,
    Erase,
    RequestCancel,
    Complete,
    EndFailed,
    EndCancelled,
}

/// How an open call may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "outcome and certainty, spelled out")]
pub enum Failed {
    NotDispatched,
    PermanentNotDispatched,
    RetryableDidNotHappen,
    PermanentDidNotHappen,
    PermanentHappened,
    CompensatableHappened,
    RetryableUnknown,
    PermanentUnknown,
}

impl Failed {
    /// Every way.
    pub const ALL: [Self; 8] = [
        Self::NotDispatched,
        Self::PermanentNotDispatched,
        Self::RetryableDidNotHappen,
        Self::PermanentDidNotHappen,
        Self::PermanentHappened,
        Self::CompensatableHappened,
        Self::RetryableUnknown,
        Self::PermanentUnknown,
    ];

    /// Outcome, certainty, and whether the call was dispatched.
    pub fn parts(self) -> (Outcome, Certainty, bool) {
        match self {
            Self::NotDispatched => (Outcome::RetryableFailure, Certainty::DidNotHappen, false),
            Self::PermanentNotDispatched => {
                (Outcome::PermanentFailure, Certainty::DidNotHappen, false)
            }
            Self::RetryableDidNotHappen => {
                (Outcome::RetryableFailure, Certainty::DidNotHappen, true)
            }
            Self::PermanentDidNotHappen => {
                (Outcome::PermanentFailure, Certainty::DidNotHappen, true)
            }
            Self::PermanentHappened => (Outcome::PermanentFailure, Certainty::Happened, true),
            Self::CompensatableHappened => {
                (Outcome::CompensatableFailure, Certainty::Happened, true)
            }
            Self::RetryableUnknown => (Outcome::RetryableFailure, Certainty::Unknown, true),
            Self::PermanentUnknown => (Outcome::PermanentFailure, Certainty::Unknown, true),
        }
    }
}

impl Act {
    /// Whether anyone allowed may do it; everything else is the owner's.
    pub fn open(self) -> bool {
        use Act::{
            Approve, Attempt, Begin, ConfirmByPerson, Erase, LateEffect, Plan, PullChild, Register,
            RequestCancel, ResolveDidNotHappen, ResolveForced, ResolveGiveUp, ResolveHappened,
            Signal,
        };
        matches!(
            self,
            Begin
                | Plan
                | Attempt
                | Approve
                | ResolveHappened
                | ResolveDidNotHappen
                | ResolveForced
                | ResolveGiveUp
                | LateEffect
                | ConfirmByPerson
                | Signal
                | PullChild
                | Register
                | Erase
                | RequestCancel
        )
    }
}

/// Collects offers, leaving out the owner's while there is no owner.
struct Offers {
    owned: bool,
    list: Vec<Offer>,
}

impl Offers {
    fn on(&mut self, act: Act, on: Scope) {
        if act.open() || self.owned {
            self.list.push(Offer { act, on });
        }
    }

    fn step(&mut self, act: Act, step: &StepId, legal: bool) {
        if legal {
            self.on(act, Scope::Step(step.clone()));
        }
    }

    fn whole(&mut self, act: Act, legal: bool) {
        if legal {
            self.on(act, Scope::Trajectory);
        }
    }
}

impl State {
    /// What may happen at `now`. Whatever is not offered, `apply` refuses, but for one thing: a step that
    /// rests is not decided about before its time, or whoever answers offers would have it refused, or
    /// asked about, again and again. Version 1 lets such entries in, so `apply` accepts them for ever.
    pub fn next(&self, now: UnixMs) -> Vec<Offer> {
        let mut offers = Offers { owned: self.attempt > 0, list: Vec::new() };
        match self.phase {
            Phase::Unbegun => offers.whole(Act::Begin, true),
            Phase::Ended(_) => {
                offers.whole(Act::Erase, true);
                offers.whole(Act::LateEffect, self.late > 0);
                offers.whole(Act::Deliver, self.owes_parent().is_some());
            }
            Phase::Live if self.kind() == Some(TrajectoryKind::Registry) => {
                offers.whole(Act::Register, true);
            }
            Phase::Live => {
                self.offer_whole(&mut offers);
                for step in self.idle.iter() {
                    self.offer_idle(step, now, &mut offers);
                }
                for step in self.busy.iter() {
                    self.offer_busy(step, now, &mut offers);
                }
                self.offer_undo(now, &mut offers);
                self.offer_new(&mut offers);
            }
        }
        offers.list
    }

    /// Whether a step is to be proposed again, but not yet.
    pub(super) fn rests(&self, id: &StepId, now: UnixMs) -> bool {
        self.step(id).is_some_and(|step| step.retry_at.is_some_and(|at| now < at))
    }

    /// Whether an approval of this step has run out before it was used, so that people are to be asked
    /// again now.
    pub fn lapsed(&self, id: &StepId, now: UnixMs) -> bool {
        let grant = self.step(id).and_then(|step| step.grant.as_ref());
        grant.is_some_and(|grant| now > grant.expires) && !self.rests(id, now)
    }

    fn offer_whole(&self, offers: &mut Offers) {
        offers.whole(Act::LateEffect, self.late > 0);
        offers.whole(Act::Plan, self.may_plan().is_ok());
        offers.whole(Act::Attempt, true);
        offers.whole(Act::Signal, true);
        offers.whole(Act::Checkpoint, true);
        offers.whole(Act::RequestCancel, self.may_request_cancel().is_ok());
        offers.whole(Act::Compensate, self.may_compensate().is_ok());
        offers.whole(Act::Complete, self.may_complete().is_ok());
        offers.whole(Act::EndFailed, self.may_fail().is_ok());
        offers.whole(Act::EndCancelled, self.may_cancel().is_ok());
        for step in self.unconfirmed.keys() {
            offers.step(Act::ConfirmByPerson, step, true);
        }
    }

    fn offer_idle(&self, step: &StepId, now: UnixMs, offers: &mut Offers) {
        offers.step(Act::Start, step, self.may_start(step, now).is_ok());
        let rests = self.rests(step, now);
        offers.step(Act::Reject, step, !rests && self.may_reject(step, now).is_ok());
        offers.step(Act::Escalate, step, !rests && self.may_escalate(step).is_ok());
        offers.step(Act::CommitComputed, step, self.may_compute(step).is_ok());
        offers.step(Act::CommitSkipped, step, self.may_skip(step).is_ok());
        offers.step(Act::CommitRecorded, step, self.may_take_over(step).is_ok());
        offers.step(Act::FailUnstarted, step, self.may_fail_unstarted(step).is_ok());
        offers.step(Act::Wait, step, self.may_wait(step).is_ok());
        offers.step(Act::Delegate, step, self.may_delegate(step, now).is_ok());
        offers.step(Act::Confirm, step, self.may_confirm(step).is_ok());
    }

    fn offer_busy(&self, id: &StepId, now: UnixMs, offers: &mut Offers) {
        let Some(step) = self.step(id) else { return };
        match &step.status {
            Status::Open(opened) => {
                offers.step(Act::CommitEffect, id, true);
                for failed in Failed::ALL {
                    let (outcome, certainty, dispatched) = failed.parts();
                    let fits = super::settle::failure_fits(opened, outcome, certainty, dispatched);
                    offers.step(Act::Fail(failed), id, fits);
                }
                offers.step(Act::Doubt, id, true);
            }
            Status::Unknown { .. } => {
                let rests = self.rests(id, now);
                offers.step(Act::Start, id, self.may_start(id, now).is_ok());
                offers.step(Act::Reject, id, !rests && self.may_reject(id, now).is_ok());
                offers.step(Act::Doubt, id, true);
            }
            Status::InDoubt { opened, .. } => {
                offers.step(Act::ResolveHappened, id, true);
                offers.step(
                    Act::ResolveDidNotHappen,
                    id,
                    Self::may_deny(opened, false, now).is_ok(),
                );
                offers.step(Act::ResolveForced, id, true);
                offers.step(Act::ResolveGiveUp, id, true);
            }
            Status::Blocked { .. } => {
                offers.step(Act::ResolveDidNotHappen, id, true);
                offers.step(Act::ResolveForced, id, true);
                offers.step(Act::ResolveGiveUp, id, true);
            }
            Status::Pending(_) => {
                offers.step(Act::Approve, id, self.may_approve(id, now).is_ok());
                offers.step(Act::Reject, id, self.may_reject(id, now).is_ok());
            }
            Status::Denied { .. } => offers.step(Act::Reject, id, true),
            Status::Waiting { .. } | Status::Fired { .. } => {
                offers.step(Act::CommitWoken, id, self.woken_by(id).is_some());
                offers.step(Act::FireTimer, id, self.may_fire(id, now).is_ok());
            }
            Status::Delegated { .. } => {
                offers.step(Act::PullChild, id, true);
                offers.step(Act::Deliver, id, self.owes_child(id).is_some());
            }
            Status::Idle | Status::Done { .. } | Status::Failed { .. } => {}
        }
    }

    /// The next undo, when nothing has happened to it yet; once something has, it is idle or busy.
    fn offer_undo(&self, now: UnixMs, offers: &mut Offers) {
        if let Some(undo) = self.next_undo()
            && self.step(&undo).is_none()
        {
            self.offer_idle(&undo, now, offers);
        }
    }

    /// Steps that no plan names: calls of a session, and steps below a loop.
    fn offer_new(&self, offers: &mut Offers) {
        if self.stopping() {
            return;
        }
        if self.kind() == Some(TrajectoryKind::Session) {
            self.offer_unplanned(&Scope::NewStep, offers);
        }
        let Some(plan) = &self.plan else { return };
        for node in self.idle.iter() {
            let is_loop = plan.nodes.get(node).is_some_and(|node| node.kind == StepKind::Loop);
            if is_loop {
                self.offer_unplanned(&Scope::Below(node.clone()), offers);
            }
        }
    }

    fn offer_unplanned(&self, scope: &Scope, offers: &mut Offers) {
        use Act::{
            CommitComputed, CommitSkipped, Confirm, Delegate, Escalate, FailUnstarted, Reject,
            Start, Wait,
        };
        for act in [
            Start,
            Reject,
            Escalate,
            CommitComputed,
            CommitSkipped,
            FailUnstarted,
            Wait,
            Delegate,
            Confirm,
        ] {
            offers.on(act, scope.clone());
        }
        let branch = self.beginning.as_ref().and_then(|beginning| beginning.branch);
        if branch == Some(BranchMode::Recorded) {
            offers.on(Act::CommitRecorded, scope.clone());
        }
    }
}
