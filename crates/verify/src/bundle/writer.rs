//! Writing a bundle in two passes over its source: one that counts, one that copies.
//!
//! The caller pages entries out of wherever they are kept, at its own pace, twice. Between the
//! passes the trajectories may have grown: what is written is what was counted.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::JsonError;
use gesta_core::trust::TrustedKey;

use super::header::{BLOCK, MAX_MEMBER_BYTES, Name, header, padding};
use super::manifest::{KeyHints, LogFiles, Manifest, TrajectoryHead};
use super::openings::{Disclosed, Openings};
use crate::engine::Sealing;

/// Why a bundle could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output failed.
    #[error("the bundle cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The manifest or the hints have no canonical form.
    #[error("the bundle's manifest cannot be written: {0}")]
    Json(#[from] JsonError),
    /// A member is larger than the format holds.
    #[error("`{0}` is larger than 8 GiB, the most that a bundle holds of one trajectory or blob")]
    TooLarge(String),
    /// The second pass brought other bytes than the first.
    #[error("`{0}` is not what was counted before; export again")]
    Changed(String),
    /// The caller left the order of the bundle.
    #[error("the bundle expects {expected} here, not `{found}`")]
    Order {
        /// What comes next.
        expected: String,
        /// What was given.
        found: String,
    },
}

/// What a bundle will hold: the first pass.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    trajectories: BTreeMap<TrajectoryId, (Head, u64)>,
    blobs: BTreeMap<Digest, u64>,
    openings: BTreeMap<Digest, Disclosed>,
    keys: BTreeMap<[u8; 32], TrustedKey>,
    sealing: Option<Sealing>,
}

impl Contents {
    /// Counts the next entry of a trajectory, which has `size` bytes.
    pub fn entry(&mut self, trajectory: TrajectoryId, head: Head, size: u64) {
        let row = self.trajectories.entry(trajectory).or_insert((head, 0));
        row.0 = head;
        row.1 += size + 1;
    }

    /// Adds a blob. The same one twice is one.
    pub fn blob(&mut self, blob: BlobRef) {
        self.blobs.insert(blob.sha256, blob.size);
    }

    /// Discloses a sensitive value. The same one twice is one.
    pub fn opening(&mut self, disclosed: Disclosed) {
        self.openings.insert(disclosed.commit, disclosed);
    }

    /// How many sensitive values are disclosed.
    pub fn disclosed(&self) -> usize {
        self.openings.len()
    }

    /// Adds a key as a hint.
    pub fn key(&mut self, key: TrustedKey) {
        self.keys.insert(*key.key.as_bytes(), key);
    }

    /// Adds what a transparency log shows of the trajectories.
    pub fn sealing(&mut self, sealing: Sealing) {
        self.sealing = Some(sealing);
    }

    /// The trajectories with their heads, in the order in which they are to be written.
    pub fn trajectories(&self) -> impl Iterator<Item = (TrajectoryId, Head)> {
        self.trajectories.iter().map(|(trajectory, (head, _))| (*trajectory, *head))
    }

    /// The blobs, in the order in which they are to be written.
    pub fn blobs(&self) -> impl Iterator<Item = BlobRef> {
        self.blobs.iter().map(|(sha256, size)| BlobRef { sha256: *sha256, size: *size })
    }

    fn disclosure(&self) -> Result<Option<Vec<u8>>, JsonError> {
        if self.openings.is_empty() {
            return Ok(None);
        }
        let openings = self.openings.values().cloned().collect();
        Openings { openings, type_: Openings::TYPE.to_owned() }.to_bytes().map(Some)
    }

    fn hints(&self) -> Result<Option<Vec<u8>>, JsonError> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let keys = self.keys.values().cloned().collect();
        KeyHints { keys, type_: KeyHints::TYPE.to_owned() }.to_bytes().map(Some)
    }
}

/// Writes a bundle: the second pass. First all trajectories, entry by entry, then all blobs, both in
/// the order of [`Contents`].
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    trajectories: std::collections::btree_map::IntoIter<TrajectoryId, (Head, u64)>,
    blobs: std::collections::btree_map::IntoIter<Digest, u64>,
    sealing: Option<Sealing>,
    openings: Option<Vec<u8>>,
    hints: Option<Vec<u8>>,
    open: Option<Open>,
}

/// A trajectory that is being written.
#[derive(Debug)]
struct Open {
    trajectory: TrajectoryId,
    head: Head,
    size: u64,
    left: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the manifest. Give a buffered output.
    pub fn new(mut out: W, contents: Contents) -> Result<Self, WriteError> {
        let (openings, hints) = (contents.disclosure()?, contents.hints()?);
        let head = |(trajectory, head)| TrajectoryHead { head, trajectory };
        let manifest = Manifest {
            blobs: contents.blobs().collect(),
            keys: hints.as_deref().map(BlobRef::of),
            log: contents.sealing.as_ref().map(|it| LogFiles {
                checkpoint: BlobRef::of(&it.checkpoint),
                proofs: BlobRef::of(&it.proofs),
            }),
            openings: openings.as_deref().map(BlobRef::of),
            trajectories: contents.trajectories().map(head).collect(),
            type_: Manifest::TYPE.to_owned(),
        };
        whole(&mut out, Name::Manifest, &manifest.to_bytes()?)?;
        Ok(Self {
            out,
            trajectories: contents.trajectories.into_iter(),
            blobs: contents.blobs.into_iter(),
            sealing: contents.sealing,
            openings,
            hints,
            open: None,
        })
    }

    /// Writes the next entry of `trajectory`, opening it if it is the next one.
    pub fn entry(&mut self, trajectory: TrajectoryId, bytes: &[u8]) -> Result<(), WriteError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(trajectory)?,
        };
        let name = Name::Trajectory(open.trajectory);
        if open.trajectory != trajectory {
            let found = Name::Trajectory(trajectory).to_string();
            return Err(WriteError::Order { expected: format!("more of `{name}`"), found });
        }
        let size = bytes.len() as u64 + 1;
        open.left = match open.left.checked_sub(size) {
            Some(left) => left,
            None => return Err(WriteError::Changed(name.to_string())),
        };
        if open.left == 0 && EntryId::new(Digest::of(bytes)) != open.head.id {
            return Err(WriteError::Changed(name.to_string()));
        }
        self.out.write_all(bytes)?;
        self.out.write_all(b"\n")?;
        if open.left == 0 {
            pad(&mut self.out, open.size)?;
        } else {
            self.open = Some(open);
        }
        Ok(())
    }

    fn begin(&mut self, trajectory: TrajectoryId) -> Result<Open, WriteError> {
        let found = Name::Trajectory(trajectory);
        let Some((next, (head, size))) = self.trajectories.next() else {
            return Err(out_of_order("no more trajectory", found));
        };
        if next != trajectory {
            return Err(out_of_order(format!("`{}`", Name::Trajectory(next)), found));
        }
        begin(&mut self.out, found, size)?;
        Ok(Open { trajectory, head, size, left: size })
    }

    /// Writes the next blob.
    pub fn blob(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let blob = BlobRef::of(bytes);
        let name = Name::Blob(blob.sha256);
        self.trajectories_are_done(name)?;
        match self.blobs.next() {
            Some((sha256, size)) if sha256 == blob.sha256 && size == blob.size => {
                whole(&mut self.out, name, bytes)
            }
            Some((sha256, _)) => Err(out_of_order(format!("`{}`", Name::Blob(sha256)), name)),
            None => Err(out_of_order("no more blob", name)),
        }
    }

    /// Writes what is left and the end. Nothing may be missing.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.trajectories_are_done(Name::Keys)?;
        if let Some((sha256, _)) = self.blobs.next() {
            return Err(out_of_order(format!("`{}`", Name::Blob(sha256)), Name::Keys));
        }
        if let Some(Sealing { checkpoint, proofs }) = self.sealing.take() {
            whole(&mut self.out, Name::Checkpoint, &checkpoint)?;
            whole(&mut self.out, Name::Proofs, &proofs)?;
        }
        if let Some(openings) = self.openings.take() {
            whole(&mut self.out, Name::Openings, &openings)?;
        }
        if let Some(hints) = self.hints.take() {
            whole(&mut self.out, Name::Keys, &hints)?;
        }
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn trajectories_are_done(&mut self, found: Name) -> Result<(), WriteError> {
        let open = self.open.as_ref().map(|open| open.trajectory);
        match open.or_else(|| self.trajectories.next().map(|(next, _)| next)) {
            Some(next) => Err(out_of_order(format!("`{}`", Name::Trajectory(next)), found)),
            None => Ok(()),
        }
    }
}

fn out_of_order(expected: impl Into<String>, found: Name) -> WriteError {
    WriteError::Order { expected: expected.into(), found: found.to_string() }
}

fn begin(out: &mut impl Write, name: Name, size: u64) -> Result<(), WriteError> {
    if size > MAX_MEMBER_BYTES {
        return Err(WriteError::TooLarge(name.to_string()));
    }
    Ok(out.write_all(&header(name, size))?)
}

fn whole(out: &mut impl Write, name: Name, bytes: &[u8]) -> Result<(), WriteError> {
    begin(out, name, bytes.len() as u64)?;
    out.write_all(bytes)?;
    Ok(pad(out, bytes.len() as u64)?)
}

fn pad(out: &mut impl Write, size: u64) -> io::Result<()> {
    out.write_all([0; BLOCK].get(..padding(size)).unwrap_or_default())
}
