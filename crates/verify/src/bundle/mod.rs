//! The bundle: trajectories with their blobs in one file, the same bytes whoever writes it.
//!
//! A bundle is an uncompressed ustar archive of which every byte is fixed by its contents: plain
//! files only, mode 0644, no owner, no time, nothing after the two zero blocks. Its members, in order:
//!
//! 1. `gesta-bundle.json`: the [`Manifest`], canonical JSON;
//! 2. `trajectories/<id>.jsonl`, by id: the canonical bytes of each entry and a new line after each;
//! 3. `blobs/<sha256>`, by digest: the bytes of each blob;
//! 4. `log/checkpoint` and `log/proofs.json`, if there is a transparency log: a signed note, and what it
//!    shows of the trajectories, canonical JSON;
//! 5. `openings.json`, if anything is disclosed: sensitive values with their salts, by commitment;
//! 6. `keys.json`, if there are any: public keys as hints. A hint never counts for anything.
//!
//! [`Bundle`] refuses every byte that [`Writer`] would not have written. It knows nothing of what
//! entries mean.

mod bytes;
mod header;
mod manifest;
mod openings;
mod reader;
mod writer;

pub use bytes::Bytes;
pub use manifest::{KeyHints, LogFiles, Manifest, TrajectoryHead};
pub use openings::{Disclosed, Openings};
pub use reader::Bundle;
pub use writer::{Contents, WriteError, Writer};

/// The name of the first member.
const MANIFEST: &str = "gesta-bundle.json";
/// The names of what came from a transparency log.
const CHECKPOINT: &str = "log/checkpoint";
const PROOFS: &str = "log/proofs.json";
/// The name of the member with disclosed values.
const OPENINGS: &str = "openings.json";
/// The name of the last member, if there are hints.
const KEYS: &str = "keys.json";
