//! The plan: its shape, and which step may do what and when.

use gesta_core::body::{Plan, Purpose, StepKind};
use gesta_core::digest::Digest;
use gesta_core::entry::Body;
use gesta_core::state::{Act, Failed, Why};

use crate::scene::{Node, Scene, plan, plan_steps, stands, step};

use StepKind::{Call, Compute, Delegate, Loop, Wait};

/// A job that has no plan yet.
fn unplanned() -> Scene {
    let mut scene = Scene::unbegun();
    let root = scene.root_under(|_| (), Purpose::Job);
    scene.adds(root);
    scene
}

#[track_caller]
fn refuses(nodes: &[Node<'_>], why: Why) {
    unplanned().refuses(plan(nodes), why);
}

#[test]
fn a_plan_is_well_formed() {
    let long = "n".repeat(100);
    unplanned().accepts(plan(&[("a", Call, &[]), ("b", Call, &["a"]), (&long, Call, &["a", "b"])]));

    refuses(&[("a", Call, &[]), ("a", Compute, &[])], Why::PlanDuplicate(step("a")));
    let order = |needs: &str| Why::PlanOrder { step: step("a"), needs: step(needs) };
    refuses(&[("a", Call, &["b"]), ("b", Call, &[])], order("b"));
    refuses(&[("a", Call, &["nowhere"])], order("nowhere"));
    refuses(&[("a", Call, &["a"])], order("a"));
    refuses(&[("a/b", Call, &[])], Why::PlanNode(step("a/b")));
    let too_long = "n".repeat(101);
    refuses(&[(&too_long, Call, &[])], Why::PlanNode(step(&too_long)));
}

#[test]
fn a_plan_carries_the_hash_of_its_steps() {
    let steps = plan_steps(&[("a", Call, &[])]);
    let forged = Plan { hash: Digest::of(b"another plan"), ..Plan::new(steps).unwrap() };
    unplanned().refuses(Body::Plan(Box::new(forged)), Why::PlanHash);
}

#[test]
fn a_plans_priority_and_tools_have_one_spelling() {
    let with = |priority, tools: &[&str]| {
        let tools = tools.iter().map(|tool| tool.parse().unwrap()).collect();
        let plan = Plan::new(plan_steps(&[("a", Call, &[])])).unwrap();
        Body::Plan(Box::new(Plan { priority, tools, ..plan }))
    };
    unplanned().refuses(with(101, &[]), Why::PlanPriority);
    unplanned().refuses(with(0, &["b", "a"]), Why::PlanTools);
    unplanned().refuses(with(0, &["a", "a"]), Why::PlanTools);
    let scene = unplanned();
    scene.accepts(with(100, &["a", "b"]));
}

#[test]
fn a_job_has_one_plan_and_a_session_none() {
    let nodes: &[Node<'_>] = &[("a", Call, &[])];
    Scene::job(nodes).refuses(plan(nodes), Why::PlanTwice);
    Scene::session().refuses(plan(nodes), Why::WrongKindOfTrajectory);
}

#[test]
fn nothing_happens_before_the_plan() {
    let mut scene = unplanned();
    scene.claims();
    scene.refuses(scene.body(Act::Start, "a"), Why::NoPlan);
    scene.refuses(scene.body(Act::CommitComputed, "a"), Why::NoPlan);
    scene.refuses(scene.body(Act::Complete, ""), Why::NoPlan);
}

#[test]
fn a_job_completes_only_when_every_node_is_done() {
    let mut scene = Scene::job(&[("a", Compute, &[]), ("b", Call, &[]), ("c", Compute, &["a"])]);
    for done in [Act::CommitComputed, Act::CommitSkipped] {
        scene.refuses(scene.body(Act::Complete, ""), Why::StepsLeft);
        scene.does(done, if done == Act::CommitComputed { "a" } else { "b" });
    }
    scene.refuses(scene.body(Act::Complete, ""), Why::StepsLeft);
    scene.does(Act::CommitComputed, "c");
    scene.does(Act::Complete, "");
}

#[test]
fn a_step_begins_only_when_everything_it_needs_is_done() {
    let mut scene = Scene::job(&[("a", Compute, &[]), ("b", Call, &[]), ("c", Call, &["a", "b"])]);
    let acts = [Act::Start, Act::Reject, Act::Escalate, Act::CommitSkipped, Act::FailUnstarted];
    let check = |scene: &Scene| {
        for act in acts {
            scene.refuses(scene.body(act, "c"), Why::NotReady(step("c")));
        }
    };
    check(&scene);
    scene.does(Act::CommitComputed, "a");
    check(&scene);
    scene.opens("b");
    check(&scene);
    scene.does(Act::CommitEffect, "b");
    scene.opens("c");
}

#[test]
fn a_need_named_twice_is_met_once() {
    let mut scene = Scene::job(&[("a", Compute, &[]), ("b", Call, &["a", "a"])]);
    scene.does(Act::CommitComputed, "a");
    scene.opens("b");
}

#[test]
fn a_step_does_what_its_kind_says() {
    let scene = Scene::job(&[
        ("call", Call, &[]),
        ("compute", Compute, &[]),
        ("wait", Wait, &[]),
        ("delegate", Delegate, &[]),
        ("loop", Loop, &[]),
    ]);
    let table: &[(Act, &[&str])] = &[
        (Act::Start, &["call"]),
        (Act::Escalate, &["call", "delegate"]),
        (Act::Reject, &["call", "delegate"]),
        (Act::CommitComputed, &["compute", "loop"]),
        (Act::Wait, &["wait"]),
        (Act::Delegate, &["delegate"]),
        (Act::CommitSkipped, &["call", "compute", "wait", "delegate", "loop"]),
        (Act::FailUnstarted, &["call", "compute", "wait", "delegate", "loop"]),
        (Act::Confirm, &["call", "compute", "wait", "delegate", "loop"]),
    ];
    for (act, fitting) in table {
        for on in ["call", "compute", "wait", "delegate", "loop"] {
            let body = scene.body(*act, on);
            if fitting.contains(&on) {
                scene.accepts(body);
            } else {
                scene.refuses(body, Why::WrongStepKind(step(on)));
            }
        }
        scene.refuses(scene.body(*act, "nowhere"), Why::NotPlanned(step("nowhere")));
        scene.refuses(scene.body(*act, "nowhere/1"), Why::NotPlanned(step("nowhere/1")));
    }
}

#[test]
fn steps_stand_below_loops_only() {
    let mut scene =
        Scene::job(&[("gate", Compute, &[]), ("loop", Loop, &["gate"]), ("call", Call, &[])]);
    scene.refuses(scene.body(Act::Start, "call/1"), Why::WrongStepKind(step("call/1")));
    scene.refuses(scene.body(Act::Start, "loop/1"), Why::NotReady(step("loop/1")));
    scene.does(Act::CommitComputed, "gate");
    scene.calls("loop/1/call/1");
    scene.does(Act::CommitComputed, "loop/2");
    scene.does(Act::CommitComputed, "loop");
    scene.refuses(scene.body(Act::Start, "loop/3"), stands("loop", "done"));
}

#[test]
fn a_loop_ends_only_when_nothing_below_it_is_under_way() {
    let busy = |act: Act| {
        let mut scene = Scene::job(&[("loop", Loop, &[])]);
        if act == Act::Start {
            scene.opens("loop/1");
        } else {
            scene.does(act, "loop/1");
        }
        for end in [Act::CommitComputed, Act::CommitSkipped, Act::FailUnstarted] {
            scene.refuses(scene.body(end, "loop"), Why::OpenBelow(step("loop")));
        }
        scene
    };
    busy(Act::Escalate);
    busy(Act::Wait);
    busy(Act::Delegate);
    let mut scene = busy(Act::Start);
    scene.does(Act::CommitEffect, "loop/1");
    scene.does(Act::CommitComputed, "loop");
}

#[test]
fn a_loop_that_ends_abandons_what_could_be_tried_again() {
    let mut scene = Scene::job(&[("loop", Loop, &[])]);
    scene.opens("loop/1");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "loop/1");
    scene.accepts(scene.body(Act::Start, "loop/1"));
    scene.does(Act::CommitComputed, "loop");
    scene.refuses(scene.body(Act::Start, "loop/1"), stands("loop", "done"));
    scene.does(Act::Complete, "");
}

#[test]
fn a_failed_step_below_a_loop_is_the_loops_to_judge() {
    let mut scene = Scene::job(&[("loop", Loop, &[])]);
    scene.does(Act::Reject, "loop/1");
    assert_eq!((scene.status("loop/1"), scene.state().name()), ("failed", "live"));
    scene.does(Act::CommitComputed, "loop/2");

    let mut scene = Scene::job(&[("call", Call, &[]), ("other", Call, &[])]);
    scene.does(Act::Reject, "call");
    assert_eq!(scene.state().name(), "failing");
    scene.refuses(scene.body(Act::Start, "other"), Why::Stopping);
    scene.refuses(scene.body(Act::Complete, ""), Why::Failing);
}
