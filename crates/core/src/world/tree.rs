//! A Merkle tree over 256-bit keys. A subtree with one leaf *is* that leaf, so the shape, and with
//! it the root, depends on the content alone and not on the order of insertion. Nodes are shared
//! between clones.

use std::sync::Arc;

use crate::digest::Digest;

/// The root of an empty tree.
const EMPTY: Digest = Digest::from_bytes([0; 32]);

#[derive(Clone, Debug, Default)]
pub(super) struct Tree(Option<Arc<Node>>);

#[derive(Debug)]
enum Node {
    Leaf { key: Digest, hash: Digest },
    Inner { left: Option<Arc<Node>>, right: Option<Arc<Node>>, hash: Digest },
}

impl Node {
    fn leaf(key: Digest, value: Digest) -> Arc<Self> {
        let hash = Digest::of_concat(&[&[0], key.as_bytes(), value.as_bytes()]);
        Arc::new(Self::Leaf { key, hash })
    }

    fn inner(left: Option<Arc<Self>>, right: Option<Arc<Self>>) -> Arc<Self> {
        let hash = Digest::of_concat(&[
            &[1],
            hash(left.as_deref()).as_bytes(),
            hash(right.as_deref()).as_bytes(),
        ]);
        Arc::new(Self::Inner { left, right, hash })
    }
}

fn hash(node: Option<&Node>) -> Digest {
    match node {
        None => EMPTY,
        Some(Node::Leaf { hash, .. } | Node::Inner { hash, .. }) => *hash,
    }
}

/// The `depth`-th bit of the key, from the top.
fn bit(key: &Digest, depth: usize) -> bool {
    key.as_bytes().get(depth / 8).is_some_and(|byte| byte >> (7 - depth % 8) & 1 == 1)
}

impl Tree {
    pub(super) fn root(&self) -> Digest {
        hash(self.0.as_deref())
    }

    pub(super) fn insert(&mut self, key: Digest, value: Digest) {
        self.0 = Some(insert(self.0.as_ref(), 0, key, value));
    }

    pub(super) fn remove(&mut self, key: &Digest) {
        self.0 = remove(self.0.as_ref(), 0, key);
    }
}

fn insert(node: Option<&Arc<Node>>, depth: usize, key: Digest, value: Digest) -> Arc<Node> {
    match node.map(|node| (node, &**node)) {
        None => Node::leaf(key, value),
        Some((_, Node::Leaf { key: there, .. })) if *there == key => Node::leaf(key, value),
        Some((leaf, Node::Leaf { key: there, .. })) => {
            // Two leaves share this prefix: push the old one down until they part.
            let lower = if bit(there, depth) {
                Node::inner(None, Some(Arc::clone(leaf)))
            } else {
                Node::inner(Some(Arc::clone(leaf)), None)
            };
            insert(Some(&lower), depth, key, value)
        }
        Some((_, Node::Inner { left, right, .. })) => {
            if bit(&key, depth) {
                Node::inner(left.clone(), Some(insert(right.as_ref(), depth + 1, key, value)))
            } else {
                Node::inner(Some(insert(left.as_ref(), depth + 1, key, value)), right.clone())
            }
        }
    }
}

fn remove(node: Option<&Arc<Node>>, depth: usize, key: &Digest) -> Option<Arc<Node>> {
    let node = node?;
    match &**node {
        Node::Leaf { key: there, .. } => (there != key).then(|| Arc::clone(node)),
        Node::Inner { left, right, .. } => {
            let (left, right) = if bit(key, depth) {
                (left.clone(), remove(right.as_ref(), depth + 1, key))
            } else {
                (remove(left.as_ref(), depth + 1, key), right.clone())
            };
            match (left, right) {
                (None, None) => None,
                // A lone leaf rises; a lone inner node must stay where its leaves part.
                (Some(only), None) | (None, Some(only)) if matches!(*only, Node::Leaf { .. }) => {
                    Some(only)
                }
                (left, right) => Some(Node::inner(left, right)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::of(&[n])
    }

    proptest! {
        #[test]
        fn the_root_depends_on_the_content_alone(
            ops in prop::collection::vec((any::<bool>(), 0u8..24, any::<u8>()), 0..120),
        ) {
            let mut tree = Tree::default();
            let mut model = std::collections::BTreeMap::new();
            for (put, key, value) in ops {
                if put {
                    tree.insert(digest(key), digest(value));
                    model.insert(key, value);
                } else {
                    tree.remove(&digest(key));
                    model.remove(&key);
                }
            }
            let mut fresh = Tree::default();
            for (key, value) in model.iter().rev() {
                fresh.insert(digest(*key), digest(*value));
            }
            prop_assert_eq!(tree.root(), fresh.root());
            prop_assert_eq!(tree.root() == EMPTY, model.is_empty());
        }

        #[test]
        fn different_contents_have_different_roots(
            a in prop::collection::btree_map(0u8..16, any::<u8>(), 0..8),
            b in prop::collection::btree_map(0u8..16, any::<u8>(), 0..8),
        ) {
            let root = |map: &std::collections::BTreeMap<u8, u8>| {
                let mut tree = Tree::default();
                for (key, value) in map {
                    tree.insert(digest(*key), digest(*value));
                }
                tree.root()
            };
            prop_assert_eq!(root(&a) == root(&b), a == b);
        }
    }
}
