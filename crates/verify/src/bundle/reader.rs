//! Reading a bundle: the whole layout is checked when it is opened, contents are streamed later.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::OnceLock;

use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Limits;
use gesta_core::trust::TrustedKey;
use gesta_core::verification::{Class, Finding};
use sha2::{Digest as _, Sha256};

use super::MANIFEST;
use super::bytes::{Bytes, Section};
use super::header::{BLOCK, BadHeader, Name, is_ustar, padding, parse};
use super::manifest::{BadManifest, KeyHints, LIMITS, LogFiles, Manifest};
use super::openings::{Disclosed, Openings};
use crate::engine::{Chains, Each, Sealing};

/// How much is read at once.
const READ_BYTES: usize = 1 << 18;

/// A bundle whose layout is exactly what a writer would have written. What is inside its members is
/// for [`crate::engine::verify`] to say.
pub struct Bundle {
    bytes: Box<dyn Bytes>,
    trajectories: BTreeMap<TrajectoryId, (Head, Place)>,
    blobs: BTreeMap<Digest, (Place, OnceLock<BlobRef>)>,
    sealing: Option<Sealing>,
    openings: BTreeMap<Digest, Disclosed>,
    hints: Vec<TrustedKey>,
}

/// Where a member's bytes are.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    size: u64,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("trajectories", &self.trajectories.len())
            .field("blobs", &self.blobs.len())
            .finish_non_exhaustive()
    }
}

impl Bundle {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, Finding> {
        let file = File::open(path).map_err(|error| {
            bad(Class::Unreadable, "io", format!("`{}` cannot be opened: {error}", path.display()))
        })?;
        Self::read(Box::new(file))
    }

    /// Checks the layout from the first byte to the last.
    pub fn read(bytes: Box<dyn Bytes>) -> Result<Self, Finding> {
        let mut walk = Walk { bytes: &*bytes, at: 0, end: bytes.size().map_err(|e| io(&e))? };
        let manifest = walk.manifest()?;
        let mut trajectories = BTreeMap::new();
        for row in &manifest.trajectories {
            let place = walk.expect(Name::Trajectory(row.trajectory))?;
            trajectories.insert(row.trajectory, (row.head, place));
        }
        let mut blobs = BTreeMap::new();
        for blob in &manifest.blobs {
            let place = walk.expect(Name::Blob(blob.sha256))?;
            if place.size != blob.size {
                let what =
                    format!("blob `{}` has another size than the manifest says", blob.sha256);
                return Err(bad(Class::Tampered, "manifest", what));
            }
            blobs.insert(blob.sha256, (place, OnceLock::new()));
        }
        let sealing = match manifest.log {
            Some(log) => Some(walk.sealing(log)?),
            None => None,
        };
        let openings = match manifest.openings {
            Some(openings) => walk.openings(openings)?,
            None => BTreeMap::new(),
        };
        let hints = match manifest.keys {
            Some(keys) => walk.hints(keys)?,
            None => Vec::new(),
        };
        walk.end()?;
        Ok(Self { bytes, trajectories, blobs, sealing, openings, hints })
    }

    /// The sensitive values that are disclosed, by commitment. Each is what was committed to.
    pub fn openings(&self) -> &BTreeMap<Digest, Disclosed> {
        &self.openings
    }

    /// The public keys that came along. They count for nothing: whoever wrote the bundle wrote them.
    pub fn hints(&self) -> &[TrustedKey] {
        &self.hints
    }

    /// The digest of the whole file, and its size.
    pub fn digest(&self) -> io::Result<BlobRef> {
        self.hash(Place { offset: 0, size: self.bytes.size()? })
    }

    /// How many bytes the entries take.
    pub fn entry_bytes(&self) -> u64 {
        self.trajectories.values().map(|(_, place)| place.size).sum()
    }

    /// The bytes of a blob as they stand in the file; nothing if it is not there.
    pub fn blob_bytes(&self, digest: Digest) -> Result<Vec<u8>, Finding> {
        let Some((place, _)) = self.blobs.get(&digest) else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        self.section(*place).read_to_end(&mut bytes).map_err(|error| io(&error))?;
        Ok(bytes)
    }

    fn section(&self, place: Place) -> Section<'_> {
        Section { bytes: &*self.bytes, offset: place.offset, left: place.size }
    }

    fn hash(&self, place: Place) -> io::Result<BlobRef> {
        let mut section = self.section(place);
        let mut buffer = vec![0; READ_BYTES.min(usize::try_from(place.size).unwrap_or(READ_BYTES))];
        let mut hash = Sha256::new();
        loop {
            match section.read(&mut buffer)? {
                0 => break,
                read => hash.update(buffer.get(..read).unwrap_or_default()),
            }
        }
        Ok(BlobRef { sha256: Digest::from_bytes(hash.finalize().into()), size: place.size })
    }
}

impl Chains for Bundle {
    fn trajectories(&self) -> Result<Vec<TrajectoryId>, Finding> {
        Ok(self.trajectories.keys().copied().collect())
    }

    fn entries(&self, trajectory: TrajectoryId, each: &mut Each<'_>) -> Result<(), Finding> {
        let Some((_, place)) = self.trajectories.get(&trajectory) else { return Ok(()) };
        let mut lines = BufReader::with_capacity(READ_BYTES, self.section(*place));
        let mut line = Vec::new();
        let mut seq = 0;
        loop {
            line.clear();
            // One byte more than an entry may have, and its new line: enough to be refused.
            let most = Limits::DEFAULT.max_bytes as u64 + 2;
            lines.by_ref().take(most).read_until(b'\n', &mut line).map_err(|e| io(&e))?;
            match line.strip_suffix(b"\n") {
                Some(entry) => {
                    if each(entry, None).is_break() {
                        return Ok(());
                    }
                }
                None if line.is_empty() => return Ok(()),
                None => {
                    let what = "it is too long, or does not end in a new line".to_owned();
                    let finding = bad(Class::Tampered, "archive_line", what);
                    return Err(Finding {
                        trajectory: Some(trajectory),
                        seq: Some(seq),
                        ..finding
                    });
                }
            }
            seq += 1;
        }
    }

    fn blob(&self, digest: Digest) -> Result<Option<BlobRef>, Finding> {
        let Some((place, known)) = self.blobs.get(&digest) else { return Ok(None) };
        if let Some(known) = known.get() {
            return Ok(Some(*known));
        }
        let found = self.hash(*place).map_err(|error| io(&error))?;
        Ok(Some(*known.get_or_init(|| found)))
    }

    fn expected_head(&self, trajectory: TrajectoryId) -> Option<Head> {
        self.trajectories.get(&trajectory).map(|(head, _)| *head)
    }

    fn size(&self, trajectory: TrajectoryId) -> Option<u64> {
        self.trajectories.get(&trajectory).map(|(_, place)| place.size)
    }

    fn sealing(&self) -> Option<&Sealing> {
        self.sealing.as_ref()
    }

    fn disclosed(&self) -> Vec<Digest> {
        self.openings.keys().copied().collect()
    }

    fn listed_blobs(&self) -> Option<Vec<Digest>> {
        Some(self.blobs.keys().copied().collect())
    }
}

/// A walk over the members, in order.
struct Walk<'a> {
    bytes: &'a dyn Bytes,
    at: u64,
    end: u64,
}

impl Walk<'_> {
    fn manifest(&mut self) -> Result<Manifest, Finding> {
        let not_a_bundle = |what: &str| bad(Class::Unreadable, "not_a_bundle", what.to_owned());
        if self.end < BLOCK as u64 {
            return Err(not_a_bundle("the file is too short to be a bundle"));
        }
        if !is_ustar(&self.block(0)?) {
            return Err(not_a_bundle("the file is not a bundle; make one with `gesta export`"));
        }
        let place = self.expect(Name::Manifest)?;
        let bytes = self.load(place, MANIFEST)?;
        Manifest::parse(&bytes).map_err(|error| match error {
            BadManifest::Version(type_) => {
                let what = format!("`{type_}` is not known to this program; use a newer one");
                bad(Class::Unreadable, "future_version", what)
            }
            BadManifest::Shape(error) => {
                bad(Class::Tampered, "manifest", format!("the manifest is not one: {error}"))
            }
        })
    }

    fn sealing(&mut self, log: LogFiles) -> Result<Sealing, Finding> {
        let mut file = |name: Name, expected: BlobRef| {
            let place = self.expect(name)?;
            let bytes = self.load(place, &name.to_string())?;
            if BlobRef::of(&bytes) == expected {
                return Ok(bytes);
            }
            let what = format!("`{name}` is not what the manifest says");
            Err(bad(Class::Tampered, "manifest", what))
        };
        let checkpoint = file(Name::Checkpoint, log.checkpoint)?;
        Ok(Sealing { checkpoint, proofs: file(Name::Proofs, log.proofs)? })
    }

    fn hints(&mut self, keys: BlobRef) -> Result<Vec<TrustedKey>, Finding> {
        let refuse = |what: String| bad(Class::Tampered, "keys", what);
        let place = self.expect(Name::Keys)?;
        let bytes = self.load(place, super::KEYS)?;
        if BlobRef::of(&bytes) != keys {
            return Err(refuse("`keys.json` is not what the manifest says".to_owned()));
        }
        let hints = KeyHints::parse(&bytes)
            .map_err(|error| refuse(format!("`keys.json` is not a list of keys: {error}")))?;
        Ok(hints.keys)
    }

    fn openings(&mut self, said: BlobRef) -> Result<BTreeMap<Digest, Disclosed>, Finding> {
        let refuse = |what: String| bad(Class::Tampered, "openings", what);
        let place = self.expect(Name::Openings)?;
        let bytes = self.load(place, super::OPENINGS)?;
        if BlobRef::of(&bytes) != said {
            return Err(refuse("`openings.json` is not what the manifest says".to_owned()));
        }
        let read = Openings::parse(&bytes)
            .map_err(|error| refuse(format!("`openings.json` is not a list of values: {error}")))?;
        if let Some(wrong) = read.openings.iter().find(|disclosed| !disclosed.holds()) {
            let what = format!("the value disclosed for `{}` is another", wrong.commit);
            return Err(bad(Class::Tampered, "opening", what));
        }
        Ok(read.openings.into_iter().map(|disclosed| (disclosed.commit, disclosed)).collect())
    }

    /// The next member must be this one.
    fn expect(&mut self, expected: Name) -> Result<Place, Finding> {
        let block = self.block(self.at)?;
        let (name, size) = parse(&block).map_err(|error| match error {
            BadHeader::Name(name) if name.is_empty() => {
                let what = format!("`{expected}` should follow, but the archive ends");
                bad(Class::Tampered, "archive_order", what)
            }
            BadHeader::Name(name) => {
                let what = format!("`{}` is not a name that a bundle has", name.escape_default());
                bad(Class::Tampered, "archive_name", what)
            }
            BadHeader::Field(name) => {
                let what =
                    format!("the header of `{name}` is not that of a plain file in a bundle");
                bad(Class::Tampered, "archive_header", what)
            }
        })?;
        if name != expected {
            let what = format!("`{name}` stands where `{expected}` belongs");
            return Err(bad(Class::Tampered, "archive_order", what));
        }
        let place = Place { offset: self.at + BLOCK as u64, size };
        let padding = padding(size);
        // At most 8 GiB after an offset inside the file.
        self.at = place.offset + size + padding as u64;
        if self.at > self.end {
            let what = format!("the file ends inside of `{name}`");
            return Err(bad(Class::Tampered, "archive_cut", what));
        }
        let mut zeros = [0; BLOCK];
        let zeros = zeros.get_mut(..padding).unwrap_or_default();
        self.exact(zeros, place.offset + size)?;
        if zeros.iter().any(|byte| *byte != 0) {
            let what = format!("something is hidden in the padding after `{name}`");
            return Err(bad(Class::Tampered, "archive_padding", what));
        }
        Ok(place)
    }

    /// Two zero blocks, and nothing after them.
    fn end(&self) -> Result<(), Finding> {
        let refuse = |what: &str| bad(Class::Tampered, "archive_end", what.to_owned());
        let block = BLOCK as u64;
        if self.end < self.at + 2 * block {
            return Err(bad(Class::Tampered, "archive_cut", "the file has no end mark".to_owned()));
        }
        let zero = [0; BLOCK];
        if self.block(self.at)? != zero || self.block(self.at + block)? != zero {
            return Err(refuse("something follows that the manifest does not list"));
        }
        if self.end > self.at + 2 * block {
            return Err(refuse("there are bytes after the end of the archive"));
        }
        Ok(())
    }

    fn load(&self, place: Place, name: &str) -> Result<Vec<u8>, Finding> {
        match usize::try_from(place.size) {
            Ok(size) if size <= LIMITS.max_bytes => {
                let mut bytes = vec![0; size];
                self.exact(&mut bytes, place.offset)?;
                Ok(bytes)
            }
            _ => Err(bad(Class::Unreadable, "too_large", format!("`{name}` is too large to read"))),
        }
    }

    fn block(&self, offset: u64) -> Result<[u8; BLOCK], Finding> {
        if offset + BLOCK as u64 > self.end {
            let what = "the file ends where a member should begin".to_owned();
            return Err(bad(Class::Tampered, "archive_cut", what));
        }
        let mut block = [0; BLOCK];
        self.exact(&mut block, offset)?;
        Ok(block)
    }

    fn exact(&self, buffer: &mut [u8], offset: u64) -> Result<(), Finding> {
        let left = buffer.len() as u64;
        let mut section = Section { bytes: self.bytes, offset, left };
        section.read_exact(buffer).map_err(|error| io(&error))
    }
}

fn bad(class: Class, code: &'static str, what: String) -> Finding {
    Finding { class, code, trajectory: None, seq: None, entry: None, what }
}

fn io(error: &io::Error) -> Finding {
    bad(Class::Unreadable, "io", format!("the bundle cannot be read: {error}"))
}
