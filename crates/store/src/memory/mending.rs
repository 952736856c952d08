//! Mending in memory, where a row and its entries are one thing and neither goes astray.

use std::ops::Bound;

use async_trait::async_trait;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Summary;

use super::{Chain, MemoryStore};
use crate::error::StoreError;
use crate::mending::{Mark, Mending, Trace};

#[async_trait]
impl Mending for MemoryStore {
    async fn traces(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<Trace>, StoreError> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.tables();
        let chains = tables.trajectories.range((after, Bound::Unbounded)).take(max);
        Ok(chains.map(|(trajectory, chain)| chain.trace(*trajectory)).collect())
    }

    async fn trace(&self, trajectory: TrajectoryId) -> Result<Trace, StoreError> {
        let nothing = Trace { trajectory, row: None, entries: false, parked: false };
        let tables = self.tables();
        Ok(tables.trajectories.get(&trajectory).map_or(nothing, |chain| chain.trace(trajectory)))
    }

    async fn put_row(
        &self,
        trajectory: TrajectoryId,
        was: Option<&Mark>,
        head: Head,
        _: &Summary,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let Some(chain) = tables.trajectories.get_mut(&trajectory) else { return Ok(false) };
        let ends =
            chain.entries.last().is_some_and(|last| last.seq == head.seq && last.id == head.id);
        let same = was.is_some_and(|was| *was == chain.mark()) && chain.archived.is_none();
        if same && ends {
            chain.head = head;
        }
        Ok(same && ends)
    }

    async fn drop_parked(&self, _: TrajectoryId) -> Result<bool, StoreError> {
        Ok(false)
    }
}

impl Chain {
    fn trace(&self, trajectory: TrajectoryId) -> Trace {
        let (entries, parked) = (!self.entries.is_empty(), !self.parked.is_empty());
        Trace { trajectory, row: Some(self.mark()), entries, parked }
    }

    fn mark(&self) -> Mark {
        let seq = i64::try_from(self.head.seq).unwrap_or(i64::MAX);
        Mark { seq, id: self.head.id.as_bytes().to_vec(), archived: self.archived.is_some() }
    }
}
