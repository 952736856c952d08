//! The entries in the file. What one append added is one row, its entries one a line: fewer rows to
//! write and to find, and long rows fill their pages. An entry's bytes hold no line feed, since
//! canonical JSON has none.

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use rusqlite::types::Type;
use rusqlite::{Connection, Result, Row, params};

use super::desk::Desk;
use super::rows;
use crate::port::StoredEntry;

const INSERT: &str = "INSERT INTO entries (trajectory, seq, ids, bytes) VALUES (?1, ?2, ?3, ?4)";
/// From the row on that holds the entry with this number, or would.
const FROM: &str = "
    SELECT seq, ids, bytes FROM entries
    WHERE trajectory = ?1 AND seq >= coalesce(
        (SELECT max(seq) FROM entries WHERE trajectory = ?1 AND seq <= ?2), ?2)
    ORDER BY seq";
const HOLDING: &str = "SELECT seq, ids, trajectory FROM entries WHERE instr(ids, ?1) > 0";

/// How many entries a row holds: a whole one is read for any of them.
const ROW_MOST: usize = 256;

/// Adds what one append adds.
pub(super) fn insert(db: &Desk<'_>, trajectory: TrajectoryId, entries: &[Entry]) -> Result<()> {
    entries.chunks(ROW_MOST).try_for_each(|row| match row {
        [] => Ok(()),
        [only] => put(db, trajectory, only.seq(), only.id().as_bytes(), only.bytes()),
        [first, ..] => {
            let (ids, bytes) = joined(row);
            put(db, trajectory, first.seq(), &ids, &bytes)
        }
    })
}

fn put(db: &Desk<'_>, trajectory: TrajectoryId, seq: u64, ids: &[u8], bytes: &[u8]) -> Result<()> {
    let row = params![trajectory.as_bytes(), seq, ids, bytes];
    db.execute(&db.inserting, INSERT, row).map(drop)
}

/// The ids and the bytes of several entries as a row holds them.
fn joined(entries: &[Entry]) -> (Vec<u8>, Vec<u8>) {
    let ids: Vec<u8> = entries.iter().flat_map(|entry| *entry.id().as_bytes()).collect();
    let mut bytes = Vec::with_capacity(entries.iter().map(|entry| entry.bytes().len() + 1).sum());
    for entry in entries {
        if !bytes.is_empty() {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(entry.bytes());
    }
    (ids, bytes)
}

/// The entries from this number on, at most `max` of them.
pub(super) fn read(
    db: &Connection,
    trajectory: TrajectoryId,
    from: u64,
    max: usize,
) -> Result<Vec<StoredEntry>> {
    let mut statement = db.prepare_cached(FROM)?;
    let mut found = statement.query(params![trajectory.as_bytes(), from])?;
    let mut read = Vec::new();
    while read.len() < max
        && let Some(row) = found.next()?
    {
        let entries = split(row)?;
        read.extend(entries.into_iter().filter(|entry| entry.seq >= from));
    }
    read.truncate(max);
    Ok(read)
}

/// Whether these entries are there, under the same ids.
pub(super) fn all_there(
    db: &Connection,
    trajectory: TrajectoryId,
    entries: &[Entry],
) -> Result<bool> {
    let Some(first) = entries.first() else { return Ok(true) };
    let there = read(db, trajectory, first.seq(), entries.len())?;
    let same =
        |(there, entry): (&StoredEntry, &Entry)| there.seq == entry.seq() && there.id == entry.id();
    Ok(there.len() == entries.len() && there.iter().zip(entries).all(same))
}

/// Where an entry is. Reads all ids there are.
pub(super) fn locate(db: &Connection, id: EntryId) -> Result<Option<(TrajectoryId, u64)>> {
    let mut statement = db.prepare_cached(HOLDING)?;
    let mut found = statement.query([id.as_bytes()])?;
    while let Some(row) = found.next()? {
        let first: u64 = row.get(0)?;
        if let Some((_, seq)) = ids(row)?.into_iter().zip(first..).find(|(there, _)| *there == id) {
            return Ok(Some((rows::trajectory_id(row, 2)?, seq)));
        }
    }
    Ok(None)
}

/// Reads `seq, ids, bytes` into entries. Whatever was done to the bytes, each id gets some: it is for
/// whoever reads the entry to find that they are not what they were.
fn split(row: &Row<'_>) -> Result<Vec<StoredEntry>> {
    let (first, ids) = (row.get(0)?, ids(row)?);
    let bytes = row.get_ref(2)?.as_blob()?;
    let lines = bytes.splitn(ids.len(), |byte| *byte == b'\n').chain(std::iter::repeat(&[][..]));
    let entries = ids.iter().zip(first..).zip(lines);
    Ok(entries
        .map(|((id, seq), bytes)| StoredEntry { id: *id, seq, bytes: bytes.to_vec() })
        .collect())
}

/// Reads the ids, which stand second.
fn ids(row: &Row<'_>) -> Result<Vec<EntryId>> {
    let (ids, rest) = row.get_ref(1)?.as_blob()?.as_chunks();
    if rest.is_empty() && !ids.is_empty() {
        Ok(ids.iter().map(|id| EntryId::new(Digest::from_bytes(*id))).collect())
    } else {
        Err(rows::unreadable(1, Type::Blob, "these are not ids"))
    }
}
