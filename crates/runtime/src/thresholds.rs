//! Soft thresholds of budgets: that one is reached becomes an entry of the registry, beside the notice that the
//! store has written. The store remembers how far an account has come and says so at every draw, so
//! whoever draws next registers what one who died did not.

use std::sync::Arc;

use gesta_core::document::{RegistryItem, Threshold};
use gesta_store::{Account, Chain, ChainError, Draw, Drawn};

use crate::authority;
use crate::desk::Shared;
use crate::worker;

/// Registers how far an account has come, unless the registry knows.
pub(crate) async fn register(shared: &Shared, account: &Account, draw: &Draw, drawn: &Drawn) {
    let Account { tenant, span } = account;
    let percent = drawn.stands_at;
    let Some(known) = shared.registry() else { return };
    if known.registry().reached(tenant, *span) >= percent {
        return;
    }
    let registry = known.trajectory();
    let (limit, used) = (draw.limit, drawn.used);
    let threshold = Threshold { limit, of: *span, percent, tenant: tenant.clone(), used };
    let item = RegistryItem::Reached(threshold);
    let appended = async {
        let mut chain = Chain::load(Arc::clone(&shared.store), registry).await?;
        let append = chain.append(|admission| {
            if admission.state().registry().reached(tenant, *span) >= percent {
                return Ok(());
            }
            let now = shared.pulse.now().max(admission.state().at());
            authority::register(admission, (&item, None), &shared.guardian, now)
        });
        match append.await {
            // Another worker was first.
            Ok(_) | Err(ChainError::Empty) => Ok(()),
            Err(error) => Err(error),
        }
    };
    if let Err(error) = appended.await {
        tracing::warn!(%error, "a threshold cannot be registered yet");
    } else if let Err(error) = worker::read_registry(shared, Some(registry)).await {
        tracing::warn!(%error, "the registry cannot be read");
    }
}
