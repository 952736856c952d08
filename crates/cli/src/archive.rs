//! A store together with the bundles that its archived trajectories are in: they are read from there as if
//! they were here, and whatever is added to one brings it back first. A bundle that is not where it was put
//! is an error that names it; nothing is taken from one that is not what was archived.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::{Tenant, TrajectoryId, WorkerId};
use gesta_core::projection::{Admitted, Projection};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};
use gesta_core::verification::blobs;
use gesta_store::{
    Account, AccountRow, AppendError, Archived, Archives, Draw, Drawn, Epochs, Listening, Listing,
    LogStore, Mending, NoticeRow, ParkedListing, ParkedRow, Profile, Ration, Reach, Store,
    StoreError, StoredEntry, TrajectoryRow, Tried, Whole, WorkerRow,
};
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::Chains as _;

use crate::session::Session;

/// How many rows are read at a time.
const PAGE: usize = 512;

/// A store that finds what is archived.
pub(crate) fn over(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    // The workspace says where bundles are kept; a store by itself needs none.
    let directory = Session::find_workspace().ok().flatten().and_then(|here| here.archive());
    Arc::new(Reading { inner, directory, open: Mutex::default(), last: Mutex::default() })
}

/// Where a bundle is now: where it was put, or under the same name where the workspace keeps bundles.
pub(crate) fn find(bundle: &str, directory: Option<&Path>) -> Option<PathBuf> {
    let put = Path::new(bundle);
    let kept = directory.and_then(|directory| Some(directory.join(put.file_name()?)));
    [Some(put.to_owned()), kept].into_iter().flatten().find(|path| path.exists())
}

/// Brings an archived trajectory back into the store that it is read through, blobs first. False if it is
/// not there any more as it was read.
pub(crate) async fn bring_back(
    store: &dyn Store,
    trajectory: TrajectoryId,
) -> Result<bool, StoreError> {
    let (mut entries, mut from) = (Vec::new(), 0);
    loop {
        let page = store.entries(trajectory, from, PAGE).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        entries.extend(page.iter().filter_map(|stored| Entry::from_bytes(&stored.bytes).ok()));
    }
    let named = entries.iter().flat_map(|entry| blobs(&entry.payload().body));
    for digest in named.map(|blob| blob.sha256) {
        if let Some(bytes) = store.blob(digest).await? {
            store.put_blob(&bytes).await?;
        }
    }
    match Whole::of(trajectory, entries) {
        Some(whole) => store.archives().bring_back(&whole).await,
        None => Ok(false),
    }
}

struct Reading {
    inner: Arc<dyn Store>,
    /// Where else bundles are looked for.
    directory: Option<PathBuf>,
    open: Mutex<BTreeMap<PathBuf, Arc<Bundle>>>,
    /// What was read last: whoever reads a trajectory reads it page by page.
    last: Mutex<Option<Arc<Whole>>>,
}

impl Reading {
    /// The chain of a trajectory, if it is archived.
    async fn whole(&self, trajectory: TrajectoryId) -> Result<Option<Arc<Whole>>, StoreError> {
        let row = self.inner.trajectory(trajectory).await?;
        let Some(TrajectoryRow { head, archived: Some(archived), .. }) = row else {
            return Ok(None);
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |whole: &&Arc<Whole>| whole.trajectory() == trajectory && whole.head() == head;
        if let Some(whole) = last.as_ref().filter(same) {
            return Ok(Some(Arc::clone(whole)));
        }
        let whole = self.read(trajectory, head, &archived)?;
        *last = Some(Arc::clone(&whole));
        Ok(Some(whole))
    }

    /// Reads a chain from its bundle. The head that the row has kept says whether it is the one.
    fn read(
        &self,
        trajectory: TrajectoryId,
        head: Head,
        archived: &Archived,
    ) -> Result<Arc<Whole>, StoreError> {
        let refuse = |why: String| {
            let bundle = archived.bundle.clone();
            StoreError::Archived { trajectory, bundle, why: format!(", which {why}") }
        };
        let bundle = self.bundle(&archived.bundle).map_err(refuse)?;
        let mut entries = Vec::new();
        bundle
            .entries(trajectory, &mut |bytes, _| match Entry::from_bytes(bytes) {
                Ok(entry) => {
                    entries.push(entry);
                    ControlFlow::Continue(())
                }
                Err(_) => ControlFlow::Break(()),
            })
            .map_err(|finding| refuse(format!("cannot be read: {finding}")))?;
        let whole = Whole::of(trajectory, entries).filter(|whole| whole.head() == head);
        let other = || refuse(format!("does not have it up to entry {} as it was", head.seq));
        whole.map(Arc::new).ok_or_else(other)
    }

    fn bundle(&self, bundle: &str) -> Result<Arc<Bundle>, String> {
        let path = find(bundle, self.directory.as_deref()).ok_or("is not there")?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bundle) = open.get(&path) {
            return Ok(Arc::clone(bundle));
        }
        let bundle = Bundle::open(&path).map_err(|finding| format!("cannot be read: {finding}"))?;
        let bundle = Arc::new(bundle);
        open.insert(path, Arc::clone(&bundle));
        Ok(bundle)
    }
}

#[async_trait]
impl Store for Reading {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        let appended = self.inner.append(admitted.clone()).await;
        let Err(AppendError::Refused(StoreError::Archived { trajectory, .. })) = appended else {
            return appended;
        };
        tracing::warn!(%trajectory, "it is archived and grows: it is brought back");
        bring_back(self, trajectory).await.map_err(AppendError::Refused)?;
        self.inner.append(admitted).await
    }

    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let found = self.inner.entries(trajectory, from, max).await;
        if !matches!(found, Err(StoreError::Archived { .. })) {
            return found;
        }
        let Some(whole) = self.whole(trajectory).await? else {
            // It was brought back in between.
            return self.inner.entries(trajectory, from, max).await;
        };
        let entries = whole.entries().iter().filter(|entry| entry.seq() >= from).take(max);
        Ok(entries.map(stored).collect())
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        if let Some(found) = self.inner.locate(id).await? {
            return Ok(Some(found));
        }
        let mut listing = Listing::default();
        loop {
            let page = self.inner.list(&listing, PAGE).await?;
            for row in page.iter().filter(|row| row.archived.is_some()) {
                // One that cannot be read says nothing of the others.
                let Ok(Some(whole)) = self.whole(row.trajectory).await else { continue };
                if let Some(entry) = whole.entries().iter().find(|entry| entry.id() == id) {
                    return Ok(Some((row.trajectory, entry.seq())));
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => listing.after = Some(last.trajectory),
                _ => return Ok(None),
            }
        }
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.inner.blob(digest).await? {
            return Ok(Some(bytes));
        }
        for row in self.inner.archives().bundles().await? {
            let Ok(bundle) = self.bundle(&row.bundle) else { continue };
            let bytes = bundle.blob_bytes(digest).unwrap_or_default();
            if Digest::of(&bytes) == digest {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
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
        self.inner.reproject(trajectory, head, projection).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError> {
        self.inner.heartbeat(worker, profile, lease_ms).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.inner.workers().await
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        self.inner.claim(worker, max).await
    }

    async fn claim_one(
        &self,
        worker: &WorkerId,
        trajectory: TrajectoryId,
    ) -> Result<bool, StoreError> {
        self.inner.claim_one(worker, trajectory).await
    }

    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError> {
        self.inner.release(worker, trajectory).await
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        self.inner.release_others(worker, keep).await
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.inner.retire(worker).await
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        self.inner.limits().await
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        self.inner.ration(worker, scope, ask).await
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        self.inner.draw(account, holder, draw).await
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        self.inner.account(account).await
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        self.inner.accounts(tenant, since).await
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

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.inner.put_effect(report).await
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
        self.inner.drop_effect(report).await
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        self.inner.put_blob(bytes).await
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
}

fn stored(entry: &Entry) -> StoredEntry {
    StoredEntry { id: entry.id(), seq: entry.seq(), bytes: entry.bytes().to_vec() }
}
