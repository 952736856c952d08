//! Steps that were held instead of refused.

use gesta_core::body::Rejection;
use gesta_core::document::Reason;
use gesta_core::ids::StepId;

use super::Facts;

impl Facts {
    pub(super) fn hold(&mut self, rejection: &Rejection) {
        let (step, reason) = (&rejection.proposal.step, rejection.decision.doc().reason);
        let times = self.held(step).map_or(0, |(times, _)| times);
        self.held.insert_mut(step.clone(), (times + 1, reason));
    }

    /// How often in a row a step was held instead of refused, and why the last time.
    pub fn held(&self, step: &StepId) -> Option<(u64, Option<Reason>)> {
        self.held.get(step).copied()
    }

    /// The steps that are held.
    pub fn all_held(&self) -> impl Iterator<Item = &StepId> {
        self.held.keys()
    }
}
