//! The reader against the writer: what one passes, the other would have written.

use proptest::prelude::*;
use serde_json::{Number, Value};

use super::super::{Canon, canonical_form};
use super::*;

/// Whether the text is canonical, by writing it again.
fn is_its_own_form(text: &str, limits: Limits) -> bool {
    canonical_form(text.as_bytes(), limits).is_ok_and(|form| form == text.as_bytes())
}

#[track_caller]
fn agrees(text: &str) -> bool {
    let canonical = is_its_own_form(text, Limits::DEFAULT);
    assert_eq!(is_canonical(text, Limits::DEFAULT.max_depth), canonical, "{text:?}");
    // What is read by shape is passed over by other code.
    let read: Option<Value> = from_str(text);
    assert_eq!(read, canonical.then(|| serde_json::from_str(text).unwrap()), "{text:?}");
    canonical
}

const CANONICAL: &[&str] = &[
    "0",
    "-1",
    "1.5",
    "1e-7",
    "1e+21",
    "-9007199254740991",
    "null",
    "true",
    "false",
    "\"\"",
    r#""\"\\\b\t\n\f\r\u0000\u001f€é😀/""#,
    "[]",
    "{}",
    r#"[1,[2],{"a":{}}]"#,
    r#"{"":0,"a":1,"b":[]}"#,
    "{\"\u{20ac}\":1,\"\u{10000}\":2,\"\u{fb33}\":3}",
    "5e-324",
];

const NOT_CANONICAL: &[&str] = &[
    "",
    " ",
    "0 ",
    " 0",
    "-0",
    "00",
    "01",
    "1.0",
    "1.50",
    "1E5",
    "1e5",
    "1e21",
    "100e-2",
    "-",
    ".5",
    "1.",
    "+1",
    "0.0",
    "-0.0",
    "1e400",
    "9007199254740992",
    "1e20",
    "nul",
    "nulls",
    "True",
    "'a'",
    "\"a",
    "\"\n\"",
    r#""\/""#,
    r#""\u0041""#,
    r#""\u001F""#,
    r#""\u000a""#,
    r#""\ud83d\ude00""#,
    r#""\u00e9""#,
    r#""\x""#,
    r#""\"#,
    "[",
    "]",
    "[1,]",
    "[,1]",
    "[1 ,2]",
    "[1, 2]",
    "{",
    "{,}",
    r#"{"a"}"#,
    r#"{"a":}"#,
    r#"{"a":1,}"#,
    r#"{"a" :1}"#,
    r#"{"a": 1}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"a":1,"a":1}"#,
    r#"{"b":1,"a":2}"#,
    "{1:2}",
    r#"{"x":{"b":1,"a":2}}"#,
    r#"[{"a":1,"\u0061":2}]"#,
    "1 2",
    "[]]",
    "{}{}",
    "\u{feff}0",
    "{\"\u{fb33}\":3,\"\u{10000}\":2}",
];

#[test]
fn only_the_canonical_spelling_passes() {
    for text in CANONICAL {
        assert!(agrees(text), "{text}");
    }
    for text in NOT_CANONICAL {
        assert!(!agrees(text), "{text}");
    }
}

#[test]
fn depth_counts_as_it_does_for_the_parser() {
    for depth in 60..70 {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let inner = if open == "[" { "" } else { "0" };
            agrees(&format!("{}{inner}{}", open.repeat(depth), close.repeat(depth)));
        }
    }
    let bomb = "[".repeat(1 << 20);
    assert!(!agrees(&bomb));
}

fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        (-(1_i64 << 53) + 1..1_i64 << 53).prop_map(Number::from),
        (-3_i64..12).prop_map(Number::from),
        any::<f64>().prop_filter_map("finite", Number::from_f64),
    ];
    let text = prop_oneof!["[a-c]{0,3}", "[\\x00-\\x20\"\\\\/a€\u{e000}😀]{0,4}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number.prop_map(Value::Number),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..5)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_documents_pass_exactly_if_they_are_canonical(
        value in any_json(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 12),
    ) {
        let plain = serde_json::to_string(&value).unwrap();
        agrees(&plain);
        agrees(&serde_json::to_string_pretty(&value).unwrap());
        let Ok(canon) = Canon::parse(plain.as_bytes()) else { return Ok(()) };
        prop_assert!(agrees(canon.as_str()));
        let interesting = b" \"\\,:{}[]0.-+eEu1n\n\x00/";
        for (at, byte, how) in edits {
            let mut bytes = canon.as_bytes().to_vec();
            let at = at.index(bytes.len());
            let other = interesting.get(usize::from(byte) % 64).copied().unwrap_or(byte);
            match how {
                0 => bytes[at] = other,
                1 => bytes.insert(at, other),
                2 => drop(bytes.remove(at)),
                _ => bytes.extend_from_within(at..),
            }
            if let Ok(text) = String::from_utf8(bytes) {
                agrees(&text);
            }
        }
    }
}
