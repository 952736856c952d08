//! The transparency log against another implementation of the same formats, both ways, and the map of
//! heads against a plain one.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gesta_core::digest::Digest;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::log::checkpoint::{Checkpoint, TreeHead};
use gesta_core::log::evidence::{Breach, ConsistencyProof, EvidenceError, follows};
use gesta_core::log::map::{self, Descent, EMPTY};
use gesta_core::log::note::{Algorithm, Note, NoteKey};
use gesta_core::log::tiles::{Edge, TileId, Tiles, entries_path};
use gesta_core::log::tree::{self, Range};
use gesta_core::time::UnixMs;
use proptest::prelude::*;
use tlog_tiles as oracle;

fn leaf(n: u64) -> Vec<u8> {
    format!("leaf {n}").into_bytes()
}

/// A log of ours, and where its tiles are kept.
struct Log {
    edge: Edge,
    kept: BTreeMap<TileId, Vec<u8>>,
}

impl Log {
    fn new() -> Self {
        Self { edge: Edge::new(0, &Tiles::default()).unwrap(), kept: BTreeMap::new() }
    }

    /// Grows from what is kept alone, as a sealer does.
    fn grow(&mut self, to: u64) {
        let size = self.edge.size();
        let edge = Edge::wanted(size).into_iter().map(|id| (id, self.kept[&id].clone()));
        let mut edge = Edge::new(size, &Tiles::new(edge).unwrap()).unwrap();
        assert_eq!(edge.root(), self.edge.root());
        for n in size..to {
            edge.push(tree::leaf_hash(&leaf(n)));
        }
        self.kept.extend(edge.changed());
        self.edge = edge;
    }

    fn tiles(&self, ranges: &[Range]) -> Tiles {
        let wanted = Tiles::wanted(ranges).into_iter().map(|id| (id, self.kept[&id].clone()));
        Tiles::new(wanted).unwrap()
    }

    fn prove(&self, ranges: &[Range]) -> Vec<Digest> {
        self.tiles(ranges).read(ranges).unwrap()
    }

    fn root(&self, size: u64) -> Digest {
        let whole = [Range { from: 0, to: size }];
        self.tiles(&whole).root(size).unwrap()
    }
}

/// The other implementation's log: every hash there is.
#[derive(Default)]
struct Other(RefCell<Vec<oracle::Hash>>);

impl oracle::HashReader for Other {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<oracle::Hash>, oracle::Error> {
        let hashes = self.0.borrow();
        Ok(indexes.iter().map(|index| hashes[usize::try_from(*index).unwrap()]).collect())
    }
}

impl Other {
    fn of(size: u64) -> Self {
        let other = Self::default();
        for n in 0..size {
            let added = oracle::stored_hashes(n, &leaf(n), &other).unwrap();
            other.0.borrow_mut().extend(added);
        }
        other
    }

    fn root(&self, size: u64) -> Digest {
        Digest::from_bytes(oracle::tree_hash(size, self).unwrap().0)
    }
}

fn theirs(hashes: &[Digest]) -> Vec<oracle::Hash> {
    hashes.iter().map(|hash| oracle::Hash(*hash.as_bytes())).collect()
}

fn ours(hashes: &[oracle::Hash]) -> Vec<Digest> {
    hashes.iter().map(|hash| Digest::from_bytes(hash.0)).collect()
}

#[test]
fn roots_and_tiles_are_those_of_the_other_implementation() {
    let sizes = [1, 2, 3, 7, 8, 255, 256, 257, 511, 512, 700, 70_000];
    let other = Other::of(70_000);
    let mut log = Log::new();
    assert_eq!(log.edge.root(), tree::empty_root());
    for size in sizes {
        log.grow(size);
        assert_eq!(log.edge.root(), other.root(size), "{size}");
        assert_eq!(log.root(size), other.root(size), "{size}");
    }
    // As the specification counts them for this size.
    let all: Vec<TileId> = TileId::all(70_000).collect();
    assert_eq!(all.len(), 274 + 2 + 1);
    for id in all {
        let width = id.width(70_000);
        let tile = oracle::Tile::new(8, id.level, id.number, u32::try_from(width).unwrap(), false);
        assert_eq!(log.kept[&id], tile.read_data(&other).unwrap(), "{id:?}");
        assert_eq!(
            format!("tile/8/{}", id.path(width).strip_prefix("tile/").unwrap()),
            tile.path()
        );
    }
    assert_eq!(log.kept.len(), 277, "nothing else is kept");
    assert_eq!(TileId { level: 3, number: 1_234_067 }.path(256), "tile/3/x001/x234/067");
    assert_eq!(entries_path(1_234_067, 5), "tile/entries/x001/x234/067.p/5");
}

#[test]
fn proofs_hold_here_and_there() {
    let other = Other::of(600);
    let mut log = Log::new();
    log.grow(600);
    for size in [1, 2, 3, 5, 8, 200, 256, 257, 300, 511, 600] {
        let root = log.root(size);
        let their_root = oracle::Hash(*root.as_bytes());
        for index in (0..size).step_by(7).chain([size - 1]) {
            let proof = log.prove(&tree::inclusion(index, size).unwrap());
            let hash = tree::leaf_hash(&leaf(index));
            assert!(tree::includes(&proof, (index, hash), (size, root)));
            let their_hash = oracle::record_hash(&leaf(index));
            oracle::check_record(&theirs(&proof), size, their_root, index, their_hash).unwrap();
            let proof = ours(&oracle::prove_record(size, index, &other).unwrap());
            assert!(tree::includes(&proof, (index, hash), (size, root)));
            assert!(!tree::includes(&proof, (index + 1, hash), (size, root)));
            assert!(!tree::includes(&proof, (index, root), (size, root)) || size == 1);
        }
        for old in (1..=size).step_by(5).chain([size]) {
            let old_root = log.root(old);
            let proof = log.prove(&tree::consistency(old, size).unwrap());
            assert!(tree::extends(&proof, (old, old_root), (size, root)), "{old} {size}");
            let their_old = oracle::Hash(*old_root.as_bytes());
            oracle::check_tree(&theirs(&proof), size, their_root, old, their_old).unwrap();
            let proof = ours(&oracle::prove_tree(size, old, &other).unwrap());
            assert!(tree::extends(&proof, (old, old_root), (size, root)));
            let forged = Digest::of(b"another");
            assert!(!tree::extends(&proof, (old, forged), (size, root)));
            assert!(!tree::extends(&proof, (old, old_root), (size, forged)) || old == size);
        }
    }
    assert!(tree::inclusion(3, 3).is_none());
    assert!(tree::consistency(4, 3).is_none());
    assert!(tree::extends(&[], (0, tree::empty_root()), (5, log.root(5))));
    assert!(!tree::extends(&[], (0, log.root(1)), (5, log.root(5))));
}

fn checkpoint() -> Checkpoint {
    Checkpoint {
        origin: "gesta.example/log".to_owned(),
        size: 700,
        root: Digest::of(b"root"),
        map: Digest::of(b"map"),
        at: UnixMs(1_800_000_000_123),
    }
}

/// Verifies cosignatures with the other implementation's notes, which know only plain ones.
struct Cosigner(NoteKey, signed_note::StandardVerifier);

impl signed_note::Verifier for Cosigner {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn key_id(&self) -> u32 {
        let text = self.0.to_string();
        u32::from_str_radix(text.split('+').nth(1).unwrap(), 16).unwrap()
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let at = u64::from_be_bytes(signature[..8].try_into().unwrap());
        let message = [format!("cosignature/v1\ntime {at}\n").as_bytes(), message].concat();
        self.1.verify(&message, &signature[8..])
    }
}

#[test]
fn notes_and_checkpoints_open_here_and_there() {
    let (sealer, witness) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
    let checkpoint = checkpoint();
    let note = checkpoint
        .sign(&sealer)
        .unwrap()
        .cosign("witness.example", &witness, 1_800_000_001)
        .unwrap();
    let bytes = note.to_string().into_bytes();
    assert_eq!(Note::parse(&bytes).unwrap(), note);
    assert_eq!(Checkpoint::parse(&note.text).unwrap(), checkpoint);
    assert!(checkpoint.sealed_by(&note, sealer.id()));
    assert!(!checkpoint.sealed_by(&note, witness.id()));
    assert_eq!(note.cosigned_by(witness.id()), Some(1_800_000_001));
    assert_eq!(note.cosigned_by(sealer.id()), None);

    // Theirs opens ours.
    let key = NoteKey::new(&checkpoint.origin, Algorithm::Ed25519, sealer.id()).unwrap();
    assert_eq!(NoteKey::parse(&key.to_string()).unwrap(), key);
    let cosigner = NoteKey::new("witness.example", Algorithm::Cosignature, witness.id()).unwrap();
    let plain = NoteKey::new("witness.example", Algorithm::Ed25519, witness.id()).unwrap();
    let their_note = signed_note::Note::from_bytes(&bytes).unwrap();
    let verifiers = signed_note::VerifierList::new(vec![
        Box::new(signed_note::StandardVerifier::new(&key.to_string()).unwrap()),
        Box::new(Cosigner(
            cosigner,
            signed_note::StandardVerifier::new(&plain.to_string()).unwrap(),
        )),
    ]);
    let (verified, unverified) = their_note.verify(&verifiers).unwrap();
    assert_eq!((verified.len(), unverified.len()), (2, 0));
    let their = oracle::Checkpoint::from_bytes(their_note.text()).unwrap();
    assert_eq!((their.origin(), their.size()), (checkpoint.origin.as_str(), 700));
    assert_eq!(their.hash().0, *checkpoint.root.as_bytes());
    assert_eq!(their.extension().lines().count(), 2);

    // Ours opens theirs, byte for byte the same.
    let extension = their.extension().to_owned();
    let their =
        oracle::Checkpoint::new("gesta.example/log", 700, *their.hash(), &extension).unwrap();
    let seed = [&[1][..], sealer.expose_seed()].concat();
    let hash = key.to_string().split('+').nth(1).unwrap().to_owned();
    let encoded = base64ct_of(&seed);
    let signer = format!("PRIVATE+KEY+gesta.example/log+{hash}+{encoded}");
    let signer = signed_note::StandardSigner::new(&signer).unwrap();
    let mut their_note = signed_note::Note::new(&their.to_bytes(), &[]).unwrap();
    their_note.add_sigs(&[&signer]).unwrap();
    let read = Note::parse(&their_note.to_bytes()).unwrap();
    assert_eq!(Checkpoint::parse(&read.text).unwrap(), checkpoint);
    assert_eq!(read, checkpoint.sign(&sealer).unwrap());
}

/// Base64 by hand: this crate's tests have no other.
fn base64ct_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    assert_eq!(bytes.len() % 3, 0);
    let digit = |chunk: &[u8], shift: u32| {
        let number = u32::from_be_bytes([0, chunk[0], chunk[1], chunk[2]]);
        char::from(DIGITS[(number >> shift & 63) as usize])
    };
    bytes.chunks(3).flat_map(|chunk| [18, 12, 6, 0].map(|shift| digit(chunk, shift))).collect()
}

#[test]
fn a_changed_note_is_nobodys() {
    let sealer = PrivateKey::from_seed(&[1; 32]);
    let checkpoint = checkpoint();
    let note = checkpoint.sign(&sealer).unwrap().cosign("w", &sealer, 5).unwrap();
    let text = note.to_string();
    for (from, to) in [("700", "701"), ("gesta-map", "gesta-mab"), ("…", "")] {
        let Ok(changed) = Note::parse(text.replacen(from, to, 1).as_bytes()) else { continue };
        assert_eq!(changed.signed_by(sealer.id()).is_some(), from == "…");
        assert_eq!(changed.cosigned_by(sealer.id()).is_some(), from == "…");
    }
    // The same signature under another name is not that key's.
    let renamed = Note::parse(text.replace("— gesta.example/log", "— other").as_bytes()).unwrap();
    assert_eq!(renamed.signed_by(sealer.id()), None);
    for bad in [
        "",
        "text\n",
        "text\n\n",
        "text\n\n— a b\n",
        "text\n\n— a AAAAAAE=",
        "te\txt\n\n— a AAAAAAE=\n",
    ] {
        assert!(Note::parse(bad.as_bytes()).is_err(), "{bad:?}");
    }
    for bad in ["", "a\n", "a\n01\n", "a\n-1\n", "a\n1\nAAAA\n", "\n1\n"] {
        assert!(TreeHead::parse(bad).is_err(), "{bad:?}");
    }
    let lax = checkpoint.to_string().replace("gesta-time 18", "gesta-time 018");
    assert!(TreeHead::parse(&lax).is_ok() && Checkpoint::parse(&lax).is_err());
}

#[test]
fn a_log_is_followed_or_the_breach_is_named() {
    let mut log = Log::new();
    log.grow(300);
    let head = |size: u64, root: Digest, map: &str| TreeHead {
        origin: "log".to_owned(),
        size,
        root,
        extensions: vec![map.to_owned()],
    };
    let (old, new) = (head(100, log.root(100), "a"), head(300, log.root(300), "b"));
    let proof = log.prove(&tree::consistency(100, 300).unwrap());
    assert_eq!(follows(&old, &new, &proof), Ok(()));
    assert_eq!(follows(&old, &old, &[]), Ok(()));
    assert_eq!(follows(&new, &old, &proof), Err(Breach::RolledBack { seen: 300, given: 100 }));
    let forked = head(100, Digest::of(b"forked"), "a");
    assert_eq!(follows(&forked, &new, &proof), Err(Breach::Forked { seen: 100, given: 300 }));
    assert_eq!(follows(&old, &new, &[]), Err(Breach::Forked { seen: 100, given: 300 }));
    assert_eq!(follows(&old, &forked, &[]), Err(Breach::SplitView { size: 100, what: "root" }));
    let other_map = head(100, log.root(100), "c");
    let what = "map of heads";
    assert_eq!(follows(&old, &other_map, &[]), Err(Breach::SplitView { size: 100, what }));
    let other_log = TreeHead { origin: "other".to_owned(), ..new };
    assert!(matches!(follows(&old, &other_log, &proof), Err(Breach::OtherLog { .. })));
}

#[test]
fn a_proof_of_growth_is_read_from_any_spelling_and_from_no_other_type() {
    let proof = ConsistencyProof {
        checkpoint: "log".to_owned(),
        consistency: vec![digest(1), digest(2)],
        from: 100,
        type_: ConsistencyProof::TYPE.to_owned(),
    };
    let written = Canon::of(&proof).unwrap().to_string();
    assert_eq!(ConsistencyProof::parse(written.as_bytes()), Ok(proof.clone()));
    let spaced = written.replace(',', " ,\n");
    assert_eq!(ConsistencyProof::parse(spaced.as_bytes()), Ok(proof.clone()));
    let other = ConsistencyProof { type_: "gesta.proof".to_owned(), ..proof };
    let other = Canon::of(&other).unwrap();
    let refused = ConsistencyProof::parse(other.as_bytes());
    assert!(matches!(refused, Err(EvidenceError::Shape(_))), "{refused:?}");
    assert!(ConsistencyProof::parse(written.replace("from", "since").as_bytes()).is_err());
}

/// Goes down to keys with what is kept.
fn descend(
    root: Digest,
    keys: impl IntoIterator<Item = Digest>,
    kept: &BTreeMap<Digest, Vec<u8>>,
) -> Descent {
    let mut descent = Descent::new(root, keys);
    while !descent.wanted().is_empty() {
        let found = descent.wanted().into_iter().map(|hash| (hash, kept[&hash].clone())).collect();
        descent.supply(&found).unwrap();
    }
    descent
}

fn digest(n: u16) -> Digest {
    Digest::of(&n.to_be_bytes())
}

proptest! {
    #[test]
    fn a_map_kept_in_nodes_is_the_map(
        batches in prop::collection::vec(prop::collection::btree_map(0u16..200, any::<u16>(), 1..20), 1..12),
    ) {
        let (mut root, mut kept) = (EMPTY, BTreeMap::new());
        let mut plain: BTreeMap<Digest, Digest> = BTreeMap::new();
        let mut before = None;
        for batch in batches {
            let changes: BTreeMap<_, _> =
                batch.iter().map(|(key, value)| (digest(*key), digest(*value))).collect();
            let update = descend(root, changes.keys().copied(), &kept).update(&changes).unwrap();
            before = Some((root, kept.clone(), plain.clone()));
            for hash in &update.replaced {
                prop_assert!(kept.remove(hash).is_some(), "what is replaced was there");
            }
            kept.extend(update.added.iter().map(|(hash, node)| (*hash, node.to_bytes().to_vec())));
            root = update.root;
            plain.extend(changes);
            prop_assert_eq!(root, map::root(&plain));
        }
        // Exactly the nodes of the tree are kept: one a leaf, and one where two part.
        let mut seen = BTreeSet::new();
        let all = (0..200).map(digest);
        let descent = descend(root, all.clone(), &kept);
        for key in all {
            let proof = descent.prove(key).unwrap();
            prop_assert_eq!(proof.says(key, root), Some(plain.get(&key).copied()));
            prop_assert_eq!(proof.says(key, digest(0)), None);
            if let Some(leaf) = &proof.leaf {
                let mut forged = proof.clone();
                forged.leaf = Some(map::MapLeaf { value: digest(7), ..*leaf });
                prop_assert!(forged.says(key, root).is_none() || leaf.value == digest(7));
                forged.leaf = None;
                prop_assert_eq!(forged.says(key, root), None);
                seen.insert(leaf.key);
            }
        }
        prop_assert_eq!(kept.values().filter(|bytes| bytes[0] == 0).count(), plain.len());
        prop_assert_eq!(seen.len(), plain.len());
        // And the map as it was can still be shown while its nodes are kept.
        if let Some((root, kept, plain)) = before {
            let descent = descend(root, plain.keys().copied(), &kept);
            for (key, value) in &plain {
                prop_assert_eq!(descent.prove(*key).unwrap().says(*key, root), Some(Some(*value)));
            }
        }
    }
}

#[test]
fn a_node_that_is_not_what_it_is_kept_as_is_not_believed() {
    let mut descent = Descent::new(digest(1), [digest(2)]);
    let forged =
        [(digest(1), map::Node::Leaf { key: digest(2), value: digest(3) }.to_bytes().to_vec())];
    assert!(descent.supply(&forged.into()).is_err());
}
