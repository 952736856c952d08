//! What can be wrong with a JSON document, and where in it.
//!
//! Knows nothing of how documents are read or written.

use std::fmt;

use super::MAX_SAFE_INTEGER;

/// A problem with a JSON document and the place where it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    pointer: String,
    problem: Problem,
}

impl JsonError {
    pub(super) fn new(pointer: String, problem: Problem) -> Self {
        Self { pointer, problem }
    }

    /// A problem of the document as a whole.
    pub(super) fn whole(problem: Problem) -> Self {
        Self::new(String::new(), problem)
    }

    /// The RFC 6901 pointer of the offending value; empty for the whole document.
    /// A problem between the members of an array or object, a duplicate key among them,
    /// points to that array or object.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What is wrong there.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "at `{}`: ", self.pointer)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for JsonError {}

/// What is wrong with a JSON document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text does not follow the grammar of JSON.
    #[error("{what} at byte {offset}")]
    Syntax {
        /// Where the grammar was left.
        offset: usize,
        /// What was expected or met there.
        what: &'static str,
    },
    /// An object holds one key twice, compared after unescaping.
    #[error("duplicate key `{0}`")]
    DuplicateKey(String),
    /// A `\u` escape names half of a surrogate pair.
    #[error("lone surrogate `\\u{0:04x}`")]
    LoneSurrogate(u16),
    /// An integer that a double cannot hold without the risk of standing for its neighbour too.
    #[error("integer `{0}` is beyond ±{max}, write it as a string", max = MAX_SAFE_INTEGER)]
    IntegerOutOfRange(String),
    /// NaN, an infinity, or a number too large for a double.
    #[error("number `{0}` is not finite")]
    NotFinite(String),
    /// Arrays and objects are nested too deep.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The deepest nesting allowed.
        limit: usize,
    },
    /// The document, as given or in its canonical form, is too long.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The greatest length allowed.
        limit: usize,
    },
    /// The bytes are not UTF-8.
    #[error("not UTF-8 at byte {offset}")]
    NotUtf8 {
        /// The first byte that is not.
        offset: usize,
    },
    /// Something other than white space follows the document.
    #[error("more data after the document at byte {offset}")]
    TrailingData {
        /// Where it begins.
        offset: usize,
    },
    /// Valid JSON, but not its own canonical form.
    #[error("not in canonical form from byte {offset} on")]
    NotCanonical {
        /// The first byte that differs.
        offset: usize,
    },
    /// Valid JSON of another shape than the one asked for.
    #[error("{0}")]
    Shape(String),
    /// A value that has no JSON form.
    #[error("cannot be written as JSON: {0}")]
    Unserializable(String),
}

impl serde::ser::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Unserializable(message.to_string())
    }
}
