//! The sensitive values that a bundle discloses. To disclose is to attach: everything else stays committed to.

use gesta_core::digest::Digest;
use gesta_core::json::{Canon, JsonError, to_canonical_within};
use gesta_core::sensitive::{Commitment, Opening, Salt, SensitiveError};
use serde::{Deserialize, Serialize};

use super::manifest::LIMITS;

/// A disclosed value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disclosed {
    /// The commitment that it opens.
    pub commit: Digest,
    /// The salt.
    pub salt: Salt,
    /// The value.
    pub value: Canon,
}

impl Disclosed {
    /// Discloses an opening.
    pub fn new(opening: Opening) -> Result<Self, SensitiveError> {
        let commit = opening.commitment()?.hmac;
        let Opening { salt, value } = opening;
        Ok(Self { commit, salt, value })
    }

    /// Whether it is what was committed to.
    pub fn holds(&self) -> bool {
        Commitment { hmac: self.commit }.opens(&self.value, &self.salt)
    }
}

impl std::fmt::Debug for Disclosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disclosed").field("commit", &self.commit).finish_non_exhaustive()
    }
}

/// Disclosed values, by commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Openings {
    /// The values.
    pub openings: Vec<Disclosed>,
    /// Always [`Openings::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

impl Openings {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.openings.v1";

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, JsonError> {
        to_canonical_within(self, LIMITS)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = Canon::parse_within(bytes, LIMITS)
            .and_then(|canon| canon.read())
            .map_err(|error| error.to_string())?;
        if read.type_ != Self::TYPE {
            return Err(format!("its type is `{}`", read.type_));
        }
        if read.to_bytes().map_err(|error| error.to_string())? != bytes {
            return Err("it is not in canonical form".to_owned());
        }
        if read.openings.is_empty() || !read.openings.is_sorted_by(|a, b| a.commit < b.commit) {
            return Err("its values are not sorted, or repeat".to_owned());
        }
        Ok(read)
    }
}
