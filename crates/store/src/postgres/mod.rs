//! The PostgreSQL store: many workers on many machines.
//!
//! Needs a tokio runtime. Each call is one statement and one transaction, on a pooled connection;
//! appends travel in batches. Leases are on the database's clock.

mod accounts;
mod append;
mod archive;
mod batch;
mod connect;
mod data_keys;
mod epochs;
mod fault;
mod log;
mod mending;
mod news;
mod outbox;
mod rows;
mod schema;
mod shares;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{Tenant, ToolName, TrajectoryId, WorkerId};
use gesta_core::json;
use gesta_core::projection::{Admitted, Projection};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};
use tokio_postgres::types::ToSql;

use self::append::ParkedColumns;
use self::batch::Batches;
use self::connect::{Link, Server};
pub use self::data_keys::PostgresDataKeys;
use self::fault::Failure;
use self::news::Herald;
use self::rows::{bigint, limit};
use crate::accounts::{Account, AccountRow, Draw, Drawn};
use crate::archive::{Archives, PUT_GRAIN_MS};
use crate::claims;
use crate::epoch::Epochs;
use crate::error::{AppendError, StoreError};
use crate::log::LogStore;
use crate::mending::Mending;
use crate::news::{Listening, News, concerns_others};
use crate::outbox::{NoticeRow, Tried};
use crate::port::{
    Listing, ParkedListing, ParkedRow, Profile, Reach, Store, StoredEntry, TrajectoryRow, WorkerRow,
};
use crate::rations::{self, Ration};

/// Entries, or one row that says where they are: of one moment.
const ENTRIES: &str = "
    (SELECT seq, id, bytes, NULL::text AS bundle FROM entries
    WHERE trajectory = $1 AND seq >= $2 ORDER BY seq LIMIT $3)
    UNION ALL
    SELECT head_seq, head_id, NULL, bundle FROM trajectories
    WHERE trajectory = $1 AND head_seq >= $2 AND bundle IS NOT NULL";
const LOCATE: &str = "SELECT trajectory, seq FROM entries WHERE id = $1 LIMIT 1";
const HEAD: &str = "SELECT head_seq, head_id FROM trajectories WHERE trajectory = $1";
const TRAJECTORY: &str = "
    SELECT trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at
    FROM trajectories WHERE trajectory = $1";
const LIST: &str = "
    SELECT trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at
    FROM trajectories WHERE trajectory > $1 ORDER BY trajectory LIMIT $2";
const LIST_BY_STATUS: &str = "
    SELECT trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at
    FROM trajectories WHERE trajectory > $1 AND status = $3 ORDER BY trajectory LIMIT $2";
const PARKED: &str = "
    SELECT trajectory, step, on_what, entry, key, until_ms, note
    FROM parked WHERE (trajectory, step) > ($1, $2) ORDER BY trajectory, step LIMIT $3";
const PARKED_ON: &str = "
    SELECT trajectory, step, on_what, entry, key, until_ms, note
    FROM parked WHERE (trajectory, step) > ($1, $2) AND on_what = $4
    ORDER BY trajectory, step LIMIT $3";
const PARKED_OF: &str = "
    SELECT trajectory, step, on_what, entry, key, until_ms, note
    FROM parked
    WHERE (trajectory, step) > ($1, $2) AND trajectory = $5 AND ($4::text IS NULL OR on_what = $4)
    ORDER BY trajectory, step LIMIT $3";
const REPROJECT: &str = include_str!("sql/reproject.sql");
const HEARTBEAT: &str = include_str!("sql/heartbeat.sql");
const CLAIM: &str = include_str!("sql/claim.sql");
const CLAIM_ONE: &str = "
    UPDATE trajectories AS t
    SET owner = $1, free_since = NULL, asleep_until = NULL
    WHERE t.trajectory = $2
        AND NOT t.held
        AND t.status NOT IN ('completed', 'failed', 'cancelled')
        AND EXISTS (
            SELECT FROM workers WHERE worker = $1 AND lease_until >= clock_timestamp())
        AND (t.owner IS NULL OR t.owner = $1 OR NOT EXISTS (
            SELECT FROM workers WHERE worker = t.owner AND lease_until >= clock_timestamp()))
    RETURNING t.trajectory";
/// What has an owner has not ended: the append that ends a trajectory also gives it back.
const RELEASE: &str = "
    UPDATE trajectories
    SET owner = NULL,
        free_since = CASE WHEN runnable THEN changed_at END,
        asleep_until = CASE WHEN NOT runnable THEN wake_at END
    WHERE trajectory = $2 AND owner = $1
    RETURNING runnable";
const RELEASE_OTHERS: &str = "
    UPDATE trajectories
    SET owner = NULL,
        free_since = CASE WHEN runnable THEN changed_at END,
        asleep_until = CASE WHEN NOT runnable THEN wake_at END
    WHERE owner = $1 AND NOT (trajectory = ANY ($2))";
const RETIRE: &str = include_str!("sql/retire.sql");
const WORKERS: &str = "
    SELECT worker, tools, host, pid, version, limits,
        floor(extract(epoch FROM since) * 1000)::bigint AS since_ms,
        floor(extract(epoch FROM beat_at) * 1000)::bigint AS beat_ms,
        floor(extract(epoch FROM lease_until) * 1000)::bigint AS until_ms,
        (SELECT count(*) FROM trajectories WHERE owner = w.worker) AS claimed
    FROM workers AS w WHERE lease_until >= clock_timestamp() ORDER BY worker";
const PUT_EFFECT: &str = "
    INSERT INTO effects (trajectory, digest, at_ms, bytes) VALUES ($1, $2, $3, $4)
    ON CONFLICT (trajectory, digest) DO NOTHING";
const EFFECTS: &str = "SELECT bytes FROM effects WHERE trajectory = $1 ORDER BY at_ms, digest";
const REPORTED: &str = "
    SELECT DISTINCT e.trajectory FROM effects AS e
    JOIN trajectories AS t ON t.trajectory = e.trajectory
    WHERE e.trajectory > $1 AND NOT t.held
        AND (t.status IN ('completed', 'failed', 'cancelled') OR NOT EXISTS (
            SELECT FROM workers WHERE worker = t.owner AND lease_until >= clock_timestamp()))
    ORDER BY e.trajectory LIMIT $2";
const DROP_EFFECT: &str = "DELETE FROM effects WHERE trajectory = $1 AND digest = $2";
const PUT_BLOB: &str = "
    INSERT INTO blobs AS b (digest, bytes, put_at)
    VALUES ($1, $2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    ON CONFLICT (digest) DO UPDATE SET put_at = excluded.put_at
    WHERE b.put_at < excluded.put_at - $3::bigint";
const BLOB: &str = "SELECT bytes FROM blobs WHERE digest = $1";

/// How many candidates a claim looks at beyond those it asks for: others may hold the first ones.
const CLAIM_WINDOW: i64 = 64;

/// How to use a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most connections for statements. A worker has two more: one for its heartbeat, which must
    /// not wait for others, and one that listens.
    pub max_connections: usize,
    /// How long the server may work on a statement. Half as long again without an answer, and the
    /// connection is given up.
    pub timeout: Duration,
    /// How many batches of appends may be on their way at once. One is the fastest where a commit
    /// takes a few milliseconds: all who wait share the next one. More of them shorten the wait where
    /// commits are slow, as with a synchronous standby far away.
    pub append_batches: usize,
    /// The certificate authority of the server, PEM. Given one, the connection is encrypted and the
    /// server verified, whatever the URL prefers. Without one, `sslmode=require` verifies against
    /// the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// The password, if it is not in the URL.
    pub password: Option<Password>,
    /// How the connections are named on the server, unless the URL says so.
    pub application_name: String,
    /// The schema that holds the tables; made if it is missing. Without one, it is the first of
    /// the user's search path.
    pub schema: Option<String>,
}

/// A password that is not shown.
#[derive(Clone)]
pub struct Password(String);

impl From<String> for Password {
    fn from(password: String) -> Self {
        Self(password)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 8,
            timeout: Duration::from_secs(10),
            append_batches: 1,
            ca_file: None,
            password: None,
            application_name: "gesta".into(),
            schema: None,
        }
    }
}

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    link: Link,
    /// For heartbeats alone.
    life: Link,
    batches: Batches,
    herald: Herald,
}

impl PostgresStore {
    /// Connects to the database of a URL and brings its tables up to date.
    ///
    /// A database of a newer program and a server with `fsync = off` are refused before anything is
    /// changed. Errors name host and database, never the password.
    pub async fn connect(url: &str, options: &Options) -> Result<Self, StoreError> {
        let server = Arc::new(Server::new(url, options)?);
        schema::migrate(&server).await?;
        Self::over(server, options)
    }

    /// Connects to a database of which nothing is asked but what it holds: tables of an older program are
    /// refused rather than changed under those who use them.
    pub async fn connect_to_read(url: &str, options: &Options) -> Result<Self, StoreError> {
        let server = Arc::new(Server::new(url, options)?);
        schema::check(&server).await?;
        Self::over(server, options)
    }

    fn over(server: Arc<Server>, options: &Options) -> Result<Self, StoreError> {
        let (link, life) = (server.pool(options.max_connections)?, server.pool(1)?);
        let batches = Batches::start(&link, options.append_batches);
        let herald = Herald::new(server, &link);
        Ok(Self { link, life, batches, herald })
    }

    /// Host, port and database, without credentials.
    pub fn place(&self) -> &str {
        &self.link.place
    }

    async fn run(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<(), StoreError> {
        self.link.query(sql, params).await?;
        Ok(())
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("place", &self.place()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        let news = concerns_others(&admitted).then_some(admitted.trajectory());
        let head = self.batches.append(admitted).await?;
        if let Some(trajectory) = news {
            self.herald.tell(News::Changed(trajectory)).await;
        }
        Ok(head)
    }

    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 3] =
            [&trajectory.as_bytes().as_slice(), &from, &limit(max)];
        let found = self.link.query(ENTRIES, &params).await?;
        if let Some(row) = found.first()
            && let Some(bundle) = rows::get(row, "bundle")?
        {
            return Err(StoreError::archived(trajectory, bundle));
        }
        found.iter().map(rows::entry).collect()
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        let found = self.link.query_slowly(LOCATE, &[&id.as_bytes().as_slice()]).await?;
        found.first().map(|row| Ok((rows::trajectory(row)?, rows::number(row, "seq")?))).transpose()
    }

    async fn trajectory(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Option<TrajectoryRow>, StoreError> {
        let found = self.link.query(TRAJECTORY, &[&trajectory.as_bytes().as_slice()]).await?;
        found.first().map(rows::trajectory_row).transpose()
    }

    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError> {
        let after = listing.after.map_or(Vec::new(), |after| after.as_bytes().to_vec());
        let found = match listing.status {
            None => self.link.query(LIST, &[&after, &limit(max)]).await?,
            Some(status) => {
                self.link.query(LIST_BY_STATUS, &[&after, &limit(max), &status.as_str()]).await?
            }
        };
        found.iter().map(rows::trajectory_row).collect()
    }

    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        let (after, after_step) = match &listing.after {
            Some((trajectory, step)) => (trajectory.as_bytes().to_vec(), step.as_str()),
            None => (Vec::new(), ""),
        };
        let on = listing.on.map(|on| on.as_str());
        let limit = limit(max);
        let found = match (listing.trajectory, on) {
            (None, None) => self.link.query(PARKED, &[&after, &after_step, &limit]).await?,
            (None, Some(on)) => {
                self.link.query(PARKED_ON, &[&after, &after_step, &limit, &on]).await?
            }
            (Some(trajectory), on) => {
                let trajectory = trajectory.as_bytes().as_slice();
                let params: [&(dyn ToSql + Sync); 5] =
                    [&after, &after_step, &limit, &on, &trajectory];
                self.link.query(PARKED_OF, &params).await?
            }
        };
        found.iter().map(rows::parked_row).collect()
    }

    async fn reproject(
        &self,
        trajectory: TrajectoryId,
        head: Head,
        projection: &Projection,
    ) -> Result<(), AppendError> {
        if reproject(&self.link, trajectory, head, projection).await? {
            return Ok(());
        }
        let trajectory = trajectory.as_bytes().as_slice();
        let found = self.link.query(HEAD, &[&trajectory]).await?;
        let head = found.first().map(rows::head).transpose().map_err(AppendError::Refused)?;
        Err(AppendError::Conflict { head })
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError> {
        let Profile { tools, host, pid, version, limits } = profile;
        let tools: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
        let (worker, lease_ms, pid) = (worker.as_str(), bigint(lease_ms)?, i64::from(*pid));
        let limits = rations::joined(limits);
        let params: [&(dyn ToSql + Sync); 7] =
            [&worker, &lease_ms, &tools, host, &pid, version, &limits];
        let found = self.life.query(HEARTBEAT, &params).await?;
        let now = found.first().map(|row| rows::number(row, "now_ms")).transpose()?;
        Ok(UnixMs(now.unwrap_or_default()))
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.link.query(WORKERS, &[]).await?.iter().map(rows::worker_row).collect()
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        let max = limit(max);
        let window = max.saturating_mul(2).saturating_add(CLAIM_WINDOW);
        let found = self.link.query(CLAIM, &[&worker.as_str(), &max, &window]).await?;
        found.iter().map(rows::trajectory).collect()
    }

    async fn claim_one(
        &self,
        worker: &WorkerId,
        trajectory: TrajectoryId,
    ) -> Result<bool, StoreError> {
        let trajectory = trajectory.as_bytes().as_slice();
        let found = self.link.query(CLAIM_ONE, &[&worker.as_str(), &trajectory]).await?;
        Ok(!found.is_empty())
    }

    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError> {
        let row: [&(dyn ToSql + Sync); 2] = [&worker.as_str(), &trajectory.as_bytes().as_slice()];
        let found = self.link.query(RELEASE, &row).await?;
        if let Some(row) = found.first()
            && rows::get(row, "runnable")?
        {
            self.herald.tell(News::Changed(trajectory)).await;
        }
        Ok(())
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        let keep: Vec<&[u8]> = keep.iter().map(|kept| kept.as_bytes().as_slice()).collect();
        self.run(RELEASE_OTHERS, &[&worker.as_str(), &keep]).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.run(RETIRE, &[&worker.as_str()]).await?;
        self.herald.tell(News::Missed).await;
        Ok(())
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        shares::limits(&self.link).await
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        shares::ration(&self.link, worker, scope, ask).await
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        accounts::draw(&self.link, account, holder, draw).await
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        accounts::list(&self.link, tenant, since).await
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        accounts::one(&self.link, account).await
    }

    async fn notices(&self, max: usize) -> Result<Vec<NoticeRow>, StoreError> {
        outbox::list(&self.link, max).await
    }

    async fn claim_notices(
        &self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
    ) -> Result<Vec<NoticeRow>, StoreError> {
        outbox::claim(&self.link, worker, max, lease_ms).await
    }

    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError> {
        outbox::settle(&self.link, worker, id, tried).await
    }

    async fn retry_notices(&self) -> Result<u64, StoreError> {
        outbox::retry(&self.link).await
    }

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        let bytes = json::to_canonical(report)
            .map_err(|error| StoreError::Refused { why: error.to_string() })?;
        let (doc, digest) = (report.doc(), report.digest());
        let (trajectory, digest) =
            (doc.trajectory.as_bytes().as_slice(), digest.as_bytes().as_slice());
        self.run(PUT_EFFECT, &[&trajectory, &digest, &bigint(doc.at.0)?, &bytes]).await?;
        self.herald.tell(News::Changed(doc.trajectory)).await;
        Ok(())
    }

    async fn effects(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Vec<Signed<EffectReport>>, StoreError> {
        let found = self.link.query(EFFECTS, &[&trajectory.as_bytes().as_slice()]).await?;
        found.iter().map(rows::effect).collect()
    }

    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError> {
        let after = after.map_or(Vec::new(), |after| after.as_bytes().to_vec());
        let found = self.link.query(REPORTED, &[&after, &limit(max)]).await?;
        found.iter().map(rows::trajectory).collect()
    }

    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        let (doc, digest) = (report.doc(), report.digest());
        let trajectory = doc.trajectory.as_bytes().as_slice();
        self.run(DROP_EFFECT, &[&trajectory, &digest.as_bytes().as_slice()]).await
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        let blob = BlobRef::of(bytes);
        let grain = bigint(PUT_GRAIN_MS)?;
        self.run(PUT_BLOB, &[&blob.sha256.as_bytes().as_slice(), &bytes, &grain]).await?;
        Ok(blob)
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.link.query(BLOB, &[&digest.as_bytes().as_slice()]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let bytes: Vec<u8> = rows::get(row, "bytes")?;
        if Digest::of(&bytes) == digest {
            Ok(Some(bytes))
        } else {
            Err(StoreError::DamagedBlob(digest))
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
        Reach::Network
    }

    fn listen(&self) -> Listening {
        self.herald.listen()
    }
}

/// Whether the head was still the expected one.
async fn reproject(
    link: &Link,
    trajectory: TrajectoryId,
    head: Head,
    projection: &Projection,
) -> Result<bool, Failure> {
    let summary = &projection.summary;
    let big = |number| bigint(number).map_err(Failure::not_sent);
    let (trajectory, head_id) = (trajectory.as_bytes().as_slice(), head.id.as_bytes().as_slice());
    let head_seq = big(head.seq)?;
    let attempt = big(summary.attempt)?;
    let (kind, status) = (summary.kind.as_str(), summary.status.as_str());
    let tenant = summary.tenant.as_ref().map(|tenant| tenant.as_str());
    let principal = summary.principal.as_str();
    let wake_at = summary.wake_at.map(|at| big(at.0)).transpose()?;
    let (begun_at, changed_at) = (big(summary.begun_at.0)?, big(summary.changed_at.0)?);
    let ended = summary.status.ended();
    let parked = ParkedColumns::of(&projection.parked).map_err(Failure::not_sent)?;
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &trajectory,
        &head_seq,
        &head_id,
        &attempt,
        &kind,
        &status,
        &tenant,
        &principal,
        &summary.runnable,
        &wake_at,
        &begun_at,
        &changed_at,
        &ended,
    ];
    let (rank, tools) = (claims::rank(summary.priority), claims::joined(&summary.tools));
    params.extend(parked.params());
    params.extend([&rank as &(dyn ToSql + Sync), &tools]);
    Ok(!link.query(REPROJECT, &params).await?.is_empty())
}
