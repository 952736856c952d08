//! Opening a call: `started`, and its refusal: `rejection`. What the documents in them must say.

use super::step::{Frozen, Opened, RowOutcome, RunRow, Status, Unaccounted};
use super::{State, Why};
use crate::amounts::Amounts;
use crate::body::{Proposal, Rejection, Started, StepKind, step_seed};
use crate::digest::{Digest, PermitId, ProposalId};
use crate::document::{Decision, Permit, Reason, Receipt, ReceiptResult, Verdict};
use crate::entry::Entry;
use crate::ids::{StepId, ToolName};
use crate::signed::Signed;
use crate::time::UnixMs;

/// Names the first field that differs.
macro_rules! same {
    ($why:path, $($field:literal: $left:expr, $right:expr;)*) => {
        $(if ($left) != ($right) { return Err($why($field)); })*
    };
}

impl State {
    /// Whether a call may be opened for this step now, as far as the step itself is concerned.
    pub fn startable(&self, step: &StepId, now: UnixMs) -> bool {
        self.may_start(step, now).is_ok()
    }

    /// Whether a call may be opened for this step now.
    pub(super) fn may_start(&self, id: &StepId, now: UnixMs) -> Result<(), Why> {
        if self.rests(id, now) {
            return Err(Why::Resting(id.clone()));
        }
        if let Some(step) = self.step(id)
            && let Status::Unknown { opened, refused } = &step.status
        {
            // Sending again under the same key is settling, not starting: it is legal while stopping.
            return if *refused {
                Err(Why::RecoveryRefused)
            } else if opened.recovery.waits_for_death() && now < opened.dead_at {
                Err(Why::TooEarly)
            } else {
                Ok(())
            };
        }
        if self.rollback.is_some() {
            self.is_next_undo(id)?;
            self.check_idle(id)?;
        } else {
            self.may_work(id, &[StepKind::Call])?;
        }
        match self.step(id).and_then(|step| step.grant.as_ref()) {
            Some(grant) if now > grant.expires => Err(Why::ApprovalExpired),
            _ => Ok(()),
        }
    }

    pub(super) fn started(&mut self, body: &Started, entry: &Entry) -> Result<(), Why> {
        let at = entry.payload().at;
        let Started { compensates, decision, permit, proposal, seed } = body;
        let id = &proposal.step;
        self.may_start(id, at)?;
        if *compensates != self.undoes(id) {
            return Err(Why::UndoNext);
        }
        let mut step = self.step_or_fresh(id);
        let proposal_id = self.check_proposal(proposal, step.frozen.as_deref())?;
        self.check_decision(decision, proposal_id, id, Verdict::Allow)?;
        self.check_permit(permit, decision, proposal, (step.generation, at))?;
        let root_seed = self.seed().ok_or(Why::NotBegun)?;
        if *seed != step_seed(root_seed, id, step.generation) {
            return Err(Why::Seed);
        }
        let permit_id = permit.id();
        let permit = permit.doc();
        if let Status::Unknown { opened, .. } = &step.status {
            // What nobody knows about does not become harmless by being sent again.
            same!(Why::Permit,
                "effect": permit.effect, opened.effect;
                "recovery": permit.recovery, opened.recovery;
            );
        }
        self.check_authority(&proposal.tool, permit, at)?;

        step.frozen.get_or_insert_with(|| frozen(proposal, proposal_id));
        step.unaccounted.push(Unaccounted { started: entry.id(), kept: None });
        let again = matches!(step.status, Status::Unknown { .. });
        step.status = Status::Open(Box::new(Opened {
            started: entry.id(),
            permit: permit_id,
            attempt: permit.attempt,
            effect: permit.effect,
            recovery: permit.recovery,
            dead_at: permit.dead_at,
            lasts_ms: permit.dead_at.0.saturating_sub(permit.dispatch_by.0),
            reserve: permit.reserve,
            compensates: *compensates,
            again,
        }));
        self.reserved = self.reserved.plus(permit.reserve);
        self.put(id, step);
        Ok(())
    }

    /// The proposal's id; it must be the frozen one, if one was.
    pub(super) fn check_proposal(
        &self,
        proposal: &Proposal,
        frozen: Option<&Frozen>,
    ) -> Result<ProposalId, Why> {
        let id = proposal.id()?;
        match frozen {
            Some(frozen) if frozen.proposal != id => Err(Why::Frozen(proposal.step.clone())),
            _ => Ok(id),
        }
    }

    pub(super) fn check_decision(
        &self,
        decision: &Signed<Decision>,
        proposal: ProposalId,
        step: &StepId,
        verdict: Verdict,
    ) -> Result<(), Why> {
        let doc = decision.doc();
        let writ = self.writ().map(|(id, _)| id);
        same!(Why::Decision,
            "trajectory": doc.trajectory, self.trajectory;
            "parent": Some(doc.parent), self.head.map(|head| head.id);
            "step": doc.step, *step;
            "proposal": doc.proposal, proposal;
            "writ": Some(doc.writ), writ;
            "environment": Some(doc.environment), self.environment;
            "verdict": doc.verdict, verdict;
            "reason": doc.reason.is_some(), verdict == Verdict::Deny;
        );
        Ok(())
    }

    fn check_permit(
        &self,
        permit: &Signed<Permit>,
        decision: &Signed<Decision>,
        proposal: &Proposal,
        (generation, at): (u64, UnixMs),
    ) -> Result<(), Why> {
        let doc = permit.doc();
        same!(Why::Permit,
            "decision": doc.decision, decision.id();
            "idempotency_key": doc.idempotency_key, proposal.idempotency_key(self.trajectory);
            "generation": doc.generation, generation;
            "attempt": doc.attempt, self.attempt;
            "dispatch_by": doc.dispatch_by >= at, true;
            "dead_at": doc.dead_at >= doc.dispatch_by, true;
        );
        Ok(())
    }

    /// Tool, ceiling, window and budget, as far as the fold knows them.
    fn check_authority(&self, tool: &ToolName, permit: &Permit, at: UnixMs) -> Result<(), Why> {
        let (_, writ) = self.writ().ok_or(Why::WrongKindOfTrajectory)?;
        if !writ.allows(tool) || tool.delegates().is_some() {
            return Err(Why::Tool);
        }
        if permit.effect > writ.effect {
            return Err(Why::Ceiling { effect: permit.effect, ceiling: writ.effect });
        }
        if !writ.window.contains(at) {
            return Err(Why::WritWindow);
        }
        let used = self.spent().plus(self.reserved).plus(permit.reserve);
        writ.budget.exceeded_by(&used).map_or(Ok(()), |dimension| Err(Why::Budget(dimension)))
    }

    /// The receipt must be the next one of the chain of receipts, and say `result`.
    pub(super) fn check_receipt(
        &self,
        receipt: &Signed<Receipt>,
        step: &StepId,
        permit: Option<PermitId>,
        result: ReceiptResult,
    ) -> Result<(), Why> {
        let doc = receipt.doc();
        same!(Why::Receipt,
            "trajectory": doc.trajectory, self.trajectory;
            "step": doc.step, *step;
            "permit": doc.permit, permit;
            "prev": doc.prev, self.last_receipt;
            "lamport": doc.lamport, self.lamport + 1;
            "result": doc.result, result;
        );
        Ok(())
    }

    pub(super) fn take_receipt(&mut self, receipt: &Signed<Receipt>) {
        self.last_receipt = Some(receipt.id());
        self.lamport = receipt.doc().lamport;
    }

    /// For which reasons a proposal for this step may be refused now.
    pub(super) fn may_reject(&self, id: &StepId, now: UnixMs) -> Result<Refusable, Why> {
        match self.step(id).map(|step| &step.status) {
            Some(Status::Denied { .. }) => Ok(Refusable::Only(Reason::ApprovalDenied)),
            Some(Status::Pending(pending)) if now > pending.deadline => {
                Ok(Refusable::Only(Reason::ApprovalExpired))
            }
            Some(Status::Unknown { refused: false, .. }) => Ok(Refusable::Any),
            _ if self.rollback.is_some() => {
                self.is_next_undo(id)?;
                self.check_idle(id)?;
                Ok(Refusable::Any)
            }
            _ => {
                self.may_work(id, &[StepKind::Call, StepKind::Delegate])?;
                Ok(Refusable::Any)
            }
        }
    }

    pub(super) fn rejection(&mut self, body: &Rejection, entry: &Entry) -> Result<(), Why> {
        let Rejection { decision, proposal, receipt, retry_at } = body;
        let id = &proposal.step;
        let refusable = self.may_reject(id, entry.payload().at)?;
        let reason = decision.doc().reason.ok_or(Why::Decision("reason"))?;
        let fits = match refusable {
            Refusable::Only(only) => reason == only,
            Refusable::Any => reason != Reason::ApprovalDenied,
        };
        if !fits {
            return Err(Why::Reason);
        }
        let mut step = self.step_or_fresh(id);
        let proposal_id = self.check_proposal(proposal, step.frozen.as_deref())?;
        self.check_decision(decision, proposal_id, id, Verdict::Deny)?;
        self.check_receipt(receipt, id, None, ReceiptResult::Refused { reason })?;
        if receipt.doc().cost != Amounts::default() {
            return Err(Why::Receipt("cost"));
        }

        if let Some(retry_at) = *retry_at {
            let passes = matches!(reason, Reason::ToolFrozen | Reason::TemporalIntervention);
            let waits = matches!(step.status, Status::Idle | Status::Unknown { .. });
            if !passes || !waits || retry_at < entry.payload().at {
                return Err(Why::RetryAt);
            }
            // Held, not refused: it stands where it stood, and is proposed again.
            step.retry_at = Some(retry_at);
        } else if let Status::Unknown { refused, .. } = &mut step.status {
            // The doubt stays: refusing to find out does not make it undone. Nor does it rest any more:
            // somebody is to say so.
            *refused = true;
            step.retry_at = None;
        } else {
            step.frozen.get_or_insert_with(|| frozen(proposal, proposal_id));
            step.row = Some(RunRow::new(id, &step, RowOutcome::Rejected).digest()?);
            step.status = self.failed_status(id, entry);
        }
        self.take_receipt(receipt);
        self.put(id, step);
        Ok(())
    }

    /// A step that cannot succeed fails; an undo that cannot succeed blocks until a person decides.
    pub(super) fn failed_status(&self, id: &StepId, entry: &Entry) -> Status {
        if self.is_next_undo(id).is_ok() {
            Status::Blocked { entry: entry.id() }
        } else {
            Status::Failed { by: entry.head() }
        }
    }
}

/// Which reasons for a refusal fit.
pub(super) enum Refusable {
    Any,
    Only(Reason),
}

pub(super) fn frozen(proposal: &Proposal, id: ProposalId) -> Box<Frozen> {
    Box::new(Frozen {
        proposal: id,
        tool: proposal.tool.clone(),
        args: Digest::of(proposal.args.as_bytes()),
    })
}
