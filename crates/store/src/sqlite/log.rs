//! The transparency log: read by the readers, grown inside the writer's transaction.

use async_trait::async_trait;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::ids::TrajectoryId;
use gesta_core::log::tiles::TileId;
use gesta_core::time::UnixMs;
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::{SqliteStore, limit, rows};
use crate::error::StoreError;
use crate::log::{CheckpointRow, Lag, LogStore, Run, Seal, UnsealedRow, Which};

const UNSEALED: &str = "
    SELECT trajectory, sealed, head_seq FROM trajectories INDEXED BY trajectories_unsealed
    WHERE unsealed = 1 AND trajectory > ?1 AND head_seq >= sealed ORDER BY trajectory LIMIT ?2";
const LAG: &str = "
    SELECT count(*), coalesce(sum(head_seq + 1 - sealed), 0)
    FROM trajectories INDEXED BY trajectories_unsealed
    WHERE unsealed = 1 AND head_seq >= sealed";
const GROW: &str = "
    UPDATE log SET size = ?2 WHERE size = ?1 AND (SELECT number FROM epoch) = ?3";
const SEALED: &str = "
    UPDATE trajectories SET sealed = ?2, unsealed = head_seq >= ?2 WHERE trajectory = ?1";
const PUT_RUN: &str = "
    INSERT INTO log_runs (first_leaf, trajectory, first_seq, ids) VALUES (?1, ?2, ?3, ?4)";
const PUT_TILE: &str =
    "INSERT OR REPLACE INTO log_tiles (level, number, bytes) VALUES (?1, ?2, ?3)";
const REPLACE_NODE: &str = "UPDATE log_map SET replaced = ?2 WHERE hash = ?1";
const PUT_NODE: &str = "INSERT OR REPLACE INTO log_map (hash, bytes) VALUES (?1, ?2)";
const FORGET_NODES: &str = "DELETE FROM log_map WHERE replaced <= ?1";
const PUT_CHECKPOINT: &str = "
    INSERT INTO log_checkpoints (size, at, witnesses, note) VALUES (?1, ?2, ?3, ?4)";
const CHECKPOINT: &str = "SELECT size, at, witnesses, note FROM log_checkpoints WHERE size = ?1";
const NEWEST: &str =
    "SELECT size, at, witnesses, note FROM log_checkpoints ORDER BY size DESC LIMIT 1";
const WITNESSED: &str = "
    SELECT size, at, witnesses, note FROM log_checkpoints WHERE witnesses > 0
    ORDER BY size DESC LIMIT 1";
const COSIGN: &str = "
    UPDATE log_checkpoints SET witnesses = ?3, note = ?4 WHERE size = ?1 AND note = ?2";
const TILE: &str = "SELECT bytes FROM log_tiles WHERE level = ?1 AND number = ?2";
const NODE: &str = "SELECT bytes FROM log_map WHERE hash = ?1";
const RUN_BEFORE: &str = "
    SELECT first_leaf, trajectory, first_seq, ids FROM log_runs
    WHERE trajectory = ?1 AND first_seq <= ?2 ORDER BY first_seq DESC LIMIT 1";
const RUNS: &str = "
    SELECT first_leaf, trajectory, first_seq, ids FROM log_runs
    WHERE first_leaf >= coalesce(
        (SELECT max(first_leaf) FROM log_runs WHERE first_leaf <= ?1), 0)
    ORDER BY first_leaf LIMIT ?2";

#[async_trait]
impl LogStore for SqliteStore {
    async fn unsealed(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<UnsealedRow>, StoreError> {
        self.readers
            .run(move |db| {
                let after = after.as_ref().map_or(&[][..], |after| after.as_bytes());
                db.prepare_cached(UNSEALED)?
                    .query_map(params![after, limit(max)], |row| {
                        let trajectory = rows::trajectory_id(row, 0)?;
                        Ok(UnsealedRow { trajectory, from: row.get(1)?, to: row.get(2)? })
                    })?
                    .collect()
            })
            .await
    }

    async fn lag(&self) -> Result<Lag, StoreError> {
        self.readers
            .run(move |db| {
                db.prepare_cached(LAG)?.query_row([], |row| {
                    Ok(Lag { trajectories: row.get(0)?, entries: row.get(1)? })
                })
            })
            .await
    }

    async fn seal(&self, seal: &Seal) -> Result<bool, StoreError> {
        let seal = seal.clone();
        self.writer.run(move |db| grow(db, &seal).map(Ok)).await
    }

    async fn checkpoint(&self, which: Which) -> Result<Option<CheckpointRow>, StoreError> {
        self.readers.run(move |db| checkpoint(db, which)).await
    }

    async fn cosign(&self, old: &CheckpointRow, new: &CheckpointRow) -> Result<bool, StoreError> {
        let (old, new) = (old.clone(), new.clone());
        self.writer
            .run(move |db| {
                let row = params![old.size, old.note, new.witnesses, new.note];
                Ok(Ok(db.prepare_cached(COSIGN)?.execute(row)? == 1))
            })
            .await
    }

    async fn tiles(&self, ids: &[TileId]) -> Result<Vec<(TileId, Vec<u8>)>, StoreError> {
        let ids = ids.to_vec();
        self.readers
            .run(move |db| {
                let mut found = Vec::new();
                for id in &ids {
                    let tile = db
                        .prepare_cached(TILE)?
                        .query_row(params![id.level, id.number], |row| row.get(0))
                        .optional()?;
                    found.extend(tile.map(|tile| (*id, tile)));
                }
                Ok(found)
            })
            .await
    }

    async fn map_nodes(&self, hashes: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        let hashes = hashes.to_vec();
        self.readers
            .run(move |db| {
                let mut found = Vec::new();
                for hash in &hashes {
                    let node = db
                        .prepare_cached(NODE)?
                        .query_row([hash.as_bytes()], |row| row.get(0))
                        .optional()?;
                    found.extend(node.map(|node| (*hash, node)));
                }
                Ok(found)
            })
            .await
    }

    async fn run_before(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<Run>, StoreError> {
        self.readers
            .run(move |db| {
                db.prepare_cached(RUN_BEFORE)?
                    .query_row(params![trajectory.as_bytes(), seq], run)
                    .optional()
            })
            .await
    }

    async fn runs(&self, from_leaf: u64, max: usize) -> Result<Vec<Run>, StoreError> {
        self.readers
            .run(move |db| {
                db.prepare_cached(RUNS)?.query_map(params![from_leaf, limit(max)], run)?.collect()
            })
            .await
    }
}

/// Adds to the log, or says that somebody else was first.
fn grow(db: &Connection, seal: &Seal) -> Result<bool> {
    let Seal { epoch, from, checkpoint: row, runs, tiles, added, replaced, forget } = seal;
    if db.prepare_cached(GROW)?.execute([from, &row.size, epoch])? == 0 {
        let there = checkpoint(db, Which::Size(row.size))?;
        return Ok(there.is_some_and(|there| there.note.starts_with(&row.note)));
    }
    for run in runs {
        let ids: Vec<u8> = run.ids.iter().flat_map(|id| *id.as_bytes()).collect();
        let trajectory = run.trajectory.as_bytes();
        let leaves = params![run.first_leaf, trajectory, run.first_seq, ids];
        db.prepare_cached(PUT_RUN)?.execute(leaves)?;
        let sealed = run.first_seq + run.ids.len() as u64;
        db.prepare_cached(SEALED)?.execute(params![trajectory, sealed])?;
    }
    for (id, bytes) in tiles {
        db.prepare_cached(PUT_TILE)?.execute(params![id.level, id.number, bytes])?;
    }
    for hash in replaced {
        db.prepare_cached(REPLACE_NODE)?.execute(params![hash.as_bytes(), row.size])?;
    }
    for (hash, bytes) in added {
        db.prepare_cached(PUT_NODE)?.execute(params![hash.as_bytes(), bytes])?;
    }
    db.prepare_cached(FORGET_NODES)?.execute([forget])?;
    db.prepare_cached(PUT_CHECKPOINT)?.execute(params![
        row.size,
        row.at.0,
        row.witnesses,
        row.note
    ])?;
    Ok(true)
}

fn checkpoint(db: &Connection, which: Which) -> Result<Option<CheckpointRow>> {
    let read = |row: &Row<'_>| {
        Ok(CheckpointRow {
            size: row.get(0)?,
            at: UnixMs(row.get(1)?),
            witnesses: row.get(2)?,
            note: row.get(3)?,
        })
    };
    match which {
        Which::Newest => db.prepare_cached(NEWEST)?.query_row([], read).optional(),
        Which::Witnessed => db.prepare_cached(WITNESSED)?.query_row([], read).optional(),
        Which::Size(size) => db.prepare_cached(CHECKPOINT)?.query_row([size], read).optional(),
    }
}

fn run(row: &Row<'_>) -> Result<Run> {
    let ids: Vec<u8> = row.get(3)?;
    let (ids, _) = ids.as_chunks::<32>();
    Ok(Run {
        first_leaf: row.get(0)?,
        trajectory: rows::trajectory_id(row, 1)?,
        first_seq: row.get(2)?,
        ids: ids.iter().map(|id| EntryId::new(Digest::from_bytes(*id))).collect(),
    })
}
