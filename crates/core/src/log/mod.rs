//! The transparency log: what shows that nothing was cut.
//!
//! A hash chain cannot show that its tail is missing. So the sealer puts a leaf for every entry into a
//! Merkle log ([`tree`], RFC 6962; [`tiles`], C2SP tlog-tiles) and keeps a Merkle map from every
//! trajectory to its head ([`map`]). A checkpoint ([`checkpoint`], a C2SP signed note) commits to both.
//! Whoever has a checkpoint can be shown that an entry is in the log, and which entry was the last of its
//! trajectory. Everything here is pure: tiles and nodes of the map are handed in by whoever keeps them.

pub mod checkpoint;
pub mod evidence;
pub mod map;
pub mod note;
pub mod tiles;
pub mod tree;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, EntryId};
use crate::entry::Head;
use crate::ids::TrajectoryId;
use crate::json::{Canon, JsonError};

/// What the log holds of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaf {
    /// The entry.
    pub id: EntryId,
    /// Its number.
    pub seq: u64,
    /// Its trajectory.
    pub trajectory: TrajectoryId,
}

impl Leaf {
    /// The leaf of the entry at a place of a trajectory.
    pub const fn new(trajectory: TrajectoryId, head: Head) -> Self {
        Self { id: head.id, seq: head.seq, trajectory }
    }

    /// The bytes that the log hashes: canonical JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, JsonError> {
        Canon::of(self).map(|canon| canon.as_bytes().to_vec())
    }

    /// The hash of the leaf in the tree, which is also what the map holds for the trajectory.
    pub fn hash(&self) -> Result<Digest, JsonError> {
        self.to_bytes().map(|bytes| tree::leaf_hash(&bytes))
    }
}
