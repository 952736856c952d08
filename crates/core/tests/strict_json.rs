//! A type is read in the one spelling that it is written in, whatever serde would take besides.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use gesta_core::json::{Canon, read_strict};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, Visitor};
use serde::{Deserialize as Read, Serialize as Write};
use serde_json::value::RawValue;

#[derive(Debug, PartialEq, Read, Write)]
struct Pair {
    a: u8,
    b: Option<Box<Pair>>,
}

#[derive(Debug, PartialEq, Read, Write)]
struct Newtype(Pair);

#[derive(Debug, PartialEq, Read, Write)]
struct Places(u8, Pair);

#[derive(Debug, PartialEq, Read, Write)]
struct Nothing;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Read, Write)]
enum Word {
    One,
    Two,
}

#[derive(Debug, PartialEq, Read, Write)]
enum Variant {
    Unit,
    Holds(Pair),
    Maybe(Option<Word>),
    Null(()),
    Places(u8, Word),
    Fields { a: u8, word: Word },
    Text(Canon),
}

#[track_caller]
fn accepts<T: DeserializeOwned + serde::Serialize>(text: &str) {
    let canon = Canon::parse(text.as_bytes()).unwrap();
    let value: T = canon.read().unwrap();
    assert_eq!(Canon::of(&value).unwrap(), canon);
}

#[track_caller]
fn refuses<T: DeserializeOwned + Debug>(text: &str, message: &str) {
    let canon = Canon::parse(text.as_bytes()).unwrap();
    assert_eq!(canon.read::<T>().unwrap_err().to_string(), message);
}

/// What plain `serde_json` takes too, so that refusing it is this reader's doing.
#[track_caller]
fn alone_refuses<T: DeserializeOwned + Debug>(text: &str, message: &str) {
    serde_json::from_str::<T>(text).unwrap();
    refuses::<T>(text, message);
}

#[test]
fn a_struct_is_an_object() {
    accepts::<Pair>(r#"{"a":1,"b":{"a":2,"b":null}}"#);
    alone_refuses::<Pair>("[1,null]", "invalid type: sequence, expected struct Pair");
    alone_refuses::<Pair>(
        r#"{"a":1,"b":{"a":2,"b":[3,null]}}"#,
        "at `/b/b`: invalid type: sequence, expected struct Pair",
    );
    accepts::<Newtype>(r#"{"a":1,"b":null}"#);
    alone_refuses::<Newtype>("[1,null]", "invalid type: sequence, expected struct Pair");
    alone_refuses::<Vec<Pair>>(
        r#"[{"a":1,"b":null},[1,null]]"#,
        "at `/1`: invalid type: sequence, expected struct Pair",
    );
    alone_refuses::<BTreeMap<String, Pair>>(
        r#"{"x":[1,null]}"#,
        "at `/x`: invalid type: sequence, expected struct Pair",
    );
    accepts::<Places>(r#"[1,{"a":1,"b":null}]"#);
    alone_refuses::<Places>(
        "[1,[1,null]]",
        "at `/1`: invalid type: sequence, expected struct Pair",
    );
    refuses::<Places>("[1]", "invalid length 1, expected tuple struct Places with 2 elements");
    accepts::<Nothing>("null");
    refuses::<Nothing>("[]", "invalid type: sequence, expected unit struct Nothing");
}

#[test]
fn a_variant_is_its_name_or_an_object_that_holds_it() {
    accepts::<Vec<Variant>>(
        r#"["Unit",{"Holds":{"a":1,"b":null}},{"Maybe":null},{"Maybe":"One"},{"Null":null},
            {"Places":[1,"Two"]},{"Fields":{"a":1,"word":"One"}},{"Text":{"Unit":null}}]"#,
    );
    let string = "a variant that holds nothing is written as a string";
    alone_refuses::<Variant>(r#"{"Unit":null}"#, &format!("at `/Unit`: {string}"));
    alone_refuses::<Variant>(r#"{"Maybe":{"One":null}}"#, &format!("at `/Maybe/One`: {string}"));
    alone_refuses::<Variant>(
        r#"{"Places":[1,{"Two":null}]}"#,
        &format!("at `/Places/1/Two`: {string}"),
    );
    alone_refuses::<Variant>(
        r#"{"Holds":[1,null]}"#,
        "at `/Holds`: invalid type: sequence, expected struct Pair",
    );
    alone_refuses::<Variant>(
        r#"{"Fields":[1,"One"]}"#,
        "at `/Fields`: invalid type: sequence, expected struct variant Variant::Fields",
    );
    refuses::<Variant>(
        r#"{"Places":{"0":1,"1":"Two"}}"#,
        "at `/Places`: invalid type: map, expected tuple variant Variant::Places",
    );
    for name in ["Holds", "Maybe", "Null", "Places", "Fields", "Text"] {
        let canon = Canon::of(name).unwrap();
        assert!(canon.read::<Variant>().is_err(), "{name} without what it holds");
    }
    refuses::<Variant>(
        r#"{"Maybe":null,"Null":null}"#,
        "at `/Null`: a variant stands alone in its object",
    );
    refuses::<Variant>("{}", "expected the name of a variant");
    refuses::<Word>("0", "invalid type: integer `0`, expected enum Word");
    refuses::<Word>("null", "invalid type: null, expected enum Word");
    refuses::<Word>(r#""Three""#, "unknown variant `Three`, expected `One` or `Two`");
    refuses::<Word>(
        r#"{"Three":1}"#,
        "at `/Three`: unknown variant `Three`, expected `One` or `Two`",
    );
    accepts::<BTreeMap<Word, u8>>(r#"{"One":1,"Two":2}"#);
    // An escape, so that the name cannot be borrowed from the text.
    #[derive(Debug, PartialEq, Read, Write)]
    enum Escaped {
        #[serde(rename = "\"\n")]
        Word,
    }
    accepts::<Escaped>(r#""\"\n""#);
    alone_refuses::<Escaped>(r#"{"\"\n":null}"#, &format!("at `/\"\n`: {string}"));
}

#[test]
fn json_of_any_shape_passes_and_is_borrowed() {
    #[derive(Read)]
    struct Envelope<'a> {
        #[serde(borrow)]
        body: &'a RawValue,
        #[serde(borrow)]
        name: &'a str,
        owned: Box<RawValue>,
        value: Canon,
    }
    let text = r#"{"body":[1,{"a":null}],"name":"n","owned":[2],"value":{"Unit":null}}"#;
    let Envelope { body, name, owned, value } = read_strict(text).unwrap();
    assert_eq!((body.get(), name, owned.get()), (r#"[1,{"a":null}]"#, "n", "[2]"));
    assert_eq!(value.as_str(), r#"{"Unit":null}"#);
    assert!(text.as_bytes().as_ptr_range().contains(&body.get().as_ptr()));
    accepts::<serde_json::Value>(r#"{"a":[1,-1,0.5,"x",null,true,{}]}"#);
}

#[test]
fn bytes_have_no_spelling() {
    #[derive(Debug)]
    struct Bytes;
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Any;
            impl Visitor<'_> for Any {
                type Value = Bytes;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes)
                }
            }
            deserializer.deserialize_bytes(Any)
        }
    }
    alone_refuses::<Bytes>(r#""x""#, "bytes are written as a string");
}

#[test]
fn the_whole_text_is_read() {
    assert_eq!(read_strict::<u8>("1").unwrap(), 1);
    let error = read_strict::<u8>("1 2").unwrap_err();
    assert_eq!(error.problem().to_string(), "trailing characters");
}
