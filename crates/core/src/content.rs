//! Values inside entries: inline canonical JSON, or a blob by its digest when they are large.

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::json::Canon;

/// The largest value that stands inline in an entry, in bytes; larger ones are blobs.
pub const MAX_INLINE_BYTES: usize = 16 * 1024;

/// A value, or where to find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// The value itself.
    Inline(Canon),
    /// The value is in the blob store.
    Blob(BlobRef),
}

impl Content {
    /// The digest of the value, wherever it is kept.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Inline(value) => Digest::of(value.as_bytes()),
            Self::Blob(blob) => blob.sha256,
        }
    }

    /// The blob, if the value is one.
    pub fn blob(&self) -> Option<&BlobRef> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(blob) => Some(blob),
        }
    }
}

/// A blob: content addressed by its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// The digest of the bytes.
    pub sha256: Digest,
    /// How many bytes.
    pub size: u64,
}

impl BlobRef {
    /// The reference to some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha256: Digest::of(bytes), size: bytes.len() as u64 }
    }
}

/// Reads an optional field that is present. With `default`, absence is the only spelling of `None`:
/// an explicit `null` is refused, so that one value has one form.
pub(crate) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
