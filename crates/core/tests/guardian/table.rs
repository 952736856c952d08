//! Every reason for which something is refused, at the stage that refuses it, in one table; and what
//! people's consent changes. A reason without a row fails the test.

use std::collections::BTreeSet;

use gesta_core::body::Approval;
use gesta_core::codes::{self, Kind};
use gesta_core::document::{
    ApprovalStatement, ApprovalVerdict, FreezeTarget, Reason, RegistryItem, Verdict,
};
use gesta_core::entry::{Author, Body};
use gesta_core::guardian::{Hold, Inputs, Unpublished, judge};
use gesta_core::policy::{Answer, Asking, Channels, Evidence, Requirement};
use gesta_core::repeat::Fate;
use gesta_core::sample::{Cast, Dice, EPOCH, person};
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{Act, Offer, Scope, State, Status};
use gesta_core::temporal::Grade;
use gesta_core::time::UnixMs;

use crate::{
    ID, account, answer, inputs, pace, proposal, refuses, registry, sent, session, standing,
};

/// What people say, and whether a child may be given something, is found out before or beside the stages.
const ELSEWHERE: [Reason; 3] =
    [Reason::ApprovalDenied, Reason::ApprovalExpired, Reason::DelegationExceedsAuthority];
/// Until when the consent in the table is good.
const EXPIRES: UnixMs = UnixMs(EPOCH.0 + 60_000);

/// What a row looks at.
struct Scene {
    /// A session in which nothing has happened,
    fresh: State,
    /// one in which somebody has agreed to the call,
    approved: State,
    /// and something that has no writ.
    registry: State,
    frozen: State,
    revoked: State,
    quarantined: State,
    review: Vec<Evidence>,
    alice: Channels,
    bob: Channels,
}

#[derive(Clone, Copy)]
enum On {
    Fresh,
    Approved,
    NoWrit,
}

/// What comes of a row.
enum Comes {
    Allow,
    Escalate,
    Deny(&'static str, Reason, Option<Hold>),
}

type Edit = for<'a> fn(&mut Inputs<'a>, &'a Scene);
type Row = (On, Edit, Comes);

fn approved() -> State {
    let cast = Cast::new(1);
    let mut admission = cast.begin_session(ID).unwrap();
    let escalate = Offer { act: Act::Escalate, on: Scope::Step("it".parse().unwrap()) };
    cast.push(&mut admission, &escalate, EPOCH, &mut Dice::new(0)).unwrap();
    let step = "it".parse().unwrap();
    let Some(Status::Pending(pending)) = admission.state().step(&step).map(|step| &step.status)
    else {
        unreachable!("nobody is asked")
    };
    let statement = ApprovalStatement {
        approver: person().unwrap(),
        at: EPOCH,
        expires: EXPIRES,
        key: cast.approver.id(),
        note: None,
        pending: pending.entry,
        type_: Tag::default(),
        verdict: ApprovalVerdict::Approve,
    };
    let statement = Signed::sign(statement, &cast.approver).unwrap();
    let by = Author::Principal(person().unwrap());
    let body = Body::Approval(Box::new(Approval { statement, step }));
    admission.push(EPOCH, by, body).unwrap();
    admission.state().clone()
}

/// The policies want this many people of `finance` asked.
fn asks(quorum: u64) -> Answer {
    let channels = vec!["finance".parse().unwrap()];
    Answer { asking: Some(Asking { channels, quorum, ..Asking::default() }), ..answer(true, false) }
}

fn agreed(inputs: &mut Inputs<'_>, quorum: u64) {
    inputs.policy = Ok(asks(quorum));
    inputs.approvals = vec!["alice".to_owned()];
}

fn requires(by: Option<&str>) -> Answer {
    let by = by.map(|by| by.parse().unwrap());
    let requires = vec![Requirement { by, type_: "review".to_owned() }];
    Answer { requires, ..answer(true, true) }
}

const THAW: Option<Hold> = Some(Hold::Thaw);

/// What the tool and the writ are refused for.
fn refused() -> Vec<Row> {
    use Comes::Deny;
    use On::{Fresh, NoWrit};
    use Reason::*;
    vec![
        (Fresh, |it, _| it.tool = None, Deny("tool", UnknownTool, None)),
        (
            Fresh,
            |it, _| it.tool.as_mut().unwrap().frozen = Some("it changed".to_owned()),
            Deny("tool", ToolFrozen, THAW),
        ),
        (
            Fresh,
            |it, scene| it.registry = Some(scene.frozen.registry()),
            Deny("tool", ToolFrozen, THAW),
        ),
        (Fresh, |it, _| it.published = Err(Unpublished::Absent), Deny("tool", UnknownTool, None)),
        (Fresh, |it, _| it.published = Err(Unpublished::Differs), Deny("tool", ToolFrozen, THAW)),
        (
            Fresh,
            |it, _| it.published = Err(Unpublished::Unreadable),
            Deny("tool", ToolFrozen, THAW),
        ),
        // What a worker does not have is not there, whatever is published.
        (
            Fresh,
            |it, _| (it.tool, it.published) = (None, Err(Unpublished::Differs)),
            Deny("tool", UnknownTool, None),
        ),
        (NoWrit, |_, _| (), Deny("authority", InvalidAuthority, None)),
        (
            Fresh,
            |it, _| it.writ = Err("forged".to_owned()),
            Deny("authority", InvalidAuthority, None),
        ),
        (
            Fresh,
            |it, scene| it.registry = Some(scene.revoked.registry()),
            Deny("authority", InvalidAuthority, None),
        ),
        (Fresh, |it, _| it.now = UnixMs(u64::MAX), Deny("authority", InvalidAuthority, None)),
    ]
}

/// What the proposal itself is refused for.
fn refused_for_itself() -> Vec<Row> {
    use Comes::Deny;
    use On::Fresh;
    use Reason::*;
    vec![
        (
            Fresh,
            |it, _| it.mismatches = vec!["/cents".to_owned()],
            Deny("types", TypeMismatch, None),
        ),
        (
            Fresh,
            |it, _| it.preconditions = vec![("a".to_owned(), Ok(false))],
            Deny("preconditions", PreconditionFailed, None),
        ),
        (
            Fresh,
            |it, _| it.preconditions = vec![("a".to_owned(), Err("no such name".to_owned()))],
            Deny("preconditions", PreconditionFailed, None),
        ),
        (Fresh, |it, _| it.policy = Ok(answer(false, true)), Deny("policy", PolicyDenied, None)),
        (
            Fresh,
            |it, _| it.policy = Err("cannot be read".to_owned()),
            Deny("policy", PolicyDenied, None),
        ),
        // What cannot be evaluated denies, even beside what allows.
        (
            Fresh,
            |it, _| it.policy.as_mut().unwrap().call.errors = vec!["no such name".to_owned()],
            Deny("policy", PolicyDenied, None),
        ),
        (
            Fresh,
            |it, _| it.policy.as_mut().unwrap().unattended.errors = vec!["overflow".to_owned()],
            Deny("policy", PolicyDenied, None),
        ),
        (Fresh, |it, _| it.policy = Ok(requires(None)), Deny("policy", MissingRequirement, None)),
        (
            Fresh,
            |it, scene| {
                it.policy = Ok(requires(Some("pay")));
                it.evidence = &scene.review;
            },
            Deny("policy", MissingRequirement, None),
        ),
    ]
}

/// What it would use, how fast, and how much it says.
fn refused_for_its_use() -> Vec<Row> {
    use Comes::Deny;
    use On::Fresh;
    use Reason::*;
    let room = Some(Hold::Until(UnixMs(EPOCH.0 + 999)));
    vec![
        (Fresh, |it, _| it.account = Some(account(0)), Deny("budget", BudgetExhausted, None)),
        (Fresh, |it, _| it.standing = vec![standing(0)], Deny("budget", BudgetExhausted, None)),
        (
            Fresh,
            |it, _| it.pace = vec![pace(2, Grade::Throttle)],
            Deny("temporal", TemporalIntervention, room),
        ),
        (
            Fresh,
            |it, _| it.pace = vec![pace(2, Grade::Quarantine)],
            Deny("temporal", TemporalIntervention, THAW),
        ),
        (
            Fresh,
            |it, _| it.pace = vec![pace(2, Grade::Close)],
            Deny("temporal", TemporalIntervention, THAW),
        ),
        (
            Fresh,
            |it, scene| it.registry = Some(scene.quarantined.registry()),
            Deny("temporal", TemporalIntervention, THAW),
        ),
        (Fresh, |it, _| it.max_args_bytes = 1, Deny("envelope", EnvelopeInvalid, None)),
    ]
}

/// What consent changes, and what it does not.
fn with_consent() -> Vec<Row> {
    use Comes::{Allow, Escalate};
    use On::{Approved, Fresh};
    vec![
        (Fresh, |_, _| (), Allow),
        (
            Fresh,
            |it, scene| {
                it.policy = Ok(requires(Some("review.sign")));
                it.evidence = &scene.review;
            },
            Allow,
        ),
        (Fresh, |it, _| it.policy = Ok(asks(1)), Escalate),
        (Fresh, |it, _| it.pace = vec![pace(2, Grade::Interrupt)], Escalate),
        // A branch repeats nothing unasked, and whoever agreed without being told of it has not agreed.
        (Fresh, |it, _| it.repeats.found = vec![sent(Fate::Happened)], Escalate),
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                it.repeats.found = vec![sent(Fate::Happened)];
            },
            Escalate,
        ),
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                it.repeats.found = vec![sent(Fate::Happened)];
                it.repeats.told = vec![sent(Fate::Happened).started];
            },
            Allow,
        ),
        // Consent to nothing that was asked is none.
        (Fresh, |it, _| agreed(it, 1), Escalate),
        (Approved, |it, _| agreed(it, 1), Allow),
        (Approved, |it, _| agreed(it, 2), Escalate),
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                it.pace = vec![pace(2, Grade::Interrupt)];
            },
            Allow,
        ),
        // Whoever agreed is not trusted to any more.
        (Approved, |it, _| it.policy = Ok(asks(1)), Escalate),
        // Names are bound to the channel.
        (
            Approved,
            |it, scene| {
                agreed(it, 1);
                it.channels = &scene.alice;
            },
            Allow,
        ),
        (
            Approved,
            |it, scene| {
                agreed(it, 1);
                it.channels = &scene.bob;
            },
            Escalate,
        ),
    ]
}

/// Consent that has run out, and what it never reaches.
fn beyond_consent() -> Vec<Row> {
    use Comes::{Allow, Deny, Escalate};
    use On::Approved;
    vec![
        // It has run out: it is asked for again, even where nobody would have to be.
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                it.now = EXPIRES.plus(1);
            },
            Escalate,
        ),
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                (it.policy, it.now) = (Ok(answer(true, true)), EXPIRES.plus(1));
            },
            Escalate,
        ),
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                it.now = EXPIRES;
            },
            Allow,
        ),
        // And it is no way around anything else.
        (
            Approved,
            |it, _| {
                agreed(it, 1);
                it.account = Some(account(0));
            },
            Deny("budget", Reason::BudgetExhausted, None),
        ),
        (
            Approved,
            |it, scene| {
                agreed(it, 1);
                it.registry = Some(scene.revoked.registry());
            },
            Deny("authority", Reason::InvalidAuthority, None),
        ),
    ]
}

#[test]
fn every_reason_has_its_stage() {
    let (fresh, writs) = session(|_| ());
    let bound = |name: &str| {
        let names = [name.parse().unwrap()].into();
        Channels::from([
            ("finance".parse().unwrap(), names),
            (Asking::default().channels[0].clone(), [name.parse().unwrap()].into()),
        ])
    };
    let scene = Scene {
        fresh,
        approved: approved(),
        registry: registry(&[]),
        frozen: registry(&[RegistryItem::Freeze(FreezeTarget::All)]),
        revoked: registry(&[RegistryItem::RevokeWrit(writs[0])]),
        quarantined: registry(&[RegistryItem::Quarantine(FreezeTarget::Trajectory(ID))]),
        review: vec![Evidence { by: "review.sign".parse().unwrap(), type_: "review".to_owned() }],
        alice: bound("alice"),
        bob: bound("bob"),
    };
    let mut covered: BTreeSet<&str> = ELSEWHERE.iter().map(|reason| reason.as_str()).collect();
    let refused = [refused(), refused_for_itself(), refused_for_its_use()];
    let rows = refused.into_iter().chain([with_consent(), beyond_consent()]);
    let rows = rows.flatten().enumerate();
    for (number, (on, edit, comes)) in rows {
        let state = match on {
            On::Fresh => &scene.fresh,
            On::Approved => &scene.approved,
            On::NoWrit => &scene.registry,
        };
        let mut inputs = inputs(&writs);
        edit(&mut inputs, &scene);
        let judgement = judge(&proposal("pay", "{}"), state, &inputs).unwrap();
        let said = (judgement.verdict, judgement.reason);
        match comes {
            Comes::Allow => assert_eq!(said, (Verdict::Allow, None), "row {number}"),
            Comes::Escalate => {
                assert_eq!(said, (Verdict::Escalate, None), "row {number}");
                assert!(judgement.asking.is_some(), "row {number}");
            }
            Comes::Deny(stage, reason, hold) => {
                refuses(&judgement, stage, reason, hold);
                covered.insert(reason.as_str());
            }
        }
    }
    let all = codes::ALL.iter().filter(|code| code.kind == Kind::Refusal).map(|code| code.code);
    assert_eq!(covered, all.collect(), "a reason without a row");
}
