//! Epochs in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Status;

use super::{MemoryStore, Tables};
use crate::epoch::{Epoch, Epochs, HeldListing, HeldRow, Opening, Release};
use crate::error::StoreError;
use crate::news::News;

#[async_trait]
impl Epochs for MemoryStore {
    async fn epoch(&self) -> Result<Epoch, StoreError> {
        let tables = self.tables();
        Ok(Epoch {
            store: Digest::from_bytes([0; 32]),
            number: tables.epoch.0.max(1),
            opened_at: tables.epoch.1,
            copied_at: None,
        })
    }

    async fn open_epoch(&self, opening: &Opening) -> Result<Epoch, StoreError> {
        let now = (self.clock)();
        {
            let mut tables = self.tables();
            tables.epoch = (tables.epoch.0.max(1).max(opening.above) + 1, now);
            tables.hold(opening);
        }
        self.epoch().await
    }

    async fn held(&self, listing: HeldListing, max: usize) -> Result<Vec<HeldRow>, StoreError> {
        let after = listing.after.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.tables();
        let rows = tables.held.range((after, Bound::Unbounded)).map(|(_, row)| row);
        let listed = rows.filter(|row| listing.released || row.release.is_none());
        Ok(listed.take(max).cloned().collect())
    }

    async fn held_one(&self, trajectory: TrajectoryId) -> Result<Option<HeldRow>, StoreError> {
        Ok(self.tables().held.get(&trajectory).cloned())
    }

    async fn let_go(
        &self,
        trajectory: TrajectoryId,
        release: &Release,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        match tables.held.get_mut(&trajectory) {
            Some(row) if row.release.is_none() => row.release = Some(release.clone()),
            _ => return Ok(false),
        }
        if let Some(chain) = tables.trajectories.get_mut(&trajectory) {
            chain.held = false;
        }
        self.bell.ring(News::Changed(trajectory));
        Ok(true)
    }
}

impl Tables {
    fn hold(&mut self, opening: &Opening) {
        let epoch = self.epoch.0;
        self.workers.clear();
        self.shares.clear();
        let known: BTreeMap<_, _> = opening.known.iter().copied().collect();
        for (&trajectory, chain) in &mut self.trajectories {
            chain.owner = None;
            let status = chain.summary.status;
            if status.ended() || status == Status::Standing {
                continue;
            }
            chain.held = true;
            let before = self.held.get(&trajectory).map(|row| row.copied_at);
            let copied_at = before.map_or(opening.copied_at, |at| at.min(opening.copied_at));
            let known = known.get(&trajectory).map(|head| head.seq);
            let known = known.filter(|seq| *seq > chain.head.seq);
            let row = HeldRow { trajectory, epoch, copied_at, known, release: None };
            self.held.insert(trajectory, row);
        }
    }
}
