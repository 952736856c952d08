//! What stands inside an entry is held to the same form as the entry.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gesta_core::body::{Proposal, external_key};
use gesta_core::entry::{Body, Entry, EntryError, Payload};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::{Act, Offer, Scope};

const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);

#[test]
fn what_is_nested_in_an_entry_is_canonical_too() {
    let entry = started();
    let text = String::from_utf8(entry.bytes().to_vec()).unwrap();
    assert_eq!(Entry::from_bytes(text.as_bytes()).unwrap(), entry);
    let args = format!("\"args\":{}", proposal(&entry).args);
    for bad in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"b":1,"a":1}"#,
        r#"{"a":{"b":1,"a":1}}"#,
        r#"[1, 2]"#,
        "1.0",
        "-0",
        "1e2",
        "01",
        r#""\u0041""#,
        r#""\/""#,
        r#""\u000A""#,
        "9007199254740993",
    ] {
        let bad = text.replacen(&args, &format!("\"args\":{bad}"), 1);
        assert_ne!(bad, text);
        let refused = Entry::from_bytes(bad.as_bytes()).unwrap_err();
        assert!(matches!(refused, EntryError::Json(_)), "{bad}");
    }
    for (from, to) in [
        // In a signed document, in its signature, between them.
        ("\"attempt\":1", "\"attempt\":1,\"attempt\":1"),
        ("\"attempt\":1", "\"attempt\": 1"),
        ("\"generation\":1", "\"generation\":1.0"),
        ("\"verdict\":\"allow\"", "\"verdict\":\"al\\u006cow\""),
        ("},\"sig\":", "},\"sig\":\"\",\"sig\":"),
        ("},\"sig\":", "} ,\"sig\":"),
    ] {
        let bad = text.replacen(from, to, 1);
        assert_ne!(bad, text);
        let refused = Entry::from_bytes(bad.as_bytes()).unwrap_err();
        assert!(matches!(refused, EntryError::Json(_)), "{bad}");
    }
}

#[test]
fn an_amount_of_zero_has_one_form_and_it_is_none() {
    let text = String::from_utf8(started().bytes().to_vec()).unwrap();
    let zero = text.replacen("\"tokens\":20", "\"tokens\":0", 1);
    assert_ne!(zero, text);
    let refused = Entry::from_bytes(zero.as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("zero"), "{refused}");
    let none = text.replacen("\"tokens\":20,", "", 1);
    assert!(Entry::from_bytes(none.as_bytes()).is_ok());
}

#[test]
fn an_entry_is_not_made_larger_than_one_is_read() {
    let Payload { body, .. } = started().payload().clone();
    let Body::Started(mut body) = body else { unreachable!() };
    body.proposal.args = Canon::of(&"x".repeat((1 << 20) - 8)).unwrap();
    let payload = Payload { body: Body::Started(body), ..started().payload().clone() };
    let refused = Entry::new(payload).unwrap_err();
    assert_eq!(refused.to_string(), "not canonical JSON: larger than 1048576 bytes");
}

/// The other side tells effects apart by this key: one for every attempt at one effect, and no other's.
#[test]
fn the_key_that_the_other_side_sees_is_that_of_one_effect() {
    let (charge, mail): (StepId, StepId) = ("charge".parse().unwrap(), "mail".parse().unwrap());
    let key = external_key(ID, &charge, 1);
    assert!(key.starts_with("gesta-") && key.len() == 6 + 64, "{key}");
    assert_eq!(key, external_key(ID, &charge, 1));
    let other = TrajectoryId::from_bytes([8; 16]);
    for another in
        [external_key(other, &charge, 1), external_key(ID, &mail, 1), external_key(ID, &charge, 2)]
    {
        assert_ne!(key, another);
    }
}

/// A `started` entry, with two signed documents and arguments in it.
fn started() -> Entry {
    let cast = Cast::new(1);
    let mut admission = cast.begin_session(ID).unwrap();
    let offer = Offer { act: Act::Start, on: Scope::Step("charge".parse().unwrap()) };
    cast.push(&mut admission, &offer, EPOCH, &mut Dice::new(1)).unwrap();
    admission.finish().unwrap().0.entries().last().unwrap().clone()
}

fn proposal(entry: &Entry) -> &Proposal {
    match &entry.payload().body {
        Body::Started(started) => &started.proposal,
        other => unreachable!("{other:?}"),
    }
}
