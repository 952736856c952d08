//! The first member of a bundle: what is in the rest of it.

use gesta_core::content::BlobRef;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::{Canon, JsonError, Limits, to_canonical_within};
use gesta_core::trust::TrustedKey;
use serde::{Deserialize, Serialize};

/// A manifest has a row for each trajectory and blob, so it may be larger than an entry.
pub(super) const LIMITS: Limits = Limits { max_bytes: 1 << 28, ..Limits::DEFAULT };

/// What a bundle holds. Whatever is said here is compared with what is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The blobs, by digest.
    pub blobs: Vec<BlobRef>,
    /// The digest and size of `keys.json`, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<BlobRef>,
    /// What came from a transparency log, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogFiles>,
    /// The digest and size of `openings.json`, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openings: Option<BlobRef>,
    /// The trajectories, by id.
    pub trajectories: Vec<TrajectoryHead>,
    /// Always [`Manifest::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

/// The digests and sizes of what came from a transparency log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogFiles {
    /// `log/checkpoint`.
    pub checkpoint: BlobRef,
    /// `log/proofs.json`.
    pub proofs: BlobRef,
}

/// A trajectory, and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrajectoryHead {
    /// Its last entry.
    pub head: Head,
    /// The trajectory.
    pub trajectory: TrajectoryId,
}

/// Why a manifest was refused.
pub(super) enum BadManifest {
    /// Made by a later program.
    Version(String),
    /// Not what a writer writes.
    Shape(String),
}

impl Manifest {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.bundle.v1";

    /// The canonical bytes.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, JsonError> {
        to_canonical_within(self, LIMITS)
    }

    /// Reads a manifest, which must be its own canonical form, sorted and without repetition.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BadManifest> {
        #[derive(Deserialize)]
        struct Type {
            #[serde(rename = "type")]
            type_: String,
        }
        let shape = |error: JsonError| BadManifest::Shape(error.to_string());
        let canon = Canon::parse_within(bytes, LIMITS).map_err(shape)?;
        let Type { type_ } = canon.read().map_err(shape)?;
        if type_ != Self::TYPE {
            return Err(match type_.strip_prefix("gesta.bundle.v") {
                Some(_) => BadManifest::Version(type_),
                None => BadManifest::Shape(format!("its type is `{type_}`")),
            });
        }
        let manifest: Self = canon.read().map_err(shape)?;
        if manifest.to_bytes().map_err(shape)? != bytes {
            return Err(BadManifest::Shape("it is not in canonical form".to_owned()));
        }
        let sorted = manifest.blobs.is_sorted_by(|a, b| a.sha256 < b.sha256)
            && manifest.trajectories.is_sorted_by(|a, b| a.trajectory < b.trajectory);
        if !sorted {
            return Err(BadManifest::Shape("its rows are not sorted, or repeat".to_owned()));
        }
        Ok(manifest)
    }
}

/// Public keys that travel with a bundle. They tell whoever reads it whom to ask, and no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyHints {
    /// The keys, by id.
    pub keys: Vec<TrustedKey>,
    /// Always [`KeyHints::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

impl KeyHints {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.keys.v1";

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, JsonError> {
        to_canonical_within(self, LIMITS)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let hints: Self = Canon::parse_within(bytes, LIMITS)
            .and_then(|canon| canon.read())
            .map_err(|error| error.to_string())?;
        if hints.type_ != Self::TYPE {
            return Err(format!("its type is `{}`", hints.type_));
        }
        if hints.to_bytes().map_err(|error| error.to_string())? != bytes {
            return Err("it is not in canonical form".to_owned());
        }
        if hints.keys.is_empty() || !hints.keys.is_sorted_by(|a, b| a.key < b.key) {
            return Err("its keys are not sorted, or repeat".to_owned());
        }
        Ok(hints)
    }
}
