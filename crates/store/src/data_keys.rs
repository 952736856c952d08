//! Data keys: what sensitive values are encrypted under, one for each trajectory that begins a family.
//! They are kept apart from the store, so that no backup of it holds them: to erase is to destroy one.
//!
//! Beside each key stands where the openings of its commitments are: blobs of the store, encrypted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use zeroize::Zeroizing;

use crate::error::StoreError;

/// The key that a family's sensitive values are encrypted under. Its memory is overwritten when it is
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; 32]>);

impl DataKey {
    /// A key of 32 random bytes, which the caller draws.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// What names it once it is gone.
    pub fn digest(&self) -> Digest {
        let hex = self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Digest::of_parts(&[b"gesta.data-key", Zeroizing::new(hex).as_bytes()])
    }
}

/// Not shown.
impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// What there is of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// There never was one here.
    Nothing,
    /// It is here.
    Key(DataKey),
    /// It was destroyed; its digest is left.
    Destroyed(Digest),
}

/// Where data keys are kept.
#[async_trait]
pub trait DataKeys: Send + Sync + 'static {
    /// Where that is, for people.
    fn place(&self) -> String;

    /// Keeps a fresh key for a trajectory unless there is one, or was one, and says which it is now. `Ok`
    /// means durable. A crash leaves none or this one.
    async fn ensure(&self, trajectory: TrajectoryId, fresh: &DataKey) -> Result<Kept, StoreError>;

    /// The key of a trajectory.
    async fn key(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError>;

    /// Notes in which blobs the openings of commitments are. `Ok` means durable. The same again changes
    /// nothing; refused where there is no key.
    async fn note(
        &self,
        trajectory: TrajectoryId,
        openings: &[(Digest, Digest)],
    ) -> Result<(), StoreError>;

    /// The blob in which the opening of a commitment is.
    async fn opening(
        &self,
        trajectory: TrajectoryId,
        commitment: Digest,
    ) -> Result<Option<Digest>, StoreError>;

    /// Destroys the key of a trajectory: overwritten, and only its digest left. `Ok` means durable. A crash
    /// leaves all of it or nothing; the same again changes nothing.
    async fn destroy(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError>;

    /// Every trajectory whose key was destroyed, with the digest of the key: what a copy of the store from before
    /// that does not know.
    async fn destroyed(&self) -> Result<Vec<(TrajectoryId, Digest)>, StoreError>;
}

/// Why nothing is noted.
pub(crate) fn no_key(trajectory: TrajectoryId) -> StoreError {
    StoreError::Refused { why: format!("{trajectory} has no data key, or it was destroyed") }
}

/// Keys that die with the process.
#[derive(Default)]
pub struct MemoryDataKeys(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    keys: BTreeMap<TrajectoryId, Kept>,
    openings: BTreeMap<(TrajectoryId, Digest), Digest>,
}

impl MemoryDataKeys {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl DataKeys for MemoryDataKeys {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    async fn ensure(&self, trajectory: TrajectoryId, fresh: &DataKey) -> Result<Kept, StoreError> {
        let mut rows = self.rows();
        Ok(rows.keys.entry(trajectory).or_insert_with(|| Kept::Key(fresh.clone())).clone())
    }

    async fn key(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        Ok(self.rows().keys.get(&trajectory).cloned().unwrap_or(Kept::Nothing))
    }

    async fn note(
        &self,
        trajectory: TrajectoryId,
        openings: &[(Digest, Digest)],
    ) -> Result<(), StoreError> {
        let mut rows = self.rows();
        if !matches!(rows.keys.get(&trajectory), Some(Kept::Key(_))) {
            return Err(no_key(trajectory));
        }
        for (commitment, blob) in openings {
            rows.openings.entry((trajectory, *commitment)).or_insert(*blob);
        }
        Ok(())
    }

    async fn opening(
        &self,
        trajectory: TrajectoryId,
        commitment: Digest,
    ) -> Result<Option<Digest>, StoreError> {
        Ok(self.rows().openings.get(&(trajectory, commitment)).copied())
    }

    async fn destroy(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        let mut rows = self.rows();
        let Some(kept) = rows.keys.get_mut(&trajectory) else { return Ok(Kept::Nothing) };
        if let Kept::Key(key) = kept {
            *kept = Kept::Destroyed(key.digest());
        }
        let kept = kept.clone();
        rows.openings.retain(|(of, _), _| *of != trajectory);
        Ok(kept)
    }

    async fn destroyed(&self) -> Result<Vec<(TrajectoryId, Digest)>, StoreError> {
        let rows = self.rows();
        let gone = rows.keys.iter().filter_map(|(trajectory, kept)| match kept {
            Kept::Destroyed(digest) => Some((*trajectory, *digest)),
            Kept::Key(_) | Kept::Nothing => None,
        });
        Ok(gone.collect())
    }
}
