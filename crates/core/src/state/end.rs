//! How trajectories end: `cancel_requested`, `completed`, `failed`, `cancelled`, `erased`; and the
//! run hash.

use super::shelf::Forgotten;
use super::{Cancelling, Phase, State, Why};
use crate::body::{CancelRequested, Completed, End, Stopped};
use crate::digest::{Digest, Hashing};
use crate::projection::TrajectoryKind;

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
    /// as much as there are steps, and is asked for once, at the end. The canonical form of
    /// `[plan, input, [[step, row], …]]` is hashed as it is written: it may be larger than memory.
    pub fn run_hash(&self) -> Result<Digest, Forgotten> {
        let plan = self.plan.as_ref().map(|plan| plan.hash);
        let input = self.beginning.as_ref().and_then(|beginning| beginning.input);
        let mut run = Run { hash: Hashing::default(), rows: 0 };
        run.hash.add("[");
        run.digest(plan);
        run.hash.add(",");
        run.digest(input);
        run.hash.add(",[");
        let others = self.steps.iter().filter_map(|(id, step)| Some((id.as_str(), step.row?)));
        let mut others = others.peekable();
        self.settled.rows(|id, row| {
            while let Some((other, row)) = others.next_if(|(other, _)| *other < id) {
                run.row(other, row);
            }
            run.row(id, row);
        });
        others.for_each(|(id, row)| run.row(id, row));
        run.hash.add("]]");
        self.settled.check()?;
        Ok(run.hash.finish())
    }
}

/// A run, as it is hashed.
struct Run {
    hash: Hashing,
    rows: u64,
}

impl Run {
    fn digest(&mut self, digest: Option<Digest>) {
        match digest {
            Some(digest) => self.hash.add(&format!("\"{digest}\"")),
            None => self.hash.add("null"),
        }
    }

    /// Step ids need no escaping.
    fn row(&mut self, id: &str, row: Digest) {
        let comma = if self.rows == 0 { "" } else { "," };
        self.hash.add(&format!("{comma}[\"{id}\",\"{row}\"]"));
        self.rows += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::step::{Status, Step};
    use super::*;
    use crate::digest::EntryId;
    use crate::entry::Head;
    use crate::ids::TrajectoryId;
    use crate::json::to_canonical;

    #[test]
    fn a_run_hash_is_that_of_the_canonical_form() {
        let mut state = State::new(TrajectoryId::from_bytes([1; 16]));
        let mut rows = Vec::new();
        for n in [2, 30, 1, 12, 100, 7] {
            let (id, row) = (format!("s{n}/call-{n}_"), Digest::of(&[n]));
            let by = Head { id: EntryId::new(row), seq: u64::from(n) };
            let step = Step { row: Some(row), status: Status::Failed { by }, ..Step::fresh() };
            let parsed = id.parse().unwrap();
            // Rows stand in order wherever their steps are kept.
            if n.is_multiple_of(2) {
                state.steps.insert_mut(parsed, Arc::new(step));
            } else {
                assert!(state.settled.insert(&parsed, &step));
            }
            rows.push((id, row));
            rows.sort();
            let canonical = to_canonical(&(None::<Digest>, None::<Digest>, &rows)).unwrap();
            assert_eq!(state.run_hash(), Ok(Digest::of(&canonical)));
        }
    }
}
