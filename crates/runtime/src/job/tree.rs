//! YAML, and so JSON, as a tree whose every node knows where it stands. One value has one meaning:
//! keys are unique, anchors, aliases and tags are refused, numbers are those that canonical JSON holds.
//! Knows nothing of job files.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::json::{Canon, Limits};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::cel::Val;
use super::problem::{Place, Problem, Problems};

/// The greatest integer that no other shares its double with.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Reads a file that is one value and no job, YAML or JSON. The label names it in problems.
pub fn read_value(label: &str, text: &str) -> Result<Canon, Problems> {
    let mut problems = Vec::new();
    let value = read(text, &mut problems).map(|node| (node.place, node.value().canon()));
    Problems::check(label, problems)?;
    match value {
        Some((_, Ok(canon))) => Ok(canon),
        Some((place, Err(message))) => Err(Problems::one(label, Problem::new(place, message))),
        None => Err(Problems::one(label, Problem::anywhere("there is nothing in it"))),
    }
}

/// A value in a file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    /// The first byte of the file that belongs to it, and the first behind it; of a list or an object,
    /// only where it begins.
    pub(super) span: (usize, usize),
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) value: Node,
}

impl Node {
    /// A value that stands in another file, with a place in this one.
    pub(super) fn of(value: &serde_json::Value, place: Place) -> Self {
        use serde_json::Value;
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(value) => Kind::Int(value),
                None => Kind::Number(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Kind::Text(text.clone()),
            Value::Array(values) => {
                Kind::List(values.iter().map(|value| Self::of(value, place)).collect())
            }
            Value::Object(map) => Kind::Map(
                map.iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        place,
                        value: Self::of(value, place),
                    })
                    .collect(),
            ),
        };
        Self { place, span: (0, 0), kind }
    }

    /// What an error calls it.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "a boolean",
            Kind::Int(_) => "an integer",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }

    /// The value without its place.
    pub(super) fn value(&self) -> Val {
        match &self.kind {
            Kind::Null => Val::Null,
            Kind::Bool(value) => Val::Bool(*value),
            Kind::Int(value) => Val::Int(*value),
            Kind::Number(value) => Val::Double(*value),
            Kind::Text(text) => Val::text(text.as_str()),
            Kind::List(nodes) => Val::list(nodes.iter().map(Self::value).collect()),
            Kind::Map(entries) => Val::Map(Arc::new(
                entries
                    .iter()
                    .map(|entry| (entry.key.as_str().into(), entry.value.value()))
                    .collect(),
            )),
        }
    }
}

/// Reads a file. Problems that leave a tree are added to the list.
pub(super) fn read(text: &str, problems: &mut Vec<Problem>) -> Option<Node> {
    let limits = Limits::DEFAULT;
    if text.len() > limits.max_bytes {
        let message = format!("the file is larger than {} bytes", limits.max_bytes);
        problems.push(Problem::new(Place { line: 1, column: 1 }, message));
        return None;
    }
    let options = granit_parser::options! {
        disallow_directives: true,
        flow_nesting_limit: limits.max_depth,
        block_nesting_limit: limits.max_depth,
    };
    let parser = Parser::new_from_str_with_options(text, options);
    let mut reader = Reader { parser, problems };
    match reader.document() {
        Ok(node) => node,
        Err(error) => {
            let place = place(error.marker());
            let problem = Problem::new(place, lower(&error.info()));
            let line =
                text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
            problems.push(if line.contains("${") {
                problem.hint("put strings that contain `${…}` in quotes")
            } else {
                problem
            });
            None
        }
    }
}

/// The message of the YAML parser as ours begin: in lower case, but for `YAML` itself.
fn lower(message: &str) -> String {
    let mut chars = message.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => message.to_owned(),
    }
}

fn place(marker: &Marker) -> Place {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Place { line: number(marker.line()), column: number(marker.col() + 1) }
}

struct Reader<'t, 'p> {
    parser: Parser<'t, StrInput<'t>>,
    problems: &'p mut Vec<Problem>,
}

type Next<'t> = Result<(Event<'t>, Span), ScanError>;

impl<'t> Reader<'t, '_> {
    fn next(&mut self) -> Next<'t> {
        let end = || (Event::StreamEnd, Span::default());
        self.parser.next_event().unwrap_or_else(|| Ok(end()))
    }

    fn document(&mut self) -> Result<Option<Node>, ScanError> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    let message = "a file holds one document";
                    self.problems.push(Problem::new(place(&span.start), message));
                    return Ok(None);
                }
                Event::DocumentStart(..) => {}
                event => root = Some(self.node(event, span)?),
            }
        }
        if root.is_none() {
            self.problems.push(Problem::new(Place { line: 1, column: 1 }, "the file is empty"));
        }
        Ok(root)
    }

    fn node(&mut self, event: Event<'t>, span: Span) -> Result<Node, ScanError> {
        if event.anchor_id().is_some() || event.is_alias() {
            let message = "anchors and aliases are not part of job files";
            self.problems
                .push(Problem::new(place(&span.start), message).hint("write the value out"));
        }
        if event.tag().is_some() {
            let at = span.tag_start().unwrap_or(span.start);
            let problem = Problem::new(place(&at), "tags are not part of job files");
            self.problems.push(problem.hint("leave the `!…` out"));
        }
        let bytes = |marker: &Marker| marker.byte_offset().unwrap_or_default();
        let span_bytes = (bytes(&span.start), bytes(&span.end));
        let kind = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => self.plain(&text, &span),
            Event::Scalar(text, ..) => Kind::Text(text.into_owned()),
            Event::SequenceStart(..) => Kind::List(self.list()?),
            Event::MappingStart(..) => Kind::Map(self.map()?),
            _ => Kind::Null,
        };
        Ok(Node { place: place(&span.start), span: span_bytes, kind })
    }

    fn list(&mut self) -> Result<Vec<Node>, ScanError> {
        let mut nodes = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::SequenceEnd | Event::StreamEnd => return Ok(nodes),
                event => nodes.push(self.node(event, span)?),
            }
        }
    }

    fn map(&mut self) -> Result<Vec<Entry>, ScanError> {
        let mut entries = Vec::new();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                return Ok(entries);
            }
            let at = place(&span.start);
            let key = match &event {
                Event::Scalar(text, ..) => Some(text.clone().into_owned()),
                _ => None,
            };
            self.node(event, span)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span)?;
            let Some(key) = key else {
                self.problems.push(Problem::new(at, "a key is a string"));
                continue;
            };
            if let Some(line) = seen.get(&key) {
                let problem = Problem::new(at, format!("the key `{key}` stands here twice"));
                self.problems.push(problem.hint(format!("the first is in line {line}")));
                continue;
            }
            seen.insert(key.clone(), at.line);
            entries.push(Entry { key, place: at, value });
        }
    }

    /// A scalar without quotes, by the core schema of YAML 1.2.
    fn plain(&mut self, text: &str, span: &Span) -> Kind {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
            "true" | "True" | "TRUE" => return Kind::Bool(true),
            "false" | "False" | "FALSE" => return Kind::Bool(false),
            _ => {}
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if !numeric {
            return Kind::Text(text.to_owned());
        }
        match number(text, unsigned) {
            Ok(Some(kind)) => kind,
            Ok(None) => Kind::Text(text.to_owned()),
            Err(message) => {
                let problem = Problem::new(place(&span.start), format!("`{text}` {message}"));
                self.problems.push(problem.hint("write it as a string, in quotes"));
                Kind::Null
            }
        }
    }
}

/// The number that a plain scalar is, none if it is a string after all, or what is wrong with it.
fn number(text: &str, unsigned: &str) -> Result<Option<Kind>, &'static str> {
    let radix = [("0x", 16), ("0o", 8)]
        .into_iter()
        .find_map(|(prefix, radix)| Some((unsigned.strip_prefix(prefix)?, radix)));
    if let Some((digits, radix)) = radix {
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Ok(None);
        }
        return integer(u64::from_str_radix(digits, radix).ok(), text.starts_with('-')).map(Some);
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        if unsigned.len() > 1 && unsigned.starts_with('0') {
            return Err("is a decimal number to some readers and an octal one to others");
        }
        return integer(unsigned.parse().ok(), text.starts_with('-')).map(Some);
    }
    if matches!(unsigned.to_ascii_lowercase().as_str(), ".inf" | ".nan") {
        return Err("is not a finite number");
    }
    let digits = unsigned.bytes().any(|b| b.is_ascii_digit());
    let floating = unsigned.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    match text.parse::<f64>() {
        Ok(value) if digits && floating && value.is_finite() => Ok(Some(Kind::Number(value))),
        Ok(_) if digits && floating => Err("is not a finite number"),
        _ => Ok(None),
    }
}

fn integer(magnitude: Option<u64>, negative: bool) -> Result<Kind, &'static str> {
    match magnitude.filter(|magnitude| *magnitude <= MAX_SAFE_INTEGER).map(u64::cast_signed) {
        Some(value) => Ok(Kind::Int(if negative { -value } else { value })),
        None => Err("is beyond ±9007199254740991"),
    }
}
