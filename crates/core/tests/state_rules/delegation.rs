//! Handing a task to a child: its id, its writ, and what is carved out for it.

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{
    DelegatedBy, Delivered, Delivery, End, OnChildFailure, OnStop, Purpose, StepKind,
};
use gesta_core::digest::{Digest, WritId};
use gesta_core::document::ApprovalVerdict;
use gesta_core::entry::{Body, Entry, Payload};
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::EPOCH;
use gesta_core::signed::Signed;
use gesta_core::state::{Act, AdmitError, Why};
use gesta_core::time::Window;
use gesta_core::writ::{Effect, ToolPattern, Widening, Writ};

use crate::edit;
use crate::scene::{ID, NOTHING, RESERVE, Scene, by_person, nowhere, stands, step};

const BUDGET: Budget =
    Budget { calls: Some(10), money_micros: Some(20_000), tokens: Some(300), wall_ms: Some(4_000) };
const WINDOW: Window = Window { not_before: EPOCH, not_after: EPOCH.plus(10_000) };

/// A session under a writ with a limit in every dimension.
fn limited() -> Scene {
    Scene::session_under(|writ| {
        writ.budget = BUDGET;
        writ.depth = 2;
        writ.effect = Effect::Write;
        writ.tools = vec!["pay.*".parse().unwrap(), "mail.send".parse().unwrap()];
        writ.window = WINDOW;
    })
}

/// A delegation whose child may make this many calls and nothing else.
fn carving(scene: &Scene, on: &str, calls: u64) -> Body {
    edit::child_writ(&scene.cast, scene.body(Act::Delegate, on), |writ| {
        writ.budget =
            Budget { calls: Some(calls), money_micros: Some(0), tokens: Some(0), wall_ms: Some(0) };
    })
}

fn calls(n: u64) -> Amounts {
    Amounts { calls: n, ..NOTHING }
}

#[test]
fn a_childs_id_follows_from_parent_step_and_generation() {
    let scene = Scene::session();
    for child in [
        TrajectoryId::from_bytes([9; 16]),
        TrajectoryId::of_child(ID, &step("ask"), 2),
        TrajectoryId::of_child(ID, &step("other"), 1),
        TrajectoryId::of_child(TrajectoryId::from_bytes([9; 16]), &step("ask"), 1),
    ] {
        let Body::Delegation(mut body) = scene.body(Act::Delegate, "ask") else { panic!() };
        body.child = child;
        scene.refuses(Body::Delegation(body), Why::ChildId);
    }
}

#[test]
fn a_childs_writ_widens_nothing() {
    let scene = limited();
    scene.accepts(scene.body(Act::Delegate, "ask"));
    let check = |edit: fn(&mut Writ), widening: Widening| {
        let body = edit::child_writ(&scene.cast, scene.body(Act::Delegate, "ask"), edit);
        scene.refuses(body, Why::Widening(widening));
    };
    check(|writ| writ.tools.push(ToolPattern::Any), Widening::Tool(ToolPattern::Any));
    check(
        |writ| writ.effect = Effect::External,
        Widening::Effect { child: Effect::External, parent: Effect::Write },
    );
    check(|writ| writ.budget.calls = Some(11), Widening::Budget("calls"));
    check(|writ| writ.budget.money_micros = Some(20_001), Widening::Budget("money_micros"));
    check(|writ| writ.budget.tokens = Some(301), Widening::Budget("tokens"));
    check(|writ| writ.budget.wall_ms = Some(4_001), Widening::Budget("wall_ms"));
    check(|writ| writ.budget.calls = None, Widening::Budget("calls"));
    check(|writ| writ.window.not_before.0 -= 1, Widening::Window);
    check(|writ| writ.window.not_after.0 += 1, Widening::Window);
    check(
        |writ| writ.tenant = "evil".parse().unwrap(),
        Widening::Tenant { child: "evil".parse().unwrap(), parent: "acme".parse().unwrap() },
    );
    check(|writ| writ.depth = 2, Widening::Depth { child: 2, parent: 2 });
    check(|writ| writ.parent = None, Widening::Parent);
    check(|writ| writ.parent = Some(WritId::new(Digest::of(b"other"))), Widening::Parent);
}

#[test]
fn only_the_holder_hands_out() {
    let scene = limited();
    let Body::Delegation(mut body) = scene.body(Act::Delegate, "ask") else { panic!() };
    let stranger = &scene.cast.approver;
    let writ = Writ { key: stranger.id(), ..body.writ.doc().clone() };
    body.writ = Signed::sign(writ, stranger).unwrap();
    let holder = scene.cast.agent.id();
    let widening = Widening::Signer { signer: stranger.id(), holder };
    scene.refuses(Body::Delegation(body), Why::Widening(widening));
}

#[test]
fn a_childs_writ_roots_the_child() {
    let scene = limited();
    for trajectory in [None, Some(ID)] {
        let body = edit::child_writ(&scene.cast, scene.body(Act::Delegate, "ask"), |writ| {
            writ.trajectory = trajectory;
        });
        scene.refuses(body, Why::WritElsewhere);
    }
}

/// What is handed out is what was decided on, by a decision about exactly that.
#[test]
fn what_is_handed_out_was_decided_on() {
    let scene = limited();
    let handed = || match scene.body(Act::Delegate, "ask") {
        Body::Delegation(body) => body,
        _ => panic!(),
    };
    let mut other = handed();
    other.task.job = "another".to_owned();
    scene.refuses(Body::Delegation(other), Why::Decision("proposal"));
    let mut denied = handed();
    let Body::PendingApproval(pending) = scene.body(Act::Escalate, "ask") else { panic!() };
    denied.decision = pending.decision;
    scene.refuses(Body::Delegation(denied), Why::Decision("proposal"));
    let check = |edit: fn(&mut Writ)| {
        let body = edit::child_writ(&scene.cast, Body::Delegation(handed()), edit);
        scene.refuses(body, Why::OtherTask);
    };
    check(|writ| writ.depth = 0);
    check(|writ| writ.effect = Effect::Read);
    check(|writ| writ.principal = "agent:other".parse().unwrap());
    check(|writ| drop(writ.tools.pop()));
    // Less than there is, where the task does not say how much.
    scene.accepts(carving(&scene, "ask", 1));
}

/// A task that people agreed to is handed out as they saw it, once, and no call is made instead.
#[test]
fn a_task_may_need_consent() {
    let mut scene = Scene::job(&[("ask", StepKind::Delegate, &[]), ("call", StepKind::Call, &[])]);
    scene.does(Act::Escalate, "ask");
    scene.refuses(scene.body(Act::Delegate, "ask"), stands("ask", "pending approval"));
    let yes = edit::approval(&scene, "ask", &scene.cast.approver, ApprovalVerdict::Approve);
    adds_by_person(&mut scene, yes);
    let Body::Delegation(mut other) = scene.body(Act::Delegate, "ask") else { panic!() };
    other.task.job = "another".to_owned();
    scene.refuses(Body::Delegation(other), Why::Frozen(step("ask")));
    scene.refuses(scene.body(Act::Start, "ask"), Why::WrongStepKind(step("ask")));
    scene.does(Act::Delegate, "ask");
    assert!(scene.step("ask").grant.is_none());
    // What stands for handing on is no tool: nothing else asks for it.
    let Body::PendingApproval(mut pending) = scene.body(Act::Escalate, "call") else { panic!() };
    pending.proposal.tool = "delegate.write".parse().unwrap();
    scene.refuses(Body::PendingApproval(pending), Why::WrongStepKind(step("call")));
}

/// A loop all of whose steps wait is nothing to do until something arrives.
#[test]
fn a_loop_rests_on_what_is_below_it() {
    let mut scene = Scene::job(&[("all", StepKind::Loop, &[]), ("other", StepKind::Wait, &[])]);
    let rest = |scene: &Scene| scene.body(Act::Wait, "all");
    scene.refuses(rest(&scene), Why::WrongStepKind(step("all")));
    scene.does(Act::Escalate, "all/0");
    assert!(runnable(&scene));
    scene.refuses(rest(&scene), Why::Restless);
    scene.does(Act::Wait, "other");
    assert!(runnable(&scene), "nobody has said that there are no more items");
    let Body::Waiting(mut waiting) = rest(&scene) else { panic!() };
    waiting.until = Some(scene.now);
    scene.refuses(Body::Waiting(waiting), Why::WrongStepKind(step("all")));
    let body = rest(&scene);
    scene.adds(body);
    assert!(!runnable(&scene));
    scene.refuses(rest(&scene), Why::Restless);
    let yes = edit::approval(&scene, "all/0", &scene.cast.approver, ApprovalVerdict::Approve);
    adds_by_person(&mut scene, yes);
    assert!(runnable(&scene));
    scene.does(Act::Start, "all/0");
}

#[test]
fn depth_zero_is_the_end_of_the_line() {
    let scene = Scene::session_under(|writ| writ.depth = 0);
    let widening = Widening::Depth { child: 0, parent: 0 };
    scene.refuses(scene.body(Act::Delegate, "ask"), Why::Widening(widening));
    let scene = Scene::session_under(|writ| writ.depth = 1);
    scene.accepts(scene.body(Act::Delegate, "ask"));
}

#[test]
fn a_childs_budget_is_carved_out_and_returns_with_its_end() {
    let mut scene = limited();
    let body = carving(&scene, "ask", 6);
    scene.adds(body);
    assert_eq!(scene.money(), (NOTHING, calls(6)));
    scene.refuses(carving(&scene, "more", 5), Why::Budget("calls"));
    scene.accepts(carving(&scene, "more", 4));
    scene.opens("charge");
    assert_eq!(scene.money(), (NOTHING, RESERVE.plus(calls(6))));
    scene.refuses(carving(&scene, "more", 3), Why::Budget("calls"));
    scene.accepts(carving(&scene, "more", 2));

    let Body::DelegationResult(mut result) = scene.body(Act::PullChild, "ask") else { panic!() };
    result.spent = calls(5);
    scene.adds(Body::DelegationResult(result));
    assert_eq!(scene.money(), (calls(5), RESERVE));
    scene.refuses(carving(&scene, "more", 4), Why::Budget("calls"));
    scene.accepts(carving(&scene, "more", 3));
}

#[test]
fn a_result_is_of_the_child_that_was_asked() {
    let mut scene = Scene::session();
    scene.does(Act::Delegate, "ask");
    let Body::DelegationResult(result) = scene.body(Act::PullChild, "ask") else { panic!() };
    let mut other = result.clone();
    other.child = TrajectoryId::from_bytes([9; 16]);
    scene.refuses(Body::DelegationResult(other), Why::OtherChild);
    let mut elsewhere = result.clone();
    elsewhere.step = step("idle");
    scene.refuses(Body::DelegationResult(elsewhere), stands("idle", "idle"));
    for end in [Act::Complete, Act::EndFailed] {
        scene.refuses(scene.body(end, ""), Why::NotQuiet);
    }
    let mut done = result.clone();
    done.end = End::Completed;
    scene.adds(Body::DelegationResult(done));
    assert_eq!(scene.status("ask"), "done");
    scene.refuses(Body::DelegationResult(result), stands("ask", "done"));
}

#[test]
fn a_child_that_did_not_complete_fails_its_step() {
    for end in [End::Failed, End::Cancelled] {
        let mut scene = Scene::job(&[("ask", StepKind::Delegate, &[])]);
        scene.does(Act::Delegate, "ask");
        let Body::DelegationResult(mut body) = scene.body(Act::PullChild, "ask") else { panic!() };
        body.end = end;
        body.spent = calls(3);
        scene.adds(Body::DelegationResult(body));
        assert_eq!((scene.status("ask"), scene.state().name()), ("failed", "failing"));
        assert_eq!(scene.money(), (calls(3), NOTHING));
    }
}

/// A guardian hands out what a writ says guardians may; whether its key is one is for the keyring.
#[test]
fn guardians_hand_out_what_says_so_and_nothing_else() {
    let scene = Scene::session_under(|writ| writ.guardians = true);
    let by_guardian = |scene: &Scene| {
        let Body::Delegation(mut body) = scene.body(Act::Delegate, "ask") else { panic!() };
        let guardian = &scene.cast.approver;
        let writ = Writ { key: guardian.id(), ..body.writ.doc().clone() };
        body.writ = Signed::sign(writ, guardian).unwrap();
        Body::Delegation(body)
    };
    scene.accepts(by_guardian(&scene));
    // A standing writ roots nothing, so no guardian makes jobs of it.
    let Body::Delegation(body) = by_guardian(&scene) else { panic!() };
    let standing = Writ { guardians: true, trajectory: None, ..body.writ.doc().clone() };
    let holder = standing.holder;
    let signer = scene.cast.approver.id();
    let child = Writ { depth: 0, parent: Some(body.writ.id()), ..body.writ.doc().clone() };
    let parent = Writ { depth: 5, ..standing };
    assert_eq!(child.narrows(&parent, body.writ.id()), Err(Widening::Signer { signer, holder }));
}

fn delegated(on_failure: OnChildFailure, on_stop: OnStop) -> Scene {
    let mut scene = Scene::job(&[("ask", StepKind::Delegate, &[]), ("other", StepKind::Wait, &[])]);
    let Body::Delegation(mut body) = scene.body(Act::Delegate, "ask") else { panic!() };
    (body.on_failure, body.on_stop) = (on_failure, on_stop);
    scene.adds(Body::Delegation(body));
    scene
}

fn delivered(what: Delivery) -> Body {
    let to = TrajectoryId::of_child(ID, &step("ask"), 1);
    let head = gesta_core::entry::Head { id: nowhere(), seq: 1 };
    Body::Delivered(Box::new(Delivered { head, step: Some(step("ask")), to, what }))
}

#[track_caller]
fn adds_by_person(scene: &mut Scene, body: Body) {
    scene.admission.push(scene.now, by_person(), body).unwrap();
}

fn runnable(scene: &Scene) -> bool {
    scene.state().summary().unwrap().runnable
}

/// Until the child is known to have begun, its parent wants a worker: whoever crashed in between is
/// followed by another.
#[test]
fn a_child_is_owed_its_beginning() {
    let mut scene = delegated(OnChildFailure::Fail, OnStop::Cancel);
    scene.does(Act::Wait, "other");
    assert!(runnable(&scene));
    assert_eq!(scene.state().owed().count(), 1);
    scene.refuses(delivered(Delivery::Cancel), Why::NotOwed);
    scene.refuses(delivered(Delivery::Result), Why::NotOwed);
    let Body::Delivered(mut other) = delivered(Delivery::Beginning) else { panic!() };
    other.to = ID;
    scene.refuses(Body::Delivered(other), Why::OtherChild);
    scene.refuses_by(by_person(), delivered(Delivery::Beginning), Why::OwnerOnly);
    scene.adds(delivered(Delivery::Beginning));
    assert!(!runnable(&scene));
    scene.refuses(delivered(Delivery::Beginning), Why::NotOwed);
}

/// A parent that stops wants a worker until its child was asked to stop too, unless it is waited for.
#[test]
fn a_child_is_told_that_its_parent_stops() {
    for (on_stop, told) in [(OnStop::Cancel, true), (OnStop::Wait, false)] {
        let mut scene = delegated(OnChildFailure::Fail, on_stop);
        scene.adds(delivered(Delivery::Beginning));
        scene.refuses(delivered(Delivery::Cancel), Why::NotOwed);
        scene.does(Act::RequestCancel, "");
        assert_eq!(runnable(&scene), told);
        if told {
            scene.adds(delivered(Delivery::Cancel));
            assert!(!runnable(&scene));
        }
        scene.refuses(delivered(Delivery::Cancel), Why::NotOwed);
        scene.does(Act::PullChild, "ask");
        assert!(runnable(&scene));
    }
}

/// Whoever drives the child brings its result, whether or not its parent has noted that it began.
#[test]
fn anybody_brings_a_result() {
    let mut scene = delegated(OnChildFailure::Fail, OnStop::Cancel);
    let body = scene.body(Act::PullChild, "ask");
    adds_by_person(&mut scene, body);
}

#[test]
fn a_step_that_takes_failures_is_done_with_one() {
    for end in [End::Failed, End::Cancelled] {
        let mut scene = delegated(OnChildFailure::Return, OnStop::Cancel);
        let Body::DelegationResult(mut body) = scene.body(Act::PullChild, "ask") else { panic!() };
        body.end = end;
        scene.adds(Body::DelegationResult(body));
        assert_eq!((scene.status("ask"), scene.state().name()), ("done", "live"));
    }
}

/// Whatever a writ that roots a trajectory allows is that trajectory's to hand on, by delegating. Another one that
/// begins below it can be read, as version 1 has it, and cannot be written.
#[test]
fn nobody_begins_on_what_another_trajectory_may() {
    let other = TrajectoryId::from_bytes([9; 16]);
    let scene = Scene::unbegun();
    let mut mandate = scene.cast.mandate(ID).unwrap();
    let leaf = mandate.writs.pop().unwrap();
    let (leaf, agent) = (leaf.doc(), &scene.cast.agent);
    let bound = Signed::sign(Writ { trajectory: Some(other), ..leaf.clone() }, agent).unwrap();
    let (depth, parent) = (leaf.depth - 1, Some(bound.id()));
    let leaf = Signed::sign(Writ { depth, parent, ..leaf.clone() }, agent).unwrap();
    mandate.writs.extend([bound, leaf]);
    let root = |by: Option<TrajectoryId>| {
        let mut mandate = mandate.clone();
        mandate.delegated_by =
            by.map(|trajectory| DelegatedBy { delegation: nowhere(), trajectory });
        scene.cast.root(Purpose::Session(mandate)).unwrap()
    };
    scene.accepts(root(Some(other)));
    for by in [None, Some(TrajectoryId::from_bytes([8; 16]))] {
        let mut admission = scene.state().admit();
        let refused = admission.push(EPOCH, by_person(), root(by)).unwrap_err();
        assert_eq!(refused, AdmitError::Uncarved(other));
        assert!(admission.state() == scene.state());
        let entry = Entry::new(Payload {
            at: EPOCH,
            body: root(by),
            by: by_person(),
            parent: None,
            seq: 0,
            trajectory: ID,
        });
        scene.state().clone().apply(&entry.unwrap()).unwrap();
    }
}

/// A child that has ended stays work for somebody until its parent has the result; then it is over.
#[test]
fn a_child_owes_its_parent_its_result() {
    let parent = TrajectoryId::from_bytes([9; 16]);
    let mut scene = Scene::unbegun();
    let mut mandate = scene.cast.mandate(ID).unwrap();
    mandate.delegated_by = Some(DelegatedBy { delegation: nowhere(), trajectory: parent });
    let root = scene.cast.root(Purpose::Session(mandate)).unwrap();
    scene.adds(root);
    scene.claims();
    let head = gesta_core::entry::Head { id: nowhere(), seq: 3 };
    let result = |to| {
        let what = Delivery::Result;
        Body::Delivered(Box::new(Delivered { head, step: None, to, what }))
    };
    scene.refuses(result(parent), Why::NotOwed);
    scene.does(Act::Complete, "");
    assert_eq!(scene.state().owes_parent(), Some(parent));
    let standing = |scene: &Scene| scene.state().summary().unwrap().status.as_str();
    assert_eq!((runnable(&scene), standing(&scene)), (true, "running"));
    scene.refuses(result(ID), Why::NotOwed);
    adds_by_person(&mut scene, result(parent));
    assert_eq!((runnable(&scene), standing(&scene)), (false, "completed"));
    scene.refuses(result(parent), Why::NotOwed);
}
