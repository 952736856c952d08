//! What can be undone, and what a rollback undoes.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_core::body::{Compensation, DelegationResult};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::entry::Entry;
use gesta_core::ids::StepId;

use super::{Facts, Handed, Undoable};

impl Facts {
    /// The effects that can be undone and are not being undone yet, newest first.
    pub fn undoable(&self) -> impl Iterator<Item = &Undoable> {
        let mut all: Vec<&Undoable> = self.undoable.values().map(|undoable| &**undoable).collect();
        all.reverse();
        all.into_iter()
    }

    /// The effect that a step of a rollback undoes.
    pub fn undo(&self, step: &StepId) -> Option<&Undoable> {
        self.undos.get(step).map(|undoable| &**undoable)
    }

    /// Remembers what an undo will need to know, if the plan says how the effect is undone.
    pub(super) fn effect_done(&mut self, step: &StepId, result: &Content, entry: &Entry) {
        if self.undo(step).is_some() || self.undo_spec(step).is_none() {
            return;
        }
        let Some(asked) = self.asked.get(step) else { return };
        let undoable = Undoable {
            commit: entry.id(),
            step: step.clone(),
            proposal: Arc::clone(&asked.proposal),
            result: result.clone(),
        };
        self.undoable.insert_mut(entry.seq(), Arc::new(undoable));
    }

    /// Remembers what a child has come to: what it did is not undone with its parent unless somebody sees
    /// to it.
    pub(super) fn child_done(&mut self, handed: &Handed, result: &DelegationResult, entry: &Entry) {
        let Ok(proposal) = handed.delegation.task.proposal(&result.step) else { return };
        let undoable = Undoable {
            commit: entry.id(),
            step: result.step.clone(),
            proposal: Arc::new(proposal),
            result: result.answer.clone(),
        };
        self.undoable.insert_mut(entry.seq(), Arc::new(undoable));
    }

    pub(super) fn rollback(&mut self, body: &Compensation) {
        let wanted: BTreeSet<EntryId> = body.undo.iter().map(|undo| undo.commit).collect();
        let left = self.undoable.iter().filter(|(_, undoable)| !wanted.contains(&undoable.commit));
        let left = left.map(|(seq, undoable)| (*seq, Arc::clone(undoable))).collect();
        let undos = self.undoable.values().filter(|undoable| wanted.contains(&undoable.commit));
        let undos =
            undos.filter_map(|undoable| Some((undoable.step.undo().ok()?, Arc::clone(undoable))));
        self.undos = Arc::new(undos.collect());
        self.undoable = left;
    }
}
