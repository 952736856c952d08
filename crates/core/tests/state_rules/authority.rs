//! The writ in the fold: tools, ceiling, window, budget; and what stops everything new.

use gesta_core::amounts::Budget;
use gesta_core::body::{Purpose, StepKind};
use gesta_core::document::Recovery;
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::EPOCH;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::writ::{Effect, ToolPattern, Widening, WritChainError};

use crate::scene::{COST, RESERVE, Scene};

#[test]
fn a_tool_outside_the_writ_is_not_called() {
    let scene = Scene::session_under(|writ| writ.tools = vec!["pay.*".parse().unwrap()]);
    scene.accepts(scene.started("charge"));
    scene.refuses(scene.started("mail"), Why::Tool);
    let none = Scene::session_under(|writ| writ.tools = Vec::<ToolPattern>::new());
    none.refuses(none.started("charge"), Why::Tool);
}

#[test]
fn an_effect_above_the_ceiling_is_not_opened() {
    let effects = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
    for (i, ceiling) in effects.into_iter().enumerate() {
        for (j, effect) in effects.into_iter().enumerate() {
            let scene =
                Scene::session_under(|writ| writ.effect = ceiling).calling(effect, Recovery::Never);
            if j <= i {
                scene.accepts(scene.started("charge"));
            } else {
                scene.refuses(scene.started("charge"), Why::Ceiling { effect, ceiling });
            }
        }
    }
}

#[test]
fn the_window_counts_with_both_its_ends() {
    let mut scene = Scene::session_under(|writ| {
        writ.window.not_before = EPOCH;
        writ.window.not_after = EPOCH.plus(1_000);
    });
    scene.later(1_000);
    scene.accepts(scene.started("charge"));
    scene.accepts(scene.body(Act::Delegate, "charge"));
    scene.later(1);
    scene.refuses(scene.started("charge"), Why::WritWindow);
    scene.refuses(scene.body(Act::Delegate, "charge"), Why::WritWindow);
}

#[test]
fn a_trajectory_begins_under_a_writ_of_its_own_valid_now() {
    let scene = Scene::unbegun();
    let refuses = |edit: fn(&mut gesta_core::writ::Writ), why: Why| {
        for purpose in [Purpose::Job, Purpose::Session] {
            scene.refuses(scene.root_under(edit, purpose), why.clone());
        }
    };
    refuses(|writ| writ.window.not_before = EPOCH.plus(1), Why::WritWindow);
    refuses(|writ| writ.window.not_after.0 = EPOCH.0 - 1, Why::WritWindow);
    refuses(|writ| writ.trajectory = Some(TrajectoryId::from_bytes([8; 16])), Why::WritElsewhere);
    refuses(|writ| writ.trajectory = None, Why::WritElsewhere);
    let widens = |widening| Why::Writs(WritChainError::Widens { index: 1, widening });
    refuses(|writ| writ.depth = 8, widens(Widening::Depth { child: 8, parent: 8 }));
    refuses(|writ| writ.parent = None, widens(Widening::Parent));
}

/// Sets one dimension of a budget.
type Set = fn(&mut Budget, u64);

#[test]
fn every_budget_reaches_to_its_limit_and_no_further() {
    let table: [(&str, u64, Set); 4] = [
        ("calls", COST.calls + 2 * RESERVE.calls, |budget, n| budget.calls = Some(n)),
        ("money_micros", COST.money_micros + 2 * RESERVE.money_micros, |budget, n| {
            budget.money_micros = Some(n);
        }),
        ("tokens", COST.tokens + 2 * RESERVE.tokens, |budget, n| budget.tokens = Some(n)),
        ("wall_ms", COST.wall_ms + 2 * RESERVE.wall_ms, |budget, n| budget.wall_ms = Some(n)),
    ];
    for (dimension, enough, set) in table {
        // One call settled, one open, one more wanted.
        let after_two = |limit: u64| {
            let mut scene = Scene::session_under(|writ| set(&mut writ.budget, limit));
            scene.calls("first");
            scene.opens("second");
            scene
        };
        let scene = after_two(enough);
        scene.accepts(scene.started("third"));
        let scene = after_two(enough - 1);
        scene.refuses(scene.started("third"), Why::Budget(dimension));
    }
}

#[test]
fn a_reservation_returns_to_the_budget_when_nothing_happened() {
    let mut scene = Scene::session_under(|writ| writ.budget.calls = Some(RESERVE.calls));
    scene.opens("first");
    scene.refuses(scene.started("second"), Why::Budget("calls"));
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "first");
    scene.opens("second");
}

#[test]
fn nothing_new_begins_while_the_trajectory_stops() {
    use StepKind::{Call, Compute, Delegate, Wait};
    let nodes: &[crate::scene::Node<'_>] = &[
        ("broken", Call, &[]),
        ("call", Call, &[]),
        ("compute", Compute, &[]),
        ("wait", Wait, &[]),
        ("delegate", Delegate, &[]),
    ];
    let mut failing = Scene::job(nodes);
    failing.does(Act::FailUnstarted, "broken");
    let mut cancelling = Scene::job(nodes);
    cancelling.does(Act::RequestCancel, "");
    let mut both = failing.clone();
    both.does(Act::RequestCancel, "");
    for scene in [failing, cancelling, both] {
        for (act, on) in [
            (Act::Start, "call"),
            (Act::Escalate, "call"),
            (Act::Reject, "call"),
            (Act::FailUnstarted, "call"),
            (Act::Confirm, "call"),
            (Act::CommitSkipped, "call"),
            (Act::CommitComputed, "compute"),
            (Act::Wait, "wait"),
            (Act::Delegate, "delegate"),
        ] {
            scene.refuses(scene.body(act, on), Why::Stopping);
        }
    }
}

#[test]
fn what_is_open_settles_while_the_trajectory_stops() {
    let mut scene = Scene::job(&[("broken", StepKind::Call, &[]), ("call", StepKind::Call, &[])]);
    scene.opens("call");
    scene.does(Act::FailUnstarted, "broken");
    assert_eq!(scene.state().name(), "failing");
    scene.accepts(scene.body(Act::CommitEffect, "call"));
    scene.accepts(scene.body(Act::Fail(Failed::PermanentHappened), "call"));
    scene.accepts(scene.body(Act::Doubt, "call"));
}
