//! Drives the writer from any [`serde::Serialize`] value, in the data model of `serde_json`.
//!
//! Refuses bytes. Knows nothing of canonical form.

use serde::ser::{self, Error as _, Serialize};

use super::only_text::OnlyText;
use super::parser::parse_into;
use super::reader::is_canonical;
use super::writer::Writer;
use super::{Problem, RAW_VALUE};

/// How a `serde_json` number comes if a crate of the build asks for `arbitrary_precision`.
const RAW_NUMBER: &str = "$serde_json::private::Number";

/// Writes one value.
pub(super) struct Serializer<'w>(pub(super) &'w mut Writer);

/// An array or object in the making.
pub(super) struct Members<'w> {
    writer: &'w mut Writer,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// Stands in an object of its own, under the name of an enum's variant.
    Variant,
    /// The token by which `serde_json` passes on JSON text.
    Raw,
}

impl<'w> Serializer<'w> {
    fn array(self, form: Form) -> Result<Members<'w>, Problem> {
        self.0.begin_array()?;
        Ok(Members { writer: self.0, form })
    }

    fn object(self, form: Form) -> Result<Members<'w>, Problem> {
        self.0.begin_object()?;
        Ok(Members { writer: self.0, form })
    }

    fn variant(self, name: &str) -> Result<Self, Problem> {
        self.0.begin_object()?;
        self.0.key(name)?;
        Ok(self)
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<(), Problem> {
            self.0.int(i128::from(value))
        })*
    };
}

impl<'w> ser::Serializer for Serializer<'w> {
    type Ok = ();
    type Error = Problem;
    type SerializeSeq = Members<'w>;
    type SerializeTuple = Members<'w>;
    type SerializeTupleStruct = Members<'w>;
    type SerializeTupleVariant = Members<'w>;
    type SerializeMap = Members<'w>;
    type SerializeStruct = Members<'w>;
    type SerializeStructVariant = Members<'w>;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn serialize_u128(self, value: u128) -> Result<(), Problem> {
        match i128::try_from(value) {
            Ok(value) => self.0.int(value),
            Err(_) => Err(Problem::IntegerOutOfRange(value.to_string())),
        }
    }

    fn serialize_bool(self, value: bool) -> Result<(), Problem> {
        self.0.bool(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Problem> {
        self.0.float(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Problem> {
        self.0.float(value)
    }

    fn serialize_char(self, value: char) -> Result<(), Problem> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Problem> {
        self.0.string(value);
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Problem> {
        Err(Problem::custom("bytes, encode them as a string"))
    }

    fn serialize_none(self) -> Result<(), Problem> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Problem> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Problem> {
        self.0.null();
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Problem> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Problem> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        let Self(writer) = self.variant(variant)?;
        value.serialize(Serializer(writer))?;
        writer.end_object()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Members<'w>, Problem> {
        self.array(Form::Plain)
    }

    fn serialize_tuple(self, _: usize) -> Result<Members<'w>, Problem> {
        self.array(Form::Plain)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Members<'w>, Problem> {
        self.array(Form::Plain)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'w>, Problem> {
        self.variant(variant)?.array(Form::Variant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'w>, Problem> {
        self.object(Form::Plain)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Members<'w>, Problem> {
        if name == RAW_VALUE || name == RAW_NUMBER {
            return Ok(Members { writer: self.0, form: Form::Raw });
        }
        self.object(Form::Plain)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'w>, Problem> {
        self.variant(variant)?.object(Form::Variant)
    }
}

impl Members<'_> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Problem> {
        self.writer.element();
        value.serialize(Serializer(self.writer))
    }

    fn field<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Problem> {
        if self.form == Form::Raw {
            return value.serialize(OnlyText(|text: &str| {
                if is_canonical(text, self.writer.depth_left()) {
                    self.writer.canonical(text);
                    return Ok(());
                }
                parse_into(text, self.writer)
            }));
        }
        self.writer.key(key)?;
        value.serialize(Serializer(self.writer))
    }

    fn end_array(self) -> Result<(), Problem> {
        self.writer.end_array();
        self.end_variant()
    }

    fn end_object(self) -> Result<(), Problem> {
        if self.form != Form::Raw {
            self.writer.end_object()?;
        }
        self.end_variant()
    }

    fn end_variant(self) -> Result<(), Problem> {
        if self.form == Form::Variant { self.writer.end_object() } else { Ok(()) }
    }
}

macro_rules! arrays {
    ($($trait:ident: $method:ident),*) => {
        $(impl ser::$trait for Members<'_> {
            type Ok = ();
            type Error = Problem;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Problem> {
                self.element(value)
            }

            fn end(self) -> Result<(), Problem> {
                self.end_array()
            }
        })*
    };
}

arrays! {
    SerializeSeq: serialize_element, SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field
}

macro_rules! objects {
    ($($trait:ident),*) => {
        $(impl ser::$trait for Members<'_> {
            type Ok = ();
            type Error = Problem;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Problem> {
                self.field(key, value)
            }

            fn end(self) -> Result<(), Problem> {
                self.end_object()
            }
        })*
    };
}

objects! { SerializeStruct, SerializeStructVariant }

impl ser::SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Problem;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Problem> {
        self.writer.leave();
        key.serialize(OnlyText(|text: &str| self.writer.key(text)))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Problem> {
        value.serialize(Serializer(self.writer))
    }

    fn end(self) -> Result<(), Problem> {
        self.end_object()
    }
}
