//! The part of the port that the transparency log needs. A store keeps tiles, nodes of the map and
//! checkpoints, and knows nothing of what they mean; that the log grows from one end only is its word.

use async_trait::async_trait;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::log::tiles::TileId;
use gesta_core::time::UnixMs;

use crate::error::StoreError;

/// A trajectory with entries that the log does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsealedRow {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The number of its first entry that the log does not hold.
    pub from: u64,
    /// The number of its last entry.
    pub to: u64,
}

/// How far the log is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Trajectories with entries that the log does not hold.
    pub trajectories: u64,
    /// Those entries.
    pub entries: u64,
}

/// Entries of one trajectory that follow each other in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of the first in the log.
    pub first_leaf: u64,
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The number of the first in its trajectory.
    pub first_seq: u64,
    /// The entries.
    pub ids: Vec<EntryId>,
}

impl Run {
    /// The last entry.
    pub fn head(&self) -> Option<Head> {
        let id = *self.ids.last()?;
        Some(Head { id, seq: self.first_seq + self.ids.len() as u64 - 1 })
    }
}

/// A checkpoint that was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRow {
    /// How many leaves the log had.
    pub size: u64,
    /// When.
    pub at: UnixMs,
    /// How many witnesses have cosigned it.
    pub witnesses: u32,
    /// The signed note.
    pub note: String,
}

/// Which checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Newest,
    /// The newest that a witness has cosigned.
    Witnessed,
    /// That of the log with this many leaves.
    Size(u64),
}

/// What a sealer adds to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The epoch that the store must still be in: what a restored copy seals is another log's.
    pub epoch: u64,
    /// How many leaves the log must still have.
    pub from: u64,
    /// The checkpoint of the log as it is then.
    pub checkpoint: CheckpointRow,
    /// The entries that are new, in order.
    pub runs: Vec<Run>,
    /// Tiles, as they are then.
    pub tiles: Vec<(TileId, Vec<u8>)>,
    /// New nodes of the map.
    pub added: Vec<(Digest, Vec<u8>)>,
    /// Nodes that the map does not have from now on.
    pub replaced: Vec<Digest>,
    /// Nodes that were replaced when the log had at most this many leaves are needed by nobody.
    pub forget: u64,
}

/// A store of one transparency log.
#[async_trait]
pub trait LogStore: Send + Sync + 'static {
    /// Trajectories with entries that the log does not hold, by id, after this one, at most `max` of
    /// them. What is looked at follows what is new.
    async fn unsealed(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<UnsealedRow>, StoreError>;

    /// How far the log is behind.
    async fn lag(&self) -> Result<Lag, StoreError>;

    /// Adds to the log, if it still has as many leaves as are expected and the store is in the same epoch:
    /// all of it or none, and what of which trajectory is sealed with it. False when somebody else has
    /// added first, or opened an epoch; then nothing is changed. `Ok` means durable. After a crash without an answer it is unknown; the same again settles
    /// it, since what is there already counts as added.
    async fn seal(&self, seal: &Seal) -> Result<bool, StoreError>;

    /// A checkpoint.
    async fn checkpoint(&self, which: Which) -> Result<Option<CheckpointRow>, StoreError>;

    /// Replaces a checkpoint by the same with more cosignatures, if it is still as `old` says. A crash
    /// leaves the old or the new one.
    async fn cosign(&self, old: &CheckpointRow, new: &CheckpointRow) -> Result<bool, StoreError>;

    /// Those of these tiles that there are, at least as wide as the newest checkpoint needs them.
    async fn tiles(&self, ids: &[TileId]) -> Result<Vec<(TileId, Vec<u8>)>, StoreError>;

    /// Those of these nodes of the map that there are.
    async fn map_nodes(&self, hashes: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError>;

    /// The newest run of a trajectory that begins at this entry or before it.
    async fn run_before(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<Run>, StoreError>;

    /// Runs in the order of the log, from the one on that holds this leaf, at most `max` of them.
    async fn runs(&self, from_leaf: u64, max: usize) -> Result<Vec<Run>, StoreError>;
}
