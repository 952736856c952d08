//! Signed documents: canonical bytes, a type inside them, one signature over every field.
//!
//! The signature stands beside the document, not in it: `{"doc":{…},"sig":"…"}`. What was signed is
//! then a contiguous slice of the entry's own bytes, and is checked without being written again.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::digest::Digest;
use crate::json::{Canon, JsonError, WithText};
use crate::keys::{KeyId, Sign, Signature};
use crate::trust::Role;

/// A document that is only worth something signed.
pub trait Document: Serialize + DeserializeOwned {
    /// What stands in the `type` field.
    const TYPE: &'static str;
    /// A key must hold one of these roles for its signature to count.
    const ROLES: &'static [Role];

    /// The key that signs it. Part of what is signed.
    fn key(&self) -> KeyId;
}

/// The `type` field of a document: one value only, checked when read.
pub struct Tag<D>(PhantomData<fn() -> D>);

impl<D> Default for Tag<D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<D> Clone for Tag<D> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<D> PartialEq for Tag<D> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<D> Eq for Tag<D> {}

impl<D: Document> fmt::Debug for Tag<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(D::TYPE)
    }
}

impl<D: Document> Serialize for Tag<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(D::TYPE)
    }
}

impl<'de, D: Document> Deserialize<'de> for Tag<D> {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        struct Exactly<D>(PhantomData<D>);
        impl<D: Document> de::Visitor<'_> for Exactly<D> {
            type Value = Tag<D>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the type `{}`", D::TYPE)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Tag<D>, E> {
                if text == D::TYPE {
                    Ok(Tag::default())
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }
        deserializer.deserialize_str(Exactly::<D>(PhantomData))
    }
}

/// Why a document could not be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The document has no canonical form.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The document names another key than the one that signs it.
    #[error("the document names the key `{named}` but is signed with `{signer}`")]
    WrongKey {
        /// The key in the document.
        named: KeyId,
        /// The key that was asked to sign.
        signer: KeyId,
    },
}

/// A document with its canonical bytes and signature. Holding one says nothing about validity:
/// the signature is checked by [`Signed::verifies`], the role against a keyring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<D> {
    doc: D,
    canon: Canon,
    /// Of `canon`. Taken once, by whoever makes or reads the document: a fold asks for it again and again.
    digest: Digest,
    sig: Signature,
    origin: Origin,
}

/// Where a signature comes from. Says nothing about the document: two that differ in it are equal.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// This process has signed. Nothing of it can have been changed since: there is no way to.
    Signed,
    /// It was read.
    Read,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl<D: Document> Signed<D> {
    /// Signs a document.
    pub fn sign(doc: D, signer: &impl Sign) -> Result<Self, SignError> {
        if doc.key() != signer.id() {
            return Err(SignError::WrongKey { named: doc.key(), signer: signer.id() });
        }
        let canon = Canon::of(&doc)?;
        let sig = signer.sign(canon.as_bytes());
        Ok(Self { doc, digest: Digest::of(canon.as_bytes()), canon, sig, origin: Origin::Signed })
    }

    /// Whether the signature is this signer's own. That is known of what was signed here; of what was
    /// read the signer finds out by signing again, at half of what verifying costs, since a message has
    /// one signature under a key.
    pub fn is_by(&self, signer: &impl Sign) -> bool {
        let signs = || match self.origin {
            Origin::Signed => true,
            Origin::Read => signer.sign(self.canon.as_bytes()) == self.sig,
        };
        self.doc.key() == signer.id() && signs()
    }

    /// The document.
    pub fn doc(&self) -> &D {
        &self.doc
    }

    /// What was signed: the canonical form of the document.
    pub fn canon(&self) -> &Canon {
        &self.canon
    }

    /// The digest of the document, by which others name it.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The signature.
    pub fn signature(&self) -> &Signature {
        &self.sig
    }

    /// Whether the signature is the named key's.
    pub fn verifies(&self) -> bool {
        self.doc.key().verifies(self.canon.as_bytes(), &self.sig)
    }
}

impl<D: Document> Serialize for Signed<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            doc: &'a Canon,
            sig: &'a Signature,
        }
        Shape { doc: &self.canon, sig: &self.sig }.serialize(serializer)
    }
}

impl<'de, D: Document> Deserialize<'de> for Signed<D> {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, bound = "D: DeserializeOwned")]
        struct Shape<D> {
            doc: WithText<D>,
            sig: Signature,
        }
        let Shape { doc, sig } = Shape::deserialize(deserializer)?;
        let (doc, canon) = match doc {
            WithText::Both(doc, canon) => (doc, canon),
            WithText::Text(canon) => (canon.read().map_err(de::Error::custom)?, canon),
        };
        Ok(Self { doc, digest: Digest::of(canon.as_bytes()), canon, sig, origin: Origin::Read })
    }
}
