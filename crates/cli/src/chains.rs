//! The store as the verification sees it, and what trajectories rest on: registries, the sources of
//! branches, parents and children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::verification::{Class, Finding, links};
use gesta_store::{Listing, Store, StoreError, StoredEntry, TrajectoryRow};
use gesta_verify::engine::{Chains, Each, Sealing};
use tokio::runtime::Handle;

/// How many entries or rows are read at a time.
const PAGE: usize = 512;

/// Trajectories of a store, as they stood when they were listed: a store may grow meanwhile.
pub(crate) struct StoreChains {
    store: Arc<dyn Store>,
    handle: Handle,
    heads: BTreeMap<TrajectoryId, Head>,
    sealing: Option<Sealing>,
}

impl StoreChains {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        handle: Handle,
        heads: BTreeMap<TrajectoryId, Head>,
        sealing: Option<Sealing>,
    ) -> Self {
        Self { store, handle, heads, sealing }
    }

    /// How many entries there are in all.
    pub(crate) fn entry_count(&self) -> u64 {
        self.heads.values().map(|head| head.seq + 1).sum()
    }
}

impl Chains for StoreChains {
    fn trajectories(&self) -> Result<Vec<TrajectoryId>, Finding> {
        Ok(self.heads.keys().copied().collect())
    }

    fn entries(&self, trajectory: TrajectoryId, each: &mut Each<'_>) -> Result<(), Finding> {
        let last = self.heads.get(&trajectory).map(|head| head.seq);
        let mut from = 0;
        loop {
            let page = self
                .handle
                .block_on(self.store.entries(trajectory, from, PAGE))
                .map_err(|error| finding(Some(trajectory), &error))?;
            for stored in &page {
                if last.is_some_and(|last| stored.seq > last) {
                    return Ok(());
                }
                if each(&stored.bytes, Some(stored.id)).is_break() {
                    return Ok(());
                }
                from = stored.seq + 1;
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
        self.heads.get(&trajectory).copied()
    }

    fn size(&self, trajectory: TrajectoryId) -> Option<u64> {
        self.heads.get(&trajectory).map(|head| head.seq + 1)
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

/// An entry on a walk, read if it can be.
pub(crate) struct Visited<'a> {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) stored: &'a StoredEntry,
    pub(crate) entry: Option<&'a Entry>,
}

/// Reads trajectories, and with `follow` all that they rest on, handing every entry to `visit`.
/// Returns their heads. A trajectory that is named but not there is left out, unless it was asked for.
pub(crate) async fn walk(
    store: &Arc<dyn Store>,
    asked: &[TrajectoryId],
    follow: bool,
    mut visit: impl FnMut(Visited<'_>) -> Result<()>,
) -> Result<BTreeMap<TrajectoryId, Head>> {
    let mut queue: Vec<TrajectoryId> = asked.to_vec();
    let mut seen: BTreeSet<TrajectoryId> = BTreeSet::new();
    let mut heads = BTreeMap::new();
    while let Some(trajectory) = queue.pop() {
        if !seen.insert(trajectory) {
            continue;
        }
        let Some(row) = store.trajectory(trajectory).await? else {
            if asked.contains(&trajectory) {
                return Err(StoreError::NoTrajectory(trajectory).into());
            }
            continue;
        };
        heads.insert(trajectory, row.head);
        let mut from = 0;
        while from <= row.head.seq {
            let page = store.entries(trajectory, from, PAGE).await?;
            for stored in page.iter().filter(|stored| stored.seq <= row.head.seq) {
                let entry = Entry::from_bytes(&stored.bytes).ok();
                if let Some(entry) = entry.as_ref().filter(|_| follow) {
                    queue.extend(links(&entry.payload().body).iter().map(|link| link.trajectory));
                }
                visit(Visited { trajectory, stored, entry: entry.as_ref() })?;
            }
            match page.last() {
                Some(last) => from = last.seq + 1,
                None => break,
            }
        }
    }
    Ok(heads)
}
