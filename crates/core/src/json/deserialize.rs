//! How a [`Canon`] is read as a part of some other type: strictly, wherever it stands.
//!
//! [`Reader`](super::reader) hands over text that it has checked, and the address of its mark as
//! proof; what comes with it is taken as it is. `serde_json` hands over text that is read strictly
//! here. Where serde had to buffer it first (a field that comes
//! before its enum's tag, an untagged enum, `flatten`), the text is gone and the buffered values
//! drive the writer instead. By then an integer of 10^21 or more looks like any float, so bytes
//! from outside go through [`Canon::parse`] or [`super::check_canonical`] first.
//! Knows nothing of canonical form.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::reader::CHECKED;
use super::writer::Writer;
use super::{Canon, JsonError, Limits, Problem, RAW_VALUE, VALUE_AND_TEXT};

impl<'de> Deserialize<'de> for Canon {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(RAW_VALUE, Whole)
    }
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Canon;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Canon, A::Error> {
        match map.next_key_seed(Mark)? {
            Some(Found::Checked) => map.next_value_seed(CheckedText),
            Some(Found::Raw) => map.next_value_seed(Text),
            _ => Err(A::Error::custom("expected the text of a JSON value")),
        }
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, values: D) -> Result<Canon, D::Error> {
        let mut writer = Writer::new(128, Limits::DEFAULT);
        values.deserialize_any(Buffered(&mut writer))?;
        let written = writer.finish().map_err(JsonError::whole);
        written.and_then(Canon::from_written).map_err(D::Error::custom)
    }
}

/// A value, with its text if the reader had both in hand; else its text alone, to be read later.
pub(crate) enum WithText<T> {
    /// The value and the text that it was read from.
    Both(T, Canon),
    /// The text.
    Text(Canon),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WithText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(VALUE_AND_TEXT, Both(PhantomData))
    }
}

struct Both<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Both<T> {
    type Value = WithText<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WithText<T>, A::Error> {
        let Some(Found::Checked) = map.next_key_seed(Mark)? else {
            return Err(A::Error::custom("expected a value and its text"));
        };
        let value = map.next_value()?;
        let Some(Found::Checked) = map.next_key_seed(Mark)? else {
            return Err(A::Error::custom("expected a value and its text"));
        };
        Ok(WithText::Both(value, map.next_value_seed(CheckedText)?))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<WithText<T>, D::Error> {
        Canon::deserialize(value).map(WithText::Text)
    }
}

/// Reads what stands before a text: who answers for it.
struct Mark;

enum Found {
    /// The reader, which has checked it.
    Checked,
    /// `serde_json`, which has found its end.
    Raw,
    Other,
}

impl<'de> DeserializeSeed<'de> for Mark {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Mark {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what stands before a text")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Found, E> {
        Ok(if key == RAW_VALUE { Found::Raw } else { Found::Other })
    }

    fn visit_borrowed_bytes<E: Error>(self, mark: &'de [u8]) -> Result<Found, E> {
        Ok(if std::ptr::eq(mark, CHECKED.as_slice()) { Found::Checked } else { Found::Other })
    }
}

/// Takes the text of a value that was checked.
struct CheckedText;

impl<'de> DeserializeSeed<'de> for CheckedText {
    type Value = Canon;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Canon, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for CheckedText {
    type Value = Canon;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a JSON value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Canon, E> {
        // Wherever it stands, a value is no larger than a document.
        if text.len() > Limits::DEFAULT.max_bytes {
            return Err(E::custom("too large"));
        }
        Ok(Canon(text.into()))
    }
}

/// Takes the text of a value.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Canon;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Canon, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Text {
    type Value = Canon;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a JSON value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Canon, E> {
        Canon::parse(text.as_bytes()).map_err(E::custom)
    }
}

/// Writes a value that serde had buffered.
struct Buffered<'w>(&'w mut Writer);

impl Buffered<'_> {
    fn checked<E: Error>(self, result: Result<(), Problem>) -> Result<(), E> {
        result.map_err(|problem| E::custom(JsonError::new(self.0.pointer(), problem)))
    }
}

impl<'de> DeserializeSeed<'de> for Buffered<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Buffered<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.null();
        Ok(())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.bool(value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        let result = self.0.int(i128::from(value));
        self.checked(result)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        let result = self.0.int(i128::from(value));
        self.checked(result)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let result = self.0.float(value);
        self.checked(result)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.string(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self(writer) = self;
        let begun = writer.begin_array();
        Buffered(writer).checked(begun)?;
        while elements.next_element_seed(Element(writer))?.is_some() {}
        writer.end_array();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self(writer) = self;
        let begun = writer.begin_object();
        Buffered(writer).checked(begun)?;
        while let Some(key) = members.next_key::<String>()? {
            let accepted = writer.key(&key);
            Buffered(writer).checked(accepted)?;
            members.next_value_seed(Buffered(writer))?;
        }
        let ended = writer.end_object();
        Buffered(writer).checked(ended)
    }
}

/// Writes a buffered value as the next element of an array.
struct Element<'w>(&'w mut Writer);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.element();
        deserializer.deserialize_any(Buffered(self.0))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{
        BorrowedBytesDeserializer, BytesDeserializer, Error, MapAccessDeserializer, MapDeserializer,
    };
    use serde_json::json;

    use super::*;

    /// Says what it likes before a text.
    struct Foreign<'de> {
        mark: &'de [u8],
        text: &'de str,
    }

    impl<'de> MapAccess<'de> for Foreign<'de> {
        type Error = Error;

        fn next_key_seed<S: DeserializeSeed<'de>>(
            &mut self,
            seed: S,
        ) -> Result<Option<S::Value>, Error> {
            seed.deserialize(BorrowedBytesDeserializer::new(self.mark)).map(Some)
        }

        fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
            seed.deserialize(serde::de::value::BorrowedStrDeserializer::new(self.text))
        }
    }

    #[test]
    fn the_mark_of_checked_text_cannot_be_spelled() {
        let spelled = CHECKED.to_vec();
        for text in ["not json", r#"{"b":1,"a":1}"#, "{}"] {
            let foreign = Foreign { mark: &spelled, text };
            assert!(Canon::deserialize(MapAccessDeserializer::new(foreign)).is_err());
            let foreign = Foreign { mark: &spelled, text };
            let both = WithText::<String>::deserialize(MapAccessDeserializer::new(foreign));
            assert!(both.is_err());
            let bytes = BytesDeserializer::<Error>::new(&spelled);
            let members = [(bytes, text)];
            assert!(Canon::deserialize(MapDeserializer::new(members.into_iter())).is_err());
        }
    }

    #[test]
    fn a_document_that_spells_the_names_is_a_document_like_any_other() {
        let mark = String::from_utf8(CHECKED.to_vec()).unwrap();
        for name in [&*mark, RAW_VALUE, VALUE_AND_TEXT] {
            let text = format!(r#"{{ "x": {{ "{name}": "[1, 2]" }} }}"#);
            let canon = Canon::parse(text.as_bytes()).unwrap();
            let read: std::collections::BTreeMap<String, Canon> = canon.read().unwrap();
            assert_eq!(read["x"].as_str(), format!(r#"{{"{name}":"[1, 2]"}}"#));
            let value = json!({ name: "{\"b\":1,\"b\":1}" });
            assert!(
                serde_json::from_value::<Canon>(value).map_or(true, |canon| {
                    Canon::parse(canon.as_bytes()).as_ref() == Ok(&canon)
                })
            );
        }
    }

    #[test]
    fn text_is_read_strictly_through_every_other_door() {
        for bad in [r#"{"a":1,"a":2}"#, "01", r#""\ud800""#, "9007199254740993"] {
            assert!(serde_json::from_str::<Canon>(bad).is_err(), "{bad}");
            assert!(serde_json::from_str::<Vec<Canon>>(&format!("[{bad}]")).is_err(), "{bad}");
        }
        for loose in [r#"{ "b": 1.0, "a": "\u0041" }"#, "[1, 2]"] {
            let canon: Canon = serde_json::from_str(loose).unwrap();
            assert_eq!(Canon::parse(loose.as_bytes()).unwrap(), canon);
            let within: Vec<Canon> = serde_json::from_str(&format!("[{loose}]")).unwrap();
            assert_eq!(within, [canon]);
        }
    }
}
