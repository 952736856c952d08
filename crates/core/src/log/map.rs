//! The map of heads: a Merkle tree over 256-bit keys, each trajectory's head under the hash of its id. Its
//! shape is that of the world's tree: a subtree with one leaf *is* that leaf, so the root depends on the
//! content alone. Nodes are kept by their hash, and a change costs the paths to what has changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::TrajectoryId;

/// The root of a map without heads.
pub const EMPTY: Digest = Digest::from_bytes([0; 32]);

/// The key of a trajectory.
pub fn key(trajectory: TrajectoryId) -> Digest {
    Digest::of(trajectory.as_bytes())
}

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// What a key stands for.
    Leaf {
        /// The key.
        key: Digest,
        /// What it stands for.
        value: Digest,
    },
    /// Two subtrees with at least two leaves between them.
    Inner {
        /// Keys whose next bit is 0.
        left: Digest,
        /// Keys whose next bit is 1.
        right: Digest,
    },
}

/// How many bytes a node is kept as.
const NODE_BYTES: usize = 65;

impl Node {
    /// The hash under which it is kept.
    pub fn hash(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// The bytes that are hashed and kept.
    pub fn to_bytes(&self) -> [u8; NODE_BYTES] {
        let (mark, first, second) = match self {
            Self::Leaf { key, value } => (0, key, value),
            Self::Inner { left, right } => (1, left, right),
        };
        let mut bytes = [mark; NODE_BYTES];
        let parts = first.as_bytes().iter().chain(second.as_bytes());
        bytes.iter_mut().skip(1).zip(parts).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// Reads a node.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (mark, digests) = bytes.split_first()?;
        let ([first, second], []) = digests.as_chunks::<32>() else { return None };
        let (first, second) = (Digest::from_bytes(*first), Digest::from_bytes(*second));
        match mark {
            0 => Some(Self::Leaf { key: first, value: second }),
            1 => Some(Self::Inner { left: first, right: second }),
            _ => None,
        }
    }
}

/// The `depth`-th bit of a key, from the top.
fn bit(key: &Digest, depth: usize) -> bool {
    key.as_bytes().get(depth / 8).is_some_and(|byte| byte >> (7 - depth % 8) & 1 == 1)
}

/// A node of the map was not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node `{0}` of the map of heads is missing")]
pub struct MissingNode(pub Digest);

/// The way down to some keys, level by level: it says which nodes it needs, and is given them.
#[derive(Clone, Debug)]
pub struct Descent {
    root: Digest,
    nodes: BTreeMap<Digest, Node>,
    /// Where it stands: nodes not seen yet, how deep they are, and the keys below them.
    frontier: Vec<(Digest, usize, Vec<Digest>)>,
}

impl Descent {
    /// Begins at a root.
    pub fn new(root: Digest, keys: impl IntoIterator<Item = Digest>) -> Self {
        let keys: BTreeSet<Digest> = keys.into_iter().collect();
        let frontier = (root != EMPTY && !keys.is_empty())
            .then(|| (root, 0, keys.into_iter().collect()))
            .into_iter()
            .collect();
        Self { root, nodes: BTreeMap::new(), frontier }
    }

    /// The nodes needed next; none, when it has arrived.
    pub fn wanted(&self) -> Vec<Digest> {
        self.frontier.iter().map(|(hash, ..)| *hash).collect()
    }

    /// Takes what was wanted, and goes on. Bytes that are not what they are kept as are not believed.
    pub fn supply(&mut self, found: &BTreeMap<Digest, Vec<u8>>) -> Result<(), MissingNode> {
        for (hash, depth, keys) in std::mem::take(&mut self.frontier) {
            let bytes = found.get(&hash).filter(|bytes| Digest::of(bytes) == hash);
            let node = bytes.and_then(|bytes| Node::from_bytes(bytes)).ok_or(MissingNode(hash))?;
            self.nodes.insert(hash, node);
            let Node::Inner { left, right } = node else { continue };
            let (ones, zeros) = keys.into_iter().partition(|key| bit(key, depth));
            for (child, keys) in [(left, zeros), (right, ones)] as [(Digest, Vec<Digest>); 2] {
                if child != EMPTY && !keys.is_empty() {
                    self.frontier.push((child, depth + 1, keys));
                }
            }
        }
        Ok(())
    }

    /// What the map says of a key, with the proof. The descent must have gone down to it.
    pub fn prove(&self, key: Digest) -> Result<MapProof, MissingNode> {
        let (mut at, mut siblings) = (self.root, Vec::new());
        while at != EMPTY {
            match self.nodes.get(&at).ok_or(MissingNode(at))? {
                Node::Leaf { key: there, value } => {
                    let (key, value) = (*there, *value);
                    return Ok(MapProof { leaf: Some(MapLeaf { key, value }), siblings });
                }
                Node::Inner { left, right } => {
                    let (next, beside) =
                        if bit(&key, siblings.len()) { (*right, *left) } else { (*left, *right) };
                    siblings.push(beside);
                    at = next;
                }
            }
        }
        Ok(MapProof { leaf: None, siblings })
    }

    /// The map with these values. The descent must have gone down to every key.
    pub fn update(&self, changes: &BTreeMap<Digest, Digest>) -> Result<Update, MissingNode> {
        let mut update = Update::default();
        let changes: Vec<_> = changes.iter().map(|(key, value)| (*key, *value)).collect();
        update.root = self.changed(self.root, 0, &changes, &mut update)?;
        update.replaced.retain(|hash| !update.added.contains_key(hash));
        Ok(update)
    }

    fn changed(
        &self,
        at: Digest,
        depth: usize,
        changes: &[(Digest, Digest)],
        update: &mut Update,
    ) -> Result<Digest, MissingNode> {
        if changes.is_empty() {
            return Ok(at);
        }
        if at == EMPTY {
            return Ok(build(changes, depth, &mut |node| update.add(node)));
        }
        update.replaced.insert(at);
        match self.nodes.get(&at).ok_or(MissingNode(at))? {
            Node::Leaf { key, value } => {
                let mut all: BTreeMap<_, _> = [(*key, *value)].into();
                all.extend(changes.iter().copied());
                let all: Vec<_> = all.into_iter().collect();
                Ok(build(&all, depth, &mut |node| update.add(node)))
            }
            Node::Inner { left, right } => {
                let (zeros, ones) = parted(changes, depth);
                let left = self.changed(*left, depth + 1, zeros, update)?;
                let right = self.changed(*right, depth + 1, ones, update)?;
                Ok(update.add(Node::Inner { left, right }))
            }
        }
    }
}

/// What a change of the map comes to.
#[derive(Clone, Debug)]
pub struct Update {
    /// The new root.
    pub root: Digest,
    /// Nodes that were not there.
    pub added: BTreeMap<Digest, Node>,
    /// Nodes that the new map does not have.
    pub replaced: BTreeSet<Digest>,
}

impl Default for Update {
    fn default() -> Self {
        Self { root: EMPTY, added: BTreeMap::new(), replaced: BTreeSet::new() }
    }
}

impl Update {
    fn add(&mut self, node: Node) -> Digest {
        let hash = node.hash();
        self.added.insert(hash, node);
        hash
    }
}

/// Keys with what they stand for, in order.
type Rows = [(Digest, Digest)];

/// Rows, divided by a bit of their keys.
fn parted(rows: &Rows, depth: usize) -> (&Rows, &Rows) {
    let at = rows.partition_point(|(key, _)| !bit(key, depth));
    rows.split_at_checked(at).unwrap_or((rows, &[]))
}

/// The root of a subtree with these leaves, which are in order.
fn build(rows: &Rows, depth: usize, add: &mut dyn FnMut(Node) -> Digest) -> Digest {
    match rows {
        [] => EMPTY,
        [(key, value)] => add(Node::Leaf { key: *key, value: *value }),
        _ => {
            let (zeros, ones) = parted(rows, depth);
            let left = build(zeros, depth + 1, add);
            let right = build(ones, depth + 1, add);
            add(Node::Inner { left, right })
        }
    }
}

/// The root of the map that holds exactly this.
pub fn root(rows: &BTreeMap<Digest, Digest>) -> Digest {
    let rows: Vec<_> = rows.iter().map(|(key, value)| (*key, *value)).collect();
    build(&rows, 0, &mut |node| node.hash())
}

/// What stands at the end of a way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapLeaf {
    /// The key.
    pub key: Digest,
    /// What it stands for.
    pub value: Digest,
}

/// Shows what the map says of a key: what it stands for, or that it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapProof {
    /// What stands where the key would: the key itself, another one alone, or nothing.
    #[serde(
        default,
        deserialize_with = "crate::content::some",
        skip_serializing_if = "Option::is_none"
    )]
    pub leaf: Option<MapLeaf>,
    /// The hashes beside the way, from the root down.
    pub siblings: Vec<Digest>,
}

impl MapProof {
    /// What the map with this root says of a key. None if the proof shows nothing; `Some(None)` if it shows
    /// that the key is not there.
    pub fn says(&self, key: Digest, root: Digest) -> Option<Option<Digest>> {
        let depth = self.siblings.len();
        let shares = |other: &Digest| (0..depth).all(|at| bit(other, at) == bit(&key, at));
        if depth > 256 || self.leaf.is_some_and(|leaf| !shares(&leaf.key)) {
            return None;
        }
        let end = match self.leaf {
            Some(MapLeaf { key, value }) => Node::Leaf { key, value }.hash(),
            None => EMPTY,
        };
        let computed = self.siblings.iter().enumerate().rev().fold(end, |below, (at, beside)| {
            let (left, right) = if bit(&key, at) { (*beside, below) } else { (below, *beside) };
            Node::Inner { left, right }.hash()
        });
        (computed == root).then(|| self.leaf.filter(|leaf| leaf.key == key).map(|leaf| leaf.value))
    }
}
