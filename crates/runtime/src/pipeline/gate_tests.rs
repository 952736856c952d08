//! The gate, with one thing altered at a time: each is refused with its own code, and nothing is sent.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::body::Proposal;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::{Decision, Environment, Permit, Reason, Recovery, Verdict};
use gesta_core::entry::Author;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::{PrivateKey, Sign as _};
use gesta_core::sample::{Cast, EPOCH, environment, person, worker};
use gesta_core::signed::{Document, Signed, Tag};
use gesta_core::state::State;
use gesta_core::writ::Effect;
use gesta_store::memory::MemoryStore;
use tokio::time::Instant;

use super::{Ended, How, Prepared, Ticket, carry_out};
use crate::clock::Pulse;
use crate::desk::{Desk, Shared};
use crate::in_force::InForce;
use crate::limits::Slot;
use crate::options::Options;
use crate::rules::Rules;
use crate::signer::Signer;
use crate::tools::{Catalogue, FunctionCall, FunctionError, Manifest};

const TRAJECTORY: TrajectoryId = TrajectoryId::from_bytes([7; 16]);
const LEASE_MS: u64 = 10_000;

fn guardian() -> PrivateKey {
    PrivateKey::from_seed(&[0x77; 32])
}

fn stranger() -> PrivateKey {
    PrivateKey::from_seed(&[0x66; 32])
}

/// A desk in the middle of an attempt, with a tool that counts its calls.
fn desk(called: &Arc<AtomicU64>) -> Desk {
    let counted = Arc::clone(called);
    let pay = move |_: FunctionCall| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, FunctionError>(serde_json::json!("paid")) }
    };
    let manifest = Manifest::new("pay".parse().unwrap(), Effect::External);
    let catalogue = Arc::new(Catalogue::builder().function(manifest, pay).build().unwrap());
    let rules = Arc::new(Rules::of_all(&catalogue).unwrap());
    let none = Err("nobody asks".to_owned());
    let in_force = Arc::new(InForce::recorded(environment(), none).unwrap());
    let started = Instant::now();
    let clock = Arc::new(move || EPOCH.plus(crate::clock::millis(started.elapsed())));
    let with = (Arc::clone(&in_force), Options::default());
    let mut shared = Shared::of_record(
        Arc::new(MemoryStore::new(clock)),
        worker().unwrap(),
        guardian().id(),
        (catalogue, rules),
        with,
    );
    shared.guardian = Signer::new(&guardian()).unwrap();
    shared.key = Signer::new(&guardian()).unwrap();
    shared.pulse = Pulse::new(EPOCH, started, LEASE_MS);
    let cast = Cast::new(1);
    let job = cast.begin_job(TRAJECTORY).unwrap();
    let mandate = cast.mandate(TRAJECTORY).unwrap();
    let claimed = (shared.pulse.lease(), 1, in_force);
    Desk::new(Arc::new(shared), claimed, job.state(), &mandate)
}

/// How a document came to be at hand.
#[derive(Clone, Copy)]
enum Made {
    /// Signed a moment ago by whoever decides here.
    Here,
    /// The same, and read from its bytes.
    Read,
    /// Signed by another key, and saying so.
    ByAnother,
    /// Read, with the signature of another document.
    Forged,
}

/// Everything that the gate looks at.
struct Case {
    decision: Decision,
    decided: Made,
    permit: Permit,
    permitted: Made,
    /// Whether the permit names the decision.
    bound: bool,
    proposal: Proposal,
    slot: Option<Slot>,
    /// How long the append took.
    stored_after: Duration,
}

impl Case {
    fn new() -> Self {
        let proposal = Proposal {
            args: Canon::parse(br#"{"cents":5}"#).unwrap(),
            step: "it".parse().unwrap(),
            tool: "pay".parse().unwrap(),
        };
        let decision = Decision {
            at: EPOCH,
            environment: environment().digest().unwrap(),
            key: guardian().id(),
            parent: EntryId::new(Digest::of(b"parent")),
            proposal: proposal.id().unwrap(),
            reason: None,
            registry: None,
            step: proposal.step.clone(),
            trace: Vec::new(),
            trajectory: TRAJECTORY,
            type_: Tag::default(),
            verdict: Verdict::Allow,
            writ: gesta_core::digest::WritId::new(Digest::of(b"writ")),
        };
        let permit = Permit {
            attempt: 1,
            dead_at: EPOCH.plus(60_000),
            decision: made(&decision, Made::Here, |_, _| ()).id(),
            dispatch_by: EPOCH.plus(5_000),
            effect: Effect::External,
            generation: 1,
            idempotency_key: proposal.idempotency_key(TRAJECTORY),
            key: guardian().id(),
            recovery: Recovery::Never,
            reserve: Amounts::ONE_CALL,
            type_: Tag::default(),
        };
        let (decided, permitted) = (Made::Here, Made::Here);
        let (slot, stored_after) = (None, Duration::ZERO);
        Self { decision, decided, permit, permitted, bound: true, proposal, slot, stored_after }
    }

    /// Goes through the gate. How that ended, and how often the tool was called.
    async fn through(self, alter: impl FnOnce(&Desk)) -> (Ended, u64) {
        let called = Arc::new(AtomicU64::new(0));
        let desk = desk(&called);
        alter(&desk);
        let decision = made(&self.decision, self.decided, |doc, key| doc.key = key.id());
        let mut permit = self.permit;
        if self.bound {
            permit.decision = decision.id();
        }
        let permit = made(&permit, self.permitted, |doc, key| doc.key = key.id());
        let prepared = Prepared {
            started: EntryId::new(Digest::of(b"started")),
            decision,
            permit,
            approved_by: Vec::new(),
            proposal: self.proposal,
            timeout_ms: 1_000,
            slot: self.slot,
            asked: Instant::now(),
            hold: None,
            pass: None,
            sent_before: None,
        };
        tokio::time::advance(self.stored_after).await;
        let ended = carry_out(Arc::new(desk), Ticket(Box::new(prepared))).await;
        (ended, called.load(Ordering::SeqCst))
    }
}

fn made<D: Document + Clone>(
    document: &D,
    how: Made,
    name: impl FnOnce(&mut D, &PrivateKey),
) -> Signed<D> {
    let sign = |document: D, key: &PrivateKey| Signed::sign(document, key).unwrap();
    let genuine = sign(document.clone(), &guardian());
    match how {
        Made::Here => genuine,
        Made::Read => Canon::of(&genuine).unwrap().read().unwrap(),
        Made::ByAnother => {
            let mut document = document.clone();
            name(&mut document, &stranger());
            sign(document, &stranger())
        }
        Made::Forged => {
            let other = stranger().sign(genuine.canon().as_bytes());
            let mut forged = serde_json::to_value(&genuine).unwrap();
            forged["sig"] = serde_json::to_value(other).unwrap();
            Canon::of(&forged).unwrap().read().unwrap()
        }
    }
}

/// Refused with this code, and nothing was sent.
#[track_caller]
fn check((ended, called): (Ended, u64), code: &str) {
    match ended.how {
        How::TurnedAway(error) => assert_eq!(error.code, code, "{}", error.message),
        other => panic!("{code}: {other:?}"),
    }
    assert_eq!(called, 0, "{code}");
}

#[tokio::test(start_paused = true)]
async fn what_is_as_it_was_permitted_is_sent_once() {
    for made in [Made::Here, Made::Read] {
        let case = Case { decided: made, permitted: made, ..Case::new() };
        let (ended, called) = case.through(|_| ()).await;
        assert!(matches!(ended.how, How::Succeeded { .. }), "{:?}", ended.how);
        assert_eq!(called, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn signatures_are_the_guardians_own() {
    for made in [Made::ByAnother, Made::Forged] {
        let case = Case { decided: made, ..Case::new() };
        check(case.through(|_| ()).await, "gate_signature");
        let case = Case { permitted: made, ..Case::new() };
        check(case.through(|_| ()).await, "gate_signature");
    }
}

#[tokio::test(start_paused = true)]
async fn the_permit_rests_on_a_decision_that_allows() {
    for (verdict, reason) in
        [(Verdict::Deny, Some(Reason::PolicyDenied)), (Verdict::Escalate, None)]
    {
        let mut case = Case::new();
        (case.decision.verdict, case.decision.reason) = (verdict, reason);
        check(case.through(|_| ()).await, "gate_verdict");
    }
    let mut other = Case { bound: false, ..Case::new() };
    other.decision.at = EPOCH.plus(1);
    check(other.through(|_| ()).await, "gate_verdict");
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_good_until_its_time_and_no_longer() {
    let after = |ms| Case { stored_after: Duration::from_millis(ms), ..Case::new() };
    let (ended, called) = after(5_000).through(|_| ()).await;
    assert_eq!((called, matches!(ended.how, How::Succeeded { .. })), (1, true), "{:?}", ended.how);
    check(after(5_001).through(|_| ()).await, "gate_too_late");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_may_have_ended_is_no_lease() {
    let mut case = Case { stored_after: Duration::from_millis(LEASE_MS), ..Case::new() };
    case.permit.dispatch_by = EPOCH.plus(60_000);
    check(case.through(|_| ()).await, "gate_lease_lost");
    // A lease that began anew is another one: nothing is held under it that was claimed before.
    let mut case = Case { stored_after: Duration::from_millis(1), ..Case::new() };
    case.permit.dispatch_by = EPOCH.plus(60_000);
    let anew = |desk: &Desk| {
        let pulse = &desk.shared.pulse;
        pulse.beat(EPOCH, Instant::now() - Duration::from_millis(LEASE_MS), LEASE_MS);
        pulse.beat(EPOCH, Instant::now(), LEASE_MS);
    };
    check(case.through(anew).await, "gate_lease_lost");
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_what_was_permitted() {
    let altered = [
        |proposal: &mut Proposal| proposal.args = Canon::parse(br#"{"cents":6}"#).unwrap(),
        |proposal: &mut Proposal| proposal.step = "other".parse().unwrap(),
        |proposal: &mut Proposal| proposal.tool = "refund".parse().unwrap(),
    ];
    for alter in altered {
        let mut case = Case::new();
        alter(&mut case.proposal);
        check(case.through(|_| ()).await, "gate_digest");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_force_is_what_was_decided_under() {
    let alter: [fn(&mut Environment); 3] = [
        |environment| environment.tools = Digest::of(b"others"),
        |environment| environment.policy = Digest::of(b"others"),
        |environment| environment.config = Digest::of(b"others"),
    ];
    for alter in alter {
        let changed = |desk: &Desk| {
            let mut environment = environment();
            alter(&mut environment);
            let now = InForce::recorded(environment, Err("nobody asks".to_owned())).unwrap();
            let mut in_force = desk.shared.in_force.write().unwrap_or_else(PoisonError::into_inner);
            *in_force = Arc::new(now);
        };
        check(Case::new().through(changed).await, "gate_environment");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_of_a_limit_that_may_have_ended_is_no_share() {
    let case = Case { slot: Some(Slot::lapsed()), ..Case::new() };
    check(case.through(|_| ()).await, "gate_limit");
}

/// What is known of the registry is too old, and it cannot be read again; or it has moved, and this worker's
/// key is not in it.
#[tokio::test(start_paused = true)]
async fn a_registry_that_cannot_be_read_or_has_moved_lets_nothing_pass() {
    let mut admission = State::new(TrajectoryId::from_bytes([0xee; 16])).admit();
    let root = Cast::new(1).registry_root().unwrap();
    admission.push(EPOCH, Author::Principal(person().unwrap()), root).unwrap();
    let state = Arc::new(admission.state().clone());
    let known = |desk: &Desk| {
        let mut registry = desk.shared.registry.write().unwrap_or_else(PoisonError::into_inner);
        *registry = Some(Arc::clone(&state));
    };
    let decided_on_it = || {
        let mut case = Case::new();
        case.decision.registry = state.head();
        case
    };
    let (ended, called) = decided_on_it().through(known).await;
    assert_eq!((called, matches!(ended.how, How::Succeeded { .. })), (1, true), "{:?}", ended.how);
    let case = Case { stored_after: Duration::from_millis(251), ..decided_on_it() };
    check(case.through(known).await, "gate_registry");
    check(Case::new().through(known).await, "gate_authority");
}
