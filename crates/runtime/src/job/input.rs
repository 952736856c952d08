//! What a job is given: the declaration of its inputs, and the values that must fit it.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::json::{Canon, JsonError};
use gesta_core::sensitive::Marks;
use serde::{Deserialize, Serialize};

use super::cel::{Map, Val};
use super::fields::{Fields, expected, text};
use super::problem::Problem;
use super::tree::{Entry, Kind, Node};

/// The type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

const TYPES: [(&str, Type); 6] = [
    ("string", Type::String),
    ("integer", Type::Integer),
    ("number", Type::Number),
    ("boolean", Type::Boolean),
    ("array", Type::Array),
    ("object", Type::Object),
];

impl Type {
    pub(super) fn as_str(self) -> &'static str {
        TYPES.iter().find(|(_, type_)| *type_ == self).map_or("", |(name, _)| name)
    }

    fn holds(self, value: &Val) -> bool {
        match (self, value) {
            (Self::String, Val::Text(_))
            | (Self::Integer, Val::Int(_))
            | (Self::Number, Val::Int(_) | Val::Double(_))
            | (Self::Boolean, Val::Bool(_))
            | (Self::Array, Val::List(_))
            | (Self::Object, Val::Map(_)) => true,
            // Canonical JSON writes 3.0 as 3, so a whole number is an integer however it was computed.
            (Self::Integer, Val::Double(number)) => number.fract() == 0.0,
            _ => false,
        }
    }
}

/// A declared input.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) type_: Type,
    /// What it is if it is not given. Null is allowed here whatever the type.
    default: Option<Val>,
    /// The values it may have, in canonical form; any if empty.
    one_of: Vec<Canon>,
    /// Whether entries hold no more of it than a commitment.
    pub(super) sensitive: bool,
}

/// A declared input as a plan keeps it, for whoever gives it its values later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSpec {
    /// What it is if it is not given.
    #[serde(
        default,
        deserialize_with = "super::spec::some",
        skip_serializing_if = "Option::is_none"
    )]
    pub default: Option<Canon>,
    /// The values it may have; any if empty.
    #[serde(rename = "enum", default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Canon>,
    /// Its name.
    pub name: String,
    /// Whether entries hold no more of it than a commitment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
    /// The name of its type.
    #[serde(rename = "type")]
    pub type_: String,
}

impl InputSpec {
    pub(super) fn of(input: &Input) -> Result<Self, String> {
        Ok(Self {
            default: input.default.as_ref().map(Val::canon).transpose()?,
            one_of: input.one_of.clone(),
            name: input.name.clone(),
            sensitive: input.sensitive,
            type_: input.type_.as_str().to_owned(),
        })
    }

    fn input(&self) -> Result<Input, String> {
        let type_ = TYPES.into_iter().find(|(name, _)| *name == self.type_);
        let (_, type_) = type_.ok_or_else(|| format!("unknown type `{}`", self.type_))?;
        let read = |canon: &Canon| Val::read(canon).map_err(|error: JsonError| error.to_string());
        Ok(Input {
            name: self.name.clone(),
            type_,
            default: self.default.as_ref().map(read).transpose()?,
            one_of: self.one_of.clone(),
            sensitive: self.sensitive,
        })
    }
}

/// The places of a child's input that are sensitive.
pub fn sensitive_input(specs: &[InputSpec]) -> Marks {
    let sensitive = specs.iter().filter(|spec| spec.sensitive);
    Marks::of_fields(sensitive.map(|spec| spec.name.as_str()))
}

/// Checks values against what a plan keeps of their declaration, and completes them.
pub fn complete_input(specs: &[InputSpec], given: &Canon) -> Result<Canon, String> {
    let inputs: Vec<Input> = specs.iter().map(InputSpec::input).collect::<Result<_, _>>()?;
    from_json(&inputs, given).map_err(|problems| {
        let messages: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
        messages.join("; ")
    })
}

/// Reads the declaration of one input.
pub(super) fn read(entry: &Entry, problems: &mut Vec<Problem>) -> Option<Input> {
    let name = entry.key.as_str();
    let identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !identifier || ["in", "null", "true", "false"].contains(&name) {
        let problem = Problem::new(entry.place, format!("`{name}` is not a name for an input"));
        problems
            .push(problem.hint("use letters, digits and `_`, so that `input.name` can be written"));
        return None;
    }
    let node = &entry.value;
    if matches!(node.kind, Kind::Text(_)) {
        let type_ = type_of(node, problems)?;
        let (name, default) = (name.to_owned(), None);
        return Some(Input { name, type_, default, one_of: Vec::new(), sensitive: false });
    }
    let known = ["type", "default", "description", "enum", "sensitive"];
    let fields = Fields::of(node, "an input", &known, problems)?;
    if let Some(description) = fields.get("description") {
        text(description, "a description", problems);
    }
    let Some(type_) = fields.get("type") else {
        problems.push(Problem::new(fields.place, format!("input `{name}` has no `type`")));
        return None;
    };
    let mut input = Input {
        name: name.to_owned(),
        type_: type_of(type_, problems)?,
        default: None,
        one_of: Vec::new(),
        sensitive: false,
    };
    if let Some(sensitive) = fields.get("sensitive") {
        match sensitive.kind {
            Kind::Bool(marked) => input.sensitive = marked,
            _ => problems.push(expected(sensitive, "`true` or `false`")),
        }
    }
    if let Some(options) = fields.get("enum") {
        input.one_of = one_of(&input, options, problems);
    }
    if let Some(default) = fields.get("default") {
        let value = default.value();
        if input.sensitive && !matches!(value, Val::Null) {
            let problem = Problem::new(
                default.place,
                format!("the default of the sensitive input `{name}` would be on record"),
            );
            problems.push(problem.hint("give it when the job is submitted, or default to null"));
        }
        if !matches!(value, Val::Null)
            && let Err(message) = input.check(&value)
        {
            problems.push(Problem::new(default.place, message));
        }
        input.default = Some(value);
    }
    Some(input)
}

fn type_of(node: &Node, problems: &mut Vec<Problem>) -> Option<Type> {
    let given = text(node, "a type", problems)?;
    let found = TYPES.into_iter().find(|(name, _)| *name == given);
    if found.is_none() {
        let names = TYPES.map(|(name, _)| name);
        let problem = Problem::new(node.place, format!("unknown type `{given}`"));
        let all = format!("types are {}", names.map(|name| format!("`{name}`")).join(", "));
        problems.push(problem.hint(all).did_you_mean(given, names));
    }
    found.map(|(_, type_)| type_)
}

fn one_of(input: &Input, node: &Node, problems: &mut Vec<Problem>) -> Vec<Canon> {
    let Kind::List(options) = &node.kind else {
        problems.push(expected(node, "a list of values"));
        return Vec::new();
    };
    if options.is_empty() {
        problems.push(Problem::new(node.place, "an input with no values cannot be given"));
    }
    let mut found = Vec::new();
    for option in options {
        let value = option.value();
        match input.check(&value).and_then(|()| value.canon()) {
            Ok(canon) => found.push(canon),
            Err(message) => problems.push(Problem::new(option.place, message)),
        }
    }
    found
}

impl Input {
    /// Whether it must be given.
    pub(super) fn required(&self) -> bool {
        self.default.is_none()
    }

    /// Refuses a value that does not fit.
    pub(super) fn check(&self, value: &Val) -> Result<(), String> {
        let Self { name, type_, .. } = self;
        // What is committed to was checked when it was, or is when it is opened.
        match (value, self.sensitive) {
            (Val::Committed(_), true) => return Ok(()),
            (Val::Committed(_), false) => {
                return Err(format!(
                    "input `{name}` is given a sensitive value and is not marked `sensitive: true`"
                ));
            }
            (value, false) if value.holds_sensitive() => {
                return Err(format!(
                    "input `{name}` is given something that holds a sensitive value; sensitive values are handed on whole, to inputs marked `sensitive: true`"
                ));
            }
            _ => {}
        }
        if !type_.holds(value) {
            return Err(format!(
                "input `{name}` is of type {}, not {}",
                type_.as_str(),
                value.type_name()
            ));
        }
        if !self.one_of.is_empty() && !value.canon().is_ok_and(|value| self.one_of.contains(&value))
        {
            let all: Vec<String> = self.one_of.iter().map(|value| format!("`{value}`")).collect();
            return Err(format!("input `{name}` must be one of {}", all.join(", ")));
        }
        Ok(())
    }

    /// Reads a value from the command line: strings as they are, anything else as JSON.
    fn parse(&self, given: &str) -> Result<Val, String> {
        if self.type_ == Type::String {
            return Ok(Val::text(given));
        }
        let read = Canon::parse(given.as_bytes()).and_then(|canon| Val::read(&canon));
        read.map_err(|_| {
            let Self { name, type_, sensitive, .. } = self;
            let given = if *sensitive { "what was given" } else { &format!("`{given}`") };
            format!(
                "input `{name}` is of type {}; {given} is not JSON of that type",
                type_.as_str()
            )
        })
    }
}

/// Reads values from the command line and completes them.
pub(super) fn from_text(
    inputs: &[Input],
    given: &BTreeMap<String, String>,
) -> Result<Canon, Vec<Problem>> {
    let mut values = Map::new();
    let mut problems = Vec::new();
    let mut unread = BTreeSet::new();
    for (name, given) in given {
        let declared = inputs.iter().find(|input| input.name == *name);
        match declared.map_or_else(|| Ok(Val::Null), |input| input.parse(given)) {
            Ok(value) => {
                values.insert(name.as_str().into(), value);
            }
            Err(message) => {
                problems.push(Problem::anywhere(message));
                unread.insert(name.as_str());
            }
        }
    }
    complete(inputs, values, &unread, problems)
}

/// Checks values and completes them.
pub(super) fn from_json(inputs: &[Input], given: &Canon) -> Result<Canon, Vec<Problem>> {
    let refuse = |message: String| vec![Problem::anywhere(message)];
    match Val::read(given).map_err(|error| refuse(error.to_string()))? {
        Val::Map(values) => complete(inputs, (*values).clone(), &BTreeSet::new(), Vec::new()),
        other => Err(refuse(format!("the input of a job is an object, not {}", other.type_name()))),
    }
}

/// Fills in defaults and refuses what is missing, unknown or unfit. What could not be read has its
/// problem already.
fn complete(
    inputs: &[Input],
    mut values: Map,
    unread: &BTreeSet<&str>,
    mut problems: Vec<Problem>,
) -> Result<Canon, Vec<Problem>> {
    for name in values.keys() {
        if !inputs.iter().any(|input| input.name == **name) {
            let problem = Problem::anywhere(format!("unknown input `{name}`"));
            problems
                .push(problem.did_you_mean(name, inputs.iter().map(|input| input.name.as_str())));
        }
    }
    for input in inputs {
        let value = values.get(input.name.as_str());
        let optional = matches!(input.default, Some(Val::Null));
        match (value, &input.default) {
            (Some(Val::Null), _) if optional => {}
            (Some(value), _) => problems.extend(input.check(value).err().map(Problem::anywhere)),
            (None, Some(default)) => {
                values.insert(input.name.as_str().into(), default.clone());
            }
            (None, None) if unread.contains(input.name.as_str()) => {}
            (None, None) => {
                let problem = Problem::anywhere(format!("input `{}` is missing", input.name));
                problems.push(problem.hint(format!("it is of type {}", input.type_.as_str())));
            }
        }
    }
    if problems.is_empty() {
        Val::Map(values.into()).canon().map_err(|message| vec![Problem::anywhere(message)])
    } else {
        Err(problems)
    }
}
