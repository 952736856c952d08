//! Archiving: entries leave the file, in the writer's transaction, and come back. The file does not
//! become smaller by itself: its pages are used again.

use std::path::Path;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use rusqlite::{Connection, OptionalExtension as _, Result, named_params, params};

use super::append::standing;
use super::desk::Desk;
use super::fault::store_error;
use super::{Options, SqliteStore, entries, open};
use crate::archive::{Archives, Archiving, BundleRow, Size, Whole};
use crate::error::StoreError;
use crate::port::StoredEntry;

const ARCHIVE: &str = "
    UPDATE trajectories SET bundle = :bundle, bundle_sha256 = :sha256, archived_at = :at
    WHERE trajectory = :trajectory AND head_seq = :head_seq AND head_id = :head_id
        AND bundle IS NULL AND status IN ('completed', 'failed', 'cancelled')
        AND NOT EXISTS (SELECT 1 FROM effects WHERE trajectory = :trajectory)";
const ARCHIVED_IN: &str = "
    SELECT bundle_sha256 FROM trajectories
    WHERE trajectory = ?1 AND head_seq = ?2 AND head_id = ?3 AND bundle IS NOT NULL";
const ELSEWHERE: &str = "
    SELECT bundle FROM trajectories
    WHERE trajectory = ?1 AND head_seq >= ?2 AND bundle IS NOT NULL";
const REMOVE: &str = "DELETE FROM entries WHERE trajectory = ?1";
/// A report in the inbox names blobs too, by their digests in hexadecimal.
const REMOVE_BLOB: &str = "
    DELETE FROM blobs WHERE digest = ?1 AND put_at < ?2
        AND NOT EXISTS (SELECT 1 FROM effects WHERE instr(bytes, ?3) > 0)";
const BRING_BACK: &str = "
    UPDATE trajectories SET bundle = NULL, bundle_sha256 = NULL, archived_at = NULL
    WHERE trajectory = ?1 AND head_seq = ?2 AND head_id = ?3 AND bundle IS NOT NULL";
const BUNDLES: &str = "
    SELECT bundle, bundle_sha256, count(*) FROM trajectories WHERE bundle IS NOT NULL
    GROUP BY bundle, bundle_sha256 ORDER BY bundle, bundle_sha256";
const SIZE: &str = "
    SELECT page_count * page_size, freelist_count * page_size
    FROM pragma_page_count, pragma_page_size, pragma_freelist_count";

#[async_trait]
impl Archives for SqliteStore {
    async fn archive(&self, archiving: &Archiving) -> Result<Option<u64>, StoreError> {
        let archiving = archiving.clone();
        self.writer.run(move |db| archive(db, &archiving).map(Ok)).await
    }

    async fn bring_back(&self, whole: &Whole) -> Result<bool, StoreError> {
        let whole = whole.clone();
        self.writer.run(move |db| bring_back(db, &whole).map(Ok)).await
    }

    async fn bundles(&self) -> Result<Vec<BundleRow>, StoreError> {
        self.readers
            .run(|db| {
                let row = |row: &rusqlite::Row<'_>| {
                    let sha256 = Digest::from_bytes(row.get(1)?);
                    Ok(BundleRow { bundle: row.get(0)?, sha256, trajectories: row.get(2)? })
                };
                db.prepare_cached(BUNDLES)?.query_map([], row)?.collect()
            })
            .await
    }

    async fn size(&self) -> Result<Size, StoreError> {
        self.readers
            .run(|db| {
                let size =
                    |row: &rusqlite::Row<'_>| Ok(Size { bytes: row.get(0)?, free: row.get(1)? });
                db.query_row(SIZE, [], size)
            })
            .await
    }
}

fn archive(db: &Connection, archiving: &Archiving) -> Result<Option<u64>> {
    let Archiving { trajectory, head, archived, blobs, unused_since } = archiving;
    let updated = db.prepare_cached(ARCHIVE)?.execute(named_params! {
        ":trajectory": trajectory.as_bytes(),
        ":head_seq": head.seq,
        ":head_id": head.id.as_bytes(),
        ":bundle": archived.bundle,
        ":sha256": archived.sha256.as_bytes(),
        ":at": archived.at.0,
    })?;
    if updated == 0 {
        let there: Option<[u8; 32]> = db
            .prepare_cached(ARCHIVED_IN)?
            .query_row(params![trajectory.as_bytes(), head.seq, head.id.as_bytes()], |row| {
                row.get(0)
            })
            .optional()?;
        return Ok((there == Some(*archived.sha256.as_bytes())).then_some(0));
    }
    db.prepare_cached(REMOVE)?.execute([trajectory.as_bytes()])?;
    let mut removed = 0;
    for digest in blobs {
        let spelled = digest.to_string();
        let row = params![digest.as_bytes(), unused_since.0, spelled.as_bytes()];
        removed += db.prepare_cached(REMOVE_BLOB)?.execute(row)? as u64;
    }
    Ok(Some(removed))
}

fn bring_back(db: &Desk<'_>, whole: &Whole) -> Result<bool> {
    let (trajectory, head) = (whole.trajectory(), whole.head());
    let row = params![trajectory.as_bytes(), head.seq, head.id.as_bytes()];
    if db.prepare_cached(BRING_BACK)?.execute(row)? == 0 {
        return Ok(standing(db, trajectory)?
            .is_some_and(|there| there.bundle.is_none() && there.head == head));
    }
    entries::insert(db, trajectory, whole.entries())?;
    Ok(true)
}

/// The entries from this number on, or the bundle that they are in. Only where nothing is found it is asked
/// why, and then both are read at one moment.
pub(super) fn entries(
    db: &Connection,
    trajectory: TrajectoryId,
    from: u64,
    max: usize,
) -> Result<Result<Vec<StoredEntry>, String>> {
    let found = entries::read(db, trajectory, from, max)?;
    if !found.is_empty() {
        return Ok(Ok(found));
    }
    let moment = db.unchecked_transaction()?;
    let elsewhere = moment
        .prepare_cached(ELSEWHERE)?
        .query_row(params![trajectory.as_bytes(), from], |row| row.get(0))
        .optional()?;
    match elsewhere {
        Some(bundle) => Ok(Err(bundle)),
        None => entries::read(&moment, trajectory, from, max).map(Ok),
    }
}

/// Gives the room that is free in a file back to the disk. Writes the whole file anew: whoever else writes
/// meanwhile waits, and is refused after a while. A crash leaves the file as it was.
pub fn compact(path: &Path, options: &Options) -> Result<(), StoreError> {
    let place = path.display().to_string();
    let db = open::for_writing(path, options)?;
    db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
        .map_err(|error| store_error(&place, &error))
}
