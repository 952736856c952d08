//! Branches: where they may begin, what they inherit and what not.

use gesta_core::body::{Branch, BranchMode, Compensation, Origin, Signal, StepKind, Undo, Waiting};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, EntryId, Seed};
use gesta_core::document::Outcome;
use gesta_core::entry::{Body, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::sample::person;
use gesta_core::state::{Act, Failed, State, Why};

use crate::edit;
use crate::scene::{COST, NOTHING, Scene, nowhere, plan, stands, step};

use StepKind::{Call, Wait};

const OTHER: TrajectoryId = TrajectoryId::from_bytes([8; 16]);

/// A job whose newest entry commits `a`, with much else under way.
fn source() -> Scene {
    let mut scene = Scene::job(&[
        ("a", Call, &[]),
        ("b", Call, &["a"]),
        ("open", Call, &[]),
        ("asked", Call, &[]),
        ("pause", Wait, &[]),
    ]);
    scene.opens("open");
    scene.does(Act::Escalate, "asked");
    scene.adds(go());
    scene.calls("a");
    scene
}

fn go() -> Body {
    Body::Signal(Box::new(Signal {
        id: "one".parse().unwrap(),
        key: "go".parse().unwrap(),
        payload: Content::Inline(Canon::null()),
    }))
}

/// A `branch` into `into` at the source's newest entry.
fn branch_into(source: &Scene, into: TrajectoryId, mode: BranchMode) -> Branch {
    let head = source.state().head().unwrap();
    Branch {
        compiler: String::new(),
        mandate: source.cast.mandate(into).unwrap(),
        mode,
        note: String::new(),
        principal: person().unwrap(),
        seed: Seed::new(Digest::of(b"branch")),
        source: source.state().trajectory(),
        source_commit: head.id,
        source_head: head,
    }
}

/// A `branch` of a trajectory into itself, which has begun already.
pub(crate) fn branch_of(scene: &Scene) -> Body {
    Body::Branch(Box::new(branch_into(scene, scene.state().trajectory(), BranchMode::Ask)))
}

/// The scene of a branch that has not begun.
fn unbegun(source: &Scene, into: TrajectoryId) -> Scene {
    Scene { admission: source.state().branching(into).admit(), ..source.clone() }
}

/// A claimed branch of the source.
fn branched(source: &Scene, into: TrajectoryId, mode: BranchMode) -> Scene {
    let mut scene = unbegun(source, into);
    scene.adds(Body::Branch(Box::new(branch_into(source, into, mode))));
    scene.claims();
    scene
}

#[test]
fn a_branch_begins_at_the_very_commit_it_names() {
    let source = source();
    let scene = unbegun(&source, OTHER);
    let check = |edit: fn(&mut Branch)| {
        let mut body = branch_into(&source, OTHER, BranchMode::Ask);
        edit(&mut body);
        scene.refuses(Body::Branch(Box::new(body)), Why::Source);
    };
    check(|branch| branch.source = OTHER);
    check(|branch| branch.source_commit = nowhere());
    check(|branch| branch.source_head = Head { id: nowhere(), seq: branch.source_head.seq - 1 });
    check(|branch| branch.source_head.id = nowhere());
    let body = || Body::Branch(Box::new(branch_into(&source, OTHER, BranchMode::Ask)));
    scene.accepts(body());

    let unfolded = Scene { admission: State::new(OTHER).admit(), ..source.clone() };
    unfolded.refuses(body(), Why::Source);
    let mut beyond = source.clone();
    beyond.does(Act::Checkpoint, "");
    unbegun(&beyond, OTHER).refuses(body(), Why::Source);
}

#[test]
fn a_branch_begins_at_nothing_but_a_commit() {
    let mut source = source();
    for act in [Act::Checkpoint, Act::Attempt] {
        source.does(act, "");
        let body = Body::Branch(Box::new(branch_into(&source, OTHER, BranchMode::Ask)));
        unbegun(&source, OTHER).refuses(body, Why::Source);
    }
}

#[test]
fn a_branch_needs_a_writ_of_its_own() {
    let source = source();
    let mut body = branch_into(&source, OTHER, BranchMode::Ask);
    body.mandate = source.cast.mandate(crate::scene::ID).unwrap();
    unbegun(&source, OTHER).refuses(Body::Branch(Box::new(body)), Why::WritElsewhere);
}

#[test]
fn world_done_steps_and_plan_are_inherited() {
    let source = source();
    let mut scene = branched(&source, OTHER, BranchMode::Live);
    assert_eq!(scene.state().world(), source.state().world());
    assert_eq!(scene.state().world().len(), 1);
    assert_eq!(scene.state().last_commit(), source.state().last_commit());
    scene.refuses(scene.started("a"), stands("a", "done"));
    scene.refuses(scene.started("nowhere"), Why::NotPlanned(step("nowhere")));
    scene.refuses(scene.body(Act::Complete, ""), Why::StepsLeft);
    scene.calls("b");
}

#[test]
fn a_need_that_was_not_done_in_the_source_is_not_met() {
    let mut source = Scene::job(&[("a", Call, &[]), ("b", Call, &["a"]), ("c", Call, &["b"])]);
    source.calls("a");
    let mut scene = branched(&source, OTHER, BranchMode::Live);
    scene.refuses(scene.started("c"), Why::NotReady(step("c")));
    scene.calls("b");
    scene.calls("c");
    scene.does(Act::Complete, "");
}

#[test]
fn what_was_under_way_is_not_inherited() {
    let source = source();
    assert_eq!(source.state().spent(), COST);
    let mut scene = branched(&source, OTHER, BranchMode::Live);
    assert_eq!(scene.money(), (NOTHING, NOTHING));
    assert_eq!(scene.state().attempt(), 1);
    assert_eq!(scene.state().last_receipt(), (None, 0));
    for on in ["open", "asked"] {
        assert!(scene.state().step(&step(on)).is_none());
        // Not even its frozen proposal.
        let body = edit::proposal(&scene, scene.started(on), edit::other_args);
        scene.accepts(body);
    }
    // The source's signal stays in the source: its id is free here, and no wait takes it.
    scene.adds(Body::Waiting(Box::new(Waiting {
        key: Some("go".parse().unwrap()),
        step: step("pause"),
        until: None,
    })));
    assert_eq!(scene.state().woken_by(&step("pause")), None);
    scene.adds(go());
    assert!(scene.state().woken_by(&step("pause")).is_some());
}

#[test]
fn a_failing_source_has_sound_branches() {
    let mut source = Scene::job(&[("a", Call, &[]), ("b", Call, &[]), ("c", Call, &[])]);
    source.opens("a");
    source.does(Act::FailUnstarted, "b");
    source.does(Act::RequestCancel, "");
    source.does(Act::CommitEffect, "a");
    let mut scene = branched(&source, OTHER, BranchMode::Live);
    assert_eq!(scene.state().name(), "live");
    scene.calls("b");
}

#[test]
fn one_commit_has_many_branches_and_a_branch_has_branches() {
    let source = source();
    let third = TrajectoryId::from_bytes([9; 16]);
    let mut first = branched(&source, OTHER, BranchMode::Ask);
    let second = branched(&source, third, BranchMode::Ask);
    assert_eq!(first.state().world(), second.state().world());
    first.calls("b");
    let mut grandchild = branched(&first, TrajectoryId::from_bytes([10; 16]), BranchMode::Ask);
    grandchild.refuses(grandchild.started("b"), stands("b", "done"));
    grandchild.refuses(grandchild.started("a"), stands("a", "done"));
    grandchild.opens("open");
}

/// A result taken over from the source.
fn recorded(scene: &Scene, on: &str) -> Body {
    edit::commit(&scene.cast, scene.body(Act::CommitComputed, on), |commit| {
        commit.origin = Origin::RecordedFrom {
            commit: EntryId::new(Digest::of(b"source commit")),
            proposal: Box::new(scene.cast.proposal(&step(on)).unwrap()),
        };
    })
}

#[test]
fn only_a_recorded_branch_takes_results_over() {
    let source = source();
    for mode in [BranchMode::Ask, BranchMode::Live] {
        let scene = branched(&source, OTHER, mode);
        scene.refuses(recorded(&scene, "b"), Why::WrongKindOfTrajectory);
    }
    source.refuses(recorded(&source, "b"), Why::WrongKindOfTrajectory);
    let mut scene = branched(&source, OTHER, BranchMode::Recorded);
    scene.refuses(recorded(&scene, "pause"), Why::WrongStepKind(step("pause")));
    let edited = |edit: fn(&mut gesta_core::body::Commit)| {
        edit::commit(&scene.cast, recorded(&scene, "b"), edit)
    };
    scene.refuses(edited(|commit| commit.cost = COST), Why::Cost);
    for outcome in [Outcome::PermanentFailure, Outcome::Compensated, Outcome::RetryableFailure] {
        let body = edit::commit(&scene.cast, recorded(&scene, "b"), |commit| {
            commit.outcome = outcome;
        });
        scene.refuses(body, Why::Outcome);
    }
    scene.accepts(edited(|commit| commit.outcome = Outcome::SideEffectCommitted));
    scene.does(Act::CommitRecorded, "b");
    scene.refuses(scene.started("b"), stands("b", "done"));
}

#[test]
fn a_frozen_step_takes_over_only_its_own_proposal() {
    let mut scene = branched(&source(), OTHER, BranchMode::Recorded);
    scene.opens("b");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "b");
    scene.accepts(recorded(&scene, "b"));
    let Body::Commit(mut body) = recorded(&scene, "b") else { panic!() };
    let Origin::RecordedFrom { proposal, .. } = &mut body.origin else { panic!() };
    proposal.tool = "mail.send".parse().unwrap();
    scene.refuses(Body::Commit(body), Why::Frozen(step("b")));
}

#[test]
fn a_branch_may_plan_anew_before_it_is_claimed() {
    let source = source();
    let mut scene = unbegun(&source, OTHER);
    scene.adds(Body::Branch(Box::new(branch_into(&source, OTHER, BranchMode::Ask))));
    let anew = plan(&[("a", Call, &[]), ("z", Call, &["a"])]);
    let mut claimed = scene.clone();
    claimed.claims();
    claimed.refuses(anew.clone(), Why::PlanTwice);
    scene.adds(anew.clone());
    scene.refuses(anew, Why::PlanTwice);
    scene.claims();
    scene.refuses(scene.started("b"), Why::NotPlanned(step("b")));
    scene.calls("z");
    scene.does(Act::Complete, "");
}

#[test]
fn effects_of_the_source_do_not_arrive_late_in_a_branch() {
    use gesta_core::document::Recovery;
    let mut source = Scene::job(&[("a", Call, &[]), ("b", Call, &[])])
        .calling(gesta_core::writ::Effect::External, Recovery::Safe);
    let started = source.opens("a");
    source.does(Act::Fail(Failed::RetryableUnknown), "a");
    source.calls("a");
    let scene = branched(&source, OTHER, BranchMode::Live);
    scene.refuses(late(&scene, "a", started), Why::NotClosed);
}

#[test]
fn what_is_brought_from_elsewhere_is_told_to_nobody() {
    let mut scene = branched(&source(), OTHER, BranchMode::Live);
    let started = scene.opens("b");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "b");
    let late = late(&scene, "b", started);
    let notices = |quiet: bool| {
        let mut admission = scene.state().admit();
        if quiet {
            admission.say_nothing();
        }
        let by = gesta_core::sample::author(scene.state(), Act::LateEffect).unwrap();
        admission.push(scene.now, by, late.clone()).unwrap();
        admission.finish().unwrap().0.notices().len()
    };
    assert_eq!((notices(false), notices(true)), (1, 0));
}

#[test]
fn a_result_taken_over_accounts_for_no_call_of_its_own() {
    let mut scene = branched(&source(), OTHER, BranchMode::Recorded);
    let started = scene.opens("b");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "b");
    scene.accepts(late(&scene, "b", started));
    scene.does(Act::CommitRecorded, "b");
    scene.accepts(late(&scene, "b", started));
}

/// A late report that this start happened after all.
fn late(scene: &Scene, on: &str, started: EntryId) -> Body {
    use gesta_core::document::{CallResult, Certainty, Failing};
    let error = Failing { code: String::new(), message: String::new() };
    let result =
        CallResult::Failed { certainty: Certainty::Happened, cost: COST, error, retryable: false };
    let on = step(on);
    let report = scene.cast.report(scene.state(), &on, started, result, scene.now).unwrap();
    Body::LateEffect(Box::new(gesta_core::body::LateEffect { report, step: on }))
}

#[test]
fn a_branch_undoes_only_what_it_did_itself() {
    let source = source();
    let mut scene = branched(&source, OTHER, BranchMode::Recorded);
    let inherited = source.state().last_commit().unwrap();
    let taken_over = scene.adds(edit::commit(&scene.cast, recorded(&scene, "b"), |commit| {
        commit.outcome = Outcome::SideEffectCommitted;
    }));
    let own = scene.calls("open");
    scene.does(Act::FailUnstarted, "asked");
    let undo = |on: &str, commit| {
        Body::Compensation(Box::new(Compensation {
            reason: String::new(),
            undo: vec![Undo { commit, step: step(on) }],
        }))
    };
    scene.refuses(undo("a", inherited), Why::UndoOrder(inherited));
    scene.refuses(undo("b", taken_over), Why::UndoOrder(taken_over));
    scene.accepts(undo("open", own));
}
