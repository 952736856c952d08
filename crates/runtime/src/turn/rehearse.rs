//! What a turn would add about one step, or about the whole: for whoever replays a chain with the code
//! that writes chains.

use gesta_core::body::Confirmation;
use gesta_core::document::EffectReport;
use gesta_core::ids::StepId;
use gesta_core::signed::Signed;
use gesta_core::state::{Act, AdmitError};
use gesta_store::{ChainError, Draft};

use super::fan::Fan;
use super::{Made, Turn};
use crate::decide::Basis;
use crate::effects;
use crate::error::RunError;
use crate::facts::Facts;
use crate::pipeline::{self, Ended};

/// A part of a turn.
pub(crate) enum Part<'a> {
    /// What the plan says about a step.
    Work(&'a StepId),
    /// A wait that is over.
    Woken(&'a StepId),
    /// A time that has come.
    Timer(&'a StepId),
    /// People have said no, or nothing.
    Unapproved(&'a StepId),
    /// A call that is over.
    Settle(&'a Ended, Option<&'a Signed<EffectReport>>),
    /// What an executor has reported.
    Reported(&'a Signed<EffectReport>),
    /// What verifiers have found.
    Found(&'a Confirmation),
    /// Nothing can be done until something arrives.
    Rest,
    /// The end, or a rollback.
    Whole(Act),
}

impl Turn<'_> {
    /// Does one part of a turn.
    pub(crate) fn rehearse(
        &self,
        draft: &mut Draft<Facts>,
        part: &Part<'_>,
    ) -> Result<Made, RunError> {
        let mut made = Made::default();
        let done = match part {
            Part::Work(step) => self.one(draft, step, &mut made),
            Part::Woken(step) => self.woken(draft, step),
            Part::Timer(step) => self.fire(draft, step),
            Part::Unapproved(step) => self.unapproved(draft, step),
            Part::Rest => self.rest(draft),
            Part::Settle(ended, evidence) => {
                pipeline::settle(self.desk, draft, ended, *evidence, self.now)
            }
            Part::Reported(report) => {
                effects::take_up(self.desk, draft, report, self.now).map(|_| ())
            }
            Part::Found(found) => self.found_again(draft, found),
            Part::Whole(act) => self.whole(draft, *act).map(|_| ()),
        };
        match done {
            Err(RunError::Chain(ChainError::Admit(error)))
                if matches!(*error, AdmitError::Rehearsed) =>
            {
                Ok(made)
            }
            done => done.map(|()| made),
        }
    }

    /// What decisions rest on beside the chain.
    pub(super) fn basis(&self) -> Basis<'_> {
        match self.recorded {
            Some(recorded) => Basis::Recorded(recorded),
            None if self.trial => Basis::Glance,
            None => Basis::Present,
        }
    }

    /// What the plan says about exactly this step: an item of a fan-out is not begun by its node here,
    /// because its node would begin the first item that it finds.
    fn one(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let spec = draft.view().spec(&step.node()).and_then(Result::ok);
        let index = step.as_str().strip_prefix(&format!("{}/", step.node()));
        let index: Option<u64> = index.and_then(|index| index.parse().ok());
        let (Some(spec), Some(index)) = (spec, index) else { return self.work(draft, step, made) };
        match Fan::of(&spec.work) {
            Some(fan) if draft.state().undoes(step).is_none() => {
                self.nth(draft, step, &fan, index, made)
            }
            _ => self.work(draft, step, made),
        }
    }
}
