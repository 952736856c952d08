//! What a runner gets before its next turn: blobs, and sensitive values sealed under their key.

use std::sync::Arc;

use gesta_core::json::Canon;
use gesta_store::Chain;

use super::Runner;
use crate::desk::Shared;
use crate::error::RunError;
use crate::facts::Facts;
use crate::turn::Made;
use crate::vault::{Held, Safe};

impl Runner {
    /// Gets and keeps the blobs that a turn needs before it can go on. True when there were any.
    pub(super) async fn fetch(&mut self, made: &Made) -> Result<bool, RunError> {
        for value in &made.to_keep {
            let blob = self.desk.keep(value.as_bytes()).await;
            self.blobs.put(blob.sha256, value.clone());
        }
        for digest in &made.wanted {
            let bytes = self.desk.shared.store.blob(*digest).await?;
            let bytes = bytes.ok_or_else(|| {
                let what = format!("blob {digest} of {} is missing", self.desk.trajectory);
                gesta_store::StoreError::Damaged { what }
            })?;
            let value = Canon::parse_within(&bytes, crate::desk::OUTPUT_LIMITS)?;
            self.blobs.put(*digest, value);
        }
        let sealed = self.seal(made).await?;
        Ok(sealed || !made.to_keep.is_empty() || !made.wanted.is_empty())
    }

    /// Seals the sensitive values that a turn is to propose with. True when there were any.
    async fn seal(&mut self, made: &Made) -> Result<bool, RunError> {
        if made.to_seal.is_empty() && !made.wants_safe {
            return Ok(false);
        }
        let Some(vault) = &self.desk.shared.vault else { return Ok(false) };
        let safe = match self.desk.safe() {
            Some(safe) => Arc::clone(safe),
            None => vault.ensure(vault.family(self.desk.trajectory).await?).await?,
        };
        let values: Vec<_> = made.to_seal.iter().map(|(_, value)| value.clone()).collect();
        let commitments = safe.seal(&values).await?;
        for ((place, _), commitment) in made.to_seal.iter().zip(commitments) {
            self.sealed.put(place.clone(), commitment);
        }
        self.desk.take_safe(safe);
        Ok(true)
    }
}

/// The sensitive values of a trajectory that has any; or why it cannot go on without them. One that is to
/// stop needs none.
pub(super) async fn safe_of(
    shared: &Shared,
    chain: &Chain<Facts>,
) -> Result<Result<Option<Arc<Safe>>, String>, RunError> {
    let (state, facts) = (chain.state(), chain.view());
    if !facts.sensitive() {
        return Ok(Ok(None));
    }
    let why = match &shared.vault {
        None => "it has sensitive values, and this worker has no place for data keys".to_owned(),
        Some(vault) => {
            let family = vault.family(state.trajectory()).await?;
            match vault.held(family).await? {
                Held::Safe(safe) => return Ok(Ok(Some(safe))),
                Held::Erased(_) => RunError::Erased(family).to_string(),
                Held::Nothing => {
                    let place = vault.place();
                    RunError::NoDataKey { trajectory: family, place }.to_string()
                }
            }
        }
    };
    Ok(if facts.cancelled().is_some() { Ok(None) } else { Err(why) })
}
