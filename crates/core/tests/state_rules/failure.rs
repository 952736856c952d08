//! Closing a call as failed: which failures fit which call, and what each leaves behind.

use gesta_core::amounts::Amounts;
use gesta_core::document::{Certainty, Outcome, Recovery};
use gesta_core::entry::Body;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{COST, NOTHING, RESERVE, Scene, nowhere, stands};

const EFFECTS: [Effect; 4] = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
const RECOVERIES: [Recovery; 5] =
    [Recovery::Safe, Recovery::Keyed, Recovery::KeyedConcurrent, Recovery::Probe, Recovery::Never];
const CERTAINTIES: [Certainty; 3] =
    [Certainty::DidNotHappen, Certainty::Happened, Certainty::Unknown];
const OUTCOMES: [Outcome; 6] = [
    Outcome::Pure,
    Outcome::SideEffectCommitted,
    Outcome::RetryableFailure,
    Outcome::PermanentFailure,
    Outcome::CompensatableFailure,
    Outcome::Compensated,
];

/// What a legal failure leaves the step as; none when the failure is not legal.
///
/// Sections 3 and 5 of the design, row by row: what did not happen may be tried again or be over;
/// what happened is over, and only a dispatched call can have happened or be unknown; an unknown
/// call is sent again only where its tool allows it, and given up only where it changes nothing.
fn after(
    outcome: Outcome,
    certainty: Certainty,
    dispatched: bool,
    recovery: Recovery,
    effect: Effect,
) -> Option<&'static str> {
    match (outcome, certainty, dispatched, recovery, effect) {
        (Outcome::RetryableFailure, Certainty::DidNotHappen, _, _, _) => Some("idle"),
        (Outcome::PermanentFailure, Certainty::DidNotHappen, _, _, _) => Some("failed"),
        (Outcome::PermanentFailure, Certainty::Happened, true, _, _) => Some("failed"),
        (Outcome::CompensatableFailure, Certainty::Happened, true, _, _) => Some("failed"),
        (Outcome::RetryableFailure, Certainty::Unknown, true, Recovery::Safe, _) => {
            Some("of unknown outcome")
        }
        (Outcome::RetryableFailure, Certainty::Unknown, true, Recovery::Keyed, _) => {
            Some("of unknown outcome")
        }
        (Outcome::RetryableFailure, Certainty::Unknown, true, Recovery::KeyedConcurrent, _) => {
            Some("of unknown outcome")
        }
        (Outcome::PermanentFailure, Certainty::Unknown, true, _, Effect::Read) => Some("failed"),
        _ => None,
    }
}

/// A failure of the open call, as told.
fn failure(scene: &Scene, outcome: Outcome, certainty: Certainty, dispatched: bool) -> Body {
    let body = scene.body(Act::Fail(Failed::PermanentHappened), "charge");
    edit::failure(&scene.cast, body, |failure| {
        failure.outcome = outcome;
        failure.certainty = certainty;
        failure.dispatched = dispatched;
        failure.cost = if certainty == Certainty::Happened { COST } else { NOTHING };
    })
}

#[test]
fn a_failure_fits_its_call() {
    let mut legal = 0;
    for effect in EFFECTS {
        for recovery in RECOVERIES {
            let mut scene = Scene::session().calling(effect, recovery);
            scene.opens("charge");
            for outcome in OUTCOMES {
                for certainty in CERTAINTIES {
                    for dispatched in [false, true] {
                        let body = failure(&scene, outcome, certainty, dispatched);
                        match after(outcome, certainty, dispatched, recovery, effect) {
                            Some(status) => {
                                assert_eq!(scene.accepts(body).status("charge"), status);
                                legal += 1;
                            }
                            None => scene.refuses(body, Why::Outcome),
                        }
                    }
                }
            }
        }
    }
    // 20 classes: 6 each, 3 rerunning recoveries of 4 effects, 5 recoveries of a read.
    assert_eq!(legal, 20 * 6 + 12 + 5);
}

#[test]
fn generation_money_and_step_after_each_failure() {
    let table: [(Failed, u64, Amounts, &str); 7] = [
        (Failed::NotDispatched, 1, NOTHING, "idle"),
        (Failed::RetryableDidNotHappen, 2, NOTHING, "idle"),
        (Failed::PermanentDidNotHappen, 2, NOTHING, "failed"),
        (Failed::PermanentHappened, 1, COST, "failed"),
        (Failed::CompensatableHappened, 1, COST, "failed"),
        (Failed::RetryableUnknown, 1, RESERVE, "of unknown outcome"),
        (Failed::PermanentUnknown, 1, RESERVE, "failed"),
    ];
    for (failed, generation, spent, status) in table {
        let mut scene = Scene::session().calling(Effect::Read, Recovery::Safe);
        scene.opens("charge");
        scene.does(Act::Fail(failed), "charge");
        assert_eq!(scene.step("charge").generation, generation, "{failed:?}");
        assert_eq!(scene.money(), (spent, NOTHING), "{failed:?}");
        assert_eq!(scene.status("charge"), status, "{failed:?}");
    }
}

#[test]
fn the_next_start_has_the_generation_that_the_failure_left() {
    for (failed, generation) in [
        (Failed::NotDispatched, 1),
        (Failed::RetryableDidNotHappen, 2),
        (Failed::RetryableUnknown, 1),
    ] {
        let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
        scene.opens("charge");
        scene.does(Act::Fail(failed), "charge");
        let body = |n| {
            let body = edit::permit(&scene.cast, scene.started("charge"), |permit| {
                permit.generation = n;
            });
            let root = scene.state().seed().unwrap();
            let seed = gesta_core::body::step_seed(root, &crate::scene::step("charge"), n);
            edit::started(body, |started| started.seed = seed)
        };
        scene.accepts(body(generation));
        scene.refuses(body(3 - generation), Why::Permit("generation"));
    }
}

#[test]
fn only_what_happened_costs() {
    let scene = {
        let mut scene = Scene::session().calling(Effect::Read, Recovery::Safe);
        scene.opens("charge");
        scene
    };
    for failed in [
        Failed::NotDispatched,
        Failed::RetryableDidNotHappen,
        Failed::PermanentDidNotHappen,
        Failed::RetryableUnknown,
        Failed::PermanentUnknown,
    ] {
        let body = scene.body(Act::Fail(failed), "charge");
        let body = edit::failure(&scene.cast, body, |failure| failure.cost = COST);
        scene.refuses(body, Why::Cost);
    }
}

#[test]
fn a_failure_names_the_open_start() {
    let mut scene = Scene::session();
    scene.opens("charge");
    let body = scene.body(Act::Fail(Failed::PermanentHappened), "charge");
    let other =
        edit::failure(&scene.cast, body.clone(), |failure| failure.started = Some(nowhere()));
    scene.refuses(other, Why::OtherStarted);
    let without = edit::failure(&scene.cast, body.clone(), |failure| failure.started = None);
    scene.refuses(without, stands("charge", "open"));
    scene.adds(body.clone());
    scene.refuses(body, stands("charge", "failed"));
}

#[test]
fn nobody_knows_means_nobody_reports() {
    let mut scene = Scene::session().calling(Effect::Read, Recovery::Safe);
    scene.opens("charge");
    scene.claims();
    let happened = scene.body(Act::Fail(Failed::PermanentHappened), "charge");
    let body = edit::failure(&scene.cast, happened, |failure| {
        failure.certainty = Certainty::Unknown;
        failure.cost = NOTHING;
    });
    scene.refuses(body, Why::Evidence);
    // Without one, any attempt may say that nobody knows.
    scene.accepts(scene.body(Act::Fail(Failed::PermanentUnknown), "charge"));
    scene.accepts(scene.body(Act::Fail(Failed::RetryableUnknown), "charge"));
}

#[test]
fn a_step_that_fails_without_a_call_fails_for_good_and_for_nothing() {
    let scene = Scene::session();
    let check = |edit: fn(&mut gesta_core::body::Failure)| {
        let body = edit::failure(&scene.cast, scene.body(Act::FailUnstarted, "sum"), edit);
        scene.refuses(body, Why::Outcome);
    };
    check(|failure| failure.outcome = Outcome::RetryableFailure);
    check(|failure| failure.outcome = Outcome::CompensatableFailure);
    check(|failure| failure.certainty = Certainty::Happened);
    check(|failure| failure.certainty = Certainty::Unknown);
    check(|failure| failure.dispatched = true);
    check(|failure| failure.cost = COST);
    let failed = scene.accepts(scene.body(Act::FailUnstarted, "sum"));
    assert_eq!(failed.status("sum"), "failed");
    assert_eq!(failed.money(), (NOTHING, NOTHING));
}
