//! The SQLite store: one file, one thread that writes, a few that read.
//!
//! Needs no async runtime of its own: callers wait on channels. Several processes may open the same
//! file; between them SQLite's write lock decides who goes first, and the compare-and-swap of each
//! append who wins.

mod accounts;
mod append;
mod archive;
mod copy;
mod data_keys;
mod desk;
mod entries;
mod epochs;
mod fault;
mod leases;
mod log;
mod mending;
mod open;
mod outbox;
mod readers;
mod room;
mod rows;
mod shares;
mod writer;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{Tenant, TrajectoryId, WorkerId};
use gesta_core::json;
use gesta_core::projection::{Admitted, ParkedOn, Projection, Status};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};
use rusqlite::{Connection, OptionalExtension as _, params};

pub use self::archive::compact;
pub use self::copy::{check, copy};
pub use self::data_keys::SqliteDataKeys;
pub use self::open::{Schema, schema};
use self::readers::Readers;
use self::writer::Writer;
use crate::accounts::{Account, AccountRow, Draw, Drawn};
use crate::archive::{Archives, PUT_GRAIN_MS};
use crate::clock::{self, Clock};
use crate::epoch::Epochs;
use crate::error::{AppendError, StoreError};
use crate::log::LogStore;
use crate::mending::Mending;
use crate::news::{self, Bell, Listening, News};
use crate::outbox::{NoticeRow, Tried};
use crate::port::{
    Listing, ParkedListing, ParkedRow, Profile, Reach, Store, StoredEntry, TrajectoryRow, WorkerRow,
};
use crate::rations::Ration;

/// How many prepared statements a connection keeps: more than this store has.
const CACHED_STATEMENTS: usize = 96;

const TRAJECTORY: &str = "
    SELECT trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at
    FROM trajectories WHERE trajectory = ?1";
const LIST: &str = "
    SELECT trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at
    FROM trajectories WHERE trajectory > ?1 ORDER BY trajectory LIMIT ?2";
const LIST_STATUS: &str = "
    SELECT trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at
    FROM trajectories WHERE status = ?3 AND trajectory > ?1 ORDER BY trajectory LIMIT ?2";
const PARKED: &str = "
    SELECT trajectory, step, on_what, entry, key, until, note FROM parked
    WHERE (trajectory, step) > (?1, ?2) ORDER BY trajectory, step LIMIT ?3";
const PARKED_ON: &str = "
    SELECT trajectory, step, on_what, entry, key, until, note FROM parked
    WHERE on_what = ?4 AND (trajectory, step) > (?1, ?2) ORDER BY trajectory, step LIMIT ?3";
const PARKED_OF: &str = "
    SELECT trajectory, step, on_what, entry, key, until, note FROM parked
    WHERE trajectory = ?5 AND (trajectory, step) > (?1, ?2) AND (?4 IS NULL OR on_what = ?4)
    ORDER BY trajectory, step LIMIT ?3";
const PUT_EFFECT: &str = "
    INSERT INTO effects (trajectory, digest, at, bytes) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (trajectory, digest) DO NOTHING";
const EFFECTS: &str = "SELECT bytes FROM effects WHERE trajectory = ?1 ORDER BY at, digest";
const REPORTED: &str = "
    SELECT DISTINCT e.trajectory FROM effects AS e
    JOIN trajectories AS t ON t.trajectory = e.trajectory
    WHERE e.trajectory > ?1 AND t.held = 0
        AND (t.status IN ('completed', 'failed', 'cancelled') OR NOT EXISTS (
            SELECT 1 FROM workers WHERE worker = t.owner AND lease_until >= ?3))
    ORDER BY e.trajectory LIMIT ?2";
const DROP_EFFECT: &str = "DELETE FROM effects WHERE trajectory = ?1 AND digest = ?2";
const PUT_BLOB: &str = "
    INSERT INTO blobs (digest, bytes, put_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (digest) DO UPDATE SET put_at = excluded.put_at WHERE put_at < excluded.put_at - ?4";
const BLOB: &str = "SELECT bytes FROM blobs WHERE digest = ?1";

/// How a file is opened.
#[derive(Clone)]
pub struct Options {
    /// How long to wait for another process that writes.
    pub busy_timeout: Duration,
    /// What leases are counted by.
    pub clock: Clock,
    /// How large the file may become; what would exceed it is refused as if the disk were full.
    pub max_bytes: Option<u64>,
    /// How many reads may run at once; at least one does.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(10),
            clock: clock::system(),
            max_bytes: None,
            readers: 2,
        }
    }
}

/// A store in one SQLite file.
pub struct SqliteStore {
    // Dropped in this order: the last connection to close moves the WAL into the file, and only
    // the writer can.
    readers: Readers,
    writer: Writer,
    clock: Clock,
    path: PathBuf,
    /// For this process; others find out by looking.
    bell: Bell,
}

impl SqliteStore {
    /// Opens a file, or makes it. The directory must exist. Blocks while the schema is brought up
    /// to date; a crash in between leaves the old schema or the new one.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let writing = open::for_writing(path, &options)?;
        let reading = (0..options.readers.max(1))
            .map(|_| open::for_reading(path, &options))
            .collect::<Result<_, _>>()?;
        Self::over(path, writing, reading, options)
    }

    /// Opens a file of which nothing is asked but what it holds: every write may be refused. Reading changes no
    /// schema: what an older program wrote is read from a copy that has the newest one. One that cannot be written
    /// is read as it is; any other is opened as by [`Self::open`].
    pub fn open_to_read(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let (db, schema) = open::without_writing(path, &options)?;
        if !schema.is_current() {
            let Schema { version, newest } = schema;
            tracing::info!(?path, version, newest, "an older schema is read from a copy");
            let copy = open::brought_up_to_date(&db, path, &options)?;
            return Self::over(path, db, vec![copy], options);
        }
        drop(db);
        match Self::open(path, options.clone()) {
            Err(StoreError::ReadOnly { .. }) => {
                let reading = || open::without_writing(path, &options).map(|(db, _)| db);
                let writing = reading()?;
                let reading =
                    (0..options.readers.max(1)).map(|_| reading()).collect::<Result<_, _>>()?;
                Self::over(path, writing, reading, options)
            }
            opened => opened,
        }
    }

    fn over(
        path: &Path,
        writing: Connection,
        reading: Vec<Connection>,
        options: Options,
    ) -> Result<Self, StoreError> {
        let place = path.display().to_string();
        let no_thread = |error: std::io::Error| StoreError::Refused {
            why: format!("no thread can be started: {error}"),
        };
        Ok(Self {
            readers: Readers::start(reading, place.clone()).map_err(no_thread)?,
            writer: Writer::start(writing, place, options.busy_timeout).map_err(no_thread)?,
            clock: options.clock,
            // Wherever this process goes, the file stays where it is.
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            bell: Bell::new(false),
        })
    }

    fn tell(&self, trajectory: Option<TrajectoryId>) {
        if let Some(trajectory) = trajectory {
            self.bell.ring(News::Changed(trajectory));
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        let news = news::concerns_others(&admitted).then_some(admitted.trajectory());
        let head = self.writer.run(move |db| append::append(db, &admitted)).await?;
        self.tell(news);
        Ok(head)
    }

    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let found = self.readers.run(move |db| archive::entries(db, trajectory, from, max)).await?;
        found.map_err(|bundle| StoreError::archived(trajectory, bundle))
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        self.readers.run(move |db| entries::locate(db, id)).await
    }

    async fn trajectory(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Option<TrajectoryRow>, StoreError> {
        self.readers
            .run(move |db| {
                db.prepare_cached(TRAJECTORY)?
                    .query_row([trajectory.as_bytes()], rows::trajectory)
                    .optional()
            })
            .await
    }

    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError> {
        let Listing { after, status } = listing.clone();
        self.readers
            .run(move |db| {
                // The empty blob comes before every id.
                let after = after.as_ref().map_or(&[][..], |after| after.as_bytes());
                let max = limit(max);
                match status.map(Status::as_str) {
                    None => db
                        .prepare_cached(LIST)?
                        .query_map(params![after, max], rows::trajectory)?
                        .collect(),
                    Some(status) => db
                        .prepare_cached(LIST_STATUS)?
                        .query_map(params![after, max, status], rows::trajectory)?
                        .collect(),
                }
            })
            .await
    }

    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        let ParkedListing { after, on, trajectory } = listing.clone();
        self.readers
            .run(move |db| {
                let (after, step) = match &after {
                    Some((after, step)) => (&after.as_bytes()[..], step.as_str()),
                    None => (&[][..], ""),
                };
                let (on, max) = (on.map(ParkedOn::as_str), limit(max));
                match (trajectory, on) {
                    (Some(of), on) => db
                        .prepare_cached(PARKED_OF)?
                        .query_map(params![after, step, max, on, of.as_bytes()], rows::parked)?
                        .collect(),
                    (None, Some(on)) => db
                        .prepare_cached(PARKED_ON)?
                        .query_map(params![after, step, max, on], rows::parked)?
                        .collect(),
                    (None, None) => db
                        .prepare_cached(PARKED)?
                        .query_map(params![after, step, max], rows::parked)?
                        .collect(),
                }
            })
            .await
    }

    async fn reproject(
        &self,
        trajectory: TrajectoryId,
        head: Head,
        projection: &Projection,
    ) -> Result<(), AppendError> {
        let projection = projection.clone();
        self.writer.run(move |db| append::reproject(db, trajectory, head, &projection)).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError> {
        let (worker, clock) = (worker.clone(), Clock::clone(&self.clock));
        let profile = profile.clone();
        self.writer
            .run(move |db| {
                let now = clock();
                leases::heartbeat(db, &worker, &profile, lease_ms, now)?;
                Ok(Ok(now))
            })
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let now = (self.clock)();
        self.readers.run(move |db| leases::workers(db, now)).await
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        let (worker, clock) = (worker.clone(), Clock::clone(&self.clock));
        self.writer.run(move |db| leases::claim(db, &worker, max, clock()).map(Ok)).await
    }

    async fn claim_one(
        &self,
        worker: &WorkerId,
        trajectory: TrajectoryId,
    ) -> Result<bool, StoreError> {
        let (worker, clock) = (worker.clone(), Clock::clone(&self.clock));
        self.writer.run(move |db| leases::claim_one(db, &worker, trajectory, clock()).map(Ok)).await
    }

    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError> {
        let worker = worker.clone();
        let left: Result<bool, StoreError> =
            self.writer.run(move |db| leases::release(db, &worker, trajectory).map(Ok)).await;
        self.tell(left?.then_some(trajectory));
        Ok(())
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        let (worker, keep) = (worker.clone(), keep.to_vec());
        self.writer.run(move |db| leases::release_others(db, &worker, &keep).map(Ok)).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let worker = worker.clone();
        let retired: Result<(), StoreError> =
            self.writer.run(move |db| leases::retire(db, &worker).map(Ok)).await;
        self.bell.ring(News::Missed);
        retired
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        let now = (self.clock)();
        self.readers.run(move |db| leases::limits(db, now)).await
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        let (worker, scope) = (worker.clone(), scope.to_owned());
        let clock = Clock::clone(&self.clock);
        self.writer.run(move |db| shares::ration(db, &worker, &scope, ask, clock()).map(Ok)).await
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        let (account, holder, draw) = (account.clone(), holder.to_owned(), draw.clone());
        let clock = Clock::clone(&self.clock);
        self.writer
            .run(move |db| accounts::draw(db, &account, &holder, &draw, clock()).map(Ok))
            .await
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let tenant = tenant.cloned();
        self.readers.run(move |db| accounts::list(db, tenant.as_ref(), since)).await
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        let account = account.clone();
        self.readers.run(move |db| accounts::one(db, &account)).await
    }

    async fn notices(&self, max: usize) -> Result<Vec<NoticeRow>, StoreError> {
        self.readers.run(move |db| outbox::list(db, max)).await
    }

    async fn claim_notices(
        &self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
    ) -> Result<Vec<NoticeRow>, StoreError> {
        let (worker, clock) = (worker.clone(), Clock::clone(&self.clock));
        self.writer.run(move |db| outbox::claim(db, &worker, max, lease_ms, clock()).map(Ok)).await
    }

    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError> {
        let (worker, tried) = (worker.clone(), tried.clone());
        let clock = Clock::clone(&self.clock);
        self.writer.run(move |db| outbox::settle(db, &worker, id, &tried, clock()).map(Ok)).await
    }

    async fn retry_notices(&self) -> Result<u64, StoreError> {
        self.writer.run(move |db| outbox::retry(db).map(Ok)).await
    }

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        let bytes = json::to_canonical(report).map_err(|error| StoreError::Refused {
            why: format!("the effect report cannot be written: {error}"),
        })?;
        let (trajectory, at, digest) = (report.doc().trajectory, report.doc().at, report.digest());
        self.writer
            .run(move |db| {
                let row = params![trajectory.as_bytes(), digest.as_bytes(), at.0, bytes];
                db.prepare_cached(PUT_EFFECT)?.execute(row)?;
                Ok::<_, rusqlite::Error>(Ok::<_, StoreError>(()))
            })
            .await?;
        self.tell(Some(trajectory));
        Ok(())
    }

    async fn effects(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Vec<Signed<EffectReport>>, StoreError> {
        self.readers
            .run(move |db| {
                db.prepare_cached(EFFECTS)?
                    .query_map([trajectory.as_bytes()], rows::effect)?
                    .collect()
            })
            .await
    }

    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError> {
        let now = (self.clock)();
        self.readers
            .run(move |db| {
                let after = after.map_or_else(Vec::new, |after| after.as_bytes().to_vec());
                let row = params![after, limit(max), now.0];
                db.prepare_cached(REPORTED)?
                    .query_map(row, |row| rows::trajectory_id(row, 0))?
                    .collect()
            })
            .await
    }

    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        let (trajectory, digest) = (report.doc().trajectory, report.digest());
        self.writer
            .run(move |db| {
                let key = params![trajectory.as_bytes(), digest.as_bytes()];
                db.prepare_cached(DROP_EFFECT)?.execute(key)?;
                Ok(Ok(()))
            })
            .await
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        let blob = BlobRef::of(bytes);
        let (bytes, clock) = (bytes.to_vec(), Clock::clone(&self.clock));
        self.writer
            .run(move |db| {
                let row = params![blob.sha256.as_bytes(), bytes, clock().0, PUT_GRAIN_MS];
                db.prepare_cached(PUT_BLOB)?.execute(row)?;
                Ok(Ok(()))
            })
            .await
            .map(|()| blob)
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes: Option<Vec<u8>> = self
            .readers
            .run(move |db| {
                db.prepare_cached(BLOB)?.query_row([digest.as_bytes()], |row| row.get(0)).optional()
            })
            .await?;
        match bytes {
            Some(bytes) if Digest::of(&bytes) != digest => Err(StoreError::DamagedBlob(digest)),
            other => Ok(other),
        }
    }

    fn log(&self) -> &dyn LogStore {
        self
    }

    fn epochs(&self) -> &dyn Epochs {
        self
    }

    fn archives(&self) -> &dyn Archives {
        self
    }

    fn mending(&self) -> &dyn Mending {
        self
    }

    fn reach(&self) -> Reach {
        Reach::Machine(self.path.clone())
    }

    fn listen(&self) -> Listening {
        self.bell.listen()
    }
}

/// SQLite reads a negative limit as none at all, so a large one must not wrap.
fn limit(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}
