//! The published schema agrees with the reader: on files by hand, and on files broken at random.

use std::sync::OnceLock;

use gesta_runtime::job::{SCHEMA, parse};
use granit_parser::{Event, Parser, ScalarStyle};
use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn schema() -> &'static Validator {
    static MADE: OnceLock<Validator> = OnceLock::new();
    MADE.get_or_init(|| {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        assert!(jsonschema::meta::is_valid(&schema));
        jsonschema::validator_for(&schema).unwrap()
    })
}

/// The JSON that a YAML text stands for, by a reading of our own.
fn json_of(text: &str) -> Value {
    fn node<'a>(event: &Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Value {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_string()))
            }
            Event::Scalar(text, ..) => Value::String(text.to_string()),
            Event::SequenceStart(..) => {
                let mut values = Vec::new();
                loop {
                    match events.next().unwrap() {
                        Event::SequenceEnd => return Value::Array(values),
                        event => values.push(node(&event, events)),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Map::new();
                loop {
                    let key = match events.next().unwrap() {
                        Event::MappingEnd => return Value::Object(map),
                        Event::Scalar(key, ..) => key.to_string(),
                        other => panic!("{other:?} is no key"),
                    };
                    let event = events.next().unwrap();
                    map.insert(key, node(&event, events));
                }
            }
            other => panic!("{other:?} is no value"),
        }
    }
    let mut events = Parser::new_from_str(text)
        .map(|event| event.unwrap().0)
        .skip_while(|event| matches!(event, Event::StreamStart | Event::DocumentStart(..)));
    let first = events.next().unwrap();
    node(&first, &mut events)
}

/// A job that uses everything.
fn everything() -> Value {
    json!({
        "job": "a", "description": "d", "parallel": 3, "priority": 7,
        "on_failure": "compensate", "confirm": "warn",
        "budget": { "calls": 1, "money_micros": 2, "tokens": 3, "wall_ms": 4 },
        "input": { "q": "string", "r": { "type": "integer", "default": 5, "description": "x", "enum": [5, 6] } },
        "steps": [
            { "id": "one", "tool": "any", "args": { "a": "${input.q}" }, "when": "input.r > 1",
              "retry": { "attempts": 3, "backoff": "1s", "max_backoff": "2s", "factor": 2 },
              "timeout": "5s", "on_cancel": "finish", "needs": ["two"],
              "compensate": { "tool": "any", "args": { "a": "${result.a}" } } },
            { "id": "two", "set": { "x": 1 }, "when": true, "confirm": "human" },
            { "id": "three", "tool": "any", "each": [1, 2], "args": "${item}" },
            { "id": "four", "tool": "any", "each": "${input.q}", "compensate": "none" },
            { "id": "five", "wait": { "signal": "a-${input.q}", "timeout": "1h" } },
            { "id": "six", "wait": { "signal": "a", "until": "${now()}" } },
            { "id": "seven", "wait": { "for": "1h" } },
            { "id": "eight", "wait": { "until": 5 } },
            { "id": "nine", "wait": { "signal": "a" } },
            { "id": "ten", "delegate": { "job": "child.yaml", "input": { "q": "${input.q}" },
              "principal": "agent:child", "tools": ["any"], "effect": "read", "budget": { "calls": 1 },
              "depth": 1, "on_failure": "return", "on_cancel": "wait" } },
            { "id": "eleven", "delegate": { "job": "child.yaml", "input": "${input.q}" } },
        ],
        "answer": ["${steps.one.result}"],
    })
}

#[test]
fn what_is_read_is_valid() {
    let schema = schema();
    for value in [
        everything(),
        json_of(include_str!("refund.yaml")),
        json!({ "job": "a", "steps": [{ "id": "a", "set": null }] }),
        json!({ "job": "a", "steps": [{ "id": "a", "set": 1 }], "answer": null }),
    ] {
        parse("a", &value.to_string()).unwrap_or_else(|problems| panic!("{value}: {problems}"));
        let errors: Vec<String> =
            schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{value}: {errors:?}");
    }
}

/// The same, for a step that delegates.
fn breaks_of_delegation() -> Vec<(&'static str, Value)> {
    vec![
        ("/steps/9/delegate", json!("child.yaml")),
        ("/steps/9/delegate/job", json!(5)),
        ("/steps/9/delegate/file", json!("x")),
        ("/steps/9/delegate/input", json!([1])),
        ("/steps/9/delegate/principal", json!("")),
        ("/steps/9/delegate/tools", json!("any")),
        ("/steps/9/delegate/tools/0", json!("a b")),
        ("/steps/9/delegate/effect", json!("much")),
        ("/steps/9/delegate/budget/calls", json!(-1)),
        ("/steps/9/delegate/depth", json!(9)),
        ("/steps/9/delegate/on_failure", json!("keep")),
        ("/steps/9/delegate/on_cancel", json!("finish")),
        ("/steps/9/args", json!({})),
    ]
}

/// What to put where in a job that uses everything, to break it.
fn breaks() -> Vec<(&'static str, Value)> {
    vec![
        ("/job", json!("A")),
        ("/job", Value::Null),
        ("/jobs", json!("a")),
        ("/description", json!(5)),
        ("/parallel", json!(0)),
        ("/parallel", json!(1001)),
        ("/parallel", json!("4")),
        ("/budget/calls", json!(-1)),
        ("/budget/money", json!(1)),
        ("/input", json!(["q"])),
        ("/input/q", json!("text")),
        ("/input/q", json!(5)),
        ("/input/r/type", json!("text")),
        ("/input/r/max", json!(5)),
        ("/input/r/enum", json!([])),
        ("/input/a-b", json!("string")),
        ("/input/in", json!("string")),
        ("/steps", json!([])),
        ("/steps", json!({})),
        ("/steps/0", json!(5)),
        ("/steps/0/id", json!("A")),
        ("/steps/0/id", json!("a/b")),
        ("/steps/0/id", json!("answer")),
        ("/steps/0/id", json!("x".repeat(101))),
        ("/steps/0/tool", json!("a b")),
        ("/steps/0/args", json!([1])),
        ("/steps/0/args", json!("a ${input.q}")),
        ("/steps/0/set", json!(1)),
        ("/steps/0/retry/attempts", json!(0)),
        ("/steps/0/retry/attempts", json!(101)),
        ("/steps/0/retry/backoff", json!(5)),
        ("/steps/0/retry/backoff", json!("5")),
        ("/steps/0/retry/factor", json!(1.5)),
        ("/steps/0/retry/jitter", json!(1)),
        ("/steps/0/timeout", json!("0s")),
        ("/steps/0/timeout", json!(5)),
        ("/steps/0/on_cancel", json!("halt")),
        ("/confirm", json!("loose")),
        ("/steps/1/confirm", json!(true)),
        ("/on_failure", json!("undo")),
        ("/steps/0/compensate", json!("nothing")),
        ("/steps/0/compensate", json!({})),
        ("/steps/0/compensate/tool", json!("a b")),
        ("/steps/0/compensate/args", json!([1])),
        ("/steps/0/compensate/retry", json!({})),
        ("/steps/1/compensate", json!("none")),
        ("/steps/0/needs", json!("two")),
        ("/steps/0/needs", json!([5])),
        ("/steps/0/when", json!(5)),
        ("/steps/0/retries", json!(5)),
        ("/steps/1/timeout", json!("5s")),
        ("/steps/1/args", json!({})),
        ("/steps/1/each", json!([1])),
        ("/steps/2/each", json!(5)),
        ("/steps/4/wait/for", json!("1s")),
        ("/steps/4/wait/until", json!(5)),
        ("/steps/4/wait/signal", json!(5)),
        ("/steps/5/wait/until", json!("soon")),
        ("/steps/6/wait/timeout", json!("1s")),
        ("/steps/6/wait/for", json!("0ms")),
        ("/steps/7/wait/until", json!(-5)),
        ("/steps/7/wait/timeout", json!("1s")),
        ("/steps/8/wait", json!({})),
        ("/steps/8/wait", json!("5s")),
        ("/steps/8/wait/later", json!(1)),
    ]
}

#[test]
fn what_is_broken_in_structure_is_invalid() {
    let schema = schema();
    let ends = [("/priority", json!(-1)), ("/priority", json!(101))];
    for (pointer, value) in breaks().into_iter().chain(breaks_of_delegation()).chain(ends) {
        let mut job = everything();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match job.pointer_mut(parent).unwrap() {
            Value::Object(map) => {
                map.insert(key.to_owned(), value.clone());
            }
            Value::Array(values) => values[key.parse::<usize>().unwrap()] = value.clone(),
            other => panic!("{other} has no parts"),
        }
        assert!(parse("a", &job.to_string()).is_err(), "{pointer} = {value} is read");
        assert!(!schema.is_valid(&job), "{pointer} = {value} is valid");
    }
    for pointer in [
        "/job",
        "/steps",
        "/steps/0/id",
        "/steps/0/tool",
        "/input/r/type",
        "/steps/1/set",
        "/steps/6/wait/for",
    ] {
        let mut job = everything();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        job.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        assert!(parse("a", &job.to_string()).is_err(), "without {pointer} it is read");
        assert!(!schema.is_valid(&job), "without {pointer} it is valid");
    }
}

/// Words by which the reader refuses a structure, not a meaning.
const STRUCTURAL: [&str; 4] = ["unknown key", ", found a", ", found nothing", "must be between"];

/// The pointers of a value and of everything in it.
fn pointers(value: &Value, here: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(value, format!("{here}/{key}"), all);
            }
        }
        Value::Array(values) => {
            for (i, value) in values.iter().enumerate() {
                pointers(value, format!("{here}/{i}"), all);
            }
        }
        _ => {}
    }
    all.push(here);
}

fn anything() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(7),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("a"),
        json!("${input.q}"),
        json!("x ${input.q}"),
        json!("5s"),
        json!("0s"),
        json!("integer"),
        json!("finish"),
        json!("none"),
        json!([]),
        json!(["two"]),
        json!([5]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "for": "1s" }),
        json!({ "attempts": 2 }),
        json!({ "type": "string" }),
        json!({ "calls": 3 }),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn reader_and_schema_agree_on_broken_files(
        places in prop::collection::vec((any::<prop::sample::Index>(), anything(), 0..3_u8), 1..3),
        key in prop::sample::select(vec!["id", "tool", "args", "set", "wait", "each", "when", "timeout", "needs", "compensate", "on_failure", "for", "signal", "until", "type", "default", "job", "x"]),
    ) {
        let mut job = everything();
        for (place, value, how) in places {
            let mut all = Vec::new();
            pointers(&job, String::new(), &mut all);
            let pointer = place.get(&all).clone();
            let (parent, last) = pointer.rsplit_once('/').unwrap_or(("", ""));
            match (how, job.pointer_mut(parent)) {
                (0, Some(Value::Object(map))) => { map.remove(last); }
                (1, Some(Value::Object(map))) => { map.insert(key.to_owned(), value); }
                _ => *job.pointer_mut(&pointer).unwrap() = value,
            }
        }
        let valid = schema().is_valid(&job);
        match parse("a", &job.to_string()) {
            Ok(_) => prop_assert!(valid, "read, and not valid: {}", job),
            Err(problems) => {
                let structural = problems.list.iter().find(|problem| STRUCTURAL.iter().any(|words| problem.message.contains(words)));
                prop_assert!(!valid || structural.is_none(), "valid, and refused: {:?}: {}", structural, job);
            }
        }
    }
}
