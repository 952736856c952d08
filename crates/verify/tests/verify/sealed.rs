//! What the transparency log shows, and what is found when it shows something else.

use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::log::checkpoint::TreeHead;
use gesta_core::log::evidence::ConsistencyProof;
use gesta_core::log::note::Note;
use gesta_core::trust::{Role, TrustRoot};
use gesta_core::verification::Class;
use gesta_verify::engine::{Demand, Options, Seen, verify_proof};
use gesta_verify::report::{Report, Verdict};

use crate::golden::report;
use crate::scene::notary::{
    Notary, ORIGIN, SEALED_AT, other_branch, sealed, sealer, trust_with_log, without, without_last,
    witness,
};
use crate::scene::{BRANCH, JOB, Scene, cast, stranger};

/// Everything that can be demanded of the log of a whole scene.
fn strict() -> Demand {
    Demand {
        sealed: true,
        all: true,
        after: Some(SEALED_AT),
        witnesses: 1,
        origin: Some(ORIGIN.to_owned()),
        seen: None,
    }
}

fn verified(scene: &Scene, demand: &Demand) -> Report {
    let options = Options { demand, ..Options::default() };
    report(scene.bundle(), &trust_with_log(), &options)
}

/// The only finding.
#[track_caller]
fn only(report: &Report) -> (Class, &'static str, Option<TrajectoryId>) {
    let found: Vec<_> =
        report.findings.iter().map(|it| (it.class, it.code, it.trajectory)).collect();
    assert_eq!(found.len(), 1, "{report}");
    found[0]
}

#[test]
fn a_whole_scene_meets_every_demand() {
    let scene = Scene::new();
    let log = Notary::of(&scene);
    let whole = sealed(scene.clone(), &log, true);
    let report = verified(&whole, &strict());
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    let line = report.log.as_ref().unwrap();
    assert_eq!(
        (line.sealer, line.witnesses.as_slice()),
        (Some(sealer().id()), &[witness().id()][..])
    );
    assert!(report.trajectories.iter().all(|it| it.sealed == it.head.map(|head| head.seq)));
    let some = sealed(scene, &log, false);
    let demand = Demand { all: false, ..strict() };
    assert_eq!(verified(&some, &demand).verdict, Verdict::Sound);
    assert_eq!(only(&verified(&some, &strict())), (Class::Incomplete, "not_all", None));
    let bare = verified(&Scene::new(), &Demand { witnesses: 1, ..Demand::default() });
    assert_eq!(only(&bare), (Class::Incomplete, "no_checkpoint", None));
    assert_eq!(verified(&Scene::new(), &Demand::default()).verdict, Verdict::Sound);
}

#[test]
fn what_was_cut_dropped_or_rewritten_is_found_one_by_one_too() {
    let (scene, nothing) = (Scene::new(), Demand::default());
    let log = Notary::of(&scene);
    let cut = sealed(without_last(&scene, BRANCH), &log, false);
    assert_eq!(only(&verified(&cut, &nothing)), (Class::Tampered, "cut_tail", Some(BRANCH)));
    let other = Notary::of(&other_branch());
    let rewritten = sealed(scene, &other, false);
    let found = only(&verified(&rewritten, &nothing));
    assert_eq!(found, (Class::Tampered, "other_than_sealed", Some(BRANCH)));
}

#[test]
fn what_came_after_the_checkpoint_is_told_apart() {
    let scene = Scene::new();
    let log = Notary::of(&without_last(&scene, BRANCH));
    let grown = sealed(scene.clone(), &log, true);
    assert_eq!(
        only(&verified(&grown, &strict())),
        (Class::Incomplete, "sealed_in_part", Some(BRANCH))
    );
    let report = verified(&grown, &Demand { sealed: false, ..strict() });
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    let last = scene.chains[&BRANCH].len() - 2;
    assert!(report.to_string().contains(&format!("sealed up to entry {last}")), "{report}");

    let log = Notary::of(&without(&scene, BRANCH));
    for all in [true, false] {
        let begun = sealed(scene.clone(), &log, all);
        let demand = Demand { all, ..strict() };
        assert_eq!(
            only(&verified(&begun, &demand)),
            (Class::Incomplete, "not_sealed", Some(BRANCH))
        );
        assert_eq!(verified(&begun, &Demand::default()).verdict, Verdict::Sound);
    }
}

#[test]
fn a_checkpoint_must_be_what_is_demanded() {
    let scene = Scene::new();
    let log = Notary::of(&scene);
    let whole = sealed(scene, &log, true);
    let later = Demand { after: Some(SEALED_AT.plus(1)), witnesses: 0, ..strict() };
    assert_eq!(only(&verified(&whole, &later)), (Class::Incomplete, "stale_checkpoint", None));
    // A rolled-back log whose owner signs it anew: the witness has not seen it since.
    let mut resigned = log.checkpoint();
    resigned.at = SEALED_AT.plus(3_600_000);
    let mut forged = whole.clone();
    let at_s = SEALED_AT.0 / 1000;
    let note =
        resigned.sign(&sealer()).unwrap().cosign("witness.example", &witness(), at_s).unwrap();
    forged.sealing.as_mut().unwrap().checkpoint = note.to_string().into_bytes();
    let demand = Demand { after: Some(SEALED_AT.plus(3_000_000)), ..strict() };
    assert_eq!(only(&verified(&forged, &demand)), (Class::Untrusted, "too_few_witnesses", None));
    let two = Demand { witnesses: 2, ..strict() };
    assert_eq!(only(&verified(&whole, &two)), (Class::Untrusted, "too_few_witnesses", None));
    let other = Demand { origin: Some("other".to_owned()), ..strict() };
    assert_eq!(only(&verified(&whole, &other)), (Class::Untrusted, "log_origin", None));

    // A cosignature by somebody whom nobody trusts to watch counts for nothing.
    let mut cosigned = whole;
    let note = log.checkpoint().sign(&sealer()).unwrap();
    let note = note.cosign("witness.example", &stranger(), at_s + 60).unwrap();
    let note = note.cosign("sealer.example", &sealer(), at_s + 60).unwrap();
    cosigned.sealing.as_mut().unwrap().checkpoint = note.to_string().into_bytes();
    assert_eq!(
        only(&verified(&cosigned, &strict())),
        (Class::Untrusted, "too_few_witnesses", None)
    );
}

#[test]
fn a_log_is_compared_with_what_was_seen_before() {
    let scene = Scene::new();
    let log = Notary::of(&scene);
    let whole = sealed(scene, &log, true);
    let seen =
        |head: TreeHead, consistency| Demand { seen: Some(Seen { head, consistency }), ..strict() };
    let now = TreeHead::parse(&log.note().text).unwrap();
    let from = now.size - 3;
    let (root, proof) = (log.root(from), log.consistency(from));
    let before = TreeHead { size: from, root, ..now.clone() };
    for good in [seen(now.clone(), None), seen(before.clone(), Some(proof.clone()))] {
        assert_eq!(verified(&whole, &good).verdict, Verdict::Sound);
    }
    let grown = TreeHead { size: now.size + 1, ..now.clone() };
    let root = Digest::of(b"other");
    let (split, forked) = (TreeHead { root, ..now.clone() }, TreeHead { root, ..before.clone() });
    let mut maps = now.clone();
    maps.extensions[0] = maps.extensions[0].replace("gesta-map ", "gesta-map A");
    let other = TreeHead { origin: "other".to_owned(), ..now };
    let empty = ConsistencyProof { consistency: Vec::new(), ..proof.clone() };
    for (demand, class, code) in [
        (seen(grown, None), Class::Tampered, "rolled_back"),
        (seen(split, None), Class::Tampered, "split_view"),
        (seen(maps, None), Class::Tampered, "split_view"),
        (seen(forked, Some(proof)), Class::Tampered, "split_view"),
        (seen(before.clone(), Some(empty)), Class::Tampered, "split_view"),
        (seen(before.clone(), Some(log.consistency(3))), Class::Incomplete, "consistency"),
        (seen(before, None), Class::Incomplete, "consistency"),
        (seen(other, None), Class::Untrusted, "log_origin"),
    ] {
        assert_eq!(only(&verified(&whole, &demand)), (class, code, None));
    }
}

/// A careful forger, who makes everything else fit, changes one byte of the checkpoint or the proofs.
#[test]
fn no_changed_byte_of_the_log_verifies() {
    let scene = Scene::new();
    let log = Notary::of(&scene);
    let whole = sealed(scene, &log, true);
    let good = whole.sealing.clone().unwrap();
    let changed = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    for at in 0..good.checkpoint.len() {
        let mut forged = whole.clone();
        forged.sealing.as_mut().unwrap().checkpoint = changed(&good.checkpoint, at);
        let report = verified(&forged, &strict());
        assert_ne!(report.verdict, Verdict::Sound, "byte {at} of the checkpoint");
    }
    for at in (0..good.proofs.len()).step_by(7) {
        let mut forged = whole.clone();
        forged.sealing.as_mut().unwrap().proofs = changed(&good.proofs, at);
        let report = verified(&forged, &strict());
        assert_ne!(report.verdict, Verdict::Sound, "byte {at} of the proofs");
    }
}

#[test]
fn the_proof_of_an_entry_holds_by_itself() {
    let log = Notary::of(&Scene::new());
    let (proof, demand) = (log.entry(JOB, 2), Demand { witnesses: 1, ..Demand::default() });
    let keyring = trust_with_log().keyring().unwrap();
    let report = verify_proof(&proof, &keyring, &demand);
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    let mut moved = proof.clone();
    moved.entry.seq += 1;
    let mut elsewhere = proof.clone();
    elsewhere.index += 1;
    let mut beyond = proof.clone();
    beyond.head = log.entry(BRANCH, 0).head;
    for bad in [moved, elsewhere, beyond] {
        let found = verify_proof(&bad, &keyring, &demand);
        assert_eq!(found.findings[0].code, "log_proof", "{found}");
    }
    let mut unsigned = proof;
    unsigned.checkpoint = log.checkpoint().sign(&stranger()).unwrap().to_string();
    let found = verify_proof(&unsigned, &keyring, &Demand::default());
    assert_eq!(only(&found), (Class::Untrusted, "log_key", None));
}

/// After a key's revocation only what a witnessed checkpoint already held still counts.
#[test]
fn a_revocation_does_not_reach_what_was_witnessed_before() {
    let scene = Scene::new();
    let log = Notary::of(&scene);
    let revoked_at = SEALED_AT.plus(600_000);
    let guardian = cast().guardian.id();
    let mut trust: TrustRoot = trust_with_log();
    let mut key = cast()
        .trust_root()
        .keys
        .into_iter()
        .find(|key| key.roles.contains(&Role::Guardian))
        .unwrap();
    assert_eq!(key.key, guardian);
    key.revoked_at = Some(revoked_at);
    trust.keys.push(key);
    let verified = |scene: &Scene| report(scene.bundle(), &trust, &Options::default());
    let with_note = |scene: Scene, note: &Note| {
        let mut sealed = sealed(scene, &log, true);
        sealed.sealing.as_mut().unwrap().checkpoint = note.to_string().into_bytes();
        sealed
    };
    let witnessed = verified(&sealed(scene.clone(), &log, true));
    assert_eq!(witnessed.verdict, Verdict::Sound, "{witnessed}");

    let plain = log.checkpoint().sign(&sealer()).unwrap();
    let late = plain.clone().cosign("w", &witness(), revoked_at.0 / 1000).unwrap();
    for note in [plain, late] {
        let report = verified(&with_note(scene.clone(), &note));
        assert!(report.findings.iter().any(|it| it.code == "revoked_key"), "{report}");
    }
    // What the key signed after the checkpoint was witnessed does not count.
    let cut = Notary::of(&without(&scene, JOB));
    let mut grown = scene;
    grown.sealing = Some(cut.sealing(Some(&grown)));
    let report = verified(&grown);
    assert!(
        report.findings.iter().any(|it| it.code == "revoked_key" && it.trajectory == Some(JOB)),
        "{report}"
    );
}
