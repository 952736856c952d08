//! An entry: one fact in a trajectory, its canonical bytes, and the id that is their digest.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::body;
use crate::digest::{Digest, EntryId};
use crate::ids::{Principal, TrajectoryId, WorkerId};
use crate::json::{self, JsonError, Limits};
use crate::time::UnixMs;

/// The version of the format that this code reads and writes.
pub const FORMAT_VERSION: u64 = 1;

/// A position in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The entry.
    pub id: EntryId,
    /// Its number, from 0.
    pub seq: u64,
}

/// Who appends an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// The worker that holds the trajectory, under its attempt.
    Worker {
        /// The fencing number.
        attempt: u64,
        /// The worker.
        worker: WorkerId,
    },
    /// Anyone allowed.
    Principal(Principal),
}

/// An author as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorShape {
    #[serde(
        default,
        deserialize_with = "crate::content::some",
        skip_serializing_if = "Option::is_none"
    )]
    attempt: Option<u64>,
    #[serde(
        default,
        deserialize_with = "crate::content::some",
        skip_serializing_if = "Option::is_none"
    )]
    principal: Option<Principal>,
    #[serde(
        default,
        deserialize_with = "crate::content::some",
        skip_serializing_if = "Option::is_none"
    )]
    worker: Option<WorkerId>,
}

impl Serialize for Author {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = match self.clone() {
            Self::Worker { attempt, worker } => {
                AuthorShape { attempt: Some(attempt), principal: None, worker: Some(worker) }
            }
            Self::Principal(principal) => {
                AuthorShape { attempt: None, principal: Some(principal), worker: None }
            }
        };
        shape.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Author {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match AuthorShape::deserialize(deserializer)? {
            AuthorShape { attempt: Some(attempt), principal: None, worker: Some(worker) } => {
                Ok(Self::Worker { attempt, worker })
            }
            AuthorShape { attempt: None, principal: Some(principal), worker: None } => {
                Ok(Self::Principal(principal))
            }
            _ => Err(de::Error::custom("an author is `{attempt, worker}` or `{principal}`")),
        }
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker { attempt, worker } => write!(f, "{worker}#{attempt}"),
            Self::Principal(principal) => write!(f, "{principal}"),
        }
    }
}

/// Declares the kinds of entries with their bodies.
macro_rules! kinds {
    ($($kind:ident($body:ident) = $name:literal: $help:literal,)*) => {
        /// What kind of fact an entry is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind {
            $(
                #[doc = $help]
                #[serde(rename = $name)]
                $kind,
            )*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The kind as it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        /// The body of an entry.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Body {
            $(
                #[doc = $help]
                $kind(Box<body::$body>),
            )*
        }

        impl Body {
            /// The kind of this body.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                }
            }

            fn read(kind: Kind, text: &str) -> Result<Self, JsonError> {
                match kind {
                    $(Kind::$kind => json::read_the_long_way(text).map(Self::$kind),)*
                }
            }

            /// Reads a whole entry in one pass, if it is a sound one of this kind.
            fn read_entry(kind: Kind, text: &str) -> Option<Shape<Self>> {
                match kind {
                    $(Kind::$kind => {
                        json::read_canonical::<Shape<_>>(text).map(|shape| shape.with(Self::$kind))
                    })*
                }
            }
        }
    };
}

kinds! {
    Root(Root) = "root": "Begins a trajectory.",
    Branch(Branch) = "branch": "Begins a trajectory from a commit of another.",
    Plan(Plan) = "plan": "The task graph.",
    Attempt(Attempt) = "attempt": "A worker claimed the trajectory.",
    Started(Started) = "started": "From here the effect may have happened.",
    Commit(Commit) = "commit": "A step is done.",
    Failure(Failure) = "failure": "A step's call failed.",
    Rejection(Rejection) = "rejection": "A proposal was refused.",
    PendingApproval(PendingApproval) = "pending_approval": "A proposal waits for people.",
    Approval(Approval) = "approval": "An approver has spoken.",
    InDoubt(InDoubt) = "in_doubt": "Nobody knows whether the effect happened.",
    Resolution(Resolution) = "resolution": "A doubt is over.",
    LateEffect(LateEffect) = "late_effect": "An effect arrived after its start was closed.",
    Confirmation(Confirmation) = "confirmation": "Verifiers were run.",
    Compensation(Compensation) = "compensation": "Opens a rollback.",
    Waiting(Waiting) = "waiting": "A step parks on a key or a time.",
    Signal(Signal) = "signal": "Something arrived from outside.",
    Timer(Timer) = "timer": "The time that a step waited for has come.",
    Delegation(Delegation) = "delegation": "A task is handed to a child.",
    DelegationResult(DelegationResult) = "delegation_result": "A child has ended.",
    Delivered(Delivered) = "delivered": "The other chain of a delegation has what it was owed.",
    Checkpoint(Checkpoint) = "checkpoint": "The digest of the world.",
    Registration(Registration) = "registration": "The registry changes.",
    Erased(Erased) = "erased": "Content was destroyed.",
    CancelRequested(CancelRequested) = "cancel_requested": "Someone wants it to stop.",
    Completed(Completed) = "completed": "It is done.",
    Failed(Stopped) = "failed": "It failed.",
    Cancelled(Stopped) = "cancelled": "It was cancelled.",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is hashed. Chain position and trajectory are part of it, so that equal bodies never collide
/// and nothing can be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// When.
    pub at: UnixMs,
    /// What.
    pub body: Body,
    /// Who.
    pub by: Author,
    /// The entry before; none at the beginning.
    pub parent: Option<EntryId>,
    /// The number, from 0.
    pub seq: u64,
    /// The trajectory.
    pub trajectory: TrajectoryId,
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            at: UnixMs,
            body: &'a Body,
            by: &'a Author,
            kind: Kind,
            parent: Option<EntryId>,
            seq: u64,
            trajectory: TrajectoryId,
            v: u64,
        }
        let Self { at, body, by, parent, seq, trajectory } = self;
        Shape {
            at: *at,
            body,
            by,
            kind: body.kind(),
            parent: *parent,
            seq: *seq,
            trajectory: *trajectory,
            v: FORMAT_VERSION,
        }
        .serialize(serializer)
    }
}

/// Why bytes are not an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not strict JSON, or not in canonical form.
    #[error("not canonical JSON: {0}")]
    Json(JsonError),
    /// Another format version.
    #[error(
        "format version {0} is not known to this program, which reads {FORMAT_VERSION}; use one that is as new as what wrote it"
    )]
    Version(u64),
    /// The fields do not fit.
    #[error("not an entry: {0}")]
    Shape(String),
}

// The cause is part of the message: as a source it would be told twice.
impl From<JsonError> for EntryError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// One fact in a trajectory. The stored bytes are the hashed bytes. Cheap to clone: it never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry(Arc<Fact>);

#[derive(Debug, PartialEq, Eq)]
struct Fact {
    id: EntryId,
    bytes: Box<[u8]>,
    payload: Payload,
}

impl Entry {
    /// Makes an entry of a payload: canonical bytes once, hash once.
    pub fn new(payload: Payload) -> Result<Self, EntryError> {
        let bytes = json::to_canonical(&payload)?.into();
        Ok(Self::of(bytes, payload))
    }

    /// Reads an entry from its bytes, which must be their own canonical form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EntryError> {
        let payload = match read(bytes) {
            Some(payload) => payload,
            None => decode(json::check_canonical(bytes, Limits::DEFAULT)?)?,
        };
        Ok(Self::of(bytes.into(), payload))
    }

    fn of(bytes: Box<[u8]>, payload: Payload) -> Self {
        Self(Arc::new(Fact { id: EntryId::new(Digest::of(&bytes)), bytes, payload }))
    }

    /// The digest of the bytes.
    pub fn id(&self) -> EntryId {
        self.0.id
    }

    /// The canonical bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// What the entry says.
    pub fn payload(&self) -> &Payload {
        &self.0.payload
    }

    /// The entry's number in its chain.
    pub fn seq(&self) -> u64 {
        self.0.payload.seq
    }

    /// What kind of fact it is.
    pub fn kind(&self) -> Kind {
        self.0.payload.body.kind()
    }

    /// Its position, as others name it.
    pub fn head(&self) -> Head {
        Head { id: self.id(), seq: self.seq() }
    }
}

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape<B> {
    at: UnixMs,
    body: B,
    by: Author,
    kind: Kind,
    #[serde(deserialize_with = "Option::deserialize")]
    // null is spelled out: the field is never absent
    parent: Option<EntryId>,
    seq: u64,
    trajectory: TrajectoryId,
    v: u64,
}

impl<B> Shape<B> {
    fn with<C>(self, body: impl FnOnce(B) -> C) -> Shape<C> {
        let Self { at, body: inner, by, kind, parent, seq, trajectory, v } = self;
        Shape { at, body: body(inner), by, kind, parent, seq, trajectory, v }
    }
}

impl From<Shape<Body>> for Payload {
    fn from(shape: Shape<Body>) -> Self {
        let Shape { at, body, by, kind: _, parent, seq, trajectory, v: _ } = shape;
        Self { at, body, by, parent, seq, trajectory }
    }
}

/// Reads a sound entry in one pass. What it makes nothing of is for [`decode`] to judge.
fn read(bytes: &[u8]) -> Option<Payload> {
    let text = std::str::from_utf8(bytes).ok()?;
    let kind = kind_at_end(text)?;
    let shape = Body::read_entry(kind, text)?;
    (shape.kind == kind && shape.v == FORMAT_VERSION).then(|| shape.into())
}

/// The kind stands behind the body that it is the kind of, so it is looked up from the end. A guess:
/// the entry is then read as this kind, and says itself whether it is one.
fn kind_at_end(text: &str) -> Option<Kind> {
    let (_, from) = text.rsplit_once(",\"kind\":\"")?;
    let (name, _) = from.split_once('"')?;
    Kind::ALL.iter().copied().find(|kind| kind.as_str() == name)
}

/// Reads an entry from canonical text, or says what is wrong with it.
fn decode(text: &str) -> Result<Payload, EntryError> {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    let shape: Shape<&RawValue> = json::read_the_long_way(text).map_err(|error| {
        // A later format may have other fields: its version is the better answer.
        match json::read_strict(text) {
            Ok(Version { v }) if v != FORMAT_VERSION => EntryError::Version(v),
            _ => EntryError::Shape(error.to_string()),
        }
    })?;
    if shape.v != FORMAT_VERSION {
        return Err(EntryError::Version(shape.v));
    }
    let body = Body::read(shape.kind, shape.body.get())
        .map_err(|error| EntryError::Shape(format!("body of `{}`: {error}", shape.kind)))?;
    Ok(shape.with(|_| body).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::sample::{Cast, Dice, EPOCH, author};
    use crate::state::{Act, State};

    /// The entries of a random history.
    fn entries(seed: u64) -> Vec<Entry> {
        let id = TrajectoryId::from_bytes([7; 16]);
        let cast = Cast::new(3);
        let mut dice = Dice::new(seed);
        let mut admission = match seed % 4 {
            0 => {
                let mut admission = State::new(id).admit();
                let by = author(admission.state(), Act::Begin).unwrap();
                admission.push(EPOCH, by, cast.registry_root().unwrap()).unwrap();
                admission
            }
            1 => cast.begin_session(id).unwrap(),
            _ => cast.begin_job(id).unwrap(),
        };
        cast.wander(&mut admission, 30, &mut EPOCH.clone(), &mut dice).unwrap();
        admission.finish().unwrap().0.entries().to_vec()
    }

    /// Reads bytes in one pass, and says if the long way comes to the same.
    fn agrees(bytes: &[u8]) -> Option<Payload> {
        let long = json::check_canonical(bytes, Limits::DEFAULT).ok().and_then(|t| decode(t).ok());
        let short = read(bytes);
        assert_eq!(short, long, "{}", String::from_utf8_lossy(bytes));
        short
    }

    fn places(value: &Value, at: String, all: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(key, value)| places(value, format!("{at}/{key}"), all));
            }
            Value::Array(elements) => {
                let elements = elements.iter().enumerate();
                elements.for_each(|(i, value)| places(value, format!("{at}/{i}"), all));
            }
            _ => {}
        }
        all.push(at);
    }

    /// What may stand in a value's place.
    fn others(there: &Value) -> Vec<Value> {
        let mut with = there.clone();
        if let Some(members) = with.as_object_mut() {
            members.insert("zz".to_owned(), json!([{"b": 1.5, "a": "\u{1}\n\"é"}]));
        }
        let mut without = there.clone();
        if let Some(members) = without.as_object_mut() {
            let key = members.keys().next().cloned();
            key.map(|key| members.remove(&key));
        }
        let mut values = vec![with, without];
        values.extend([json!(null), json!(true), json!(0), json!(-1), json!(0.5), json!("x")]);
        values.extend([json!([]), json!({}), json!([there]), json!({ "x": there })]);
        values
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn one_pass_reads_what_the_long_way_reads(seed: u64) {
            for entry in entries(seed) {
                let read = agrees(entry.bytes());
                prop_assert_eq!(read.as_ref(), Some(entry.payload()));
            }
        }

        #[test]
        fn no_edit_of_the_bytes_is_read_in_one_pass_alone(
            seed in 0..64_u64,
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 40),
        ) {
            let interesting = b" \"\\,:{}[]0.-eau1n\n\x00\xff";
            for entry in entries(seed) {
                for (at, byte, how) in &edits {
                    let mut bytes = entry.bytes().to_vec();
                    let at = at.index(bytes.len());
                    let other = interesting.get(usize::from(*byte)).copied().unwrap_or(*byte);
                    match how {
                        0 => bytes[at] = other,
                        1 => bytes.insert(at, other),
                        2 => drop(bytes.remove(at)),
                        _ => bytes.truncate(at),
                    }
                    agrees(&bytes);
                }
            }
        }
    }

    #[test]
    fn no_other_shape_is_read_in_one_pass_alone() {
        let mut seen = std::collections::BTreeSet::new();
        for entry in (0..24).flat_map(entries).filter(|entry| seen.insert(entry.kind())) {
            let value: Value = serde_json::from_slice(entry.bytes()).unwrap();
            let mut all = Vec::new();
            places(&value, String::new(), &mut all);
            for place in &all {
                for other in others(value.pointer(place).unwrap()) {
                    let mut edited = value.clone();
                    *edited.pointer_mut(place).unwrap() = other;
                    agrees(&json::to_canonical(&edited).unwrap());
                }
            }
        }
        assert!(seen.len() > 12, "{seen:?}");
    }
}
