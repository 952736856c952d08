//! Proofs from the transparency log of a store: that an entry is in it, which entry was the last of its
//! trajectory, and that one checkpoint goes on where another ended.

use std::collections::BTreeMap;

use gesta_core::digest::Digest;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::log::Leaf;
use gesta_core::log::checkpoint::{Checkpoint, CheckpointError};
use gesta_core::log::evidence::{ConsistencyProof, EntryProof, HeadProof, Proofs, SealedHead};
use gesta_core::log::map::{self, Descent};
use gesta_core::log::note::Note;
use gesta_core::log::tiles::{TileError, Tiles};
use gesta_core::log::tree::{self, Range};
use gesta_store::{CheckpointRow, Run, Store, StoreError};

use crate::sealing::SealError;

/// How many runs are read at a time.
const PAGE: usize = 1024;
/// The last number that JSON can tell.
const LAST_SEQ: u64 = (1 << 53) - 1;

/// A checkpoint of a store's log, to prove things against.
pub struct Prover<'a> {
    store: &'a dyn Store,
    /// The checkpoint as it is kept.
    pub row: CheckpointRow,
    /// What it says.
    pub checkpoint: Checkpoint,
}

impl<'a> Prover<'a> {
    /// Reads what a checkpoint says.
    pub fn new(store: &'a dyn Store, row: CheckpointRow) -> Result<Self, SealError> {
        let note = Note::parse(row.note.as_bytes()).map_err(CheckpointError::Note)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        Ok(Self { store, row, checkpoint })
    }

    /// The number of an entry in the log, if the checkpoint holds it.
    async fn index(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<(u64, Head)>, StoreError> {
        let Some(run) = self.store.log().run_before(trajectory, seq).await? else {
            return Ok(None);
        };
        let within = seq - run.first_seq;
        let id = usize::try_from(within).ok().and_then(|at| run.ids.get(at));
        let index = run.first_leaf + within;
        Ok(id.filter(|_| index < self.checkpoint.size).map(|id| (index, Head { id: *id, seq })))
    }

    /// The hashes of these parts of the tree.
    async fn read(&self, ranges: &[Range]) -> Result<Vec<Digest>, SealError> {
        let wanted: Vec<_> = Tiles::wanted(ranges).into_iter().collect();
        let tiles = Tiles::new(self.store.log().tiles(&wanted).await?)?;
        Ok(tiles.read(ranges)?)
    }

    async fn inclusion(&self, index: u64) -> Result<Vec<Digest>, SealError> {
        let size = self.checkpoint.size;
        let ranges = tree::inclusion(index, size).ok_or(TileError::Beyond { size })?;
        self.read(&ranges).await
    }

    /// The last entry of a trajectory that the checkpoint holds.
    async fn head(&self, trajectory: TrajectoryId) -> Result<Option<(u64, Head)>, SealError> {
        let mut seq = LAST_SEQ;
        while let Some(run) = self.store.log().run_before(trajectory, seq).await? {
            match (self.last_within(&run), run.first_seq.checked_sub(1)) {
                (Some(found), _) => return Ok(Some(found)),
                (None, Some(before)) => seq = before,
                (None, None) => break,
            }
        }
        Ok(None)
    }

    /// The last entry of a run that the checkpoint holds.
    fn last_within(&self, run: &Run) -> Option<(u64, Head)> {
        let held = self.checkpoint.size.checked_sub(run.first_leaf)?.min(run.ids.len() as u64);
        let at = held.checked_sub(1)?;
        let id = *run.ids.get(usize::try_from(at).ok()?)?;
        Some((run.first_leaf + at, Head { id, seq: run.first_seq + at }))
    }

    async fn sealed(&self, (index, head): (u64, Head)) -> Result<SealedHead, SealError> {
        Ok(SealedHead { head, inclusion: self.inclusion(index).await?, index })
    }

    /// What the checkpoint says of the heads of these trajectories.
    pub async fn heads(&self, trajectories: &[TrajectoryId]) -> Result<Proofs, SealError> {
        let keys = trajectories.iter().map(|trajectory| map::key(*trajectory));
        let mut descent = Descent::new(self.checkpoint.map, keys);
        while !descent.wanted().is_empty() {
            let found = self.store.log().map_nodes(&descent.wanted()).await?;
            descent.supply(&found.into_iter().collect())?;
        }
        let mut heads = Vec::new();
        for trajectory in trajectories {
            let sealed = match self.head(*trajectory).await? {
                Some(found) => Some(self.sealed(found).await?),
                None => None,
            };
            let map = Some(descent.prove(map::key(*trajectory))?);
            heads.push(HeadProof { map, sealed, trajectory: *trajectory });
        }
        Ok(Proofs::new(heads, false))
    }

    /// All trajectories that the log knew at the checkpoint, with their heads.
    pub async fn all(&self) -> Result<Proofs, SealError> {
        let mut found: BTreeMap<TrajectoryId, (u64, Head)> = BTreeMap::new();
        let mut from = 0;
        while from < self.checkpoint.size {
            let page = self.store.log().runs(from, PAGE).await?;
            let end = page.last().map_or(0, |last| last.first_leaf + last.ids.len() as u64);
            if end <= from {
                // Leaves are missing: what is there does not give the root that was signed.
                break;
            }
            from = end;
            for run in &page {
                found.extend(self.last_within(run).map(|head| (run.trajectory, head)));
            }
        }
        let mut heads = Vec::new();
        for (trajectory, head) in found {
            let sealed = Some(self.sealed(head).await?);
            heads.push(HeadProof { map: None, sealed, trajectory });
        }
        Ok(Proofs::new(heads, true))
    }

    /// That an entry is in the log, and which was the last of its trajectory. None if the checkpoint does not
    /// hold it.
    pub async fn entry(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<EntryProof>, SealError> {
        let Some((index, at)) = self.index(trajectory, seq).await? else { return Ok(None) };
        let Some(head) = self.heads(&[trajectory]).await?.heads.pop() else { return Ok(None) };
        Ok(Some(EntryProof {
            checkpoint: self.row.note.clone(),
            entry: Leaf::new(trajectory, at),
            head,
            inclusion: self.inclusion(index).await?,
            index,
            type_: EntryProof::TYPE.to_owned(),
        }))
    }

    /// That the checkpoint goes on where the log ended when it had `from` leaves.
    pub async fn consistency(&self, from: u64) -> Result<ConsistencyProof, SealError> {
        let size = self.checkpoint.size;
        let ranges = tree::consistency(from, size).ok_or(TileError::Beyond { size })?;
        Ok(ConsistencyProof {
            checkpoint: self.row.note.clone(),
            consistency: self.read(&ranges).await?,
            from,
            type_: ConsistencyProof::TYPE.to_owned(),
        })
    }
}
