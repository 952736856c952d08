//! A serializer for what has to be text: the keys of maps, and JSON passed on as text.
//!
//! Refuses all but strings, characters, integers and the names of variants. Knows nothing of what
//! is done with the text.

use serde::ser::{self, Error as _, Impossible, Serialize};

use super::Problem;

/// Hands the text of one value to the function within.
pub(super) struct OnlyText<F>(pub(super) F);

macro_rules! as_text {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<(), Problem> {
            (self.0)(&value.to_string())
        })*
    };
}

macro_rules! not_text {
    ($($method:ident($($type:ty),*) -> $output:ty;)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<$output, Problem> {
            Err(not_a_key())
        })*
    };
}

fn not_a_key() -> Problem {
    Problem::custom("a key that is neither a string nor an integer")
}

impl<F: FnOnce(&str) -> Result<(), Problem>> ser::Serializer for OnlyText<F> {
    type Ok = ();
    type Error = Problem;
    type SerializeSeq = Impossible<(), Problem>;
    type SerializeTuple = Impossible<(), Problem>;
    type SerializeTupleStruct = Impossible<(), Problem>;
    type SerializeTupleVariant = Impossible<(), Problem>;
    type SerializeMap = Impossible<(), Problem>;
    type SerializeStruct = Impossible<(), Problem>;
    type SerializeStructVariant = Impossible<(), Problem>;

    as_text! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_i128: i128, serialize_u128: u128, serialize_char: char
    }

    fn serialize_str(self, value: &str) -> Result<(), Problem> {
        (self.0)(value)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Problem> {
        (self.0)(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Problem> {
        Err(not_a_key())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Problem> {
        Err(not_a_key())
    }

    not_text! {
        serialize_bool(bool) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}
