//! Archiving in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::document::EffectReport;
use gesta_core::json;
use gesta_core::signed::Signed;

use super::{MemoryStore, Tables};
use crate::archive::{Archives, Archiving, BundleRow, Size, Whole};
use crate::error::StoreError;
use crate::port::StoredEntry;

#[async_trait]
impl Archives for MemoryStore {
    async fn archive(&self, archiving: &Archiving) -> Result<Option<u64>, StoreError> {
        Ok(self.tables().archive(archiving))
    }

    async fn bring_back(&self, whole: &Whole) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let Some(chain) = tables.trajectories.get_mut(&whole.trajectory()) else {
            return Ok(false);
        };
        if chain.head != whole.head() {
            return Ok(false);
        }
        if chain.archived.take().is_some() {
            let stored = whole.entries().iter().map(|entry| StoredEntry {
                id: entry.id(),
                seq: entry.seq(),
                bytes: entry.bytes().to_vec(),
            });
            chain.entries = stored.collect();
        }
        Ok(true)
    }

    async fn bundles(&self) -> Result<Vec<BundleRow>, StoreError> {
        let mut named: BTreeMap<(String, Digest), u64> = BTreeMap::new();
        for archived in self.tables().trajectories.values().filter_map(|one| one.archived.as_ref())
        {
            *named.entry((archived.bundle.clone(), archived.sha256)).or_default() += 1;
        }
        let row = |((bundle, sha256), trajectories)| BundleRow { bundle, sha256, trajectories };
        Ok(named.into_iter().map(row).collect())
    }

    async fn size(&self) -> Result<Size, StoreError> {
        let tables = self.tables();
        let entries = tables.trajectories.values().flat_map(|chain| &chain.entries);
        let entries: usize = entries.map(|entry| entry.bytes.len()).sum();
        let blobs: usize = tables.blobs.values().map(|(bytes, _)| bytes.len()).sum();
        Ok(Size { bytes: (entries + blobs) as u64, free: 0 })
    }
}

impl Tables {
    fn archive(&mut self, archiving: &Archiving) -> Option<u64> {
        let Archiving { trajectory, head, archived, blobs, unused_since } = archiving;
        let reported = self.effects.keys().any(|(of, ..)| of == trajectory);
        let chain = self.trajectories.get_mut(trajectory)?;
        if let Some(there) = &chain.archived {
            return (chain.head == *head && there.sha256 == archived.sha256).then_some(0);
        }
        if chain.head != *head || !chain.summary.status.ended() || reported {
            return None;
        }
        chain.entries = Vec::new();
        chain.archived = Some(archived.clone());
        let mut removed = 0;
        for digest in blobs {
            let put = self.blobs.get(digest).map(|(_, put_at)| *put_at);
            let waits = || self.effects.values().any(|report| names(report, *digest));
            if put.is_some_and(|at| at < *unused_since) && !waits() {
                self.blobs.remove(digest);
                removed += 1;
            }
        }
        Some(removed)
    }
}

/// Whether a report in the inbox names a blob.
fn names(report: &Signed<EffectReport>, digest: Digest) -> bool {
    let written = json::to_canonical(report).unwrap_or_default();
    String::from_utf8_lossy(&written).contains(&digest.to_string())
}
