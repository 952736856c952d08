//! A copy of a store's file, made while others write to it.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, params};

use super::fault::store_error;
use super::{Options, epochs, open};
use crate::epoch::Copied;
use crate::error::StoreError;

/// How many pages are copied before progress is told.
const PAGES: i32 = 4096;

const COUNT: &str = "
    SELECT count(*), count(*) FILTER (
        WHERE status NOT IN ('standing', 'completed', 'failed', 'cancelled'))
    FROM trajectories";
/// A copy of a copy knows no more than the first.
const MARK: &str = "UPDATE epoch SET copied_at = min(coalesce(copied_at, ?1), ?1)";

/// Copies a store as it is at one moment, and looks whether the copy is whole. Others may write to the
/// store meanwhile, and do not wait. What is left at `to` after an error or a crash is no copy. The copy
/// says that it is one, so that nobody takes it for the store.
pub fn copy(
    from: &Path,
    to: &Path,
    options: &Options,
    mut progress: impl FnMut(u64, u64),
) -> Result<Copied, StoreError> {
    let (source, target) = (from.display().to_string(), to.display().to_string());
    let read = |error: rusqlite::Error| store_error(&source, &error);
    let written = |error: rusqlite::Error| store_error(&target, &error);
    let db = open::for_reading(from, options)?;
    // Before the moment of the copy: what is not in it began later.
    let at = (options.clock)();
    // One read transaction is one moment: the copy is not begun again when others write.
    db.execute_batch("BEGIN").map_err(read)?;
    epochs::epoch(&db).map_err(read)?;
    let mut copy = Connection::open(to).map_err(written)?;
    {
        let backup = Backup::new(&db, &mut copy).map_err(written)?;
        loop {
            let step = backup.step(PAGES).map_err(written)?;
            let told = backup.progress();
            let [total, left] =
                [told.pagecount, told.remaining].map(|pages| u64::try_from(pages).unwrap_or(0));
            progress(total.saturating_sub(left), total);
            if matches!(step, StepResult::Done) {
                break;
            }
        }
    }
    // One file, without a log beside it.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(written)?;
    copy.execute(MARK, params![at.0]).map_err(written)?;
    let copied = examine(&copy, &target)?;
    copy.close().map_err(|(_, error)| written(error))?;
    Ok(copied)
}

/// Looks whether a file is a whole store, and what is in it.
pub fn check(path: &Path) -> Result<Copied, StoreError> {
    let place = path.display().to_string();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags);
    let db = db.map_err(|error| store_error(&place, &error))?;
    open::known_version(&db, &place)?;
    examine(&db, &place)
}

fn examine(db: &Connection, place: &str) -> Result<Copied, StoreError> {
    let fault = |error: rusqlite::Error| store_error(place, &error);
    let found: String =
        db.pragma_query_value(None, "integrity_check", |row| row.get(0)).map_err(fault)?;
    if found != "ok" {
        return Err(StoreError::Damaged { what: format!("`{place}`: {found}") });
    }
    let (trajectories, open) =
        db.query_row(COUNT, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(fault)?;
    Ok(Copied { epoch: epochs::epoch(db).map_err(fault)?, trajectories, open })
}
