//! The transparency log. Sealers meet at one row, which appends never touch; what an append shares with a
//! sealer is its own trajectory's row, for the time of one short transaction.

use async_trait::async_trait;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::ids::TrajectoryId;
use gesta_core::log::tiles::TileId;
use gesta_core::time::UnixMs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::PostgresStore;
use super::rows::{self, bigint, limit};
use crate::error::StoreError;
use crate::log::{CheckpointRow, Lag, LogStore, Run, Seal, UnsealedRow, Which};

const UNSEALED: &str = "
    SELECT trajectory, sealed, head_seq FROM trajectories
    WHERE unsealed AND trajectory > $1 AND head_seq >= sealed ORDER BY trajectory LIMIT $2";
const LAG: &str = "
    SELECT count(*) AS trajectories, coalesce(sum(head_seq + 1 - sealed), 0)::bigint AS entries
    FROM trajectories WHERE unsealed AND head_seq >= sealed";
const GROW: &str = "
    UPDATE log SET size = $2 WHERE size = $1 AND (SELECT number FROM epoch) = $3";
const PUT_RUNS: &str = "
    INSERT INTO log_runs (first_leaf, trajectory, first_seq, ids)
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[])";
const PUT_TILES: &str = "
    INSERT INTO log_tiles (level, number, bytes)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])
    ON CONFLICT (level, number) DO UPDATE SET bytes = excluded.bytes";
const REPLACE_NODES: &str = "UPDATE log_map SET replaced = $2 WHERE hash = ANY ($1::bytea[])";
const PUT_NODES: &str = "
    INSERT INTO log_map (hash, bytes) SELECT * FROM unnest($1::bytea[], $2::bytea[])
    ON CONFLICT (hash) DO UPDATE SET replaced = NULL";
const FORGET_NODES: &str = "DELETE FROM log_map WHERE replaced <= $1";
const PUT_CHECKPOINT: &str =
    "INSERT INTO log_checkpoints (size, at_ms, witnesses, note) VALUES ($1, $2, $3, $4)";
/// In the order in which appends lock them.
const LOCK: &str = "
    SELECT FROM trajectories WHERE trajectory = ANY ($1::bytea[])
    ORDER BY trajectory FOR NO KEY UPDATE";
const SEALED: &str = "
    UPDATE trajectories AS t
    SET sealed = s.sealed, unsealed = t.head_seq >= s.sealed
    FROM unnest($1::bytea[], $2::bigint[]) AS s (trajectory, sealed)
    WHERE t.trajectory = s.trajectory";
const CHECKPOINT: &str = "SELECT size, at_ms, witnesses, note FROM log_checkpoints WHERE size = $1";
const NEWEST: &str =
    "SELECT size, at_ms, witnesses, note FROM log_checkpoints ORDER BY size DESC LIMIT 1";
const WITNESSED: &str = "
    SELECT size, at_ms, witnesses, note FROM log_checkpoints WHERE witnesses > 0
    ORDER BY size DESC LIMIT 1";
const COSIGN: &str = "
    UPDATE log_checkpoints SET witnesses = $3, note = $4 WHERE size = $1 AND note = $2
    RETURNING size";
const TILES: &str = "
    SELECT t.level, t.number, t.bytes
    FROM log_tiles AS t JOIN unnest($1::bigint[], $2::bigint[]) AS w (level, number)
        ON t.level = w.level AND t.number = w.number";
const NODES: &str = "SELECT hash, bytes FROM log_map WHERE hash = ANY ($1::bytea[])";
const RUN_BEFORE: &str = "
    SELECT first_leaf, trajectory, first_seq, ids FROM log_runs
    WHERE trajectory = $1 AND first_seq <= $2 ORDER BY first_seq DESC LIMIT 1";
const RUNS: &str = "
    SELECT first_leaf, trajectory, first_seq, ids FROM log_runs
    WHERE first_leaf >= coalesce(
        (SELECT max(first_leaf) FROM log_runs WHERE first_leaf <= $1), 0)
    ORDER BY first_leaf LIMIT $2";

#[async_trait]
impl LogStore for PostgresStore {
    async fn unsealed(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<UnsealedRow>, StoreError> {
        let after = after.map_or(Vec::new(), |after| after.as_bytes().to_vec());
        let row = |row: &Row| {
            let trajectory = rows::trajectory(row)?;
            let (from, to) = (rows::number(row, "sealed")?, rows::number(row, "head_seq")?);
            Ok(UnsealedRow { trajectory, from, to })
        };
        self.link.query(UNSEALED, &[&after, &limit(max)]).await?.iter().map(row).collect()
    }

    async fn lag(&self) -> Result<Lag, StoreError> {
        let found = self.link.query(LAG, &[]).await?;
        let Some(row) = found.first() else { return Ok(Lag::default()) };
        let (trajectories, entries) =
            (rows::number(row, "trajectories")?, rows::number(row, "entries")?);
        Ok(Lag { trajectories, entries })
    }

    async fn seal(&self, seal: &Seal) -> Result<bool, StoreError> {
        let columns = Columns::of(seal)?;
        let grown = self.link.transact(async |client: &Client| columns.write(client).await).await?;
        if grown {
            return Ok(true);
        }
        let there = self.checkpoint(Which::Size(seal.checkpoint.size)).await?;
        Ok(there.is_some_and(|there| there.note.starts_with(&seal.checkpoint.note)))
    }

    async fn checkpoint(&self, which: Which) -> Result<Option<CheckpointRow>, StoreError> {
        let found = match which {
            Which::Newest => self.link.query(NEWEST, &[]).await?,
            Which::Witnessed => self.link.query(WITNESSED, &[]).await?,
            Which::Size(size) => self.link.query(CHECKPOINT, &[&bigint(size)?]).await?,
        };
        found.first().map(checkpoint).transpose()
    }

    async fn cosign(&self, old: &CheckpointRow, new: &CheckpointRow) -> Result<bool, StoreError> {
        let (size, witnesses) = (bigint(old.size)?, i64::from(new.witnesses));
        let row: [&(dyn ToSql + Sync); 4] = [&size, &old.note, &witnesses, &new.note];
        Ok(!self.link.query(COSIGN, &row).await?.is_empty())
    }

    async fn tiles(&self, ids: &[TileId]) -> Result<Vec<(TileId, Vec<u8>)>, StoreError> {
        let levels: Vec<i64> = ids.iter().map(|id| i64::from(id.level)).collect();
        let numbers = ids.iter().map(|id| bigint(id.number)).collect::<Result<Vec<_>, _>>()?;
        let tile = |row: &Row| {
            let level = rows::number(row, "level")?;
            let level = u8::try_from(level).map_err(|_| rows::damaged("level"))?;
            let id = TileId { level, number: rows::number(row, "number")? };
            Ok((id, rows::get(row, "bytes")?))
        };
        self.link.query(TILES, &[&levels, &numbers]).await?.iter().map(tile).collect()
    }

    async fn map_nodes(&self, hashes: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        let hashes: Vec<&[u8]> = hashes.iter().map(|hash| hash.as_bytes().as_slice()).collect();
        let node = |row: &Row| {
            let hash: &[u8] = rows::get(row, "hash")?;
            let hash = hash.try_into().map_err(|_| rows::damaged("hash"))?;
            Ok((Digest::from_bytes(hash), rows::get(row, "bytes")?))
        };
        self.link.query(NODES, &[&hashes]).await?.iter().map(node).collect()
    }

    async fn run_before(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<Run>, StoreError> {
        let trajectory = trajectory.as_bytes().as_slice();
        let found = self.link.query(RUN_BEFORE, &[&trajectory, &bigint(seq)?]).await?;
        found.first().map(run).transpose()
    }

    async fn runs(&self, from_leaf: u64, max: usize) -> Result<Vec<Run>, StoreError> {
        let found = self.link.query(RUNS, &[&bigint(from_leaf)?, &limit(max)]).await?;
        found.iter().map(run).collect()
    }
}

/// What is sealed, column by column.
struct Columns<'a> {
    epoch: i64,
    from: i64,
    size: i64,
    at_ms: i64,
    witnesses: i64,
    note: &'a str,
    forget: i64,
    first_leaves: Vec<i64>,
    trajectories: Vec<&'a [u8]>,
    first_seqs: Vec<i64>,
    ids: Vec<Vec<u8>>,
    sealed: Vec<i64>,
    levels: Vec<i64>,
    numbers: Vec<i64>,
    tiles: Vec<&'a [u8]>,
    hashes: Vec<&'a [u8]>,
    nodes: Vec<&'a [u8]>,
    replaced: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(seal: &'a Seal) -> Result<Self, StoreError> {
        let Seal { epoch, from, checkpoint, runs, tiles, added, replaced, forget } = seal;
        let numbers = |numbers: &mut dyn Iterator<Item = u64>| {
            numbers.map(bigint).collect::<Result<Vec<_>, _>>()
        };
        let joined = |run: &Run| run.ids.iter().flat_map(|id| *id.as_bytes()).collect();
        let sealed = |run: &Run| run.first_seq + run.ids.len() as u64;
        Ok(Self {
            epoch: bigint(*epoch)?,
            from: bigint(*from)?,
            size: bigint(checkpoint.size)?,
            at_ms: bigint(checkpoint.at.0)?,
            witnesses: i64::from(checkpoint.witnesses),
            note: &checkpoint.note,
            forget: bigint(*forget)?,
            first_leaves: numbers(&mut runs.iter().map(|run| run.first_leaf))?,
            trajectories: runs.iter().map(|run| run.trajectory.as_bytes().as_slice()).collect(),
            first_seqs: numbers(&mut runs.iter().map(|run| run.first_seq))?,
            ids: runs.iter().map(joined).collect(),
            sealed: numbers(&mut runs.iter().map(sealed))?,
            levels: tiles.iter().map(|(id, _)| i64::from(id.level)).collect(),
            numbers: numbers(&mut tiles.iter().map(|(id, _)| id.number))?,
            tiles: tiles.iter().map(|(_, bytes)| bytes.as_slice()).collect(),
            hashes: added.iter().map(|(hash, _)| hash.as_bytes().as_slice()).collect(),
            nodes: added.iter().map(|(_, bytes)| bytes.as_slice()).collect(),
            replaced: replaced.iter().map(|hash| hash.as_bytes().as_slice()).collect(),
        })
    }

    /// Writes all of it, if the log is as it should be. False if it is not, and then nothing is written.
    async fn write(&self, client: &Client) -> Result<bool, tokio_postgres::Error> {
        if client.execute(GROW, &[&self.from, &self.size, &self.epoch]).await? == 0 {
            return Ok(false);
        }
        let leaves: [&(dyn ToSql + Sync); 4] =
            [&self.first_leaves, &self.trajectories, &self.first_seqs, &self.ids];
        client.execute(PUT_RUNS, &leaves).await?;
        client.execute(PUT_TILES, &[&self.levels, &self.numbers, &self.tiles]).await?;
        client.execute(REPLACE_NODES, &[&self.replaced, &self.size]).await?;
        client.execute(PUT_NODES, &[&self.hashes, &self.nodes]).await?;
        client.execute(FORGET_NODES, &[&self.forget]).await?;
        let row: [&(dyn ToSql + Sync); 4] = [&self.size, &self.at_ms, &self.witnesses, &self.note];
        client.execute(PUT_CHECKPOINT, &row).await?;
        // Last, so that appends wait for as short as can be.
        client.query(LOCK, &[&self.trajectories]).await?;
        client.execute(SEALED, &[&self.trajectories, &self.sealed]).await?;
        Ok(true)
    }
}

fn checkpoint(row: &Row) -> Result<CheckpointRow, StoreError> {
    let witnesses = rows::number(row, "witnesses")?;
    Ok(CheckpointRow {
        size: rows::number(row, "size")?,
        at: UnixMs(rows::number(row, "at_ms")?),
        witnesses: u32::try_from(witnesses).map_err(|_| rows::damaged("witnesses"))?,
        note: rows::get(row, "note")?,
    })
}

fn run(row: &Row) -> Result<Run, StoreError> {
    let ids: &[u8] = rows::get(row, "ids")?;
    let (ids, []) = ids.as_chunks::<32>() else { return Err(rows::damaged("ids")) };
    Ok(Run {
        first_leaf: rows::number(row, "first_leaf")?,
        trajectory: rows::trajectory(row)?,
        first_seq: rows::number(row, "first_seq")?,
        ids: ids.iter().map(|id| EntryId::new(Digest::from_bytes(*id))).collect(),
    })
}
