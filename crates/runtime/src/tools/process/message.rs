//! What worker and supervisor say to each other: one request, one report, each a length and JSON.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Error as JsonError;
use zeroize::Zeroizing;

/// The longest request: more arguments than any document may have, and all secrets.
const MAX_REQUEST: usize = 64 << 20;

/// Bytes, in base64. Overwritten when dropped: some are secrets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Zeroizing<Vec<u8>>);

impl Bytes {
    pub(super) fn os(&self) -> OsString {
        OsString::from_vec(self.0.to_vec())
    }
}

impl From<&OsStr> for Bytes {
    fn from(text: &OsStr) -> Self {
        text.as_bytes().into()
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Zeroizing::new(STANDARD_NO_PAD.encode(self.0.as_slice()));
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let bytes = STANDARD_NO_PAD.decode(text.as_bytes()).map_err(de::Error::custom)?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

/// What the supervisor is to run.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) program: Bytes,
    pub(super) args: Vec<Bytes>,
    pub(super) cwd: Bytes,
    pub(super) env: Vec<(Bytes, Bytes)>,
    pub(super) input: Bytes,
    /// From when the request is read.
    pub(super) deadline_ms: u64,
    pub(super) max_output: usize,
    /// How much of the end of the standard error is kept.
    pub(super) keep_stderr: usize,
    /// Whether it is a server: it talks with the worker by itself, and runs until it is not wanted
    /// any more.
    pub(super) serves: bool,
}

/// What became of it.
#[derive(Serialize, Deserialize)]
pub(super) enum Report {
    /// The program was never started.
    NotStarted { why: String },
    /// It was.
    Ended(Ended),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) why: Why,
    /// The exit code, if it ended by itself.
    pub(super) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(super) signal: Option<i32>,
    pub(super) stdout: Bytes,
    pub(super) stderr: Bytes,
    /// Whether the beginning of the standard error is missing.
    pub(super) stderr_cut: bool,
}

/// Why it ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Why {
    /// By itself.
    Exited,
    /// The deadline passed.
    Deadline,
    /// It wrote more than it may.
    Flooded,
    /// The worker is gone, or does not want it any more.
    Abandoned,
}

/// A message with its length before it.
pub(super) fn frame(message: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, JsonError> {
    let json = Zeroizing::new(serde_json::to_vec(message)?);
    let mut frame = Zeroizing::new(Vec::with_capacity(json.len() + 8));
    frame.extend_from_slice(&(json.len() as u64).to_be_bytes());
    frame.extend_from_slice(&json);
    Ok(frame)
}

/// Reads the request, on the supervisor's side.
pub(super) fn read_request(from: &mut impl Read) -> io::Result<Request> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_REQUEST {
        return Err(io::Error::other("the request is too long"));
    }
    let mut json = Zeroizing::new(vec![0; length]);
    from.read_exact(&mut json)?;
    serde_json::from_slice(&json).map_err(io::Error::from)
}

/// Writes the report, on the supervisor's side.
pub(super) fn write_report(to: &mut impl Write, report: &Report) -> io::Result<()> {
    let frame = frame(report).map_err(io::Error::from)?;
    to.write_all(&frame)?;
    to.flush()
}
