//! Sensitive values as people see them: `‹sensitive›`, unless whoever looks asks for them and the data key is
//! there.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::{Canon, to_canonical};
use gesta_core::sensitive::{COMMIT, Commitment, commitments, may_hold};
use gesta_runtime::{Held, RunError, Safe};
use gesta_store::Store;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::session::Session;

const HIDDEN: &str = "‹sensitive›";
const ERASED: &str = "‹erased›";

/// Whether to show what is hidden.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Reveal {
    /// Show sensitive values, if their data key is there
    #[arg(long)]
    pub(crate) reveal: bool,
}

/// What can be seen of the sensitive values of a trajectory.
pub(crate) struct Sight {
    handle: Handle,
    seen: Seen,
}

enum Seen {
    Hidden,
    Erased,
    Open(Arc<Safe>),
}

impl Sight {
    /// What is to be seen of a trajectory. To see more takes its data key.
    pub(crate) fn of(
        session: &Session,
        store: &Arc<dyn Store>,
        trajectory: TrajectoryId,
        reveal: Reveal,
    ) -> Result<Self> {
        let handle = session.handle();
        if !reveal.reveal {
            return Ok(Self { handle, seen: Seen::Hidden });
        }
        let vault = session.vault(store)?;
        let family = session.wait(vault.family(trajectory))?;
        let seen = match session.wait(vault.held(family))? {
            Held::Safe(safe) => Seen::Open(safe),
            Held::Erased(_) => Seen::Erased,
            // What has none needs none.
            Held::Nothing if !session.wait(is_sensitive(store, trajectory))? => Seen::Hidden,
            Held::Nothing => {
                let place = vault.place();
                return Err(RunError::NoDataKey { trajectory: family, place }.into());
            }
        };
        Ok(Self { handle, seen })
    }

    /// Whether more is seen than that something is there.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.seen, Seen::Hidden)
    }

    /// A value as it is shown.
    pub(crate) fn value(&self, value: &mut Value) -> Result<()> {
        let found = commitments(value);
        for (pointer, commitment) in found {
            let shown = self.look(&commitment)?;
            if let Some(place) = value.pointer_mut(&pointer) {
                *place = shown;
            }
        }
        Ok(())
    }

    /// An entry as it is shown: the same, with other words in the place of commitments.
    pub(crate) fn entry(&self, entry: Entry) -> Result<Entry> {
        let text = std::str::from_utf8(entry.bytes()).unwrap_or_default();
        if !self.is_open() || !may_hold(text.as_bytes()) {
            return Ok(entry);
        }
        let mut value: Value = serde_json::from_str(text)?;
        self.value(&mut value)?;
        Ok(Entry::from_bytes(&to_canonical(&value)?).unwrap_or(entry))
    }

    /// What a tool returned, as it was received. What is sealed is seen by whoever may see it.
    pub(crate) fn output(&self, kept: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.seen {
            Seen::Open(safe) => Ok(Some(safe.open_output(kept)?)),
            Seen::Hidden | Seen::Erased if Safe::is_sealed(kept) => Ok(None),
            Seen::Hidden | Seen::Erased => Ok(Some(kept.to_vec())),
        }
    }

    fn look(&self, commitment: &Commitment) -> Result<Value> {
        match &self.seen {
            Seen::Hidden => Ok(HIDDEN.into()),
            Seen::Erased => Ok(ERASED.into()),
            Seen::Open(safe) => {
                let opening = self.handle.block_on(safe.opening(commitment))?;
                Ok(serde_json::from_str(opening.value.as_str())?)
            }
        }
    }
}

/// Whether any entry commits to something.
async fn is_sensitive(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<bool> {
    let mut found = false;
    crate::chains::walk(store, &[trajectory], false, |visited| {
        found |= may_hold(&visited.stored.bytes);
        Ok(())
    })
    .await?;
    Ok(found)
}

/// A line of JSON with what is sensitive hidden.
pub(crate) fn hidden(text: &str) -> String {
    if !text.contains(COMMIT) {
        return text.to_owned();
    }
    match Canon::parse(text.as_bytes()).and_then(|canon| canon.read::<Value>()) {
        Ok(mut value) => {
            for pointer in commitments(&value).into_keys() {
                if let Some(place) = value.pointer_mut(&pointer) {
                    *place = HIDDEN.into();
                }
            }
            value.to_string().replace(&format!("\"{HIDDEN}\""), HIDDEN)
        }
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commitments_are_hidden_and_nothing_else_is() {
        let commit = format!("{{\"$commit\":\"{}\"}}", "0a".repeat(32));
        let text = format!("{{\"a\":1,\"to\":{commit}}}");
        assert_eq!(hidden(&text), "{\"a\":1,\"to\":‹sensitive›}");
        assert_eq!(hidden("{\"a\":\"$commit\"}"), "{\"a\":\"$commit\"}");
        assert_eq!(hidden("no json $commit"), "no json $commit");
    }
}
