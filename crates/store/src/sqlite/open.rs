//! Opening the file: its schema version, its settings, its place in the directory.
//!
//! Migrations are numbered by `PRAGMA user_version`, which lives in the file's header: it can be read
//! before anything is written, and it changes in the migration's own transaction. They only go forward.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::fault::store_error;
use super::{CACHED_STATEMENTS, Options};
use crate::error::StoreError;

/// What brings a file from version *n* to *n* + 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/V1__ledger.sql"),
    include_str!("../../migrations/sqlite/V2__workers.sql"),
    include_str!("../../migrations/sqlite/V3__accounts.sql"),
    include_str!("../../migrations/sqlite/V4__outbox.sql"),
    include_str!("../../migrations/sqlite/V5__log.sql"),
    include_str!("../../migrations/sqlite/V6__epochs.sql"),
    include_str!("../../migrations/sqlite/V7__archive.sql"),
    include_str!("../../migrations/sqlite/V8__writ_accounts.sql"),
    include_str!("../../migrations/sqlite/V9__turns.sql"),
    include_str!("../../migrations/sqlite/V10__limits.sql"),
];

/// `PRAGMA application_id`: "Gest".
const APPLICATION_ID: u32 = 0x4765_7374;

/// Safety of what is acknowledged: the WAL is synced at every commit, on macOS down to the medium.
const DURABLE: &str =
    "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;";

/// Set before anything is written, since it is fixed from then on. A commit writes whole pages, and a
/// step changes little more than what it adds: small pages halve what goes to disk, and long rows
/// fill the pages they run over into.
const PAGES: &str = "PRAGMA page_size = 1024;";

/// Moving the WAL into the file is left until it is some 2 MiB.
pub(super) const CHECKPOINT_PAGES: u64 = 2000;

/// The cache follows the index of entries, which is written at random.
pub(super) const CACHE: &str = "PRAGMA cache_size = -32768;";

/// A WAL that a long read made large is cut down again afterwards.
const WAL_LIMIT: &str = "PRAGMA journal_size_limit = 67108864;";

const RETRY_AFTER: Duration = Duration::from_millis(5);

/// A connection that writes, to a file that has the newest schema.
pub(super) fn for_writing(path: &Path, options: &Options) -> Result<Connection, StoreError> {
    let place = path.display().to_string();
    let fault = |error: rusqlite::Error| store_error(&place, &error);
    let is_new = !path.exists();
    refuse_foreign(path, &place)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = connect(path, flags, options).map_err(fault)?;
    if db.is_readonly("main").map_err(fault)? {
        let why = "its permissions or its file system allow reading only".to_owned();
        return Err(StoreError::ReadOnly { place, why });
    }
    if is_new {
        keep_private(path).map_err(|error| unreachable(&place, &error))?;
    }
    check_version(&place, version(&db, options).map_err(fault)?)?;
    db.execute_batch(PAGES).map_err(fault)?;
    let mode = patiently(options, || {
        db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
    });
    match mode.map_err(fault)?.as_str() {
        "wal" => {}
        mode => {
            let why = format!("its file system gives journal mode `{mode}` where `wal` is needed");
            return Err(StoreError::Unsafe { place, why });
        }
    }
    [DURABLE, CACHE, WAL_LIMIT].iter().try_for_each(|set| db.execute_batch(set)).map_err(fault)?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
        .map_err(fault)?;
    migrate(&mut db, &place, options)?;
    limit_size(&db, options).map_err(fault)?;
    // SQLite syncs the directory for the WAL only, when it makes one.
    sync_directory(path).map_err(|error| unreachable(&place, &error))?;
    Ok(db)
}

/// A connection that reads.
pub(super) fn for_reading(path: &Path, options: &Options) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    connect(path, flags, options).map_err(|error| store_error(&path.display().to_string(), &error))
}

/// A connection that is not let write, and which version the file has. One that cannot be written is read if that
/// can be done without writing beside it: what has no log there is nobody's to write now, and is read as it stands.
pub(super) fn without_writing(
    path: &Path,
    options: &Options,
) -> Result<(Connection, Schema), StoreError> {
    let place = path.display().to_string();
    refuse_foreign(path, &place)?;
    let fault = |error: rusqlite::Error| store_error(&place, &error);
    let opened = |path: &Path, flags| {
        let db = connect(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX, options)?;
        db.pragma_update(None, "query_only", true)?;
        version(&db, options).map(|found| (db, found))
    };
    // Whoever could write leaves no log behind on closing.
    let (db, found) = match opened(path, OpenFlags::SQLITE_OPEN_READ_WRITE) {
        Ok(opened) => opened,
        Err(error) if !needs_to_write(&error) => return Err(fault(error)),
        Err(_) if has_log(path) => {
            let why = format!(
                "what was written last is in `{place}-wal`, which cannot be read without writing beside it; \
                 copy both files to where they can be written, and read them there"
            );
            return Err(StoreError::ReadOnly { place, why });
        }
        Err(error) => {
            let uri = as_it_stands(path).ok_or_else(|| fault(error))?;
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            opened(Path::new(&uri), flags).map_err(fault)?
        }
    };
    Ok((db, standing(&place, found)?))
}

/// What an older file holds, in the newest tables: a copy for this connection alone. SQLite keeps it in memory and, where
/// that does not hold it, in a file without a name, so that nothing is left of it however this process ends.
pub(super) fn brought_up_to_date(
    older: &Connection,
    path: &Path,
    options: &Options,
) -> Result<Connection, StoreError> {
    let place = path.display().to_string();
    let fault = |error: rusqlite::Error| store_error(&place, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = connect(Path::new(""), flags, options).map_err(fault)?;
    {
        let backup = Backup::new(older, &mut copy).map_err(fault)?;
        // All at once is one moment, whoever writes.
        patiently(options, || backup.step(-1).and_then(done)).map_err(fault)?;
    }
    migrate(&mut copy, &place, options)?;
    Ok(copy)
}

/// A copy that others hold up is begun again.
fn done(step: StepResult) -> rusqlite::Result<()> {
    match step {
        StepResult::Done | StepResult::More => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)),
    }
}

/// Whether a file could not be read because something would have to be written beside it.
fn needs_to_write(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Whether there is something in the log beside a file.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// The name by which SQLite reads a file without looking for a log beside it, or locking it.
fn as_it_stands(path: &Path) -> Option<String> {
    let mut uri = String::from("file:");
    for character in path.to_str()?.chars() {
        match character {
            '%' => uri.push_str("%25"),
            '?' => uri.push_str("%3f"),
            '#' => uri.push_str("%23"),
            other => uri.push(other),
        }
    }
    uri.push_str("?immutable=1");
    Some(uri)
}

/// Refuses a file with something in it that is no database: SQLite takes a short one for empty, and writes over it.
fn refuse_foreign(path: &Path, place: &str) -> Result<(), StoreError> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    let mut begins = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut begins));
    // What cannot be read, or is not there, SQLite has a word for.
    if read.is_err() || MAGIC.starts_with(&begins) {
        return Ok(());
    }
    Err(StoreError::Damaged { what: format!("`{place}`: file is not a database") })
}

fn connect(path: &Path, flags: OpenFlags, options: &Options) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(options.busy_timeout)?;
    db.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(db)
}

/// What the file says it is.
#[derive(Clone, Copy)]
enum Version {
    /// Nothing yet.
    Empty,
    /// A store with this schema.
    Gesta(u32),
    /// A database of something else.
    Foreign,
}

fn version(db: &Connection, options: &Options) -> rusqlite::Result<Version> {
    patiently(options, || {
        let (application, version, tables) = db.query_row(
            "SELECT (SELECT application_id FROM pragma_application_id),
                    (SELECT user_version FROM pragma_user_version),
                    (SELECT count(*) FROM sqlite_schema)",
            [],
            |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?, row.get::<_, u64>(2)?)),
        )?;
        Ok(match (application, version, tables) {
            (APPLICATION_ID, version, _) => Version::Gesta(version),
            (0, 0, 0) => Version::Empty,
            _ => Version::Foreign,
        })
    })
}

/// How far a file's tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The version that they have.
    pub version: usize,
    /// The version that this program gives them when it writes.
    pub newest: usize,
}

impl Schema {
    /// Whether there is nothing to be done about them.
    pub fn is_current(&self) -> bool {
        self.version == self.newest
    }
}

/// How far a file's tables are; looking changes nothing.
pub fn schema(path: &Path) -> Result<Schema, StoreError> {
    without_writing(path, &Options::default()).map(|(_, schema)| schema)
}

/// Refuses a file that is no store, or a newer program's.
pub(super) fn known_version(db: &Connection, place: &str) -> Result<(), StoreError> {
    let found = version(db, &Options::default()).map_err(|error| store_error(place, &error))?;
    standing(place, found).map(drop)
}

fn standing(place: &str, found: Version) -> Result<Schema, StoreError> {
    match check_version(place, found)? {
        0 => Err(StoreError::Unreachable {
            place: place.to_owned(),
            why: "there is no store in it".to_owned(),
        }),
        version => Ok(Schema { version, newest: MIGRATIONS.len() }),
    }
}

/// The number of migrations that the file has had.
fn check_version(place: &str, version: Version) -> Result<usize, StoreError> {
    let known = MIGRATIONS.len();
    match version {
        Version::Empty => Ok(0),
        Version::Gesta(found) => match usize::try_from(found) {
            Ok(done) if done <= known => Ok(done),
            _ => {
                let known = u32::try_from(known).unwrap_or(u32::MAX);
                Err(StoreError::Newer { place: place.to_owned(), found, known })
            }
        },
        Version::Foreign => Err(StoreError::Unreachable {
            place: place.to_owned(),
            why: "it is a database of another program".to_owned(),
        }),
    }
}

/// Brings the schema up to date. The version is read again under the write lock, so of several
/// processes that open a new file one makes the tables and the others find them.
fn migrate(db: &mut Connection, place: &str, options: &Options) -> Result<(), StoreError> {
    let fault = |error: rusqlite::Error| store_error(place, &error);
    let transaction =
        db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(fault)?;
    let done = check_version(place, version(&transaction, options).map_err(fault)?)?;
    for (number, migration) in (1..).zip(MIGRATIONS).skip(done) {
        transaction
            .execute_batch(migration)
            .and_then(|()| transaction.pragma_update(None, "application_id", APPLICATION_ID))
            .and_then(|()| transaction.pragma_update(None, "user_version", number))
            .map_err(fault)?;
    }
    transaction.commit().map_err(fault)
}

fn limit_size(db: &Connection, options: &Options) -> rusqlite::Result<()> {
    let Some(max_bytes) = options.max_bytes else { return Ok(()) };
    let page_bytes: u64 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = max_bytes.checked_div(page_bytes).unwrap_or(0).clamp(1, u64::from(u32::MAX) - 1);
    db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}

/// Some locks that SQLite takes while a file is new are not waited for by its busy handler.
fn patiently<T>(
    options: &Options,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && started.elapsed() < options.busy_timeout =>
            {
                std::thread::sleep(RETRY_AFTER);
            }
            other => return other,
        }
    }
}

/// A history of calls and their arguments is its owner's business; the WAL inherits the permissions.
fn keep_private(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Makes the file's name survive a power failure.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

fn unreachable(place: &str, error: &std::io::Error) -> StoreError {
    StoreError::Unreachable { place: place.to_owned(), why: error.to_string() }
}
