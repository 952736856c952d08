//! Not knowing: sending again, doubts, their resolution, and effects that arrive late.

use gesta_core::body::StepKind;
use gesta_core::document::{CallResult, Recovery, ResolutionVerdict, ResolvedBy, Settlement};
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::world::{DeltaError, ResourceRef};
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{COST, NOTHING, Node, RESERVE, Scene, nowhere, stands, step};

/// How long after its start a sample call can still land.
const DEAD_AFTER_MS: u64 = 900;

fn unknown(recovery: Recovery) -> Scene {
    let mut scene = Scene::session().calling(Effect::External, recovery);
    scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    scene
}

fn in_doubt(recovery: Recovery) -> Scene {
    let mut scene = Scene::session().calling(Effect::External, recovery);
    scene.opens("charge");
    scene.does(Act::Doubt, "charge");
    scene
}

#[test]
fn a_keyed_call_is_sent_again_only_once_the_first_is_dead() {
    let mut scene = unknown(Recovery::Keyed);
    scene.refuses(scene.started("charge"), Why::TooEarly);
    scene.later(DEAD_AFTER_MS - 1);
    scene.refuses(scene.started("charge"), Why::TooEarly);
    scene.later(1);
    scene.opens("charge");
    assert_eq!(scene.step("charge").generation, 1);
    assert_eq!(scene.money(), (RESERVE, RESERVE));
}

#[test]
fn safe_and_concurrently_keyed_calls_are_sent_again_at_once() {
    for recovery in [Recovery::Safe, Recovery::KeyedConcurrent] {
        let scene = unknown(recovery);
        scene.accepts(scene.started("charge"));
    }
}

#[test]
fn what_is_sent_again_keeps_its_class() {
    let scene = unknown(Recovery::Safe);
    let milder =
        edit::permit(&scene.cast, scene.started("charge"), |permit| permit.effect = Effect::Read);
    scene.refuses(milder, Why::Permit("effect"));
    let other = edit::permit(&scene.cast, scene.started("charge"), |permit| {
        permit.recovery = Recovery::Keyed;
    });
    scene.refuses(other, Why::Permit("recovery"));
    scene.accepts(scene.started("charge"));
}

#[test]
fn sending_again_is_settling_and_goes_on_while_the_trajectory_stops() {
    let nodes: &[Node<'_>] = &[("charge", StepKind::Call, &[]), ("other", StepKind::Call, &[])];
    let mut scene = Scene::job(nodes).calling(Effect::External, Recovery::Safe);
    scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    scene.does(Act::FailUnstarted, "other");
    scene.does(Act::RequestCancel, "");
    scene.calls("charge");
}

#[test]
fn a_refused_rerun_leaves_only_the_doubt() {
    let mut scene = unknown(Recovery::Safe);
    scene.does(Act::Reject, "charge");
    assert_eq!(scene.status("charge"), "of unknown outcome");
    scene.refuses(scene.started("charge"), Why::RecoveryRefused);
    let open = "of unknown outcome";
    for act in [Act::Reject, Act::Escalate, Act::CommitSkipped, Act::FailUnstarted] {
        scene.refuses(scene.body(act, "charge"), stands("charge", open));
    }
    scene.refuses(scene.body(Act::EndFailed, ""), Why::NotQuiet);
    assert_eq!(scene.money(), (RESERVE, NOTHING));
    scene.does(Act::Doubt, "charge");
    assert_eq!(scene.status("charge"), "in doubt");
}

#[test]
fn an_unknown_call_neither_commits_nor_fails_by_itself() {
    let scene = unknown(Recovery::Safe);
    let open = || stands("charge", "of unknown outcome");
    scene.refuses(scene.body(Act::CommitEffect, "charge"), open());
    scene.refuses(scene.body(Act::Fail(Failed::RetryableDidNotHappen), "charge"), open());
    scene.refuses(scene.body(Act::FailUnstarted, "charge"), open());
}

#[test]
fn a_doubt_is_about_the_open_start() {
    let mut scene = Scene::session();
    scene.opens("charge");
    let body = scene.body(Act::Doubt, "charge");
    let Body::InDoubt(mut other) = body.clone() else { panic!() };
    other.started = nowhere();
    scene.refuses(Body::InDoubt(other), Why::OtherStarted);
    let Body::InDoubt(mut other) = body.clone() else { panic!() };
    other.step = step("idle");
    scene.refuses(Body::InDoubt(other), stands("idle", "idle"));
    scene.adds(body.clone());
    scene.refuses(body, stands("charge", "in doubt"));
}

#[test]
fn a_doubt_keeps_the_money_once() {
    let mut open = Scene::session().calling(Effect::External, Recovery::Safe);
    open.opens("charge");
    open.does(Act::Doubt, "charge");
    assert_eq!(open.money(), (RESERVE, NOTHING));

    let mut unknown = unknown(Recovery::Safe);
    assert_eq!(unknown.money(), (RESERVE, NOTHING));
    unknown.does(Act::Doubt, "charge");
    assert_eq!(unknown.money(), (RESERVE, NOTHING));
}

#[test]
fn nobody_starts_what_is_in_doubt() {
    let mut scene = in_doubt(Recovery::Safe);
    scene.later(DEAD_AFTER_MS);
    scene.refuses(scene.started("charge"), stands("charge", "in doubt"));
    scene.refuses(scene.body(Act::Reject, "charge"), stands("charge", "in doubt"));
}

#[test]
fn it_did_not_happen_is_believed_only_once_it_can_not_land() {
    for recovery in [Recovery::Keyed, Recovery::Probe, Recovery::Never] {
        let mut scene = in_doubt(recovery);
        scene.later(DEAD_AFTER_MS - 1);
        scene.refuses(scene.body(Act::ResolveDidNotHappen, "charge"), Why::TooEarly);
        scene.accepts(scene.body(Act::ResolveForced, "charge"));
        scene.later(1);
        scene.does(Act::ResolveDidNotHappen, "charge");
        assert_eq!(scene.status("charge"), "idle");
        assert_eq!(scene.step("charge").generation, 2);
        assert_eq!(scene.money(), (NOTHING, NOTHING));
        scene.opens("charge");
    }
    for recovery in [Recovery::Safe, Recovery::KeyedConcurrent] {
        let scene = in_doubt(recovery);
        scene.accepts(scene.body(Act::ResolveDidNotHappen, "charge"));
    }
}

#[test]
fn it_happened_settles_cost_and_world() {
    let mut scene = in_doubt(Recovery::Never);
    let resolution = scene.does(Act::ResolveHappened, "charge");
    assert_eq!(scene.status("charge"), "done");
    assert_eq!(scene.money(), (COST, NOTHING));
    let refund = ResourceRef { id: "charge".into(), type_: "refund".parse().unwrap() };
    assert!(scene.state().world().get(&refund).is_some());
    assert_eq!(scene.state().last_commit(), Some(resolution));
    scene.refuses(scene.started("charge"), stands("charge", "done"));
}

#[test]
fn what_happened_must_fit_the_world() {
    let scene = in_doubt(Recovery::Never);
    let body = scene.body(Act::ResolveHappened, "charge");
    let refund = ResourceRef { id: "charge".into(), type_: "refund".parse().unwrap() };
    let body = edit::resolution(&scene.cast, body, |statement| {
        let ResolutionVerdict::Happened(Settlement { delta, .. }) = &mut statement.verdict else {
            panic!()
        };
        let change = delta.0[0].clone();
        delta.0.push(change);
    });
    scene.refuses(body, Why::Delta(DeltaError::Twice(refund)));
}

#[test]
fn giving_up_fails_the_step_and_keeps_the_money() {
    let mut scene = Scene::job(&[("charge", StepKind::Call, &[])]);
    scene.opens("charge");
    scene.does(Act::Doubt, "charge");
    scene.does(Act::ResolveGiveUp, "charge");
    assert_eq!((scene.status("charge"), scene.state().name()), ("failed", "failing"));
    assert_eq!(scene.money(), (RESERVE, NOTHING));
}

#[test]
fn a_resolution_answers_its_doubt_and_no_other() {
    let mut scene = in_doubt(Recovery::Safe);
    for act in [Act::ResolveHappened, Act::ResolveForced, Act::ResolveGiveUp] {
        let body = edit::resolution(&scene.cast, scene.body(act, "charge"), |statement| {
            statement.doubt = nowhere();
        });
        scene.refuses(body, Why::OtherDoubt);
    }
    let old = scene.body(Act::ResolveGiveUp, "charge");
    scene.does(Act::ResolveForced, "charge");
    scene.refuses(old.clone(), stands("charge", "idle"));
    // The same step in doubt again is another doubt.
    scene.opens("charge");
    scene.does(Act::Doubt, "charge");
    scene.refuses(old, Why::OtherDoubt);
}

/// A late report of success about this start.
fn late(scene: &Scene, started: gesta_core::digest::EntryId) -> Body {
    let settlement = Settlement {
        cost: COST,
        delta: gesta_core::world::Delta::default(),
        observation: gesta_core::content::Content::Inline(gesta_core::json::Canon::null()),
    };
    let result = CallResult::Succeeded(settlement);
    let on = step("charge");
    let report = scene.cast.report(scene.state(), &on, started, result, scene.now).unwrap();
    Body::LateEffect(Box::new(gesta_core::body::LateEffect { report, step: on }))
}

#[test]
fn an_effect_is_late_only_when_its_start_is_closed_without_it() {
    let mut scene = Scene::session();
    scene.refuses(late(&scene, nowhere()), Why::NotClosed);
    let started = scene.opens("charge");
    scene.refuses(late(&scene, nowhere()), Why::NotClosed);
    scene.refuses(late(&scene, started), Why::NotClosed);
    for closing in [
        Act::CommitEffect,
        Act::Fail(Failed::PermanentHappened),
        Act::Fail(Failed::CompensatableHappened),
        Act::Doubt,
    ] {
        let closed = scene.accepts(scene.body(closing, "charge"));
        closed.refuses(late(&closed, started), Why::NotClosed);
    }
    for closing in [
        Act::Fail(Failed::NotDispatched),
        Act::Fail(Failed::RetryableDidNotHappen),
        Act::Fail(Failed::PermanentDidNotHappen),
    ] {
        let mut closed = scene.accepts(scene.body(closing, "charge"));
        let body = late(&closed, started);
        closed.adds(body.clone());
        assert_eq!(closed.money(), (COST, NOTHING));
        closed.refuses(body, Why::NotClosed);
    }
}

#[test]
fn a_doubt_denied_or_given_up_can_still_turn_out_late() {
    for act in [Act::ResolveForced, Act::ResolveGiveUp] {
        let mut scene = Scene::session();
        let started = scene.opens("charge");
        scene.does(Act::Doubt, "charge");
        scene.does(act, "charge");
        scene.accepts(late(&scene, started));
    }
    let mut scene = Scene::session();
    let started = scene.opens("charge");
    scene.does(Act::Doubt, "charge");
    scene.does(Act::ResolveHappened, "charge");
    scene.refuses(late(&scene, started), Why::NotClosed);
}

/// What was kept because nobody knew gives way to what it cost, however it was closed without knowing; and
/// nothing but that is given back.
#[test]
fn what_arrives_late_counts_once_at_what_it_cost() {
    let ends: [(Recovery, &[Act]); 4] = [
        (Recovery::Never, &[Act::Doubt, Act::ResolveGiveUp]),
        (Recovery::Safe, &[Act::Fail(Failed::RetryableUnknown), Act::Doubt, Act::ResolveGiveUp]),
        (Recovery::Safe, &[Act::Fail(Failed::RetryableUnknown)]),
        (Recovery::Never, &[Act::Doubt, Act::ResolveForced]),
    ];
    for (recovery, acts) in ends {
        let mut scene = Scene::session().calling(Effect::External, recovery);
        scene.calls("other");
        let started = scene.opens("charge");
        for act in acts {
            scene.does(*act, "charge");
        }
        let arrived = late(&scene, started);
        scene.adds(arrived);
        assert_eq!(scene.money(), (COST.plus(COST), NOTHING), "{acts:?}");
    }
    let mut read = Scene::session().calling(Effect::Read, Recovery::Safe);
    let started = read.opens("charge");
    read.does(Act::Fail(Failed::PermanentUnknown), "charge");
    assert_eq!(read.money(), (RESERVE, NOTHING));
    let arrived = late(&read, started);
    read.adds(arrived);
    assert_eq!(read.money(), (COST, NOTHING));
}

/// Its effect has arrived while it was not known whether it happened; whatever is found out then adds
/// nothing, and takes nothing from what others have spent.
#[test]
fn finding_out_what_has_arrived_counts_nothing_more() {
    for act in [Act::ResolveHappened, Act::ResolveForced, Act::ResolveGiveUp] {
        let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
        scene.calls("other");
        let started = scene.opens("charge");
        scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
        let arrived = late(&scene, started);
        scene.adds(arrived);
        scene.does(Act::Doubt, "charge");
        scene.does(act, "charge");
        assert_eq!(scene.money(), (COST.plus(COST), NOTHING), "{act:?}");
    }
}

/// Each send keeps its own reserve, and each late effect gives way for its own. A send that was turned away
/// has none: finding out about the step is finding out about the send before it.
#[test]
fn each_send_gives_back_what_was_kept_for_it() {
    let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
    let first = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    let second = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    assert_eq!(scene.money(), (RESERVE.plus(RESERVE), NOTHING));
    let arrived = late(&scene, first);
    scene.adds(arrived);
    assert_eq!(scene.money(), (RESERVE.plus(COST), NOTHING));
    let arrived = late(&scene, second);
    scene.adds(arrived);
    assert_eq!(scene.money(), (COST.plus(COST), NOTHING));

    let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
    let first = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    scene.opens("charge");
    scene.does(Act::Fail(Failed::NotDispatched), "charge");
    scene.does(Act::Doubt, "charge");
    assert_eq!(scene.money(), (RESERVE, NOTHING));
    let denied = scene.accepts(scene.body(Act::ResolveForced, "charge"));
    assert_eq!(denied.money(), (NOTHING, NOTHING));
    let mut given_up = scene.accepts(scene.body(Act::ResolveGiveUp, "charge"));
    let arrived = late(&given_up, first);
    given_up.adds(arrived);
    assert_eq!(given_up.money(), (COST, NOTHING));
}

/// Programs that wrote version 1 first counted both. What they let in under their count fits under ours.
#[test]
fn what_is_spent_is_never_more_than_it_once_counted() {
    let mut scene = Scene::session();
    let started = scene.opens("charge");
    scene.does(Act::Doubt, "charge");
    scene.does(Act::ResolveGiveUp, "charge");
    assert_eq!(scene.state().spent_at_most(), scene.state().spent());
    let arrived = late(&scene, started);
    scene.adds(arrived);
    assert_eq!(scene.state().spent_at_most(), RESERVE.plus(COST));
    assert_eq!(scene.state().spent(), COST);
}

#[test]
fn what_its_executor_reported_does_not_arrive_once_more() {
    for act in [Act::ResolveForced, Act::ResolveGiveUp] {
        let mut scene = Scene::session();
        let started = scene.opens("charge");
        scene.does(Act::Doubt, "charge");
        let reported = edit::resolution(&scene.cast, scene.body(act, "charge"), |statement| {
            statement.source = ResolvedBy::Inbox;
        });
        scene.adds(reported);
        scene.refuses(late(&scene, started), Why::NotClosed);
    }
}

#[test]
fn each_start_of_a_step_has_its_own_late_effect() {
    let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
    let first = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    let second = scene.opens("charge");
    scene.accepts(late(&scene, first));
    scene.refuses(late(&scene, second), Why::NotClosed);
    scene.does(Act::CommitEffect, "charge");
    scene.refuses(late(&scene, second), Why::NotClosed);
    let late_first = late(&scene, first);
    scene.adds(late_first.clone());
    scene.refuses(late_first, Why::NotClosed);
}

#[test]
fn resolving_one_start_does_not_account_for_another() {
    let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
    let first = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "charge");
    let second = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    let arrived = late(&scene, second);
    scene.adds(arrived);
    scene.does(Act::Doubt, "charge");
    scene.does(Act::ResolveHappened, "charge");
    scene.refuses(late(&scene, second), Why::NotClosed);
    scene.accepts(late(&scene, first));
}

#[test]
fn the_end_does_not_keep_an_effect_from_arriving() {
    let mut scene = Scene::session();
    let started = scene.opens("charge");
    scene.does(Act::Fail(Failed::PermanentDidNotHappen), "charge");
    scene.does(Act::EndFailed, "");
    let body = late(&scene, started);
    scene.adds(body.clone());
    assert_eq!(scene.money(), (COST, NOTHING));
    assert!(scene.state().ended().is_some());
    scene.refuses(body, Why::NotClosed);
}

#[test]
fn a_late_report_is_about_this_step_of_this_trajectory() {
    let mut scene = Scene::session();
    let started = scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "charge");
    let body = late(&scene, started);
    let elsewhere = edit::report(&scene.cast, body.clone(), |report| {
        report.trajectory = TrajectoryId::from_bytes([9; 16]);
    });
    scene.refuses(elsewhere, Why::Evidence);
    let other = edit::report(&scene.cast, body, |report| report.step = step("other"));
    scene.refuses(other, Why::Evidence);
}
