//! How trajectories end: `cancel_requested`, `completed`, `failed`, `cancelled`, `erased`; and the
//! run hash.

use serde::Serialize;

use super::{Cancelling, Phase, State, Why};
use crate::body::{CancelRequested, Completed, End, Stopped};
use crate::digest::Digest;
use crate::json::{JsonError, Limits, to_canonical_within};
use crate::projection::TrajectoryKind;

/// A run hash covers every step of the trajectory, so it may be larger than an entry.
const RUN_LIMITS: Limits = Limits { max_bytes: usize::MAX, ..Limits::DEFAULT };

impl State {
    pub(super) fn may_request_cancel(&self) -> Result<(), Why> {
        if self.cancelling.is_some() { Err(Why::CancelTwice) } else { Ok(()) }
    }

    pub(super) fn cancel_requested(&mut self, body: &CancelRequested) -> Result<(), Why> {
        self.may_request_cancel()?;
        self.cancelling = Some(Cancelling { compensate: body.compensate });
        Ok(())
    }

    /// Nothing may be open, in doubt or delegated, and a rollback that was begun must be over.
    pub(super) fn may_fail(&self) -> Result<(), Why> {
        if self.holding > 0 {
            return Err(Why::NotQuiet);
        }
        match &self.rollback {
            Some(rollback) if rollback.next().is_some() => Err(Why::RollbackLeft),
            _ => Ok(()),
        }
    }

    pub(super) fn may_complete(&self) -> Result<(), Why> {
        self.may_fail()?;
        if self.failing {
            return Err(Why::Failing);
        }
        if self.cancelling.is_some() {
            return Err(Why::Stopping);
        }
        match self.kind() {
            Some(TrajectoryKind::Job) if self.plan.is_none() => Err(Why::NoPlan),
            Some(TrajectoryKind::Job) if self.nodes_left > 0 => Err(Why::StepsLeft),
            _ => Ok(()),
        }
    }

    pub(super) fn may_cancel(&self) -> Result<(), Why> {
        let cancelling = self.cancelling.ok_or(Why::NotCancelling)?;
        self.may_fail()?;
        if cancelling.compensate && self.rollback.is_none() {
            Err(Why::RollbackLeft)
        } else {
            Ok(())
        }
    }

    pub(super) fn completed(&mut self, body: &Completed) -> Result<(), Why> {
        self.may_complete()?;
        self.end(End::Completed, body.run_hash)
    }

    pub(super) fn failed(&mut self, body: &Stopped) -> Result<(), Why> {
        self.may_fail()?;
        self.end(End::Failed, body.run_hash)
    }

    pub(super) fn cancelled(&mut self, body: &Stopped) -> Result<(), Why> {
        self.may_cancel()?;
        self.end(End::Cancelled, body.run_hash)
    }

    fn end(&mut self, end: End, run_hash: Digest) -> Result<(), Why> {
        if self.run_hash()? != run_hash {
            return Err(Why::RunHash);
        }
        self.phase = Phase::Ended(end);
        Ok(())
    }

    pub(super) fn may_erase(&self) -> Result<(), Why> {
        match self.phase {
            Phase::Ended(_) => Ok(()),
            Phase::Unbegun | Phase::Live => Err(Why::NotEnded),
        }
    }

    pub(super) fn erased(&mut self) -> Result<(), Why> {
        self.may_erase()
    }

    /// What was done: plan, input and the digest of one row a step, with no time, worker or signature in it. Costs
    /// as much as there are steps, and is asked for once, at the end.
    pub fn run_hash(&self) -> Result<Digest, JsonError> {
        #[derive(Serialize)]
        struct Run<'a>(Option<Digest>, Option<Digest>, Vec<(&'a str, Digest)>);
        let plan = self.plan.as_ref().map(|plan| plan.hash);
        let input = self.beginning.as_ref().and_then(|beginning| beginning.input);
        let others = self.steps.iter().filter_map(|(id, step)| Some((id.as_str(), step.row?)));
        let mut rows: Vec<_> = self.settled.rows().chain(others).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        to_canonical_within(&Run(plan, input, rows), RUN_LIMITS).map(|bytes| Digest::of(&bytes))
    }
}
