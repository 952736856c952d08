//! Canonical JSON (RFC 8785): strict reading, writing, and [`Canon`], text known to be canonical.
//!
//! One writer makes every canonical byte; the strict parser and the serde serializer only drive
//! it. Nothing here knows what a document means.

mod deserialize;
mod error;
mod keys;
mod only_text;
mod parser;
mod reader;
mod serializer;
mod strict;
mod writer;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize};

pub(crate) use deserialize::WithText;
pub use error::{JsonError, Problem};
use serializer::Serializer;
use writer::Writer;

/// The largest integer that no other integer shares its double with: 2^53 − 1.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The struct name by which `serde_json` passes JSON text through a serializer.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// The struct name by which a value is asked for together with its text.
const VALUE_AND_TEXT: &str = "$gesta::value_and_text";

/// How large a document may be, as given and in its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The greatest length in bytes.
    pub max_bytes: usize,
    /// How many arrays and objects may be nested in each other.
    pub max_depth: usize,
}

impl Limits {
    /// 1 MiB, 64 levels.
    pub const DEFAULT: Self = Self { max_bytes: 1 << 20, max_depth: 64 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The canonical form of a value, within [`Limits::DEFAULT`].
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, JsonError> {
    to_canonical_within(value, Limits::DEFAULT)
}

/// The canonical form of a value.
pub fn to_canonical_within<T: Serialize + ?Sized>(
    value: &T,
    limits: Limits,
) -> Result<Vec<u8>, JsonError> {
    let mut writer = Writer::new(128, limits);
    match value.serialize(Serializer(&mut writer)) {
        Ok(()) => writer.finish().map_err(JsonError::whole),
        Err(problem) => Err(JsonError::new(writer.pointer(), problem)),
    }
}

/// Accepts exactly the documents that are their own canonical form, and hands them back as text.
pub fn check_canonical(bytes: &[u8], limits: Limits) -> Result<&str, JsonError> {
    if let Some(text) = canonical_text(bytes, limits) {
        return Ok(text);
    }
    let canonical = canonical_form(bytes, limits)?;
    if canonical == bytes {
        return utf8(bytes);
    }
    let same = canonical.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    Err(JsonError::whole(Problem::NotCanonical { offset: same }))
}

/// Reads canonical text as a `T`, and only in the spelling that a `T` is written in: a struct is an
/// object, a variant that holds nothing is a string. An error names the value at which the shapes
/// part, or the nearest array or object around it.
pub fn read_strict<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, JsonError> {
    reader::from_str(text).map_or_else(|| read_the_long_way(text), Ok)
}

/// As [`read_strict`], which is quicker when all is well.
pub(crate) fn read_the_long_way<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, JsonError> {
    strict::from_str(text).map_err(|error| shape_error(text, &error))
}

/// Reads text as a `T` if it is canonical, within [`Limits::DEFAULT`], and spells one. In one pass;
/// why not is for [`check_canonical`] and [`read_strict`] to say.
pub(crate) fn read_canonical<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    if text.len() > Limits::DEFAULT.max_bytes { None } else { reader::from_str(text) }
}

#[cold]
fn shape_error(text: &str, error: &serde_json::Error) -> JsonError {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(&*message, |(what, _)| what);
    // Canonical text is one line, so the column counts the bytes read; reading as many again
    // leads to the same place.
    let read = text.get(..error.column()).unwrap_or_default();
    let limits = Limits { max_bytes: usize::MAX, max_depth: usize::MAX };
    let mut writer = Writer::new(read.len(), limits);
    let _stops_short = parser::parse_into(read, &mut writer);
    JsonError::new(writer.pointer_of_last(), Problem::Shape(message.to_owned()))
}

/// The text, if it is its own canonical form.
fn canonical_text(bytes: &[u8], limits: Limits) -> Option<&str> {
    if bytes.len() > limits.max_bytes {
        return None;
    }
    // Deeper than by default is for the parser, which keeps its place off the stack.
    let max_depth = limits.max_depth.min(Limits::DEFAULT.max_depth);
    std::str::from_utf8(bytes).ok().filter(|text| reader::is_canonical(text, max_depth))
}

fn canonical_form(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, JsonError> {
    if bytes.len() > limits.max_bytes {
        return Err(JsonError::whole(Problem::TooLarge { limit: limits.max_bytes }));
    }
    let text = utf8(bytes)?;
    let mut writer = Writer::new(text.len(), limits);
    match parser::parse_into(text, &mut writer) {
        Ok(()) => writer.finish().map_err(JsonError::whole),
        Err(problem) => Err(JsonError::new(writer.pointer(), problem)),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, JsonError> {
    std::str::from_utf8(bytes)
        .map_err(|e| JsonError::whole(Problem::NotUtf8 { offset: e.valid_up_to() }))
}

/// Text that is canonical JSON. Cheap to clone; equal exactly if the documents are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Canon(Arc<str>);

impl Canon {
    /// Reads a document strictly, within [`Limits::DEFAULT`], and brings it into canonical form.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        Self::parse_within(bytes, Limits::DEFAULT)
    }

    /// Reads a document strictly and brings it into canonical form.
    pub fn parse_within(bytes: &[u8], limits: Limits) -> Result<Self, JsonError> {
        if let Some(text) = canonical_text(bytes, limits) {
            return Ok(Self(text.into()));
        }
        canonical_form(bytes, limits).and_then(Self::from_written)
    }

    /// The canonical form of a value, within [`Limits::DEFAULT`].
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        to_canonical(value).and_then(Self::from_written)
    }

    /// `null`.
    pub fn null() -> Self {
        Self(Arc::from("null"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text as bytes: what is hashed and stored.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The length of the text in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no JSON text is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads the document as a `T`, as [`read_strict`] does.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        read_strict(&self.0)
    }

    fn from_written(bytes: Vec<u8>) -> Result<Self, JsonError> {
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self(text.into())),
            Err(e) => {
                let offset = e.utf8_error().valid_up_to();
                Err(JsonError::whole(Problem::NotUtf8 { offset }))
            }
        }
    }
}

impl fmt::Display for Canon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Canon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As the document itself, not as a string that holds it.
impl Serialize for Canon {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(RAW_VALUE, 1)?;
        raw.serialize_field(RAW_VALUE, &*self.0)?;
        raw.end()
    }
}
