//! Closing a call as done: what it closes, what it may say, who may say it.

use gesta_core::body::Origin;
use gesta_core::content::Content;
use gesta_core::digest::{Digest, PermitId, ProposalId, ReceiptId, WritId};
use gesta_core::document::{CallResult, EffectReport, Outcome, Receipt, Recovery, Settlement};
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::world::{Change, Delta, DeltaError, ResourceRef};
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{COST, NOTHING, RESERVE, Scene, nowhere, stands, step};

/// A session with one commit behind it and `charge` open.
fn open() -> Scene {
    let mut scene = Scene::session();
    scene.calls("before");
    scene.opens("charge");
    scene
}

/// The same, reclaimed: another attempt must close the call.
fn reclaimed() -> Scene {
    let mut scene = open();
    scene.claims();
    scene
}

#[test]
fn a_commit_closes_the_open_start_once() {
    let mut scene = open();
    let commit = scene.body(Act::CommitEffect, "charge");
    let mut other = commit.clone();
    let Body::Commit(body) = &mut other else { panic!() };
    let Origin::Effect { started, .. } = &mut body.origin else { panic!() };
    *started = nowhere();
    scene.refuses(other, Why::OtherStarted);
    scene.adds(commit.clone());
    // The same start again, brought up to date in every other respect.
    let Body::Commit(mut again) = commit else { panic!() };
    again.parent_commit = scene.state().last_commit();
    scene.refuses(Body::Commit(again), stands("charge", "done"));
}

#[test]
fn what_has_failed_is_not_committed() {
    for (failed, status) in [
        (Failed::RetryableDidNotHappen, "idle"),
        (Failed::NotDispatched, "idle"),
        (Failed::PermanentDidNotHappen, "failed"),
        (Failed::PermanentHappened, "failed"),
        (Failed::CompensatableHappened, "failed"),
    ] {
        let mut scene = open();
        let commit = scene.body(Act::CommitEffect, "charge");
        scene.does(Act::Fail(failed), "charge");
        scene.refuses(commit, stands("charge", status));
    }
    let mut scene = open();
    let commit = scene.body(Act::CommitEffect, "charge");
    scene.does(Act::Doubt, "charge");
    scene.refuses(commit, stands("charge", "in doubt"));
}

#[test]
fn an_older_start_of_the_step_is_not_committed() {
    let mut scene = open();
    let first = scene.body(Act::CommitEffect, "charge");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "charge");
    scene.opens("charge");
    scene.refuses(first, Why::OtherStarted);
}

#[test]
fn the_outcome_follows_the_effect() {
    use Outcome::{
        CompensatableFailure, Compensated, PermanentFailure, Pure, RetryableFailure,
        SideEffectCommitted,
    };
    for (effect, outcome) in [
        (Effect::Read, Pure),
        (Effect::Write, SideEffectCommitted),
        (Effect::External, SideEffectCommitted),
        (Effect::Irreversible, SideEffectCommitted),
    ] {
        let mut scene = Scene::session().calling(effect, Recovery::Never);
        scene.opens("charge");
        for claimed in [
            Pure,
            SideEffectCommitted,
            RetryableFailure,
            PermanentFailure,
            CompensatableFailure,
            Compensated,
        ] {
            let body = scene.body(Act::CommitEffect, "charge");
            let body = edit::commit(&scene.cast, body, |commit| commit.outcome = claimed);
            if claimed == outcome {
                scene.accepts(body);
            } else {
                scene.refuses(body, Why::Outcome);
            }
        }
    }
}

#[test]
fn a_commit_names_its_proposal_its_writ_and_the_commit_before() {
    let scene = open();
    let check = |edit: fn(&mut gesta_core::body::Commit), why: Why| {
        let body = scene.body(Act::CommitEffect, "charge");
        scene.refuses(edit::commit(&scene.cast, body, edit), why);
    };
    check(|commit| commit.parent_commit = None, Why::ParentCommit);
    check(|commit| commit.parent_commit = Some(nowhere()), Why::ParentCommit);
    check(|commit| commit.writ = WritId::new(Digest::of(b"other")), Why::OtherWrit);
    check(
        |commit| {
            let Origin::Effect { proposal, .. } = &mut commit.origin else { panic!() };
            *proposal = ProposalId::new(Digest::of(b"other"));
        },
        Why::Frozen(step("charge")),
    );
}

#[test]
fn every_field_of_the_receipt_binds() {
    let scene = open();
    let check = |field: &'static str, edit: fn(&mut Receipt)| {
        let body = scene.body(Act::CommitEffect, "charge");
        scene.refuses(edit::receipt(&scene.cast, body, edit), Why::Receipt(field));
        let body = scene.body(Act::Fail(Failed::PermanentHappened), "charge");
        scene.refuses(edit::receipt(&scene.cast, body, edit), Why::Receipt(field));
    };
    check("trajectory", |receipt| receipt.trajectory = TrajectoryId::from_bytes([9; 16]));
    check("step", |receipt| receipt.step = step("other"));
    check("permit", |receipt| receipt.permit = None);
    check("permit", |receipt| receipt.permit = Some(PermitId::new(Digest::of(b"other"))));
    check("prev", |receipt| receipt.prev = None);
    check("prev", |receipt| receipt.prev = Some(ReceiptId::new(Digest::of(b"other"))));
    check("lamport", |receipt| receipt.lamport -= 1);
    check("lamport", |receipt| receipt.lamport += 1);
    check("result", |receipt| {
        receipt.result = gesta_core::document::ReceiptResult::Refused {
            reason: gesta_core::document::Reason::PolicyDenied,
        };
    });
    check("cost", |receipt| receipt.cost = NOTHING);
}

#[test]
fn receipts_are_counted_and_linked_whatever_they_say() {
    let mut scene = Scene::session();
    let mut prev = None;
    for (lamport, act) in [
        (1, Act::CommitEffect),
        (2, Act::Fail(Failed::PermanentHappened)),
        (3, Act::FailUnstarted),
        (4, Act::Reject),
        (5, Act::CommitEffect),
    ] {
        let on = format!("call-{lamport}");
        if !matches!(act, Act::FailUnstarted | Act::Reject) {
            scene.opens(&on);
        }
        let body = scene.body(act, &on);
        let body = edit::receipt(&scene.cast, body, |receipt| {
            receipt.lamport = lamport;
            receipt.prev = prev;
        });
        scene.adds(body);
        let (newest, number) = scene.state().last_receipt();
        assert_eq!(number, lamport);
        assert_ne!(newest, prev);
        prev = newest;
    }
}

#[test]
fn a_receipt_covers_what_was_changed_and_returned() {
    let scene = open();
    let body = || {
        let Body::Commit(commit) = scene.body(Act::CommitEffect, "charge") else { panic!() };
        commit
    };
    let mut other = body();
    other.observation = Content::Inline(Canon::parse(b"1").unwrap());
    scene.refuses(Body::Commit(other), Why::Receipt("result"));
    let mut other = body();
    other.delta = Delta::default();
    scene.refuses(Body::Commit(other), Why::Receipt("result"));
    let mut other = body();
    other.cost = NOTHING;
    scene.refuses(Body::Commit(other), Why::Receipt("cost"));
}

#[test]
fn another_attempt_needs_the_executors_report() {
    let mut scene = reclaimed();
    let body = scene.body(Act::CommitEffect, "charge");
    let bare = edit::commit(&scene.cast, body.clone(), |commit| {
        let Origin::Effect { evidence, .. } = &mut commit.origin else { panic!() };
        assert!(evidence.take().is_some());
    });
    scene.refuses(bare, Why::NoEvidence);
    for failed in [Failed::PermanentHappened, Failed::RetryableDidNotHappen] {
        let failure = scene.body(Act::Fail(failed), "charge");
        let bare = edit::failure(&scene.cast, failure.clone(), |failure| failure.evidence = None);
        scene.refuses(bare, Why::NoEvidence);
        scene.accepts(failure);
    }
    scene.adds(body);
    assert_eq!(scene.status("charge"), "done");
}

#[test]
fn a_report_about_something_else_proves_nothing() {
    let scene = reclaimed();
    let check = |edit: fn(&mut EffectReport)| {
        let commit = scene.body(Act::CommitEffect, "charge");
        scene.refuses(edit::report(&scene.cast, commit, edit), Why::Evidence);
        let failure = scene.body(Act::Fail(Failed::PermanentHappened), "charge");
        scene.refuses(edit::report(&scene.cast, failure, edit), Why::Evidence);
    };
    check(|report| report.trajectory = TrajectoryId::from_bytes([9; 16]));
    check(|report| report.step = step("other"));
    check(|report| report.started = nowhere());
    check(|report| match &mut report.result {
        CallResult::Succeeded(Settlement { cost, .. }) | CallResult::Failed { cost, .. } => {
            *cost = RESERVE;
        }
    });
    check(|report| match &mut report.result {
        CallResult::Succeeded(settlement) => {
            settlement.observation = Content::Inline(Canon::null());
        }
        CallResult::Failed { error, .. } => error.code = "other".to_owned(),
    });
    let success = scene.body(Act::CommitEffect, "charge");
    let failure = edit::report(&scene.cast, success, |report| {
        report.result = CallResult::Failed {
            certainty: gesta_core::document::Certainty::DidNotHappen,
            cost: COST,
            error: gesta_core::document::Failing { code: String::new(), message: String::new() },
            retryable: false,
        };
    });
    scene.refuses(failure, Why::Evidence);
}

#[test]
fn a_delta_that_does_not_apply_changes_nothing() {
    let scene = open();
    let there = ResourceRef { id: "before".into(), type_: "refund".parse().unwrap() };
    let gone = ResourceRef { id: "gone".into(), type_: "refund".parse().unwrap() };
    let value = Canon::parse(b"1").unwrap();
    let fits = Change::Create { external: None, resource: gone.clone(), value };
    for (change, error) in [
        (
            Change::Create { external: None, resource: there.clone(), value: Canon::null() },
            DeltaError::Exists(there.clone()),
        ),
        (
            Change::Retract { expected: 2, resource: there.clone() },
            DeltaError::Version { resource: there, expected: 2, actual: 1 },
        ),
        (Change::Retract { expected: 1, resource: gone.clone() }, DeltaError::Twice(gone)),
    ] {
        let body = scene.body(Act::CommitEffect, "charge");
        let body = edit::commit(&scene.cast, body, |commit| {
            commit.delta = Delta(vec![fits.clone(), change]);
        });
        scene.refuses(body, Why::Delta(error));
    }
}

#[test]
fn a_commit_settles_what_was_reserved() {
    let mut scene = Scene::session();
    scene.opens("charge");
    assert_eq!(scene.money(), (NOTHING, RESERVE));
    scene.does(Act::CommitEffect, "charge");
    assert_eq!(scene.money(), (COST, NOTHING));
}

#[test]
fn a_committed_step_never_runs_again_whatever_its_outcome() {
    let mut read = Scene::session().calling(Effect::Read, Recovery::Safe);
    read.calls("charge");
    let mut write = Scene::session();
    write.calls("charge");
    let mut computed = Scene::session();
    computed.does(Act::CommitComputed, "charge");
    let mut skipped = Scene::session();
    skipped.does(Act::CommitSkipped, "charge");
    for mut scene in [read, write, computed, skipped] {
        scene.claims();
        let acts = [
            Act::Escalate,
            Act::Reject,
            Act::CommitComputed,
            Act::CommitSkipped,
            Act::FailUnstarted,
            Act::Wait,
            Act::Delegate,
            Act::Confirm,
        ];
        scene.refuses(scene.started("charge"), stands("charge", "done"));
        for act in acts {
            let body = scene.body(act, "charge");
            let frozen = scene.step("charge").frozen.is_some()
                && matches!(act, Act::CommitComputed | Act::Wait | Act::Delegate);
            let why = if frozen { Why::Frozen(step("charge")) } else { stands("charge", "done") };
            scene.refuses(body, why);
        }
    }
}

#[test]
fn a_result_without_a_call_costs_nothing_and_is_pure() {
    let scene = Scene::session();
    for act in [Act::CommitComputed, Act::CommitSkipped] {
        let check = |edit: fn(&mut gesta_core::body::Commit), why: Why| {
            scene.refuses(edit::commit(&scene.cast, scene.body(act, "sum"), edit), why);
        };
        check(|commit| commit.cost = COST, Why::Cost);
        check(|commit| commit.outcome = Outcome::SideEffectCommitted, Why::Outcome);
        check(|commit| commit.outcome = Outcome::Compensated, Why::Outcome);
        check(|commit| commit.parent_commit = Some(nowhere()), Why::ParentCommit);
    }
    let skipped = || scene.body(Act::CommitSkipped, "sum");
    let returns = edit::commit(&scene.cast, skipped(), |commit| {
        commit.observation = Content::Inline(Canon::parse(b"1").unwrap());
    });
    scene.refuses(returns, Why::NotEmpty);
    let changes = edit::commit(&scene.cast, skipped(), |commit| {
        let resource = ResourceRef { id: "a".into(), type_: "b".parse().unwrap() };
        commit.delta =
            Delta(vec![Change::Create { external: None, resource, value: Canon::null() }]);
    });
    scene.refuses(changes, Why::NotEmpty);
}
