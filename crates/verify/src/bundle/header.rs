//! The 512 bytes before every member. One function makes them, and a header is good exactly if that
//! function makes it again.

use std::fmt;

use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;

use super::{CHECKPOINT, KEYS, MANIFEST, OPENINGS, PROOFS};

/// The unit of the archive.
pub(super) const BLOCK: usize = 512;
/// The largest member that eleven octal digits can announce.
pub(super) const MAX_MEMBER_BYTES: u64 = (1 << 33) - 1;

const NAME: usize = 100;
const CHECKSUM_AT: usize = 148;

/// A member, by the only names there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Manifest,
    Trajectory(TrajectoryId),
    Blob(Digest),
    Checkpoint,
    Proofs,
    Openings,
    Keys,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest => f.write_str(MANIFEST),
            Self::Trajectory(trajectory) => write!(f, "trajectories/{trajectory}.jsonl"),
            Self::Blob(digest) => write!(f, "blobs/{digest}"),
            Self::Checkpoint => f.write_str(CHECKPOINT),
            Self::Proofs => f.write_str(PROOFS),
            Self::Openings => f.write_str(OPENINGS),
            Self::Keys => f.write_str(KEYS),
        }
    }
}

impl Name {
    /// Reads one of the shapes, each in its only spelling.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(file) = text.strip_prefix("trajectories/") {
            return file.strip_suffix(".jsonl")?.parse().ok().map(Self::Trajectory);
        }
        if let Some(digest) = text.strip_prefix("blobs/") {
            return Digest::from_hex(digest).map(Self::Blob);
        }
        match text {
            MANIFEST => Some(Self::Manifest),
            CHECKPOINT => Some(Self::Checkpoint),
            PROOFS => Some(Self::Proofs),
            OPENINGS => Some(Self::Openings),
            KEYS => Some(Self::Keys),
            _ => None,
        }
    }
}

/// The header of a member. `size` is at most [`MAX_MEMBER_BYTES`].
pub(super) fn header(name: Name, size: u64) -> [u8; BLOCK] {
    let mut fields = Fields([0; BLOCK]);
    fields.put(0, name.to_string().as_bytes());
    fields.put(NAME, b"0000644\0");
    fields.put(108, b"0000000\0");
    fields.put(116, b"0000000\0");
    fields.put(124, format!("{size:011o}\0").as_bytes());
    fields.put(136, b"00000000000\0");
    fields.put(CHECKSUM_AT, b"        ");
    fields.put(156, b"0");
    fields.put(257, b"ustar\x0000");
    fields.put(329, b"0000000\0");
    fields.put(337, b"0000000\0");
    let sum: u32 = fields.0.iter().map(|byte| u32::from(*byte)).sum();
    fields.put(CHECKSUM_AT, format!("{sum:06o}\0 ").as_bytes());
    fields.0
}

struct Fields([u8; BLOCK]);

impl Fields {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }
}

/// What is wrong with a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Its name is none of the shapes.
    Name(String),
    /// A field is not as it is always written.
    Field(String),
}

/// Reads a header.
pub(super) fn parse(block: &[u8; BLOCK]) -> Result<(Name, u64), BadHeader> {
    let raw = block.get(..NAME).unwrap_or_default();
    let raw = raw.split(|byte| *byte == 0).next().unwrap_or_default();
    let shown = String::from_utf8_lossy(raw).into_owned();
    let name = std::str::from_utf8(raw).ok().and_then(Name::parse);
    let Some(name) = name else { return Err(BadHeader::Name(shown)) };
    let size = block.get(124..135).and_then(octal);
    match size {
        Some(size) if header(name, size) == *block => Ok((name, size)),
        _ => Err(BadHeader::Field(shown)),
    }
}

/// Whether a first block belongs to a tar archive at all.
pub(super) fn is_ustar(block: &[u8; BLOCK]) -> bool {
    block.get(257..262) == Some(b"ustar")
}

fn octal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value: u64, digit| match digit {
        b'0'..=b'7' => Some(value * 8 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// How many zero bytes follow a member of this size.
pub(super) fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    // Less than a block, so it fits.
    usize::try_from((block - size % block) % block).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_tar_expects() {
        let block = header(Name::Keys, 0o1234);
        assert_eq!(&block[..9], b"keys.json");
        assert_eq!(&block[124..136], b"00000001234\0");
        assert_eq!(&block[257..265], b"ustar\x0000");
        assert_eq!(parse(&block), Ok((Name::Keys, 0o1234)));
    }

    #[test]
    fn names_have_one_spelling() {
        let id = TrajectoryId::from_bytes([0xab; 16]);
        let digest = Digest::of(b"x");
        let log = [Name::Checkpoint, Name::Proofs];
        let all = [Name::Manifest, Name::Trajectory(id), Name::Blob(digest), Name::Keys];
        for name in all.into_iter().chain(log) {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        for bad in [
            "",
            "/keys.json",
            "./keys.json",
            "blobs/../keys.json",
            "blobs/",
            &format!("blobs/{}", digest.to_string().to_uppercase()),
            &format!("trajectories//{id}.jsonl"),
            &format!("trajectories/{id}.JSONL"),
            &format!("../trajectories/{id}.jsonl"),
        ] {
            assert_eq!(Name::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_other_byte_of_a_header_is_refused() {
        let good = header(Name::Blob(Digest::of(b"x")), 77);
        for at in 0..BLOCK {
            for bit in 0..8 {
                let mut bad = good;
                bad[at] ^= 1 << bit;
                assert_ne!(parse(&bad), parse(&good), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn padding_fills_the_block() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
