//! Agreeing with the world: `confirmation`, `checkpoint`.

use super::{State, Why};
use crate::body::{CheckVerdict, Checkpoint, Confirmation, ConfirmationMode, StepKind};
use crate::digest::EntryId;
use crate::entry::Author;
use crate::ids::StepId;

impl State {
    /// Whether verifiers may be run on behalf of this step.
    pub(super) fn may_confirm(&self, id: &StepId) -> Result<(), Why> {
        // Not a loop itself: the steps below it use the resources, and each is confirmed on its own.
        use StepKind::{Call, Compute, Delegate, Wait};
        self.may_work(id, &[Call, Compute, Delegate, Wait])
    }

    pub(super) fn confirmation(&mut self, body: &Confirmation, entry: EntryId) -> Result<(), Why> {
        self.may_confirm(&body.step)?;
        let mismatch = body.checks.iter().any(|check| check.verdict == CheckVerdict::Mismatch);
        match body.mode {
            ConfirmationMode::Strict if mismatch => self.failing = true,
            ConfirmationMode::Human if mismatch => {
                let step = self.step_or_fresh(&body.step);
                self.put(&body.step, step);
                self.unconfirmed.insert_mut(body.step.clone(), entry);
            }
            ConfirmationMode::Strict | ConfirmationMode::Human | ConfirmationMode::Warn => {}
        }
        Ok(())
    }

    pub(super) fn confirmed(&mut self, body: &Confirmation, by: &Author) -> Result<(), Why> {
        if !matches!(by, Author::Principal(_)) {
            return Err(Why::PersonOnly);
        }
        if body.confirms.is_none() || self.unconfirmed.get(&body.step) != body.confirms.as_ref() {
            return Err(Why::OtherConfirmation);
        }
        self.unconfirmed.remove_mut(&body.step);
        Ok(())
    }

    pub(super) fn checkpoint(&mut self, body: &Checkpoint) -> Result<(), Why> {
        if body.world == self.world.digest() { Ok(()) } else { Err(Why::WorldDigest) }
    }
}
