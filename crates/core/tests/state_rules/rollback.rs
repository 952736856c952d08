//! Undoing what was done: when, in which order, and when it is over.

use gesta_core::body::{CancelRequested, Compensation, StepKind, Undo};
use gesta_core::digest::EntryId;
use gesta_core::document::{Outcome, Recovery};
use gesta_core::entry::Body;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{Scene, nowhere, stands, step};

use StepKind::{Call, Compute};

/// A job in which `b` was committed before `a`, then `broken` failed.
struct Ruin {
    scene: Scene,
    a: EntryId,
    b: EntryId,
    sum: EntryId,
}

fn ruin() -> Ruin {
    let mut scene = Scene::job(&[
        ("a", Call, &[]),
        ("b", Call, &[]),
        ("sum", Compute, &[]),
        ("left", Call, &[]),
        ("broken", Call, &[]),
    ]);
    let b = scene.calls("b");
    let sum = scene.does(Act::CommitComputed, "sum");
    let a = scene.calls("a");
    scene.does(Act::FailUnstarted, "broken");
    Ruin { scene, a, b, sum }
}

/// The same, with the rollback of `a` and `b` open.
fn rolling() -> Ruin {
    let mut ruin = ruin();
    ruin.scene.adds(undo(&[("a", ruin.a), ("b", ruin.b)]));
    ruin
}

fn undo(commits: &[(&str, EntryId)]) -> Body {
    Body::Compensation(Box::new(Compensation {
        reason: "a later step failed".to_owned(),
        undo: commits.iter().map(|(on, commit)| Undo { commit: *commit, step: step(on) }).collect(),
    }))
}

fn cancel(compensate: bool) -> Body {
    Body::CancelRequested(Box::new(CancelRequested { compensate, reason: String::new() }))
}

#[test]
fn only_what_is_stopping_and_quiet_is_rolled_back() {
    let mut scene = Scene::job(&[("a", Call, &[]), ("b", Call, &[])]);
    let a = scene.calls("a");
    scene.refuses(undo(&[("a", a)]), Why::NothingToUndo);
    let started = scene.accepts(cancel(false));
    started.accepts(undo(&[("a", a)]));
    scene.opens("b");
    scene.adds(cancel(true));
    scene.refuses(undo(&[("a", a)]), Why::NotQuiet);
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "b");
    scene.adds(undo(&[("a", a)]));
    scene.refuses(undo(&[("a", a)]), Why::RollbackTwice);
}

#[test]
fn a_rollback_names_commits_with_effects_newest_first() {
    let Ruin { scene, a, b, sum } = ruin();
    scene.accepts(undo(&[("a", a), ("b", b)]));
    scene.accepts(undo(&[("b", b)]));
    scene.refuses(undo(&[("b", b), ("a", a)]), Why::UndoOrder(a));
    scene.refuses(undo(&[("a", a), ("a", a)]), Why::UndoOrder(a));
    scene.refuses(undo(&[("a", b)]), Why::UndoOrder(b));
    scene.refuses(undo(&[("a", nowhere())]), Why::UndoOrder(nowhere()));
    scene.refuses(undo(&[("sum", sum)]), Why::UndoOrder(sum));
    scene.refuses(undo(&[("left", a)]), Why::UndoOrder(a));
    scene.refuses(undo(&[("nowhere", a)]), Why::UndoOrder(a));
}

#[test]
fn nothing_is_undone_before_the_rollback() {
    let Ruin { scene, a, .. } = ruin();
    let body = edit::started(scene.started("a/undo"), |started| started.compensates = Some(a));
    scene.refuses(body, Why::Stopping);
    let mut live = Scene::job(&[("a", Call, &[])]);
    live.calls("a");
    live.refuses(live.started("a/undo"), Why::WrongStepKind(step("a/undo")));
}

#[test]
fn undos_follow_their_order_one_at_a_time() {
    let Ruin { mut scene, a, b, .. } = rolling();
    let started = |scene: &Scene, on: &str, commit: Option<EntryId>| {
        edit::started(scene.started(on), |started| started.compensates = commit)
    };
    scene.refuses(started(&scene, "b/undo", Some(b)), Why::UndoNext);
    scene.refuses(started(&scene, "a/undo", Some(b)), Why::UndoNext);
    scene.refuses(started(&scene, "a/undo", None), Why::UndoNext);
    scene.refuses(started(&scene, "left", None), Why::UndoNext);
    scene.refuses(started(&scene, "left", Some(a)), Why::UndoNext);
    scene.adds(started(&scene, "a/undo", Some(a)));
    scene.refuses(started(&scene, "b/undo", Some(b)), Why::UndoNext);
    scene.does(Act::CommitEffect, "a/undo");
    scene.refuses(started(&scene, "a/undo", Some(a)), Why::UndoNext);
    scene.adds(started(&scene, "b/undo", Some(b)));
}

#[test]
fn an_undo_that_is_done_is_compensated_and_nothing_else() {
    for effect in [Effect::Read, Effect::Write] {
        let mut scene = rolling().scene.calling(effect, Recovery::Never);
        scene.opens("a/undo");
        for outcome in [Outcome::Pure, Outcome::SideEffectCommitted] {
            let body = scene.body(Act::CommitEffect, "a/undo");
            let body = edit::commit(&scene.cast, body, |commit| commit.outcome = outcome);
            scene.refuses(body, Why::Outcome);
        }
        scene.does(Act::CommitEffect, "a/undo");
        assert_eq!(scene.status("a/undo"), "done");
    }
}

#[test]
fn the_end_waits_for_the_rollback() {
    let mut scene = rolling().scene;
    for on in ["a/undo", "b/undo"] {
        scene.refuses(scene.body(Act::EndFailed, ""), Why::RollbackLeft);
        scene.opens(on);
        scene.refuses(scene.body(Act::EndFailed, ""), Why::NotQuiet);
        scene.does(Act::CommitEffect, on);
    }
    scene.refuses(scene.body(Act::Complete, ""), Why::Failing);
    scene.does(Act::EndFailed, "");
}

#[test]
fn a_refused_or_failed_undo_parks_until_a_person_decides() {
    let unstarted = |act: Act| {
        let mut scene = rolling().scene;
        scene.does(act, "a/undo");
        scene
    };
    let failed = |failed: Failed| {
        let mut scene = rolling().scene;
        scene.opens("a/undo");
        scene.does(Act::Fail(failed), "a/undo");
        scene
    };
    for scene in [
        unstarted(Act::Reject),
        unstarted(Act::FailUnstarted),
        failed(Failed::PermanentDidNotHappen),
        failed(Failed::PermanentHappened),
        failed(Failed::CompensatableHappened),
    ] {
        assert_eq!(scene.status("a/undo"), "blocked");
        scene.refuses(scene.started("a/undo"), stands("a/undo", "blocked"));
        scene.refuses(scene.body(Act::EndFailed, ""), Why::NotQuiet);
        let other =
            edit::resolution(&scene.cast, scene.body(Act::ResolveGiveUp, "a/undo"), |statement| {
                statement.doubt = nowhere();
            });
        scene.refuses(other, Why::OtherDoubt);
        scene.refuses(scene.body(Act::ResolveHappened, "a/undo"), Why::Outcome);

        let mut retried = scene.accepts(scene.body(Act::ResolveDidNotHappen, "a/undo"));
        retried.calls("a/undo");
        retried.opens("b/undo");

        let mut given_up = scene.accepts(scene.body(Act::ResolveGiveUp, "a/undo"));
        assert_eq!(given_up.status("a/undo"), "failed");
        given_up.calls("b/undo");
        given_up.does(Act::EndFailed, "");
    }
}

#[test]
fn an_undo_whose_outcome_nobody_knows_is_in_doubt() {
    let mut scene = rolling().scene.calling(Effect::Read, Recovery::Never);
    scene.opens("a/undo");
    // An undo is never given up on quietly, not even one that calls itself a read.
    let body = scene.body(Act::Fail(Failed::PermanentUnknown), "a/undo");
    scene.refuses(body, Why::Outcome);
    scene.does(Act::Doubt, "a/undo");
    for act in [Act::ResolveHappened, Act::ResolveGiveUp] {
        let mut resolved = scene.accepts(scene.body(act, "a/undo"));
        resolved.opens("b/undo");
    }
    let mut again = scene.accepts(scene.body(Act::ResolveForced, "a/undo"));
    again.refuses(again.started("b/undo"), Why::UndoNext);
    again.opens("a/undo");
}

#[test]
fn an_undo_may_be_tried_again_and_put_before_people() {
    let mut scene = rolling().scene.calling(Effect::Write, Recovery::Safe);
    scene.does(Act::Escalate, "a/undo");
    scene.refuses(scene.started("a/undo"), stands("a/undo", "pending approval"));
    let yes = gesta_core::document::ApprovalVerdict::Approve;
    let approval = edit::approval(&scene, "a/undo", &scene.cast.approver, yes);
    scene.adds(approval);
    scene.opens("a/undo");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "a/undo");
    scene.opens("a/undo");
    scene.does(Act::Fail(Failed::RetryableUnknown), "a/undo");
    // Sent again, it still undoes the same commit.
    let body = edit::started(scene.started("a/undo"), |started| started.compensates = None);
    scene.refuses(body, Why::UndoNext);
    scene.calls("a/undo");
}

#[test]
fn cancelling_with_compensation_ends_after_a_rollback_only() {
    let mut scene = Scene::job(&[("a", Call, &[]), ("b", Call, &[])]);
    let a = scene.calls("a");
    let quick = scene.accepts(cancel(false));
    quick.accepts(quick.body(Act::EndCancelled, ""));
    scene.adds(cancel(true));
    scene.refuses(scene.body(Act::EndCancelled, ""), Why::RollbackLeft);
    scene.adds(undo(&[("a", a)]));
    scene.refuses(scene.body(Act::EndCancelled, ""), Why::RollbackLeft);
    scene.calls("a/undo");
    scene.does(Act::EndCancelled, "");
}

#[test]
fn another_rollback_may_follow_one_that_is_over() {
    let Ruin { mut scene, a, b, .. } = ruin();
    scene.adds(undo(&[("a", a)]));
    scene.refuses(undo(&[("b", b)]), Why::RollbackTwice);
    scene.calls("a/undo");
    assert!(scene.state().rolled_back());
    scene.refuses(undo(&[("a", a), ("b", b)]), Why::UndoOrder(a));
    scene.adds(undo(&[("b", b)]));
    scene.refuses(scene.body(Act::EndFailed, ""), Why::RollbackLeft);
    scene.calls("b/undo");
    scene.does(Act::EndFailed, "");
}
