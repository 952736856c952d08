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
            #[cfg(feature = "sabotage")]
            if let Some(noted) = forgotten(shared, state, owed).await? {
                delivered.push(noted);
                continue;
            }
            delivered.push(delegation::to_child(&shared.store, (state, facts), owed, now).await?);
        }
        self.delivered = delivered;
        Ok(!self.delivered.is_empty())
    }
}

/// What is noted as delivered, and is not.
#[cfg(feature = "sabotage")]
async fn forgotten(
    shared: &Shared,
    state: &gesta_core::state::State,
    (what, to, step): (
        gesta_core::body::Delivery,
        gesta_core::ids::TrajectoryId,
        &gesta_core::ids::StepId,
    ),
) -> Result<Option<gesta_core::body::Delivered>, RunError> {
    use crate::Sabotage::{ForgetChild, LetChildrenBe};
    use gesta_core::body::{Delivered, Delivery};
    let head = match (shared.options.sabotage, what) {
        (Some(ForgetChild), Delivery::Beginning) => state.head(),
        (Some(LetChildrenBe), Delivery::Cancel) => {
            shared.store.trajectory(to).await?.map(|row| row.head)
        }
        _ => None,
    };
    Ok(head.map(|head| Delivered { head, step: Some(step.clone()), to, what }))
}

/// Brings the result of a child that has ended to its parent.
pub(super) async fn bring_back(shared: &Shared, chain: &mut Chain<Facts>) -> Result<(), RunError> {
    for entry in delegation::to_parent(shared, chain).await? {
        shared.tell(|| Event::Entry(Arc::new(entry)));
    }
    Ok(())
}
