//! Arguments that Cedar holds, and those that it cannot.

use gesta_core::document::Verdict;
use gesta_core::policy::Answer;
use gesta_policy::verdict;
use serde_json::{Value, json};

use crate::shop::{of, set};

const ALL: &str = "@id(\"all\") permit (principal, action, resource);";

fn refund(text: &str, more: &[(&str, Value)]) -> Answer {
    let mut args = json!({ "order": 1, "cents": 1 });
    for (name, value) in more {
        args[*name] = value.clone();
    }
    of("payments.refund", args).of(&set(text))
}

#[test]
fn a_fraction_or_null_that_nothing_maps_is_never_unattended() {
    for (name, value, expected) in [
        ("share", json!(0.5), Verdict::Escalate),
        ("share", json!(2), Verdict::Allow),
        ("note", Value::Null, Verdict::Escalate),
        ("note", json!("x"), Verdict::Allow),
        ("price", json!(1.25), Verdict::Allow),
        ("memo", Value::Null, Verdict::Allow),
        ("more", json!({ "deep": [1, { "er": null }] }), Verdict::Escalate),
    ] {
        let answer = refund(ALL, &[(name, value.clone())]);
        assert_eq!(verdict(&answer), expected, "{name} = {value}: {answer:?}");
        assert!(answer.unattended.errors.is_empty());
        if let Some(asking) = answer.asking {
            let place = if name == "more" { "/more/deep/er" } else { &format!("/{name}") };
            assert_eq!(
                asking.reason,
                format!("policies cannot see the fraction or null at `{place}`")
            );
        }
    }
}

#[test]
fn an_argument_that_a_policy_needs_and_cannot_see_denies() {
    // What is required is taken for granted by policies, and null is not there.
    let text = format!(
        "{ALL} @id(\"b\") forbid (principal, action in Action::\"tool:payments.refund\", resource) when {{ context.args.cents > 5 }};"
    );
    let answer = refund(&text, &[("cents", Value::Null)]);
    assert_eq!(verdict(&answer), Verdict::Deny);
    assert!(answer.call.errors[0].contains("`b`"), "{answer:?}");
    assert!(
        answer.call.errors[0].ends_with("(policies cannot see the fraction or null at `/cents`)"),
        "{answer:?}"
    );
}

#[test]
fn numbers_are_shown_as_the_schema_maps_them() {
    let text = "@id(\"a\") permit (principal, action in Action::\"tool:payments.refund\", resource) when { context.args has price && context.args.price == 125 };";
    assert_eq!(verdict(&refund(text, &[("price", json!(1.25))])), Verdict::Allow);
    assert_eq!(verdict(&refund(text, &[("price", json!(1.26))])), Verdict::Deny);
    let odd = refund(ALL, &[("price", json!(1.255))]);
    assert_eq!(verdict(&odd), Verdict::Deny);
    assert!(
        odd.call.errors[0].starts_with("the argument `/price` times 100 is not a whole number"),
        "{odd:?}"
    );
}

#[test]
fn a_value_of_another_type_than_the_policy_was_checked_with_denies() {
    for (name, value) in [
        ("cents", json!("1")),
        ("cents", json!(1.5)),
        ("cents", json!(true)),
        ("note", json!(1)),
        ("note", json!(["x"])),
    ] {
        let answer = refund(ALL, &[(name, value.clone())]);
        assert_eq!(verdict(&answer), Verdict::Deny, "{name} = {value}: {answer:?}");
        assert!(
            answer.call.errors[0].starts_with(&format!("the argument `/{name}` is not ")),
            "{answer:?}"
        );
    }
}

#[test]
fn lists_and_records_are_seen() {
    let text = "@id(\"a\") permit (principal, action in Action::\"tool:mail.send\", resource) when { context.args has copies && context.args.copies.contains(\"c@d\") && context.args has from && context.args.from.name like \"*shop\" };";
    let mail = |args: Value| verdict(&of("mail.send", args).of(&set(text)));
    assert_eq!(
        mail(json!({ "to": "a", "copies": ["x", "c@d"], "from": { "name": "the shop" } })),
        Verdict::Allow
    );
    assert_eq!(
        mail(json!({ "to": "a", "copies": [], "from": { "name": "the shop" } })),
        Verdict::Deny
    );
    assert_eq!(mail(json!({ "to": "a" })), Verdict::Deny);
}
