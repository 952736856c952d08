//! The reader as a serde deserializer: a type in the one spelling that it is written in.

use serde::de::value::{BorrowedBytesDeserializer, BorrowedStrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::super::{RAW_VALUE, VALUE_AND_TEXT};
use super::{CHECKED, Number, Quoted, Reader, Refused};

impl<'de> Reader<'de> {
    fn visit_quoted<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Refused> {
        let quoted = self.quoted()?;
        quoted.visit(visitor)
    }

    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Refused> {
        match self.number()? {
            Number::Natural(value) => visitor.visit_u64(value),
            Number::Negative(value) => visitor.visit_i64(value),
            Number::Fraction(value) => visitor.visit_f64(value),
        }
    }

    fn visit_object<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Refused> {
        self.open(b'{')?;
        let value = visitor.visit_map(Members { reader: self, previous: None })?;
        self.close(b'}')?;
        Ok(value)
    }

    fn visit_array<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Refused> {
        self.open(b'[')?;
        let value = visitor.visit_seq(Elements { reader: self, first: true })?;
        self.close(b']')?;
        Ok(value)
    }
}

impl<'de> Quoted<'de> {
    fn visit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.escaped {
            visitor.visit_string(self.unescaped()?)
        } else {
            visitor.visit_borrowed_str(self.text)
        }
    }

    /// The text, if it stands for itself.
    fn plain(self) -> Result<&'de str, Refused> {
        if self.escaped { Err(Refused) } else { Ok(self.text) }
    }
}

macro_rules! visit {
    ($visit:ident: $($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.$visit(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Refused;

    visit! { visit_number:
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }
    visit! { visit_quoted:
        deserialize_char deserialize_str deserialize_string deserialize_identifier
    }
    visit! { visit_array: deserialize_seq }
    visit! { visit_object: deserialize_map }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.peek() {
            Some(b'"') => self.visit_quoted(visitor),
            Some(b'{') => self.visit_object(visitor),
            Some(b'[') => self.visit_array(visitor),
            Some(b't' | b'f') => self.deserialize_bool(visitor),
            Some(b'n') => self.deserialize_unit(visitor),
            _ => self.visit_number(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.word(b"true").is_ok() {
            return visitor.visit_bool(true);
        }
        self.word(b"false")?;
        visitor.visit_bool(false)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.word(b"null")?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.word(b"null").is_ok() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.pass()?;
        visitor.visit_unit()
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if name == RAW_VALUE {
            let start = self.offset();
            self.pass()?;
            return visitor.visit_map(HandOver { reader: self, start, value: false });
        }
        if name == VALUE_AND_TEXT {
            let start = self.offset();
            return visitor.visit_map(HandOver { reader: self, start, value: true });
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Refused> {
        self.visit_array(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.visit_array(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.visit_object(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if self.peek() == Some(b'"') {
            let name = self.quoted()?.plain()?;
            return visitor.visit_enum(BorrowedStrDeserializer::new(name));
        }
        self.open(b'{')?;
        let value = visitor.visit_enum(Variant { reader: self })?;
        self.close(b'}')?;
        Ok(value)
    }
}

/// The members of an object, in their order.
struct Members<'r, 'de> {
    reader: &'r mut Reader<'de>,
    previous: Option<Quoted<'de>>,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Refused;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Refused> {
        if !self.reader.more(b'}', self.previous.is_none())? {
            return Ok(None);
        }
        let key = self.reader.key(self.previous)?;
        self.previous = Some(key);
        seed.deserialize(Key(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refused> {
        seed.deserialize(&mut *self.reader)
    }
}

/// A key of an object, which is a string whatever was hoped for.
struct Key<'de>(Quoted<'de>);

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.0.visit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_enum(BorrowedStrDeserializer::new(self.0.plain()?))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The elements of an array.
struct Elements<'r, 'de> {
    reader: &'r mut Reader<'de>,
    first: bool,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Refused;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Refused> {
        if !self.reader.more(b']', self.first)? {
            return Ok(None);
        }
        self.first = false;
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

/// A variant in an object of its own.
struct Variant<'r, 'de> {
    reader: &'r mut Reader<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Refused> {
        let name = self.reader.key(None)?.plain()?;
        let name = seed.deserialize(BorrowedStrDeserializer::<Refused>::new(name))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Err(Refused)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Refused> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Refused> {
        self.reader.visit_array(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.reader.visit_object(visitor)
    }
}

/// Hands over the text of a value that was checked, each time behind [`CHECKED`]; before it the
/// value itself, if that was asked for too.
struct HandOver<'r, 'de> {
    reader: &'r mut Reader<'de>,
    start: usize,
    /// Whether the value itself comes next.
    value: bool,
}

impl<'de> MapAccess<'de> for HandOver<'_, 'de> {
    type Error = Refused;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Refused> {
        seed.deserialize(BorrowedBytesDeserializer::<Refused>::new(&CHECKED)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refused> {
        if self.value {
            self.value = false;
            return seed.deserialize(&mut *self.reader);
        }
        let text = self.reader.since(self.start)?;
        seed.deserialize(BorrowedStrDeserializer::<Refused>::new(text))
    }
}
