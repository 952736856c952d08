//! The Guardian, stage by stage: what each refuses, with which code, and that nothing outside the writ is
//! ever allowed.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod outside;
mod table;
mod told;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{Proposal, Purpose};
use gesta_core::digest::{Digest, EntryId, WritId};
use gesta_core::document::{FreezeTarget, Reason, RegistryItem, Verdict};
use gesta_core::guardian::{Allowance, Hold, Inputs, Judgement, Standing, ToolFacts, judge};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::policy::{Answer, Asking, Channels, Evidence, Requirement, Ruling};
use gesta_core::repeat::{self, Fate, Repeat, Repeats};
use gesta_core::sample::{Cast, EPOCH, author};
use gesta_core::signed::Signed;
use gesta_core::state::{Act, State};
use gesta_core::temporal::{Grade, Pace, Rule, Whose};
use gesta_core::time::{Day, UnixMs};
use gesta_core::writ::{Effect, Writ};

const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);
const REGISTRY: TrajectoryId = TrajectoryId::from_bytes([8; 16]);
const STAGES: [&str; 8] =
    ["tool", "authority", "types", "preconditions", "policy", "budget", "temporal", "envelope"];

/// A session under an edited writ, and the ids of its writs.
fn session(edit: impl FnOnce(&mut Writ)) -> (State, Vec<WritId>) {
    let cast = Cast::new(1);
    let mut mandate = cast.mandate(ID).unwrap();
    let mut leaf = mandate.writs[1].doc().clone();
    edit(&mut leaf);
    mandate.writs[1] = Signed::sign(leaf, &cast.agent).unwrap();
    let writs = mandate.writs.iter().map(Signed::<Writ>::id).collect();
    let mut admission = State::new(ID).admit();
    let by = author(admission.state(), Act::Begin).unwrap();
    admission.push(EPOCH, by, cast.root(Purpose::Session(mandate)).unwrap()).unwrap();
    (admission.state().clone(), writs)
}

/// A registry that says this.
fn registry(items: &[RegistryItem]) -> State {
    let cast = Cast::new(1);
    let mut admission = State::new(REGISTRY).admit();
    let by = author(admission.state(), Act::Begin).unwrap();
    admission.push(EPOCH, by.clone(), cast.registry_root().unwrap()).unwrap();
    for item in items {
        let body = cast.registration(admission.state(), item.clone(), EPOCH).unwrap();
        admission.push(EPOCH, by.clone(), body).unwrap();
    }
    admission.state().clone()
}

fn proposal(tool: &str, args: &str) -> Proposal {
    Proposal {
        args: Canon::parse(args.as_bytes()).unwrap(),
        step: "it".parse().unwrap(),
        tool: tool.parse().unwrap(),
    }
}

/// What policies say: whether it may be called, and whether unattended.
fn answer(call: bool, unattended: bool) -> Answer {
    let ruling = |allowed| Ruling { allowed, ..Ruling::default() };
    Answer {
        call: ruling(call),
        requires: Vec::new(),
        unattended: ruling(unattended),
        asking: None,
    }
}

/// No channel has names of its own.
static EVERYONE: Channels = Channels::new();

/// Inputs under which everything is allowed.
fn inputs(writs: &[WritId]) -> Inputs<'_> {
    Inputs {
        now: EPOCH,
        tool: Some(ToolFacts {
            effect: Effect::External,
            reserve: Amounts::ONE_CALL,
            frozen: None,
        }),
        published: Ok(()),
        writ: Ok(()),
        writ_chain: writs,
        mismatches: Vec::new(),
        preconditions: Vec::new(),
        policy: Ok(answer(true, true)),
        evidence: &[],
        approvals: Vec::new(),
        channels: &EVERYONE,
        registry: None,
        pace: Vec::new(),
        account: None,
        standing: Vec::new(),
        max_args_bytes: 64,
        repeats: Repeats::default(),
    }
}

/// Refused at this stage, the last of the trace, for this reason.
#[track_caller]
fn refuses(judgement: &Judgement, stage: &str, reason: Reason, hold: Option<Hold>) {
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Deny, Some(reason)));
    let asked: Vec<&str> = judgement.trace.iter().map(|stage| stage.stage.as_str()).collect();
    let upto = STAGES.iter().position(|known| *known == stage).unwrap();
    assert_eq!(asked, STAGES[..=upto]);
    assert!(judgement.trace.last().unwrap().found.is_some(), "it says what it found");
    assert_eq!(judgement.hold, hold);
}

#[test]
fn what_is_in_order_is_allowed_and_every_stage_was_asked() {
    let (state, writs) = session(|_| ());
    let judgement = judge(&proposal("pay", "{}"), &state, &inputs(&writs)).unwrap();
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Allow, None));
    let asked: Vec<&str> = judgement.trace.iter().map(|stage| stage.stage.as_str()).collect();
    assert_eq!(asked, STAGES);
}

#[test]
fn a_tool_must_be_there_and_not_frozen() {
    let (state, writs) = session(|_| ());
    let pay = proposal("pay", "{}");
    let judged = |edit: &dyn Fn(&mut Inputs<'_>)| {
        let mut inputs = inputs(&writs);
        edit(&mut inputs);
        judge(&pay, &state, &inputs).unwrap()
    };
    refuses(&judged(&|inputs| inputs.tool = None), "tool", Reason::UnknownTool, None);
    // What is not what was pinned waits until it is, like what somebody has frozen.
    let changed = judged(&|inputs| {
        inputs.tool.as_mut().unwrap().frozen = Some("it changed".to_owned());
    });
    refuses(&changed, "tool", Reason::ToolFrozen, Some(Hold::Thaw));
    for target in [
        FreezeTarget::All,
        FreezeTarget::Tool("pay".parse().unwrap()),
        FreezeTarget::Principal("agent:sample".parse().unwrap()),
        FreezeTarget::Tenant("acme".parse().unwrap()),
        FreezeTarget::Trajectory(state.trajectory()),
    ] {
        let frozen = registry(&[RegistryItem::Freeze(target.clone())]);
        let inputs = Inputs { registry: Some(frozen.registry()), ..inputs(&writs) };
        let judgement = judge(&pay, &state, &inputs).unwrap();
        refuses(&judgement, "tool", Reason::ToolFrozen, Some(Hold::Thaw));
        let items = [RegistryItem::Freeze(target.clone()), RegistryItem::Unfreeze(target)];
        let thawed = registry(&items);
        let inputs = Inputs { registry: Some(thawed.registry()), ..inputs };
        assert_eq!(judge(&pay, &state, &inputs).unwrap().verdict, Verdict::Allow);
    }
    let others = registry(&[
        RegistryItem::Freeze(FreezeTarget::Tool("mail".parse().unwrap())),
        RegistryItem::Freeze(FreezeTarget::Principal("agent:other".parse().unwrap())),
        RegistryItem::Freeze(FreezeTarget::Tenant("other".parse().unwrap())),
        RegistryItem::Freeze(FreezeTarget::Trajectory(REGISTRY)),
    ]);
    let inputs = Inputs { registry: Some(others.registry()), ..inputs(&writs) };
    assert_eq!(judge(&pay, &state, &inputs).unwrap().verdict, Verdict::Allow);
}

#[test]
fn authority_is_signature_window_scope_ceiling_and_revocation() {
    let pay = proposal("pay", "{}");
    let refused = |edit: fn(&mut Writ), change: &dyn Fn(&mut Inputs<'_>)| {
        let (state, writs) = session(edit);
        let mut inputs = inputs(&writs);
        change(&mut inputs);
        let judgement = judge(&pay, &state, &inputs).unwrap();
        refuses(&judgement, "authority", Reason::InvalidAuthority, None);
        judgement.trace.last().unwrap().found.as_ref().unwrap().to_string()
    };
    let none: &dyn Fn(&mut Inputs<'_>) = &|_| ();
    assert!(refused(|_| (), &|inputs| inputs.writ = Err("forged".to_owned())).contains("forged"));
    assert!(refused(|writ| writ.tools = vec!["mail*".parse().unwrap()], none).contains("pay"));
    assert!(refused(|writ| writ.effect = Effect::Write, none).contains("ceiling"));
    let ends: fn(&mut Writ) = |writ| writ.window.not_after = EPOCH.plus(10);
    let late = refused(ends, &|inputs| inputs.now = EPOCH.plus(11));
    assert!(late.contains("not valid now"));
    // Revoking the writ, or the one above it.
    for which in [0, 1] {
        let (state, writs) = session(|_| ());
        let revoked = registry(&[RegistryItem::RevokeWrit(writs[which])]);
        let inputs = Inputs { registry: Some(revoked.registry()), ..inputs(&writs) };
        let judgement = judge(&pay, &state, &inputs).unwrap();
        refuses(&judgement, "authority", Reason::InvalidAuthority, None);
    }
}

#[test]
fn types_preconditions_budget_and_envelope() {
    let (state, writs) = session(|writ| writ.budget.calls = Some(1));
    let pay = proposal("pay", "{}");
    let judged = |proposal: &Proposal, edit: &dyn Fn(&mut Inputs<'_>)| {
        let mut inputs = inputs(&writs);
        edit(&mut inputs);
        judge(proposal, &state, &inputs).unwrap()
    };
    let mismatch = judged(&pay, &|inputs| inputs.mismatches = vec!["/cents".to_owned()]);
    refuses(&mismatch, "types", Reason::TypeMismatch, None);
    for outcome in [Ok(false), Err("no such name".to_owned())] {
        let judgement = judged(&pay, &|inputs| {
            inputs.preconditions =
                vec![("a".to_owned(), Ok(true)), ("b".to_owned(), outcome.clone())];
        });
        refuses(&judgement, "preconditions", Reason::PreconditionFailed, None);
    }
    let held = judged(&pay, &|inputs| inputs.preconditions = vec![("a".to_owned(), Ok(true))]);
    assert_eq!(held.verdict, Verdict::Allow);
    let dear = judged(&pay, &|inputs| inputs.tool.as_mut().unwrap().reserve.calls = 2);
    refuses(&dear, "budget", Reason::BudgetExhausted, None);
    for args in ["[]", "7", &format!("{{\"a\":\"{}\"}}", "x".repeat(64))] {
        let judgement = judged(&proposal("pay", args), &|_| ());
        refuses(&judgement, "envelope", Reason::EnvelopeInvalid, None);
    }
}

#[test]
fn policies_allow_deny_escalate_and_demand_evidence() {
    let (state, writs) = session(|_| ());
    let pay = proposal("pay", "{}");
    let judged = |edit: &dyn Fn(&mut Inputs<'_>)| {
        let mut inputs = inputs(&writs);
        edit(&mut inputs);
        judge(&pay, &state, &inputs).unwrap()
    };
    let failing = Ruling { errors: vec!["no such thing".to_owned()], ..Ruling::default() };
    let failing = Answer { unattended: failing, ..answer(true, false) };
    let refused = [
        Ok(failing),
        Err("cannot be read".to_owned()),
        Ok(answer(false, true)),
        Ok(answer(false, false)),
    ];
    for refused in refused {
        let judgement = judged(&|inputs| inputs.policy = refused.clone());
        refuses(&judgement, "policy", Reason::PolicyDenied, None);
    }
    let asked = judged(&|inputs| inputs.policy = Ok(answer(true, false)));
    assert_eq!((asked.verdict, asked.reason), (Verdict::Escalate, None));
    assert_eq!(asked.asking, Some(Asking::default()));
    // Nobody is asked about what a later stage refuses.
    let dear = judged(&|inputs| {
        inputs.policy = Ok(answer(true, false));
        inputs.max_args_bytes = 0;
    });
    refuses(&dear, "envelope", Reason::EnvelopeInvalid, None);
    assert_eq!(dear.asking, None);
    // Approvals count only for what was asked: this step has no grant.
    let unasked = judged(&|inputs| {
        inputs.policy = Ok(answer(true, false));
        inputs.approvals = vec!["alice".to_owned()];
    });
    assert_eq!(unasked.verdict, Verdict::Escalate);

    let needed = |by: Option<&str>| Requirement {
        by: by.map(|by| by.parse().unwrap()),
        type_: "review".to_owned(),
    };
    let review = [Evidence { by: "review.sign".parse().unwrap(), type_: "review".to_owned() }];
    for (by, there, met) in [
        (None, true, true),
        (None, false, false),
        (Some("review.sign"), true, true),
        (Some("pay"), true, false),
    ] {
        let requires = vec![needed(by)];
        let policy = Ok(Answer { requires, ..answer(true, true) });
        let evidence = if there { review.as_slice() } else { &[] };
        let inputs = Inputs { policy, evidence, ..inputs(&writs) };
        let judgement = judge(&pay, &state, &inputs).unwrap();
        match met {
            true => assert_eq!(judgement.verdict, Verdict::Allow),
            false => refuses(&judgement, "policy", Reason::MissingRequirement, None),
        }
    }
}

/// What a tenant's account has left for a call that needs one.
fn account(left: u64) -> Allowance {
    let calls = |calls| Budget { calls: Some(calls), ..Budget::default() };
    Allowance {
        day: Day(1),
        left: calls(left),
        limit: calls(9),
        reached: None,
        reserve: Amounts::ONE_CALL,
        tenant: "acme".parse().unwrap(),
    }
}

/// What the account of a standing writ has left for a call that needs one.
fn standing(left: u64) -> Standing {
    let calls = |calls| Budget { calls: Some(calls), ..Budget::default() };
    let writ = WritId::new(Digest::of(b"above"));
    Standing { left: calls(left), limit: calls(9), reserve: Amounts::ONE_CALL, writ }
}

/// Each account must have enough, and what all of them said is in the trace either way.
#[test]
fn every_account_must_reach() {
    let (state, writs) = session(|_| ());
    let pay = proposal("pay", "{}");
    for (tenant, above, reaches) in
        [(1, vec![1, 5], true), (0, vec![1], false), (1, vec![1, 0], false), (1, vec![], true)]
    {
        let account = Some(account(tenant));
        let standing: Vec<_> = above.iter().map(|left| standing(*left)).collect();
        let inputs = Inputs { account, standing, ..inputs(&writs) };
        let judgement = judge(&pay, &state, &inputs).unwrap();
        match reaches {
            true => assert_eq!(judgement.verdict, Verdict::Allow),
            false => refuses(&judgement, "budget", Reason::BudgetExhausted, None),
        }
        let found = judgement.trace[5].found.clone().unwrap();
        assert!(found.as_str().contains("\"account\":"), "{found:?}");
        assert_eq!(found.as_str().matches("\"writ\":").count(), above.len());
    }
}

/// Where everything is wrong, the first stage refuses, with its own code; put right one by one, each of the
/// others has its turn, and whoever would have been asked is not.
#[test]
fn the_first_stage_that_refuses_counts() {
    let (state, writs) = session(|_| ());
    let big = format!("{{\"a\":\"{}\"}}", "x".repeat(64));
    let mut inputs = Inputs {
        tool: None,
        writ: Err("forged".to_owned()),
        mismatches: vec!["/a".to_owned()],
        preconditions: vec![("a".to_owned(), Ok(false))],
        policy: Ok(answer(false, false)),
        account: Some(account(0)),
        pace: vec![pace(2, Grade::Quarantine)],
        ..inputs(&writs)
    };
    let pay = proposal("pay", &big);
    type Repair = fn(&mut Inputs<'_>);
    let repairs: [(&str, Reason, Option<Hold>, Repair); 8] = [
        ("tool", Reason::UnknownTool, None, |inputs| {
            let reserve = Amounts::ONE_CALL;
            inputs.tool = Some(ToolFacts { effect: Effect::External, reserve, frozen: None });
        }),
        ("authority", Reason::InvalidAuthority, None, |inputs| inputs.writ = Ok(())),
        ("types", Reason::TypeMismatch, None, |inputs| inputs.mismatches.clear()),
        ("preconditions", Reason::PreconditionFailed, None, |it| it.preconditions.clear()),
        ("policy", Reason::PolicyDenied, None, |it| it.policy = Ok(answer(true, false))),
        ("budget", Reason::BudgetExhausted, None, |inputs| inputs.account = None),
        ("temporal", Reason::TemporalIntervention, Some(Hold::Thaw), |it| it.pace.clear()),
        ("envelope", Reason::EnvelopeInvalid, None, |inputs| inputs.max_args_bytes = 999),
    ];
    for (stage, reason, hold, repair) in repairs {
        let judgement = judge(&pay, &state, &inputs).unwrap();
        refuses(&judgement, stage, reason, hold);
        assert_eq!(judgement.asking, None, "{stage}");
        repair(&mut inputs);
    }
    let judgement = judge(&pay, &state, &inputs).unwrap();
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Escalate, None));
    assert!(judgement.asking.is_some());
    inputs.policy = Ok(answer(true, true));
    assert_eq!(judge(&pay, &state, &inputs).unwrap().verdict, Verdict::Allow);
}

fn pace(in_window: u64, then: Grade) -> Pace {
    pace_of(Whose::Principal, in_window, then)
}

fn pace_of(whose: Whose, in_window: u64, then: Grade) -> Pace {
    let rule = Rule { calls: 2, per_ms: 1000, then };
    let starts = (0..in_window).map(|n| UnixMs(EPOCH.0 - n));
    Pace::of(rule, whose, starts, EPOCH)
}

#[test]
fn windows_are_graded_and_the_strictest_counts() {
    let (state, writs) = session(|_| ());
    let pay = proposal("pay", "{}");
    let judged = |pace: Vec<Pace>| judge(&pay, &state, &Inputs { pace, ..inputs(&writs) }).unwrap();
    let reason = Reason::TemporalIntervention;
    let room = judged(vec![pace(1, Grade::Close), pace(0, Grade::Throttle)]);
    assert_eq!(room.verdict, Verdict::Allow);
    assert!(room.trace[6].found.is_some(), "what it looked at is in the trace");
    let throttled = judged(vec![pace(2, Grade::Throttle)]);
    refuses(&throttled, "temporal", reason, Some(Hold::Until(UnixMs(EPOCH.0 + 999))));
    assert_eq!(throttled.quarantine, None);
    let interrupted = judged(vec![pace(2, Grade::Throttle), pace(3, Grade::Interrupt)]);
    assert_eq!((interrupted.verdict, interrupted.reason), (Verdict::Escalate, None));
    assert!(interrupted.asking.is_some(), "a person is asked");
    let quarantined = judged(vec![pace(2, Grade::Quarantine), pace(2, Grade::Interrupt)]);
    refuses(&quarantined, "temporal", reason, Some(Hold::Thaw));
    let principal = FreezeTarget::Principal("agent:sample".parse().unwrap());
    assert_eq!(quarantined.quarantine, Some(principal.clone()));
    // One job that is too fast by itself says nothing about others of its principal.
    let own = |grade| pace_of(Whose::Trajectory, 2, grade);
    let alone = judged(vec![own(Grade::Quarantine), pace(2, Grade::Throttle)]);
    refuses(&alone, "temporal", reason, Some(Hold::Thaw));
    let job = FreezeTarget::Trajectory(state.trajectory());
    assert_eq!(alone.quarantine, Some(job.clone()));
    let both = judged(vec![own(Grade::Quarantine), pace(2, Grade::Quarantine)]);
    assert_eq!(both.quarantine, Some(principal.clone()));
    let closed = judged(vec![pace(2, Grade::Close), pace(2, Grade::Quarantine)]);
    let tenant = FreezeTarget::Tenant("acme".parse().unwrap());
    assert_eq!(closed.quarantine, Some(tenant.clone()));

    for target in [principal, tenant, job] {
        let says = registry(&[RegistryItem::Quarantine(target.clone())]);
        let judgement =
            judge(&pay, &state, &Inputs { registry: Some(says.registry()), ..inputs(&writs) });
        refuses(&judgement.unwrap(), "temporal", reason, Some(Hold::Thaw));
        let lifted =
            registry(&[RegistryItem::Quarantine(target.clone()), RegistryItem::Lift(target)]);
        let inputs = Inputs { registry: Some(lifted.registry()), ..inputs(&writs) };
        assert_eq!(judge(&pay, &state, &inputs).unwrap().verdict, Verdict::Allow);
    }
}

/// Something that a trajectory above has sent.
fn sent(fate: Fate) -> Repeat {
    Repeat {
        at: UnixMs(1_763_318_583_000),
        fate,
        key: "gesta-1".to_owned(),
        started: EntryId::new(Digest::of(b"started")),
        step: "ship".parse().unwrap(),
        trajectory: REGISTRY,
    }
}

#[test]
fn what_a_branch_would_repeat_is_asked_about_in_its_own_stage() {
    let (state, writs) = session(|_| ());
    let sent = sent(Fate::Unknown);
    let judged = |told: Vec<EntryId>| {
        let repeats = Repeats { found: vec![sent.clone()], told };
        judge(&proposal("pay", "{}"), &state, &Inputs { repeats, ..inputs(&writs) }).unwrap()
    };
    // Without an approval, it makes no difference what anybody was told.
    for told in [vec![], vec![sent.started]] {
        let judgement = judged(told);
        assert_eq!((judgement.verdict, judgement.reason), (Verdict::Escalate, None));
        assert_eq!(judgement.trace[5].stage, repeat::STAGE);
        assert_eq!(judgement.trace.len(), STAGES.len() + 1);
        let reason = judgement.asking.unwrap().reason;
        assert!(reason.contains("2025-11-16 18:43:03 UTC with the key `gesta-1`"), "{reason}");
        assert!(reason.contains("`ship` of t_08") && reason.contains("may have happened"));
    }
}
