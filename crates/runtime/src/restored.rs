//! Going on in a restored copy. What was started after the copy was made is in no chain: a call that would
//! begin now may have been made then. So the first call of each step counts as one that was sent and whose
//! end nobody knows, and what follows is recovery as the tool declares it: only what is safe to send, or
//! what the other side knows by its key, is sent without a question.

use std::sync::Arc;

use gesta_core::body::Restored;
use gesta_core::document::{Failing, Recovery};
use gesta_core::ids::StepId;
use gesta_core::state::{State, Status};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::Chain;

use crate::desk::{Shared, failing};
use crate::error::RunError;
use crate::facts::Facts;
use crate::tools::Tool;

/// What the first attempt in a restored copy says of it. A child goes on as its parent does: its parent
/// may have begun it before.
pub(crate) async fn mark(
    shared: &Shared,
    chain: &Chain<Facts>,
) -> Result<Option<Restored>, RunError> {
    if shared.epoch <= 1 {
        return Ok(None);
    }
    let known = chain.view().restored().map_or(0, |restored| restored.epoch);
    let trajectory = chain.state().trajectory();
    let held = shared.store.epochs().held_one(trajectory).await?;
    let released =
        held.and_then(|held| held.release.map(|release| (held.epoch, held.copied_at, release)));
    let restored = match released {
        Some((epoch, copied_at, release)) => Some(Restored {
            ask: release.ask,
            by: release.by,
            copied_at,
            epoch,
            note: release.note,
        }),
        None => match chain.view().mandate().and_then(|mandate| mandate.delegated_by.as_ref()) {
            Some(by) => {
                let store = Arc::clone(&shared.store);
                let parent = Chain::<Facts>::follow(store, by.trajectory).await?;
                parent.view().restored().cloned()
            }
            None => None,
        },
    };
    Ok(restored.filter(|restored| restored.epoch > known))
}

/// Why a worker claims a trajectory, in words.
pub(crate) fn note(restored: Option<&Restored>, attempt: u64) -> String {
    match restored {
        Some(Restored { epoch, by, .. }) => format!("released in epoch {epoch} by {by}"),
        None if attempt == 1 => "claimed".to_owned(),
        None => "reclaimed".to_owned(),
    }
}

/// What is known of a call that may have been made before, if it may.
pub(crate) fn may_have_happened(
    facts: &Facts,
    state: &State,
    tool: &Tool,
    step: &StepId,
    until: UnixMs,
) -> Option<Failing> {
    let restored = facts.restored()?;
    let again = matches!(state.step(step).map(|step| &step.status), Some(Status::Unknown { .. }));
    let manifest = tool.manifest();
    if again || facts.asked_since_restore(step) || manifest.effect == Effect::Read {
        return None;
    }
    let same = match manifest.recovery {
        Recovery::Safe => true,
        Recovery::Keyed | Recovery::KeyedConcurrent => {
            until <= restored.copied_at.plus(manifest.key_ttl.ms())
        }
        Recovery::Probe | Recovery::Never => false,
    };
    if same && !restored.ask {
        return None;
    }
    let why = format!(
        "the store was restored (epoch {}): whether this was sent after the backup is not known",
        restored.epoch
    );
    Some(failing("may_have_happened", &why))
}

/// How a call is recovered whose tool declares this.
pub(crate) fn recovery(facts: &Facts, declared: Recovery) -> Recovery {
    match facts.restored() {
        Some(restored) if restored.ask => Recovery::Never,
        _ => declared,
    }
}
