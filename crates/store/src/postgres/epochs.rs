//! Epochs: opening one, what is held since, and letting it go.

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::PostgresStore;
use super::rows::{self, bigint, limit};
use crate::epoch::{Epoch, Epochs, HeldListing, HeldRow, Opening, Release};
use crate::error::StoreError;
use crate::news::News;

const EPOCH: &str = "SELECT store, number, opened_at, copied_at FROM epoch";
const NEXT: &str = "
    UPDATE epoch SET number = greatest(number, $1::bigint) + 1, copied_at = NULL,
        opened_at = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
    RETURNING store, number, opened_at, copied_at";
const NOTE_EPOCH: &str = "
    INSERT INTO epochs (number, opened_at, opened_by, copied_at)
    SELECT number, opened_at, $1::text, $2::bigint FROM epoch";
/// Locks in the order of appends.
const LOCK: &str = "
    SELECT FROM trajectories
    WHERE owner IS NOT NULL OR status NOT IN ('standing', 'completed', 'failed', 'cancelled')
    ORDER BY trajectory FOR UPDATE";
const HOLD: &str = "
    UPDATE trajectories
    SET owner = NULL, free_since = NULL, asleep_until = NULL,
        held = status NOT IN ('standing', 'completed', 'failed', 'cancelled')
    WHERE owner IS NOT NULL OR status NOT IN ('standing', 'completed', 'failed', 'cancelled')";
const END_LEASES: &str = "DELETE FROM workers";
const END_SHARES: &str = "DELETE FROM shares";
/// What was held before stays as far back in doubt as it was.
const NOTE_HELD: &str = "
    INSERT INTO held (trajectory, epoch, copied_at, known_seq)
    SELECT t.trajectory, e.number, $1::bigint, k.seq
    FROM trajectories AS t
    CROSS JOIN epoch AS e
    LEFT JOIN unnest($2::bytea[], $3::bigint[]) AS k (trajectory, seq)
        ON k.trajectory = t.trajectory AND k.seq > t.head_seq
    WHERE t.held
    ON CONFLICT (trajectory) DO UPDATE
    SET epoch = excluded.epoch,
        copied_at = least(held.copied_at, excluded.copied_at),
        known_seq = excluded.known_seq,
        released_at = NULL,
        released_by = NULL,
        ask = false,
        note = ''";
const HELD: &str = "
    SELECT trajectory, epoch, copied_at, known_seq, released_at, released_by, ask, note FROM held
    WHERE trajectory > $1 AND ($2 OR released_at IS NULL) ORDER BY trajectory LIMIT $3";
const HELD_ONE: &str = "
    SELECT trajectory, epoch, copied_at, known_seq, released_at, released_by, ask, note FROM held
    WHERE trajectory = $1";
const LET_GO: &str = "
    WITH released AS (
        UPDATE held SET released_at = $2, released_by = $3, ask = $4, note = $5
        WHERE trajectory = $1 AND released_at IS NULL
        RETURNING trajectory
    )
    UPDATE trajectories AS t
    SET held = false,
        free_since = CASE WHEN t.owner IS NULL AND t.runnable THEN t.changed_at END,
        asleep_until = CASE WHEN t.owner IS NULL AND NOT t.runnable THEN t.wake_at END
    FROM released AS r
    WHERE t.trajectory = r.trajectory AND t.status NOT IN ('completed', 'failed', 'cancelled')
    RETURNING t.trajectory";

#[async_trait]
impl Epochs for PostgresStore {
    async fn epoch(&self) -> Result<Epoch, StoreError> {
        let found = self.link.query(EPOCH, &[]).await?;
        found.first().map_or_else(|| Err(rows::damaged("epoch")), epoch)
    }

    async fn open_epoch(&self, opening: &Opening) -> Result<Epoch, StoreError> {
        let Opening { by, copied_at, known, above } = opening;
        let (by, copied_at, above) = (by.as_str(), bigint(copied_at.0)?, bigint(*above)?);
        let ids: Vec<&[u8]> = known.iter().map(|(id, _)| id.as_bytes().as_slice()).collect();
        let seqs: Vec<i64> =
            known.iter().map(|(_, head)| bigint(head.seq)).collect::<Result<_, _>>()?;
        let opened = self
            .link
            .transact(async |client: &Client| {
                client.query(LOCK, &[]).await?;
                let opened = client.query_one(NEXT, &[&above]).await?;
                client.execute(NOTE_EPOCH, &[&by, &copied_at]).await?;
                client.batch_execute(END_LEASES).await?;
                client.batch_execute(END_SHARES).await?;
                client.batch_execute(HOLD).await?;
                client.execute(NOTE_HELD, &[&copied_at, &ids, &seqs]).await?;
                Ok(opened)
            })
            .await?;
        self.herald.tell(News::Missed).await;
        epoch(&opened)
    }

    async fn held(&self, listing: HeldListing, max: usize) -> Result<Vec<HeldRow>, StoreError> {
        let after = listing.after.map_or(Vec::new(), |after| after.as_bytes().to_vec());
        let params: [&(dyn ToSql + Sync); 3] = [&after, &listing.released, &limit(max)];
        self.link.query(HELD, &params).await?.iter().map(held).collect()
    }

    async fn held_one(&self, trajectory: TrajectoryId) -> Result<Option<HeldRow>, StoreError> {
        let found = self.link.query(HELD_ONE, &[&trajectory.as_bytes().as_slice()]).await?;
        found.first().map(held).transpose()
    }

    async fn let_go(
        &self,
        trajectory: TrajectoryId,
        release: &Release,
    ) -> Result<bool, StoreError> {
        let Release { at, by, ask, note } = release;
        let (at, by, note) = (bigint(at.0)?, by.as_str(), note.as_bytes());
        let id = trajectory.as_bytes().as_slice();
        let params: [&(dyn ToSql + Sync); 5] = [&id, &at, &by, ask, &note];
        let released = !self.link.query(LET_GO, &params).await?.is_empty();
        if released {
            self.herald.tell(News::Changed(trajectory)).await;
        }
        Ok(released)
    }
}

fn epoch(row: &Row) -> Result<Epoch, StoreError> {
    let store: &[u8] = rows::get(row, "store")?;
    let store = store.try_into().map_err(|_| rows::damaged("store"))?;
    Ok(Epoch {
        store: Digest::from_bytes(store),
        number: rows::number(row, "number")?,
        opened_at: UnixMs(rows::number(row, "opened_at")?),
        copied_at: rows::time(row, "copied_at")?,
    })
}

fn held(row: &Row) -> Result<HeldRow, StoreError> {
    let release = match rows::time(row, "released_at")? {
        None => None,
        Some(at) => Some(Release {
            at,
            by: rows::name(row, "released_by")?,
            ask: rows::get(row, "ask")?,
            note: String::from_utf8(rows::get(row, "note")?).map_err(|_| rows::damaged("note"))?,
        }),
    };
    Ok(HeldRow {
        trajectory: rows::trajectory(row)?,
        epoch: rows::number(row, "epoch")?,
        copied_at: UnixMs(rows::number(row, "copied_at")?),
        known: rows::time(row, "known_seq")?.map(|seq| seq.0),
        release,
    })
}
