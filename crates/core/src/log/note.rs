//! C2SP signed notes: a text and signatures under it, by keys that have names. Signatures by keys that
//! nobody here knows are kept and say nothing.

use std::fmt;

use base64ct::{Base64, Encoding as _};
use sha2::{Digest as _, Sha256};

use crate::keys::{KeyId, Sign, Signature};

/// How a key signs notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Ed25519 over the text.
    Ed25519,
    /// A cosignature: Ed25519 over a time and the text (C2SP tlog-cosignature).
    Cosignature,
}

impl Algorithm {
    const fn byte(self) -> u8 {
        match self {
            Self::Ed25519 => 1,
            Self::Cosignature => 4,
        }
    }
}

/// What is wrong with a note.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Not a note at all.
    #[error("it is not a signed note: {0}")]
    Shape(&'static str),
    /// A name that a key cannot have.
    #[error("`{0}` cannot be the name of a key: it is empty, or has a blank or a plus in it")]
    Name(String),
    /// Not a key in the text form of notes.
    #[error("`{0}` is not the key of a note (`NAME+HASH+KEY`)")]
    Key(String),
}

/// The most bytes a note may have.
const MAX_BYTES: usize = 1 << 20;
/// The most signatures a note may have.
const MAX_SIGNATURES: usize = 100;
/// What a line with a signature begins with.
const MARK: &str = "— ";

/// The key of a note: a name, and what verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteKey {
    /// Its name.
    pub name: String,
    /// How it signs.
    pub algorithm: Algorithm,
    /// The key.
    pub key: KeyId,
}

impl NoteKey {
    /// A key under a name.
    pub fn new(name: &str, algorithm: Algorithm, key: KeyId) -> Result<Self, NoteError> {
        let bad = name.is_empty() || name.chars().any(|c| c.is_whitespace() || c == '+');
        if bad {
            return Err(NoteError::Name(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), algorithm, key })
    }

    /// Reads `NAME+HASH+KEY`, as tools that read notes are told keys.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let bad = || NoteError::Key(text.to_owned());
        let (name, rest) = text.split_once('+').ok_or_else(bad)?;
        let (_, encoded) = rest.split_once('+').ok_or_else(bad)?;
        let bytes = Base64::decode_vec(encoded).map_err(|_| bad())?;
        let (byte, key) = bytes.split_first().ok_or_else(bad)?;
        let algorithm = match byte {
            1 => Algorithm::Ed25519,
            4 => Algorithm::Cosignature,
            _ => return Err(bad()),
        };
        let key = KeyId::parse(&hex::encode(key)).map_err(|_| bad())?;
        let key = Self::new(name, algorithm, key)?;
        if key.to_string() == text { Ok(key) } else { Err(bad()) }
    }

    /// The four bytes by which signatures name the key.
    fn hash(&self) -> [u8; 4] {
        let mut hash = Sha256::new();
        hash.update(self.name.as_bytes());
        hash.update(b"\n");
        hash.update([self.algorithm.byte()]);
        hash.update(self.key.as_bytes());
        let [a, b, c, d, ..]: [u8; 32] = hash.finalize().into();
        [a, b, c, d]
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![self.algorithm.byte()];
        key.extend(self.key.as_bytes());
        write!(f, "{}+{}+{}", self.name, hex::encode(self.hash()), Base64::encode_string(&key))
    }
}

/// A signature under a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key.
    pub name: String,
    hash: [u8; 4],
    bytes: Vec<u8>,
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.hash, self.bytes.as_slice()].concat();
        writeln!(f, "{MARK}{} {}", self.name, Base64::encode_string(&bytes))
    }
}

/// A text with signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text, which ends in a new line.
    pub text: String,
    /// The signatures under it.
    pub signatures: Vec<NoteSignature>,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| write!(f, "{signature}"))
    }
}

impl Note {
    /// Reads a note. What verifies, if anything, is for [`Note::signed_by`] to say.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        let shape = NoteError::Shape;
        if bytes.len() > MAX_BYTES {
            return Err(shape("it is too large"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| shape("it is not UTF-8"))?;
        if text.chars().any(|c| c < ' ' && c != '\n') {
            return Err(shape("it has control characters"));
        }
        let at = text.rfind("\n\n").ok_or(shape("it has no signatures"))?;
        let (text, rest) = text.split_at_checked(at + 1).unwrap_or((text, ""));
        let lines = rest.strip_prefix('\n').and_then(|lines| lines.strip_suffix('\n'));
        let lines = lines.filter(|lines| !lines.is_empty());
        let lines = lines.ok_or(shape("it has no signatures, or does not end in a new line"))?;
        let signatures: Option<Vec<_>> = lines.split('\n').map(signature).collect();
        let signatures = signatures.ok_or(shape("a line below it is not a signature"))?;
        if signatures.len() > MAX_SIGNATURES {
            return Err(shape("it has too many signatures"));
        }
        Ok(Self { text: text.to_owned(), signatures })
    }

    /// A text, signed. The text must end in a new line.
    pub fn sign(text: &str, name: &str, signer: &dyn Sign) -> Result<Self, NoteError> {
        let key = NoteKey::new(name, Algorithm::Ed25519, signer.id())?;
        let note = Self { text: text.to_owned(), signatures: Vec::new() };
        let signature = signer.sign(text.as_bytes());
        let signature = NoteSignature {
            name: key.name.clone(),
            hash: key.hash(),
            bytes: signature.as_bytes().to_vec(),
        };
        Ok(note.with(signature))
    }

    /// The note with one more cosignature, made at this time (in seconds).
    pub fn cosign(self, name: &str, signer: &dyn Sign, at_s: u64) -> Result<Self, NoteError> {
        let key = NoteKey::new(name, Algorithm::Cosignature, signer.id())?;
        let signature = signer.sign(cosigned(at_s, &self.text).as_bytes());
        let mut bytes = at_s.to_be_bytes().to_vec();
        bytes.extend(signature.as_bytes());
        Ok(self.with(NoteSignature { name: key.name.clone(), hash: key.hash(), bytes }))
    }

    /// The note with one more signature. One by the same key is replaced.
    #[must_use]
    pub fn with(mut self, signature: NoteSignature) -> Self {
        let same = |old: &NoteSignature| old.name == signature.name && old.hash == signature.hash;
        match self.signatures.iter_mut().find(|old| same(old)) {
            Some(old) => *old = signature,
            None => self.signatures.push(signature),
        }
        self
    }

    /// The name under which this key has signed the text, if it has. Strict, as all of Gesta verifies.
    pub fn signed_by(&self, key: KeyId) -> Option<&str> {
        self.signatures.iter().find_map(|signature| {
            let bytes = signature.by(Algorithm::Ed25519, key)?;
            let genuine =
                key.verifies(self.text.as_bytes(), &Signature::from_bytes(bytes.try_into().ok()?));
            genuine.then_some(signature.name.as_str())
        })
    }

    /// When this key cosigned the text, in seconds, if it did: the first time, if there are several.
    pub fn cosigned_by(&self, key: KeyId) -> Option<u64> {
        let times = self.signatures.iter().filter_map(|signature| {
            let (at, bytes) =
                signature.by(Algorithm::Cosignature, key)?.split_first_chunk::<8>()?;
            let at_s = u64::from_be_bytes(*at);
            let message = cosigned(at_s, &self.text);
            key.verifies(message.as_bytes(), &Signature::from_bytes(bytes.try_into().ok()?))
                .then_some(at_s)
        });
        times.min()
    }
}

impl NoteSignature {
    /// The bytes of the signature, if it names this key.
    fn by(&self, algorithm: Algorithm, key: KeyId) -> Option<&[u8]> {
        let named = NoteKey::new(&self.name, algorithm, key).ok()?;
        (named.hash() == self.hash).then_some(self.bytes.as_slice())
    }
}

/// What a cosignature signs.
fn cosigned(at_s: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {at_s}\n{text}")
}

fn signature(line: &str) -> Option<NoteSignature> {
    let (name, encoded) = line.strip_prefix(MARK)?.split_once(' ')?;
    let bytes = Base64::decode_vec(encoded).ok()?;
    let (hash, bytes) = bytes.split_first_chunk::<4>()?;
    let bad = name.is_empty() || name.chars().any(|c| c.is_whitespace() || c == '+');
    (!bad && !bytes.is_empty()).then(|| NoteSignature {
        name: name.to_owned(),
        hash: *hash,
        bytes: bytes.to_vec(),
    })
}
