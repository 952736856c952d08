//! Putting into quarantine what the Guardian has found to be too fast: an entry of the registry, signed by
//! the Guardian's key, that every worker reads and only a person lifts.

use std::sync::Arc;

use gesta_core::document::RegistryItem;
use gesta_store::{Chain, ChainError};

use crate::authority;
use crate::desk::{Event, Shared};
use crate::worker;

/// Registers what decisions have found since. What cannot be registered now stays for the next turn.
pub(crate) async fn register(shared: &Shared) {
    let suspects = std::mem::take(&mut *shared.suspects());
    for (target, because) in suspects {
        let Some((registry, _)) = shared.registry_head() else { return };
        let item = RegistryItem::Quarantine(target.clone());
        let appended = async {
            let mut chain = Chain::load(Arc::clone(&shared.store), registry).await?;
            let now = shared.pulse.now();
            let known = chain.state().registry().is_quarantined(&target);
            if !known {
                let append = chain.append(|admission| {
                    let item = (&item, Some(because.as_str()));
                    authority::register(admission, item, &shared.guardian, now)
                });
                append.await?;
            }
            Ok::<_, ChainError>(!known)
        };
        match appended.await {
            Ok(new) => {
                if new {
                    tracing::warn!(%target, %because, "too many calls: put into quarantine");
                    let note = format!("{target} is in quarantine: too many calls ({because})");
                    shared.tell(|| Event::Note(note));
                }
                if let Err(error) = worker::read_registry(shared, Some(registry)).await {
                    tracing::warn!(%error, "the registry cannot be read");
                }
            }
            Err(error) => {
                tracing::error!(%target, %error, "a quarantine cannot be registered yet");
                shared.suspects().insert(target, because);
            }
        }
    }
}
