//! The part of the port that archiving needs. What has ended is written to a bundle, and its entries
//! leave the store; its row stays, with its head and where the bundle is. That the bundle is durable and
//! sound is for whoever asks to know first: a store only lets go of what it is told to.

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;

use crate::error::StoreError;

/// How exact the time is that a store keeps of a blob's last put: each put would cost a write otherwise.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const PUT_GRAIN_MS: u64 = 60 * 60 * 1000;

/// Where the entries of a trajectory are that are not in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// The file of the bundle, as it was called when it was written.
    pub bundle: String,
    /// The digest of the file.
    pub sha256: Digest,
    /// When the entries left the store.
    pub at: UnixMs,
}

/// What is to leave the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archiving {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The head that it must still have.
    pub head: Head,
    /// Where its entries are.
    pub archived: Archived,
    /// Blobs that only it names, as far as anybody has seen.
    pub blobs: Vec<Digest>,
    /// Of these, only those go that nobody has put since: whoever puts a blob is about to name it.
    pub unused_since: UnixMs,
}

/// A bundle that rows name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleRow {
    /// The file, as it was called when it was written.
    pub bundle: String,
    /// The digest of the file.
    pub sha256: Digest,
    /// How many trajectories name it.
    pub trajectories: u64,
}

/// How much room a store takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// All of it.
    pub bytes: u64,
    /// What of it is free to be used again, where the store can tell.
    pub free: u64,
}

/// All entries of one trajectory, from the first on, each naming the one before: whose head is known is
/// known to be whole.
#[derive(Clone, Debug)]
pub struct Whole {
    trajectory: TrajectoryId,
    head: Head,
    entries: Vec<Entry>,
}

impl Whole {
    /// None if the entries are not one chain.
    pub fn of(trajectory: TrajectoryId, entries: Vec<Entry>) -> Option<Self> {
        let mut before: Option<Head> = None;
        for entry in &entries {
            let payload = entry.payload();
            let follows = payload.trajectory == trajectory
                && payload.parent == before.map(|head| head.id)
                && payload.seq == before.map_or(0, |head| head.seq + 1);
            before = Some(entry.head()).filter(|_| follows);
            before?;
        }
        Some(Self { trajectory, head: before?, entries })
    }

    /// The trajectory.
    pub fn trajectory(&self) -> TrajectoryId {
        self.trajectory
    }

    /// The last entry.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// What a store knows of the trajectories whose entries are elsewhere.
#[async_trait]
pub trait Archives: Send + Sync {
    /// Lets go of the entries of a trajectory, if it has ended, still has this head, and no report waits
    /// for it in the inbox; and of blobs with it. Says how many blobs went; none at all if the trajectory is
    /// not as it is said to be, and then nothing is changed. All of it or none. `Ok` means durable. After a
    /// crash without an answer it is unknown; the same again settles it, since what is archived in the same
    /// bundle already counts as done.
    ///
    /// From then on an append that expects this head is refused as [`StoreError::Archived`], and so is
    /// reading its entries; everything else about its row, and what the log holds, is as before.
    async fn archive(&self, archiving: &Archiving) -> Result<Option<u64>, StoreError>;

    /// Takes the entries of an archived trajectory back, if they end at its head. False if they do not, and
    /// then nothing is changed. All of it or none. `Ok` means durable; after a crash without an answer the
    /// same again settles it, since what is back already counts as taken.
    async fn bring_back(&self, whole: &Whole) -> Result<bool, StoreError>;

    /// The bundles that rows name, by file.
    async fn bundles(&self) -> Result<Vec<BundleRow>, StoreError>;

    /// How much room the store takes.
    async fn size(&self) -> Result<Size, StoreError>;
}
