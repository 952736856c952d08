//! Budgets: what limits, what is left, and what somebody is told when little is.

use gesta_core::amounts::{Amounts, Budget, Span};
use gesta_core::digest::{Digest, WritId};
use gesta_core::ids::Tenant;
use gesta_core::projection::{Notice, Topic};
use gesta_core::time::{Day, UnixMs};
use serde_json::{Value, json};

const ALL: Budget =
    Budget { calls: Some(10), money_micros: Some(20), tokens: Some(30), wall_ms: Some(40) };

#[test]
fn one_dimension_is_enough_to_limit() {
    assert!(!Budget::default().limits());
    assert!(ALL.limits());
    for budget in [
        Budget { calls: Some(0), ..Budget::default() },
        Budget { money_micros: Some(0), ..Budget::default() },
        Budget { tokens: Some(0), ..Budget::default() },
        Budget { wall_ms: Some(0), ..Budget::default() },
    ] {
        assert!(budget.limits(), "{budget:?}");
    }
}

#[test]
fn what_is_left_is_less_in_each_dimension_and_never_below_nothing() {
    let used = Amounts::of([1, 2, 3, 50]);
    let left =
        Budget { calls: Some(9), money_micros: Some(18), tokens: Some(27), wall_ms: Some(0) };
    assert_eq!(ALL.left(&used), left);
    assert_eq!(Budget::default().left(&used), Budget::default());
}

#[test]
fn amounts_count_only_where_there_is_a_limit() {
    let amounts = Amounts::of([1, 2, 3, 4]);
    assert_eq!(ALL.where_limited(amounts).carved(), amounts);
    assert_eq!(Budget::default().where_limited(amounts), Budget::default());
    let money = Budget { money_micros: Some(20), ..Budget::default() };
    let expected = Budget { money_micros: Some(2), ..Budget::default() };
    assert_eq!(money.where_limited(amounts), expected);
}

/// A notice is told again after a crash: the same must have the same id, and what differs another.
#[test]
fn a_notice_of_a_budget_is_known_by_what_it_tells() {
    let (acme, other): (Tenant, Tenant) = ("acme".parse().unwrap(), "other".parse().unwrap());
    let (day, writ) = (Span::Day(Day(20_000)), WritId::new(Digest::of(b"writ")));
    let used = Amounts::of([8, 0, 0, 0]);
    let told = |tenant, span, reached, used| {
        Notice::of_budget((tenant, span), reached, &ALL, used, UnixMs(7))
    };
    let first = told(&acme, day, 80, used);
    assert_eq!(first.id, told(&acme, day, 80, Amounts::of([9, 0, 0, 0])).id);
    for another in [
        told(&other, day, 80, used),
        told(&acme, Span::Day(Day(20_001)), 80, used),
        told(&acme, Span::Writ(writ), 80, used),
        told(&acme, day, 100, used),
    ] {
        assert_ne!(first.id, another.id);
    }
    assert_eq!((first.topic, first.at), (Topic::Budget, UnixMs(7)));
    let data: Value = first.data.read().unwrap();
    let limit = json!({ "calls": 10, "money_micros": 20, "tokens": 30, "wall_ms": 40 });
    let (day, used) = ("2024-10-04", json!({ "calls": 8 }));
    let expected =
        json!({ "day": day, "limit": limit, "reached": 80, "tenant": "acme", "used": used });
    assert_eq!(data, expected);
    let data: Value = told(&acme, Span::Writ(writ), 80, Amounts::default()).data.read().unwrap();
    assert_eq!(data["writ"], json!(writ.to_string()));
}
