//! SHA-256 digests, and the typed ids that are digests. Knows nothing of what is hashed.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of several parts joined by a NUL byte. Parts before the last must not contain NUL
    /// themselves; ids never do, and canonical JSON escapes it.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                hash.update([0]);
            }
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The digest of concatenated parts, for fixed-width inputs such as tree nodes.
    pub fn of_concat(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// A digest from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        hex_bytes(text).map(Self)
    }
}

/// The digest of a text that is written piece by piece.
#[derive(Default)]
pub(crate) struct Hashing(Sha256);

impl Hashing {
    /// Adds a piece.
    pub(crate) fn add(&mut self, piece: &str) {
        self.0.update(piece);
    }

    /// The digest of all pieces.
    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Reads exactly `2 * N` lower-case hexadecimal digits: one spelling for one value.
pub(crate) fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    // All digits before any verdict: without a way out of it, the loop is done many at a time.
    let mut good = true;
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let ((high, high_good), (low, low_good)) = (nibble(*high), nibble(*low));
        *byte = high << 4 | low;
        good &= high_good & low_good;
    }
    good.then_some(bytes)
}

/// Writes bytes as lower-case hexadecimal digits, if `text` has twice their length.
fn hex_text<'t>(bytes: &[u8], text: &'t mut [u8]) -> Option<&'t str> {
    hex::encode_to_slice(bytes, text).ok()?;
    std::str::from_utf8(text).ok()
}

/// The value of a digit, and whether it is one.
fn nibble(digit: u8) -> (u8, bool) {
    let (number, letter) = (digit.wrapping_sub(b'0'), digit.wrapping_sub(b'a'));
    let value = if number < 10 { number } else { letter.wrapping_add(10) & 0x0f };
    (value, (number < 10) | (letter < 6))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(hex_text(&self.0, &mut [0; 64]).ok_or(fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match hex_text(&self.0, &mut [0; 64]) {
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hex;
        impl de::Visitor<'_> for Hex {
            type Value = Digest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 lower-case hexadecimal digits")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                Digest::from_hex(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Hex)
    }
}

/// Declares an id that is a digest, so that ids of different things cannot be mixed up.
macro_rules! digest_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name($crate::digest::Digest);

        impl $name {
            /// The id with this digest.
            pub const fn new(digest: $crate::digest::Digest) -> Self {
                Self(digest)
            }

            /// The digest itself.
            pub const fn digest(&self) -> $crate::digest::Digest {
                self.0
            }

            /// The 32 bytes of the digest.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                self.0.as_bytes()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

digest_id!(
    /// The id of an entry: the digest of its canonical payload.
    EntryId
);
digest_id!(
    /// The id of a writ: the digest of its canonical document.
    WritId
);
digest_id!(
    /// The id of a proposal: the digest of its canonical form.
    ProposalId
);
digest_id!(
    /// The id of a decision: the digest of its canonical document.
    DecisionId
);
digest_id!(
    /// The id of a permit: the digest of its canonical document.
    PermitId
);
digest_id!(
    /// The id of a receipt: the digest of its canonical document.
    ReceiptId
);
digest_id!(
    /// Seed 001's key: trajectory, step, tool and canonical arguments, hashed.
    IdempotencyKey
);
digest_id!(
    /// A seed for a step's random values, derived and never drawn.
    Seed
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_in_one_spelling() {
        let digest = Digest::of(b"x");
        let text = digest.to_string();
        assert_eq!(Digest::from_hex(&text), Some(digest));
        for at in [0, 1, 31, 62, 63] {
            for byte in 0..=127_u8 {
                let mut other = text.clone().into_bytes();
                other[at] = byte;
                let other = String::from_utf8(other).unwrap();
                let digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                let read = Digest::from_hex(&other);
                assert_eq!(read.map(|read| read.to_string()), digit.then_some(other));
            }
        }
        assert_eq!(Digest::from_hex(&text[1..]), None);
        assert_eq!(Digest::from_hex(&format!("{text}0")), None);
        assert_eq!(Digest::from_hex(&format!("é{}", &text[2..])), None);
    }
}
