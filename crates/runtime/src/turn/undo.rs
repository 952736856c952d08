//! Undoing: a rollback is opened once, and then each undo is a call like any other, in the order that
//! the rollback fixed. What an undo is called with follows from the plan and from the commit that it
//! undoes, so that whoever goes on calls the same.

use gesta_core::body::{Compensation, Proposal, Undo, external_key};
use gesta_core::document::Outcome;
use gesta_core::entry::Body;
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::state::{State, Status};
use gesta_store::Draft;

use super::{Made, Turn, expression};
use crate::desk::{Desk, failing};
use crate::error::RunError;
use crate::facts::{Facts, Undoable};
use crate::job::{UndoSpec, evaluate_with};

/// How much one rollback undoes at most: what an entry holds. The next follows when it is over.
const UNDOS_MOST: usize = 4_000;

/// Opens a rollback: everything that is done and can be undone, newest first. None if there is none to be
/// opened, or nothing left after those that are over.
pub(super) fn rollback(desk: &Desk, state: &State, facts: &Facts) -> Option<Body> {
    if !state.wants_rollback(facts.compensates_failure()) && !state.rolled_back() {
        return None;
    }
    let reason = match (facts.cancelled(), facts.broken()) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some((step, _))) => format!("step `{step}` failed"),
        (None, None) => "the job failed".to_owned(),
    };
    let had_effect = |undoable: &&Undoable| {
        let status = state.step(&undoable.step).map(|step| &step.status);
        matches!(status, Some(Status::Done { outcome: Outcome::SideEffectCommitted, .. }))
    };
    let undo = facts
        .undoable()
        .filter(had_effect)
        .map(|Undoable { commit, step, .. }| Undo { commit: *commit, step: step.clone() });
    let undo: Vec<Undo> = undo.skip(forgotten(desk)).take(UNDOS_MOST).collect();
    if undo.is_empty() && state.rolled_back() {
        return None;
    }
    Some(Body::Compensation(Box::new(Compensation { reason, undo })))
}

#[cfg(feature = "sabotage")]
fn forgotten(desk: &Desk) -> usize {
    usize::from(desk.shared.options.sabotage == Some(crate::Sabotage::ForgetUndo))
}

#[cfg(not(feature = "sabotage"))]
fn forgotten(_: &Desk) -> usize {
    0
}

impl Turn<'_> {
    /// Makes the next undo's call, or sends it again.
    pub(super) fn undo(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        made: &mut Made,
    ) -> Result<(), RunError> {
        if let Some(Status::Unknown { opened, .. }) = draft.state().step(step).map(|s| &s.status) {
            let opened = (**opened).clone();
            return self.again(draft, step, None, &opened, made);
        }
        if !self.has_room(draft, step, made) {
            return Ok(());
        }
        let facts = draft.view();
        if let Some(asked) = facts.asked(step) {
            let proposal = (*asked.proposal).clone();
            return self.open(draft, proposal, None, made);
        }
        let undone = facts.undo(step).cloned();
        let by_child = |undone: &Undoable| undone.proposal.tool.delegates().is_some();
        if undone.as_ref().is_some_and(by_child) {
            let message = "a child has completed it, and its chain has ended: `gesta tree` shows what it did; undo it by hand, then give this up";
            return self.fail(draft, step, failing("child_completed", message));
        }
        let spec = undone.as_ref().and_then(|undone| facts.undo_spec(&undone.step));
        let (Some(undone), Some(spec)) = (undone, spec) else {
            let message = "the plan does not say how this is undone";
            return self.fail(draft, step, failing("no_compensation", message));
        };
        let UndoSpec { args, tool } = spec;
        let Some(result) = self.value(&undone.result, made) else { return Ok(()) };
        let generation = draft.state().step(&undone.step).map_or(1, |step| step.generation);
        let key = Canon::of(&external_key(self.desk.trajectory, &undone.step, generation))?;
        let vars = [("args", &undone.proposal.args), ("result", &result), ("key", &key)];
        match evaluate_with(&args, &vars) {
            Err(error) => self.fail(draft, step, expression(&error)),
            Ok(args) => {
                let proposal = Proposal { args, step: step.clone(), tool };
                match self.protected(proposal, made) {
                    None => Ok(()),
                    Some(Err(error)) => self.fail(draft, step, error),
                    Some(Ok(proposal)) => self.open(draft, proposal, None, made),
                }
            }
        }
    }
}
