//! The arguments of a call against the tool's schema, as far as they are known before anything runs.
//!
//! What is computed is stood in for by a sample, and only such mismatches count as no value could
//! make good. The rest is the Guardian's to find, on the arguments as they are then.

use std::collections::BTreeMap;

use gesta_core::ids::ToolName;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft as Dialect, PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::file::Draft;
use super::input::Type;
use super::names::whole_input;
use super::problem::{Place, Problem};
use super::template::{Piece, pieces};
use super::tree::{Kind, Node};

/// How much memory one compiled pattern may take.
const PATTERN_BYTES: usize = 1 << 20;

/// Keywords under which a mismatch depends on values elsewhere.
const CONDITIONAL: [&str; 6] =
    ["then", "else", "dependentSchemas", "dependencies", "not", "contains"];

/// The compiled schemas of tools, each made once.
#[derive(Default)]
pub(super) struct Schemas(BTreeMap<ToolName, Option<Validator>>);

impl Schemas {
    fn get(&mut self, tool: &ToolName, schema: &Value) -> Option<&Validator> {
        let made = self.0.entry(tool.clone()).or_insert_with(|| {
            let patterns =
                PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
            let options = jsonschema::options()
                .offline()
                .with_pattern_options(patterns)
                .should_validate_formats(true);
            let options = match schema.get("$schema") {
                Some(_) => options,
                None => options.with_draft(Dialect::Draft202012),
            };
            // A schema that cannot be used is the catalogue's to refuse.
            options.build(schema).ok()
        });
        made.as_ref()
    }

    /// Checks the arguments of a call.
    pub(super) fn check(
        &mut self,
        tool: &ToolName,
        schema: &Value,
        args: &Node,
        draft: &Draft,
        problems: &mut Vec<Problem>,
    ) {
        let Some(validator) = self.get(tool, schema) else { return };
        let mut computed = BTreeMap::new();
        let instance = sample(args, String::new(), draft, &mut computed);
        for error in validator.iter_errors(&instance) {
            if certain(&error, &computed) {
                report(&error, schema, args, &computed, problems);
            }
        }
    }
}

/// What is known of a value that is computed.
enum Computed {
    /// Nothing.
    Something,
    /// It is a string: there is text around the expression.
    Text,
    /// It is this input.
    Input(String, Type),
}

/// The arguments with samples in place of what is computed, which is noted by its JSON pointer.
fn sample(
    node: &Node,
    pointer: String,
    draft: &Draft,
    computed: &mut BTreeMap<String, Computed>,
) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Bool(value) => Value::Bool(*value),
        Kind::Int(value) => Value::from(*value),
        Kind::Number(value) => Value::from(*value),
        Kind::Text(text) => {
            let pieces = pieces(text).unwrap_or_default();
            let (value, known) = match pieces.as_slice() {
                [] => return Value::String(text.clone()),
                [Piece::Plain(text)] => return Value::String(text.clone()),
                [Piece::Expression(expr)] => {
                    let name = expr.node().ok().and_then(whole_input);
                    let input = name
                        .and_then(|name| draft.inputs.iter().find(|input| input.name == **name));
                    match input {
                        Some(input) => {
                            (example(input.type_), Computed::Input(input.name.clone(), input.type_))
                        }
                        None => (Value::Null, Computed::Something),
                    }
                }
                _ => (Value::String(String::new()), Computed::Text),
            };
            computed.insert(pointer, known);
            value
        }
        Kind::List(nodes) => nodes
            .iter()
            .enumerate()
            .map(|(i, node)| sample(node, format!("{pointer}/{i}"), draft, computed))
            .collect(),
        Kind::Map(entries) => entries
            .iter()
            .map(|entry| {
                let key = entry.key.replace('~', "~0").replace('/', "~1");
                (
                    entry.key.clone(),
                    sample(&entry.value, format!("{pointer}/{key}"), draft, computed),
                )
            })
            .collect(),
    }
}

fn example(type_: Type) -> Value {
    match type_ {
        Type::String => Value::String(String::new()),
        // A number may turn out to be whole, so it fits wherever an integer does.
        Type::Integer | Type::Number => Value::from(0),
        Type::Boolean => Value::Bool(true),
        Type::Array => Value::Array(Vec::new()),
        Type::Object => Value::Object(serde_json::Map::new()),
    }
}

/// Whether no value of what is computed could make the mismatch good.
fn certain(error: &ValidationError<'_>, computed: &BTreeMap<String, Computed>) -> bool {
    use ValidationErrorKind as K;
    let path = error.instance_path().as_str();
    if computed.is_empty() {
        return true;
    }
    if error.evaluation_path().as_str().split('/').any(|part| CONDITIONAL.contains(&part)) {
        return false;
    }
    let inside = computed.keys().any(|pointer| below(path, pointer));
    let around = computed.keys().any(|pointer| below(pointer, path));
    match error.kind() {
        K::Type { .. } => match computed.get(path) {
            Some(Computed::Text | Computed::Input(..)) => true,
            Some(Computed::Something) => false,
            None => !inside,
        },
        // These count keys and elements, which are written out.
        K::Required { .. }
        | K::AdditionalProperties { .. }
        | K::PropertyNames { .. }
        | K::MinProperties { .. }
        | K::MaxProperties { .. }
        | K::MinItems { .. }
        | K::MaxItems { .. } => !inside,
        _ => !inside && !around,
    }
}

/// Whether a pointer leads to another or to something below it.
fn below(pointer: &str, other: &str) -> bool {
    pointer.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn report(
    error: &ValidationError<'_>,
    schema: &Value,
    args: &Node,
    computed: &BTreeMap<String, Computed>,
    problems: &mut Vec<Problem>,
) {
    use ValidationErrorKind as K;
    let path = error.instance_path().as_str();
    let node = find(args, path);
    let place = node.map_or(args.place, |node| node.place);
    let named = |key: &str| match path {
        "" => format!("`{key}`"),
        _ => format!("`{}/{key}`", shown(path)),
    };
    match error.kind() {
        K::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            problems.push(Problem::new(place, format!("argument {} is missing", named(name))));
        }
        K::AdditionalProperties { unexpected } | K::UnevaluatedProperties { unexpected } => {
            for name in unexpected {
                let problem = Problem::new(
                    key_place(node, name, place),
                    format!("unknown argument {}", named(name)),
                );
                let known = properties(schema).filter(|_| path.is_empty());
                problems.push(problem.did_you_mean(name, known));
            }
        }
        K::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(type_) => type_.to_string(),
                TypeKind::Multiple(types) => {
                    let types: Vec<String> = types.iter().map(|type_| type_.to_string()).collect();
                    types.join(" or ")
                }
            };
            let found = match computed.get(path) {
                Some(Computed::Input(name, type_)) => {
                    format!("input `{name}` is of type {}", type_.as_str())
                }
                Some(_) => "this is a string".to_owned(),
                None => format!("this is {}", node.map_or("something else", Node::type_name)),
            };
            problems.push(Problem::new(
                place,
                format!("{} must be of type {wanted}; {found}", subject(path)),
            ));
        }
        _ => problems.push(Problem::new(place, format!("{}: {error}", subject(path)))),
    }
}

/// What a pointer leads to, in words.
fn subject(path: &str) -> String {
    match path {
        "" => "the arguments".to_owned(),
        _ => format!("argument `{}`", shown(path)),
    }
}

fn shown(path: &str) -> String {
    path.trim_start_matches('/').replace("~1", "/").replace("~0", "~")
}

fn properties(schema: &Value) -> impl Iterator<Item = &str> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.keys())
        .map(String::as_str)
}

fn key_place(node: Option<&Node>, key: &str, otherwise: Place) -> Place {
    match node.map(|node| &node.kind) {
        Some(Kind::Map(entries)) => {
            entries.iter().find(|entry| entry.key == key).map_or(otherwise, |entry| entry.place)
        }
        _ => otherwise,
    }
}

/// The value that a JSON pointer leads to.
fn find<'n>(node: &'n Node, pointer: &str) -> Option<&'n Node> {
    pointer.split('/').skip(1).try_fold(node, |node, part| match &node.kind {
        Kind::Map(entries) => {
            let key = part.replace("~1", "/").replace("~0", "~");
            entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
        }
        Kind::List(nodes) => nodes.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}
