//! Sensitive values: a commitment stands in the payload, value and salt elsewhere. To disclose is
//! to attach the opening, to redact is to omit it, to erase is to destroy it; ids and signatures
//! hold in all three.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::digest::Digest;
use crate::json::{Canon, JsonError};

/// 32 random bytes, drawn by the caller and never derived from a recorded seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

/// What stands in the payload in place of the value: `{"$commit":"…"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commitment {
    /// HMAC-SHA256 of the canonical value, keyed by the salt.
    #[serde(rename = "$commit")]
    pub hmac: Digest,
}

impl Commitment {
    /// Commits to a value.
    pub fn to(value: &Canon, salt: &Salt) -> Result<Self, SensitiveError> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&salt.0).map_err(|_| SensitiveError::Salt)?;
        mac.update(value.as_bytes());
        Ok(Self { hmac: Digest::from_bytes(mac.finalize().into_bytes().into()) })
    }

    /// Whether this value, with this salt, is what was committed to.
    pub fn opens(&self, value: &Canon, salt: &Salt) -> bool {
        Self::to(value, salt).is_ok_and(|commitment| commitment == *self)
    }

    /// The commitment as it stands in the payload.
    pub fn canon(&self) -> Result<Canon, JsonError> {
        Canon::of(self)
    }
}

/// Why a commitment could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SensitiveError {
    /// The salt was refused as a key.
    #[error("the salt cannot key an HMAC")]
    Salt,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commitment_opens_only_with_its_value_and_salt() {
        let value = Canon::parse(br#"{"iban":"DE02"}"#).unwrap();
        let salt = Salt([3; 32]);
        let commitment = Commitment::to(&value, &salt).unwrap();
        assert!(commitment.opens(&value, &salt));
        assert!(!commitment.opens(&value, &Salt([4; 32])));
        assert!(!commitment.opens(&Canon::parse(br#"{"iban":"DE03"}"#).unwrap(), &salt));
        assert!(commitment.canon().unwrap().as_str().starts_with(r#"{"$commit":""#));
    }
}
