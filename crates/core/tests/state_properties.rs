//! The state machine against generated histories: what is offered is accepted, what is not offered
//! is refused, everything open can be closed, and there is always a way out.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use gesta_core::document::Recovery;
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::TrajectoryKind;
use gesta_core::sample::{Cast, Dice, EPOCH, author};
use gesta_core::state::{Act, Admission, Failed, Offer, Scope, State, Status};
use gesta_core::time::UnixMs;
use proptest::prelude::*;

const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);

/// A random legal history of a job, session or registry.
fn history(seed: u64, length: usize) -> (Admission, UnixMs, Dice) {
    let cast = Cast::new(1);
    let mut dice = Dice::new(seed);
    let mut now = EPOCH;
    let mut admission = match dice.below(5) {
        0 => {
            let mut admission = State::new(ID).admit();
            let by = author(admission.state(), Act::Begin).unwrap();
            admission.push(EPOCH, by, cast.registry_root().unwrap()).unwrap();
            admission
        }
        1 => cast.begin_session(ID).unwrap(),
        _ => cast.begin_job(ID).unwrap(),
    };
    cast.wander(&mut admission, length, &mut now, &mut dice).unwrap();
    if dice.below(3) == 0
        && admission.state().next(now).iter().any(|offer| offer.act == Act::RequestCancel)
    {
        let offer = Offer { act: Act::RequestCancel, on: Scope::Trajectory };
        cast.push(&mut admission, &offer, now, &mut dice).unwrap();
        let more = dice.below(1 + length as u64 / 2) as usize;
        cast.wander(&mut admission, more, &mut now, &mut dice).unwrap();
    }
    (admission, now, dice)
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
    Act::Confirm,
    Act::ConfirmByPerson,
    Act::Compensate,
    Act::Wait,
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
            | Compensate
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
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn what_is_offered_is_accepted(seed: u64, length in 0usize..60) {
        let (admission, now, mut dice) = history(seed, length);
        let cast = Cast::new(1);
        for offer in admission.state().next(now) {
            let mut trial = admission.clone();
            if let Err(error) = cast.push(&mut trial, &offer, now, &mut dice) {
                panic!("offered {offer:?} in {}, but: {error}", admission.state().name());
            }
        }
    }

    #[test]
    fn what_is_not_offered_is_refused(seed: u64, length in 0usize..60) {
        let (admission, now, mut dice) = history(seed, length);
        let cast = Cast::new(1);
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
                let Ok(body) = cast.body(state, &Offer { act: *act, on }, now, &mut dice) else { continue };
                let by = author(state, *act).unwrap();
                let mut trial = admission.clone();
                let accepted = trial.push(now, by, body).is_ok();
                prop_assert!(!accepted, "accepted {act:?} on {target:?} in {}", state.name());
                prop_assert!(trial.state() == state, "a refused {act:?} left a trace");
            }
        }
    }

    /// Bodies that were legal once, moved to another place of the chain.
    #[test]
    fn what_was_legal_once_is_refused_when_it_is_not_offered(seed: u64, length in 1usize..60) {
        let (admission, now, _) = history(seed, length);
        let state = admission.state().clone();
        let offers = state.next(now);
        let past: Vec<Entry> = admission.clone().finish().map_or_else(Vec::new, |(admitted, _)| admitted.entries().to_vec());
        for entry in past {
            let body = entry.payload().body.clone();
            let Some((act, step)) = offer_of(&body) else { continue };
            let fresh = step.as_ref().is_some_and(|step| state.step(&step.parse().unwrap()).is_none());
            if offered(&offers, act, step.as_deref(), fresh) {
                continue;
            }
            let mut trial = admission.clone();
            let by = author(&state, act).unwrap();
            prop_assert!(trial.push(now, by, body).is_err(), "{act:?} on {step:?} again in {}", state.name());
        }
    }

    #[test]
    fn every_open_call_can_be_closed_whatever_became_of_it(seed: u64, length in 0usize..80) {
        let (admission, now, mut dice) = history(seed, length);
        let cast = Cast::new(1);
        let open: Vec<_> = admission
            .state()
            .steps()
            .filter(|(_, step)| matches!(step.status, Status::Open(_)))
            .map(|(id, _)| id.clone())
            .collect();
        for step in open {
            let mut closes = |act| {
                let mut trial = admission.clone();
                cast.push(&mut trial, &Offer { act, on: Scope::Step(step.clone()) }, now, &mut dice).is_ok()
            };
            prop_assert!(closes(Act::CommitEffect));
            prop_assert!(closes(Act::Fail(Failed::RetryableDidNotHappen)));
            prop_assert!(closes(Act::Fail(Failed::PermanentDidNotHappen)));
            prop_assert!(closes(Act::Fail(Failed::NotDispatched)));
            prop_assert!(closes(Act::Fail(Failed::PermanentHappened)));
            prop_assert!(closes(Act::Fail(Failed::CompensatableHappened)));
            prop_assert!(closes(Act::Doubt));
        }
    }

    #[test]
    fn there_is_always_a_way_out(seed: u64, length in 0usize..80) {
        let (mut admission, mut now, mut dice) = history(seed, length);
        let cast = Cast::new(1);
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
        let (admission, now, _) = history(seed, length);
        let expected = admission.state().clone();
        let (admitted, _) = admission.finish().unwrap();
        let mut state = State::new(ID);
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
        let (admission, now, _) = history(seed, length);
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
        let work = state.next(now).into_iter().any(|offer| match offer.act {
            Act::Checkpoint | Act::PullChild => false,
            Act::EndFailed | Act::EndCancelled | Act::Compensate => stopping,
            // Once the call cannot land any more, a probe may tell that it never did.
            Act::ResolveDidNotHappen => probes(&offer.on),
            act => !act.open(),
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
    let cast = Cast::new(1);
    for seed in 0..400 {
        let (mut admission, mut now, mut dice) = history(seed, 60);
        for _ in 0..40 {
            statuses.extend(admission.state().steps().map(|(_, step)| step.status.as_str()));
            names.insert(admission.state().name());
            cast.wander(&mut admission, 1, &mut now, &mut dice).unwrap();
        }
        let end = admission.state().next(now).into_iter().find(|offer| {
            matches!(offer.act, Act::Complete | Act::EndCancelled)
                || (matches!(offer.act, Act::EndFailed) && seed % 2 == 0)
        });
        if let Some(end) = end {
            cast.push(&mut admission, &end, now, &mut dice).unwrap();
            cast.wander(&mut admission, 2, &mut now, &mut dice).unwrap();
        }
        names.insert(admission.state().name());
        if let Some((admitted, _)) = admission.finish() {
            kinds.extend(admitted.entries().iter().map(Entry::kind));
        }
    }
    let missing: Vec<_> = gesta_core::entry::Kind::ALL
        .iter()
        .filter(|kind| !kinds.contains(kind) && kind.as_str() != "branch")
        .collect();
    assert!(missing.is_empty(), "never written: {missing:?}");
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
