//! The state machine against generated histories: what is offered is accepted, what is not offered
//! is refused, everything open can be closed, and there is always a way out.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::amounts::Amounts;
use gesta_core::body::{LateEffect, StepKind};
use gesta_core::digest::EntryId;
use gesta_core::document::{CallResult, Certainty, Failing, Recovery, ResolutionVerdict};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::projection::TrajectoryKind;
use gesta_core::sample::{Cast, Dice, History, SampleError, author};
use gesta_core::state::{Act, AdmitError, Failed, Offer, Scope, State, Status, Why};
use gesta_core::time::UnixMs;
use proptest::prelude::*;

const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);

/// A random legal history of a job, session, registry or branch.
fn history(seed: u64, length: usize) -> History {
    let mut history = History::begin(ID, Dice::new(seed)).unwrap();
    history.wander(length).unwrap();
    if history.dice.below(3) == 0 && history.cancel().unwrap() {
        let more = history.dice.below(1 + length as u64 / 2) as usize;
        history.wander(more).unwrap();
    }
    history
}

/// Whether a step waits for its time to be tried again.
fn rests(state: &State, on: &Scope, now: UnixMs) -> bool {
    let Scope::Step(step) = on else { return false };
    state.step(step).is_some_and(|step| {
        let again = matches!(step.status, Status::Idle | Status::Unknown { .. });
        again && step.retry_at.is_some_and(|at| now < at)
    })
}

/// Whether nothing is to be done about a step before some time: it rests, or what was sent could still
/// land.
fn sleeps(state: &State, on: &Scope, now: UnixMs) -> bool {
    let Scope::Step(id) = on else { return false };
    match state.step(id).map(|step| &step.status) {
        Some(Status::Unknown { refused, .. }) => !refused && !state.startable(id, now),
        _ => rests(state, on, now),
    }
}

/// Every `started` of a history whose effect could still arrive late, told from the entries alone: it
/// is closed, or nobody knows what became of it, and no entry has its effect.
fn could_be_late(entries: &[Entry]) -> BTreeMap<EntryId, (StepId, bool)> {
    let mut calls = BTreeMap::new();
    let mut doubts = BTreeMap::new();
    for entry in entries {
        let mut set = |id: EntryId, late: bool| calls.get_mut(&id).map(|(_, is)| *is = late);
        match &entry.payload().body {
            Body::Started(started) => {
                calls.insert(entry.id(), (started.proposal.step.clone(), false));
            }
            Body::Failure(failure) => {
                let happened = failure.certainty == Certainty::Happened;
                failure.started.and_then(|started| set(started, !happened));
            }
            Body::InDoubt(doubt) => {
                // One whose effect has arrived already stays as it is.
                doubts.insert(entry.id(), doubt.started);
                set(doubt.started, false);
            }
            Body::Resolution(resolution) => {
                let statement = resolution.statement.doc();
                let happened = matches!(statement.verdict, ResolutionVerdict::Happened(_));
                doubts.get(&statement.doubt).and_then(|started| set(*started, !happened));
            }
            _ => {}
        }
    }
    for entry in entries {
        if let Body::LateEffect(late) = &entry.payload().body
            && let Some((_, is)) = calls.get_mut(&late.report.doc().started)
        {
            *is = false;
        }
    }
    calls
}

/// The offer that a body would make good.
fn offer_of(body: &Body) -> Option<(Act, Option<String>)> {
    use gesta_core::body::Origin;
    let act = match body {
        Body::Root(_) | Body::Branch(_) => Act::Begin,
        Body::Plan(_) => Act::Plan,
        Body::Attempt(_) => Act::Attempt,
        Body::Started(_) => Act::Start,
        Body::Commit(commit) => match commit.origin {
            Origin::Effect { .. } => Act::CommitEffect,
            Origin::Computed => Act::CommitComputed,
            Origin::Skipped => Act::CommitSkipped,
            Origin::Woken { .. } => Act::CommitWoken,
            Origin::RecordedFrom { .. } => Act::CommitRecorded,
        },
        Body::Failure(failure) if failure.started.is_none() => Act::FailUnstarted,
        Body::Failure(failure) => Act::Fail(*Failed::ALL.iter().find(|failed| {
            failed.parts() == (failure.outcome, failure.certainty, failure.dispatched)
        })?),
        Body::Rejection(_) => Act::Reject,
        Body::PendingApproval(_) => Act::Escalate,
        Body::Approval(_) => Act::Approve,
        Body::InDoubt(_) => Act::Doubt,
        Body::Waiting(_) => Act::Wait,
        Body::Timer(_) => Act::FireTimer,
        Body::Delegation(_) => Act::Delegate,
        Body::DelegationResult(_) => Act::PullChild,
        Body::Delivered(_) => Act::Deliver,
        Body::Compensation(_) => Act::Compensate,
        Body::Completed(_) => Act::Complete,
        Body::Failed(_) => Act::EndFailed,
        Body::Cancelled(_) => Act::EndCancelled,
        Body::CancelRequested(_) => Act::RequestCancel,
        Body::Erased(_) => Act::Erase,
        Body::Registration(_) => Act::Register,
        Body::Checkpoint(_) => Act::Checkpoint,
        Body::LateEffect(_) | Body::Signal(_) | Body::Resolution(_) | Body::Confirmation(_) => {
            return None;
        }
    };
    Some((act, body.step().map(ToString::to_string)))
}

fn offered(offers: &[Offer], act: Act, step: Option<&str>, fresh: bool) -> bool {
    offers.iter().any(|offer| {
        offer.act == act
            && match (&offer.on, step) {
                (Scope::Trajectory, None) => true,
                (Scope::Step(on), Some(step)) => on.as_str() == step,
                (Scope::NewStep, Some(_)) => fresh,
                (Scope::Below(node), Some(step)) => fresh && step.starts_with(&format!("{node}/")),
                _ => false,
            }
    })
}

const EVERY_ACT: &[Act] = &[
    Act::Begin,
    Act::Plan,
    Act::Attempt,
    Act::Start,
    Act::CommitEffect,
    Act::CommitComputed,
    Act::CommitSkipped,
    Act::CommitWoken,
    Act::CommitRecorded,
    Act::Fail(Failed::NotDispatched),
    Act::Fail(Failed::PermanentNotDispatched),
    Act::Fail(Failed::RetryableDidNotHappen),
    Act::Fail(Failed::PermanentDidNotHappen),
    Act::Fail(Failed::PermanentHappened),
    Act::Fail(Failed::CompensatableHappened),
    Act::Fail(Failed::RetryableUnknown),
    Act::Fail(Failed::PermanentUnknown),
    Act::FailUnstarted,
    Act::Reject,
    Act::Escalate,
    Act::Approve,
    Act::Doubt,
    Act::ResolveHappened,
    Act::ResolveDidNotHappen,
    Act::ResolveForced,
    Act::ResolveGiveUp,
    Act::LateEffect,
    Act::Confirm,
    Act::ConfirmByPerson,
    Act::Compensate,
    Act::Wait,
    Act::Signal,
    Act::FireTimer,
    Act::Delegate,
    Act::PullChild,
    Act::Deliver,
    Act::Checkpoint,
    Act::Register,
    Act::Erase,
    Act::RequestCancel,
    Act::Complete,
    Act::EndFailed,
    Act::EndCancelled,
];

/// Acts on the whole trajectory rather than on a step.
fn is_whole(act: Act) -> bool {
    use Act::*;
    matches!(
        act,
        Begin
            | Plan
            | Attempt
            | LateEffect
            | Compensate
            | Signal
            | Checkpoint
            | Register
            | Erase
            | RequestCancel
            | Complete
            | EndFailed
            | EndCancelled
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What does not fit the budget is refused for that alone, and can be refused by the Guardian.
    #[test]
    fn what_is_offered_is_accepted(seed: u64, length in 0usize..60) {
        let History { cast, admission, now, mut dice, .. } = history(seed, length);
        let state = admission.state();
        let offers = state.next(now);
        for offer in &offers {
            let mut trial = admission.clone();
            let tried = cast.push(&mut trial, offer, now, &mut dice);
            if Cast::affords(state, offer.act) {
                if let Err(error) = tried {
                    panic!("offered {offer:?} in {}, but: {error}", state.name());
                }
                continue;
            }
            let refused = matches!(&tried, Err(SampleError::Admit(AdmitError::Illegal(illegal))) if matches!(illegal.why, Why::Budget(_)));
            prop_assert!(refused, "{offer:?} with nothing left: {tried:?}");
            let rejects = Offer { act: Act::Reject, on: offer.on.clone() };
            prop_assert!(offers.contains(&rejects), "no {rejects:?} with nothing left");
        }
    }

    #[test]
    fn what_is_not_offered_is_refused(seed: u64, length in 0usize..60) {
        let History { cast, admission, now, mut dice, .. } = history(seed, length);
        let state = admission.state();
        let offers = state.next(now);
        let mut steps: BTreeSet<String> = state.steps().map(|(id, _)| id.to_string()).collect();
        steps.extend(["fetch", "total", "triage", "charge", "pause", "research", "mail", "nowhere", "triage/new", "mail/undo"].map(String::from));
        for act in EVERY_ACT {
            let targets: Vec<Option<&str>> =
                if is_whole(*act) { vec![None] } else { steps.iter().map(|step| Some(step.as_str())).collect() };
            for target in targets {
                let fresh = target.is_some_and(|step| state.step(&step.parse().unwrap()).is_none());
                if offered(&offers, *act, target, fresh) {
                    continue;
                }
                let on = target.map_or(Scope::Trajectory, |step| Scope::Step(step.parse().unwrap()));
                // Version 1 lets these in, and nobody is offered them.
                if matches!(act, Act::Reject | Act::Escalate) && rests(state, &on, now) {
                    continue;
                }
                let Ok(body) = cast.body(state, &Offer { act: *act, on }, now, &mut dice) else { continue };
                let by = author(state, *act).unwrap();
                let mut trial = admission.clone();
                let accepted = trial.push(now, by, body).is_ok();
                prop_assert!(!accepted, "accepted {act:?} on {target:?} in {}", state.name());
                prop_assert!(trial.state() == state, "a refused {act:?} left a trace");
            }
        }
    }

    /// Bodies that were legal once, moved to another place of the chain. Signals, late effects and
    /// resolutions never come twice.
    #[test]
    fn what_was_legal_once_is_refused_when_it_is_not_offered(seed: u64, length in 1usize..60) {
        let History { admission, now, .. } = history(seed, length);
        let state = admission.state().clone();
        let offers = state.next(now);
        for entry in admission.entries() {
            let body = entry.payload().body.clone();
            let by = match offer_of(&body) {
                Some((act, step)) => {
                    let fresh = step.as_ref().is_some_and(|step| state.step(&step.parse().unwrap()).is_none());
                    if offered(&offers, act, step.as_deref(), fresh) {
                        continue;
                    }
                    author(&state, act).unwrap()
                }
                None if matches!(body, Body::Confirmation(_)) => continue,
                None => author(&state, Act::Signal).unwrap(),
            };
            let mut trial = admission.clone();
            prop_assert!(trial.push(now, by, body).is_err(), "{} again in {}", entry.kind(), state.name());
            prop_assert!(trial.state() == &state, "a refused {} left a trace", entry.kind());
        }
    }

    /// An effect is late once its call is closed, and once only; no call that never was has one.
    #[test]
    fn effects_are_late_once_their_calls_are_closed(seed: u64, length in 0usize..80) {
        let History { cast, admission, now, .. } = history(seed, length);
        let state = admission.state();
        let mut calls = could_be_late(admission.entries());
        let offer = Offer { act: Act::LateEffect, on: Scope::Trajectory };
        let any = calls.values().any(|(_, late)| *late);
        prop_assert_eq!(any, state.next(now).contains(&offer));
        if state.kind() != Some(TrajectoryKind::Registry) {
            calls.extend(admission.entries().first().map(|entry| (entry.id(), ("fetch".parse().unwrap(), false))));
        }
        for (started, (step, late)) in calls {
            let error = Failing { code: "late".to_owned(), message: String::new() };
            let (certainty, cost, retryable) = (Certainty::Happened, Amounts::ONE_CALL, false);
            let result = CallResult::Failed { certainty, cost, error, retryable };
            let report = cast.report(state, &step, started, result, now).unwrap();
            let body = || Body::LateEffect(Box::new(LateEffect { report: report.clone(), step: step.clone() }));
            let by = author(state, Act::LateEffect).unwrap();
            let mut trial = admission.clone();
            prop_assert_eq!(trial.push(now, by.clone(), body()).is_ok(), late, "{} in {}", step, state.name());
            prop_assert!(trial.push(now, by, body()).is_err(), "{} twice", step);
            let more = if late { cost } else { Amounts::default() };
            prop_assert_eq!(trial.state().spent_at_most(), state.spent_at_most().plus(more));
        }
    }

    #[test]
    fn every_open_call_can_be_closed_whatever_became_of_it(seed: u64, length in 0usize..80) {
        let History { cast, admission, now, mut dice, .. } = history(seed, length);
        let open: Vec<_> = admission
            .state()
            .steps()
            .filter_map(|(id, step)| match &step.status {
                Status::Open(opened) => Some((id.clone(), opened.again)),
                _ => None,
            })
            .collect();
        for (step, again) in open {
            let mut closes = |act| {
                let mut trial = admission.clone();
                cast.push(&mut trial, &Offer { act, on: Scope::Step(step.clone()) }, now, &mut dice).is_ok()
            };
            prop_assert!(closes(Act::CommitEffect));
            prop_assert!(closes(Act::Fail(Failed::NotDispatched)));
            prop_assert!(closes(Act::Fail(Failed::PermanentHappened)));
            prop_assert!(closes(Act::Fail(Failed::CompensatableHappened)));
            prop_assert!(closes(Act::Doubt));
            // That one of several sends did not happen says nothing about the others.
            prop_assert_eq!(closes(Act::Fail(Failed::RetryableDidNotHappen)), !again);
            prop_assert_eq!(closes(Act::Fail(Failed::PermanentDidNotHappen)), !again);
        }
    }

    #[test]
    fn there_is_always_a_way_out(seed: u64, length in 0usize..80) {
        let History { cast, mut admission, mut now, mut dice, .. } = history(seed, length);
        if admission.state().kind() == Some(TrajectoryKind::Registry) {
            return Ok(());
        }
        let rank = |offer: &Offer| match offer.act {
            Act::EndFailed | Act::EndCancelled | Act::Complete => 0,
            Act::ResolveGiveUp => 1,
            Act::PullChild => 2,
            Act::Doubt => 3,
            Act::Reject => 4,
            Act::Start => 5,
            Act::Attempt => 6,
            _ => 9,
        };
        for _ in 0..400 {
            if admission.state().ended().is_some() {
                return Ok(());
            }
            now = now.plus(100_000);
            let offers = admission.state().next(now);
            let best = offers.iter().min_by_key(|offer| rank(offer));
            let Some(best) = best else { panic!("no way out of {}", admission.state().name()) };
            cast.push(&mut admission, best, now, &mut dice).unwrap();
        }
        prop_assert!(false, "still in {} after 400 entries", admission.state().name());
    }

    #[test]
    fn folding_the_bytes_gives_the_same_state(seed: u64, length in 0usize..60) {
        let History { base, admission, now, .. } = history(seed, length);
        let expected = admission.state().clone();
        let (admitted, _) = admission.finish().unwrap();
        let mut state = base;
        for entry in admitted.entries() {
            let read = Entry::from_bytes(entry.bytes()).unwrap();
            prop_assert_eq!(&read, entry);
            state.apply(&read).unwrap();
        }
        prop_assert!(state == expected);
        prop_assert_eq!(state.next(now), expected.next(now));
        prop_assert_eq!(state.summary(), Some(admitted.projection().summary.clone()));
        prop_assert_eq!(state.parked().collect::<Vec<_>>().len(), admitted.projection().parked.len());
    }

    /// "Runnable" in the projection is what `next` offers to a worker, no more and no less.
    #[test]
    fn runnable_agrees_with_what_is_offered(seed: u64, length in 0usize..60) {
        let History { admission, now, .. } = history(seed, length);
        let state = admission.state();
        if state.kind() != Some(TrajectoryKind::Job) {
            return Ok(());
        }
        let summary = state.summary().unwrap();
        let stopping = matches!(state.name(), "failing" | "cancelling" | "rolling back");
        let probes = |on: &Scope| match on {
            Scope::Step(step) => matches!(
                state.step(step).map(|step| &step.status),
                Some(Status::InDoubt { opened, .. }) if opened.recovery == Recovery::Probe
            ),
            _ => false,
        };
        let offers = state.next(now);
        // Looking once more at what a person is to confirm moves nothing.
        let asked = |on: &Scope| offers.contains(&Offer { act: Act::ConfirmByPerson, on: on.clone() });
        // Nor is there anything to do below a loop that says so.
        let newest = admission.entries().last().map(|entry| &entry.payload().body);
        let quiet = matches!(newest, Some(Body::Waiting(waiting)) if waiting.rests());
        let silent = |on: &Scope| quiet && match on {
            Scope::Below(_) => true,
            Scope::Step(step) => state.kind_of(step) == Some(StepKind::Loop),
            _ => false,
        };
        let work = offers.iter().any(|offer| match offer.act {
            _ if silent(&offer.on) => false,
            Act::Confirm if asked(&offer.on) => false,
            Act::Checkpoint | Act::PullChild => false,
            Act::EndFailed | Act::EndCancelled | Act::Compensate => stopping,
            // Once the call cannot land any more, a probe may tell that it never did.
            Act::ResolveDidNotHappen => probes(&offer.on),
            act => !act.open() && !sleeps(state, &offer.on, now),
        });
        let awake = summary.runnable || summary.wake_at.is_some_and(|at| at <= now);
        prop_assert_eq!(awake, work, "in {}: {:?}", state.name(), state.next(now));
    }
}

/// The histories above are worth something only if they get everywhere.
#[test]
fn generated_histories_reach_every_kind_and_status() {
    let mut kinds = BTreeSet::new();
    let mut statuses = BTreeSet::new();
    let mut names = BTreeSet::new();
    let (mut resting, mut spent, mut taken_over) = (0, 0, 0);
    for seed in 0..400 {
        let mut history = history(seed, 60);
        for _ in 0..40 {
            let state = history.admission.state();
            statuses.extend(state.steps().map(|(_, step)| step.status.as_str()));
            names.insert(state.name());
            resting += state
                .steps()
                .filter(|(id, _)| rests(state, &Scope::Step((*id).clone()), history.now))
                .count();
            spent += usize::from(!Cast::affords(state, Act::Start));
            history.wander(1).unwrap();
        }
        let end = history.admission.state().next(history.now).into_iter().find(|offer| {
            matches!(offer.act, Act::Complete | Act::EndCancelled)
                || (matches!(offer.act, Act::EndFailed) && seed % 2 == 0)
        });
        if let Some(end) = end {
            history.push(&end).unwrap();
            history.wander(2).unwrap();
        }
        names.insert(history.admission.state().name());
        let entries = history.admission.entries();
        kinds.extend(entries.iter().map(Entry::kind));
        taken_over += entries
            .iter()
            .filter(|entry| {
                matches!(offer_of(&entry.payload().body), Some((Act::CommitRecorded, _)))
            })
            .count();
    }
    let all = gesta_core::entry::Kind::ALL;
    let missing: Vec<_> = all.iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "never written: {missing:?}");
    assert!(resting > 100 && spent > 100 && taken_over > 20, "{resting} {spent} {taken_over}");
    assert_eq!(statuses.len(), 12, "{statuses:?}");
    let expected = [
        "cancelled",
        "cancelling",
        "completed",
        "failed",
        "failing",
        "live",
        "rolling back",
        "standing",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
}
