//! Bodies edited by hand. Whatever is signed is signed again, so that only the edit is at fault.

use gesta_core::body::{Commit, Failure, Origin, Proposal, Started};
use gesta_core::document::{
    ApprovalStatement, ApprovalVerdict, Decision, EffectReport, Permit, Receipt, ReceiptResult,
    ResolutionStatement,
};
use gesta_core::entry::Body;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::sample::{Cast, person};
use gesta_core::signed::{Document, Signed, Tag};
use gesta_core::writ::Writ;

use crate::scene::{Scene, step};

fn sign_again<D: Document + Clone>(
    signed: &mut Signed<D>,
    key: &PrivateKey,
    edit: impl FnOnce(&mut D),
) {
    let mut doc = signed.doc().clone();
    edit(&mut doc);
    *signed = Signed::sign(doc, key).unwrap();
}

/// A `started` with another permit.
pub(crate) fn permit(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut Permit)) -> Body {
    let Body::Started(started) = &mut body else { panic!("not a `started`") };
    sign_again(&mut started.permit, &cast.guardian, edit);
    body
}

/// Any body with another decision; a permit beside it follows it.
pub(crate) fn decision(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut Decision)) -> Body {
    match &mut body {
        Body::Started(started) => {
            sign_again(&mut started.decision, &cast.guardian, edit);
            let decision = started.decision.id();
            sign_again(&mut started.permit, &cast.guardian, |permit| permit.decision = decision);
        }
        Body::PendingApproval(pending) => {
            sign_again(&mut pending.decision, &cast.guardian, edit);
        }
        Body::Rejection(rejection) => sign_again(&mut rejection.decision, &cast.guardian, edit),
        _ => panic!("no decision in it"),
    }
    body
}

/// A body about another proposal, consistently: decision, permit and key follow it.
pub(crate) fn proposal(scene: &Scene, mut body: Body, edit: impl FnOnce(&mut Proposal)) -> Body {
    let proposal = match &mut body {
        Body::Started(started) => &mut started.proposal,
        Body::PendingApproval(pending) => &mut pending.proposal,
        Body::Rejection(rejection) => &mut rejection.proposal,
        _ => panic!("no proposal in it"),
    };
    edit(proposal);
    let proposal = proposal.clone();
    let id = proposal.id().unwrap();
    let body = decision(&scene.cast, body, |decision| decision.proposal = id);
    if !matches!(body, Body::Started(_)) {
        return body;
    }
    permit(&scene.cast, body, |permit| {
        permit.idempotency_key = proposal.idempotency_key(scene.state().trajectory());
    })
}

/// Other arguments than the sample's.
pub(crate) fn other_args(proposal: &mut Proposal) {
    proposal.args = Canon::parse(br#"{"amount":1000000}"#).unwrap();
}

/// A body with another receipt.
pub(crate) fn receipt(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut Receipt)) -> Body {
    match &mut body {
        Body::Commit(commit) => {
            let Origin::Effect { receipt, .. } = &mut commit.origin else { panic!("no receipt") };
            sign_again(receipt, &cast.executor, edit);
        }
        Body::Failure(failure) => sign_again(&mut failure.receipt, &cast.executor, edit),
        Body::Rejection(rejection) => sign_again(&mut rejection.receipt, &cast.executor, edit),
        _ => panic!("no receipt in it"),
    }
    body
}

/// A commit edited and its receipt brought into line.
pub(crate) fn commit(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut Commit)) -> Body {
    let Body::Commit(commit) = &mut body else { panic!("not a commit") };
    edit(commit);
    let result = ReceiptResult::Committed {
        delta: commit.delta.digest().unwrap(),
        observation: commit.observation.digest(),
        outcome: commit.outcome,
    };
    let cost = commit.cost;
    if !matches!(commit.origin, Origin::Effect { .. }) {
        return body;
    }
    receipt(cast, body, |receipt| {
        receipt.cost = cost;
        receipt.result = result;
    })
}

/// A failure edited and its receipt brought into line.
pub(crate) fn failure(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut Failure)) -> Body {
    let Body::Failure(failure) = &mut body else { panic!("not a failure") };
    edit(failure);
    let (cost, certainty, outcome) = (failure.cost, failure.certainty, failure.outcome);
    receipt(cast, body, |receipt| {
        receipt.cost = cost;
        receipt.result = ReceiptResult::Failed { certainty, outcome };
    })
}

/// A body with another executor's report.
pub(crate) fn report(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut EffectReport)) -> Body {
    match &mut body {
        Body::Commit(commit) => {
            let Origin::Effect { evidence, .. } = &mut commit.origin else { panic!("no report") };
            sign_again(evidence.as_mut().unwrap(), &cast.executor, edit);
        }
        Body::Failure(failure) => {
            sign_again(failure.evidence.as_mut().unwrap(), &cast.executor, edit);
        }
        Body::LateEffect(late) => sign_again(&mut late.report, &cast.executor, edit),
        _ => panic!("no report in it"),
    }
    body
}

/// A `started` edited outside its signed documents.
pub(crate) fn started(mut body: Body, edit: impl FnOnce(&mut Started)) -> Body {
    let Body::Started(started) = &mut body else { panic!("not a `started`") };
    edit(started);
    body
}

/// A resolution with another statement.
pub(crate) fn resolution(
    cast: &Cast,
    mut body: Body,
    edit: impl FnOnce(&mut ResolutionStatement),
) -> Body {
    let Body::Resolution(resolution) = &mut body else { panic!("not a resolution") };
    sign_again(&mut resolution.statement, &cast.operator, edit);
    body
}

/// A delegation with another writ for the child.
pub(crate) fn child_writ(cast: &Cast, mut body: Body, edit: impl FnOnce(&mut Writ)) -> Body {
    let Body::Delegation(delegation) = &mut body else { panic!("not a delegation") };
    sign_again(&mut delegation.writ, &cast.agent, edit);
    body
}

/// An approver's word on a pending step, for a minute.
pub(crate) fn approval(
    scene: &Scene,
    on: &str,
    key: &PrivateKey,
    verdict: ApprovalVerdict,
) -> Body {
    let pending = match &scene.step(on).status {
        gesta_core::state::Status::Pending(pending) => pending.entry,
        _ => crate::scene::nowhere(),
    };
    let statement = ApprovalStatement {
        approver: person().unwrap(),
        at: scene.now,
        expires: scene.now.plus(60_000),
        key: key.id(),
        note: None,
        pending,
        type_: Tag::default(),
        verdict,
    };
    let statement = Signed::sign(statement, key).unwrap();
    Body::Approval(Box::new(gesta_core::body::Approval { statement, step: step(on) }))
}

/// An approval with another statement.
pub(crate) fn statement(
    key: &PrivateKey,
    mut body: Body,
    edit: impl FnOnce(&mut ApprovalStatement),
) -> Body {
    let Body::Approval(approval) = &mut body else { panic!("not an approval") };
    sign_again(&mut approval.statement, key, edit);
    body
}
