//! How people are asked, and what must be committed before.

use gesta_core::document::Verdict;
use gesta_core::policy::{Asking, Requirement};
use gesta_policy::verdict;

use crate::shop::{refund, set};

fn asking(text: &str) -> Asking {
    let answer = refund(9000).of(&set(text));
    assert_eq!(verdict(&answer), Verdict::Escalate, "{answer:?}");
    answer.asking.unwrap()
}

fn asks(channels: &[&str], quorum: u64, within_ms: u64, reason: &str) -> Asking {
    let channels = channels.iter().map(|channel| channel.parse().unwrap()).collect();
    Asking { channels, quorum, reason: reason.to_owned(), within_ms }
}

const CALL: &str = "(principal, action in Action::\"call\", resource);";
const BOTH: &str = "(principal, action, resource);";
const UNATTENDED: &str = "(principal, action in Action::\"call_unattended\", resource);";
const DAY_MS: u64 = 86_400_000;

#[test]
fn without_a_word_operators_are_asked_for_a_day() {
    let expected =
        asks(&["operators"], 1, DAY_MS, "no policy lets `payments.refund` be called unattended");
    assert_eq!(asking(&format!("@id(\"a\") permit {CALL}")), expected);
    let text = format!("@id(\"a\") permit {BOTH} @id(\"b\") forbid {UNATTENDED}");
    let expected =
        asks(&["operators"], 1, DAY_MS, "`payments.refund` may not be called unattended: `b`");
    assert_eq!(asking(&text), expected);
}

#[test]
fn several_policies_ask_on_all_channels_for_the_most_people_in_the_shortest_time() {
    let text = format!(
        "@id(\"a\") @channel(\"never\") @quorum(\"9\") @expires(\"1s\") @reason(\"x\") permit {BOTH}
         @id(\"b\") @channel(\"ops, finance\") @quorum(\"2\") @expires(\"2h\") @reason(\"one\") forbid {UNATTENDED}
         @id(\"c\") @channel(\"finance,legal\") @quorum(\"3\") @expires(\"1h\") @reason(\"two\") forbid {UNATTENDED}
         @id(\"d\") forbid {UNATTENDED}"
    );
    assert_eq!(asking(&text), asks(&["finance", "legal", "ops"], 3, 3_600_000, "one; two"));
}

#[test]
fn where_nothing_forbids_those_that_allow_the_call_say_how_to_ask() {
    let text = format!(
        "@id(\"a\") @channel(\"ops\") @quorum(\"2\") @expires(\"30m\") @reason(\"by hand\") permit {CALL}
         @id(\"b\") @channel(\"finance\") permit {CALL}"
    );
    assert_eq!(asking(&text), asks(&["finance", "ops"], 2, 1_800_000, "by hand"));
}

#[test]
fn what_deciding_policies_require_is_demanded() {
    let text = format!(
        "@id(\"a\") @requires(\"invoice, order by orders.read\") permit {CALL}
         @id(\"b\") @requires(\"consent\") permit {UNATTENDED}
         @id(\"c\") @requires(\"never\") permit (principal, action in Action::\"tool:mail.send\", resource);"
    );
    let requirement = |type_: &str, by: Option<&str>| Requirement {
        by: by.map(|by| by.parse().unwrap()),
        type_: type_.to_owned(),
    };
    let mut expected = vec![
        requirement("consent", None),
        requirement("invoice", None),
        requirement("order", Some("orders.read")),
    ];
    expected.sort();
    assert_eq!(refund(1).of(&set(&text)).requires, expected);
}
