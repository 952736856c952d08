//! Canonical JSON against an independent implementation, on random documents in random spellings.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use gesta_core::json::{Canon, JsonError, Limits, check_canonical, to_canonical};
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

/// The canonical form of `text`, which must also be a fixed point.
fn canonical(text: &str) -> String {
    let canon = Canon::parse(text.as_bytes()).unwrap();
    assert_eq!(Canon::parse(canon.as_bytes()).unwrap(), canon);
    canon.as_str().to_owned()
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{0,3}",
        "[ -~]{0,24}",
        "[\\x00-\\x30\"\\\\/]{0,12}",
        proptest::collection::vec(
            prop_oneof![
                any::<char>(),
                proptest::char::range('\u{d7f0}', '\u{e010}'),
                proptest::char::range('\u{fff0}', '\u{1000f}'),
            ],
            0..4
        )
        .prop_map(String::from_iter),
    ]
}

fn number() -> impl Strategy<Value = Number> {
    const MAX: i64 = (1 << 53) - 1;
    prop_oneof![
        (-100_i64..100).prop_map(Number::from),
        (-MAX..=MAX).prop_map(Number::from),
        (-1e6..1e6).prop_map(|x| Number::from_f64(x).unwrap()),
        any::<u64>().prop_filter_map("refused", |bits| {
            let number = f64::from_bits(bits);
            let integer = number.abs() > MAX as f64 && number.abs() < 1e21;
            if integer { None } else { Number::from_f64(number) }
        }),
    ]
}

fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number().prop_map(Value::from),
        string().prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(string(), inner, 0..6)
                .prop_map(|map| Value::from(Map::from_iter(map))),
        ]
    })
}

/// Spells `value` as JSON text with its keys, spaces and escapes as `choice` has it.
fn spell(value: &Value, choice: &mut impl FnMut(usize) -> usize, out: &mut String) {
    fn space(choice: &mut impl FnMut(usize) -> usize, out: &mut String) {
        out.push_str(["", "", " ", "\n\t", "\r"][choice(5)]);
    }
    fn string(text: &str, choice: &mut impl FnMut(usize) -> usize, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match (choice(4), character) {
                (0, _) => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04X}"));
                    }
                }
                (1, '/') => out.push_str("\\/"),
                _ => {
                    let quoted = serde_json::to_string(&character).unwrap();
                    out.push_str(&quoted[1..quoted.len() - 1]);
                }
            }
        }
        out.push('"');
    }
    space(choice, out);
    match value {
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                spell(element, choice, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            let mut members: Vec<_> = members.iter().collect();
            for index in (1..members.len()).rev() {
                members.swap(index, choice(index + 1));
            }
            for (index, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                space(choice, out);
                string(key, choice, out);
                space(choice, out);
                out.push(':');
                spell(member, choice, out);
            }
            out.push('}');
        }
        Value::String(text) => string(text, choice, out),
        Value::Number(number) if number.is_f64() && choice(2) == 0 => {
            out.push_str(&format!("{:e}", number.as_f64().unwrap()));
        }
        scalar => out.push_str(&scalar.to_string()),
    }
    space(choice, out);
}

/// xorshift64: choices that a failing case's seed reproduces.
fn chooser(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

/// 20,000 documents, each in its own spelling, against the oracle.
#[test]
fn random_documents_agree_with_the_oracle() {
    let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() };
    proptest!(config, |(document in document(), seed in any::<u64>())| {
        let oracle = serde_json_canonicalizer::to_string(&document).unwrap();
        let mut text = String::new();
        spell(&document, &mut chooser(seed), &mut text);
        prop_assert_eq!(canonical(&text), &*oracle, "{}", text);
        prop_assert_eq!(to_canonical(&document).unwrap(), oracle.as_bytes());
    });
}

/// Flipping, dropping or doubling any byte of canonical text yields canonical text of another
/// document or a refusal, never a crash and never a document that is not a fixed point.
#[test]
fn random_damage_is_refused_or_still_sound() {
    let config = ProptestConfig { cases: 5_000, failure_persistence: None, ..Default::default() };
    proptest!(config, |(document in document(), at in any::<prop::sample::Index>(), byte in any::<u8>(), kind in 0..3)| {
        let mut bytes = to_canonical(&document).unwrap();
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        let parsed: Result<Canon, JsonError> = Canon::parse(&bytes);
        let own_form = parsed.as_ref().is_ok_and(|canon| canon.as_bytes() == bytes);
        prop_assert_eq!(check_canonical(&bytes, Limits::DEFAULT).is_ok(), own_form);
        if let Ok(canon) = parsed {
            prop_assert!(check_canonical(canon.as_bytes(), Limits::DEFAULT).is_ok());
            prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    });
}
