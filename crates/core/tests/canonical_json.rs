//! Canonical JSON through its public door: RFC 8785's own samples, and every refusal with the place it
//! names.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use gesta_core::json::{
    Canon, Limits, Problem, check_canonical, to_canonical, to_canonical_within,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The canonical form of `text`, which must also be a fixed point.
#[track_caller]
fn canonical(text: &str) -> String {
    let canon = Canon::parse(text.as_bytes()).unwrap();
    check_canonical(canon.as_bytes(), Limits::DEFAULT).unwrap();
    assert_eq!(Canon::parse(canon.as_bytes()).unwrap(), canon);
    canon.as_str().to_owned()
}

#[track_caller]
fn refused(text: impl AsRef<[u8]>, pointer: &str, message: &str) {
    let error = Canon::parse(text.as_ref()).unwrap_err();
    assert_eq!((error.pointer(), error.problem().to_string().as_str()), (pointer, message));
    assert_eq!(check_canonical(text.as_ref(), Limits::DEFAULT), Err(error));
}

#[test]
fn rfc_8785_section_3_2_2_serialisation_sample() {
    let text = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
      }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(canonical(text), expected);
}

#[test]
fn rfc_8785_section_3_2_3_sorting_sample() {
    let text = r#"{
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
      }"#;
    let order = Canon::parse(text.as_bytes()).unwrap().to_string();
    let values: Vec<&str> = order.split('"').skip(3).step_by(4).collect();
    let expected = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ];
    assert_eq!(values, expected);
    assert!(order.starts_with(r#"{"\r":"#), "{order}");
}

/// RFC 8785 appendix B, with what is refused here instead of rounded.
#[test]
fn rfc_8785_number_samples() {
    let accepted = [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x433fffffffffffff, "9007199254740991"),
        (0xc33fffffffffffff, "-9007199254740991"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];
    for (bits, expected) in accepted {
        let number = f64::from_bits(bits);
        assert_eq!(to_canonical(&number).unwrap(), expected.as_bytes());
        assert_eq!(canonical(&format!("{number:e}")), expected);
    }
    let refused = [
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
    ];
    for (bits, expected) in refused {
        let number = f64::from_bits(bits);
        let problem = Problem::IntegerOutOfRange(expected.to_owned());
        assert_eq!(to_canonical(&number).unwrap_err().problem(), &problem);
        let text = format!("{number:e}");
        assert_eq!(Canon::parse(text.as_bytes()).unwrap_err().problem(), &problem);
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let problem = Problem::NotFinite(number.to_string());
        assert_eq!(to_canonical(&number).unwrap_err().problem(), &problem);
    }
}

#[test]
fn spellings_of_one_value_have_one_form() {
    for (text, expected) in [
        (" \t\r\n[ 1 , 2 ]\n", "[1,2]"),
        (" { } ", "{}"),
        ("[ ]", "[]"),
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("1.0", "1"),
        ("100e-2", "1"),
        ("1E+2", "100"),
        ("9007199254740991.0", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("1e-400", "0"),
        (r#""\u0041\/\u007f\u2028""#, "\"A/\u{7f}\u{2028}\""),
        (r#""\u0000\b\t\n\u000b\f\r\u001F""#, r#""\u0000\b\t\n\u000b\f\r\u001f""#),
        (r#""\ud834\udd1e""#, "\"𝄞\""),
        (
            r#"{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":0}"#,
            r#"{"a":0,"b":{"c":[{"e":2,"f":1}],"d":1}}"#,
        ),
        (r#"{"a\"":1,"a":2,"a!":3,"":4}"#, r#"{"":4,"a":2,"a!":3,"a\"":1}"#),
    ] {
        assert_eq!(canonical(text), expected);
    }
}

#[test]
fn every_refusal_names_its_place() {
    let integer =
        |text: &str| format!("integer `{text}` is beyond ±9007199254740991, write it as a string");
    refused("", "", "expected a value at byte 0");
    refused("\u{feff}{}", "", "unexpected byte order mark at byte 0");
    refused(b"[\"a\xff\"]", "", "not UTF-8 at byte 3");
    refused(b"\"\xed\xa0\x80\"", "", "not UTF-8 at byte 1");
    refused(r#"{"a":[{"x":1,"x":2}]}"#, "/a/0", "duplicate key `x`");
    refused(r#"{"a":[{"x":1,"a":{"z":1},"x":2}]}"#, "/a/0", "duplicate key `x`");
    refused(r#"{"x":1,"\u0078":2}"#, "", "duplicate key `x`");
    refused(r#"{"\n":1,"b":2,"\u000a":2}"#, "", "duplicate key `\n`");
    refused(r#"{"a/b":{"~c":["\ud800"]}}"#, "/a~1b/~0c/0", r"lone surrogate `\ud800`");
    refused(r#"["\udc00\ud800"]"#, "/0", r"lone surrogate `\udc00`");
    refused(r#"["\ud800\u0041"]"#, "/0", r"lone surrogate `\ud800`");
    refused(r#"{"a":{"b":1,"\ud800x":2}}"#, "/a", r"lone surrogate `\ud800`");
    refused(r#"{"ä\n":[0,9007199254740992]}"#, "/ä\n/1", &integer("9007199254740992"));
    refused("-9007199254740992", "", &integer("-9007199254740992"));
    refused("123456789012345678901234567890", "", &integer("123456789012345678901234567890"));
    refused("9".repeat(50), "", &integer(&format!("{}…", "9".repeat(40))));
    refused("[9007199254740992.0]", "/0", &integer("9007199254740992"));
    refused("[1e20]", "/0", &integer("100000000000000000000"));
    refused(r#"{"n":1e400}"#, "/n", "number `1e400` is not finite");
    refused(r#"{"n":-1e309}"#, "/n", "number `-1e309` is not finite");
    refused("[1,2] 3", "", "more data after the document at byte 6");
    refused("{}}", "", "more data after the document at byte 2");
    refused("[1 2]", "", "expected `,` or `]` at byte 3");
    refused("[[1}]", "/0", "expected `,` or `]` at byte 3");
    refused("[1,]", "/1", "expected a value at byte 3");
    refused("[,1]", "/0", "expected a value at byte 1");
    refused("[1", "", "expected `,` or `]` at byte 2");
    refused(r#"{"a":{"b":1]}"#, "/a", "expected `,` or `}` at byte 11");
    refused(r#"{"a":1,}"#, "", "expected a key at byte 7");
    refused("{1:2}", "", "expected a key at byte 1");
    refused(r#"{"a" 1}"#, "/a", "expected `:` at byte 5");
    refused(r#"{"a":tru}"#, "/a", "expected a value at byte 5");
    refused("[nul", "/0", "expected a value at byte 1");
    refused("NaN", "", "expected a value at byte 0");
    refused("+1", "", "expected a value at byte 0");
    refused("[01]", "/0", "number with a leading zero at byte 1");
    refused("-", "", "expected a digit at byte 1");
    refused("1.", "", "expected a digit at byte 2");
    refused(".5", "", "expected a value at byte 0");
    refused("1e+", "", "expected a digit at byte 3");
    refused("0x10", "", "more data after the document at byte 1");
    refused("\"a\nb\"", "", "unescaped control character at byte 2");
    refused(r#"["abc"#, "/0", "unterminated string at byte 5");
    refused(r#"{"abc"#, "", "unterminated string at byte 5");
    refused(r#""a\x""#, "", "unknown escape at byte 2");
    refused(r#""\u12g4""#, "", r"`\u` without four hexadecimal digits at byte 1");
    refused(r#""\u+123""#, "", r"`\u` without four hexadecimal digits at byte 1");
    refused("[1]//", "", "more data after the document at byte 3");
}

#[test]
fn messages_lead_with_the_pointer() {
    let message = |text: &str| Canon::parse(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(message(r#"{"a":[{"x":1,"x":2}]}"#), "at `/a/0`: duplicate key `x`");
    assert_eq!(message("[1"), "expected `,` or `]` at byte 2");
}

#[test]
fn limits_hold_for_reading_and_writing() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(canonical(&nested(64)), nested(64));
    refused(nested(65), &"/0".repeat(64), "nested deeper than 64 levels");
    refused("[".repeat(1 << 20), &"/0".repeat(64), "nested deeper than 64 levels");
    refused(" ".repeat((1 << 20) + 1), "", "larger than 1048576 bytes");
    let limits = Limits { max_bytes: 10, max_depth: 1 };
    assert!(Canon::parse_within(b"[12345678]", limits).is_ok());
    let too_large = Problem::TooLarge { limit: 10 };
    assert_eq!(Canon::parse_within(b"[123456789]", limits).unwrap_err().problem(), &too_large);
    // The canonical form of `1e-6` is twice as long.
    assert_eq!(Canon::parse_within(b"[1e-6,1e2]", limits).unwrap_err().problem(), &too_large);
    assert_eq!(to_canonical_within(&"123456789", limits).unwrap_err().problem(), &too_large);

    let mut value = json!(1);
    for _ in 0..65 {
        value = json!({ "a": value });
    }
    let error = to_canonical(&value).unwrap_err();
    assert_eq!(error.pointer(), "/a".repeat(64));
    assert_eq!(error.problem(), &Problem::TooDeep { limit: 64 });
}

#[test]
fn only_the_canonical_spelling_passes_the_check() {
    let check = |text: &str| {
        let checked = check_canonical(text.as_bytes(), Limits::DEFAULT);
        checked.map(drop).map_err(|e| e.problem().clone())
    };
    for (text, offset) in [
        (r#"{"a":1, "b":2}"#, 7),
        (r#"{"b":1,"a":2}"#, 2),
        ("[1.0]", 2),
        ("[-0]", 1),
        ("[1e2]", 2),
        ("1\n", 1),
        (r#""\u000A""#, 2),
        (r#""\u000F""#, 6),
        (r#""\/""#, 1),
        (r#""\u00e9""#, 1),
    ] {
        assert_eq!(check(text), Err(Problem::NotCanonical { offset }), "{text}");
    }
}

#[test]
fn white_space_anywhere_between_tokens_is_not_canonical() {
    let text = r#"{"a":[1,-2.5e-7,"x y",null,{}],"b":{"c":true,"d":[]},"é":"\n"}"#;
    assert_eq!(canonical(text), text);
    for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
        for space in ["\n", "\t", "\r"] {
            let changed = format!("{}{space}{}", &text[..at], &text[at..]);
            assert!(check_canonical(changed.as_bytes(), Limits::DEFAULT).is_err(), "{changed}");
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    zebra: u64,
    apple: i8,
    missing: Option<u8>,
    some: Option<String>,
    letter: char,
    pair: (bool, f64),
    unit: (),
    nothing: Nothing,
    wrapped: Wrapped,
    both: Both,
    shapes: Vec<Shape>,
    by_number: BTreeMap<i32, u8>,
    by_variant: BTreeMap<Side, u8>,
    wide: i128,
    document: Canon,
    #[serde(rename = "\n\"")]
    odd: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Nothing;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wrapped(String);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Both(u8, String);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    Newtype(Option<Box<Shape>>),
    Tuple(u8, String),
    Struct { z: u8, a: Canon },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Side {
    Right,
    Left,
}

fn everything() -> Everything {
    Everything {
        zebra: 9007199254740991,
        apple: -128,
        missing: None,
        some: Some("a\u{1}\"\\/\u{7f}€𝄞\n".to_owned()),
        letter: '"',
        pair: (true, 1e-7),
        unit: (),
        nothing: Nothing,
        wrapped: Wrapped("w".to_owned()),
        both: Both(1, "b".to_owned()),
        shapes: vec![
            Shape::Unit,
            Shape::Newtype(Some(Box::new(Shape::Newtype(None)))),
            Shape::Tuple(7, "t".to_owned()),
            Shape::Struct { z: 1, a: Canon::parse(br#"{"z":[1,{"y":2,"x":3}],"b":2}"#).unwrap() },
        ],
        by_number: BTreeMap::from([(-1, 1), (2, 2), (10, 3)]),
        by_variant: BTreeMap::from([(Side::Right, 1), (Side::Left, 2)]),
        wide: -9007199254740991,
        document: Canon::null(),
        odd: String::new(),
    }
}

#[test]
fn serialising_equals_parsing_what_serde_json_writes() {
    let value = everything();
    let canon = Canon::of(&value).unwrap();
    assert_eq!(canon, Canon::parse(&serde_json::to_vec(&value).unwrap()).unwrap());
    // The oracle takes no raw values, hence the detour over a tree.
    let tree = serde_json::to_value(&value).unwrap();
    assert_eq!(canon.as_str(), serde_json_canonicalizer::to_string(&tree).unwrap());
    assert!(canon.as_str().starts_with(r#"{"\n\"":"","apple":-128,"both":[1,"b"],"#), "{canon}");
    assert_eq!(canon.read::<Everything>().unwrap(), value);
}

#[test]
fn a_canon_is_embedded_as_a_document() {
    let canon = Canon::parse(br#"{ "b": [1.0], "a": "x" }"#).unwrap();
    assert_eq!(format!("{canon} {canon:?}"), r#"{"a":"x","b":[1]} {"a":"x","b":[1]}"#);
    assert_eq!(canon.len(), canon.as_bytes().len());
    assert_eq!(serde_json::to_string(&[&canon]).unwrap(), r#"[{"a":"x","b":[1]}]"#);
    assert_eq!(to_canonical(&[&canon]).unwrap(), br#"[{"a":"x","b":[1]}]"#);
    assert_eq!(serde_json::to_value(&canon).unwrap(), json!({"a": "x", "b": [1]}));
    assert_eq!(serde_json::from_value::<Canon>(json!({"b": [1], "a": "x"})).unwrap(), canon);
    let read: Vec<Canon> = serde_json::from_str(r#"[ {"b":[1],"a":"\u0078"} , null]"#).unwrap();
    assert_eq!(read, [canon.clone(), Canon::null()]);
    let read: Vec<Canon> = serde_json::from_reader(&br#"[{"b":[1],"a":"x"}]"#[..]).unwrap();
    assert_eq!(read, [canon]);
    let error = serde_json::from_str::<Vec<Canon>>(r#"[{"p":{"a":1,"a":2}}]"#).unwrap_err();
    assert!(error.to_string().starts_with("at `/p`: duplicate key `a`"), "{error}");
}

/// In canonical order `body` stands before `kind`, so serde buffers it before it knows its type.
#[test]
fn a_canon_can_stand_where_serde_buffers() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", content = "body", rename_all = "snake_case")]
    enum Adjacent {
        Started { args: Canon },
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Internal {
        Call { args: Canon },
    }
    let args =
        Canon::parse(br#"{"z":[null,true,-1,1.5,"x\n",{}],"a":[[],9007199254740991]}"#).unwrap();
    let adjacent = Adjacent::Started { args: args.clone() };
    let canon = Canon::of(&adjacent).unwrap();
    assert!(canon.as_str().starts_with(r#"{"body":"#));
    assert_eq!(canon.read::<Adjacent>().unwrap(), adjacent);
    let internal = Internal::Call { args };
    assert_eq!(Canon::of(&internal).unwrap().read::<Internal>().unwrap(), internal);

    for (body, message) in [
        (r#"{"p":[{"b":1,"a":2,"b":3}]}"#, "at `/p/0`: duplicate key `b`"),
        ("[0,9007199254740992]", "at `/1`: integer `9007199254740992` is beyond"),
        ("[0,1e20]", "at `/1`: integer `100000000000000000000` is beyond"),
    ] {
        let text = format!(r#"{{"body":{{"args":{body}}},"kind":"started"}}"#);
        let error = serde_json::from_str::<Adjacent>(&text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn raw_text_of_other_origin_is_read_strictly() {
    use serde_json::value::RawValue;
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let document = json!({ "unused": 0 });
    assert_eq!(
        to_canonical(&(raw(r#"{ "b":1.0,"a":2 }"#), document)).unwrap(),
        br#"[{"a":2,"b":1},{"unused":0}]"#
    );
    let error =
        to_canonical(&BTreeMap::from([("k", [raw(r#"{"p":[{"a":1,"a":1}]}"#)])])).unwrap_err();
    assert_eq!(error.to_string(), "at `/k/0/p/0`: duplicate key `a`");
    #[derive(Serialize)]
    #[serde(rename = "$serde_json::private::RawValue")]
    struct Forged {
        text: &'static str,
    }
    let error = to_canonical(&[Forged { text: "[1]x" }]).unwrap_err();
    assert_eq!(error.to_string(), "at `/0`: more data after the document at byte 3");
    #[derive(Serialize)]
    #[serde(rename = "$serde_json::private::Number")]
    struct ArbitraryPrecision {
        text: &'static str,
    }
    assert_eq!(to_canonical(&[ArbitraryPrecision { text: "1.50" }]).unwrap(), b"[1.5]");
}

#[test]
fn what_has_no_json_form_is_not_serialised() {
    #[track_caller]
    fn refused<T: Serialize>(value: T, message: &str) {
        assert_eq!(to_canonical(&value).unwrap_err().to_string(), message);
    }
    struct Bytes;
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(b"x")
        }
    }
    /// Two struct fields under one name, as `flatten` can make them.
    #[derive(Serialize)]
    struct Twice {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, u8>,
    }
    refused(("x", [Bytes]), "at `/1/0`: cannot be written as JSON: bytes, encode them as a string");
    refused(
        json!({"a": [0, u64::MAX]}),
        "at `/a/1`: integer `18446744073709551615` is beyond ±9007199254740991, write it as a string",
    );
    refused(
        u128::MAX,
        &format!("integer `{}` is beyond ±9007199254740991, write it as a string", u128::MAX),
    );
    refused(BTreeMap::from([("k", f32::NAN)]), "at `/k`: number `NaN` is not finite");
    refused(
        BTreeMap::from([("k", BTreeMap::from([(true, 1)]))]),
        "at `/k`: cannot be written as JSON: a key that is neither a string nor an integer",
    );
    #[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(untagged)]
    enum Key {
        Text(&'static str),
        Flag(bool),
    }
    refused(
        [BTreeMap::from([(Key::Text("a"), [1]), (Key::Flag(true), [2])])],
        "at `/0`: cannot be written as JSON: a key that is neither a string nor an integer",
    );
    refused(
        BTreeMap::from([((1, 2), 1)]),
        "cannot be written as JSON: a key that is neither a string nor an integer",
    );
    refused(
        [Twice { a: 1, rest: BTreeMap::from([("b", 2), ("a", 3)]) }],
        "at `/0`: duplicate key `a`",
    );
}

#[test]
fn a_key_is_what_is_written_as_one_text() {
    #[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
    struct Named<T>(T);
    #[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
    enum Key {
        Of(u8),
    }
    fn written<K: Serialize + Ord>(key: K) -> Result<String, String> {
        let written = to_canonical(&BTreeMap::from([(key, 1)]));
        written.map(|it| String::from_utf8(it).unwrap()).map_err(|error| error.to_string())
    }
    assert_eq!(written(Named("a")), Ok(r#"{"a":1}"#.to_owned()));
    assert_eq!(written(Named(Named(-7_i64))), Ok(r#"{"-7":1}"#.to_owned()));
    assert_eq!(written('"'), Ok(r#"{"\"":1}"#.to_owned()));
    let refused =
        Err("cannot be written as JSON: a key that is neither a string nor an integer".to_owned());
    assert_eq!(written(Some("a")), refused);
    assert_eq!(written(None::<&str>), refused);
    assert_eq!(written(Key::Of(1)), refused);
    assert_eq!(written(Named(())), refused);
}

#[test]
fn a_document_of_another_shape_names_the_place() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Outer {
        list: Vec<Inner>,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Inner {
        n: u8,
    }
    #[track_caller]
    fn refused(text: &str, message: &str) {
        let error = Canon::parse(text.as_bytes()).unwrap().read::<Outer>().unwrap_err();
        assert!(matches!(error.problem(), Problem::Shape(_)));
        assert_eq!(error.to_string(), message);
    }
    refused(
        r#"{"list":[{"n":1},{"n":300}]}"#,
        "at `/list/1/n`: invalid value: integer `300`, expected u8",
    );
    refused(r#"{"list":[{"n":"é"}]}"#, "at `/list/0/n`: invalid type: string \"é\", expected u8");
    refused(r#"{"list":[{"n":1},{}]}"#, "at `/list/1`: missing field `n`");
    refused(r#"{"list":[{"n":1,"x":[2]}]}"#, "at `/list/0/x`: unknown field `x`, expected `n`");
    refused(r#"{"list":{}}"#, "at `/list`: invalid type: map, expected a sequence");
    refused("{}", "missing field `list`");
    refused("[[]]", "invalid type: sequence, expected struct Outer");
}
