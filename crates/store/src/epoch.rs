//! The part of the port that restoring needs. A copy of a store forgets what was started after it was
//! made: whoever goes on with it opens a new epoch, in which nothing that was open is claimed until
//! somebody has released it.

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::entry::Head;
use gesta_core::ids::{Principal, TrajectoryId};
use gesta_core::time::UnixMs;

use crate::error::StoreError;

/// Which history of a store this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The store: drawn when it was made, and the same in every copy of it.
    pub store: Digest,
    /// How often a copy was gone on with, counted from 1.
    pub number: u64,
    /// When it was opened; of the first, when the store was made.
    pub opened_at: UnixMs,
    /// When this copy was made, in a copy that nobody has opened an epoch in. Nothing is to be driven
    /// there.
    pub copied_at: Option<UnixMs>,
}

/// What is in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The epoch of the store that it is of, and when it was made.
    pub epoch: Epoch,
    /// How many trajectories it has,
    pub trajectories: u64,
    /// and how many of them go on.
    pub open: u64,
}

/// How an epoch is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Whoever opens it.
    pub by: Principal,
    /// From when on things may have happened that this copy does not know of.
    pub copied_at: UnixMs,
    /// Heads that were acknowledged before, as far as anybody remembers.
    pub known: Vec<(TrajectoryId, Head)>,
    /// The number is above this one too.
    pub above: u64,
}

/// A trajectory that was open when an epoch was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRow {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The epoch.
    pub epoch: u64,
    /// From when on things may have happened that its chain does not know of.
    pub copied_at: UnixMs,
    /// The number of its last entry, as far as anybody remembers, where the copy ends before it.
    pub known: Option<u64>,
    /// That it may go on, if somebody has said so.
    pub release: Option<Release>,
}

/// That a trajectory may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// When.
    pub at: UnixMs,
    /// Who says so.
    pub by: Principal,
    /// Whether every call that may have happened waits for a person, whatever its tool declares.
    pub ask: bool,
    /// Why, in words.
    pub note: String,
}

/// Which held trajectories to list. Pages run by trajectory id.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldListing {
    /// Only those after this one.
    pub after: Option<TrajectoryId>,
    /// Released ones too.
    pub released: bool,
}

/// What a store knows of being a copy.
#[async_trait]
pub trait Epochs: Send + Sync {
    /// The epoch that the store is in.
    async fn epoch(&self) -> Result<Epoch, StoreError>;

    /// Opens a new epoch. Every trajectory that goes on is held: it is not claimed, and no attempt adds
    /// to it, until it is released. All leases, claims and shares of limits end. All of it or none; a
    /// crash without an answer leaves either, and opening another epoch is harmless.
    async fn open_epoch(&self, opening: &Opening) -> Result<Epoch, StoreError>;

    /// Trajectories that were open when an epoch was opened, by id, at most `max` of them.
    async fn held(&self, listing: HeldListing, max: usize) -> Result<Vec<HeldRow>, StoreError>;

    /// One of them.
    async fn held_one(&self, trajectory: TrajectoryId) -> Result<Option<HeldRow>, StoreError>;

    /// Lets a held trajectory go on. False when it is not held, or was released before: the first word
    /// stays. `Ok` means durable.
    async fn let_go(&self, trajectory: TrajectoryId, release: &Release)
    -> Result<bool, StoreError>;
}
