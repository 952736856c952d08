//! JSON Schemas of arguments and results: checked and compiled once, without ever fetching anything
//! and with patterns that match in linear time, since neither schema nor value can be trusted.

use std::fmt;

use gesta_core::json::{Canon, JsonError, Limits};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

/// How many mismatches are reported of one value, and how long each part of one may be.
const MAX_MISMATCHES: usize = 16;
const MAX_TEXT_CHARS: usize = 300;
/// How much memory one compiled pattern may take.
const PATTERN_BYTES: usize = 1 << 20;
/// Keywords through which a schema takes in properties of other schemas.
const COMPOSING: [&str; 8] =
    ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"];

/// Where a value does not fit its schema, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The RFC 6901 pointer of the value; empty for the whole.
    pub pointer: String,
    /// What is wrong with it. Does not repeat the value.
    pub message: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "at `{}`: {}", self.pointer, self.message)
    }
}

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchema {
    /// It is not a JSON object.
    #[error("a schema is a JSON object")]
    NotAnObject,
    /// It cannot be written as canonical JSON.
    #[error("{0}")]
    Uncanonical(#[from] JsonError),
    /// Arguments are objects, and the schema wants something else.
    #[error("arguments are objects; write `\"type\": \"object\"`, or leave the type out")]
    NotOfObjects,
    /// An older dialect cannot close what it composes.
    #[error(
        "a schema of this dialect that composes others cannot be closed against unknown fields; write it out with `additionalProperties`, or use 2020-12"
    )]
    CannotClose,
    /// It marks something as sensitive that cannot be kept so.
    #[error(transparent)]
    Mark(#[from] gesta_core::sensitive::BadMark),
    /// It breaks the rules of JSON Schema, or refers to another document.
    #[error("at `{pointer}`: {message}")]
    Invalid {
        /// Where in the schema.
        pointer: String,
        /// What is wrong.
        message: String,
    },
}

/// A compiled schema and its canonical text, as it is enforced.
pub(super) struct Schema {
    canonical: Canon,
    validator: Validator,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.canonical.fmt(f)
    }
}

impl Schema {
    /// The schema of arguments. Arguments are an object, and one that may hold more than the schema
    /// names must say so: without `additionalProperties` or `unevaluatedProperties`, the top level is
    /// closed. Formats are asserted.
    pub(super) fn of_input(declared: Option<&Value>) -> Result<Self, BadSchema> {
        let schema = match declared {
            Some(Value::Object(schema)) => closed(schema.clone())?,
            Some(_) => return Err(BadSchema::NotAnObject),
            None => any_object(),
        };
        Self::compile(&Value::Object(schema), true)
    }

    /// The schema of a result. Formats are annotations, as the standard has it: a date in another
    /// spelling is not worth failing a call that has happened.
    pub(super) fn of_output(declared: &Value) -> Result<Self, BadSchema> {
        match declared {
            Value::Object(_) => Self::compile(declared, false),
            _ => Err(BadSchema::NotAnObject),
        }
    }

    fn compile(schema: &Value, asserts_formats: bool) -> Result<Self, BadSchema> {
        let canonical = Canon::of(schema)?;
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let options = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .should_validate_formats(asserts_formats);
        let options = match schema.get("$schema") {
            Some(_) => options,
            None => options.with_draft(Draft::Draft202012),
        };
        match options.build(schema) {
            Ok(validator) => Ok(Self { canonical, validator }),
            Err(error) => Err(BadSchema::Invalid {
                pointer: shorten(error.instance_path().as_str()),
                message: shorten(&error.to_string()),
            }),
        }
    }

    /// The schema as it is enforced.
    pub(super) fn canonical(&self) -> &Canon {
        &self.canonical
    }

    /// How the value departs from the schema: nothing if it fits.
    pub(super) fn check(&self, value: &Canon) -> Vec<Mismatch> {
        let value: Value = match serde_json::from_str(value.as_str()) {
            Ok(value) => value,
            // Canonical text is valid JSON and no deeper than this reader goes, unless the caller
            // canonicalized with wider limits than the default.
            Err(error) => {
                let depth = Limits::DEFAULT.max_depth;
                let message = format!("cannot be read (at most {depth} levels): {error}");
                return vec![Mismatch { pointer: String::new(), message }];
            }
        };
        if self.validator.is_valid(&value) {
            return Vec::new();
        }
        let errors = self.validator.iter_errors(&value).take(MAX_MISMATCHES);
        errors
            .map(|error| Mismatch {
                pointer: shorten(error.instance_path().as_str()),
                message: shorten(&error.masked().to_string()),
            })
            .collect()
    }
}

fn any_object() -> Map<String, Value> {
    [("type", Value::from("object")), ("additionalProperties", Value::from(true))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn closed(mut schema: Map<String, Value>) -> Result<Map<String, Value>, BadSchema> {
    match schema.get("type") {
        None => {
            schema.insert("type".to_owned(), Value::from("object"));
        }
        Some(Value::String(type_)) if type_ == "object" => {}
        Some(_) => return Err(BadSchema::NotOfObjects),
    }
    // Older dialects ignore whatever stands beside a reference.
    if !knows_unevaluated(&schema) && schema.contains_key("$ref") {
        return Err(BadSchema::CannotClose);
    }
    if schema.contains_key("additionalProperties") || schema.contains_key("unevaluatedProperties") {
        return Ok(schema);
    }
    let composes = COMPOSING.iter().any(|keyword| schema.contains_key(*keyword));
    let keyword = match (composes, knows_unevaluated(&schema)) {
        (false, _) => "additionalProperties",
        (true, true) => "unevaluatedProperties",
        (true, false) => return Err(BadSchema::CannotClose),
    };
    schema.insert(keyword.to_owned(), Value::from(false));
    Ok(schema)
}

/// Whether the dialect sees properties through `allOf` and its like: from 2019-09 on.
fn knows_unevaluated(schema: &Map<String, Value>) -> bool {
    match schema.get("$schema").and_then(Value::as_str) {
        None => true,
        Some(dialect) => dialect.contains("/2020-12/") || dialect.contains("/2019-09/"),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
