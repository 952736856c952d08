//! A store whose writes fail on purpose, in the two ways that matter: *lost*, and *persisted but
//! reported failed*. For tests of whatever writes; the caller cannot tell the two apart, and must
//! come out right in both.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{Tenant, TrajectoryId, WorkerId};
use gesta_core::log::tiles::TileId;
use gesta_core::projection::{Admitted, Projection, Summary};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};

use crate::accounts::{Account, AccountRow, Draw, Drawn};
use crate::archive::{Archives, Archiving, BundleRow, Size, Whole};
use crate::epoch::Epochs;
use crate::error::{AppendError, StoreError};
use crate::log::{CheckpointRow, Lag, LogStore, Run, Seal, UnsealedRow, Which};
use crate::mending::{Mark, Mending, Trace};
use crate::news::Listening;
use crate::outbox::{NoticeRow, Tried};
use crate::port::{
    Listing, ParkedListing, ParkedRow, Profile, Reach, Store, StoredEntry, TrajectoryRow, WorkerRow,
};
use crate::rations::Ration;

/// How a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never reaches the store.
    Lost,
    /// It is stored, and the answer is lost.
    Unanswered,
}

/// Says how the n-th write fails, if it does; writes are counted from 0.
pub type Faults = Box<dyn Fn(u64) -> Option<Fault> + Send + Sync>;

/// A store whose writes fail when it is told so.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Faults,
    writes: AtomicU64,
}

impl FaultyStore {
    /// A store that stands before another.
    pub fn new(inner: Arc<dyn Store>, faults: Faults) -> Self {
        Self { inner, faults, writes: AtomicU64::new(0) }
    }

    /// How many writes were asked for.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    fn next(&self) -> Option<Fault> {
        (self.faults)(self.writes.fetch_add(1, Ordering::SeqCst))
    }

    /// Runs a write, or does not, and reports what the fault says.
    async fn write<T, E>(
        &self,
        run: impl Future<Output = Result<T, E>>,
        failed: impl FnOnce(StoreError) -> E,
    ) -> Result<T, E> {
        let gone =
            StoreError::Unreachable { place: "faulty".to_owned(), why: "as ordered".to_owned() };
        match self.next() {
            None => run.await,
            Some(Fault::Lost) => Err(failed(gone)),
            Some(Fault::Unanswered) => run.await.and(Err(failed(gone))),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        self.write(self.inner.append(admitted), AppendError::Unknown).await
    }

    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        self.inner.entries(trajectory, from, max).await
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        self.inner.locate(id).await
    }

    async fn trajectory(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Option<TrajectoryRow>, StoreError> {
        self.inner.trajectory(trajectory).await
    }

    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError> {
        self.inner.list(listing, max).await
    }

    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        self.inner.parked(listing, max).await
    }

    async fn reproject(
        &self,
        trajectory: TrajectoryId,
        head: Head,
        projection: &Projection,
    ) -> Result<(), AppendError> {
        self.write(self.inner.reproject(trajectory, head, projection), AppendError::Unknown).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError> {
        self.write(self.inner.heartbeat(worker, profile, lease_ms), |error| error).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.inner.workers().await
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        self.write(self.inner.claim(worker, max), |error| error).await
    }

    async fn claim_one(
        &self,
        worker: &WorkerId,
        trajectory: TrajectoryId,
    ) -> Result<bool, StoreError> {
        self.write(self.inner.claim_one(worker, trajectory), |error| error).await
    }

    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError> {
        self.write(self.inner.release(worker, trajectory), |error| error).await
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        self.write(self.inner.release_others(worker, keep), |error| error).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.write(self.inner.retire(worker), |error| error).await
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        self.inner.limits().await
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        self.write(self.inner.ration(worker, scope, ask), |error| error).await
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        self.write(self.inner.draw(account, holder, draw), |error| error).await
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        self.inner.accounts(tenant, since).await
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        self.inner.account(account).await
    }

    async fn notices(&self, max: usize) -> Result<Vec<NoticeRow>, StoreError> {
        self.inner.notices(max).await
    }

    async fn claim_notices(
        &self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
    ) -> Result<Vec<NoticeRow>, StoreError> {
        self.write(self.inner.claim_notices(worker, max, lease_ms), |error| error).await
    }

    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError> {
        self.write(self.inner.settle_notice(worker, id, tried), |error| error).await
    }

    async fn retry_notices(&self) -> Result<u64, StoreError> {
        self.write(self.inner.retry_notices(), |error| error).await
    }

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.write(self.inner.put_effect(report), |error| error).await
    }

    async fn effects(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Vec<Signed<EffectReport>>, StoreError> {
        self.inner.effects(trajectory).await
    }

    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError> {
        self.inner.reported(after, max).await
    }

    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.write(self.inner.drop_effect(report), |error| error).await
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        self.write(self.inner.put_blob(bytes), |error| error).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.blob(digest).await
    }

    fn log(&self) -> &dyn LogStore {
        self
    }

    fn epochs(&self) -> &dyn Epochs {
        self.inner.epochs()
    }

    fn archives(&self) -> &dyn Archives {
        self
    }

    fn mending(&self) -> &dyn Mending {
        self
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }

    fn listen(&self) -> Listening {
        self.inner.listen()
    }
}

#[async_trait]
impl LogStore for FaultyStore {
    async fn unsealed(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<UnsealedRow>, StoreError> {
        self.inner.log().unsealed(after, max).await
    }

    async fn lag(&self) -> Result<Lag, StoreError> {
        self.inner.log().lag().await
    }

    async fn seal(&self, seal: &Seal) -> Result<bool, StoreError> {
        self.write(self.inner.log().seal(seal), |error| error).await
    }

    async fn checkpoint(&self, which: Which) -> Result<Option<CheckpointRow>, StoreError> {
        self.inner.log().checkpoint(which).await
    }

    async fn cosign(&self, old: &CheckpointRow, new: &CheckpointRow) -> Result<bool, StoreError> {
        self.write(self.inner.log().cosign(old, new), |error| error).await
    }

    async fn tiles(&self, ids: &[TileId]) -> Result<Vec<(TileId, Vec<u8>)>, StoreError> {
        self.inner.log().tiles(ids).await
    }

    async fn map_nodes(&self, hashes: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        self.inner.log().map_nodes(hashes).await
    }

    async fn run_before(
        &self,
        trajectory: TrajectoryId,
        seq: u64,
    ) -> Result<Option<Run>, StoreError> {
        self.inner.log().run_before(trajectory, seq).await
    }

    async fn runs(&self, from_leaf: u64, max: usize) -> Result<Vec<Run>, StoreError> {
        self.inner.log().runs(from_leaf, max).await
    }
}

#[async_trait]
impl Archives for FaultyStore {
    async fn archive(&self, archiving: &Archiving) -> Result<Option<u64>, StoreError> {
        self.write(self.inner.archives().archive(archiving), |error| error).await
    }

    async fn bring_back(&self, whole: &Whole) -> Result<bool, StoreError> {
        self.write(self.inner.archives().bring_back(whole), |error| error).await
    }

    async fn bundles(&self) -> Result<Vec<BundleRow>, StoreError> {
        self.inner.archives().bundles().await
    }

    async fn size(&self) -> Result<Size, StoreError> {
        self.inner.archives().size().await
    }
}

#[async_trait]
impl Mending for FaultyStore {
    async fn traces(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<Trace>, StoreError> {
        self.inner.mending().traces(after, max).await
    }

    async fn trace(&self, trajectory: TrajectoryId) -> Result<Trace, StoreError> {
        self.inner.mending().trace(trajectory).await
    }

    async fn put_row(
        &self,
        trajectory: TrajectoryId,
        was: Option<&Mark>,
        head: Head,
        summary: &Summary,
    ) -> Result<bool, StoreError> {
        let mending = self.inner.mending();
        self.write(mending.put_row(trajectory, was, head, summary), |error| error).await
    }

    async fn drop_parked(&self, trajectory: TrajectoryId) -> Result<bool, StoreError> {
        self.write(self.inner.mending().drop_parked(trajectory), |error| error).await
    }
}
