//! Sending the same effect again: what a second send may say, when it may be sent, and what the death
//! of a worker settles.

use gesta_core::body::{Attempt, StepKind};
use gesta_core::document::{Certainty, Outcome, Recovery};
use gesta_core::entry::Body;
use gesta_core::state::{Act, Failed, Status, Why};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{NOTHING, Node, Scene, step};

use StepKind::{Call, Loop, Wait};

/// A call that was sent twice: the first time nobody knows what became of it.
fn sent_twice() -> Scene {
    let mut scene = Scene::session().calling(Effect::External, Recovery::KeyedConcurrent);
    scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    scene.opens("charge");
    scene
}

fn denial(scene: &Scene, outcome: Outcome, dispatched: bool) -> Body {
    let body = scene.body(Act::Fail(Failed::RetryableUnknown), "charge");
    edit::failure(&scene.cast, body, |failure| {
        failure.outcome = outcome;
        failure.certainty = Certainty::DidNotHappen;
        failure.dispatched = dispatched;
        failure.cost = NOTHING;
    })
}

#[test]
fn that_the_second_send_did_not_happen_says_nothing_about_the_first() {
    let scene = sent_twice();
    for outcome in [Outcome::RetryableFailure, Outcome::PermanentFailure] {
        scene.refuses(denial(&scene, outcome, true), Why::Outcome);
    }
    scene.refuses(denial(&scene, Outcome::PermanentFailure, false), Why::Outcome);
    let still = scene.accepts(denial(&scene, Outcome::RetryableFailure, false));
    assert_eq!(still.status("charge"), "of unknown outcome");
    assert_eq!(still.step("charge").generation, 1);
    let committed = scene.accepts(scene.body(Act::CommitEffect, "charge"));
    assert_eq!(committed.status("charge"), "done");
}

fn retry_at(scene: &Scene, failed: Failed, at: UnixMs) -> Body {
    let body = scene.body(Act::Fail(failed), "charge");
    edit::failure(&scene.cast, body, |failure| failure.retry_at = Some(at))
}

#[test]
fn a_failure_may_say_when_to_try_again_and_is_obeyed() {
    for failed in [Failed::RetryableDidNotHappen, Failed::RetryableUnknown] {
        let mut scene = Scene::session().calling(Effect::External, Recovery::KeyedConcurrent);
        scene.opens("charge");
        let until = scene.now.plus(500);
        let early = UnixMs(scene.now.0 - 1);
        scene.refuses(retry_at(&scene, failed, early), Why::RetryAt);
        scene.adds(retry_at(&scene, failed, until));
        assert!(!scene.state().startable(&step("charge"), scene.now));
        let summary = scene.state().summary().unwrap();
        assert!(!summary.runnable, "{failed:?}: nobody needs to hold it");
        assert_eq!(summary.wake_at, Some(until));
        scene.refuses(scene.started("charge"), Why::Resting(step("charge")));
        scene.later(500);
        scene.opens("charge");
        assert_eq!(scene.step("charge").retry_at, None);
    }
}

/// Else nobody would be woken to say that it is in doubt.
#[test]
fn what_may_not_be_sent_again_rests_no_more() {
    let mut scene = Scene::session().calling(Effect::External, Recovery::KeyedConcurrent);
    scene.opens("charge");
    scene.adds(retry_at(&scene, Failed::RetryableUnknown, scene.now.plus(500)));
    scene.later(500);
    scene.does(Act::Reject, "charge");
    assert_eq!(scene.step("charge").retry_at, None);
    assert!(scene.state().summary().unwrap().runnable);
    scene.does(Act::Doubt, "charge");
}

#[test]
fn what_rests_below_a_loop_that_has_ended_wakes_nobody() {
    let nodes: &[Node<'_>] = &[("agent", Loop, &[]), ("pause", Wait, &[]), ("mail", Call, &[])];
    let mut scene = Scene::job(nodes);
    scene.opens("agent/charge");
    let body = scene.body(Act::Fail(Failed::RetryableDidNotHappen), "agent/charge");
    let until = scene.now.plus(500);
    scene.adds(edit::failure(&scene.cast, body, |failure| failure.retry_at = Some(until)));
    scene.does(Act::CommitComputed, "agent");
    scene.does(Act::Wait, "pause");
    assert!(scene.state().summary().unwrap().runnable, "`mail` may begin");
    scene.does(Act::Escalate, "mail");
    let parked = scene.state().summary().unwrap();
    assert!(!parked.runnable && parked.wake_at > Some(until), "{parked:?}");
}

#[test]
fn only_what_may_be_tried_again_says_when() {
    let mut scene = Scene::session().calling(Effect::External, Recovery::Never);
    scene.opens("charge");
    let until = scene.now.plus(500);
    scene.refuses(retry_at(&scene, Failed::PermanentDidNotHappen, until), Why::RetryAt);
}

fn reclaim(died: Option<UnixMs>) -> Body {
    Body::Attempt(Box::new(Attempt {
        died,
        environment: gesta_core::sample::environment(),
        note: "reclaimed".to_owned(),
        restored: None,
    }))
}

fn dead_at(scene: &Scene) -> UnixMs {
    match &scene.step("charge").status {
        Status::Open(opened) | Status::InDoubt { opened, .. } => opened.dead_at,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_dead_worker_sent_cannot_land_for_longer_than_from_its_death() {
    let mut scene = Scene::session();
    let started = edit::permit(&scene.cast, scene.started("charge"), |permit| {
        permit.dispatch_by = permit.dispatch_by.plus(10_000);
        permit.dead_at = permit.dispatch_by.plus(700);
    });
    scene.adds(started);
    let planned = dead_at(&scene);
    scene.later(100);
    scene.refuses(reclaim(Some(scene.now.plus(1))), Why::Died);
    let unknown = scene.accepts(reclaim(None));
    assert_eq!(dead_at(&unknown), planned);
    let died = scene.now;
    let mut known = scene.accepts(reclaim(Some(died)));
    assert_eq!(dead_at(&known), died.plus(700));
    // Only what the dead worker itself sent: its successor's death says nothing about it.
    known.later(50);
    let later = known.accepts(reclaim(Some(known.now)));
    assert_eq!(dead_at(&later), died.plus(700));
}

/// A step that was to be tried again wakes nobody once nothing new may start: there is nothing to do then.
#[test]
fn what_may_not_begin_any_more_wakes_nobody() {
    let mut scene = Scene::session();
    scene.opens("charge");
    let until = scene.now.plus(500);
    let body = retry_at(&scene, Failed::RetryableDidNotHappen, until);
    scene.adds(body);
    let wakes = |scene: &Scene| scene.state().summary().unwrap().wake_at;
    assert_eq!(wakes(&scene), Some(until));
    scene.does(Act::RequestCancel, "");
    assert_eq!(wakes(&scene), None);
}
