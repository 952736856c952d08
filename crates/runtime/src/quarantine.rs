//! How fast is called, how long a step is held, and putting into quarantine what the Guardian has found to
//! be too fast: an entry of the registry, signed by the Guardian's key, that every worker reads and only a
//! person lifts.

use std::sync::Arc;

use gesta_core::document::RegistryItem;
use gesta_core::guardian::Hold;
use gesta_core::temporal::{Pace, Whose};
use gesta_core::time::UnixMs;
use gesta_store::{Chain, ChainError, Draft};

use crate::authority;
use crate::desk::{Desk, Event, Shared};
use crate::facts::Facts;
use crate::limits::{Busy, Pass};
use crate::worker;

/// How long a step waits that is held, before it is proposed again: this, doubled up to the other.
const HOLD_FIRST_MS: u64 = 500;
const HOLD_MOST_MS: u64 = 30_000;

/// How full the windows are: the trajectory's by what its chain has recorded, the principal's by what all
/// workers have started, and a place in those.
pub(crate) fn pace(
    desk: &Desk,
    draft: &Draft<Facts>,
    now: UnixMs,
) -> Result<(Vec<Pace>, Option<Pass>), Busy> {
    let mut paces = own_pace(desk, draft, now);
    let Some((_, writ)) = draft.state().writ() else { return Ok((paces, None)) };
    let principal = &desk.shared.options.temporal.principal;
    let (all, pass) = desk.shared.limits.pass(&writ.principal, principal, now)?;
    paces.extend(all);
    Ok((paces, pass))
}

/// How full the trajectory's own windows are.
pub(crate) fn own_pace(desk: &Desk, draft: &Draft<Facts>, now: UnixMs) -> Vec<Pace> {
    let starts = draft.view().starts();
    let rules = desk.shared.options.temporal.trajectory.iter();
    rules.map(|rule| Pace::of(*rule, Whose::Trajectory, starts.iter().copied(), now)).collect()
}

/// When a step that is held is proposed again: at a known time, or less and less often.
pub(crate) fn retry_at(hold: Hold, held: u64, now: UnixMs) -> UnixMs {
    match hold {
        Hold::Until(at) => at.max(now),
        Hold::Thaw => {
            let doubled = 2_u64.saturating_pow(u32::try_from(held).unwrap_or(u32::MAX));
            now.plus(HOLD_FIRST_MS.saturating_mul(doubled).min(HOLD_MOST_MS))
        }
    }
}

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
