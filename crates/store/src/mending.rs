//! The part of the port that mending and verifying need: what there is of a trajectory, told without
//! believing its row, and the row put back that the entries call for. Entries are what a trajectory is;
//! whoever reads only rows does not see one whose row is gone.

use async_trait::async_trait;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Summary;

use crate::error::StoreError;

/// What a store has of a trajectory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// What its row says of where it ends, if it has one.
    pub row: Option<Mark>,
    /// Whether it has entries here.
    pub entries: bool,
    /// Whether it has rows of parked steps.
    pub parked: bool,
}

impl Trace {
    /// Whether there is anything that others would miss: a row of a parked step alone is none.
    pub fn is_there(&self) -> bool {
        self.entries || self.row.is_some()
    }

    /// Where its row says that it ends.
    pub fn head(&self) -> Option<Head> {
        self.row.as_ref().and_then(Mark::head)
    }

    /// Whether its row says that its entries are elsewhere.
    pub fn is_archived(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.archived)
    }
}

/// The head as a row has it, whatever that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number.
    pub seq: i64,
    /// What should be an id.
    pub id: Vec<u8>,
    /// Whether the row says that the entries are elsewhere.
    pub archived: bool,
}

impl Mark {
    /// The head, if it can be one.
    pub fn head(&self) -> Option<Head> {
        let id = <[u8; 32]>::try_from(self.id.as_slice()).ok()?;
        Some(Head { seq: u64::try_from(self.seq).ok()?, id: EntryId::new(Digest::from_bytes(id)) })
    }
}

/// What a store can tell of trajectories whose rows nobody believes.
#[async_trait]
pub trait Mending: Send + Sync {
    /// What there is of every trajectory that has a row, entries or parked steps: by id, those after this
    /// one, at most `max` of them. Reads where rows end and nothing else of them.
    async fn traces(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<Trace>, StoreError>;

    /// What there is of one trajectory, perhaps nothing.
    async fn trace(&self, trajectory: TrajectoryId) -> Result<Trace, StoreError>;

    /// Has the row of a trajectory end at `head`, if it still says `was` and the entries end there; makes
    /// it if there was none. False if either is otherwise, and then nothing is changed; so it is for what
    /// is archived. A row that is made is sealed as far as the log holds the trajectory, and is held if it
    /// was. What else a row that is there says is as before: [`Store::reproject`] follows. A crash in between
    /// leaves a row that is found to be wrong again.
    ///
    /// [`Store::reproject`]: crate::Store::reproject
    async fn put_row(
        &self,
        trajectory: TrajectoryId,
        was: Option<&Mark>,
        head: Head,
        summary: &Summary,
    ) -> Result<bool, StoreError>;

    /// Removes the parked steps of a trajectory that has neither a row nor entries. False if there was
    /// nothing to remove.
    async fn drop_parked(&self, trajectory: TrajectoryId) -> Result<bool, StoreError>;
}
