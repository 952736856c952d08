//! Taking over what the source of a branch has recorded, instead of doing it again.

use gesta_core::amounts::Amounts;
use gesta_core::body::{Origin, Proposal};
use gesta_core::ids::StepId;
use gesta_store::Draft;

use super::Turn;
use crate::closing;
use crate::desk::failing;
use crate::error::RunError;
use crate::facts::Facts;

impl Turn<'_> {
    /// Commits the source's result of this very call, at no cost. False when there is none, or when it does
    /// not fit what the branch has made of the world: then the call is made like any other.
    pub(super) fn take_over(
        &self,
        draft: &mut Draft<Facts>,
        proposal: &Proposal,
    ) -> Result<bool, RunError> {
        let recorded = self.desk.lineage.recorded(proposal).filter(|_| self.takes_over());
        let Some((commit, recorded)) = recorded else { return Ok(false) };
        let origin = Origin::RecordedFrom { commit, proposal: Box::new(proposal.clone()) };
        let (outcome, delta) = (recorded.outcome, recorded.delta.clone());
        let (observation, free) = (recorded.observation.clone(), Amounts::default());
        let step = &proposal.step;
        let body = closing::committed(draft, step, origin, outcome, delta, observation, free)?;
        Ok(draft.push(self.now, self.desk.author(), body).is_ok())
    }

    /// In a replay, what is above may have gone on since.
    fn takes_over(&self) -> bool {
        self.recorded.is_none_or(|outside| outside.takes_over)
    }

    /// Fails a step whose task the source has given to a child: another child would do everything that
    /// the first one did once more, and nobody can be asked about all of it at once.
    pub(super) fn handed_before(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
    ) -> Result<bool, RunError> {
        let handed = self.desk.lineage.handed(step).filter(|_| self.takes_over());
        let Some((by, child)) = handed else { return Ok(false) };
        let message = format!(
            "{by} has handed this task to {child}, and a child of this branch would do all of it again; branch after its result, or with the mode `live`"
        );
        self.fail(draft, step, failing("handed_before", &message))?;
        Ok(true)
    }
}
