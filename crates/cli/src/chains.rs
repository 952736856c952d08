//! The store as the verification sees it, and what trajectories rest on: registries, the sources of
//! branches, parents and children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::verification::{Class, Finding, links};
use gesta_store::{Listing, Store, StoreError, StoredEntry, Trace, TrajectoryRow};
use gesta_verify::engine::{Chains, Each, Sealing};
use tokio::runtime::Handle;

/// How many entries or rows are read at a time.
const PAGE: usize = 512;

/// Trajectories of a store, as they stood when they were listed: a store may grow meanwhile. Their rows
/// say where they ended then, and are not believed beyond that.
pub(crate) struct StoreChains {
    store: Arc<dyn Store>,
    handle: Handle,
    ends: Ends,
    sealing: Option<Sealing>,
    /// Those that go on where their rows say that they end, each with the first entry past it.
    beyond: Mutex<BTreeMap<TrajectoryId, Head>>,
}

impl StoreChains {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        handle: Handle,
        ends: Ends,
        sealing: Option<Sealing>,
    ) -> Self {
        Self { store, handle, ends, sealing, beyond: Mutex::default() }
    }

    /// How many entries there are in all, as far as rows tell.
    pub(crate) fn entry_count(&self) -> u64 {
        let known = self.ends.values().flatten();
        known.fold(0, |sum, head| sum.saturating_add(head.seq).saturating_add(1))
    }

    fn head(&self, trajectory: TrajectoryId) -> Option<Head> {
        self.ends.get(&trajectory).copied().flatten()
    }

    fn beyond(&self) -> MutexGuard<'_, BTreeMap<TrajectoryId, Head>> {
        self.beyond.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chains for StoreChains {
    fn trajectories(&self) -> Result<Vec<TrajectoryId>, Finding> {
        Ok(self.ends.keys().copied().collect())
    }

    fn entries(&self, trajectory: TrajectoryId, each: &mut Each<'_>) -> Result<(), Finding> {
        let mut extent = Extent::new(self.head(trajectory));
        let mut from = 0;
        loop {
            let read = async {
                let page = self.store.entries(trajectory, from, PAGE).await?;
                extent.look(&*self.store, trajectory, &page).await?;
                Ok(page)
            };
            let page =
                self.handle.block_on(read).map_err(|error| finding(Some(trajectory), &error))?;
            if let Some(first) = extent.beyond {
                self.beyond().insert(trajectory, first);
            }
            for stored in &page {
                if extent.holds(stored) && each(&stored.bytes, Some(stored.id)).is_break() {
                    return Ok(());
                }
                from = stored.seq.saturating_add(1);
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    fn blob(&self, digest: Digest) -> Result<Option<BlobRef>, Finding> {
        match self.handle.block_on(self.store.blob(digest)) {
            Ok(bytes) => Ok(bytes.map(|bytes| BlobRef::of(&bytes))),
            Err(error) => Err(finding(None, &error)),
        }
    }

    fn expected_head(&self, trajectory: TrajectoryId) -> Option<Head> {
        self.head(trajectory).filter(|_| !self.beyond().contains_key(&trajectory))
    }

    fn misfiled(&self, trajectory: TrajectoryId) -> Option<Finding> {
        let Some(head) = self.head(trajectory) else {
            let what = "the store has no row that says where it ends; \
                `gesta doctor --rebuild` makes it again from the entries";
            return Some(tampered(trajectory, "no_row", None, what.to_owned()));
        };
        let first = self.beyond().get(&trajectory).copied()?;
        let what = format!(
            "its row says that it ends with entry {}, and entry {} is there: the row was changed, or \
             what follows was added past it",
            head.seq, first.seq
        );
        Some(tampered(trajectory, "beyond_head", Some(first), what))
    }

    fn size(&self, trajectory: TrajectoryId) -> Option<u64> {
        self.head(trajectory).map(|head| head.seq.saturating_add(1))
    }

    fn sealing(&self) -> Option<&Sealing> {
        self.sealing.as_ref()
    }
}

fn finding(trajectory: Option<TrajectoryId>, error: &StoreError) -> Finding {
    let (class, code) = match error {
        StoreError::DamagedBlob(_) => (Class::Tampered, "blob"),
        StoreError::Archived { .. } => (Class::Incomplete, "archived"),
        _ => (Class::Unreadable, "store"),
    };
    Finding { class, code, trajectory, seq: None, entry: None, what: error.to_string() }
}

fn tampered(
    trajectory: TrajectoryId,
    code: &'static str,
    at: Option<Head>,
    what: String,
) -> Finding {
    let (seq, entry) = (at.map(|head| head.seq), at.map(|head| head.id));
    Finding { class: Class::Tampered, code, trajectory: Some(trajectory), seq, entry, what }
}

/// Where trajectories end, as their rows say; none where no row says it.
pub(crate) type Ends = BTreeMap<TrajectoryId, Option<Head>>;

/// How far a trajectory is read: to where its row said that it ends when it was listed. What was added
/// since is left to the next reader. What is stored past the end that the row still names was not added by
/// an append, which writes both: it is read to the last of it.
struct Extent {
    listed: Option<Head>,
    /// What the row says now.
    now: Option<Head>,
    /// The first entry past it.
    beyond: Option<Head>,
}

impl Extent {
    fn new(listed: Option<Head>) -> Self {
        Self { listed, now: listed, beyond: None }
    }

    /// Looks at the row again if a page goes further than it did.
    async fn look(
        &mut self,
        store: &dyn Store,
        trajectory: TrajectoryId,
        page: &[StoredEntry],
    ) -> Result<(), StoreError> {
        for stored in page {
            let past = |head: Option<Head>| head.is_some_and(|head| stored.seq > head.seq);
            if past(self.now) && self.beyond.is_none() {
                // The entry was read before the row is: whatever append brought it has moved the row.
                self.now = store.mending().trace(trajectory).await?.head();
                if self.now.is_none() || past(self.now) {
                    self.beyond = Some(Head { seq: stored.seq, id: stored.id });
                }
            }
        }
        Ok(())
    }

    fn holds(&self, stored: &StoredEntry) -> bool {
        let listed = self.listed.is_none_or(|head| stored.seq <= head.seq);
        listed || self.beyond.is_some()
    }
}

/// Every trajectory of a store, by id.
pub(crate) async fn all(store: &Arc<dyn Store>) -> Result<Vec<TrajectoryRow>> {
    let mut rows: Vec<TrajectoryRow> = Vec::new();
    loop {
        let listing = Listing { after: rows.last().map(|row| row.trajectory), status: None };
        let page = store.list(&listing, PAGE).await?;
        let full = page.len() == PAGE;
        rows.extend(page);
        if !full {
            return Ok(rows);
        }
    }
}

/// What a store has of every trajectory, by id, whatever its rows say.
pub(crate) async fn traces(store: &Arc<dyn Store>) -> Result<Vec<Trace>> {
    let mut traces: Vec<Trace> = Vec::new();
    loop {
        let after = traces.last().map(|trace| trace.trajectory);
        let page = store.mending().traces(after, PAGE).await?;
        let full = page.len() == PAGE;
        traces.extend(page);
        if !full {
            return Ok(traces);
        }
    }
}

/// Every trajectory that has a row or entries, and where its row says that it ends.
pub(crate) async fn ends(store: &Arc<dyn Store>) -> Result<Ends> {
    let traces = traces(store).await?.into_iter().filter(Trace::is_there);
    Ok(traces.map(|trace| (trace.trajectory, trace.head())).collect())
}

/// An entry on a walk, read if it can be.
pub(crate) struct Visited<'a> {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) stored: &'a StoredEntry,
    pub(crate) entry: Option<&'a Entry>,
}

/// Reads trajectories, and with `follow` all that they rest on, handing every entry to `visit`.
/// Returns where their rows say that they end; what is stored past that is visited too, unless it was added
/// meanwhile. A trajectory that is named but not there is left out, unless it was asked for.
pub(crate) async fn walk(
    store: &Arc<dyn Store>,
    asked: &[TrajectoryId],
    follow: bool,
    mut visit: impl FnMut(Visited<'_>) -> Result<()>,
) -> Result<Ends> {
    let mut queue: Vec<TrajectoryId> = asked.to_vec();
    let mut seen: BTreeSet<TrajectoryId> = BTreeSet::new();
    let mut ends = Ends::new();
    while let Some(trajectory) = queue.pop() {
        if !seen.insert(trajectory) {
            continue;
        }
        let trace = store.mending().trace(trajectory).await?;
        if !trace.is_there() {
            if asked.contains(&trajectory) {
                return Err(StoreError::NoTrajectory(trajectory).into());
            }
            continue;
        }
        ends.insert(trajectory, trace.head());
        let mut extent = Extent::new(trace.head());
        let mut from = 0;
        loop {
            let page = store.entries(trajectory, from, PAGE).await?;
            extent.look(&**store, trajectory, &page).await?;
            for stored in page.iter().filter(|stored| extent.holds(stored)) {
                let entry = Entry::from_bytes(&stored.bytes).ok();
                if let Some(entry) = entry.as_ref().filter(|_| follow) {
                    queue.extend(links(&entry.payload().body).iter().map(|link| link.trajectory));
                }
                visit(Visited { trajectory, stored, entry: entry.as_ref() })?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE => from = last.seq.saturating_add(1),
                _ => break,
            }
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use gesta_core::sample::Cast;
    use gesta_store::clock;
    use gesta_store::memory::MemoryStore;

    use super::*;

    /// How many entries are read of a trajectory that was listed when it ended here, and what is said of it.
    fn read(chains: &StoreChains, trajectory: TrajectoryId) -> (u64, Option<&'static str>) {
        let mut read = 0;
        let each = &mut |_: &[u8], _| {
            read += 1;
            ControlFlow::Continue(())
        };
        chains.entries(trajectory, each).unwrap();
        (read, chains.misfiled(trajectory).map(|finding| finding.code))
    }

    #[test]
    fn what_is_added_meanwhile_is_left_to_the_next_reader() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock::system()));
        let trajectory = TrajectoryId::from_bytes([7; 16]);
        let (admitted, _) = Cast::new(3).begin_job(trajectory).unwrap().finish().unwrap();
        let heads: Vec<Head> = admitted.entries().iter().map(Entry::head).collect();
        assert!(heads.len() > 2);
        runtime.block_on(store.append(admitted)).unwrap();
        for (end, told) in [
            (heads.first().copied(), (1, None)),
            (heads.last().copied(), (heads.len() as u64, None)),
            (None, (heads.len() as u64, Some("no_row"))),
        ] {
            let ends = Ends::from([(trajectory, end)]);
            let handle = runtime.handle().clone();
            let chains = StoreChains::new(Arc::clone(&store), handle, ends, None);
            assert_eq!(read(&chains, trajectory), told);
            assert_eq!(chains.expected_head(trajectory), end);
        }
    }
}
