//! Decisions, permits, approvals and writs that do not belong where they stand: replayed, swapped,
//! bound to something else, expired, edited, signed by others. Unless a case is about a signature, every
//! signature in it holds and every id fits: a host that has the keys could not get them past the chain.

use gesta_core::body::{Approval, Purpose, Started};
use gesta_core::document::ApprovalVerdict;
use gesta_core::entry::{Author, Body, Entry, Payload};
use gesta_core::json::Canon;
use gesta_core::keys::{PrivateKey, Sign as _};
use gesta_core::sample::{Cast, Dice, EPOCH, author, person};
use gesta_core::signed::Signed;
use gesta_core::state::{Act, Failed, Offer, Scope, State};
use gesta_core::time::{UnixMs, Window};
use gesta_core::verification::Class::{Tampered, Untrusted};
use gesta_core::writ::Writ;
use serde_json::{Value, json};

use super::pack::Pack;
use super::tamper::{Case, Expected, edited, respelled};
use super::{BRANCH, Chain, JOB, Scene, cast, resigned, stranger};

/// Every case.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = permits();
    cases.extend(approvals());
    cases.extend(people());
    cases.extend(writs());
    cases.extend(signatures());
    cases.extend(names());
    cases
}

/// A session that was begun and claimed.
fn session(cast: &Cast) -> Chain {
    let mut chain = Chain::new(State::new(JOB));
    let root = cast.root(Purpose::Session(cast.mandate(JOB).unwrap())).unwrap();
    chain.add(Author::Principal(person().unwrap()), root);
    chain.act(cast, Act::Attempt, "");
    chain
}

/// What a chain holds, and one more line that nobody let in.
fn case(name: &'static str, chain: &Chain, last: Vec<u8>, code: &'static str) -> Case {
    let seq = chain.state.head().map_or(0, |head| head.seq + 1);
    let class = match code {
        "unknown_key" | "wrong_role" => Untrusted,
        _ => Tampered,
    };
    let expected: Expected = (class, code, Some(JOB), Some(seq));
    let mut scene = Scene::small();
    scene.blobs.clear();
    let lines = chain.lines().into_iter().chain([last]).collect();
    scene.chains = [(JOB, lines)].into();
    Case { name, bundle: Pack::of(&scene).bytes(), trust: cast().trust_root(), expected }
}

/// What the sample would add now.
fn made(chain: &Chain, cast: &Cast, act: Act, on: &str) -> Body {
    let offer = Offer { act, on: Scope::Step(on.parse().unwrap()) };
    cast.body(&chain.state, &offer, soon(chain), &mut Dice::new(1)).unwrap()
}

fn start(chain: &Chain, cast: &Cast, on: &str) -> Started {
    let Body::Started(started) = made(chain, cast, Act::Start, on) else {
        unreachable!("a start was asked for")
    };
    *started
}

fn approval(chain: &Chain, cast: &Cast, on: &str) -> Approval {
    let Body::Approval(mut approval) = made(chain, cast, Act::Approve, on) else {
        unreachable!("an approval was asked for")
    };
    approval.statement = resigned(&approval.statement, &cast.approver, |statement| {
        statement.verdict = ApprovalVerdict::Approve;
    });
    *approval
}

fn soon(chain: &Chain) -> UnixMs {
    chain.clock.plus(10)
}

/// The line that follows, by whoever may, whatever the state machine says of it.
fn line(chain: &Chain, at: UnixMs, act: Act, body: Body) -> Vec<u8> {
    by(chain, author(&chain.state, act).unwrap(), at, body)
}

fn by(chain: &Chain, by: Author, at: UnixMs, body: Body) -> Vec<u8> {
    let (parent, seq) = chain.state.head().map_or((None, 0), |head| (Some(head.id), head.seq + 1));
    let payload = Payload { at, body, by, parent, seq, trajectory: JOB };
    Entry::new(payload).unwrap().bytes().to_vec()
}

fn starting(chain: &Chain, started: Started) -> Vec<u8> {
    line(chain, soon(chain), Act::Start, Body::Started(Box::new(started)))
}

fn permits() -> Vec<Case> {
    let cast = cast();
    let fresh = session(&cast);
    let mut tried = session(&cast);
    let first = start(&tried, &cast, "look");
    tried.act(&cast, Act::Start, "look");
    tried.act(&cast, Act::Fail(Failed::RetryableDidNotHappen), "look");
    let mut done = session(&cast);
    done.act(&cast, Act::Start, "look");
    done.act(&cast, Act::CommitEffect, "look");

    let elsewhere = Started { permit: first.permit.clone(), ..start(&done, &cast, "book") };
    let decided = start(&done, &cast, "book");
    let decision = first.decision.clone();
    let permit = resigned(&decided.permit, &cast.guardian, |it| it.decision = decision.id());
    let replayed = Started { decision, permit, ..decided };
    let Body::Rejection(refusal) = made(&fresh, &cast, Act::Reject, "look") else {
        unreachable!("a refusal was asked for")
    };
    let denied = {
        let (decision, started) = (refusal.decision, start(&fresh, &cast, "look"));
        let permit = resigned(&started.permit, &cast.guardian, |it| it.decision = decision.id());
        Started { decision, permit, ..started }
    };
    let changed = |change: fn(&mut gesta_core::document::Permit)| {
        let started = start(&fresh, &cast, "look");
        let permit = resigned(&started.permit, &cast.guardian, change);
        starting(&fresh, Started { permit, ..started })
    };
    let expired = changed(|permit| permit.dispatch_by = EPOCH);
    let other_attempt = changed(|permit| permit.attempt += 1);
    let late = start(&fresh, &cast, "look");
    let mut reclaimed = session(&cast);
    let stale = author(&reclaimed.state, Act::Start).unwrap();
    reclaimed.act(&cast, Act::Attempt, "");
    let stale = by(&reclaimed, stale, soon(&reclaimed), Body::Started(Box::new(late)));
    vec![
        case("permit-spent-twice", &tried, starting(&tried, first), "illegal"),
        case("permit-of-another-step", &done, starting(&done, elsewhere), "illegal"),
        case("decision-replayed", &done, starting(&done, replayed), "illegal"),
        case("decision-that-denies", &fresh, starting(&fresh, denied), "illegal"),
        case("permit-expired", &fresh, expired, "illegal"),
        case("permit-of-another-attempt", &fresh, other_attempt, "illegal"),
        case("stale-fence", &reclaimed, stale, "illegal"),
    ]
}

/// A session in which `pay` waits for an approval, or has it.
fn asked(cast: &Cast, approved: bool) -> Chain {
    let mut chain = session(cast);
    chain.act(cast, Act::Escalate, "pay");
    if approved {
        let body = approval(&chain, cast, "pay");
        chain.act_with(cast, Act::Approve, "pay", |_| Body::Approval(Box::new(body)));
    }
    chain
}

fn approvals() -> Vec<Case> {
    let cast = cast();
    let granted = asked(&cast, true);
    let swapped = {
        let mut started = start(&granted, &cast, "pay");
        started.proposal.args = Canon::of(&json!({ "amount": 999_999, "for": "eve" })).unwrap();
        let proposal = started.proposal.id().unwrap();
        started.decision =
            resigned(&started.decision, &cast.guardian, |decision| decision.proposal = proposal);
        let (decision, key) = (started.decision.id(), started.proposal.idempotency_key(JOB));
        started.permit = resigned(&started.permit, &cast.guardian, |permit| {
            (permit.decision, permit.idempotency_key) = (decision, key);
        });
        starting(&granted, started)
    };
    let lapsed = {
        let started = start(&granted, &cast, "pay");
        let late = granted.clock.plus(60_001);
        let permit = resigned(&started.permit, &cast.guardian, |permit| {
            (permit.dispatch_by, permit.dead_at) = (late.plus(300), late.plus(900));
        });
        let body = Body::Started(Box::new(Started { permit, ..started }));
        line(&granted, late, Act::Start, body)
    };
    let mut two = asked(&cast, false);
    let for_pay = approval(&two, &cast, "pay");
    two.act(&cast, Act::Escalate, "ship");
    let rebound = Body::Approval(Box::new(Approval { step: "ship".parse().unwrap(), ..for_pay }));
    let open = asked(&cast, false);
    let too_late = Body::Approval(Box::new({
        let approval = approval(&open, &cast, "pay");
        let statement = resigned(&approval.statement, &cast.approver, |it| it.expires = EPOCH);
        Approval { statement, ..approval }
    }));
    vec![
        case("arguments-swapped-after-approval", &granted, swapped, "illegal"),
        case("approval-used-too-late", &granted, lapsed, "illegal"),
        case(
            "approval-of-another-request",
            &two,
            line(&two, soon(&two), Act::Approve, rebound),
            "illegal",
        ),
        case(
            "approval-expired",
            &open,
            line(&open, soon(&open), Act::Approve, too_late),
            "illegal",
        ),
    ]
}

/// Approvals by people who are not asked, and one that was edited.
fn people() -> Vec<Case> {
    let cast = cast();
    let open = asked(&cast, false);
    let approved = |key: &PrivateKey| {
        let approval = approval(&open, &cast, "pay");
        let statement = resigned(&approval.statement, key, |it| it.key = key.id());
        let body = Body::Approval(Box::new(Approval { statement, ..approval }));
        line(&open, soon(&open), Act::Approve, body)
    };
    let mut extended = approved(&cast.approver);
    edited(&mut extended, "/body/statement/doc/expires", |value| {
        *value = (value.as_u64().unwrap() + 1).into();
    });
    vec![
        case("approval-by-a-stranger", &open, approved(&stranger()), "unknown_key"),
        case("approval-by-the-guardian", &open, approved(&cast.guardian), "wrong_role"),
        case("approval-edited", &open, extended, "signature"),
    ]
}

fn writs() -> Vec<Case> {
    let cast = cast();
    let unbegun = Chain::new(State::new(JOB));
    let begun = |writs: Vec<Signed<Writ>>| {
        let mut mandate = cast.mandate(JOB).unwrap();
        mandate.writs = writs;
        let root = cast.root(Purpose::Session(mandate)).unwrap();
        by(&unbegun, Author::Principal(person().unwrap()), soon(&unbegun), root)
    };
    let standing = cast.standing_writ().unwrap();
    let narrowed = |key: &PrivateKey, change: &dyn Fn(&mut Writ)| {
        let writ = cast.narrow(&standing, JOB).unwrap();
        begun(vec![standing.clone(), resigned(&writ, key, change)])
    };
    let elsewhere = begun(vec![standing.clone(), cast.narrow(&standing, BRANCH).unwrap()]);
    let wider =
        narrowed(&cast.agent, &|writ| writ.window.not_after = writ.window.not_after.plus(1));
    let over = narrowed(&cast.agent, &|writ| {
        writ.window = Window { not_after: writ.window.not_before, ..writ.window };
    });
    let by_a_stranger = narrowed(&stranger(), &|writ| writ.key = stranger().id());
    let issued = resigned(&standing, &stranger(), |writ| writ.key = stranger().id());
    let below = cast.narrow(&issued, JOB).unwrap();
    vec![
        case("writ-of-another-trajectory", &unbegun, elsewhere, "illegal"),
        case("writ-that-widens", &unbegun, wider, "illegal"),
        case("writ-expired", &unbegun, over, "illegal"),
        case("writ-narrowed-by-a-stranger", &unbegun, by_a_stranger, "illegal"),
        case("writ-issued-by-a-stranger", &unbegun, begun(vec![issued, below]), "unknown_key"),
    ]
}

/// Signatures that are real, and of something else.
fn signatures() -> Vec<Case> {
    let cast = cast();
    let fresh = session(&cast);
    let started = start(&fresh, &cast, "look");
    let other = start(&fresh, &cast, "book");
    let line = starting(&fresh, started.clone());
    let signed = |pointer: &str, signature: Value| {
        let mut line = line.clone();
        edited(&mut line, pointer, |value| *value = signature);
        line
    };
    let by_executor = cast.executor.sign(started.permit.canon().as_bytes());
    let by_executor = signed("/body/permit/sig", serde_json::to_value(by_executor).unwrap());
    let of_another = serde_json::to_value(other.decision.signature()).unwrap();
    let permit = serde_json::to_value(&started.permit).unwrap();
    vec![
        case("signature-by-another-key", &fresh, by_executor, "signature"),
        case(
            "signature-of-another-decision",
            &fresh,
            signed("/body/decision/sig", of_another),
            "signature",
        ),
        case("permit-as-a-decision", &fresh, signed("/body/decision", permit), "not_an_entry"),
    ]
}

/// Names that would be read as something else, and arguments that nobody should have to read.
fn names() -> Vec<Case> {
    let cast = cast();
    let fresh = session(&cast);
    let line = starting(&fresh, start(&fresh, &cast, "look"));
    let named = |pointer: &str, name: &str| {
        let mut line = line.clone();
        edited(&mut line, pointer, |value| *value = name.into());
        line
    };
    let mut deep = line.clone();
    let nested = format!("{}1999{}", "[".repeat(65), "]".repeat(65));
    respelled(&mut deep, r#""amount":1999"#, &format!(r#""amount":{nested}"#));
    let step = "/body/proposal/step";
    vec![
        case("name-with-a-delimiter", &fresh, named(step, "look\0pay.refund"), "not_an_entry"),
        case(
            "name-in-another-script",
            &fresh,
            named("/body/proposal/tool", "p\u{430}y.refund"),
            "not_an_entry",
        ),
        case("name-turned-around", &fresh, named(step, "look\u{202e}koob"), "not_an_entry"),
        case("name-in-another-form", &fresh, named(step, "lo\u{301}ok"), "not_an_entry"),
        case("arguments-too-deep", &fresh, deep, "not_canonical"),
    ]
}
