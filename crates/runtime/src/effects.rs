//! Reports of effects that reach the chain by another way than the call that caused them: from the
//! inbox, from a spool, or from a worker that has lost the trajectory in the meantime.

use std::sync::Arc;

use gesta_core::body::{LateEffect, Resolution};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::document::{
    CallResult, Certainty, EffectReport, ResolutionStatement, ResolutionVerdict, ResolvedBy,
    Settlement,
};
use gesta_core::entry::{Body, Entry};
use gesta_core::json::Canon;
use gesta_core::keys::Sign as _;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{Opened, State, Status};
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_core::world::Delta;
use gesta_store::{Chain, Draft, Store};

use crate::closing;
use crate::desk::{Desk, Event, Shared, failing};
use crate::error::RunError;
use crate::facts::Facts;
use crate::pipeline::{self, Ended, How};
use crate::runner;

/// The attempt of whoever has made none: attempts begin with 1.
const NO_ATTEMPT: u64 = 0;

/// Adds what a report says to the append, in whichever way the chain still needs it. False when it
/// has to wait for the trajectory's owner.
pub(crate) fn take_up(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    report: &Signed<EffectReport>,
    now: UnixMs,
) -> Result<bool, RunError> {
    let doc = report.doc();
    let state = draft.state();
    let owner = state.attempt() == desk.attempt;
    let Some(step) = state.step(&doc.step) else { return Ok(true) };
    match &step.status {
        Status::Open(opened) if opened.started == doc.started => {
            if owner {
                catch_up(desk, draft, report, now)?;
            }
            Ok(owner)
        }
        Status::Unknown { opened, .. } if opened.started == doc.started => {
            if owner && !says_nothing(doc, opened) {
                let known = failing("reported", "the executor's report has arrived");
                let what = (&doc.step, doc.started);
                let doubt = closing::doubt(desk, draft, what, known, None, now)?;
                resolve(desk, draft, report, doubt, now)?;
            }
            Ok(owner)
        }
        Status::InDoubt { entry, opened } if opened.started == doc.started => {
            if says_nothing(doc, opened) {
                return Ok(true);
            }
            let doubt = *entry;
            resolve(desk, draft, report, doubt, now)?;
            Ok(true)
        }
        _ => {
            // That nothing happened is no effect, however late it is told.
            if !denies(doc) && step.late().any(|start| start == doc.started) {
                let body = LateEffect { report: report.clone(), step: doc.step.clone() };
                draft.push(now, desk.author(), Body::LateEffect(Box::new(body)))?;
            }
            Ok(true)
        }
    }
}

fn denies(report: &EffectReport) -> bool {
    matches!(report.result, CallResult::Failed { certainty: Certainty::DidNotHappen, .. })
}

/// That one send did not happen ends no doubt when the same effect was sent before.
fn says_nothing(report: &EffectReport, opened: &Opened) -> bool {
    denies(report) && opened.again
}

/// Closes an open call by what its executor reported: no call is made.
fn catch_up(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    report: &Signed<EffectReport>,
    now: UnixMs,
) -> Result<(), RunError> {
    let doc = report.doc();
    let Some(asked) = draft.view().asked(&doc.step) else { return Ok(()) };
    let proposal = (*asked.proposal).clone();
    let how = match &doc.result {
        CallResult::Succeeded(settlement) => {
            if draft.state().world().check(&settlement.delta).is_err() {
                // What it changed cannot be recorded as it was reported. It happened all the same.
                let known = failing("delta_does_not_apply", "the world has moved on since");
                let what = (&doc.step, doc.started);
                let doubt = closing::doubt(desk, draft, what, known, None, now)?;
                return resolve(desk, draft, report, doubt, now);
            }
            How::Succeeded {
                value: Canon::null(),
                observation: settlement.observation.clone(),
                cost: settlement.cost,
            }
        }
        CallResult::Failed { certainty, cost, error, retryable } => How::Failed {
            certainty: *certainty,
            retryable: *retryable,
            cost: *cost,
            error: error.clone(),
            retry_after_ms: 0,
            output: None,
        },
    };
    let (step, started) = (doc.step.clone(), doc.started);
    let ended = Ended { step, started, proposal, at: doc.at, how };
    pipeline::settle(desk, draft, &ended, Some(report), now)
}

/// Ends a doubt by what the executor reported.
fn resolve(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    report: &Signed<EffectReport>,
    doubt: EntryId,
    now: UnixMs,
) -> Result<(), RunError> {
    let doc = report.doc();
    let verdict = match &doc.result {
        CallResult::Succeeded(settlement) => {
            let applies = draft.state().world().check(&settlement.delta).is_ok();
            let delta = if applies { settlement.delta.clone() } else { Delta::default() };
            ResolutionVerdict::Happened(Settlement { delta, ..settlement.clone() })
        }
        CallResult::Failed { certainty: Certainty::DidNotHappen, .. } => {
            ResolutionVerdict::DidNotHappen
        }
        // It happened, and went wrong: the step cannot succeed, and nothing more will be known.
        CallResult::Failed { .. } => ResolutionVerdict::GiveUp,
    };
    // Its own executor knows: there is nothing to wait for.
    let forced = verdict == ResolutionVerdict::DidNotHappen;
    let evidence = Content::Inline(Canon::of(report)?);
    let source = ResolvedBy::Inbox;
    push_resolution(
        desk,
        draft,
        report.doc().step.clone(),
        (doubt, verdict),
        (evidence, forced, source),
        now,
    )
}

/// Adds a resolution that this executor signs.
pub(crate) fn push_resolution(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    step: gesta_core::ids::StepId,
    (doubt, verdict): (EntryId, ResolutionVerdict),
    (evidence, forced, source): (Content, bool, ResolvedBy),
    now: UnixMs,
) -> Result<(), RunError> {
    let statement = desk.sign(ResolutionStatement {
        at: now,
        doubt,
        evidence,
        forced,
        key: desk.shared.key.id(),
        source,
        type_: Tag::default(),
        verdict,
    })?;
    let body = Body::Resolution(Box::new(Resolution { statement, step }));
    draft.push(now, desk.author(), body)?;
    Ok(())
}

/// Puts a report into the inbox, or the spool when the store cannot be reached, and takes it up at
/// once when the chain needs no owner for that.
pub(crate) async fn deliver(desk: &Desk, report: &Signed<EffectReport>) {
    let shared = &desk.shared;
    let spooled = shared.spool.as_ref().map(|spool| spool.put(report));
    let delivered = match (&shared.spool, &spooled) {
        // By way of the spool, so that a blob it names goes first.
        (Some(spool), Some(Ok(()))) => spool.deliver(&*shared.store).await,
        _ => shared.store.put_effect(report).await.map_err(RunError::from),
    };
    if let Err(error) = delivered {
        tracing::warn!(trajectory = %desk.trajectory, %error, "the inbox cannot be reached");
        if !matches!(spooled, Some(Ok(()))) {
            tracing::error!(trajectory = %desk.trajectory, step = %report.doc().step, "a result is lost to this worker; the step stays in doubt");
        }
        return;
    }
    if let Err(error) = take_up_now(desk, report).await {
        tracing::info!(trajectory = %desk.trajectory, %error, "the report waits in the inbox");
    }
}

/// Puts what could only be spooled into the inbox. What the store does not take now it is offered again.
pub(crate) async fn deliver_spooled(shared: &Shared) {
    let Some(spool) = &shared.spool else { return };
    if let Err(error) = spool.deliver(&*shared.store).await {
        tracing::warn!(%error, "what is spooled stays there");
    }
}

/// Takes up one report from the inbox, on behalf of whoever owns the trajectory.
async fn take_up_now(desk: &Desk, report: &Signed<EffectReport>) -> Result<(), RunError> {
    let store = Arc::clone(&desk.shared.store);
    let chain = Chain::<Facts>::follow(store, desk.trajectory).await?;
    take_up_alone(desk, chain, report, |entry| Event::Entry(Arc::new(entry))).await.map(drop)
}

/// Takes up one report in an append of its own. It leaves the inbox last: whoever dies before that leaves
/// it to the next, who finds the chain to have it and tells the accounts once more.
/// False when it has to wait for an owner.
async fn take_up_alone(
    desk: &Desk,
    mut chain: Chain<Facts>,
    report: &Signed<EffectReport>,
    told: fn(Entry) -> Event,
) -> Result<bool, RunError> {
    let shared = &desk.shared;
    let now = shared.pulse.now();
    let written = chain.write(|draft| take_up(desk, draft, report, now)).await?;
    shared.acknowledged(written.entries.last());
    for entry in written.entries {
        shared.tell(|| told(entry));
    }
    if written.made {
        desk.standing.afterwards(shared, &chain).await?;
        shared.store.drop_effect(report).await?;
    }
    Ok(written.made)
}

/// Takes up a report about a trajectory that nobody drives. False when it answers a call that is open, which only an
/// owner may close: it is to be driven, by a worker that has its tools.
pub(crate) async fn take_up_unread(
    shared: &Arc<Shared>,
    report: &Signed<EffectReport>,
) -> Result<bool, RunError> {
    let store = Arc::clone(&shared.store);
    let chain = Chain::<Facts>::follow(store, report.doc().trajectory).await?;
    let Some(mandate) = chain.view().mandate() else { return Ok(true) };
    let for_others = runner::lacking(shared, &chain).is_some();
    let claimed = (shared.pulse.lease(), NO_ATTEMPT, shared.in_force());
    let desk = Desk::new(Arc::clone(shared), claimed, chain.state(), mandate);
    // Whoever watches this worker watches other trajectories.
    let told = |entry: Entry| {
        let (trajectory, kind) = (entry.payload().trajectory, entry.kind());
        Event::Note(format!("what was reported about {trajectory} is in its chain: `{kind}`"))
    };
    Ok(take_up_alone(&desk, chain, report, told).await? || for_others)
}

/// Whether one of these reports from the inbox will end this doubt.
pub(crate) async fn is_told(
    store: &Arc<dyn Store>,
    facts: &Facts,
    mut reports: Vec<Signed<EffectReport>>,
    opened: &Opened,
) -> Result<bool, RunError> {
    reports.retain(|it| it.doc().started == opened.started && !says_nothing(it.doc(), opened));
    let registry = facts.mandate().and_then(|mandate| mandate.registry.as_ref());
    let Some(registry) = registry.filter(|_| !reports.is_empty()) else { return Ok(false) };
    let registry = Chain::load(Arc::clone(store), registry.trajectory).await?;
    Ok(reports.iter().any(|report| trusted(report, Some(registry.state()))))
}

/// Whether an executor signed this report.
pub(crate) fn trusted(report: &Signed<EffectReport>, registry: Option<&State>) -> bool {
    let doc = report.doc();
    let known = registry.is_some_and(|state| {
        state.registry().keys().check(doc.key, &[Role::Executor], None, doc.at).is_ok()
    });
    let good = known && report.verifies();
    if !good {
        tracing::error!(trajectory = %doc.trajectory, step = %doc.step, "a report in the inbox is not signed by an executor");
    }
    good
}
