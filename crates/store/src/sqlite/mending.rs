//! Mending: what there is of trajectories, and rows put back. Of a row only its end is read, as whatever
//! it is.

use async_trait::async_trait;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Summary;
use rusqlite::{Connection, Result, Row, params};

use super::{SqliteStore, append, entries, limit, rows};
use crate::error::StoreError;
use crate::mending::{Mark, Mending, Trace};

/// From one trajectory with entries to the next by the index, however many entries each has.
const TRACES: &str = "
    WITH RECURSIVE with_entries (id) AS (
        SELECT (SELECT trajectory FROM entries WHERE trajectory > ?1 ORDER BY trajectory LIMIT 1)
        UNION ALL
        SELECT (SELECT trajectory FROM entries WHERE trajectory > with_entries.id
            ORDER BY trajectory LIMIT 1)
        FROM with_entries WHERE with_entries.id IS NOT NULL
    ),
    there (id) AS (
        SELECT * FROM (SELECT id FROM with_entries WHERE id IS NOT NULL LIMIT ?2)
        UNION
        SELECT * FROM (SELECT trajectory FROM trajectories WHERE trajectory > ?1
            ORDER BY trajectory LIMIT ?2)
        UNION
        SELECT * FROM (SELECT DISTINCT trajectory FROM parked WHERE trajectory > ?1
            ORDER BY trajectory LIMIT ?2)
    )
    SELECT there.id, t.trajectory IS NOT NULL, CAST(t.head_seq AS INTEGER), CAST(t.head_id AS BLOB),
        t.bundle IS NOT NULL,
        EXISTS (SELECT 1 FROM entries WHERE trajectory = there.id),
        EXISTS (SELECT 1 FROM parked WHERE trajectory = there.id)
    FROM there LEFT JOIN trajectories AS t ON t.trajectory = there.id
    ORDER BY there.id LIMIT ?2";
const TRACE: &str = "
    SELECT there.id, t.trajectory IS NOT NULL, CAST(t.head_seq AS INTEGER), CAST(t.head_id AS BLOB),
        t.bundle IS NOT NULL,
        EXISTS (SELECT 1 FROM entries WHERE trajectory = there.id),
        EXISTS (SELECT 1 FROM parked WHERE trajectory = there.id)
    FROM (SELECT ?1 AS id) AS there LEFT JOIN trajectories AS t ON t.trajectory = there.id";
const SET_HEAD: &str = "
    UPDATE trajectories SET head_seq = ?2, head_id = ?3, unsealed = 1
    WHERE trajectory = ?1 AND CAST(head_seq AS INTEGER) = ?4 AND CAST(head_id AS BLOB) = ?5
        AND bundle IS NULL";
/// What the log and the epochs know of a trajectory whose row was made again.
const RECALL: &str = "
    UPDATE trajectories
    SET sealed = coalesce((SELECT max(first_seq + length(ids) / 32) FROM log_runs
            WHERE trajectory = ?1), 0),
        held = EXISTS (SELECT 1 FROM held WHERE trajectory = ?1 AND released_at IS NULL)
    WHERE trajectory = ?1";
const DROP_PARKED: &str = "
    DELETE FROM parked WHERE trajectory = ?1
        AND NOT EXISTS (SELECT 1 FROM trajectories WHERE trajectory = ?1)
        AND NOT EXISTS (SELECT 1 FROM entries WHERE trajectory = ?1)";

#[async_trait]
impl Mending for SqliteStore {
    async fn traces(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<Trace>, StoreError> {
        self.readers
            .run(move |db| {
                let after = after.as_ref().map_or(&[][..], |after| after.as_bytes());
                db.prepare_cached(TRACES)?.query_map(params![after, limit(max)], trace)?.collect()
            })
            .await
    }

    async fn trace(&self, trajectory: TrajectoryId) -> Result<Trace, StoreError> {
        self.readers
            .run(move |db| db.prepare_cached(TRACE)?.query_row([trajectory.as_bytes()], trace))
            .await
    }

    async fn put_row(
        &self,
        trajectory: TrajectoryId,
        was: Option<&Mark>,
        head: Head,
        summary: &Summary,
    ) -> Result<bool, StoreError> {
        let (was, summary) = (was.cloned(), summary.clone());
        self.writer
            .run(move |db| put_row(db, trajectory, was.as_ref(), head, &summary).map(Ok))
            .await
    }

    async fn drop_parked(&self, trajectory: TrajectoryId) -> Result<bool, StoreError> {
        self.writer
            .run(move |db| {
                Ok(Ok(db.prepare_cached(DROP_PARKED)?.execute([trajectory.as_bytes()])? > 0))
            })
            .await
    }
}

fn put_row(
    db: &Connection,
    trajectory: TrajectoryId,
    was: Option<&Mark>,
    head: Head,
    summary: &Summary,
) -> Result<bool> {
    let last = entries::read(db, trajectory, head.seq, 2)?;
    if !matches!(last.as_slice(), [last] if last.seq == head.seq && last.id == head.id) {
        return Ok(false);
    }
    let id = trajectory.as_bytes();
    match was {
        Some(was) => {
            let row = params![id, head.seq, head.id.as_bytes(), was.seq, was.id];
            Ok(db.prepare_cached(SET_HEAD)?.execute(row)? == 1)
        }
        None => {
            let made = append::begin_trajectory(db, trajectory, head, summary)?;
            if made {
                db.prepare_cached(RECALL)?.execute([id])?;
            }
            Ok(made)
        }
    }
}

fn trace(row: &Row<'_>) -> Result<Trace> {
    let mark = match row.get(1)? {
        true => Some(Mark { seq: row.get(2)?, id: row.get(3)?, archived: row.get(4)? }),
        false => None,
    };
    let trajectory = rows::trajectory_id(row, 0)?;
    Ok(Trace { trajectory, row: mark, entries: row.get(5)?, parked: row.get(6)? })
}
