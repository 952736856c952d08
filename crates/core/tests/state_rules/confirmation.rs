//! Agreeing with the world: what verifiers found, what a person confirms, checkpoints.

use gesta_core::body::{Check, CheckVerdict, Checkpoint, Confirmation, ConfirmationMode, StepKind};
use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Body;
use gesta_core::json::Canon;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::world::ResourceRef;

use crate::edit;
use crate::scene::{Scene, by_worker, nowhere, step};

use CheckVerdict::{Mismatch, Ok as Agrees, Unknown};
use ConfirmationMode::{Human, Strict, Warn};
use StepKind::Call;

fn found(mode: ConfirmationMode, verdicts: &[CheckVerdict]) -> Body {
    let check = |verdict: &CheckVerdict| Check {
        found: Canon::null(),
        resource: ResourceRef { id: "1".into(), type_: "refund".parse().unwrap() },
        verdict: *verdict,
        verifier: "http".to_owned(),
    };
    Body::Confirmation(Box::new(Confirmation {
        checks: verdicts.iter().map(check).collect(),
        confirms: None,
        mode,
        step: step("charge"),
    }))
}

fn confirms(on: &str, entry: EntryId) -> Body {
    Body::Confirmation(Box::new(Confirmation {
        checks: Vec::new(),
        confirms: Some(entry),
        mode: Human,
        step: step(on),
    }))
}

#[test]
fn a_strict_mismatch_fails_the_trajectory() {
    let mut scene = Scene::session();
    scene.adds(found(Strict, &[Agrees, Mismatch, Unknown]));
    assert_eq!(scene.state().name(), "failing");
    scene.refuses(scene.started("charge"), Why::Stopping);
    scene.refuses(scene.body(Act::Complete, ""), Why::Failing);
    scene.does(Act::EndFailed, "");
}

#[test]
fn what_could_not_be_checked_is_no_mismatch_and_no_agreement() {
    for mode in [Strict, Human, Warn] {
        for verdicts in [&[][..], &[Agrees], &[Unknown], &[Agrees, Unknown]] {
            let mut scene = Scene::session();
            let entry = scene.adds(found(mode, verdicts));
            assert_eq!(scene.state().name(), "live", "never a failure");
            if mode != Warn && verdicts.contains(&Unknown) {
                scene.refuses(scene.started("charge"), Why::Unconfirmed(step("charge")));
                scene.adds(confirms("charge", entry));
            }
            scene.opens("charge");
        }
    }
}

#[test]
fn what_waits_for_a_person_may_be_looked_at_again() {
    for (mode, first) in [(Human, Mismatch), (Human, Unknown), (Strict, Unknown)] {
        let mut scene = Scene::session();
        let parked = scene.adds(found(mode, &[first]));
        let again = scene.adds(found(mode, &[Unknown]));
        scene.refuses(confirms("charge", parked), Why::OtherConfirmation);
        assert_eq!(scene.state().unconfirmed(&step("charge")), Some(again));
        scene.adds(found(mode, &[Agrees]));
        scene.refuses(confirms("charge", again), Why::OtherConfirmation);
        scene.opens("charge");
    }
}

#[test]
fn a_warning_is_recorded_and_nothing_more() {
    let mut scene = Scene::session();
    scene.adds(found(Warn, &[Mismatch]));
    scene.opens("charge");
}

#[test]
fn a_human_mismatch_parks_the_step_until_a_person_confirms_exactly_it() {
    let mut scene = Scene::session();
    let earlier = scene.adds(found(Warn, &[Mismatch]));
    let parked = scene.adds(found(Human, &[Agrees, Mismatch]));
    let acts = [
        Act::Start,
        Act::Escalate,
        Act::Reject,
        Act::CommitComputed,
        Act::CommitSkipped,
        Act::FailUnstarted,
        Act::Wait,
        Act::Delegate,
    ];
    for act in acts {
        scene.refuses(scene.body(act, "charge"), Why::Unconfirmed(step("charge")));
    }
    scene.accepts(scene.started("other"));

    for entry in [nowhere(), earlier] {
        scene.refuses(confirms("charge", entry), Why::OtherConfirmation);
    }
    scene.refuses(confirms("other", parked), Why::OtherConfirmation);
    scene.refuses_by(by_worker(1), confirms("charge", parked), Why::PersonOnly);
    scene.adds(confirms("charge", parked));
    scene.refuses(confirms("charge", parked), Why::OtherConfirmation);
    scene.opens("charge");
}

#[test]
fn a_confirmation_of_one_finding_does_not_answer_the_next() {
    let mut scene = Scene::session();
    let first = scene.adds(found(Human, &[Mismatch]));
    scene.adds(confirms("charge", first));
    let second = scene.adds(found(Human, &[Mismatch]));
    scene.refuses(confirms("charge", first), Why::OtherConfirmation);
    scene.adds(confirms("charge", second));
}

#[test]
fn a_checkpoint_holds_the_worlds_digest() {
    let mut scene = Scene::session();
    let empty = scene.state().world().digest();
    scene.calls("charge");
    for world in [empty, Digest::of(b"another world")] {
        scene.refuses(Body::Checkpoint(Box::new(Checkpoint { world })), Why::WorldDigest);
    }
    let world = scene.state().world().digest();
    scene.adds(Body::Checkpoint(Box::new(Checkpoint { world })));
}

/// A step that rests and that a person must confirm keeps no other step back, and wakes nobody when its
/// time has come.
#[test]
fn what_rests_and_waits_for_a_person_is_kept_back_once() {
    let mut scene = Scene::job(&[("charge", Call, &[]), ("fetch", Call, &[])]);
    scene.opens("charge");
    let body = scene.body(Act::Fail(Failed::RetryableDidNotHappen), "charge");
    let until = scene.now.plus(500);
    scene.adds(edit::failure(&scene.cast, body, |failure| failure.retry_at = Some(until)));
    let entry = scene.adds(found(Human, &[Mismatch]));
    assert!(scene.state().summary().unwrap().runnable, "`fetch` may begin");

    scene.calls("fetch");
    let parked = scene.state().summary().unwrap();
    assert_eq!((parked.runnable, parked.wake_at), (false, None));
    scene.adds(confirms("charge", entry));
    assert_eq!(scene.state().summary().unwrap().wake_at, Some(until));
}
