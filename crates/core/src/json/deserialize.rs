//! How a [`Canon`] is read as a part of some other type: strictly, wherever it stands.
//!
//! `serde_json` hands over the text itself. Where serde had to buffer it first (a field that comes
//! before its enum's tag, an untagged enum, `flatten`), the text is gone and the buffered values
//! drive the writer instead. By then an integer of 10^21 or more looks like any float, so bytes
//! from outside go through [`Canon::parse`] or [`super::check_canonical`] first.
//! Knows nothing of canonical form.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::writer::Writer;
use super::{Canon, JsonError, Limits, Problem, RAW_VALUE};

impl<'de> serde::Deserialize<'de> for Canon {
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
        match map.next_key::<String>()? {
            Some(key) if key == RAW_VALUE => map.next_value_seed(Text),
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
