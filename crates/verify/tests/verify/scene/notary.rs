//! A transparency log over the chains of a scene, and what it shows of them.

use std::collections::BTreeMap;

use gesta_core::digest::Digest;
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::PrivateKey;
use gesta_core::log::Leaf;
use gesta_core::log::checkpoint::Checkpoint;
use gesta_core::log::evidence::{ConsistencyProof, EntryProof, HeadProof, Proofs, SealedHead};
use gesta_core::log::map::{self, Descent, Update};
use gesta_core::log::note::Note;
use gesta_core::log::tiles::{Edge, TileId, Tiles};
use gesta_core::log::tree::{self, Range};
use gesta_core::sample::EPOCH;
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Role, TrustRoot, TrustedKey};
use gesta_core::verification::Class;
use gesta_verify::engine::Sealing;

use super::tamper::Case;
use super::{BRANCH, JOB, Scene, Twists, stranger, trust};

/// What the log is called.
pub(crate) const ORIGIN: &str = "gesta.example/log";
/// When it was sealed.
pub(crate) const SEALED_AT: UnixMs = EPOCH.plus(60_000);

/// Who seals.
pub(crate) fn sealer() -> PrivateKey {
    PrivateKey::from_seed(&[0xa1; 32])
}

/// Who watches.
pub(crate) fn witness() -> PrivateKey {
    PrivateKey::from_seed(&[0xa2; 32])
}

fn trusted(key: &PrivateKey, name: &str, role: Role) -> TrustedKey {
    TrustedKey {
        key: key.id(),
        name: name.to_owned(),
        revoked_at: None,
        roles: [role].into(),
        tenant: None,
        valid: Window { not_before: UnixMs(0), not_after: UnixMs::LAST },
    }
}

/// The scene's trust root, with those who seal and watch.
pub(crate) fn trust_with_log() -> TrustRoot {
    let mut keys = trust().keys;
    keys.push(trusted(&sealer(), "sealer", Role::Sealer));
    keys.push(trusted(&witness(), "witness", Role::Witness));
    TrustRoot::new(keys)
}

/// A log, all of it at hand.
pub(crate) struct Notary {
    edge: Edge,
    tiles: BTreeMap<TileId, Vec<u8>>,
    places: BTreeMap<TrajectoryId, Vec<(u64, Head)>>,
    map: Update,
}

impl Notary {
    /// A log that holds these chains.
    pub(crate) fn of(scene: &Scene) -> Self {
        let mut edge = Edge::new(0, &Tiles::default()).unwrap();
        let mut places: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut values = BTreeMap::new();
        for (trajectory, lines) in &scene.chains {
            for line in lines {
                let head = Entry::from_bytes(line).unwrap().head();
                let leaf = Leaf::new(*trajectory, head).hash().unwrap();
                places.entry(*trajectory).or_default().push((edge.size(), head));
                values.insert(map::key(*trajectory), leaf);
                edge.push(leaf);
            }
        }
        let map = Descent::new(map::EMPTY, []).update(&values).unwrap();
        let tiles = edge.changed().into_iter().collect();
        Self { edge, tiles, places, map }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let (origin, size) = (ORIGIN.to_owned(), self.edge.size());
        let root = self.root(size);
        assert_eq!(root, self.edge.root());
        Checkpoint { origin, size, root, map: self.map.root, at: SEALED_AT }
    }

    /// The checkpoint, signed and witnessed a minute later.
    pub(crate) fn note(&self) -> Note {
        let at_s = SEALED_AT.plus(60_000).0 / 1000;
        let note = self.checkpoint().sign(&sealer()).unwrap();
        note.cosign("witness.example", &witness(), at_s).unwrap()
    }

    fn read(&self, ranges: &[Range]) -> Vec<Digest> {
        Tiles::new(self.tiles.clone()).unwrap().read(ranges).unwrap()
    }

    /// The root of the log when it had so many leaves.
    pub(crate) fn root(&self, size: u64) -> Digest {
        Tiles::new(self.tiles.clone()).unwrap().root(size).unwrap()
    }

    /// That the log goes on where it ended with so many leaves.
    pub(crate) fn consistency(&self, from: u64) -> ConsistencyProof {
        ConsistencyProof {
            checkpoint: self.note().to_string(),
            consistency: self.read(&tree::consistency(from, self.edge.size()).unwrap()),
            from,
            type_: ConsistencyProof::TYPE.to_owned(),
        }
    }

    fn inclusion(&self, index: u64) -> Vec<Digest> {
        self.read(&tree::inclusion(index, self.edge.size()).unwrap())
    }

    fn head(&self, trajectory: TrajectoryId, all: bool) -> HeadProof {
        let sealed = self.places.get(&trajectory).map(|places| {
            let (index, head) = *places.last().unwrap();
            SealedHead { head, inclusion: self.inclusion(index), index }
        });
        let mut descent = Descent::new(self.map.root, [map::key(trajectory)]);
        while !descent.wanted().is_empty() {
            let node = |hash: Digest| (hash, self.map.added[&hash].to_bytes().to_vec());
            descent.supply(&descent.wanted().into_iter().map(node).collect()).unwrap();
        }
        let map = (!all).then(|| descent.prove(map::key(trajectory)).unwrap());
        HeadProof { map, sealed, trajectory }
    }

    /// What it shows of these trajectories, or of all that it knows.
    pub(crate) fn proofs(&self, of: Option<&Scene>) -> Proofs {
        let trajectories: Vec<TrajectoryId> = match of {
            Some(scene) => scene.chains.keys().copied().collect(),
            None => self.places.keys().copied().collect(),
        };
        let all = of.is_none();
        Proofs::new(trajectories.into_iter().map(|id| self.head(id, all)).collect(), all)
    }

    /// What travels with trajectories.
    pub(crate) fn sealing(&self, of: Option<&Scene>) -> Sealing {
        let checkpoint = self.note().to_string().into_bytes();
        Sealing { checkpoint, proofs: self.proofs(of).to_bytes().unwrap() }
    }

    /// The proof of one entry.
    pub(crate) fn entry(&self, trajectory: TrajectoryId, seq: usize) -> EntryProof {
        let (index, head) = self.places[&trajectory][seq];
        EntryProof {
            checkpoint: self.note().to_string(),
            entry: Leaf::new(trajectory, head),
            head: self.head(trajectory, false),
            inclusion: self.inclusion(index),
            index,
            type_: EntryProof::TYPE.to_owned(),
        }
    }
}

/// A scene in which the branch is another one.
pub(crate) fn other_branch() -> Scene {
    Scene::with(&Twists { foreign_source_head: true, ..Twists::default() })
}

/// A scene with what a log shows of it.
pub(crate) fn sealed(mut scene: Scene, log: &Notary, all: bool) -> Scene {
    let of = (!all).then_some(&scene);
    scene.sealing = Some(log.sealing(of));
    scene
}

pub(crate) fn without_last(scene: &Scene, trajectory: TrajectoryId) -> Scene {
    let mut cut = scene.clone();
    cut.chains.get_mut(&trajectory).unwrap().pop();
    cut
}

pub(crate) fn without(scene: &Scene, trajectory: TrajectoryId) -> Scene {
    let mut cut = scene.clone();
    cut.chains.remove(&trajectory);
    cut
}

/// Built cases for the vectors: found whatever is demanded.
pub(crate) fn cases() -> Vec<Case> {
    let (scene, log) = (Scene::new(), Notary::of(&Scene::new()));
    let case = |name, scene: &Scene, expected| Case {
        name,
        bundle: scene.bundle(),
        trust: trust_with_log(),
        expected,
    };
    let last = scene.chains[&BRANCH].len() as u64 - 1;
    let cut = sealed(without_last(&scene, BRANCH), &log, true);
    let dropped = sealed(without(&scene, BRANCH), &log, true);
    let other = Notary::of(&other_branch());
    let rewritten = sealed(scene.clone(), &other, true);
    let mut forged = sealed(scene.clone(), &log, true);
    let note = log.checkpoint().sign(&stranger()).unwrap();
    forged.sealing.as_mut().unwrap().checkpoint = note.to_string().into_bytes();
    let mut hidden = sealed(without(&scene, BRANCH), &log, true);
    let mut proofs = log.proofs(None);
    proofs.heads.retain(|head| head.trajectory != BRANCH);
    hidden.sealing.as_mut().unwrap().proofs = proofs.to_bytes().unwrap();
    let mut cases = vec![
        case("sealed-cut-tail", &cut, (Class::Tampered, "cut_tail", Some(BRANCH), Some(last - 1))),
        case("sealed-dropped", &dropped, (Class::Tampered, "dropped", Some(BRANCH), None)),
        case("sealed-dropped-and-hidden", &hidden, (Class::Tampered, "log_proof", None, None)),
        case(
            "sealed-rewritten",
            &rewritten,
            (Class::Tampered, "other_than_sealed", Some(BRANCH), Some(last)),
        ),
        case("sealed-by-a-stranger", &forged, (Class::Untrusted, "log_key", None, None)),
    ];
    cases.extend(revocations());
    cases
}

/// The trust root of a sealed scene in which the guardian's key is revoked from this time on.
pub(crate) fn trust_revoked(at: UnixMs) -> TrustRoot {
    let mut trust = trust_with_log();
    let keys = super::cast().trust_root().keys;
    let guardians = keys.into_iter().filter(|key| key.roles.contains(&Role::Guardian));
    trust.keys.extend(guardians.map(|key| TrustedKey { revoked_at: Some(at), ..key }));
    trust
}

/// Keys that were revoked before and after somebody outside had seen what they signed.
fn revocations() -> Vec<Case> {
    let scene = Scene::new();
    let whole = sealed(scene.clone(), &Notary::of(&scene), true);
    let case = |name, scene: &Scene, at| Case {
        name,
        bundle: scene.bundle(),
        trust: trust_revoked(at),
        expected: (Class::Untrusted, "revoked_key", Some(JOB), Some(3)),
    };
    vec![
        case("key-revoked-before-it-was-seen", &whole, SEALED_AT),
        case("key-revoked-and-never-seen", &scene, REVOKED_LATER),
    ]
}

/// After the witness has signed.
const REVOKED_LATER: UnixMs = SEALED_AT.plus(600_000);

/// What holds although its key was revoked: a witness had seen it before.
pub(crate) fn seen_before() -> (Vec<u8>, TrustRoot) {
    (whole(), trust_revoked(REVOKED_LATER))
}

/// A sealed scene that holds.
pub(crate) fn whole() -> Vec<u8> {
    let scene = Scene::new();
    let log = Notary::of(&scene);
    sealed(scene, &log, true).bundle()
}
