//! Sensitive values: a commitment stands in the payload, value and salt elsewhere. To disclose is
//! to attach the opening, to redact is to omit it, to erase is to destroy it; ids and signatures
//! hold in all three.
//!
//! Which values are sensitive is marked in schemas. A committed value is opaque: it may be handed on
//! whole, and nothing may look into it.

mod marks;

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::Sha256;

use crate::digest::Digest;
use crate::json::{Canon, JsonError};

pub use marks::{BadMark, MARK, Marks, Reach};

/// The key of the object that stands for a sensitive value. No other object may have it.
pub const COMMIT: &str = "$commit";

/// 32 random bytes, drawn by the caller and never derived from a recorded seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

/// What stands in the payload in place of the value: `{"$commit":"…"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

    /// The same as a JSON value.
    pub fn value(&self) -> Value {
        let hmac = Value::String(self.hmac.to_string());
        Value::Object([(COMMIT.to_owned(), hmac)].into_iter().collect())
    }

    /// The commitment that a JSON value is, if it is one.
    pub fn read(value: &Value) -> Option<Self> {
        let object = value.as_object().filter(|object| object.len() == 1)?;
        let hmac = Digest::deserialize(object.get(COMMIT)?).ok()?;
        Some(Self { hmac })
    }
}

/// What opens a commitment: the value, and the salt that it was hidden with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// The salt.
    pub salt: Salt,
    /// The value.
    pub value: Canon,
}

impl Opening {
    /// What it opens.
    pub fn commitment(&self) -> Result<Commitment, SensitiveError> {
        Commitment::to(&self.value, &self.salt)
    }
}

/// Neither value nor salt.
impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

impl Serialize for Salt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Salt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(&text, &mut bytes).map_err(D::Error::custom)?;
        if hex::encode(bytes) != text {
            return Err(D::Error::custom("a salt is 64 lower-case hexadecimal digits"));
        }
        Ok(Self(bytes))
    }
}

/// The commitments in a value, by their JSON pointers.
pub fn commitments(value: &Value) -> BTreeMap<String, Commitment> {
    let mut found = BTreeMap::new();
    walk(value, &mut String::new(), &mut |pointer, value| {
        let commitment = Commitment::read(value);
        found.extend(commitment.map(|commitment| (pointer.to_owned(), commitment)));
        commitment.is_none()
    });
    found
}

/// Whether canonical JSON may hold a commitment. Says so of nothing that holds none but by accident,
/// and never misses one: quotes inside strings are escaped.
pub fn may_hold(canonical: &[u8]) -> bool {
    memchr::memmem::find(canonical, b"{\"$commit\":\"").is_some()
}

/// The JSON pointer of an object in which the reserved key stands, commitments included: no value from
/// outside may pass for one.
pub fn reserved(value: &Value) -> Option<String> {
    let mut found = None;
    walk(value, &mut String::new(), &mut |pointer, value| {
        if found.is_none() && value.as_object().is_some_and(|object| object.contains_key(COMMIT)) {
            found = Some(pointer.to_owned());
        }
        found.is_none()
    });
    found
}

/// Where two values differ, taking a commitment for whatever stands in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The first place at which they differ for certain; none if they agree.
    pub differs: Option<String>,
    /// What is clear on one side and committed to on the other. Whether it agrees, only an opening tells.
    pub hidden: Vec<(String, Commitment, Value)>,
}

/// Compares a value that was derived again with the one on record. Where the record has a commitment
/// and the derivation a clear value, they agree as far as can be told without an opening.
pub fn compare(derived: &Value, recorded: &Value) -> Compared {
    let mut compared = Compared::default();
    differ(derived, recorded, &mut String::new(), &mut compared);
    compared
}

fn differ(derived: &Value, recorded: &Value, pointer: &mut String, compared: &mut Compared) {
    if compared.differs.is_some() || derived == recorded {
        return;
    }
    match (derived, recorded) {
        (_, recorded) if Commitment::read(recorded).is_some() => {
            match (Commitment::read(derived), Commitment::read(recorded)) {
                (None, Some(commitment)) => {
                    compared.hidden.push((pointer.clone(), commitment, derived.clone()));
                }
                _ => compared.differs = Some(pointer.clone()),
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (i, (left, right)) in left.iter().zip(right).enumerate() {
                below(pointer, &i.to_string(), |pointer| differ(left, right, pointer, compared));
            }
        }
        (Value::Object(left), Value::Object(right)) if left.keys().eq(right.keys()) => {
            for ((name, left), right) in left.iter().zip(right.values()) {
                below(pointer, name, |pointer| differ(left, right, pointer, compared));
            }
        }
        _ => compared.differs = Some(pointer.clone()),
    }
}

/// Visits a value and, where `visit` says so, what is in it.
fn walk(value: &Value, pointer: &mut String, visit: &mut dyn FnMut(&str, &Value) -> bool) {
    if !visit(pointer, value) {
        return;
    }
    match value {
        Value::Array(values) => {
            for (i, value) in values.iter().enumerate() {
                below(pointer, &i.to_string(), |pointer| walk(value, pointer, visit));
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                below(pointer, name, |pointer| walk(value, pointer, visit));
            }
        }
        _ => {}
    }
}

/// Goes one part down in a JSON pointer, and back.
fn below<T>(pointer: &mut String, part: &str, go: impl FnOnce(&mut String) -> T) -> T {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
    let done = go(pointer);
    pointer.truncate(length);
    done
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

    #[test]
    fn what_looks_like_a_commitment_is_found_wherever_it_is() {
        let hmac = Digest::of(b"x").to_string();
        let value = serde_json::json!({ "a/b": [1, { "$commit": hmac }], "c": { "$commit": 1 } });
        assert_eq!(commitments(&value).keys().collect::<Vec<_>>(), ["/a~1b/1"]);
        assert!(may_hold(Canon::of(&value).unwrap().as_bytes()));
        assert_eq!(reserved(&value), Some("/a~1b/1".to_owned()));
        let quoted = serde_json::json!({ "text": "{\"$commit\":\"" });
        assert!(!may_hold(Canon::of(&quoted).unwrap().as_bytes()));
        assert_eq!(reserved(&quoted), None);
    }

    #[test]
    fn values_are_compared_up_to_commitments() {
        let (one, two) = (Digest::of(b"1").to_string(), Digest::of(b"2").to_string());
        let record = serde_json::json!({ "n": 1, "to": [{ "$commit": one }] });
        let derived = |to: Value| compare(&serde_json::json!({ "n": 1, "to": [to] }), &record);
        assert_eq!(derived(serde_json::json!({ "$commit": one })), Compared::default());
        let clear = derived("bob".into());
        assert_eq!((clear.differs, clear.hidden.len()), (None, 1));
        let other = derived(serde_json::json!({ "$commit": two }));
        assert_eq!(other.differs.as_deref(), Some("/to/0"));
        // A value that was recorded in clear is not excused by a commitment on the other side.
        assert_eq!(
            compare(&record, &serde_json::json!({ "n": 1, "to": ["bob"] })).differs.as_deref(),
            Some("/to/0")
        );
        assert_eq!(compare(&serde_json::json!({ "n": 1 }), &record).differs.as_deref(), Some(""));
    }

    #[test]
    fn an_opening_has_one_spelling_and_shows_nothing() {
        let opening = Opening { salt: Salt([0xab; 32]), value: Canon::parse(b"\"DE02\"").unwrap() };
        let text = Canon::of(&opening).unwrap();
        assert_eq!(text.read::<Opening>().unwrap(), opening);
        assert!(
            Canon::parse(text.as_str().replace("ab", "AB").as_bytes())
                .unwrap()
                .read::<Opening>()
                .is_err()
        );
        assert!(!format!("{opening:?}").contains("DE02"));
    }
}
