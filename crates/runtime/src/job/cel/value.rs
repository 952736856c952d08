//! The values of expressions: JSON's, and handles on what is only looked up when it is asked for.
//!
//! Values are shared, never copied, so that an expression cannot fill the memory by repeating one.
//! Maps are ordered: whoever walks one always walks it in the same order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_core::ids::{ResourceType, StepId};
use gesta_core::json::{Canon, JsonError, Limits};
use gesta_core::sensitive::{COMMIT, Commitment};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};

/// A JSON object.
pub(in crate::job) type Map = BTreeMap<Arc<str>, Val>;

/// How many bytes a commitment takes in JSON.
const COMMITTED_BYTES: usize = 78;

/// The error for an object that would pass for a commitment.
pub(in crate::job) fn reserved() -> String {
    format!("`{COMMIT}` is not a key that an object may have: it stands for sensitive values")
}

/// What an expression or a part of it evaluates to.
#[derive(Clone, Debug)]
pub(in crate::job) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Arc<str>),
    List(Arc<Vec<Val>>),
    Map(Arc<Map>),
    /// A sensitive value, of which only its commitment is known: it is handed on as it is.
    Committed(Commitment),
    /// All steps.
    Steps,
    /// One step, with `result` and `skipped`.
    Step(StepId),
    /// All resources.
    World,
    /// All resources of one type.
    Resources(ResourceType),
}

impl Val {
    pub(in crate::job) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(in crate::job) fn list(values: Vec<Val>) -> Self {
        Self::List(Arc::new(values))
    }

    /// Reads canonical JSON.
    pub(in crate::job) fn read(canon: &Canon) -> Result<Self, JsonError> {
        canon.read()
    }

    /// An object that was read, or the sensitive value that it stands for.
    fn of_map(map: Map) -> Self {
        let hmac = match map.get(COMMIT) {
            Some(Self::Text(hmac)) if map.len() == 1 => Some(serde_json::Value::from(&**hmac)),
            _ => None,
        };
        let hmac = hmac.and_then(|hmac| Digest::deserialize(hmac).ok());
        hmac.map_or_else(|| Self::Map(Arc::new(map)), |hmac| Self::Committed(Commitment { hmac }))
    }

    /// Whether it is a sensitive value, or holds one.
    pub(in crate::job) fn holds_sensitive(&self) -> bool {
        match self {
            Self::Committed(_) => true,
            Self::List(values) => values.iter().any(Self::holds_sensitive),
            Self::Map(map) => map.values().any(Self::holds_sensitive),
            _ => false,
        }
    }

    /// What an error calls it.
    pub(in crate::job) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Double(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
            Self::Committed(_) => "a sensitive value",
            Self::Steps => "`steps`",
            Self::Step(_) => "a step",
            Self::World => "`world`",
            Self::Resources(_) => "the resources of a type",
        }
    }

    /// The number as a double, if it is one.
    pub(in crate::job) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// The canonical form, within the limits of a document. Measured first: shared values can stand
    /// for more text than there is memory.
    pub(in crate::job) fn canon(&self) -> Result<Canon, String> {
        let mut left = Limits::DEFAULT.max_bytes;
        self.measure(&mut left)?;
        Canon::of(self).map_err(|error| error.to_string())
    }

    /// Takes the length of the shortest JSON text of the value off what is left.
    fn measure(&self, left: &mut usize) -> Result<(), String> {
        let bytes = match self {
            Self::Text(text) => text.len() + 2,
            Self::Map(map) if map.contains_key(COMMIT) => return Err(reserved()),
            Self::Map(map) => 2 + map.keys().map(|key| key.len() + 3).sum::<usize>(),
            Self::Committed(_) => COMMITTED_BYTES,
            Self::List(_) => 2,
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Double(_) => 1,
            Self::Steps | Self::Step(_) | Self::World | Self::Resources(_) => {
                return Err(format!("{} is not a value", self.type_name()));
            }
        };
        *left = left.checked_sub(bytes).ok_or_else(|| {
            format!("the result is larger than {} bytes", Limits::DEFAULT.max_bytes)
        })?;
        match self {
            Self::List(values) => values.iter().try_for_each(|value| value.measure(left)),
            Self::Map(map) => map.values().try_for_each(|value| value.measure(left)),
            _ => Ok(()),
        }
    }
}

impl Serialize for Val {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values.iter()),
            Self::Map(map) => serializer.collect_map(map.iter()),
            Self::Committed(commitment) => commitment.serialize(serializer),
            Self::Steps | Self::Step(_) | Self::World | Self::Resources(_) => {
                Err(S::Error::custom(format!("{} is not a value", self.type_name())))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Val {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Json)
    }
}

struct Json;

impl<'de> Visitor<'de> for Json {
    type Value = Val;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Val, E> {
        Ok(Val::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Val, E> {
        Ok(Val::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Val, E> {
        Ok(Val::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Val, E> {
        Ok(i64::try_from(value).map_or(Val::Double(value as f64), Val::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Val, E> {
        Ok(Val::Double(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Val, E> {
        Ok(Val::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Val, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Val::list(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Val, A::Error> {
        let mut map = Map::new();
        while let Some((key, value)) = access.next_entry::<String, Val>()? {
            map.insert(key.into(), value);
        }
        Ok(Val::of_map(map))
    }
}

impl From<&serde_json::Value> for Val {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => number
                .as_i64()
                .map(Self::Int)
                .or_else(|| number.as_f64().map(Self::Double))
                .unwrap_or(Self::Null),
            serde_json::Value::String(text) => Self::text(text.as_str()),
            serde_json::Value::Array(values) => Self::list(values.iter().map(Self::from).collect()),
            serde_json::Value::Object(map) => Self::of_map(
                map.iter().map(|(key, value)| (key.as_str().into(), Self::from(value))).collect(),
            ),
        }
    }
}
