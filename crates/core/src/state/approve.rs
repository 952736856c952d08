//! Asking people: `pending_approval`, `approval`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::call::frozen;
use super::step::{Grant, Pending, Status};
use super::{State, Why};
use crate::body::{Approval, PendingApproval, StepKind};
use crate::document::{ApprovalVerdict, Verdict};
use crate::entry::Entry;
use crate::ids::StepId;
use crate::time::UnixMs;

impl State {
    /// Whether this step's proposal may be put before people.
    pub(super) fn may_escalate(&self, id: &StepId) -> Result<(), Why> {
        if self.rollback.is_some() {
            self.is_next_undo(id)?;
            return self.check_idle(id);
        }
        self.may_work(id, &[StepKind::Call, StepKind::Delegate])
    }

    pub(super) fn pending_approval(
        &mut self,
        body: &PendingApproval,
        entry: &Entry,
    ) -> Result<(), Why> {
        let id = &body.proposal.step;
        self.may_escalate(id)?;
        if self.rollback.is_none() {
            let delegates = body.proposal.tool.delegates().is_some();
            let kind = if delegates { StepKind::Delegate } else { StepKind::Call };
            self.fits(id, &[kind])?;
        }
        if body.quorum == 0 || body.channels.is_empty() {
            return Err(Why::Quorum);
        }
        if body.deadline < entry.payload().at {
            return Err(Why::Deadline);
        }
        let mut step = self.step_or_fresh(id);
        let proposal = self.check_proposal(&body.proposal, step.frozen.as_deref())?;
        self.check_decision(&body.decision, proposal, id, Verdict::Escalate)?;

        let channels =
            body.channels.iter().map(|channel| channel.as_str()).collect::<Vec<_>>().join(",");
        step.frozen.get_or_insert_with(|| frozen(&body.proposal, proposal));
        step.grant = None;
        step.status = Status::Pending(Box::new(Pending {
            entry: entry.id(),
            quorum: body.quorum,
            approvers: Arc::default(),
            deadline: body.deadline,
            expires: None,
            channels: channels.into(),
            reason: body.reason.as_str().into(),
        }));
        self.put(id, step);
        Ok(())
    }

    /// The proposal that approvers may speak about now.
    pub(super) fn may_approve(&self, id: &StepId, now: UnixMs) -> Result<&Pending, Why> {
        match self.step(id).map(|step| &step.status) {
            Some(Status::Pending(pending)) if now <= pending.deadline => Ok(pending),
            Some(Status::Pending(_)) => Err(Why::Deadline),
            other => Err(Why::StepStatus {
                step: id.clone(),
                status: other.map_or("idle", Status::as_str),
            }),
        }
    }

    pub(super) fn approval(&mut self, body: &Approval, at: UnixMs) -> Result<(), Why> {
        let id = &body.step;
        let statement = body.statement.doc();
        let mut pending = self.may_approve(id, at)?.clone();
        if statement.pending != pending.entry {
            return Err(Why::OtherPending);
        }
        if statement.expires < at {
            return Err(Why::ApprovalExpired);
        }
        let mut approvers = BTreeSet::clone(&pending.approvers);
        if !approvers.insert(statement.key) {
            return Err(Why::ApprovedTwice(statement.key));
        }
        let mut step = self.step_or_fresh(id);
        let expires =
            pending.expires.map_or(statement.expires, |earlier| earlier.min(statement.expires));
        step.status = match statement.verdict {
            ApprovalVerdict::Deny => Status::Denied { pending: pending.entry },
            ApprovalVerdict::Approve if approvers.len() as u64 >= pending.quorum => {
                step.grant = Some(Box::new(Grant { pending: pending.entry, expires }));
                Status::Idle
            }
            ApprovalVerdict::Approve => {
                pending.approvers = Arc::new(approvers);
                pending.expires = Some(expires);
                Status::Pending(Box::new(pending))
            }
        };
        self.put(id, step);
        Ok(())
    }
}
