//! The entries that close a call, or a step that never made one: commit, failure, doubt, each with its
//! receipt. What is to be closed how is the pipeline's to say.

use std::borrow::Cow;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Commit, Failure, InDoubt, Origin};
use gesta_core::content::{BlobRef, Content};
use gesta_core::digest::{EntryId, PermitId};
use gesta_core::document::{
    Certainty, EffectReport, Failing, Outcome, Receipt, ReceiptResult, Settlement,
};
use gesta_core::entry::Body;
use gesta_core::ids::StepId;
use gesta_core::keys::Sign as _;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{AdmitError, Opened, Status};
use gesta_core::time::UnixMs;
use gesta_core::world::Delta;
use gesta_core::writ::Effect;
use gesta_store::{ChainError, Draft};

use crate::desk::{COMPILER, Desk, failing};
use crate::error::RunError;
use crate::facts::Facts;
use crate::pipeline::{Ended, How};

/// How many times in a row the gate may turn a step away before the step fails.
const TURNED_AWAY_MOST: u64 = 10;
/// What is said of a call that is not sent again because the other side may have forgotten its key.
const KEY_EXPIRED: &str = "its key has expired, it was not sent again";
/// The code of a call that the gate turned away because of a freeze.
pub(crate) const GATE_FROZEN: &str = "gate_frozen";

/// Whether a step that the gate has turned away is tried again. What is frozen is held at the next
/// decision, for as long as it takes.
pub(crate) fn turned_away_again(facts: &Facts, step: &StepId, error: &Failing) -> bool {
    let before = facts.asked(step).map_or(0, |asked| asked.turned_away);
    before + 1 < TURNED_AWAY_MOST || error.code == GATE_FROZEN
}

/// A call as it is settled: where it is not sent again because the other side may have forgotten its key, it
/// says so. Only when it is settled first: in a replay that is part of what is on record.
pub(crate) fn telling<'a>(
    desk: &Desk,
    draft: &Draft<Facts>,
    ended: &'a Ended,
    now: UnixMs,
) -> Cow<'a, Ended> {
    let How::Failed { certainty, error, .. } = &ended.how else { return Cow::Borrowed(ended) };
    let opened = match draft.state().step(&ended.step).map(|step| &step.status) {
        Some(Status::Open(opened)) if opened.started == ended.started => opened,
        _ => return Cow::Borrowed(ended),
    };
    let unknown = match certainty {
        Certainty::Unknown => true,
        Certainty::DidNotHappen => opened.again,
        Certainty::Happened => false,
    };
    if !unknown || !desk.key_expired(draft.view(), &ended.proposal, opened, now) {
        return Cow::Borrowed(ended);
    }
    let told = failing(&error.code, &format!("{}; {KEY_EXPIRED}", error.message));
    let mut ended = ended.clone();
    if let How::Failed { error, .. } = &mut ended.how {
        *error = told;
    }
    Cow::Owned(ended)
}

/// Nobody knows. A call that may be sent again is, up to its limit; a read may be given up; everything
/// else is in doubt until somebody finds out.
pub(crate) fn unknown(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    opened: &Opened,
    ended: &Ended,
    error: &Failing,
    now: UnixMs,
) -> Result<(), RunError> {
    let read = opened.effect == Effect::Read && opened.compensates.is_none();
    // A job that is being cancelled has no use for what a read would tell.
    let wanted = !read || draft.view().cancelled().is_none();
    let again = opened.recovery.reruns()
        && wanted
        && desk.tries_left(draft.view(), &ended.proposal)
        && !desk.key_expired(draft.view(), &ended.proposal, opened, now);
    let free = Amounts::default();
    if again {
        let how = (Outcome::RetryableFailure, Certainty::Unknown, true);
        return fail(desk, draft, opened, ended, how, free, error, None, now);
    }
    if read {
        let how = (Outcome::PermanentFailure, Certainty::Unknown, true);
        return fail(desk, draft, opened, ended, how, free, error, None, now);
    }
    doubt(desk, draft, (&ended.step, ended.started), error.clone(), ended.output(), now)?;
    Ok(())
}

/// Adds that nobody knows.
pub(crate) fn doubt(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    (step, started): (&StepId, EntryId),
    known: Failing,
    output: Option<BlobRef>,
    now: UnixMs,
) -> Result<EntryId, RunError> {
    let body = InDoubt { known, output, started, step: step.clone() };
    Ok(draft.push(now, desk.author(), Body::InDoubt(Box::new(body)))?.id())
}

/// Adds what a call came to that was done: a commit, or a failure if what it changed cannot be told or does
/// not apply. It happened, whatever is wrong with how it is recorded.
pub(crate) fn done(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    opened: &Opened,
    ended: &Ended,
    (cost, settlement): (Amounts, Result<Settlement, Failing>),
    evidence: Option<&Signed<EffectReport>>,
    now: UnixMs,
) -> Result<(), RunError> {
    let committed =
        settlement.map(|settlement| commit(desk, draft, opened, ended, settlement, evidence, now));
    let error = match committed {
        Err(error) => error,
        Ok(Err(RunError::Chain(ChainError::Admit(error))))
            if !matches!(*error, AdmitError::Rehearsed) =>
        {
            failing("delta_does_not_apply", &error.to_string())
        }
        Ok(settled) => return settled,
    };
    let how = (Outcome::PermanentFailure, Certainty::Happened, true);
    fail(desk, draft, opened, ended, how, cost, &error, None, now)
}

/// Adds a commit that a call stands behind.
pub(crate) fn commit(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    opened: &Opened,
    ended: &Ended,
    settlement: Settlement,
    evidence: Option<&Signed<EffectReport>>,
    now: UnixMs,
) -> Result<(), RunError> {
    let Settlement { cost, delta, observation } = settlement;
    let outcome = match (opened.compensates, opened.effect) {
        (Some(_), _) => Outcome::Compensated,
        (None, Effect::Read) => Outcome::Pure,
        (None, _) => Outcome::SideEffectCommitted,
    };
    let result = ReceiptResult::Committed {
        delta: delta.digest()?,
        observation: observation.digest(),
        outcome,
    };
    let receipt = receipt(desk, draft, &ended.step, Some(opened.permit), cost, result, now)?;
    let origin = Origin::Effect {
        evidence: evidence.cloned().map(Box::new),
        proposal: ended.proposal.id()?,
        receipt: Box::new(receipt),
        started: ended.started,
    };
    let body = committed(draft, &ended.step, origin, outcome, delta, observation, cost)?;
    draft.push(now, desk.author(), body)?;
    Ok(())
}

/// The body of a commit.
pub(crate) fn committed(
    draft: &Draft<Facts>,
    step: &StepId,
    origin: Origin,
    outcome: Outcome,
    delta: Delta,
    observation: Content,
    cost: Amounts,
) -> Result<Body, RunError> {
    let state = draft.state();
    Ok(Body::Commit(Box::new(Commit {
        compiler: COMPILER.to_owned(),
        cost,
        delta,
        observation,
        origin,
        outcome,
        parent_commit: state.last_commit(),
        step: step.clone(),
        writ: state.writ().map(|(id, _)| id).ok_or(RunError::NotBegun)?,
    })))
}

/// Whether a failure may be followed by another try.
pub(crate) fn retryable(may: bool) -> Outcome {
    if may { Outcome::RetryableFailure } else { Outcome::PermanentFailure }
}

/// Adds the failure of a call.
#[expect(clippy::too_many_arguments, reason = "one argument for each thing that a failure records")]
pub(crate) fn fail(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    opened: &Opened,
    ended: &Ended,
    (outcome, certainty, dispatched): (Outcome, Certainty, bool),
    cost: Amounts,
    error: &Failing,
    evidence: Option<&Signed<EffectReport>>,
    now: UnixMs,
) -> Result<(), RunError> {
    let result = ReceiptResult::Failed { certainty, outcome };
    let receipt = receipt(desk, draft, &ended.step, Some(opened.permit), cost, result, now)?;
    let now = now.max(draft.state().at());
    let again = outcome == Outcome::RetryableFailure && dispatched;
    let body = Failure {
        certainty,
        cost,
        dispatched,
        error: error.clone(),
        evidence: evidence.cloned().map(Box::new),
        outcome,
        output: ended.output(),
        retry_at: again.then(|| desk.retry_at(draft, ended, now)),
        receipt,
        started: Some(ended.started),
        step: ended.step.clone(),
    };
    draft.push(now, desk.author(), Body::Failure(Box::new(body)))?;
    Ok(())
}

/// A step fails before anything was sent.
pub(crate) fn fail_unstarted(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    step: &StepId,
    error: Failing,
    now: UnixMs,
) -> Result<(), RunError> {
    let (certainty, outcome) = (Certainty::DidNotHappen, Outcome::PermanentFailure);
    let free = Amounts::default();
    let result = ReceiptResult::Failed { certainty, outcome };
    let receipt = receipt(desk, draft, step, None, free, result, now)?;
    let body = Failure {
        certainty,
        cost: free,
        dispatched: false,
        error,
        evidence: None,
        outcome,
        output: None,
        receipt,
        retry_at: None,
        started: None,
        step: step.clone(),
    };
    draft.push(now, desk.author(), Body::Failure(Box::new(body)))?;
    Ok(())
}

/// The next receipt of the trajectory.
pub(crate) fn receipt(
    desk: &Desk,
    draft: &Draft<Facts>,
    step: &StepId,
    permit: Option<PermitId>,
    cost: Amounts,
    result: ReceiptResult,
    now: UnixMs,
) -> Result<Signed<Receipt>, RunError> {
    let (prev, lamport) = draft.state().last_receipt();
    desk.sign(Receipt {
        at: now,
        cost,
        key: desk.shared.key.id(),
        lamport: lamport + 1,
        permit,
        prev,
        result,
        step: step.clone(),
        trajectory: desk.trajectory,
        type_: Tag::default(),
    })
}
