//! RFC 6962: the hashes of a Merkle log, which parts of it a proof is made of, and checking proofs.

use crate::digest::Digest;

/// The hash of a leaf.
pub fn leaf_hash(leaf: &[u8]) -> Digest {
    Digest::of_concat(&[&[0], leaf])
}

/// The hash of two subtrees.
pub fn node_hash(left: Digest, right: Digest) -> Digest {
    Digest::of_concat(&[&[1], left.as_bytes(), right.as_bytes()])
}

/// The root of a log without leaves.
pub fn empty_root() -> Digest {
    Digest::of(&[])
}

/// A whole subtree: the leaves from `index << level` on, `1 << level` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// How high.
    pub level: u32,
    /// Which one, from the left.
    pub index: u64,
}

/// Leaves from `from` up to, but without, `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: u64,
    /// One past the last.
    pub to: u64,
}

impl Range {
    /// The largest whole subtrees that the range is made of, from the left. `from` must be a multiple of
    /// the largest of them, as it is wherever RFC 6962 divides a tree.
    pub fn nodes(self) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut from = self.from;
        while from < self.to {
            let level = (self.to - from).ilog2();
            nodes.push(Node { level, index: from >> level });
            from += 1 << level;
        }
        nodes
    }
}

/// The hash of a range whose whole subtrees have these hashes.
pub fn fold(nodes: &[Digest]) -> Digest {
    let whole = nodes.iter().rev().copied().reduce(|right, left| node_hash(left, right));
    whole.unwrap_or_else(empty_root)
}

/// The largest power of two below `n`, which is at least 2.
fn split(n: u64) -> u64 {
    1 << (n - 1).ilog2()
}

/// The ranges whose hashes prove that leaf `index` is in a log of `size` leaves, from the leaf upwards.
/// None if there is no such leaf.
pub fn inclusion(index: u64, size: u64) -> Option<Vec<Range>> {
    if index >= size {
        return None;
    }
    let (mut from, mut to) = (0, size);
    let mut ranges = Vec::new();
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            ranges.push(Range { from: middle, to });
            to = middle;
        } else {
            ranges.push(Range { from, to: middle });
            from = middle;
        }
    }
    ranges.reverse();
    Some(ranges)
}

/// The ranges whose hashes prove that a log of `old` leaves is the beginning of one of `new`, in the order
/// of RFC 6962. None if it cannot be.
pub fn consistency(old: u64, new: u64) -> Option<Vec<Range>> {
    if old > new {
        return None;
    }
    let mut ranges = Vec::new();
    if old == 0 {
        return Some(ranges);
    }
    let (mut from, mut to, mut known) = (0, new, true);
    while old != to {
        let middle = from + split(to - from);
        if old <= middle {
            ranges.push(Range { from: middle, to });
            to = middle;
        } else {
            ranges.push(Range { from, to: middle });
            from = middle;
            known = false;
        }
    }
    if !known {
        ranges.push(Range { from, to });
    }
    ranges.reverse();
    Some(ranges)
}

/// Whether `proof` shows that `leaf` is number `index` of the log with this size and root.
pub fn includes(
    proof: &[Digest],
    (index, leaf): (u64, Digest),
    (size, root): (u64, Digest),
) -> bool {
    let Some(ranges) = inclusion(index, size) else { return false };
    if ranges.len() != proof.len() {
        return false;
    }
    let computed = ranges.iter().zip(proof).fold(leaf, |below, (range, beside)| {
        if range.from > index { node_hash(below, *beside) } else { node_hash(*beside, below) }
    });
    computed == root
}

/// Whether `proof` shows that the log with the old size and root is the beginning of that with the new.
pub fn extends(proof: &[Digest], old: (u64, Digest), new: (u64, Digest)) -> bool {
    let (Some(ranges), (old_size, old_root)) = (consistency(old.0, new.0), old) else {
        return false;
    };
    if ranges.len() != proof.len() {
        return false;
    }
    if old_size == 0 {
        return old_root == empty_root();
    }
    let mut parts = ranges.iter().zip(proof);
    // The largest subtree that both share whole: it is the old log, or the first part says what it is.
    let shared = match consistency_begins_known(old_size, new.0) {
        true => Some(old_root),
        false => parts.next().map(|(_, hash)| *hash),
    };
    let Some(shared) = shared else { return false };
    let (before, after) = parts.fold((shared, shared), |(before, after), (range, beside)| {
        if range.from >= old_size {
            (before, node_hash(after, *beside))
        } else {
            (node_hash(*beside, before), node_hash(*beside, after))
        }
    });
    before == old_root && after == new.1
}

/// Whether the old log is one whole subtree of the new one, so that the proof need not name it.
fn consistency_begins_known(old: u64, new: u64) -> bool {
    old == new || old.is_power_of_two()
}
