//! Bodies of everything but calls, and the table from an offer to its body.

use super::calls::other;
use super::{Cast, Dice, SampleError, environment, person, sample_plan};
use crate::amounts::Amounts;
use crate::body::{
    Approval, Attempt, CancelRequested, Check, CheckVerdict, Checkpoint, Compensation, Completed,
    Confirmation, ConfirmationMode, Delegation, DelegationResult, Delivered, Delivery, End, Erased,
    InDoubt, LateEffect, OnChildFailure, OnStop, Origin, Purpose, Registration, Resolution, Signal,
    StepKind, Stopped, Timer, Undo, Waiting,
};
use crate::content::Content;
use crate::digest::EntryId;
use crate::document::{
    ApprovalStatement, ApprovalVerdict, CallResult, Failing, FreezeTarget, Outcome,
    RegistrationStatement, RegistryItem, ResolutionStatement, ResolutionVerdict, ResolvedBy,
    Settlement, Verdict,
};
use crate::entry::{Body, Head};
use crate::ids::{StepId, TrajectoryId};
use crate::json::Canon;
use crate::signed::{Signed, Tag};
use crate::state::{Act, Offer, Scope, State, Status};
use crate::time::UnixMs;
use crate::world::{Delta, ResourceRef};

impl Cast {
    /// A body that makes good the offer.
    pub fn body(
        &self,
        state: &State,
        offer: &Offer,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        let step: StepId = match &offer.on {
            Scope::Trajectory => "none".parse()?,
            Scope::Step(step) => step.clone(),
            Scope::Below(node) => format!("{node}/call/{}", dice.below(1 << 40)).parse()?,
            Scope::NewStep => format!("call-{}", dice.below(1 << 40)).parse()?,
        };
        let step = &step;
        match offer.act {
            Act::Begin => self.root(Purpose::Job(self.mandate(state.trajectory())?)),
            Act::Plan => Ok(Body::Plan(Box::new(sample_plan()?))),
            Act::Attempt => {
                let (note, environment) = ("claimed".to_owned(), environment());
                let body = Attempt { died: None, environment, note, restored: None };
                Ok(Body::Attempt(Box::new(body)))
            }
            Act::Start => self.started(state, step, now, dice),
            Act::CommitEffect => self.commit_effect(state, step, now),
            Act::CommitComputed | Act::CommitSkipped | Act::CommitWoken | Act::CommitRecorded => {
                self.commit_effectless(state, step, offer.act)
            }
            Act::Fail(failed) => self.failure(state, step, failed, (now, dice)),
            Act::FailUnstarted => self.failure_unstarted(state, step, now),
            Act::Reject => self.rejection(state, step, now, dice),
            Act::Escalate => self.pending_approval(state, step, now),
            Act::Approve => self.approval(state, step, now, dice),
            Act::Doubt => Self::in_doubt(state, step),
            Act::ResolveHappened
            | Act::ResolveDidNotHappen
            | Act::ResolveForced
            | Act::ResolveGiveUp => self.resolution(state, step, offer.act, now),
            Act::LateEffect => self.late_effect(state, now),
            Act::Confirm => Self::confirmation(step, dice),
            Act::ConfirmByPerson => Self::confirmed(state, step),
            Act::Compensate => Self::compensation(state),
            Act::Wait => Self::waiting(state, step, now, dice),
            Act::Signal => Self::signal(dice),
            Act::FireTimer => Self::timer(state, step),
            Act::Delegate => self.delegation(state, step, now, dice),
            Act::PullChild => Self::delegation_result(state, step, dice),
            Act::Deliver => Self::delivered(state, step),
            Act::Checkpoint => {
                Ok(Body::Checkpoint(Box::new(Checkpoint { world: state.world().digest() })))
            }
            Act::Register => self.registration(state, freeze_or_thaw(state)?, now),
            Act::Erase => Ok(Body::Erased(Box::new(Erased {
                reason: "asked for".to_owned(),
                what: other("data key"),
            }))),
            Act::RequestCancel => Ok(cancel_requested(dice.below(2) == 0)),
            Act::Complete => Ok(Body::Completed(Box::new(Completed {
                answer: Content::Inline(Canon::parse(br#"{"refunded":1999}"#)?),
                run_hash: state.run_hash()?,
            }))),
            Act::EndFailed => Ok(Body::Failed(Box::new(stopped(state, "a step failed")?))),
            Act::EndCancelled => Ok(Body::Cancelled(Box::new(stopped(state, "cancelled")?))),
        }
    }

    fn commit_effectless(
        &self,
        state: &State,
        step: &StepId,
        act: Act,
    ) -> Result<Body, SampleError> {
        let origin = match act {
            Act::CommitComputed => Origin::Computed,
            Act::CommitSkipped => Origin::Skipped,
            Act::CommitWoken => Origin::Woken {
                by: state.woken_by(step).ok_or(SampleError::NothingTo(Act::CommitWoken))?,
            },
            _ => Origin::RecordedFrom {
                commit: EntryId::new(other("source commit")),
                proposal: Box::new(self.proposal(step)?),
            },
        };
        let value = if act == Act::CommitSkipped {
            Canon::null()
        } else {
            Canon::parse(br#"{"total":1999}"#)?
        };
        let settlement = Settlement {
            cost: Amounts::default(),
            delta: Delta::default(),
            observation: Content::Inline(value),
        };
        self.commit(state, step, origin, Outcome::Pure, settlement)
    }

    fn approval(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        let Some(Status::Pending(pending)) = state.step(step).map(|step| &step.status) else {
            return Err(SampleError::NothingTo(Act::Approve));
        };
        let verdict =
            if dice.below(4) == 0 { ApprovalVerdict::Deny } else { ApprovalVerdict::Approve };
        let statement = ApprovalStatement {
            approver: person()?,
            at: now,
            expires: now.plus(60_000),
            key: self.approver.id(),
            note: None,
            pending: pending.entry,
            type_: Tag::default(),
            verdict,
        };
        let statement = Signed::sign(statement, &self.approver)?;
        Ok(Body::Approval(Box::new(Approval { statement, step: step.clone() })))
    }

    fn in_doubt(state: &State, step: &StepId) -> Result<Body, SampleError> {
        Ok(Body::InDoubt(Box::new(InDoubt {
            known: Failing {
                code: "no_reply".to_owned(),
                message: "the connection died after sending".to_owned(),
            },
            output: None,
            started: Self::opened(state, step, Act::Doubt)?.started,
            step: step.clone(),
        })))
    }

    fn resolution(
        &self,
        state: &State,
        step: &StepId,
        act: Act,
        now: UnixMs,
    ) -> Result<Body, SampleError> {
        let doubt = match state.step(step).map(|step| &step.status) {
            Some(Status::InDoubt { entry, .. } | Status::Blocked { entry }) => *entry,
            _ => return Err(SampleError::NothingTo(act)),
        };
        let verdict = match act {
            Act::ResolveHappened => ResolutionVerdict::Happened(self.settlement(state, step)?),
            Act::ResolveGiveUp => ResolutionVerdict::GiveUp,
            _ => ResolutionVerdict::DidNotHappen,
        };
        let statement = ResolutionStatement {
            at: now,
            doubt,
            evidence: Content::Inline(Canon::parse(br#"{"seen":"statement of account"}"#)?),
            forced: act == Act::ResolveForced,
            key: self.operator.id(),
            source: ResolvedBy::Operator,
            type_: Tag::default(),
            verdict,
        };
        let statement = Signed::sign(statement, &self.operator)?;
        Ok(Body::Resolution(Box::new(Resolution { statement, step: step.clone() })))
    }

    /// The first effect that could still arrive late. Costs as much as there are steps.
    fn late_effect(&self, state: &State, now: UnixMs) -> Result<Body, SampleError> {
        let late = state.steps().find_map(|(id, step)| Some((id.clone(), step.late().next()?)));
        let (step, started) = late.ok_or(SampleError::NothingTo(Act::LateEffect))?;
        let result = CallResult::Succeeded(self.settlement(state, &step)?);
        let report = self.report(state, &step, started, result, now)?;
        Ok(Body::LateEffect(Box::new(LateEffect { report, step })))
    }

    fn confirmation(step: &StepId, dice: &mut Dice) -> Result<Body, SampleError> {
        let modes = [ConfirmationMode::Warn, ConfirmationMode::Human, ConfirmationMode::Strict];
        let verdicts = [CheckVerdict::Ok, CheckVerdict::Unknown, CheckVerdict::Mismatch];
        Ok(Body::Confirmation(Box::new(Confirmation {
            checks: vec![Check {
                found: Canon::parse(br#"{"etag":"7"}"#)?,
                resource: ResourceRef { id: "charge".into(), type_: "refund".parse()? },
                verdict: dice.pick(&verdicts).copied().unwrap_or(CheckVerdict::Ok),
                verifier: "http".to_owned(),
            }],
            confirms: None,
            mode: dice.pick(&modes).copied().unwrap_or(ConfirmationMode::Warn),
            step: step.clone(),
        })))
    }

    fn confirmed(state: &State, step: &StepId) -> Result<Body, SampleError> {
        let parked = state.parked().find(|parked| parked.step == *step);
        Ok(Body::Confirmation(Box::new(Confirmation {
            checks: Vec::new(),
            confirms: Some(parked.ok_or(SampleError::NothingTo(Act::ConfirmByPerson))?.entry),
            mode: ConfirmationMode::Human,
            step: step.clone(),
        })))
    }

    fn compensation(state: &State) -> Result<Body, SampleError> {
        let mut undo: Vec<(u64, Undo)> = state
            .steps()
            .filter(|(_, there)| !there.inherited)
            .filter(|(step, _)| step.undo().is_ok_and(|undo| state.step(&undo).is_none()))
            .filter_map(|(step, there)| match there.status {
                Status::Done { by, outcome: Outcome::SideEffectCommitted } => {
                    Some((by.seq, Undo { commit: by.id, step: step.clone() }))
                }
                _ => None,
            })
            .collect();
        undo.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        Ok(Body::Compensation(Box::new(Compensation {
            reason: "a later step failed".to_owned(),
            undo: undo.into_iter().map(|(_, undo)| undo).collect(),
        })))
    }

    fn waiting(
        state: &State,
        step: &StepId,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        if state.kind_of(step) == Some(StepKind::Loop) {
            let rests = Waiting { key: None, step: step.clone(), until: None };
            return Ok(Body::Waiting(Box::new(rests)));
        }
        let until = (dice.below(2) == 0).then(|| now.plus(500));
        Ok(Body::Waiting(Box::new(Waiting { key: Some("go".parse()?), step: step.clone(), until })))
    }

    fn signal(dice: &mut Dice) -> Result<Body, SampleError> {
        Ok(Body::Signal(Box::new(Signal {
            id: format!("signal-{}", dice.roll()).parse()?,
            key: "go".parse()?,
            payload: Content::Inline(Canon::parse(br#"{"by":"ada"}"#)?),
        })))
    }

    fn timer(state: &State, step: &StepId) -> Result<Body, SampleError> {
        let Some(Status::Waiting { entry, .. }) = state.step(step).map(|step| &step.status) else {
            return Err(SampleError::NothingTo(Act::FireTimer));
        };
        Ok(Body::Timer(Box::new(Timer { step: step.clone(), waiting: *entry })))
    }

    fn delegation(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        let nothing = || SampleError::NothingTo(Act::Delegate);
        let task = Self::task(state)?;
        let generation = state.step(step).map_or(1, |step| step.generation);
        let child = TrajectoryId::of_child(state.trajectory(), step, generation);
        let (id, writ) = state.writ().ok_or_else(nothing)?;
        let narrowed = crate::writ::Writ {
            budget: Self::childs(&writ.budget),
            depth: writ.depth.saturating_sub(1),
            key: self.agent.id(),
            parent: Some(id),
            trajectory: Some(child),
            ..writ.clone()
        };
        let proposal = task.proposal(step)?;
        Ok(Body::Delegation(Box::new(Delegation {
            child,
            decision: self.decision(state, &proposal, Verdict::Allow, None, now)?,
            on_failure: match dice.below(4) {
                0 => OnChildFailure::Return,
                _ => OnChildFailure::Fail,
            },
            on_stop: if dice.below(4) == 0 { OnStop::Wait } else { OnStop::Cancel },
            step: step.clone(),
            task,
            writ: Signed::sign(narrowed, &self.agent)?,
        })))
    }

    fn delegation_result(
        state: &State,
        step: &StepId,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        let Some(Status::Delegated { child, .. }) = state.step(step).map(|step| &step.status)
        else {
            return Err(SampleError::NothingTo(Act::PullChild));
        };
        let ends = [End::Completed, End::Completed, End::Failed, End::Cancelled];
        Ok(Body::DelegationResult(Box::new(DelegationResult {
            answer: Content::Inline(Canon::parse(br#"{"invoice":"2026-17"}"#)?),
            child: *child,
            end: dice.pick(&ends).copied().unwrap_or(End::Completed),
            head: Head { id: EntryId::new(other("child head")), seq: 9 },
            spent: Amounts::ONE_CALL,
            step: step.clone(),
        })))
    }

    fn delivered(state: &State, step: &StepId) -> Result<Body, SampleError> {
        let head = Head { id: EntryId::new(other("other head")), seq: 9 };
        let owed = match state.owes_parent() {
            Some(parent) => Some((Delivery::Result, parent, None)),
            None => match state.step(step).map(|step| &step.status) {
                Some(Status::Delegated { child, terms, .. }) => {
                    let what = if terms.begun { Delivery::Cancel } else { Delivery::Beginning };
                    Some((what, *child, Some(step.clone())))
                }
                _ => None,
            },
        };
        let (what, to, step) = owed.ok_or(SampleError::NothingTo(Act::Deliver))?;
        Ok(Body::Delivered(Box::new(Delivered { head, step, to, what })))
    }

    /// A registration, signed by the owner.
    pub fn registration(
        &self,
        state: &State,
        item: RegistryItem,
        now: UnixMs,
    ) -> Result<Body, SampleError> {
        let statement = RegistrationStatement {
            at: now,
            item,
            key: self.owner.id(),
            note: None,
            parent: state.head().ok_or(SampleError::NothingTo(Act::Register))?.id,
            registry: state.trajectory(),
            type_: Tag::default(),
        };
        Ok(Body::Registration(Box::new(Registration {
            statement: Signed::sign(statement, &self.owner)?,
        })))
    }
}

fn freeze_or_thaw(state: &State) -> Result<RegistryItem, SampleError> {
    let target = FreezeTarget::Tool("mail.send".parse()?);
    if state.registry().is_frozen(&target) {
        Ok(RegistryItem::Unfreeze(target))
    } else {
        Ok(RegistryItem::Freeze(target))
    }
}

fn stopped(state: &State, why: &str) -> Result<Stopped, SampleError> {
    Ok(Stopped {
        error: Failing { code: "stopped".to_owned(), message: why.to_owned() },
        run_hash: state.run_hash()?,
    })
}

fn cancel_requested(compensate: bool) -> Body {
    Body::CancelRequested(Box::new(CancelRequested { compensate, reason: "no need".to_owned() }))
}
