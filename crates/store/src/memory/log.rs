//! The transparency log in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::log::tiles::TileId;

use super::{MemoryStore, Tables};
use crate::error::StoreError;
use crate::log::{CheckpointRow, Lag, LogStore, Run, Seal, UnsealedRow, Which};

/// The log.
#[derive(Default)]
pub(super) struct Log {
    checkpoints: BTreeMap<u64, CheckpointRow>,
    runs: BTreeMap<u64, Run>,
    /// By trajectory and first number, the first leaf.
    places: BTreeMap<(TrajectoryId, u64), u64>,
    tiles: BTreeMap<TileId, Vec<u8>>,
    /// Nodes of the map, and how many leaves there were when they were replaced.
    map: BTreeMap<Digest, (Vec<u8>, Option<u64>)>,
    /// How many entries of each trajectory the log holds.
    sealed: BTreeMap<TrajectoryId, u64>,
}

impl Log {
    fn size(&self) -> u64 {
        self.checkpoints.last_key_value().map_or(0, |(size, _)| *size)
    }

    fn seal(&mut self, seal: &Seal, now: u64) -> bool {
        let Seal { epoch, from, checkpoint, runs, tiles, added, replaced, forget } = seal;
        if (self.size(), now) != (*from, *epoch) {
            let there = self.checkpoints.get(&checkpoint.size);
            return there.is_some_and(|there| there.note.starts_with(&checkpoint.note));
        }
        for run in runs {
            let sealed = run.first_seq + run.ids.len() as u64;
            self.sealed.insert(run.trajectory, sealed);
            self.places.insert((run.trajectory, run.first_seq), run.first_leaf);
            self.runs.insert(run.first_leaf, run.clone());
        }
        self.tiles.extend(tiles.iter().cloned());
        for hash in replaced {
            if let Some((_, at)) = self.map.get_mut(hash) {
                *at = Some(checkpoint.size);
            }
        }
        self.map.extend(added.iter().map(|(hash, bytes)| (*hash, (bytes.clone(), None))));
        self.map.retain(|_, (_, replaced)| replaced.is_none_or(|at| at > *forget));
        self.checkpoints.insert(checkpoint.size, checkpoint.clone());
        true
    }
}

impl Tables {
    fn unsealed(&self, after: Option<TrajectoryId>) -> impl Iterator<Item = UnsealedRow> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.trajectories.range((after, Bound::Unbounded));
        behind.filter_map(|(trajectory, chain)| {
            let from = self.log.sealed.get(trajectory).copied().unwrap_or(0);
            let to = chain.head.seq;
            (from <= to).then_some(UnsealedRow { trajectory: *trajectory, from, to })
        })
    }
}

#[async_trait]
impl LogStore for MemoryStore {
    async fn unsealed(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<UnsealedRow>, StoreError> {
        Ok(self.tables().unsealed(after).take(max).collect())
    }

    async fn lag(&self) -> Result<Lag, StoreError> {
        let lag = |lag: Lag, row: UnsealedRow| Lag {
            trajectories: lag.trajectories + 1,
            entries: lag.entries + row.to + 1 - row.from,
        };
        Ok(self.tables().unsealed(None).fold(Lag::default(), lag))
    }

    async fn seal(&self, seal: &Seal) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let epoch = tables.epoch.0.max(1);
        Ok(tables.log.seal(seal, epoch))
    }

    async fn checkpoint(&self, which: Which) -> Result<Option<CheckpointRow>, StoreError> {
        let tables = self.tables();
        let mut newest = tables.log.checkpoints.values().rev();
        Ok(match which {
            Which::Newest => newest.next().cloned(),
            Which::Witnessed => newest.find(|row| row.witnesses > 0).cloned(),
            Which::Size(size) => tables.log.checkpoints.get(&size).cloned(),
        })
    }

    async fn cosign(&self, old: &CheckpointRow, new: &CheckpointRow) -> Result<bool, StoreError> {
        match self.tables().log.checkpoints.get_mut(&old.size) {
            Some(row) if row.note == old.note => {
                *row = new.clone();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn tiles(&self, ids: &[TileId]) -> Result<Vec<(TileId, Vec<u8>)>, StoreError> {
        let tables = self.tables();
        Ok(ids.iter().filter_map(|id| Some((*id, tables.log.tiles.get(id)?.clone()))).collect())
    }

    async fn map_nodes(&self, hashes: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        let tables = self.tables();
        let node = |hash: &Digest| Some((*hash, tables.log.map.get(hash)?.0.clone()));
        Ok(hashes.iter().filter_map(node).collect())
    }

    async fn run_before(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<Run>, StoreError> {
        let tables = self.tables();
        let before = tables.log.places.range((trajectory, 0)..=(trajectory, seq)).next_back();
        Ok(before.and_then(|(_, first_leaf)| tables.log.runs.get(first_leaf)).cloned())
    }

    async fn runs(&self, from_leaf: u64, max: usize) -> Result<Vec<Run>, StoreError> {
        let tables = self.tables();
        let holds = tables.log.runs.range(..=from_leaf).next_back().map_or(0, |(first, _)| *first);
        Ok(tables.log.runs.range(holds..).map(|(_, run)| run.clone()).take(max).collect())
    }
}
