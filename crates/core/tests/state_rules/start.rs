//! Opening a call: the frozen proposal, the decision, the permit, the seed.

use gesta_core::digest::{DecisionId, Digest, IdempotencyKey, ProposalId, Seed, WritId};
use gesta_core::document::{Decision, Permit, Reason, Recovery, Verdict};
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{Scene, nowhere, stands, step};

fn elsewhere() -> TrajectoryId {
    TrajectoryId::from_bytes([9; 16])
}

/// A session with one call that did not happen: its step is frozen, in its second generation.
fn retrying() -> Scene {
    let mut scene = Scene::session();
    scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "charge");
    scene
}

#[test]
fn a_retry_proposes_the_frozen_bytes() {
    let scene = retrying();
    let frozen = || Why::Frozen(step("charge"));
    for act in [Act::Start, Act::Escalate, Act::Reject] {
        let again = scene.body(act, "charge");
        scene.refuses(edit::proposal(&scene, again.clone(), edit::other_args), frozen());
        let other_tool = edit::proposal(&scene, again.clone(), |proposal| {
            proposal.tool = "pay.everyone".parse().unwrap();
        });
        scene.refuses(other_tool, frozen());
        scene.accepts(again);
    }
    for act in [Act::CommitComputed, Act::CommitSkipped, Act::Wait, Act::Delegate] {
        scene.refuses(scene.body(act, "charge"), frozen());
    }
}

#[test]
fn asking_people_freezes_the_proposal() {
    let mut scene = Scene::session();
    scene.does(Act::Escalate, "charge");
    let yes = gesta_core::document::ApprovalVerdict::Approve;
    let approval = edit::approval(&scene, "charge", &scene.cast.approver, yes);
    scene.adds(approval);
    let start = scene.started("charge");
    let other = edit::proposal(&scene, start.clone(), edit::other_args);
    scene.refuses(other, Why::Frozen(step("charge")));
    scene.accepts(start);
}

#[test]
fn a_permit_fits_one_place_of_one_chain() {
    let mut scene = Scene::session();
    let spent = scene.started("charge");
    scene.adds(spent.clone());
    scene.does(Act::Fail(Failed::NotDispatched), "charge");
    scene.refuses(spent.clone(), Why::Decision("parent"));
    // Even beside a fresh decision.
    let gesta_core::entry::Body::Started(old) = spent else { panic!() };
    let gesta_core::entry::Body::Started(mut fresh) = scene.started("charge") else { panic!() };
    fresh.permit = old.permit;
    scene.refuses(gesta_core::entry::Body::Started(fresh), Why::Permit("decision"));
}

#[test]
fn every_field_of_the_permit_binds() {
    let scene = retrying();
    let check = |field: &'static str, edit: fn(&mut Permit)| {
        let body = edit::permit(&scene.cast, scene.started("charge"), edit);
        scene.refuses(body, Why::Permit(field));
    };
    scene.accepts(scene.started("charge"));
    check("decision", |permit| permit.decision = DecisionId::new(Digest::of(b"other")));
    check("idempotency_key", |permit| {
        permit.idempotency_key = IdempotencyKey::new(Digest::of(b"other"));
    });
    check("generation", |permit| permit.generation = 1);
    check("generation", |permit| permit.generation = 3);
    check("attempt", |permit| permit.attempt = 0);
    check("attempt", |permit| permit.attempt = 2);
    check("dispatch_by", |permit| permit.dispatch_by = UnixMs(0));
    check("dead_at", |permit| permit.dead_at.0 = permit.dispatch_by.0 - 1);
    let at_once = edit::permit(&scene.cast, scene.started("charge"), |permit| {
        permit.dead_at = permit.dispatch_by;
    });
    scene.accepts(at_once);
}

#[test]
fn every_field_of_the_decision_binds() {
    let scene = retrying();
    let check = |field: &'static str, edit: fn(&mut Decision)| {
        let started = edit::decision(&scene.cast, scene.started("charge"), edit);
        scene.refuses(started, Why::Decision(field));
    };
    check("trajectory", |decision| decision.trajectory = elsewhere());
    check("parent", |decision| decision.parent = nowhere());
    check("step", |decision| decision.step = step("other"));
    check("proposal", |decision| decision.proposal = ProposalId::new(Digest::of(b"other")));
    check("environment", |decision| decision.environment = Digest::of(b"other"));
    check("writ", |decision| decision.writ = WritId::new(Digest::of(b"other")));
    check("verdict", |decision| decision.verdict = Verdict::Escalate);
    check("verdict", |decision| {
        decision.verdict = Verdict::Deny;
        decision.reason = Some(Reason::PolicyDenied);
    });
    check("reason", |decision| decision.reason = Some(Reason::PolicyDenied));
}

#[test]
fn an_escalation_rests_on_an_escalating_decision() {
    let scene = Scene::session();
    let check = |field: &'static str, edit: fn(&mut Decision)| {
        let pending = edit::decision(&scene.cast, scene.body(Act::Escalate, "charge"), edit);
        scene.refuses(pending, Why::Decision(field));
    };
    check("verdict", |decision| decision.verdict = Verdict::Allow);
    check("parent", |decision| decision.parent = nowhere());
    check("environment", |decision| decision.environment = Digest::of(b"other"));
    check("writ", |decision| decision.writ = WritId::new(Digest::of(b"other")));
    check("reason", |decision| decision.reason = Some(Reason::PolicyDenied));
}

#[test]
fn a_rejection_rests_on_a_denying_decision() {
    let scene = Scene::session();
    let check = |field: &'static str, edit: fn(&mut Decision)| {
        let rejection = edit::decision(&scene.cast, scene.body(Act::Reject, "charge"), edit);
        scene.refuses(rejection, Why::Decision(field));
    };
    check("verdict", |decision| decision.verdict = Verdict::Allow);
    check("verdict", |decision| decision.verdict = Verdict::Escalate);
    check("reason", |decision| decision.reason = None);
    check("parent", |decision| decision.parent = nowhere());
    check("proposal", |decision| decision.proposal = ProposalId::new(Digest::of(b"other")));
}

/// A refusal that may pass leaves the step where it stood: it is proposed again, not before its time.
#[test]
fn a_held_step_is_proposed_again() {
    let mut scene = Scene::session();
    let held = |scene: &Scene, reason: Reason, at: UnixMs| {
        let rejection = scene.body(Act::Reject, "charge");
        let rejection =
            edit::decision(&scene.cast, rejection, |decision| decision.reason = Some(reason));
        let rejection = edit::receipt(&scene.cast, rejection, |receipt| {
            receipt.result = gesta_core::document::ReceiptResult::Refused { reason };
        });
        let Body::Rejection(mut rejection) = rejection else { panic!() };
        rejection.retry_at = Some(at);
        Body::Rejection(rejection)
    };
    let (now, later) = (scene.now, scene.now.plus(10));
    for reason in [Reason::PolicyDenied, Reason::InvalidAuthority, Reason::BudgetExhausted] {
        scene.refuses(held(&scene, reason, later), Why::RetryAt);
    }
    scene.refuses(held(&scene, Reason::ToolFrozen, UnixMs(now.0 - 1)), Why::RetryAt);
    scene.accepts(held(&scene, Reason::TemporalIntervention, later));
    scene.adds(held(&scene, Reason::ToolFrozen, later));
    assert_eq!(scene.state().step(&step("charge")).unwrap().status.as_str(), "idle");
    scene.refuses(scene.started("charge"), Why::Resting(step("charge")));
    scene.later(10);
    scene.accepts(scene.started("charge"));
    // Nothing was frozen by it: other arguments may be proposed.
    let other = edit::proposal(&scene, scene.body(Act::Reject, "charge"), edit::other_args);
    scene.accepts(other);

    // Of a call of unknown outcome the doubt stays, and so does the way out.
    let mut scene = Scene::session().calling(Effect::External, Recovery::Keyed);
    scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    scene.adds(held(&scene, Reason::ToolFrozen, scene.now.plus(10)));
    assert_eq!(scene.state().step(&step("charge")).unwrap().status.as_str(), "of unknown outcome");
    scene.accepts(scene.body(Act::Doubt, "charge"));
}

#[test]
fn a_rejections_receipt_says_the_same_and_costs_nothing() {
    let scene = Scene::session();
    let check = |field: &'static str, edit: fn(&mut gesta_core::document::Receipt)| {
        let rejection = edit::receipt(&scene.cast, scene.body(Act::Reject, "charge"), edit);
        scene.refuses(rejection, Why::Receipt(field));
    };
    check("result", |receipt| {
        receipt.result =
            gesta_core::document::ReceiptResult::Refused { reason: Reason::BudgetExhausted };
    });
    check("permit", |receipt| {
        receipt.permit = Some(gesta_core::digest::PermitId::new(Digest::of(b"other")));
    });
    check("lamport", |receipt| receipt.lamport = 2);
    check("cost", |receipt| receipt.cost = crate::scene::COST);
}

#[test]
fn the_seed_follows_from_the_root_the_step_and_the_generation() {
    let scene = retrying();
    let first = gesta_core::body::step_seed(scene.state().seed().unwrap(), &step("charge"), 1);
    for seed in [Seed::new(Digest::of(b"lucky")), first] {
        let body = edit::started(scene.started("charge"), |started| started.seed = seed);
        scene.refuses(body, Why::Seed);
    }
}

#[test]
fn only_a_rollback_undoes() {
    let scene = Scene::session();
    let body =
        edit::started(scene.started("charge"), |started| started.compensates = Some(nowhere()));
    scene.refuses(body, Why::UndoNext);
}

#[test]
fn an_open_step_does_not_open_again() {
    let mut scene = Scene::session();
    scene.opens("charge");
    let acts = [Act::Escalate, Act::Reject, Act::CommitSkipped, Act::FailUnstarted, Act::Confirm];
    scene.refuses(scene.started("charge"), stands("charge", "open"));
    for act in acts {
        scene.refuses(scene.body(act, "charge"), stands("charge", "open"));
    }
}

#[test]
fn a_refused_step_does_not_open() {
    let mut scene = Scene::session();
    scene.does(Act::Reject, "charge");
    scene.refuses(scene.started("charge"), stands("charge", "failed"));
    scene.refuses(scene.body(Act::Reject, "charge"), stands("charge", "failed"));
}
