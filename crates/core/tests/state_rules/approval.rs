//! Asking people: quorum, denial, deadline, expiry, and what spends an approval.

use gesta_core::document::{ApprovalVerdict, Reason, Receipt, ReceiptResult, Recovery};
use gesta_core::entry::Body;
use gesta_core::keys::PrivateKey;
use gesta_core::state::{Act, Failed, Scope, Why};
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{Scene, nowhere, stands, step};

use ApprovalVerdict::{Approve, Deny};

/// How long a sample waits for approvers, and how long their word holds.
const MINUTE_MS: u64 = 60_000;

/// `charge` waits for this many approvers.
fn pending(quorum: u64) -> Scene {
    let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
    let Body::PendingApproval(mut body) = scene.body(Act::Escalate, "charge") else { panic!() };
    body.quorum = quorum;
    scene.adds(Body::PendingApproval(body));
    scene
}

/// `charge` was approved by one of one.
fn approved() -> Scene {
    let mut scene = pending(1);
    let yes = edit::approval(&scene, "charge", &scene.cast.approver, Approve);
    scene.adds(yes);
    scene
}

fn other_approver() -> PrivateKey {
    PrivateKey::from_seed(&[0xAA; 32])
}

/// A rejection of `charge` for this reason.
fn rejection(scene: &Scene, reason: Reason) -> Body {
    let body = edit::decision(&scene.cast, scene.body(Act::Reject, "charge"), |decision| {
        decision.reason = Some(reason);
    });
    edit::receipt(&scene.cast, body, |receipt: &mut Receipt| {
        receipt.result = ReceiptResult::Refused { reason };
    })
}

#[test]
fn a_quorum_is_of_distinct_keys() {
    let mut scene = pending(2);
    let first = edit::approval(&scene, "charge", &scene.cast.approver, Approve);
    scene.adds(first.clone());
    assert_eq!(scene.status("charge"), "pending approval");
    scene.refuses(first, Why::ApprovedTwice(scene.cast.approver.id()));
    scene.refuses(scene.started("charge"), stands("charge", "pending approval"));
    let second = edit::approval(&scene, "charge", &other_approver(), Approve);
    scene.adds(second.clone());
    assert_eq!(scene.status("charge"), "idle");
    scene.refuses(second, stands("charge", "idle"));
    scene.opens("charge");
}

#[test]
fn nothing_starts_while_people_are_asked() {
    let scene = pending(1);
    let open = || stands("charge", "pending approval");
    scene.refuses(scene.started("charge"), open());
    for act in [Act::Escalate, Act::CommitSkipped, Act::FailUnstarted] {
        scene.refuses(scene.body(act, "charge"), open());
    }
    scene.refuses(rejection(&scene, Reason::PolicyDenied), open());
    scene.refuses(rejection(&scene, Reason::ApprovalExpired), open());
}

#[test]
fn a_no_is_final() {
    for quorum in [1, 2] {
        let mut scene = pending(quorum);
        let yes = edit::approval(&scene, "charge", &other_approver(), Approve);
        let no = edit::approval(&scene, "charge", &scene.cast.approver, Deny);
        if quorum == 2 {
            scene.adds(yes.clone());
        }
        scene.adds(no);
        let late_yes = edit::approval(&scene, "charge", &PrivateKey::from_seed(&[5; 32]), Approve);
        scene.refuses(yes, stands("charge", "denied"));
        scene.refuses(late_yes, stands("charge", "denied"));
        scene.refuses(scene.started("charge"), stands("charge", "denied"));
        scene.refuses(scene.body(Act::Escalate, "charge"), stands("charge", "denied"));
        for reason in [Reason::PolicyDenied, Reason::ApprovalExpired] {
            scene.refuses(rejection(&scene, reason), Why::Reason);
        }
        scene.adds(rejection(&scene, Reason::ApprovalDenied));
        assert_eq!(scene.status("charge"), "failed");
    }
}

#[test]
fn nobody_denied_what_nobody_was_asked() {
    let scene = Scene::session();
    scene.refuses(rejection(&scene, Reason::ApprovalDenied), Why::Reason);
    let scene = approved();
    scene.refuses(rejection(&scene, Reason::ApprovalDenied), Why::Reason);
}

#[test]
fn an_answer_is_to_its_question() {
    let scene = pending(1);
    for verdict in [Approve, Deny] {
        let key = &scene.cast.approver;
        let body = edit::approval(&scene, "charge", key, verdict);
        let elsewhere = edit::statement(key, body, |statement| statement.pending = nowhere());
        scene.refuses(elsewhere, Why::OtherPending);
    }
    let mut unasked = Scene::session();
    unasked.opens("charge");
    let body = edit::approval(&unasked, "charge", &unasked.cast.approver, Approve);
    unasked.refuses(body, stands("charge", "open"));
}

#[test]
fn an_earlier_yes_does_not_answer_a_later_question() {
    let mut scene = pending(1);
    let yes = edit::approval(&scene, "charge", &scene.cast.approver, Approve);
    scene.adds(yes.clone());
    scene.does(Act::Escalate, "charge");
    scene.refuses(yes, Why::OtherPending);
    scene.refuses(scene.started("charge"), stands("charge", "pending approval"));
    assert_eq!(scene.step("charge").grant, None);
}

#[test]
fn the_deadline_ends_the_asking() {
    let mut scene = pending(1);
    scene.later(MINUTE_MS);
    let yes = |scene: &Scene| edit::approval(scene, "charge", &scene.cast.approver, Approve);
    scene.accepts(yes(&scene));
    scene.refuses(rejection(&scene, Reason::ApprovalExpired), stands("charge", "pending approval"));
    scene.later(1);
    scene.refuses(yes(&scene), Why::Deadline);
    scene.refuses(rejection(&scene, Reason::PolicyDenied), Why::Reason);
    scene.refuses(rejection(&scene, Reason::ApprovalDenied), Why::Reason);
    scene.adds(rejection(&scene, Reason::ApprovalExpired));
}

#[test]
fn a_question_has_approvers_a_channel_and_time() {
    let scene = Scene::session();
    let check = |edit: fn(&mut gesta_core::body::PendingApproval), why: Why| {
        let Body::PendingApproval(mut body) = scene.body(Act::Escalate, "charge") else { panic!() };
        edit(&mut body);
        scene.refuses(Body::PendingApproval(body), why);
    };
    check(|pending| pending.quorum = 0, Why::Quorum);
    check(|pending| pending.channels.clear(), Why::Quorum);
    check(|pending| pending.deadline.0 -= MINUTE_MS + 1, Why::Deadline);
}

#[test]
fn an_expired_word_counts_for_nothing() {
    let scene = pending(1);
    let key = &scene.cast.approver;
    let now = scene.now;
    let body = edit::approval(&scene, "charge", key, Approve);
    let body = edit::statement(key, body, |statement| statement.expires.0 = now.0 - 1);
    scene.refuses(body, Why::ApprovalExpired);
}

#[test]
fn a_grant_holds_until_the_earliest_of_its_expiries() {
    let mut scene = pending(2);
    let short = edit::approval(&scene, "charge", &other_approver(), Approve);
    let now = scene.now;
    let short = edit::statement(&other_approver(), short, |statement| {
        statement.expires = now.plus(1_000);
    });
    scene.adds(short);
    let long = edit::approval(&scene, "charge", &scene.cast.approver, Approve);
    scene.adds(long);
    scene.later(1_000);
    scene.accepts(scene.started("charge"));
    scene.later(1);
    scene.refuses(scene.started("charge"), Why::ApprovalExpired);
    // Asking again, or refusing, remains.
    scene.accepts(scene.body(Act::Escalate, "charge"));
    scene.accepts(rejection(&scene, Reason::ApprovalExpired));
}

/// A step that a freeze holds is decided about when its time has come. Until then nobody is offered to
/// refuse it once more or to ask people again, although its approval has run out meanwhile: whoever answers
/// offers would do so without end.
#[test]
fn what_is_held_is_not_asked_about_again_before_its_time() {
    let mut scene = approved();
    scene.later(MINUTE_MS);
    let until = scene.now.plus(1_000);
    let Body::Rejection(mut held) = rejection(&scene, Reason::ToolFrozen) else { panic!() };
    held.retry_at = Some(until);
    scene.adds(Body::Rejection(held));
    let offered = |scene: &Scene| -> Vec<Act> {
        let offers = scene.state().next(scene.now).into_iter();
        let on = Scope::Step(step("charge"));
        let mut acts: Vec<_> = offers.filter(|it| it.on == on).map(|it| it.act).collect();
        acts.retain(|act| matches!(act, Act::Start | Act::Reject | Act::Escalate));
        acts
    };
    scene.later(999);
    assert!(scene.now > scene.step("charge").grant.as_ref().unwrap().expires);
    assert_eq!(offered(&scene), []);
    assert!(!scene.state().lapsed(&step("charge"), scene.now));
    // Chains that version 1 has written may hold such entries: they are read for ever.
    scene.accepts(rejection(&scene, Reason::ApprovalExpired));
    scene.accepts(scene.body(Act::Escalate, "charge"));

    scene.later(1);
    assert_eq!(offered(&scene), [Act::Reject, Act::Escalate]);
    assert!(scene.state().lapsed(&step("charge"), scene.now));
}

/// The same for a call of unknown outcome that may not be sent again yet.
#[test]
fn a_held_rerun_is_not_refused_again_before_its_time() {
    let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
    scene.opens("charge");
    scene.does(Act::Fail(Failed::RetryableUnknown), "charge");
    let Body::Rejection(mut held) = rejection(&scene, Reason::ToolFrozen) else { panic!() };
    held.retry_at = Some(scene.now.plus(10));
    scene.adds(Body::Rejection(held));
    let rejects = |scene: &Scene| {
        let on = Scope::Step(step("charge"));
        scene.state().next(scene.now).iter().any(|it| it.act == Act::Reject && it.on == on)
    };
    assert!(!rejects(&scene));
    scene.accepts(rejection(&scene, Reason::PolicyDenied));
    scene.later(10);
    assert!(rejects(&scene));
}

#[test]
fn an_approval_outlives_what_did_not_happen() {
    for failed in [Failed::NotDispatched, Failed::RetryableDidNotHappen] {
        let mut scene = approved();
        scene.claims();
        scene.opens("charge");
        scene.does(Act::Fail(failed), "charge");
        assert!(scene.step("charge").grant.is_some());
        scene.accepts(scene.started("charge"));
        scene.later(MINUTE_MS + 1);
        scene.refuses(scene.started("charge"), Why::ApprovalExpired);
    }
    let mut scene = approved();
    scene.opens("charge");
    scene.does(Act::Doubt, "charge");
    scene.does(Act::ResolveForced, "charge");
    assert!(scene.step("charge").grant.is_some());
}

#[test]
fn an_approval_is_spent_by_what_happened() {
    let closings: [&[Act]; 4] = [
        &[Act::CommitEffect],
        &[Act::Fail(Failed::PermanentHappened)],
        &[Act::Fail(Failed::CompensatableHappened)],
        &[Act::Doubt, Act::ResolveHappened],
    ];
    for closing in closings {
        let mut scene = approved();
        scene.opens("charge");
        for act in closing {
            scene.does(*act, "charge");
        }
        assert_eq!(scene.step("charge").grant, None, "{closing:?}");
    }
}

#[test]
fn an_approval_is_for_its_own_step() {
    let mut scene = pending(1);
    scene.does(Act::Escalate, "other");
    let body = edit::approval(&scene, "charge", &scene.cast.approver, Approve);
    let Body::Approval(mut moved) = body else { panic!() };
    moved.step = step("other");
    scene.refuses(Body::Approval(moved), Why::OtherPending);
}
