//! Agreeing with the world: `confirmation`, `checkpoint`.

use super::{State, Unconfirmed, Why};
use crate::body::{CheckVerdict, Checkpoint, Confirmation, ConfirmationMode, StepKind};
use crate::digest::EntryId;
use crate::entry::Author;
use crate::ids::StepId;

impl State {
    /// Whether verifiers may be run on behalf of this step. A step that waits for a person may be
    /// looked at again: the world may have come back, or be reachable again.
    pub(super) fn may_confirm(&self, id: &StepId) -> Result<(), Why> {
        use StepKind::{Call, Compute, Delegate, Loop, Wait};
        self.may_look_at(id, &[Call, Compute, Delegate, Loop, Wait])
    }

    pub(super) fn confirmation(&mut self, body: &Confirmation, entry: EntryId) -> Result<(), Why> {
        self.may_confirm(&body.step)?;
        let found = |verdict| body.checks.iter().any(|check| check.verdict == verdict);
        let (mismatch, unknown) = (found(CheckVerdict::Mismatch), found(CheckVerdict::Unknown));
        let parks = match body.mode {
            ConfirmationMode::Strict if mismatch => {
                self.failing = true;
                false
            }
            // What could not be checked is no mismatch, and no agreement either.
            ConfirmationMode::Strict => unknown,
            ConfirmationMode::Human => mismatch || unknown,
            ConfirmationMode::Warn => false,
        };
        if parks {
            let step = self.step_or_fresh(&body.step);
            self.put(&body.step, step);
            let parked = Unconfirmed { entry, mismatch };
            self.unconfirmed.insert_mut(body.step.clone(), parked);
        } else {
            self.unconfirmed.remove_mut(&body.step);
        }
        Ok(())
    }

    /// The confirmation that a person must answer before this step goes on.
    pub fn unconfirmed(&self, step: &StepId) -> Option<EntryId> {
        self.unconfirmed.get(step).map(|parked| parked.entry)
    }

    pub(super) fn confirmed(&mut self, body: &Confirmation, by: &Author) -> Result<(), Why> {
        if !matches!(by, Author::Principal(_)) {
            return Err(Why::PersonOnly);
        }
        if body.confirms.is_none() || self.unconfirmed(&body.step) != body.confirms {
            return Err(Why::OtherConfirmation);
        }
        self.unconfirmed.remove_mut(&body.step);
        Ok(())
    }

    pub(super) fn checkpoint(&mut self, body: &Checkpoint) -> Result<(), Why> {
        if body.world == self.world.digest() { Ok(()) } else { Err(Why::WorldDigest) }
    }
}
