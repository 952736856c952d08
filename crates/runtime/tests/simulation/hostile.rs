//! A store as one worker reaches it: slow, at times out of reach, losing writes and answers; and the
//! worker's own health, which can be frozen.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{Tenant, TrajectoryId, WorkerId};
use gesta_core::projection::{Admitted, Projection};
use gesta_core::sample::Dice;
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};
use gesta_store::{
    Account, AccountRow, AppendError, Archives, Draw, Drawn, Epochs, Listening, Listing, LogStore,
    Mending, NoticeRow, ParkedListing, ParkedRow, Profile, Ration, Reach, Store, StoreError,
    StoredEntry, TrajectoryRow, Tried, WorkerRow,
};
use tokio::time::Instant;

/// Lets virtual time pass.
pub(crate) async fn pass(ms: u64) {
    tokio::time::sleep_until(Instant::now() + Duration::from_millis(ms)).await;
}

/// What a worker suffers from.
pub(crate) struct Health {
    frozen_until: Mutex<Instant>,
    cut_off_until: Mutex<Instant>,
}

impl Health {
    pub(crate) fn new() -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self { frozen_until: Mutex::new(now), cut_off_until: Mutex::new(now) })
    }

    pub(crate) fn freeze(&self, ms: u64) {
        *self.frozen_until.lock().unwrap() = Instant::now() + Duration::from_millis(ms);
    }

    pub(crate) fn cut_off(&self, ms: u64) {
        *self.cut_off_until.lock().unwrap() = Instant::now() + Duration::from_millis(ms);
    }

    /// When it wakes up, or did.
    pub(crate) fn wakes_at(&self) -> Instant {
        *self.frozen_until.lock().unwrap()
    }

    /// Goes on when the worker is not frozen.
    pub(crate) async fn awake(&self) {
        loop {
            let until = self.wakes_at();
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn reachable(&self) -> bool {
        *self.cut_off_until.lock().unwrap() <= Instant::now()
    }
}

/// How the store misbehaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cas {
    /// As it should.
    Honest,
    /// A lost compare-and-swap is reported as won.
    Dropped,
}

/// The store as one worker reaches it.
pub(crate) struct Hostile {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) health: Arc<Health>,
    pub(crate) dice: Mutex<Dice>,
    pub(crate) calm_at: Instant,
    pub(crate) cas: Cas,
    /// How far this worker's idea of the store's time is off.
    pub(crate) skew_ms: u64,
}

impl Hostile {
    fn roll(&self, below: u64) -> u64 {
        self.dice.lock().unwrap().below(below)
    }

    async fn write<T, E>(
        &self,
        run: impl Future<Output = Result<T, E>>,
        failed: impl Fn(StoreError) -> E,
    ) -> Result<T, E> {
        self.pass().await;
        if !self.health.reachable() {
            return Err(failed(gone()));
        }
        let calm = Instant::now() >= self.calm_at;
        match self.roll(100) {
            0..2 if !calm => Err(failed(gone())),
            2..4 if !calm => run.await.and(Err(failed(gone()))),
            _ => {
                let outcome = run.await;
                self.pass().await;
                outcome
            }
        }
    }

    async fn read<T>(
        &self,
        run: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.write(run, |error| error).await
    }

    /// The way to the store and back takes time, and whoever is frozen does not move.
    async fn pass(&self) {
        let ms = match self.roll(20) {
            0 => self.roll(200),
            1..6 => self.roll(10),
            _ => 0,
        };
        pass(ms).await;
        self.health.awake().await;
    }
}

fn gone() -> StoreError {
    StoreError::Unreachable { place: "simulation".to_owned(), why: "as ordered".to_owned() }
}

#[async_trait]
impl Store for Hostile {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        let head = admitted.head();
        let inner = async {
            let outcome = self.inner.append(admitted).await;
            // The worst moment: it is durable, and nobody has been told.
            if Instant::now() < self.calm_at && self.roll(40) == 0 {
                self.health.freeze(self.roll(30_000));
            }
            outcome
        };
        let outcome = self.write(inner, AppendError::Unknown).await;
        match outcome {
            Err(AppendError::Conflict { .. }) if self.cas == Cas::Dropped => Ok(head),
            other => other,
        }
    }

    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        self.read(self.inner.entries(trajectory, from, max)).await
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        self.read(self.inner.locate(id)).await
    }

    async fn trajectory(&self, id: TrajectoryId) -> Result<Option<TrajectoryRow>, StoreError> {
        self.read(self.inner.trajectory(id)).await
    }

    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError> {
        self.read(self.inner.list(listing, max)).await
    }

    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        self.read(self.inner.parked(listing, max)).await
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
        let now = self.read(self.inner.heartbeat(worker, profile, lease_ms)).await?;
        Ok(now.plus(self.skew_ms))
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(self.inner.workers()).await
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        self.read(self.inner.limits()).await
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        self.read(self.inner.ration(worker, scope, ask)).await
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        self.read(self.inner.draw(account, holder, draw)).await
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        self.read(self.inner.accounts(tenant, since)).await
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        self.read(self.inner.account(account)).await
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
        self.inner.claim_notices(worker, max, lease_ms).await
    }

    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError> {
        self.inner.settle_notice(worker, id, tried).await
    }

    async fn retry_notices(&self) -> Result<u64, StoreError> {
        self.inner.retry_notices().await
    }

    fn log(&self) -> &dyn LogStore {
        self.inner.log()
    }

    fn epochs(&self) -> &dyn Epochs {
        self.inner.epochs()
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
        self.inner.listen()
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        self.read(self.inner.claim(worker, max)).await
    }

    async fn claim_one(&self, worker: &WorkerId, id: TrajectoryId) -> Result<bool, StoreError> {
        self.read(self.inner.claim_one(worker, id)).await
    }

    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError> {
        self.read(self.inner.release(worker, trajectory)).await
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        self.read(self.inner.release_others(worker, keep)).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.read(self.inner.retire(worker)).await
    }

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.read(self.inner.put_effect(report)).await
    }

    async fn effects(&self, id: TrajectoryId) -> Result<Vec<Signed<EffectReport>>, StoreError> {
        self.read(self.inner.effects(id)).await
    }

    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError> {
        self.read(self.inner.reported(after, max)).await
    }

    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.read(self.inner.drop_effect(report)).await
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        self.read(self.inner.put_blob(bytes)).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(self.inner.blob(digest)).await
    }
}
