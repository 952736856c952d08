//! Mending: what there is of trajectories, and rows put back. Of a row only its end is read, as whatever
//! it is.

use async_trait::async_trait;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Summary;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::rows::{self, bigint, limit};
use crate::claims;
use crate::error::StoreError;
use crate::mending::{Mark, Mending, Trace};

/// From one trajectory with entries to the next by the index, however many entries each has.
const TRACES: &str = "
    WITH RECURSIVE with_entries (id) AS (
        SELECT (SELECT trajectory FROM entries WHERE trajectory > $1::bytea
            ORDER BY trajectory LIMIT 1)
        UNION ALL
        SELECT (SELECT trajectory FROM entries WHERE trajectory > with_entries.id
            ORDER BY trajectory LIMIT 1)
        FROM with_entries WHERE with_entries.id IS NOT NULL
    ),
    there (id) AS (
        (SELECT id FROM with_entries WHERE id IS NOT NULL LIMIT $2)
        UNION
        (SELECT trajectory FROM trajectories WHERE trajectory > $1::bytea
            ORDER BY trajectory LIMIT $2)
        UNION
        (SELECT DISTINCT trajectory FROM parked WHERE trajectory > $1::bytea
            ORDER BY trajectory LIMIT $2)
    )
    SELECT there.id AS trajectory, t.trajectory IS NOT NULL AS has_row, t.head_seq, t.head_id,
        t.bundle IS NOT NULL AS archived,
        EXISTS (SELECT FROM entries WHERE trajectory = there.id) AS entries,
        EXISTS (SELECT FROM parked WHERE trajectory = there.id) AS parked
    FROM there LEFT JOIN trajectories AS t ON t.trajectory = there.id
    ORDER BY there.id LIMIT $2";
const TRACE: &str = "
    SELECT there.id AS trajectory, t.trajectory IS NOT NULL AS has_row, t.head_seq, t.head_id,
        t.bundle IS NOT NULL AS archived,
        EXISTS (SELECT FROM entries WHERE trajectory = there.id) AS entries,
        EXISTS (SELECT FROM parked WHERE trajectory = there.id) AS parked
    FROM (SELECT $1::bytea AS id) AS there LEFT JOIN trajectories AS t ON t.trajectory = there.id";
const PUT_ROW: &str = include_str!("sql/put_row.sql");
const DROP_PARKED: &str = "
    DELETE FROM parked WHERE trajectory = $1
        AND NOT EXISTS (SELECT FROM trajectories WHERE trajectory = $1)
        AND NOT EXISTS (SELECT FROM entries WHERE trajectory = $1)
    RETURNING trajectory";

#[async_trait]
impl Mending for PostgresStore {
    async fn traces(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<Trace>, StoreError> {
        let after = after.map_or(Vec::new(), |after| after.as_bytes().to_vec());
        self.link.query(TRACES, &[&after, &limit(max)]).await?.iter().map(trace).collect()
    }

    async fn trace(&self, trajectory: TrajectoryId) -> Result<Trace, StoreError> {
        let nothing = Trace { trajectory, row: None, entries: false, parked: false };
        let found = self.link.query(TRACE, &[&trajectory.as_bytes().as_slice()]).await?;
        found.first().map_or(Ok(nothing), trace)
    }

    async fn put_row(
        &self,
        trajectory: TrajectoryId,
        was: Option<&Mark>,
        head: Head,
        summary: &Summary,
    ) -> Result<bool, StoreError> {
        let (id, head_id) = (trajectory.as_bytes().as_slice(), head.id.as_bytes().as_slice());
        let (was_seq, was_id) = (was.map(|was| was.seq), was.map(|was| was.id.as_slice()));
        let (head_seq, attempt) = (bigint(head.seq)?, bigint(summary.attempt)?);
        let (kind, status) = (summary.kind.as_str(), summary.status.as_str());
        let tenant = summary.tenant.as_ref().map(|tenant| tenant.as_str());
        let principal = summary.principal.as_str();
        let wake_at = summary.wake_at.map(|at| bigint(at.0)).transpose()?;
        let (begun_at, changed_at) = (bigint(summary.begun_at.0)?, bigint(summary.changed_at.0)?);
        let (rank, tools) = (claims::rank(summary.priority), claims::joined(&summary.tools));
        let params: [&(dyn ToSql + Sync); 16] = [
            &id,
            &head_seq,
            &head_id,
            &was_seq,
            &was_id,
            &attempt,
            &kind,
            &status,
            &tenant,
            &principal,
            &summary.runnable,
            &wake_at,
            &begun_at,
            &changed_at,
            &rank,
            &tools,
        ];
        Ok(!self.link.query(PUT_ROW, &params).await?.is_empty())
    }

    async fn drop_parked(&self, trajectory: TrajectoryId) -> Result<bool, StoreError> {
        let trajectory = trajectory.as_bytes().as_slice();
        Ok(!self.link.query(DROP_PARKED, &[&trajectory]).await?.is_empty())
    }
}

fn trace(row: &Row) -> Result<Trace, StoreError> {
    let mark = match rows::get(row, "has_row")? {
        true => Some(Mark {
            seq: rows::get(row, "head_seq")?,
            id: rows::get(row, "head_id")?,
            archived: rows::get(row, "archived")?,
        }),
        false => None,
    };
    Ok(Trace {
        trajectory: rows::trajectory(row)?,
        row: mark,
        entries: rows::get(row, "entries")?,
        parked: rows::get(row, "parked")?,
    })
}
