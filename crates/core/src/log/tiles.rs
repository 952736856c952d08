//! C2SP tlog-tiles: the hashes of a log in rows of 256, where they are kept, how they grow, and the proofs
//! that are read from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::tree::{self, Node, Range};
use crate::digest::Digest;

/// How many hashes a whole tile has.
pub const WIDTH: u64 = 256;
/// How many levels of the tree a tile stands for.
const HEIGHT: u32 = 8;
const HASH_BYTES: usize = 32;

/// Which tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TileId {
    /// How high: 0 holds the hashes of leaves, and each level above those of whole tiles below.
    pub level: u8,
    /// Which one of its level, from the left.
    pub number: u64,
}

/// What is wrong with tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileError {
    /// A tile is missing, or has fewer hashes than the log needs.
    #[error("tile {number} of level {level} of the log is missing or too short")]
    Missing {
        /// Its level.
        level: u8,
        /// Its number.
        number: u64,
    },
    /// The log has no such leaf, or is smaller than was asked.
    #[error("the log has {size} leaves")]
    Beyond {
        /// How many there are.
        size: u64,
    },
}

impl TileId {
    /// Where the tile is in a static directory, if it has this many hashes.
    pub fn path(self, width: u64) -> String {
        format!("tile/{}/{}", self.level, numbered(self.number, width))
    }

    /// How many hashes the tile has in a log of this size.
    pub fn width(self, size: u64) -> u64 {
        let hashes = size.checked_shr(HEIGHT * u32::from(self.level)).unwrap_or(0);
        hashes.saturating_sub(self.number.saturating_mul(WIDTH)).min(WIDTH)
    }

    /// The tiles that a log of this size is made of.
    pub fn all(size: u64) -> impl Iterator<Item = Self> {
        let levels = (0..8).map(move |level| (level, size >> (HEIGHT * u32::from(level))));
        levels.take_while(|(_, hashes)| *hashes > 0).flat_map(|(level, hashes)| {
            (0..hashes.div_ceil(WIDTH)).map(move |number| Self { level, number })
        })
    }

    fn of(node: Node) -> (Self, usize, usize) {
        let (level, within) = (node.level / HEIGHT, node.level % HEIGHT);
        let number = node.index >> (HEIGHT - within);
        let first = (node.index - (number << (HEIGHT - within))) << within;
        // At most 256.
        (Self { level: level as u8, number }, first as usize, 1 << within)
    }

    const fn missing(self) -> TileError {
        TileError::Missing { level: self.level, number: self.number }
    }
}

/// Where the leaves of the tile of this number are in a static directory, if there are this many.
pub fn entries_path(number: u64, width: u64) -> String {
    format!("tile/entries/{}", numbered(number, width))
}

/// A number in groups of three digits, all but the last marked, and the width of a tile that is not whole.
fn numbered(number: u64, width: u64) -> String {
    let mut path = format!("{:03}", number % 1000);
    let mut rest = number / 1000;
    while rest > 0 {
        path = format!("x{:03}/{path}", rest % 1000);
        rest /= 1000;
    }
    if width < WIDTH {
        // Writing to a string does not fail.
        let _ = write!(path, ".p/{width}");
    }
    path
}

/// The hashes of a tile, from its bytes. None if they are not whole hashes, or too many.
fn hashes(bytes: &[u8]) -> Option<Vec<Digest>> {
    let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
    (rest.is_empty() && hashes.len() as u64 <= WIDTH)
        .then(|| hashes.iter().map(|hash| Digest::from_bytes(*hash)).collect())
}

fn joined(hashes: &[Digest]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// The hash of a whole subtree with these leaves, a power of two of them.
fn whole(hashes: &[Digest]) -> Digest {
    let mut row = hashes.to_vec();
    while row.len() > 1 {
        row = row
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[left, right]| tree::node_hash(*left, *right))
            .collect();
    }
    row.first().copied().unwrap_or_else(tree::empty_root)
}

/// Tiles at hand: what proofs are read from.
#[derive(Clone, Debug, Default)]
pub struct Tiles(BTreeMap<TileId, Vec<Digest>>);

impl Tiles {
    /// Tiles from their bytes.
    pub fn new(tiles: impl IntoIterator<Item = (TileId, Vec<u8>)>) -> Result<Self, TileError> {
        let read = |(id, bytes): (TileId, Vec<u8>)| Ok((id, hashes(&bytes).ok_or(id.missing())?));
        tiles.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The tiles that hashes of these ranges are computed from.
    pub fn wanted(ranges: &[Range]) -> BTreeSet<TileId> {
        ranges.iter().flat_map(|range| range.nodes()).map(|node| TileId::of(node).0).collect()
    }

    fn node(&self, node: Node) -> Result<Digest, TileError> {
        let (id, first, count) = TileId::of(node);
        let tile = self.0.get(&id).and_then(|tile| tile.get(first..first + count));
        tile.map(whole).ok_or(id.missing())
    }

    /// The hash of each range.
    pub fn read(&self, ranges: &[Range]) -> Result<Vec<Digest>, TileError> {
        let range = |range: &Range| {
            let nodes: Vec<_> =
                range.nodes().into_iter().map(|node| self.node(node)).collect::<Result<_, _>>()?;
            Ok(tree::fold(&nodes))
        };
        ranges.iter().map(range).collect()
    }

    /// The root of the log of this size.
    pub fn root(&self, size: u64) -> Result<Digest, TileError> {
        let nodes: Vec<_> = Range { from: 0, to: size }
            .nodes()
            .into_iter()
            .map(|node| self.node(node))
            .collect::<Result<_, _>>()?;
        Ok(tree::fold(&nodes))
    }
}

/// The right edge of a log, which is all that is needed to make it grow.
#[derive(Clone, Debug)]
pub struct Edge {
    began: u64,
    size: u64,
    /// By level, the hashes of the tile that is not whole yet.
    partial: Vec<Vec<Digest>>,
    /// The tiles that have become whole.
    whole: BTreeMap<TileId, Vec<Digest>>,
}

impl Edge {
    /// The tiles at the edge of a log of this size.
    pub fn wanted(size: u64) -> Vec<TileId> {
        let at = |level: u8| {
            let hashes = size.checked_shr(HEIGHT * u32::from(level)).unwrap_or(0);
            (!hashes.is_multiple_of(WIDTH)).then_some(TileId { level, number: hashes / WIDTH })
        };
        (0..8).filter_map(at).collect()
    }

    /// The edge of a log of this size, from its tiles. They may have grown since: the rest is left out.
    pub fn new(size: u64, tiles: &Tiles) -> Result<Self, TileError> {
        let mut partial = vec![Vec::new(); 8];
        for id in Self::wanted(size) {
            let width = id.width(size) as usize;
            let tile = tiles.0.get(&id).and_then(|tile| tile.get(..width));
            if let Some(at) = partial.get_mut(usize::from(id.level)) {
                *at = tile.ok_or(id.missing())?.to_vec();
            }
        }
        Ok(Self { began: size, size, partial, whole: BTreeMap::new() })
    }

    /// How many leaves there are.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf by its hash.
    pub fn push(&mut self, leaf: Digest) {
        let mut carried = leaf;
        for (level, partial) in (0..).zip(&mut self.partial) {
            partial.push(carried);
            if (partial.len() as u64) < WIDTH {
                break;
            }
            carried = whole(partial);
            let number = self.size >> (HEIGHT * (u32::from(level) + 1));
            self.whole.insert(TileId { level, number }, std::mem::take(partial));
        }
        self.size += 1;
    }

    /// The root of the log.
    pub fn root(&self) -> Digest {
        // The hashes of the whole subtrees, from the right: the binary digits of the size.
        let mut nodes = Vec::new();
        for partial in &self.partial {
            let (mut end, mut width) = (partial.len(), 1);
            while width <= end {
                if partial.len() & width != 0 {
                    nodes.push(whole(partial.get(end - width..end).unwrap_or_default()));
                    end -= width;
                }
                width *= 2;
            }
        }
        nodes.reverse();
        tree::fold(&nodes)
    }

    /// The tiles that have changed, as bytes.
    pub fn changed(&self) -> Vec<(TileId, Vec<u8>)> {
        let mut changed: Vec<_> =
            self.whole.iter().map(|(id, hashes)| (*id, joined(hashes))).collect();
        for id in Self::wanted(self.size) {
            let bits = HEIGHT * u32::from(id.level);
            if self.size >> bits != self.began >> bits {
                let partial = self.partial.get(usize::from(id.level));
                changed.push((id, joined(partial.map_or(&[], Vec::as_slice))));
            }
        }
        changed
    }
}
