//! Data keys in a SQLite file of their own, readable by its owner alone. Whoever backs up the store leaves
//! it out.
//!
//! Nothing of a destroyed key is left in the file: what is overwritten or deleted is overwritten with
//! zeros (`secure_delete`), and the rollback journal, which holds the pages as they were, is deleted
//! with the transaction. There is no WAL, in which old pages would stay.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::fault::store_error;
use crate::data_keys::{DataKey, DataKeys, Kept, no_key};
use crate::error::StoreError;

/// `PRAGMA application_id`: "GesK".
const APPLICATION_ID: u32 = 0x4765_734b;
const BUSY: Duration = Duration::from_secs(10);
const SETTINGS: &str = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA;
    PRAGMA fullfsync = ON; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;";
/// A key is 32 bytes or, once it was destroyed, none.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS data_keys (
        trajectory BLOB PRIMARY KEY NOT NULL,
        digest BLOB NOT NULL,
        key BLOB
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS openings (
        trajectory BLOB NOT NULL,
        commitment BLOB NOT NULL,
        blob BLOB NOT NULL,
        PRIMARY KEY (trajectory, commitment)
    ) WITHOUT ROWID;";
const KEY: &str = "SELECT digest, key FROM data_keys WHERE trajectory = ?1";

/// Data keys in a file, which is made when the first one is kept.
pub struct SqliteDataKeys {
    path: PathBuf,
    open: Mutex<Option<Connection>>,
}

impl SqliteDataKeys {
    /// The keys of a file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), open: Mutex::new(None) }
    }

    /// Runs on the file. Without a file, on nothing, unless it is to be made.
    fn run<T>(
        &self,
        make: bool,
        none: T,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.path.exists() {
            // Gone, perhaps under our feet: what is not in a file any more is not here either.
            *open = None;
            if !make {
                return Ok(none);
            }
        }
        let db = match open.as_mut() {
            Some(db) => db,
            None => open.insert(self.connect()?),
        };
        work(db).map_err(|error| store_error(&self.place(), &error))?
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let unreachable = |why: String| StoreError::Unreachable { place: self.place(), why };
        only_owners(&self.path).map_err(|error| unreachable(error.to_string()))?;
        let fault = |error: rusqlite::Error| store_error(&self.place(), &error);
        let db = Connection::open(&self.path).map_err(fault)?;
        db.busy_timeout(BUSY).map_err(fault)?;
        db.execute_batch(SETTINGS).map_err(fault)?;
        let application: u32 =
            db.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(fault)?;
        let tables: u64 = db
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(fault)?;
        if application != APPLICATION_ID && tables > 0 {
            return Err(unreachable("it is a database of something else".to_owned()));
        }
        db.execute_batch(SCHEMA).map_err(fault)?;
        db.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
        Ok(db)
    }
}

/// Makes the file so that only its owner can read it; one that others can read is refused.
fn only_owners(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let why = format!("it is open to others (mode {mode:04o}); run `chmod 600` on it");
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
        }
    }
    file.sync_all()
}

fn kept(row: Option<(Vec<u8>, Option<Vec<u8>>)>) -> Result<Kept, StoreError> {
    let damaged = || StoreError::Damaged { what: "a data key has not 32 bytes".to_owned() };
    match row {
        None => Ok(Kept::Nothing),
        Some((_, Some(key))) => {
            let key = <[u8; 32]>::try_from(zeroize::Zeroizing::new(key).as_slice());
            Ok(Kept::Key(DataKey::new(key.map_err(|_| damaged())?)))
        }
        Some((digest, None)) => {
            let digest = <[u8; 32]>::try_from(digest.as_slice()).map_err(|_| damaged())?;
            Ok(Kept::Destroyed(Digest::from_bytes(digest)))
        }
    }
}

fn look(db: &Connection, trajectory: TrajectoryId) -> rusqlite::Result<Result<Kept, StoreError>> {
    let row = db.query_row(KEY, [trajectory.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)));
    row.optional().map(kept)
}

#[async_trait]
impl DataKeys for SqliteDataKeys {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    async fn ensure(&self, trajectory: TrajectoryId, fresh: &DataKey) -> Result<Kept, StoreError> {
        self.run(true, Kept::Nothing, |db| {
            let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "INSERT INTO data_keys (trajectory, digest, key) VALUES (?1, ?2, ?3)
                 ON CONFLICT (trajectory) DO NOTHING",
                params![trajectory.as_bytes(), fresh.digest().as_bytes(), fresh.expose()],
            )?;
            let kept = look(&transaction, trajectory)?;
            transaction.commit()?;
            Ok(kept)
        })
    }

    async fn key(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        self.run(false, Kept::Nothing, |db| look(db, trajectory))
    }

    async fn note(
        &self,
        trajectory: TrajectoryId,
        openings: &[(Digest, Digest)],
    ) -> Result<(), StoreError> {
        self.run(true, (), |db| {
            let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if !matches!(look(&transaction, trajectory)?, Ok(Kept::Key(_))) {
                return Ok(Err(no_key(trajectory)));
            }
            for (commitment, blob) in openings {
                transaction.execute(
                    "INSERT INTO openings (trajectory, commitment, blob) VALUES (?1, ?2, ?3)
                     ON CONFLICT (trajectory, commitment) DO NOTHING",
                    params![trajectory.as_bytes(), commitment.as_bytes(), blob.as_bytes()],
                )?;
            }
            transaction.commit()?;
            Ok(Ok(()))
        })
    }

    async fn opening(
        &self,
        trajectory: TrajectoryId,
        commitment: Digest,
    ) -> Result<Option<Digest>, StoreError> {
        self.run(false, None, |db| {
            let found = db.query_row(
                "SELECT blob FROM openings WHERE trajectory = ?1 AND commitment = ?2",
                params![trajectory.as_bytes(), commitment.as_bytes()],
                |row| row.get::<_, [u8; 32]>(0),
            );
            Ok(Ok(found.optional()?.map(Digest::from_bytes)))
        })
    }

    async fn destroy(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        self.run(false, Kept::Nothing, |db| {
            let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Overwritten in place first, then let go.
            for sql in [
                "UPDATE data_keys SET key = zeroblob(32) WHERE trajectory = ?1 AND key IS NOT NULL",
                "UPDATE data_keys SET key = NULL WHERE trajectory = ?1",
                "DELETE FROM openings WHERE trajectory = ?1",
            ] {
                transaction.execute(sql, [trajectory.as_bytes()])?;
            }
            let kept = look(&transaction, trajectory)?;
            transaction.commit()?;
            Ok(kept)
        })
    }

    async fn destroyed(&self) -> Result<Vec<(TrajectoryId, Digest)>, StoreError> {
        self.run(false, Vec::new(), |db| {
            let mut found = db.prepare(
                "SELECT trajectory, digest FROM data_keys WHERE key IS NULL ORDER BY trajectory",
            )?;
            let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let row = |(trajectory, digest)| {
                (TrajectoryId::from_bytes(trajectory), Digest::from_bytes(digest))
            };
            Ok(Ok(rows.map(|found| found.map(row)).collect::<rusqlite::Result<_>>()?))
        })
    }
}
