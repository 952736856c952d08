//! Epochs: opening one, what is held since, and letting it go.

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::{SqliteStore, limit, rows};
use crate::clock::Clock;
use crate::epoch::{Epoch, Epochs, HeldListing, HeldRow, Opening, Release};
use crate::error::StoreError;

const EPOCH: &str = "SELECT store, number, opened_at, copied_at FROM epoch";
const NEXT: &str = "
    UPDATE epoch SET number = max(number, ?1) + 1, opened_at = ?2, copied_at = NULL";
const NOTE_EPOCH: &str = "
    INSERT INTO epochs (number, opened_at, opened_by, copied_at)
    SELECT number, opened_at, ?1, ?2 FROM epoch";
const END_CLAIMS: &str = "UPDATE trajectories SET owner = NULL WHERE owner IS NOT NULL";
const END_LEASES: &str = "DELETE FROM workers";
const END_SHARES: &str = "DELETE FROM shares";
const HOLD: &str = "
    UPDATE trajectories SET held = 1
    WHERE status NOT IN ('standing', 'completed', 'failed', 'cancelled')";
/// What was held before stays as far back in doubt as it was.
const NOTE_HELD: &str = "
    INSERT INTO held (trajectory, epoch, copied_at)
    SELECT t.trajectory, e.number, ?1 FROM trajectories AS t, epoch AS e WHERE t.held = 1
    ON CONFLICT (trajectory) DO UPDATE SET epoch = excluded.epoch,
        copied_at = min(held.copied_at, excluded.copied_at), known_seq = NULL,
        released_at = NULL, released_by = NULL, ask = 0, note = ''";
const NOTE_KNOWN: &str = "
    UPDATE held SET known_seq = ?2 WHERE trajectory = ?1 AND ?2 > coalesce(known_seq,
        (SELECT head_seq FROM trajectories AS t WHERE t.trajectory = held.trajectory))";
const HELD: &str = "
    SELECT trajectory, epoch, copied_at, known_seq, released_at, released_by, ask, note FROM held
    WHERE trajectory > ?1 AND (?2 OR released_at IS NULL) ORDER BY trajectory LIMIT ?3";
const HELD_ONE: &str = "
    SELECT trajectory, epoch, copied_at, known_seq, released_at, released_by, ask, note FROM held
    WHERE trajectory = ?1";
const RELEASE: &str = "
    UPDATE held SET released_at = ?2, released_by = ?3, ask = ?4, note = ?5
    WHERE trajectory = ?1 AND released_at IS NULL";
const LET_GO: &str = "UPDATE trajectories SET held = 0 WHERE trajectory = ?1";

#[async_trait]
impl Epochs for SqliteStore {
    async fn epoch(&self) -> Result<Epoch, StoreError> {
        self.readers.run(epoch).await
    }

    async fn open_epoch(&self, opening: &Opening) -> Result<Epoch, StoreError> {
        let (opening, clock) = (opening.clone(), Clock::clone(&self.clock));
        self.writer.run(move |db| open(db, &opening, clock()).map(Ok)).await
    }

    async fn held(&self, listing: HeldListing, max: usize) -> Result<Vec<HeldRow>, StoreError> {
        self.readers
            .run(move |db| {
                let after = listing.after.as_ref().map_or(&[][..], |after| after.as_bytes());
                db.prepare_cached(HELD)?
                    .query_map(params![after, listing.released, limit(max)], held)?
                    .collect()
            })
            .await
    }

    async fn held_one(&self, trajectory: TrajectoryId) -> Result<Option<HeldRow>, StoreError> {
        self.readers
            .run(move |db| {
                db.prepare_cached(HELD_ONE)?.query_row([trajectory.as_bytes()], held).optional()
            })
            .await
    }

    async fn let_go(
        &self,
        trajectory: TrajectoryId,
        release: &Release,
    ) -> Result<bool, StoreError> {
        let release = release.clone();
        let released: Result<bool, StoreError> =
            self.writer.run(move |db| let_go(db, trajectory, &release).map(Ok)).await;
        let released = released?;
        self.tell(released.then_some(trajectory));
        Ok(released)
    }
}

pub(super) fn epoch(db: &Connection) -> Result<Epoch> {
    db.prepare_cached(EPOCH)?.query_row([], |row| {
        Ok(Epoch {
            store: row.get(0).map(Digest::from_bytes)?,
            number: row.get(1)?,
            opened_at: UnixMs(row.get(2)?),
            copied_at: row.get::<_, Option<u64>>(3)?.map(UnixMs),
        })
    })
}

fn open(db: &Connection, opening: &Opening, now: UnixMs) -> Result<Epoch> {
    let Opening { by, copied_at, known, above } = opening;
    db.prepare_cached(NEXT)?.execute([*above, now.0])?;
    db.prepare_cached(NOTE_EPOCH)?.execute(params![by.as_str(), copied_at.0])?;
    for end in [END_CLAIMS, END_LEASES, END_SHARES, HOLD] {
        db.prepare_cached(end)?.execute([])?;
    }
    db.prepare_cached(NOTE_HELD)?.execute([copied_at.0])?;
    for (trajectory, head) in known {
        db.prepare_cached(NOTE_KNOWN)?.execute(params![trajectory.as_bytes(), head.seq])?;
    }
    epoch(db)
}

fn let_go(db: &Connection, trajectory: TrajectoryId, release: &Release) -> Result<bool> {
    let Release { at, by, ask, note } = release;
    let row = params![trajectory.as_bytes(), at.0, by.as_str(), ask, note];
    if db.prepare_cached(RELEASE)?.execute(row)? == 0 {
        return Ok(false);
    }
    db.prepare_cached(LET_GO)?.execute([trajectory.as_bytes()])?;
    Ok(true)
}

fn held(row: &Row<'_>) -> Result<HeldRow> {
    let release = match row.get::<_, Option<u64>>(4)? {
        None => None,
        Some(at) => Some(Release {
            at: UnixMs(at),
            by: rows::principal(row, 5)?,
            ask: row.get(6)?,
            note: row.get(7)?,
        }),
    };
    Ok(HeldRow {
        trajectory: rows::trajectory_id(row, 0)?,
        epoch: row.get(1)?,
        copied_at: UnixMs(row.get(2)?),
        known: row.get(3)?,
        release,
    })
}
