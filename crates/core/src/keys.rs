//! Ed25519 keys: ids, strict verification, signing, PKCS#8. Files and permissions are the caller's.

use std::fmt;

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, KeypairBytes};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::digest::hex_bytes;

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a point on the curve, or not 64 hexadecimal digits.
    #[error("`{0}` is not an Ed25519 public key (64 lower-case hexadecimal digits)")]
    Malformed(String),
    /// A key of small order, under which anyone can forge.
    #[error("the public key `{0}` is weak: signatures under it can be forged")]
    Weak(String),
    /// The PEM text holds no Ed25519 private key.
    #[error("not an Ed25519 private key in PKCS#8 PEM form: {0}")]
    BadPem(String),
}

/// The id of a key: its public key, so that a document names exactly what verifies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// Reads 64 hexadecimal digits. Refuses what is not a key, and weak keys.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes: [u8; 32] =
            hex_bytes(text).ok_or_else(|| KeyError::Malformed(text.to_owned()))?;
        let key =
            VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Malformed(text.to_owned()))?;
        if key.is_weak() {
            return Err(KeyError::Weak(text.to_owned()));
        }
        Ok(Self(bytes))
    }

    /// The public key's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key itself, if these are the bytes of one. That it is strong is for `verifies` to say.
    pub fn public(&self) -> Option<PublicKey> {
        VerifyingKey::from_bytes(&self.0).ok().map(PublicKey)
    }

    /// Whether `signature` over `message` was made with this key, as [`PublicKey::verifies`] says.
    pub fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        self.public().is_some_and(|key| key.verifies(message, signature))
    }
}

/// A public key, ready to verify: unpacked once, for many signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Whether `signature` over `message` was made with this key. Strict: no malleable signature,
    /// no small-order point.
    pub fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.0.verify_strict(message, &signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0.as_bytes()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for KeyId {
    /// Reads the bytes only: whether they are a strong key is asked where a key is enrolled, and
    /// strict verification refuses weak ones anyway.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HexVisitor).map(Self)
    }
}

/// A detached Ed25519 signature, written as 128 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// A signature from its bytes.
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HexVisitor).map(Self)
    }
}

struct HexVisitor<const N: usize>;

impl<const N: usize> de::Visitor<'_> for HexVisitor<N> {
    type Value = [u8; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lower-case hexadecimal digits", 2 * N)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<[u8; N], E> {
        hex_bytes(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// Whatever signs for a key: the key itself, or somebody faster or further away who holds it.
pub trait Sign {
    /// The key.
    fn id(&self) -> KeyId;

    /// Signs a message. Ed25519 gives one signature for one message and key, whoever computes it.
    fn sign(&self, message: &[u8]) -> Signature;
}

/// A private key. Zeroed when dropped; never shown, never serialised but as PEM on request.
#[derive(Clone)]
pub struct PrivateKey(SigningKey);

impl PrivateKey {
    /// The key with this secret seed, which the caller drew.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The secret seed, for another implementation that is to sign with this key.
    pub fn expose_seed(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The id of the key's public half.
    pub fn id(&self) -> KeyId {
        KeyId(self.0.verifying_key().to_bytes())
    }

    /// The key as PKCS#8 version 1 in PEM, which OpenSSL reads too.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let pair = KeypairBytes { secret_key: self.0.to_bytes(), public_key: None };
        pair.to_pkcs8_pem(LineEnding::LF)
            .map(|pem| pem.as_str().to_owned())
            .map_err(|error| KeyError::BadPem(error.to_string()))
    }

    /// Reads a PKCS#8 PEM text.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        SigningKey::from_pkcs8_pem(pem)
            .map(Self)
            .map_err(|error| KeyError::BadPem(error.to_string()))
    }
}

impl Sign for PrivateKey {
    fn id(&self) -> KeyId {
        Self::id(self)
    }

    fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message).to_bytes())
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_round_trips() {
        let key = PrivateKey::from_seed(&[7; 32]);
        let pem = key.to_pem().unwrap();
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----"));
        assert_eq!(PrivateKey::from_pem(&pem).unwrap().id(), key.id());
        assert!(PrivateKey::from_pem("nonsense").is_err());
    }

    #[test]
    fn a_weak_key_is_refused_and_verifies_nothing() {
        // The identity point: under it, plain verification accepts R = identity, s = 0 for any message.
        let mut identity = [0; 32];
        identity[0] = 1;
        assert!(matches!(KeyId::parse(&hex::encode(identity)), Err(KeyError::Weak(_))));
        let mut forged = [0; 64];
        forged[0] = 1;
        assert!(!KeyId(identity).verifies(b"anything", &Signature(forged)));
    }

    #[test]
    fn a_signature_holds_for_its_message_only() {
        let key = PrivateKey::from_seed(&[7; 32]);
        let signature = key.sign(b"refund");
        assert!(key.id().verifies(b"refund", &signature));
        assert!(!key.id().verifies(b"refunds", &signature));
        assert!(!PrivateKey::from_seed(&[8; 32]).id().verifies(b"refund", &signature));
    }
}
