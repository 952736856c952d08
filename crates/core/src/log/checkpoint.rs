//! C2SP tlog-checkpoint: what a log says of itself, as the text of a signed note. Ours has two lines more:
//! the root of the map of heads, and when it was sealed.

use std::fmt;

use base64ct::{Base64, Encoding as _};

use super::note::{Note, NoteError};
use crate::digest::Digest;
use crate::keys::{KeyId, Sign};
use crate::time::UnixMs;

const MAP: &str = "gesta-map ";
const TIME: &str = "gesta-time ";

/// What is wrong with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It is not even a note.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The text is not that of a checkpoint.
    #[error("it is not a checkpoint: {0}")]
    Shape(&'static str),
}

/// What a log of any kind says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// Which log.
    pub origin: String,
    /// How many leaves it has.
    pub size: u64,
    /// The root of the tree.
    pub root: Digest,
    /// Whatever else it says, a line each.
    pub extensions: Vec<String>,
}

impl TreeHead {
    /// Reads the text of a checkpoint.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let shape = CheckpointError::Shape;
        let text = text.strip_suffix('\n').ok_or(shape("it does not end in a new line"))?;
        let mut lines = text.split('\n');
        let mut line = || lines.next().filter(|line| !line.is_empty());
        let origin = line().ok_or(shape("it names no log"))?.to_owned();
        let written = line().ok_or(shape("it has no size"))?;
        let size: u64 = written.parse().map_err(|_| shape("its size is not a number"))?;
        if size.to_string() != written || size > i64::MAX as u64 {
            return Err(shape("its size is not a number"));
        }
        let root = line().and_then(digest).ok_or(shape("it has no root"))?;
        let extensions: Vec<String> = lines.map(str::to_owned).collect();
        if extensions.iter().any(String::is_empty) {
            return Err(shape("it has an empty line"));
        }
        Ok(Self { origin, size, root, extensions })
    }
}

impl fmt::Display for TreeHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root, extensions } = self;
        writeln!(f, "{origin}\n{size}\n{}", Base64::encode_string(root.as_bytes()))?;
        extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

fn digest(text: &str) -> Option<Digest> {
    let bytes = Base64::decode_vec(text).ok()?;
    bytes.try_into().ok().map(Digest::from_bytes)
}

/// What Gesta's log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log.
    pub origin: String,
    /// How many leaves it has.
    pub size: u64,
    /// The root of the tree.
    pub root: Digest,
    /// The root of the map of heads.
    pub map: Digest,
    /// When it was sealed, as the sealer tells it.
    pub at: UnixMs,
}

impl Checkpoint {
    /// Signs it. The key goes by the name of the log.
    pub fn sign(&self, signer: &dyn Sign) -> Result<Note, NoteError> {
        Note::sign(&self.to_string(), &self.origin, signer)
    }

    /// Reads the text of a checkpoint of ours: nothing but what is known is in it.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let TreeHead { origin, size, root, extensions } = TreeHead::parse(text)?;
        let [map, time] = extensions.as_slice() else {
            return Err(CheckpointError::Shape("it does not say which heads there are, and when"));
        };
        let map = map.strip_prefix(MAP).and_then(digest);
        let map = map.ok_or(CheckpointError::Shape("it has no map of heads"))?;
        let at = time.strip_prefix(TIME).and_then(|time| time.parse().ok().map(UnixMs));
        let at = at.ok_or(CheckpointError::Shape("it does not say when it was sealed"))?;
        let checkpoint = Self { origin, size, root, map, at };
        if checkpoint.to_string() != text {
            return Err(CheckpointError::Shape("it is not written as one is"));
        }
        Ok(checkpoint)
    }

    /// Whether this key has signed the note as the log's own.
    pub fn sealed_by(&self, note: &Note, key: KeyId) -> bool {
        note.signed_by(key) == Some(self.origin.as_str())
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root, map, at } = self;
        let map = format!("{MAP}{}", Base64::encode_string(map.as_bytes()));
        let extensions = vec![map, format!("{TIME}{}", at.0)];
        TreeHead { origin: origin.clone(), size: *size, root: *root, extensions }.fmt(f)
    }
}
