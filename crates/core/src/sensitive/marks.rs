//! Which values of a schema are sensitive: properties, elements, or a whole result, marked with
//! `"x-gesta-sensitive": true`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Commitment, below};
use crate::digest::Digest;
use crate::json::{Canon, JsonError};

/// The keyword that marks a schema's values as sensitive.
pub const MARK: &str = "x-gesta-sensitive";

/// The sensitive places of values that have a schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The value itself is.
    whole: bool,
    fields: BTreeMap<String, Marks>,
    items: Option<Box<Marks>>,
}

/// A mark that would not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMark {
    /// It is somewhere else than on a property or on the elements of a list.
    #[error(
        "`{MARK}` marks properties and the elements of lists that are written out, not what is behind \
         references, choices or conditions; write the property out where it is marked"
    )]
    Place,
    /// It is neither true nor false.
    #[error("`{MARK}` is true or false")]
    Value,
    /// All arguments at once.
    #[error("`{MARK}` marks single arguments; mark every property that is sensitive")]
    AllArguments,
}

/// What a part of a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing in it is sensitive.
    Clear,
    /// Something in it is.
    Holds,
    /// It is sensitive, or inside of what is.
    Sensitive,
}

impl Marks {
    /// The marks of a schema. One that stands where nobody would look for it is refused: whoever wrote
    /// it relies on it.
    pub fn of(schema: &Value) -> Result<Self, BadMark> {
        let marks = Self::followed(schema)?;
        match marks.count() == all(schema)? {
            true => Ok(marks),
            false => Err(BadMark::Place),
        }
    }

    /// The marks of a schema of arguments, which are an object.
    pub fn of_arguments(schema: &Value) -> Result<Self, BadMark> {
        let marks = Self::of(schema)?;
        if marks.whole { Err(BadMark::AllArguments) } else { Ok(marks) }
    }

    /// The marks of an object, name by name.
    pub fn of_fields<'a>(sensitive: impl IntoIterator<Item = &'a str>) -> Self {
        let whole = |name: &str| (name.to_owned(), Self { whole: true, ..Self::default() });
        Self { fields: sensitive.into_iter().map(whole).collect(), ..Self::default() }
    }

    fn followed(schema: &Value) -> Result<Self, BadMark> {
        let mut marks = Self { whole: marked(schema)?, ..Self::default() };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            let below = Self::followed(schema)?;
            if !below.is_empty() {
                marks.fields.insert(name.clone(), below);
            }
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            marks.items =
                Some(Self::followed(items)?).filter(|marks| !marks.is_empty()).map(Box::new);
        }
        Ok(marks)
    }

    fn count(&self) -> usize {
        let below = self.fields.values().chain(self.items.as_deref()).map(Self::count);
        usize::from(self.whole) + below.sum::<usize>()
    }

    /// Whether nothing is marked.
    pub fn is_empty(&self) -> bool {
        !self.whole && self.fields.is_empty() && self.items.is_none()
    }

    /// What the part of a value is that this path leads to. A number leads to an element.
    pub fn reach<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Reach {
        let mut marks = self;
        for part in path {
            if marks.whole {
                return Reach::Sensitive;
            }
            let element = part.parse::<usize>().ok().and(marks.items.as_deref());
            match marks.fields.get(part).or(element) {
                Some(below) => marks = below,
                None => return Reach::Clear,
            }
        }
        match (marks.whole, marks.is_empty()) {
            (true, _) => Reach::Sensitive,
            (false, true) => Reach::Clear,
            (false, false) => Reach::Holds,
        }
    }

    /// The clear values at marked places, by their JSON pointers. Null says that nothing was given, and is
    /// left as it is.
    pub fn clear(&self, value: &Value) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        self.each(value, &mut String::new(), &mut |pointer, value, marked| {
            if marked && !value.is_null() && Commitment::read(value).is_none() {
                found.push((pointer.to_owned(), value.clone()));
            }
        });
        found
    }

    /// The value with something in place of each clear value that is marked, as a commitment would stand
    /// there. Opens nothing: for looking ahead.
    pub fn stand_in(&self, value: &Canon) -> Result<Canon, JsonError> {
        if self.is_empty() {
            return Ok(value.clone());
        }
        let mut tree: Value = value.read()?;
        for (pointer, _) in self.clear(&tree) {
            if let Some(place) = tree.pointer_mut(&pointer) {
                *place = Commitment { hmac: Digest::of(pointer.as_bytes()) }.value();
            }
        }
        Canon::of(&tree)
    }

    /// The commitments at places that are not marked, or inside of what is, by their JSON pointers.
    pub fn strays(&self, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.each(value, &mut String::new(), &mut |pointer, value, marked| {
            let inside = super::commitments(value).into_keys();
            let whole = |inside: &String| marked && inside.is_empty();
            found.extend(inside.filter(|i| !whole(i)).map(|inside| format!("{pointer}{inside}")));
        });
        found
    }

    /// Visits what is marked, and the largest parts in which nothing is.
    fn each(&self, value: &Value, pointer: &mut String, visit: &mut dyn FnMut(&str, &Value, bool)) {
        match value {
            _ if self.whole || self.is_empty() => visit(pointer, value, self.whole),
            Value::Object(object) if Commitment::read(value).is_none() => {
                let none = Self::default();
                for (name, value) in object {
                    let marks = self.fields.get(name).unwrap_or(&none);
                    below(pointer, name, |pointer| marks.each(value, pointer, visit));
                }
            }
            Value::Array(values) => {
                let none = Self::default();
                let marks = self.items.as_deref().unwrap_or(&none);
                for (i, value) in values.iter().enumerate() {
                    below(pointer, &i.to_string(), |pointer| marks.each(value, pointer, visit));
                }
            }
            _ => visit(pointer, value, false),
        }
    }

    /// The schema of values in which commitments stand at the marked places.
    pub fn committed(&self, schema: &Value) -> Value {
        if self.whole {
            return json!({
                "type": ["object", "null"],
                "properties": { "$commit": { "type": "string", "pattern": "^[0-9a-f]{64}$" } },
                "required": ["$commit"],
                "additionalProperties": false,
            });
        }
        let mut schema = schema.clone();
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            replace(properties, |name| self.fields.get(name));
        }
        if let (Some(marks), Some(items)) = (&self.items, schema.get_mut("items")) {
            *items = marks.committed(items);
        }
        schema
    }
}

fn replace<'m>(properties: &mut Map<String, Value>, marks: impl Fn(&str) -> Option<&'m Marks>) {
    for (name, schema) in properties {
        if let Some(marks) = marks(name) {
            *schema = marks.committed(schema);
        }
    }
}

fn marked(schema: &Value) -> Result<bool, BadMark> {
    match schema.get(MARK) {
        None => Ok(false),
        Some(Value::Bool(marked)) => Ok(*marked),
        Some(_) => Err(BadMark::Value),
    }
}

/// How many marks there are, wherever they are. What is only an example or a value is none.
fn all(schema: &Value) -> Result<usize, BadMark> {
    match schema {
        Value::Object(object) => {
            let mut count = usize::from(marked(schema)?);
            for (name, value) in object {
                if !["const", "default", "enum", "examples"].contains(&name.as_str()) {
                    count += all(value)?;
                }
            }
            Ok(count)
        }
        Value::Array(values) => values.iter().map(all).sum(),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "email": { "type": "string", MARK: true },
                "order": { "type": "object", "properties": { "name": { "type": "string", MARK: true }, "n": { "type": "integer" } } },
                "lines": { "type": "array", "items": { "type": "object", "properties": { "to": { MARK: true } } } },
                "note": { "type": "string" },
            },
            "required": ["email"],
        })
    }

    #[test]
    fn marks_are_found_where_they_are_kept_and_refused_elsewhere() {
        let marks = Marks::of_arguments(&schema()).unwrap();
        for (path, expected) in [
            (vec!["email"], Reach::Sensitive),
            (vec!["email", "x"], Reach::Sensitive),
            (vec!["order"], Reach::Holds),
            (vec!["order", "name"], Reach::Sensitive),
            (vec!["order", "n"], Reach::Clear),
            (vec!["lines", "3", "to"], Reach::Sensitive),
            (vec!["note"], Reach::Clear),
            (vec![], Reach::Holds),
        ] {
            assert_eq!(marks.reach(path.iter().copied()), expected, "{path:?}");
        }
        for bad in [
            json!({ "$defs": { "a": { MARK: true } }, "properties": { "a": { "$ref": "#/$defs/a" } } }),
            json!({ "anyOf": [{ "properties": { "a": { MARK: true } } }] }),
            json!({ "additionalProperties": { MARK: true } }),
            json!({ "prefixItems": [{ MARK: true }] }),
        ] {
            assert_eq!(Marks::of(&bad), Err(BadMark::Place), "{bad}");
        }
        assert_eq!(Marks::of(&json!({ MARK: 1 })), Err(BadMark::Value));
        assert_eq!(Marks::of_arguments(&json!({ MARK: true })), Err(BadMark::AllArguments));
        assert!(!Marks::of(&json!({ MARK: true })).unwrap().is_empty());
        assert!(
            Marks::of(
                &json!({ "properties": { "a": { "default": { MARK: true }, MARK: false } } })
            )
            .unwrap()
            .is_empty()
        );
    }

    #[test]
    fn what_is_clear_and_what_is_astray_is_found() {
        let marks = Marks::of_arguments(&schema()).unwrap();
        let commit = Commitment { hmac: Digest::of(b"x") }.value();
        let value = json!({
            "email": "a@b.c",
            "order": { "name": commit, "n": 1 },
            "lines": [{ "to": null }, { "to": { "in": commit } }, { "cc": commit }],
            "note": commit,
            "other": [commit],
        });
        let clear: Vec<String> = marks.clear(&value).into_iter().map(|(at, _)| at).collect();
        assert_eq!(clear, ["/email", "/lines/1/to"]);
        assert_eq!(marks.strays(&value), ["/lines/1/to/in", "/lines/2/cc", "/note", "/other/0"]);
        // A commitment where only a part was marked is astray as well.
        assert_eq!(marks.strays(&json!({ "order": commit })), ["/order"]);
    }

    #[test]
    fn what_stands_in_has_the_place_of_a_commitment_and_tells_nothing() {
        let marks = Marks::of_fields(["email", "phone"]);
        let given = Canon::of(&json!({ "email": "a@b.c", "note": "x", "phone": null })).unwrap();
        let shown: Value = marks.stand_in(&given).unwrap().read().unwrap();
        assert!(Commitment::read(&shown["email"]).is_some(), "{shown}");
        assert_eq!((&shown["note"], &shown["phone"]), (&json!("x"), &Value::Null));
        assert!(marks.clear(&shown).is_empty() && marks.strays(&shown).is_empty());
        let other = Canon::of(&json!({ "email": "d@e.f", "note": "x", "phone": null })).unwrap();
        assert_eq!(marks.stand_in(&other).unwrap(), marks.stand_in(&given).unwrap());
        let committed = Canon::of(&shown).unwrap();
        assert_eq!(marks.stand_in(&committed).unwrap(), committed);
        assert_eq!(Marks::default().stand_in(&given).unwrap(), given);
    }

    #[test]
    fn the_schema_of_committed_values_wants_commitments() {
        let committed = Marks::of_arguments(&schema()).unwrap().committed(&schema());
        let at = |pointer: &str| committed.pointer(pointer).cloned();
        assert_eq!(at("/properties/email/required/0"), Some("$commit".into()));
        assert_eq!(at("/properties/order/properties/name/required/0"), Some("$commit".into()));
        assert_eq!(at("/properties/order/properties/n/type"), Some("integer".into()));
        assert_eq!(at("/properties/lines/items/properties/to/required/0"), Some("$commit".into()));
        assert_eq!(at("/properties/note/type"), Some("string".into()));
    }
}
