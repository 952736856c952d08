//! Every tampering is found, named, and put where it belongs; a good bundle is sound.

use std::num::NonZeroUsize;
use std::path::Path;

use gesta_core::amounts::Amounts;
use gesta_core::state::State;
use gesta_core::trust::TrustRoot;
use gesta_core::verification::Class;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::{Report, Verdict};

use crate::golden;
use crate::scene::pack::Pack;
use crate::scene::{self, JOB, REGISTRY, Scene, tamper, trust};

/// How far apart bytes are flipped in what is too large for all of them.
const STEP: usize = 149;

fn report(bundle: Vec<u8>) -> Report {
    golden::report(bundle, &trust(), &Options::default())
}

#[test]
fn a_good_bundle_is_sound() {
    let report = report(Scene::new().bundle());
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    assert_eq!(report.exit_code(), 0);
    assert_eq!(report.counts.trajectories, 4);
    assert_eq!(report.counts.entries, 21);
    assert_eq!(report.counts.signatures, 20);
    assert_eq!(report.counts.blobs, 1);
    assert_eq!(report.counts.links, 9);
    assert!(report.not_checked.is_empty());
}

/// What was allowed before the writ was revoked stays as it is.
#[test]
fn a_revocation_does_not_reach_back() {
    let twists = scene::Twists { revoke_writ: true, revoke_later: true, ..Default::default() };
    let report = report(Scene::with(&twists).bundle());
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
}

/// What a child used is what it cost, and what programs said that counted a late effect twice still holds;
/// nothing else does.
#[test]
fn a_late_effect_may_have_been_counted_twice() {
    let with = |says: fn(&State) -> Amounts| {
        let twists = scene::Twists { late_child: Some(says), ..Default::default() };
        report(Scene::with(&twists).bundle())
    };
    for says in [State::spent, State::spent_at_most] {
        let report = with(says);
        assert_eq!(report.verdict, Verdict::Sound, "{report}");
    }
    let other = with(|child| child.spent().plus(Amounts { tokens: 1, ..Amounts::default() }));
    let found = other.first().map(|it| (it.class, it.code, it.what.clone()));
    let (class, code, message) = found.unwrap();
    assert_eq!((class, code), (Class::Tampered, "delegation_result"));
    assert!(message.ends_with("came to another spending"), "{message}");
}

#[test]
fn the_same_trajectories_give_the_same_bytes() {
    let bundle = Scene::new().bundle();
    assert_eq!(bundle, Scene::new().bundle());
    assert!(bundle == Pack::of(&Scene::new()).bytes(), "two writers, one format");
}

#[test]
fn threads_do_not_change_the_report() {
    for case in tamper::cases() {
        let one = golden::report(case.bundle.clone(), &case.trust, &Options::default());
        let threads = NonZeroUsize::new(4).unwrap();
        let options = Options { threads, ..Options::default() };
        assert_eq!(one, golden::report(case.bundle, &case.trust, &options), "{}", case.name);
    }
}

#[test]
fn every_tampering_is_named() {
    let mut wrong = Vec::new();
    for case in tamper::cases() {
        let report = golden::report(case.bundle, &case.trust, &Options::default());
        let found = report.first().map(|it| (it.class, it.code, it.trajectory, it.seq));
        let code = case.expected.0.exit_code();
        if found != Some(case.expected) || report.exit_code() != code {
            wrong.push(format!("{}: expected {:?}\n{report}", case.name, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_trajectory_is_judged_by_itself() {
    let case = tamper::cases().into_iter().find(|case| case.name == "flipped-last-byte").unwrap();
    let report = report(case.bundle);
    let bad = report.trajectories.iter().filter(|line| line.verdict != Verdict::Sound);
    assert_eq!(bad.map(|line| line.trajectory).collect::<Vec<_>>(), [scene::BRANCH]);
}

#[test]
fn a_part_is_incomplete_unless_it_is_meant_to_be_one() {
    let mut scene = Scene::new();
    let child = scene.child;
    scene.chains.retain(|id, _| *id == child || *id == REGISTRY);
    scene.blobs.clear();
    let bundle = Pack::of(&scene).bytes();
    let report = golden::report(bundle.clone(), &trust(), &Options::default());
    assert_eq!(report.verdict, Verdict::Bad(Class::Incomplete), "{report}");
    assert_eq!(report.not_checked.len(), 1);
    assert_eq!((report.not_checked[0].what, report.not_checked[0].of), ("delegation", Some(JOB)));
    let options = Options { partial: true, ..Options::default() };
    let report = golden::report(bundle, &trust(), &options);
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    assert_eq!(report.not_checked.len(), 1);
}

/// Whoever holds the writ of one trajectory cannot begin another below it: nothing was carved out for that one.
#[test]
fn what_lives_on_anothers_writ_without_its_delegation_is_named() {
    let mut scene = Scene::with(&scene::Twists { orphan: true, ..Default::default() });
    let child = scene.child;
    scene.chains.retain(|id, _| *id == child || *id == REGISTRY);
    scene.blobs.clear();
    let report = report(Pack::of(&scene).bytes());
    let first = report.first().unwrap();
    let found = (first.class, first.code, first.trajectory, first.seq);
    assert_eq!(found, (Class::Tampered, "delegation", Some(child), Some(0)), "{report}");
    let what = format!("a writ above its own roots {JOB}, which has not delegated to it");
    assert_eq!(first.what, what);
}

#[test]
fn without_signatures_nothing_is_called_sound() {
    let options = Options { signatures: false, ..Options::default() };
    let report = golden::report(Scene::new().bundle(), &TrustRoot::new(Vec::new()), &options);
    assert_eq!(report.verdict, Verdict::Bad(Class::Incomplete), "{report}");
    assert_eq!(report.not_checked[0].what, "signatures");
    assert_eq!(report.counts.signatures, 0);
}

/// Flips one bit of every so many bytes, each by itself; none of it may be sound.
fn holds_against_flips(name: &str, bundle: &[u8], trust: &TrustRoot, step: usize) {
    let keyring = trust.keyring().unwrap();
    let sound = |bytes: Vec<u8>| {
        let bundle = Bundle::read(Box::new(bytes));
        bundle.is_ok_and(|bundle| {
            verify(&bundle, &keyring, &Options::default()).verdict == Verdict::Sound
        })
    };
    assert!(sound(bundle.to_vec()), "{name}");
    std::thread::scope(|scope| {
        for part in 0..2 {
            let sound = &sound;
            scope.spawn(move || {
                for at in (part * step..bundle.len()).step_by(2 * step) {
                    let mut flipped = bundle.to_vec();
                    flipped[at] ^= 1 << (at / 2 % 8);
                    assert!(!sound(flipped), "byte {at} of {name}");
                }
            });
        }
    });
}

/// All of them, one bit each.
#[test]
fn no_byte_can_be_flipped() {
    let keys = scene::cast().trust_root();
    holds_against_flips("a scene", &Scene::small().bundle(), &keys, 1);
}

fn vector(name: &str) -> (Vec<u8>, TrustRoot) {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let read = |end: &str| std::fs::read(vectors.join(format!("{name}{end}"))).ok();
    let keys = read(".trust.json").map_or_else(trust, |keys| TrustRoot::parse(&keys).unwrap());
    (read(".tar").unwrap(), keys)
}

/// Values that are disclosed stand in clear in a file of their own: every byte of that bundle, too.
#[test]
fn no_byte_can_be_flipped_where_values_are_disclosed() {
    let (bundle, keys) = vector("bundles/disclosed");
    holds_against_flips("disclosed", &bundle, &keys, 1);
}

/// What jobs wrote holds every kind of entry, blobs, and what was in force. Many bytes of each, the same ones every
/// time; a prime apart, so that every part of a line has its turn.
#[test]
fn no_byte_of_what_jobs_wrote_can_be_flipped() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/runs");
    let mut names: Vec<String> = std::fs::read_dir(runs)
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".tar").map(|name| format!("runs/{name}")))
        .collect();
    names.sort();
    assert!(names.len() > 2, "{names:?}");
    for name in names {
        let (bundle, keys) = vector(&name);
        holds_against_flips(&name, &bundle, &keys, STEP);
    }
}
