//! Bodies of the path of a call: decision, permit, started, commit, failure, rejection.

use super::{CALL_COST, Cast, Dice, SampleError, compiler, environment};
use crate::amounts::{Amounts, Budget};
use crate::body::{
    Commit, Failure, Origin, PendingApproval, Proposal, Rejection, Started, StepKind, Task,
    step_seed,
};
use crate::content::Content;
use crate::digest::{Digest, PermitId};
use crate::document::{
    CallResult, Decision, EffectReport, Failing, Outcome, Permit, Reason, Receipt, ReceiptResult,
    Recovery, Settlement, Stage, Verdict,
};
use crate::entry::Body;
use crate::ids::StepId;
use crate::json::Canon;
use crate::signed::{Signed, Tag};
use crate::state::{Act, Failed, Opened, State, Status};
use crate::time::UnixMs;
use crate::world::{Change, Delta, ResourceRef};
use crate::writ::Effect;

/// How the calls of a cast look.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallStyle {
    /// Always this effect and recovery; by chance otherwise.
    pub fixed: Option<(Effect, Recovery)>,
    /// How many bytes of padding an observation carries.
    pub padding: usize,
    /// Leave the world as it is.
    pub quiet: bool,
    /// What may be tried again sometimes says when.
    pub rests: bool,
    /// What the writs allow in all.
    pub budget: Budget,
}

impl Cast {
    /// What a step proposes. The same step always proposes the same.
    pub fn proposal(&self, step: &StepId) -> Result<Proposal, SampleError> {
        Ok(Proposal {
            args: Canon::of(&serde_json::json!({ "amount": 1999, "for": step.as_str() }))?,
            step: step.clone(),
            tool: if step.as_str().contains("mail") {
                "mail.send".parse()?
            } else {
                "pay.refund".parse()?
            },
        })
    }

    /// What a step proposes: to hand on its task, if that is what the plan says it does.
    fn proposes(&self, state: &State, step: &StepId) -> Result<Proposal, SampleError> {
        match state.kind_of(step) {
            Some(StepKind::Delegate) => Ok(Self::task(state)?.proposal(step)?),
            _ => self.proposal(step),
        }
    }

    /// What every delegation hands on: all that there is, unless the child's writ says how much.
    pub(super) fn task(state: &State) -> Result<Task, SampleError> {
        let (_, writ) = state.writ().ok_or(SampleError::NothingTo(Act::Delegate))?;
        Ok(Task {
            budget: Budget::default(),
            depth: writ.depth.saturating_sub(1),
            effect: writ.effect,
            input: Content::Inline(Canon::parse(br#"{"find":"the invoice"}"#)?),
            job: "research".to_owned(),
            plan: other("the child's plan"),
            principal: writ.principal.clone(),
            tools: writ.tools.clone(),
        })
    }

    /// What a child gets of a limited budget: what two calls cost.
    pub(super) fn childs(budget: &Budget) -> Budget {
        budget.where_limited(CALL_COST.plus(CALL_COST))
    }

    pub(super) fn decision(
        &self,
        state: &State,
        proposal: &Proposal,
        verdict: Verdict,
        reason: Option<Reason>,
        now: UnixMs,
    ) -> Result<Signed<Decision>, SampleError> {
        let nothing = || SampleError::NothingTo(Act::Start);
        let decision = Decision {
            at: now,
            environment: environment().digest()?,
            key: self.guardian.id(),
            parent: state.head().ok_or_else(nothing)?.id,
            proposal: proposal.id()?,
            reason,
            registry: None,
            step: proposal.step.clone(),
            trace: vec![Stage { found: None, stage: "authority".to_owned() }],
            trajectory: state.trajectory(),
            type_: Tag::default(),
            verdict,
            writ: state.writ().ok_or_else(nothing)?.0,
        };
        Ok(Signed::sign(decision, &self.guardian)?)
    }

    pub(super) fn started(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        let nothing = || SampleError::NothingTo(Act::Start);
        let proposal = self.proposal(step)?;
        let decision = self.decision(state, &proposal, Verdict::Allow, None, now)?;
        let there = state.step(step);
        let (effect, recovery, compensates) = match there.map(|step| &step.status) {
            Some(Status::Unknown { opened, .. }) => {
                (opened.effect, opened.recovery, opened.compensates)
            }
            _ => {
                let (effect, recovery) = self.style.fixed.unwrap_or_else(|| any_class(dice));
                (effect, recovery, state.to_undo().map(|undo| undo.commit))
            }
        };
        let generation = there.map_or(1, |step| step.generation);
        let permit = Permit {
            attempt: state.attempt(),
            dead_at: now.plus(900),
            decision: decision.id(),
            dispatch_by: now.plus(300),
            effect,
            generation,
            idempotency_key: proposal.idempotency_key(state.trajectory()),
            key: self.guardian.id(),
            recovery,
            reserve: CALL_COST,
            type_: Tag::default(),
        };
        Ok(Body::Started(Box::new(Started {
            compensates,
            decision,
            permit: Signed::sign(permit, &self.guardian)?,
            proposal,
            seed: step_seed(state.seed().ok_or_else(nothing)?, step, generation),
        })))
    }

    /// What a successful call of this step leaves behind.
    pub(super) fn settlement(
        &self,
        state: &State,
        step: &StepId,
    ) -> Result<Settlement, SampleError> {
        let order = ResourceRef { id: step.as_str().into(), type_: "refund".parse()? };
        let delta = match state.world().get(&order) {
            _ if self.style.quiet => Delta::default(),
            None => {
                let value = Canon::of(&serde_json::json!({ "amount": 1999, "state": "paid" }))?;
                Delta(vec![Change::Create { external: None, resource: order, value }])
            }
            Some(there) => {
                Delta(vec![Change::Retract { expected: there.version, resource: order }])
            }
        };
        let observation = serde_json::json!({ "id": step.as_str(), "ok": true, "pad": "x".repeat(self.style.padding) });
        Ok(Settlement {
            cost: CALL_COST,
            delta,
            observation: Content::Inline(Canon::of(&observation)?),
        })
    }

    pub(super) fn opened<'a>(
        state: &'a State,
        step: &StepId,
        act: Act,
    ) -> Result<&'a Opened, SampleError> {
        match state.step(step).map(|step| &step.status) {
            Some(
                Status::Open(opened)
                | Status::Unknown { opened, .. }
                | Status::InDoubt { opened, .. },
            ) => Ok(opened),
            _ => Err(SampleError::NothingTo(act)),
        }
    }

    /// The executor's own report, needed when another attempt than its own closes the call.
    fn evidence(
        &self,
        state: &State,
        step: &StepId,
        opened: &Opened,
        result: CallResult,
        now: UnixMs,
    ) -> Result<Option<Box<Signed<EffectReport>>>, SampleError> {
        if opened.attempt == state.attempt() {
            return Ok(None);
        }
        self.report(state, step, opened.started, result, now).map(|report| Some(Box::new(report)))
    }

    /// What an executor saw.
    pub fn report(
        &self,
        state: &State,
        step: &StepId,
        started: crate::digest::EntryId,
        result: CallResult,
        now: UnixMs,
    ) -> Result<Signed<EffectReport>, SampleError> {
        let report = EffectReport {
            at: now,
            key: self.executor.id(),
            result,
            started,
            step: step.clone(),
            trajectory: state.trajectory(),
            type_: Tag::default(),
        };
        Ok(Signed::sign(report, &self.executor)?)
    }

    fn receipt(
        &self,
        state: &State,
        step: &StepId,
        permit: Option<PermitId>,
        result: ReceiptResult,
        cost: Amounts,
        now: UnixMs,
    ) -> Result<Signed<Receipt>, SampleError> {
        let (prev, lamport) = state.last_receipt();
        let receipt = Receipt {
            at: now,
            cost,
            key: self.executor.id(),
            lamport: lamport + 1,
            permit,
            prev,
            result,
            step: step.clone(),
            trajectory: state.trajectory(),
            type_: Tag::default(),
        };
        Ok(Signed::sign(receipt, &self.executor)?)
    }

    pub(super) fn commit_effect(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
    ) -> Result<Body, SampleError> {
        let opened = Self::opened(state, step, Act::CommitEffect)?;
        let settlement = self.settlement(state, step)?;
        let outcome = match (opened.compensates, opened.effect) {
            (Some(_), _) => Outcome::Compensated,
            (None, Effect::Read) => Outcome::Pure,
            (None, _) => Outcome::SideEffectCommitted,
        };
        let result = ReceiptResult::Committed {
            delta: settlement.delta.digest()?,
            observation: settlement.observation.digest(),
            outcome,
        };
        let origin = Origin::Effect {
            evidence: self.evidence(
                state,
                step,
                opened,
                CallResult::Succeeded(settlement.clone()),
                now,
            )?,
            proposal: self.proposal(step)?.id()?,
            receipt: Box::new(self.receipt(
                state,
                step,
                Some(opened.permit),
                result,
                settlement.cost,
                now,
            )?),
            started: opened.started,
        };
        self.commit(state, step, origin, outcome, settlement)
    }

    pub(super) fn commit(
        &self,
        state: &State,
        step: &StepId,
        origin: Origin,
        outcome: Outcome,
        settlement: Settlement,
    ) -> Result<Body, SampleError> {
        let Settlement { cost, delta, observation } = settlement;
        Ok(Body::Commit(Box::new(Commit {
            compiler: compiler(),
            cost,
            delta,
            observation,
            origin,
            outcome,
            parent_commit: state.last_commit(),
            step: step.clone(),
            writ: state.writ().ok_or(SampleError::NothingTo(Act::CommitEffect))?.0,
        })))
    }

    pub(super) fn failure(
        &self,
        state: &State,
        step: &StepId,
        failed: Failed,
        (now, dice): (UnixMs, &mut Dice),
    ) -> Result<Body, SampleError> {
        use crate::document::Certainty::{DidNotHappen, Happened, Unknown};
        let opened = Self::opened(state, step, Act::Fail(failed))?;
        let (outcome, certainty, dispatched) = failed.parts();
        let cost = if certainty == Happened { CALL_COST } else { Amounts::default() };
        let error =
            Failing { code: "tool_error".to_owned(), message: "the tool said no".to_owned() };
        let evidence = match certainty {
            Unknown => None,
            DidNotHappen | Happened => {
                let (error, retryable) = (error.clone(), outcome == Outcome::RetryableFailure);
                let result = CallResult::Failed { certainty, cost, error, retryable };
                self.evidence(state, step, opened, result, now)?
            }
        };
        let result = ReceiptResult::Failed { certainty, outcome };
        Ok(Body::Failure(Box::new(Failure {
            certainty,
            cost,
            dispatched,
            error,
            evidence,
            outcome,
            output: None,
            receipt: self.receipt(state, step, Some(opened.permit), result, cost, now)?,
            retry_at: match outcome {
                Outcome::RetryableFailure => self.rest(now, dice),
                _ => None,
            },
            started: Some(opened.started),
            step: step.clone(),
        })))
    }

    pub(super) fn failure_unstarted(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
    ) -> Result<Body, SampleError> {
        let (outcome, certainty, _) = Failed::PermanentDidNotHappen.parts();
        let result = ReceiptResult::Failed { certainty, outcome };
        Ok(Body::Failure(Box::new(Failure {
            certainty,
            cost: Amounts::default(),
            dispatched: false,
            error: Failing {
                code: "expression".to_owned(),
                message: "no such field `total`".to_owned(),
            },
            evidence: None,
            outcome,
            output: None,
            receipt: self.receipt(state, step, None, result, Amounts::default(), now)?,
            retry_at: None,
            started: None,
            step: step.clone(),
        })))
    }

    /// When something is to be tried again, if this cast says so and not at once.
    fn rest(&self, now: UnixMs, dice: &mut Dice) -> Option<UnixMs> {
        (self.style.rests && dice.below(2) == 0).then(|| now.plus(dice.below(2_000)))
    }

    pub(super) fn rejection(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Body, SampleError> {
        let (reason, retry_at) = match state.step(step).map(|step| &step.status) {
            Some(Status::Denied { .. }) => (Reason::ApprovalDenied, None),
            Some(Status::Pending(_)) => (Reason::ApprovalExpired, None),
            _ => match self.rest(now, dice) {
                Some(at) => (Reason::ToolFrozen, Some(at)),
                None => (Reason::PolicyDenied, None),
            },
        };
        let result = ReceiptResult::Refused { reason };
        let proposal = self.proposes(state, step)?;
        Ok(Body::Rejection(Box::new(Rejection {
            decision: self.decision(state, &proposal, Verdict::Deny, Some(reason), now)?,
            proposal,
            receipt: self.receipt(state, step, None, result, Amounts::default(), now)?,
            retry_at,
        })))
    }

    pub(super) fn pending_approval(
        &self,
        state: &State,
        step: &StepId,
        now: UnixMs,
    ) -> Result<Body, SampleError> {
        let proposal = self.proposes(state, step)?;
        Ok(Body::PendingApproval(Box::new(PendingApproval {
            channels: vec!["finance".parse()?],
            deadline: now.plus(60_000),
            decision: self.decision(state, &proposal, Verdict::Escalate, None, now)?,
            proposal,
            quorum: 1,
            reason: "refunds above 10 need a person".to_owned(),
        })))
    }
}

fn any_class(dice: &mut Dice) -> (Effect, Recovery) {
    let effects = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
    let recoveries = [
        Recovery::Safe,
        Recovery::Keyed,
        Recovery::KeyedConcurrent,
        Recovery::Probe,
        Recovery::Never,
    ];
    let effect = dice.pick(&effects).copied().unwrap_or(Effect::Read);
    (effect, dice.pick(&recoveries).copied().unwrap_or(Recovery::Never))
}

/// A digest that stands for something that is not there.
pub(super) fn other(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}
