//! What is answered: verdicts, who decided, what fails closed.

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::Verdict;
use gesta_core::policy::Answer;
use gesta_core::writ::Effect;
use gesta_policy::{PolicyDocument, PolicySet, explain, verdict};
use serde_json::json;

use crate::shop::{Ask, MONDAY, ids, of, refund, set, tools};

/// Refunds of any size may be called, small ones unattended; mail is never sent to nobody.
const RULES: &str = r#"
@id("reads")
permit (principal, action, resource) when { resource.effect == Effect::"read" };

@id("refunds")
permit (principal in Role::"support", action in Action::"tool:payments.refund", resource);

@id("large-refunds") @reason("more than 50 needs finance") @channel("finance")
forbid (principal, action == Action::"call_unattended:payments.refund", resource)
when { context.args.cents > 5000 };

@id("absurd-refunds")
forbid (principal, action in Action::"tool:payments.refund", resource)
when { context.args.cents > 100000 };

@id("mail")
permit (principal, action in Action::"call", resource in ToolGroup::"mail.*");

@id("nobody")
forbid (principal, action in Action::"tool:mail.send", resource) when { context.args.to == "" };
"#;

#[test]
fn verdicts_and_who_decided() {
    let set = set(RULES);
    let mail = |to: &str| of("mail.send", json!({ "to": to }));
    let stranger = Ask { principal: "agent:other", ..refund(1) };
    for (ask, expected, call, unattended) in [
        (of("orders.read", json!({ "order": 1 })), Verdict::Allow, vec!["reads"], vec!["reads"]),
        (refund(5000), Verdict::Allow, vec!["refunds"], vec!["refunds"]),
        (refund(5001), Verdict::Escalate, vec!["refunds"], vec!["large-refunds"]),
        (refund(100_001), Verdict::Deny, vec!["absurd-refunds"], vec![]),
        (stranger, Verdict::Deny, vec![], vec![]),
        (mail("a@b"), Verdict::Escalate, vec!["mail"], vec![]),
        (mail(""), Verdict::Deny, vec!["nobody"], vec![]),
        (of("notes.any", json!({})), Verdict::Deny, vec![], vec![]),
    ] {
        let answer = ask.of(&set);
        assert_eq!(verdict(&answer), expected, "{answer:?}");
        assert_eq!(ids(&answer.call), call);
        assert_eq!(ids(&answer.unattended), unattended);
        assert_eq!(answer.asking.is_some(), expected == Verdict::Escalate);
    }
}

#[test]
fn several_deciding_policies_are_named_by_id_with_their_annotations() {
    let text = "@id(\"z\") @reason(\"last\")\npermit (principal, action, resource);\n@id(\"a\")\npermit (principal, action, resource);\n@id(\"m\") permit (principal, action, resource);";
    let answer = refund(1).of(&set(text));
    assert_eq!(ids(&answer.call), ["a", "m", "z"]);
    assert_eq!(answer.call.by[2].annotations, [("reason".to_owned(), "last".to_owned())].into());
    assert!(answer.call.by[0].annotations.is_empty());
}

#[test]
fn answers_are_the_same_every_time_and_everywhere() {
    let first = refund(6000).of(&set(RULES));
    for _ in 0..20 {
        // Compiled again: nothing may depend on the order of some map.
        assert_eq!(refund(6000).of(&set(RULES)), first);
    }
}

#[test]
fn an_error_denies_even_beside_an_allow() {
    let all = "@id(\"all\") permit (principal, action, resource);\n";
    let overflow = "@id(\"bad\") permit (principal, action in Action::\"QUESTION:payments.refund\", resource) when { context.args.cents * 9223372036854775807 > 0 };";
    for question in ["call", "call_unattended"] {
        let answer =
            refund(3).of(&set(&format!("{all}{}", overflow.replace("QUESTION", question))));
        let ruling = if question == "call" { &answer.call } else { &answer.unattended };
        assert!(!ruling.allowed, "{answer:?}");
        assert_eq!(ids(ruling), ["all"]);
        assert!(ruling.errors[0].contains("`bad`"), "{:?}", ruling.errors);
        assert_eq!(verdict(&answer), Verdict::Deny);
        assert_eq!(answer.asking, None);
    }
}

#[test]
fn a_tool_that_the_document_does_not_know_is_denied() {
    let set = set("@id(\"all\") permit (principal, action, resource);");
    let unknown = of("books.read", json!({})).of(&set);
    assert_eq!(verdict(&unknown), Verdict::Deny);
    assert_eq!(
        unknown.call.errors,
        [
            "the policy in force was published without the tool `books.read`; publish the policy again: `gesta policy publish`"
        ]
    );
    let changed = Ask { effect: Some(Effect::Read), ..refund(1) }.of(&set);
    assert_eq!(verdict(&changed), Verdict::Deny);
    assert!(
        changed.call.errors[0].contains("knows `payments.refund` with effect `external`"),
        "{changed:?}"
    );
}

#[test]
fn where_nothing_is_published_reads_run_and_the_rest_is_asked_for() {
    let set = PolicySet::compile(&PolicyDocument::default_for(tools())).unwrap();
    for (tool, args, expected) in [
        ("orders.read", json!({ "order": 1 }), Verdict::Allow),
        ("notes.any", json!({}), Verdict::Escalate),
        ("payments.refund", json!({ "order": 1, "cents": 1 }), Verdict::Escalate),
        ("mail.send", json!({ "to": "a" }), Verdict::Escalate),
    ] {
        let answer = of(tool, args).of(&set);
        assert_eq!(verdict(&answer), expected, "{tool}: {answer:?}");
    }
}

/// Whether a condition holds of a question.
fn holds(condition: &str, ask: &Ask) -> bool {
    let text = format!("@id(\"a\") permit (principal, action, resource) when {{ {condition} }};");
    let answer = ask.of(&set(&text));
    assert!(answer.call.errors.is_empty(), "{answer:?}");
    answer.call.allowed
}

#[test]
fn the_whole_context_can_be_asked_about() {
    let ask = Ask {
        tries: 2,
        spent: Amounts { calls: 3, money_micros: 4, tokens: 5, wall_ms: 6 },
        left: Budget {
            calls: Some(7),
            money_micros: None,
            tokens: Some(8),
            wall_ms: Some(u64::MAX),
        },
        approvals: vec!["person:bo", "person:al", "person:bo"],
        evidence: vec!["invoice"],
        ..refund(1)
    };
    for condition in [
        "context.now.ms == 1704101400000",
        "context.now.hour == 9 && context.now.minute == 30 && context.now.weekday == 1",
        "context.tries == 2",
        "context.spent.calls == 3 && context.spent.money_micros == 4",
        "context.spent.tokens == 5 && context.spent.wall_ms == 6",
        "context.left has calls && context.left.calls == 7",
        "context.left has wall_ms && context.left.wall_ms == 9223372036854775807",
        "!(context.left has money_micros)",
        "context.approvals.count == 2 && context.approvals.by.contains(\"person:bo\")",
        "context.evidence.contains(\"invoice\")",
        "principal.name == \"agent:main\" && principal in Tenant::\"main\"",
        "principal in Role::\"support\" && principal == Agent::\"agent:main\"",
        "resource.name == \"payments.refund\" && resource.level == 2",
        "resource.effect == Effect::\"external\" && resource has risk && resource.risk == 70",
        "resource in ToolGroup::\"payments.*\"",
        "action in Action::\"call\"",
    ] {
        assert!(holds(condition, &ask), "{condition}");
        assert!(!holds(&format!("!({condition})"), &ask), "{condition}");
    }
    let sunday = Ask { now: gesta_core::time::UnixMs(MONDAY.0 - 86_400_000), ..ask.clone() };
    assert!(holds("context.now.weekday == 7", &sunday));
    let other = Ask { tenant: "other", principal: "agent:x", ..ask };
    assert!(holds("!(principal in Tenant::\"main\") && !(principal in Role::\"support\")", &other));
}

#[test]
fn an_answer_is_told_in_plain_words() {
    let set = set(RULES);
    let told = |answer: &Answer| explain(answer).join("\n");
    assert_eq!(
        told(&refund(5001).of(&set)),
        "it may be called: `refunds` allows it\nit may not be called unattended: `large-refunds` (more than 50 needs finance) forbids it\nso one person of `finance` must agree within 1d: more than 50 needs finance"
    );
    assert_eq!(
        told(&of("mail.send", json!({ "to": "a" })).of(&set)),
        "it may be called: `mail` allows it\nit may not be called unattended: no policy allows it\nso one person of `operators` must agree within 1d: no policy lets `mail.send` be called unattended"
    );
    assert_eq!(
        told(&refund(100_001).of(&set)),
        "it may not be called: `absurd-refunds` forbids it"
    );
    assert_eq!(
        told(&of("notes.any", json!({})).of(&set)),
        "it may not be called: no policy allows it"
    );
}
