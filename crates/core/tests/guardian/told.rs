//! What people are told of a decision: why it is no, and what they are asked about.

use gesta_core::digest::{Digest, EntryId, WritId};
use gesta_core::document::{Decision, FreezeTarget, Reason, RegistryItem, Stage, Verdict};
use gesta_core::guardian::{Inputs, Judgement, judge, why};
use gesta_core::policy::{Answer, Asking, Deciding, Requirement, Ruling};
use gesta_core::repeat::{self, Fate, Repeat, Repeats};
use gesta_core::sample::{Cast, EPOCH};
use gesta_core::signed::Tag;

use crate::{ID, account, answer, inputs, proposal, registry, sent, session};

/// A policy and a branch that both want people asked ask once, and neither is asked for less.
#[test]
fn whoever_either_would_ask_is_asked_once() {
    let (state, writs) = session(|_| ());
    let fates = [Fate::Open, Fate::Happened, Fate::Undone, Fate::DidNotHappen, Fate::Unknown];
    let found: Vec<Repeat> = fates.map(sent).into();
    let asking = Asking {
        channels: vec!["slack:ops".parse().unwrap()],
        quorum: 2,
        reason: "dear".to_owned(),
        within_ms: 5,
    };
    let policy = Ok(Answer { asking: Some(asking.clone()), ..answer(true, false) });
    let repeats = Repeats { found: found.clone(), told: Vec::new() };
    let inputs = Inputs { policy, repeats, ..inputs(&writs) };
    let judgement = judge(&proposal("pay", "{}"), &state, &inputs).unwrap();
    let asked = judgement.asking.clone().unwrap();
    assert_eq!((asked.quorum, asked.within_ms), (2, 5));
    let channels = [asking.channels, Asking::default().channels].concat();
    assert!(channels.iter().all(|channel| asked.channels.contains(channel)));
    assert_eq!(asked.channels.len(), channels.len());
    assert!(asked.reason.starts_with("dear; what this branched from has sent it before: "));
    // Three are spelled out; the decision has them all.
    for (said, fate) in [
        (true, "is under way"),
        (true, " happened, "),
        (true, "happened and was undone"),
        (false, "did not happen"),
        (false, "may have happened"),
    ] {
        assert_eq!(asked.reason.contains(fate), said, "{fate}: {}", asked.reason);
    }
    assert!(asked.reason.ends_with("; and 2 more"), "{}", asked.reason);
    let decided = decision(judgement.verdict, judgement.reason, judgement.trace);
    assert_eq!(repeat::Found::of(&decided).repeats, found);
    let looked_at_nothing = decision(Verdict::Allow, None, Vec::new());
    assert_eq!(repeat::Found::of(&looked_at_nothing), repeat::Found::default());
}

/// Why a judgement is no, as people are told once it is a decision.
fn told(judgement: Judgement) -> String {
    why(&decision(judgement.verdict, judgement.reason, judgement.trace))
}

fn decision(verdict: Verdict, reason: Option<Reason>, trace: Vec<Stage>) -> Decision {
    let pay = proposal("pay", "{}");
    Decision {
        at: EPOCH,
        environment: Digest::of(b"environment"),
        key: Cast::new(1).guardian.id(),
        parent: EntryId::new(Digest::of(b"parent")),
        proposal: pay.id().unwrap(),
        reason,
        registry: None,
        step: pay.step,
        trace,
        trajectory: ID,
        type_: Tag::default(),
        verdict,
        writ: WritId::new(Digest::of(b"writ")),
    }
}

/// What the stages write is what is read for people.
#[test]
fn a_refusal_is_told_in_words() {
    let (state, writs) = session(|_| ());
    let frozen = registry(&[RegistryItem::Freeze(FreezeTarget::All)]);
    let tells = |edit: &dyn Fn(&mut Inputs<'_>), expected: &str| {
        let mut inputs = inputs(&writs);
        inputs.registry = Some(frozen.registry()).filter(|_| expected.contains("everything"));
        edit(&mut inputs);
        assert_eq!(told(judge(&proposal("pay", "{}"), &state, &inputs).unwrap()), expected);
    };
    tells(&|inputs| inputs.tool = None, "no such tool");
    tells(&|_| (), "everything is frozen");
    tells(&|inputs| inputs.writ = Err("forged".to_owned()), "forged");
    tells(
        &|inputs| inputs.mismatches = vec!["/cents".to_owned()],
        r#"stage `types` found ["/cents"]"#,
    );
    tells(&|inputs| inputs.account = Some(account(0)), "the budget `calls` does not reach");
    tells(&|inputs| inputs.policy = Err("cannot be read".to_owned()), "cannot be read");
    tells(&|inputs| inputs.policy = Ok(answer(false, true)), "no policy permits it");
    let failing = Ruling { errors: vec!["no such thing".to_owned()], ..Ruling::default() };
    tells(
        &|inputs| {
            inputs.policy = Ok(Answer { unattended: failing.clone(), ..answer(true, false) });
        },
        "policies cannot be evaluated: no such thing",
    );
    let because = |id: &str, reason: Option<&str>| Deciding {
        annotations: reason.map(|why| ("reason".to_owned(), why.to_owned())).into_iter().collect(),
        id: id.to_owned(),
    };
    let by = vec![because("limit", Some("too dear")), because("night", None)];
    let forbidden = Ruling { by, ..Ruling::default() };
    tells(
        &|inputs| inputs.policy = Ok(Answer { call: forbidden.clone(), ..answer(false, true) }),
        "policy `limit` (too dear), policy `night`",
    );
    let needed = |by: Option<&str>, of: &str| Requirement {
        by: by.map(|by| by.parse().unwrap()),
        type_: of.to_owned(),
    };
    let requires = vec![needed(Some("review.sign"), "review"), needed(None, "invoice")];
    tells(
        &|inputs| {
            inputs.policy = Ok(Answer { requires: requires.clone(), ..answer(true, true) });
        },
        "nothing committed yet is a `review` by `review.sign`, a `invoice`",
    );
}

/// The stages of a decision do not tell what became of asking people.
#[test]
fn what_people_said_is_told_whatever_the_stages_found() {
    let tells = |reason, trace| why(&decision(Verdict::Deny, Some(reason), trace));
    let silent = || vec![Stage { found: None, stage: "temporal".to_owned() }];
    assert_eq!(tells(Reason::ApprovalDenied, silent()), "an approver said no");
    assert_eq!(tells(Reason::ApprovalExpired, silent()), "nobody approved it in time");
    assert_eq!(tells(Reason::TemporalIntervention, silent()), "stage `temporal`");
    assert_eq!(tells(Reason::UnknownTool, Vec::new()), "no stage was asked");
}
