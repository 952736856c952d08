//! Arguments as policies see them: the types that a tool's JSON Schema gives them, and the typed value of
//! one call. Cedar holds neither fractions nor null, and types no value that may be this or that: what
//! has no type is not shown to policies, and a fraction or null that the schema does not map is told.

use cedar_policy::RestrictedExpression;
use gesta_core::json::Canon;
use gesta_core::sensitive::MARK;
use serde_json::{Map, Number, Value, json};

use crate::schema::named;

/// Maps a fraction to a whole number: the number times this.
const SCALE: &str = "x-gesta-scale";
/// Maps null: with the value `absent`, as if the argument were not given.
const NULL: &str = "x-gesta-null";
const MOST_SCALE: u64 = 1_000_000_000;
/// How deep records may be nested. A schema that refers to itself ends here.
const MAX_DEPTH: usize = 16;
/// How many places are told of one call.
const MAX_TOLD: usize = 5;

/// One argument, or one field of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Nothing if policies cannot see it.
    pub(crate) type_: Option<Type>,
    required: bool,
    null_is_absent: bool,
    /// Whether policies cannot see it because nobody is to.
    pub(crate) sensitive: bool,
}

/// What Cedar can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    Whole,
    /// A number that is shown times this.
    Scaled(u64),
    Truth,
    Set(Box<Type>),
    Record(Vec<Field>),
}

/// The arguments that a schema names.
pub(crate) fn fields(schema: &Value) -> Vec<Field> {
    Reading { root: schema }.record(schema, 0).unwrap_or_default()
}

struct Reading<'a> {
    root: &'a Value,
}

impl<'a> Reading<'a> {
    /// The fields of an object; nothing if it names none.
    fn record(&self, schema: &'a Value, depth: usize) -> Option<Vec<Field>> {
        let properties = schema.get("properties")?.as_object()?;
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
        };
        let mut fields: Vec<Field> = properties
            .iter()
            .map(|(name, schema)| {
                let (type_, nullable) = self.type_of(schema, depth + 1);
                // Policies are asked about commitments, which tell nothing.
                let sensitive = schema.get(MARK) == Some(&Value::Bool(true));
                let type_ = type_.filter(|_| !sensitive);
                Field {
                    sensitive,
                    name: name.clone(),
                    type_,
                    required: is_required(name) && !nullable,
                    null_is_absent: schema.get(NULL).and_then(Value::as_str) == Some("absent"),
                }
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Some(fields)
    }

    /// The type of a value, and whether it may be null.
    fn type_of(&self, schema: &'a Value, depth: usize) -> (Option<Type>, bool) {
        let Some((plain, nullable)) = self.plain(schema, depth) else { return (None, true) };
        if schema.get(MARK) == Some(&Value::Bool(true)) {
            return (None, true);
        }
        let scale = schema.get(SCALE).or_else(|| plain.get(SCALE)).and_then(Value::as_u64);
        let scale = scale.filter(|scale| (1..=MOST_SCALE).contains(scale));
        let (name, null_named) = type_name(plain);
        let type_ = match name {
            Some("string") => Some(Type::Text),
            Some("integer") => Some(Type::Whole),
            Some("boolean") => Some(Type::Truth),
            Some("number") => scale.map(Type::Scaled),
            Some("array") => plain.get("items").and_then(|items| {
                let (of, _) = self.type_of(items, depth + 1);
                of.map(|of| Type::Set(Box::new(of)))
            }),
            Some("object") => self.record(plain, depth).map(Type::Record),
            _ => None,
        };
        (type_, nullable || null_named)
    }

    /// The schema behind references and behind a choice between one thing and null.
    fn plain(&self, schema: &'a Value, depth: usize) -> Option<(&'a Value, bool)> {
        let (mut schema, mut nullable) = (schema, false);
        for _ in depth..MAX_DEPTH {
            let object = schema.as_object()?;
            let choice = ["anyOf", "oneOf", "allOf"].iter().find_map(|name| object.get(*name));
            schema = match (object.get("$ref").and_then(Value::as_str), choice) {
                (Some(reference), None) => self.root.pointer(reference.strip_prefix('#')?)?,
                (None, Some(choice)) => {
                    let is_null =
                        |one: &&Value| one.get("type").and_then(Value::as_str) == Some("null");
                    let all = choice.as_array()?;
                    nullable |= all.iter().any(|one| is_null(&one));
                    let mut others = all.iter().filter(|one| !is_null(one));
                    match (others.next(), others.next()) {
                        (Some(only), None) => only,
                        _ => return None,
                    }
                }
                (None, None) => return Some((schema, nullable)),
                (Some(_), Some(_)) => return None,
            };
        }
        None
    }
}

/// The one type that a schema gives beside null, and whether null is another.
fn type_name(schema: &Value) -> (Option<&str>, bool) {
    match schema.get("type") {
        Some(Value::String(name)) => (Some(name), false),
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            let mut others = names.iter().copied().filter(|name| *name != "null");
            let only = others.next().filter(|_| others.next().is_none());
            (only, names.contains(&"null"))
        }
        _ => (listed(schema), false),
    }
}

/// The type of all values that are listed, if they have one in common.
fn listed(schema: &Value) -> Option<&'static str> {
    let of = |value: &Value| match value {
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_i64() => Some("integer"),
        _ => None,
    };
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => of(only),
        (None, Some(values)) => {
            let first = of(values.first()?)?;
            values.iter().all(|value| of(value) == Some(first)).then_some(first)
        }
        (None, None) => None,
    }
}

/// The type of a record as Cedar's schema has it.
pub(crate) fn record_type(fields: &[Field]) -> Value {
    let attributes: Map<String, Value> = fields
        .iter()
        .filter_map(|field| {
            let mut type_ = cedar_type(field.type_.as_ref()?);
            type_.as_object_mut()?.insert("required".to_owned(), field.required.into());
            Some((field.name.clone(), type_))
        })
        .collect();
    json!({ "type": "Record", "attributes": attributes })
}

fn cedar_type(type_: &Type) -> Value {
    match type_ {
        Type::Text => named("String"),
        Type::Whole | Type::Scaled(_) => named("Long"),
        Type::Truth => named("Bool"),
        Type::Set(of) => json!({ "type": "Set", "element": cedar_type(of) }),
        Type::Record(fields) => record_type(fields),
    }
}

/// The arguments of one call.
pub(crate) struct Seen {
    /// What policies see.
    pub(crate) args: RestrictedExpression,
    /// Where there are fractions and nulls that nothing maps, as JSON pointers; the first few.
    pub(crate) unmapped: Vec<String>,
}

/// Arguments in their types. A value that does not have its type is an error: whoever reads it as
/// something else might allow what was never looked at.
pub(crate) fn read(fields: &[Field], args: &Canon) -> Result<Seen, String> {
    let value: Value = serde_json::from_str(args.as_str())
        .map_err(|error| format!("the arguments cannot be read: {error}"))?;
    let Value::Object(object) = &value else {
        return Err("the arguments are not an object".to_owned());
    };
    let mut reading = Values::default();
    let args = reading.record(fields, object)?;
    Ok(Seen { args, unmapped: reading.unmapped })
}

#[derive(Default)]
struct Values<'v> {
    /// The way to the value at hand.
    path: Vec<&'v str>,
    unmapped: Vec<String>,
}

impl<'v> Values<'v> {
    fn record(
        &mut self,
        fields: &[Field],
        object: &'v Map<String, Value>,
    ) -> Result<RestrictedExpression, String> {
        let mut seen = Vec::with_capacity(object.len());
        for (name, value) in object {
            let at = fields.binary_search_by(|field| field.name.as_str().cmp(name));
            let field = at.ok().and_then(|at| fields.get(at));
            if value.is_null() && field.is_some_and(|field| field.null_is_absent) {
                continue;
            }
            self.path.push(name);
            match field.and_then(|field| field.type_.as_ref()) {
                Some(type_) => {
                    seen.extend(self.value(type_, value)?.map(|value| (name.clone(), value)));
                }
                None => self.unseen(value),
            }
            self.path.pop();
        }
        RestrictedExpression::new_record(seen).map_err(|error| error.to_string())
    }

    /// A value; nothing if it is null.
    fn value(
        &mut self,
        type_: &Type,
        value: &'v Value,
    ) -> Result<Option<RestrictedExpression>, String> {
        let seen = match (type_, value) {
            (_, Value::Null) => {
                self.tell();
                return Ok(None);
            }
            (Type::Text, Value::String(text)) => RestrictedExpression::new_string(text.clone()),
            (Type::Truth, Value::Bool(truth)) => RestrictedExpression::new_bool(*truth),
            (Type::Whole, Value::Number(number)) => {
                let whole = number.as_i64().ok_or_else(|| self.unfit("is not a whole number"))?;
                RestrictedExpression::new_long(whole)
            }
            (Type::Scaled(scale), Value::Number(number)) => {
                let unfit = || self.unfit(&format!("times {scale} is not a whole number"));
                RestrictedExpression::new_long(scaled(number, *scale).ok_or_else(unfit)?)
            }
            (Type::Set(of), Value::Array(values)) => {
                let mut seen = Vec::with_capacity(values.len());
                for value in values {
                    seen.extend(self.value(of, value)?);
                }
                RestrictedExpression::new_set(seen)
            }
            (Type::Record(fields), Value::Object(object)) => self.record(fields, object)?,
            _ => return Err(self.unfit("is not of the type that the policy was checked with")),
        };
        Ok(Some(seen))
    }

    /// Looks for what cannot be held in a value that policies do not see.
    fn unseen(&mut self, value: &'v Value) {
        match value {
            Value::Null => self.tell(),
            Value::Number(number) if number.is_f64() => self.tell(),
            Value::Array(values) => values.iter().for_each(|value| self.unseen(value)),
            Value::Object(object) => {
                for (name, value) in object {
                    self.path.push(name);
                    self.unseen(value);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn tell(&mut self) {
        let pointer = self.pointer();
        if self.unmapped.len() < MAX_TOLD && self.unmapped.last() != Some(&pointer) {
            self.unmapped.push(pointer);
        }
    }

    fn unfit(&self, why: &str) -> String {
        format!("the argument `{}` {why}", self.pointer())
    }

    fn pointer(&self) -> String {
        let escaped = |part: &&str| format!("/{}", part.replace('~', "~0").replace('/', "~1"));
        self.path.iter().map(escaped).collect()
    }
}

/// A number times another, if that is whole. In digits: binary fractions would not tell 0.29 from what
/// is next to it.
fn scaled(number: &Number, scale: u64) -> Option<i64> {
    let text = number.to_string();
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text.as_str(), 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(i128::from(scale))?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    let product = match (product, exponent < 0) {
        (0, _) => 0,
        (_, false) => product.checked_mul(power?)?,
        (_, true) => {
            let power = power?;
            if product % power != 0 {
                return None;
            }
            product / power
        }
    };
    i64::try_from(product).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_in_digits() {
        for (text, scale, expected) in [
            ("0.29", 100, Some(29)),
            ("-12.34", 100, Some(-1234)),
            ("5", 100, Some(500)),
            ("0", 1, Some(0)),
            ("12.345", 100, None),
            ("1e-7", 10_000_000, Some(1)),
            ("1e-7", 1_000_000, None),
            ("1e21", 1, None),
            ("1.5e300", 100, None),
            ("1e-300", 100, None),
        ] {
            let number: Number = serde_json::from_str(text).unwrap();
            assert_eq!(scaled(&number, scale), expected, "{text} times {scale}");
        }
    }

    fn type_of(schema: &Value) -> Option<Type> {
        Reading { root: schema }.type_of(schema, 0).0
    }

    #[test]
    fn schemas_become_types_where_there_is_one() {
        for (schema, expected) in [
            (json!({ "type": "string" }), Some(Type::Text)),
            (json!({ "type": ["integer", "null"] }), Some(Type::Whole)),
            (json!({ "enum": ["a", "b"] }), Some(Type::Text)),
            (json!({ "const": 3 }), Some(Type::Whole)),
            (json!({ "enum": ["a", 1] }), None),
            (json!({ "type": "number" }), None),
            (json!({ "type": "number", "x-gesta-scale": 100 }), Some(Type::Scaled(100))),
            (json!({ "type": "number", "x-gesta-scale": 0 }), None),
            (json!({ "type": ["integer", "string"] }), None),
            (json!({ "anyOf": [{ "type": "boolean" }, { "type": "null" }] }), Some(Type::Truth)),
            (json!({ "anyOf": [{ "type": "boolean" }, { "type": "string" }] }), None),
            (json!({ "type": "object" }), None),
            (json!({ "type": "array" }), None),
            (
                json!({ "type": "array", "items": { "type": "string" } }),
                Some(Type::Set(Box::new(Type::Text))),
            ),
            (
                json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "string" } } }),
                Some(Type::Text),
            ),
            (json!({ "$ref": "https://example.org/a" }), None),
            (json!({ "$ref": "#" }), None),
        ] {
            assert_eq!(type_of(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({ "properties": { "next": { "$ref": "#" } } });
        assert_eq!(fields(&schema).len(), 1);
    }
}
