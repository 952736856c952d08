//! What holds for every entry: its place in the chain, its time, and who may append it.

use gesta_core::body::{
    Attempt, Compensation, Delivered, Delivery, InDoubt, LateEffect, Stopped, Timer,
};
use gesta_core::document::{CallResult, Failing};
use gesta_core::entry::{Author, Body, Entry, Head, Payload};
use gesta_core::ids::TrajectoryId;
use gesta_core::state::{Act, Failed, State, Why};

use crate::scene::{ID, NOTHING, Scene, by_person, by_worker, nowhere, step};

/// What may come next: a checkpoint by the owner.
fn next(scene: &Scene) -> Payload {
    let head = scene.state().head().unwrap();
    Payload {
        at: scene.now,
        body: scene.body(Act::Checkpoint, ""),
        by: by_worker(1),
        parent: Some(head.id),
        seq: head.seq + 1,
        trajectory: ID,
    }
}

/// Why the next entry, edited, is refused, if it is.
fn refusal(edit: fn(&mut Payload)) -> Option<Why> {
    let mut scene = Scene::session();
    scene.later(50);
    scene.does(Act::Checkpoint, "");
    let mut payload = next(&scene);
    edit(&mut payload);
    let mut state = scene.state().clone();
    state.apply(&Entry::new(payload).unwrap()).err().map(|illegal| illegal.why)
}

#[test]
fn an_entry_belongs_to_its_chain_and_place() {
    assert_eq!(refusal(|_| ()), None);
    let elsewhere = |payload: &mut Payload| payload.trajectory = TrajectoryId::from_bytes([8; 16]);
    assert_eq!(refusal(elsewhere), Some(Why::OtherTrajectory));
    let sequence = || Some(Why::Sequence { expected: 3 });
    assert_eq!(refusal(|payload| payload.seq += 1), sequence());
    assert_eq!(refusal(|payload| payload.seq -= 1), sequence());
    assert_eq!(refusal(|payload| payload.parent = None), Some(Why::Parent));
    assert_eq!(refusal(|payload| payload.parent = Some(nowhere())), Some(Why::Parent));
}

#[test]
fn time_may_stand_still_but_not_run_back() {
    assert_eq!(refusal(|payload| payload.at = payload.at.plus(1)), None);
    assert_eq!(refusal(|payload| payload.at.0 -= 1), Some(Why::TimeRunsBack));
}

#[test]
fn a_first_entry_has_number_zero_and_no_parent() {
    let scene = Scene::unbegun();
    let root = || scene.root_under(|_| (), gesta_core::body::Purpose::Session);
    let payload = |seq, parent| Payload {
        at: scene.now,
        body: root(),
        by: by_person(),
        parent,
        seq,
        trajectory: ID,
    };
    let apply = |payload| {
        State::new(ID).apply(&Entry::new(payload).unwrap()).map_err(|illegal| illegal.why)
    };
    assert_eq!(apply(payload(0, None)), Ok(()));
    assert_eq!(apply(payload(1, None)), Err(Why::Sequence { expected: 0 }));
    assert_eq!(apply(payload(0, Some(nowhere()))), Err(Why::Parent));
}

#[test]
fn a_trajectory_begins_once_and_with_a_beginning() {
    let unbegun = Scene::unbegun();
    unbegun.refuses(attempt(), Why::NotBegun);
    unbegun.refuses(unbegun.body(Act::Erase, ""), Why::NotEnded);
    unbegun.refuses(late_effect(&unbegun), Why::NotBegun);
    unbegun.refuses(crate::scene::plan(&[]), Why::NotBegun);

    let session = Scene::session();
    let root = session.root_under(|_| (), gesta_core::body::Purpose::Session);
    session.refuses(root, Why::Begun);
    session.refuses(crate::branch::branch_of(&session), Why::Begun);
}

#[test]
fn what_is_the_owners_no_person_appends() {
    let scene = Scene::session();
    for body in owners(&scene) {
        scene.refuses_by(by_person(), body, Why::OwnerOnly);
    }
}

#[test]
fn an_older_attempt_and_a_newer_one_that_never_claimed_are_fenced() {
    let mut scene = Scene::session();
    scene.claims();
    for body in owners(&scene) {
        scene.refuses_by(by_worker(1), body.clone(), Why::NotOwner { by: 1, current: 2 });
        scene.refuses_by(by_worker(3), body, Why::NotOwner { by: 3, current: 2 });
    }
}

#[test]
fn the_right_number_under_another_name_is_fenced() {
    let scene = Scene::session();
    let other = Author::Worker { attempt: 1, worker: "worker-2".parse().unwrap() };
    for body in owners(&scene) {
        scene.refuses_by(other.clone(), body, Why::NotOwner { by: 1, current: 1 });
    }
}

#[test]
fn nobody_owns_what_nobody_claimed() {
    let mut scene = Scene::unbegun();
    let root = scene.root_under(|_| (), gesta_core::body::Purpose::Session);
    scene.adds(root);
    let checkpoint = scene.body(Act::Checkpoint, "");
    scene.refuses_by(by_worker(0), checkpoint, Why::NotOwner { by: 0, current: 0 });
}

#[test]
fn attempts_count_up_by_one_and_are_workers() {
    let mut scene = Scene::session();
    for number in [0, 1, 3] {
        scene.refuses_by(by_worker(number), attempt(), Why::Attempt { expected: 2 });
    }
    scene.refuses_by(by_person(), attempt(), Why::WorkerOnly);
    scene.claims();
    assert_eq!(scene.state().attempt(), 2);
}

#[test]
fn a_worker_plans_only_what_it_owns() {
    let mut scene = Scene::unbegun();
    let root = scene.root_under(|_| (), gesta_core::body::Purpose::Job);
    scene.adds(root);
    scene.claims();
    let plan = crate::scene::plan(&[]);
    scene.refuses_by(by_worker(2), plan.clone(), Why::NotOwner { by: 2, current: 1 });
    scene.accepts(plan);
}

fn attempt() -> Body {
    Body::Attempt(Box::new(Attempt {
        died: None,
        environment: gesta_core::sample::environment(),
        note: String::new(),
        restored: None,
    }))
}

fn failing() -> Failing {
    Failing { code: "no".to_owned(), message: String::new() }
}

fn late_effect(scene: &Scene) -> Body {
    let failed = CallResult::Failed {
        certainty: gesta_core::document::Certainty::Happened,
        cost: NOTHING,
        error: failing(),
        retryable: false,
    };
    let on = step("charge");
    let report = scene.cast.report(scene.state(), &on, nowhere(), failed, scene.now).unwrap();
    Body::LateEffect(Box::new(LateEffect { report, step: on }))
}

/// One body of every kind that is the owner's.
fn owners(scene: &Scene) -> Vec<Body> {
    let mut open = scene.clone();
    open.opens("open");
    let acts = [
        Act::Start,
        Act::CommitComputed,
        Act::Reject,
        Act::Escalate,
        Act::FailUnstarted,
        Act::Confirm,
        Act::Wait,
        Act::Delegate,
    ];
    let mut bodies: Vec<Body> = acts.into_iter().map(|act| scene.body(act, "charge")).collect();
    bodies.extend([
        open.body(Act::CommitEffect, "open"),
        open.body(Act::Fail(Failed::PermanentHappened), "open"),
        scene.body(Act::Checkpoint, ""),
        scene.body(Act::Complete, ""),
        scene.body(Act::EndFailed, ""),
        Body::InDoubt(Box::new(InDoubt {
            known: failing(),
            output: None,
            started: nowhere(),
            step: step("charge"),
        })),
        Body::Compensation(Box::new(Compensation { reason: String::new(), undo: Vec::new() })),
        Body::Timer(Box::new(Timer { step: step("charge"), waiting: nowhere() })),
        Body::Delivered(Box::new(Delivered {
            head: Head { id: nowhere(), seq: 1 },
            step: Some(step("charge")),
            to: ID,
            what: Delivery::Beginning,
        })),
        Body::Cancelled(Box::new(Stopped {
            error: failing(),
            run_hash: scene.state().run_hash().unwrap(),
        })),
    ]);
    bodies
}
