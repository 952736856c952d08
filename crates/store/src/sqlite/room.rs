//! Room in the WAL. A commit that makes the WAL longer waits until the file system has noted the new
//! length and where it lies, about twice as long as one that writes over what is there. SQLite
//! writes over it once the WAL has been moved into the file for the first time; a connection that
//! turns out to be busy makes that room beforehand.

use rusqlite::{Connection, Result};

/// How many frames the WAL is given: what it holds before it is moved into the file, and a large
/// transaction more.
const FRAMES: u64 = super::open::CHECKPOINT_PAGES + 256;
const FRAME_HEADER: u64 = 24;

/// Pages go to the WAL before their transaction ends when the cache is this small.
const SMALL_CACHE: &str = "PRAGMA cache_size = 16;";

const FILL: &str = "INSERT INTO blobs (digest, bytes, put_at) VALUES (x'00', zeroblob(?1), 0)";

/// How many bytes of pages the WAL lacks. A file in memory has no WAL.
pub(super) fn missing(db: &Connection) -> Result<Option<u64>> {
    let page: u64 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let file = db.path().filter(|file| !file.is_empty());
    let wal = file.and_then(|file| std::fs::metadata(format!("{file}-wal")).ok());
    let frames = wal.map(|wal| FRAMES.saturating_sub(wal.len() / (page + FRAME_HEADER)));
    Ok(frames.filter(|frames| *frames > 0).map(|frames| frames * page))
}

/// Fills the WAL in a transaction that the caller has begun and rolls back. Whoever reads the WAL
/// stops at the last commit.
pub(super) fn fill(db: &Connection, bytes: u64) -> Result<()> {
    db.execute_batch(SMALL_CACHE)?;
    let filled = db.execute(FILL, [bytes]).map(drop);
    db.execute_batch(super::open::CACHE).and(filled)
}
