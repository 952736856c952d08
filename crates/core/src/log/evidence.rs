//! What travels with trajectories to show that nothing was cut from them: a checkpoint, and proofs against
//! it. Reading them here checks every proof; whose checkpoint it is, is asked of a keyring.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpoint, CheckpointError, TreeHead};
use super::map::{self, MapProof};
use super::note::Note;
use super::{Leaf, tree};
use crate::content::some;
use crate::digest::Digest;
use crate::entry::Head;
use crate::ids::TrajectoryId;
use crate::json::{Canon, JsonError, Limits, to_canonical_within};
use crate::keys::KeyId;
use crate::time::UnixMs;
use crate::trust::{Distrust, Keyring, Role};

/// Proofs of many trajectories may be larger than an entry.
pub const LIMITS: Limits = Limits { max_bytes: 1 << 28, ..Limits::DEFAULT };

/// The last entry of a trajectory that the log held, and that the log held it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedHead {
    /// The entry.
    pub head: Head,
    /// Shows that it is in the log.
    pub inclusion: Vec<Digest>,
    /// Its number in the log.
    pub index: u64,
}

/// What the map of heads says of a trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadProof {
    /// Shows it, unless all heads are listed.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub map: Option<MapProof>,
    /// Its head; none if the log has nothing of it.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub sealed: Option<SealedHead>,
    /// The trajectory.
    pub trajectory: TrajectoryId,
}

/// The proofs of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proofs {
    /// Whether these are all trajectories that the log knows: then the map is computed from them.
    pub all: bool,
    /// The trajectories, by id.
    pub heads: Vec<HeadProof>,
    /// Always [`Proofs::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

/// The proof of one entry, as a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryProof {
    /// The checkpoint, as a signed note.
    pub checkpoint: String,
    /// The entry.
    pub entry: Leaf,
    /// What the map says of its trajectory.
    pub head: HeadProof,
    /// Shows that the entry is in the log.
    pub inclusion: Vec<Digest>,
    /// Its number in the log.
    pub index: u64,
    /// Always [`EntryProof::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

/// Shows that a checkpoint goes on where a smaller one ended, as a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyProof {
    /// The larger checkpoint, as a signed note.
    pub checkpoint: String,
    /// The hashes, as RFC 6962 orders them.
    pub consistency: Vec<Digest>,
    /// The size of the smaller one.
    pub from: u64,
    /// Always [`ConsistencyProof::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

/// What is wrong with proofs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceError {
    /// The checkpoint is not one.
    #[error("the checkpoint cannot be read: {0}")]
    Checkpoint(CheckpointError),
    /// The document is not one.
    #[error("the proofs cannot be read: {0}")]
    Json(JsonError),
    /// Not as a writer writes them.
    #[error("the proofs are not as they are written: {0}")]
    Shape(&'static str),
    /// A proof does not hold against the checkpoint.
    #[error("the proof that {what} does not hold against the checkpoint")]
    Proof {
        /// The trajectory it is about.
        trajectory: Option<TrajectoryId>,
        /// What it should show.
        what: &'static str,
    },
    /// A proof of consistency between other checkpoints than those in question.
    #[error(
        "the proof leads from {} to {} leaves of `{}`, and one from {} to {} leaves of `{}` is needed",
        leads.0, leads.1, leads.2, wanted.0, wanted.1, wanted.2
    )]
    Elsewhere {
        /// From and to how many leaves it leads, and of which log.
        leads: (u64, u64, String),
        /// What it should lead from and to.
        wanted: (u64, u64, String),
    },
}

// The cause is part of the message: as a source it would be told twice.
impl From<CheckpointError> for EvidenceError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<JsonError> for EvidenceError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl Proofs {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.proofs.v1";

    /// Proofs of these trajectories, in any order.
    pub fn new(mut heads: Vec<HeadProof>, all: bool) -> Self {
        heads.sort_by_key(|head| head.trajectory);
        Self { all, heads, type_: Self::TYPE.to_owned() }
    }

    /// The canonical bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, JsonError> {
        to_canonical_within(self, LIMITS)
    }

    /// Reads canonical bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, EvidenceError> {
        let proofs: Self = Canon::parse_within(bytes, LIMITS)?.read()?;
        if proofs.type_ != Self::TYPE {
            return Err(EvidenceError::Shape("they are of another type"));
        }
        if proofs.to_bytes()? != bytes {
            return Err(EvidenceError::Shape("they are not in canonical form"));
        }
        if !proofs.heads.is_sorted_by(|one, next| one.trajectory < next.trajectory) {
            return Err(EvidenceError::Shape("they are not sorted, or repeat"));
        }
        if proofs.heads.iter().any(|head| head.map.is_some() == proofs.all) {
            return Err(EvidenceError::Shape("heads are shown one by one, or all together"));
        }
        Ok(proofs)
    }
}

impl EntryProof {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.proof.v1";

    /// Reads the file: any JSON of this shape.
    pub fn parse(bytes: &[u8]) -> Result<Self, EvidenceError> {
        let proof: Self = Canon::parse_within(bytes, LIMITS)?.read()?;
        if proof.type_ != Self::TYPE {
            return Err(EvidenceError::Shape("they are of another type"));
        }
        Ok(proof)
    }

    /// Checks every proof in it.
    pub fn check(&self) -> Result<Evidence, EvidenceError> {
        let alone = Proofs::new(vec![self.head.clone()], false);
        let evidence = Evidence::new(self.checkpoint.as_bytes(), &alone)?;
        let trajectory = Some(self.entry.trajectory);
        let leaf = (self.index, self.entry.hash()?);
        let Checkpoint { size, root, .. } = evidence.checkpoint;
        if !tree::includes(&self.inclusion, leaf, (size, root)) {
            return Err(EvidenceError::Proof { trajectory, what: "the entry is in the log" });
        }
        let sealed = evidence.heads.get(&self.entry.trajectory).copied().flatten();
        if sealed.is_none_or(|sealed| sealed.seq < self.entry.seq) {
            let what = "its trajectory reaches as far as the entry";
            return Err(EvidenceError::Proof { trajectory, what });
        }
        Ok(evidence)
    }
}

impl ConsistencyProof {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.consistency.v1";

    /// Reads the file: any JSON of this shape.
    pub fn parse(bytes: &[u8]) -> Result<Self, EvidenceError> {
        let proof: Self = Canon::parse_within(bytes, LIMITS)?.read()?;
        if proof.type_ != Self::TYPE {
            return Err(EvidenceError::Shape("they are of another type"));
        }
        Ok(proof)
    }

    /// The hashes, if the proof is about these two. One about others fails against these whether they agree or
    /// not, and must not be taken for a split view.
    pub fn between(&self, seen: &TreeHead, given: &TreeHead) -> Result<&[Digest], EvidenceError> {
        let note = Note::parse(self.checkpoint.as_bytes()).map_err(CheckpointError::Note)?;
        let to = TreeHead::parse(&note.text)?;
        if (self.from, to.size, &to.origin) == (seen.size, given.size, &given.origin) {
            return Ok(&self.consistency);
        }
        let wanted = (seen.size, given.size, given.origin.clone());
        Err(EvidenceError::Elsewhere { leads: (self.from, to.size, to.origin), wanted })
    }
}

/// A checkpoint with proofs that hold against it. Whether anybody vouches for it is not known yet.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The checkpoint with its signatures.
    pub note: Note,
    /// Of some trajectories, the last entry that the log held; none if it held none.
    pub heads: BTreeMap<TrajectoryId, Option<Head>>,
    /// Whether these are all trajectories of the log.
    pub all: bool,
}

impl Evidence {
    /// Checks proofs against a checkpoint.
    pub fn new(checkpoint: &[u8], proofs: &Proofs) -> Result<Self, EvidenceError> {
        let note = Note::parse(checkpoint).map_err(CheckpointError::Note)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        let mut heads = BTreeMap::new();
        let mut values = BTreeMap::new();
        for HeadProof { map: shown, sealed, trajectory } in &proofs.heads {
            let bad = |what| EvidenceError::Proof { trajectory: Some(*trajectory), what };
            let head = sealed.as_ref().map(|sealed| sealed.head);
            let value = head.map(|head| Leaf::new(*trajectory, head).hash()).transpose()?;
            let key = map::key(*trajectory);
            if let Some(shown) = shown
                && shown.says(key, checkpoint.map) != Some(value)
            {
                return Err(bad("this is its head"));
            }
            if let (Some(SealedHead { inclusion, index, .. }), Some(leaf)) = (sealed, value) {
                let log = (checkpoint.size, checkpoint.root);
                if !tree::includes(inclusion, (*index, leaf), log) {
                    return Err(bad("its head is in the log"));
                }
                values.insert(key, leaf);
            }
            heads.insert(*trajectory, head);
        }
        if proofs.all && map::root(&values) != checkpoint.map {
            let what = "these are all heads of the log";
            return Err(EvidenceError::Proof { trajectory: None, what });
        }
        Ok(Self { checkpoint, note, heads, all: proofs.all })
    }

    /// The key that sealed the checkpoint, if a trusted one did; otherwise why none counts.
    pub fn sealer(&self, keyring: &Keyring) -> Result<KeyId, Option<Distrust>> {
        let Self { checkpoint, note, .. } = self;
        let signed = keyring.iter().map(|key| key.key);
        let mut why = None;
        for key in signed.filter(|key| checkpoint.sealed_by(note, *key)) {
            match keyring.check(key, &[Role::Sealer], None, checkpoint.at) {
                Ok(()) => return Ok(key),
                Err(distrust) => why = Some(distrust),
            }
        }
        Err(why)
    }

    /// Who has cosigned it, and when, of those who are trusted to.
    pub fn witnesses(&self, trust: &Keyring) -> BTreeMap<KeyId, UnixMs> {
        witnesses(&self.note, trust)
    }
}

/// Who has cosigned a note, and when, of those who are trusted to.
pub fn witnesses(note: &Note, trust: &Keyring) -> BTreeMap<KeyId, UnixMs> {
    let candidates = trust.iter().filter(|key| key.roles.contains(&Role::Witness));
    let cosigned = candidates.filter_map(|key| {
        let at = UnixMs(note.cosigned_by(key.key)?.saturating_mul(1000));
        trust.check(key.key, &[Role::Witness], None, at).ok()?;
        Some((key.key, at))
    });
    cosigned.collect()
}

/// Why a checkpoint does not go on where one ended that was seen before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// They are of different logs.
    #[error("it is a checkpoint of `{given}`, and what was seen before is of `{seen}`")]
    OtherLog {
        /// The log seen before.
        seen: String,
        /// The log of this one.
        given: String,
    },
    /// The log is smaller than it was.
    #[error("rolled back: the log had {seen} leaves before, and has {given} now")]
    RolledBack {
        /// How many it had.
        seen: u64,
        /// How many it has.
        given: u64,
    },
    /// As many leaves, and something else.
    #[error("split view: the log with {size} leaves has another {what} than was seen before")]
    SplitView {
        /// How many leaves.
        size: u64,
        /// What differs.
        what: &'static str,
    },
    /// More leaves, but not the old ones first.
    #[error(
        "split view: the log with {given} leaves does not begin with the {seen} leaves that were seen before"
    )]
    Forked {
        /// How many it had.
        seen: u64,
        /// How many it has.
        given: u64,
    },
}

/// Whether a checkpoint goes on where one ended that was seen before. `consistency` is the proof for two
/// different sizes.
pub fn follows(seen: &TreeHead, given: &TreeHead, consistency: &[Digest]) -> Result<(), Breach> {
    if seen.origin != given.origin {
        let (seen, given) = (seen.origin.clone(), given.origin.clone());
        return Err(Breach::OtherLog { seen, given });
    }
    if given.size < seen.size {
        return Err(Breach::RolledBack { seen: seen.size, given: given.size });
    }
    if given.size == seen.size {
        let what = match (seen.root == given.root, seen.extensions == given.extensions) {
            (false, _) => "root",
            (true, false) => "map of heads",
            (true, true) => return Ok(()),
        };
        return Err(Breach::SplitView { size: given.size, what });
    }
    match tree::extends(consistency, (seen.size, seen.root), (given.size, given.root)) {
        true => Ok(()),
        false => Err(Breach::Forked { seen: seen.size, given: given.size }),
    }
}
