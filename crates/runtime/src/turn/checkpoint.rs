//! What the world has come to, said now and then: whoever folds a long chain, to replay or to verify it,
//! learns where it goes wrong and not only that it did.

use gesta_core::body::Checkpoint;
use gesta_core::entry::Body;
use gesta_store::Draft;

use super::Turn;
use crate::error::RunError;
use crate::facts::Facts;

impl Turn<'_> {
    /// Adds a checkpoint once enough was committed since the last one.
    pub(super) fn checkpoint(&self, draft: &mut Draft<Facts>) -> Result<(), RunError> {
        let every = self.desk.shared.options.checkpoint_every;
        if draft.view().commits() < every.max(1) || draft.state().ended().is_some() {
            return Ok(());
        }
        let world = draft.state().world().digest();
        let body = Body::Checkpoint(Box::new(Checkpoint { world }));
        draft.push(self.now, self.desk.author(), body)?;
        Ok(())
    }
}
