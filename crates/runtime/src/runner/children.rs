//! What a runner does about the other chains of delegations.

use std::sync::Arc;

use gesta_store::Chain;

use super::Runner;
use crate::delegation;
use crate::desk::{Event, Shared};
use crate::error::RunError;
use crate::facts::Facts;

impl Runner {
    /// Gives children what this trajectory owes them. True when there was anything.
    pub(super) async fn hand_over(&mut self) -> Result<bool, RunError> {
        let shared = &self.desk.shared;
        let (state, facts) = (self.chain.state(), self.chain.view());
        let mut delivered = Vec::new();
        for owed in state.owed() {
            let now = shared.pulse.now();
            delivered.push(delegation::to_child(&shared.store, (state, facts), owed, now).await?);
        }
        self.delivered = delivered;
        Ok(!self.delivered.is_empty())
    }
}

/// Brings the result of a child that has ended to its parent.
pub(super) async fn bring_back(shared: &Shared, chain: &mut Chain<Facts>) -> Result<(), RunError> {
    let now = shared.pulse.now();
    for entry in delegation::to_parent(&shared.store, chain, now).await? {
        shared.tell(|| Event::Entry(Arc::new(entry)));
    }
    Ok(())
}
