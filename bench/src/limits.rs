//! What the machine itself can do.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use gesta_core::projection::Admitted;
use rusqlite::{Connection, params};

use crate::table::{Table, per_second, rate, time};

/// How often the disk syncs an append of 4 KiB.
pub(crate) fn sync(place: &Path, table: &mut Table) -> Result<()> {
    table.limit("4 KiB append and fdatasync", rate(sync_rate(place)?));
    Ok(())
}

/// The same, as a number.
pub(crate) fn sync_rate(place: &Path) -> Result<f64> {
    const TIMES: usize = 2000;
    let mut file = OpenOptions::new().create(true).append(true).open(place.join("sync"))?;
    let (took, result) = time(|| {
        (0..TIMES).try_for_each(|_| {
            file.write_all(&[7; 4096])?;
            file.sync_data()
        })
    });
    result?;
    Ok(per_second(TIMES, took))
}

/// How often bare SQLite commits one entry a row, with the same settings and table shape as the store.
pub(crate) fn bare_sqlite(file: &Path, appends: &[Admitted]) -> Result<f64> {
    let entries = appends.iter().flat_map(|append| append.entries());
    let rows: Vec<Row> = entries
        .map(|entry| Row {
            trajectory: entry.payload().trajectory.as_bytes().to_vec(),
            seq: entry.seq(),
            ids: entry.id().as_bytes().to_vec(),
            bytes: entry.bytes().to_vec(),
        })
        .collect();
    bare_rows(file, &rows)
}

/// How often bare SQLite commits the rows that a store has written, one at a time.
pub(crate) fn bare_sqlite_again(file: &Path, store: &Path) -> Result<f64> {
    let db = Connection::open(store)?;
    let mut rows = db.prepare("SELECT trajectory, seq, ids, bytes FROM entries ORDER BY rowid")?;
    let rows = rows.query_map([], |row| {
        let (trajectory, seq) = (row.get(0)?, row.get(1)?);
        Ok(Row { trajectory, seq, ids: row.get(2)?, bytes: row.get(3)? })
    })?;
    bare_rows(file, &rows.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// A row of entries.
struct Row {
    trajectory: Vec<u8>,
    seq: u64,
    ids: Vec<u8>,
    bytes: Vec<u8>,
}

fn bare_rows(file: &Path, rows: &[Row]) -> Result<f64> {
    let db = Connection::open(file)?;
    db.execute_batch(
        "PRAGMA page_size = 1024;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA cache_size = -32768;
         PRAGMA journal_size_limit = 67108864;
         PRAGMA wal_autocheckpoint = 2000;
         CREATE TABLE entries (
             trajectory BLOB NOT NULL, seq INTEGER NOT NULL, ids BLOB NOT NULL, bytes BLOB NOT NULL,
             UNIQUE (trajectory, seq)
         );",
    )?;
    let mut insert =
        db.prepare("INSERT INTO entries (trajectory, seq, ids, bytes) VALUES (?1, ?2, ?3, ?4)")?;
    let (took, result) = time(|| {
        rows.iter().try_for_each(|Row { trajectory, seq, ids, bytes }| {
            insert.execute(params![trajectory, seq, ids, bytes]).map(drop)
        })
    });
    result?;
    Ok(per_second(rows.len(), took))
}
