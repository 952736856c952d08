//! Real stores in virtual time: each call runs in a runtime of its own, and the test's clock stands
//! still until it is answered. What time it is is the test's to say.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{Tenant, TrajectoryId, WorkerId};
use gesta_core::projection::{Admitted, Projection};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};
use gesta_store::{
    Account, AccountRow, AppendError, Archives, Draw, Drawn, Epoch, Epochs, HeldListing, HeldRow,
    Listening, Listing, LogStore, Mending, NoticeRow, Opening, ParkedListing, ParkedRow, Profile,
    Ration, Reach, Release, Store, StoreError, StoredEntry, TrajectoryRow, Tried, WorkerRow,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::scene::now_since;

/// A store apart.
pub(crate) struct Apart {
    inner: Arc<dyn Store>,
    runtime: Option<Runtime>,
    started: Instant,
}

impl Apart {
    /// Opens a store in a runtime of its own.
    pub(crate) async fn open<F>(started: Instant, open: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Arc<dyn Store>>,
    {
        let (inner, runtime) = tokio::task::spawn_blocking(move || {
            let runtime =
                Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            (runtime.block_on(open()), runtime)
        })
        .await
        .unwrap();
        Self { inner, runtime: Some(runtime), started }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

macro_rules! apart {
    ($self:ident, $store:ident => $call:expr) => {{
        let $store = Arc::clone(&$self.inner);
        let handle = $self.runtime.as_ref().unwrap().handle().clone();
        tokio::task::spawn_blocking(move || handle.block_on(async move { $call.await }))
            .await
            .unwrap()
    }};
}

#[async_trait]
impl Store for Apart {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        apart!(self, store => store.append(admitted))
    }

    async fn entries(
        &self,
        id: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        apart!(self, store => store.entries(id, from, max))
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        apart!(self, store => store.locate(id))
    }

    async fn trajectory(&self, id: TrajectoryId) -> Result<Option<TrajectoryRow>, StoreError> {
        apart!(self, store => store.trajectory(id))
    }

    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError> {
        let listing = listing.clone();
        apart!(self, store => store.list(&listing, max))
    }

    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        let listing = listing.clone();
        apart!(self, store => store.parked(&listing, max))
    }

    async fn reproject(
        &self,
        id: TrajectoryId,
        head: Head,
        projection: &Projection,
    ) -> Result<(), AppendError> {
        let projection = projection.clone();
        apart!(self, store => store.reproject(id, head, &projection))
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError> {
        let (worker, profile) = (worker.clone(), profile.clone());
        apart!(self, store => store.heartbeat(&worker, &profile, lease_ms))?;
        Ok(now_since(self.started))
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        apart!(self, store => store.workers())
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        let worker = worker.clone();
        apart!(self, store => store.claim(&worker, max))
    }

    async fn claim_one(&self, worker: &WorkerId, id: TrajectoryId) -> Result<bool, StoreError> {
        let worker = worker.clone();
        apart!(self, store => store.claim_one(&worker, id))
    }

    async fn release(&self, worker: &WorkerId, id: TrajectoryId) -> Result<(), StoreError> {
        let worker = worker.clone();
        apart!(self, store => store.release(&worker, id))
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        let (worker, keep) = (worker.clone(), keep.to_vec());
        apart!(self, store => store.release_others(&worker, &keep))
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let worker = worker.clone();
        apart!(self, store => store.retire(&worker))
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        apart!(self, store => store.limits())
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        let (worker, scope) = (worker.clone(), scope.to_owned());
        apart!(self, store => store.ration(&worker, &scope, ask))
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        let (account, holder, draw) = (account.clone(), holder.to_owned(), draw.clone());
        apart!(self, store => store.draw(&account, &holder, &draw))
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let tenant = tenant.cloned();
        apart!(self, store => store.accounts(tenant.as_ref(), since))
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        let account = account.clone();
        apart!(self, store => store.account(&account))
    }

    async fn notices(&self, max: usize) -> Result<Vec<NoticeRow>, StoreError> {
        apart!(self, store => store.notices(max))
    }

    async fn claim_notices(
        &self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
    ) -> Result<Vec<NoticeRow>, StoreError> {
        let worker = worker.clone();
        apart!(self, store => store.claim_notices(&worker, max, lease_ms))
    }

    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError> {
        let (worker, tried) = (worker.clone(), tried.clone());
        apart!(self, store => store.settle_notice(&worker, id, &tried))
    }

    async fn retry_notices(&self) -> Result<u64, StoreError> {
        apart!(self, store => store.retry_notices())
    }

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        let report = report.clone();
        apart!(self, store => store.put_effect(&report))
    }

    async fn effects(&self, id: TrajectoryId) -> Result<Vec<Signed<EffectReport>>, StoreError> {
        apart!(self, store => store.effects(id))
    }

    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError> {
        apart!(self, store => store.reported(after, max))
    }

    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        let report = report.clone();
        apart!(self, store => store.drop_effect(&report))
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        let bytes = bytes.to_vec();
        apart!(self, store => store.put_blob(&bytes))
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        apart!(self, store => store.blob(digest))
    }

    fn log(&self) -> &dyn LogStore {
        self.inner.log()
    }

    fn epochs(&self) -> &dyn Epochs {
        self
    }

    fn archives(&self) -> &dyn Archives {
        self.inner.archives()
    }

    fn mending(&self) -> &dyn Mending {
        self.inner.mending()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }

    fn listen(&self) -> Listening {
        let _inside = self.runtime.as_ref().map(Runtime::enter);
        self.inner.listen()
    }
}

#[async_trait]
impl Epochs for Apart {
    async fn epoch(&self) -> Result<Epoch, StoreError> {
        apart!(self, store => store.epochs().epoch())
    }

    async fn open_epoch(&self, opening: &Opening) -> Result<Epoch, StoreError> {
        let opening = opening.clone();
        apart!(self, store => store.epochs().open_epoch(&opening))
    }

    async fn held(&self, listing: HeldListing, max: usize) -> Result<Vec<HeldRow>, StoreError> {
        apart!(self, store => store.epochs().held(listing, max))
    }

    async fn held_one(&self, id: TrajectoryId) -> Result<Option<HeldRow>, StoreError> {
        apart!(self, store => store.epochs().held_one(id))
    }

    async fn let_go(&self, id: TrajectoryId, release: &Release) -> Result<bool, StoreError> {
        let release = release.clone();
        apart!(self, store => store.epochs().let_go(id, &release))
    }
}
