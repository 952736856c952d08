//! Where what is recorded and what is derived differ first.

use gesta_core::entry::{Entry, Payload};
use gesta_core::ids::StepId;
use gesta_store::Rehearsed;
use serde::Serialize;
use serde_json::Value;

/// The first thing that did not come out as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// The entry's number.
    pub seq: u64,
    /// Its kind.
    pub kind: String,
    /// Its step, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
    /// Where in the entry, as an RFC 6901 pointer.
    pub pointer: String,
    /// What is recorded there; nothing if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Value>,
    /// What was derived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived: Option<Value>,
    /// What can cause it, for people.
    pub cause: &'static str,
}

impl Divergence {
    /// Compares an entry with what was derived in its place. None if they are the same.
    pub(super) fn between(entry: &Entry, derived: Option<Rehearsed>) -> Option<Box<Self>> {
        let Payload { at, by, body, .. } = entry.payload();
        let (other, cause) = match derived {
            Some(other) if other.body == *body && other.by == *by && other.at == *at => {
                return None;
            }
            Some(other) => (Some(other), None),
            None => (
                None,
                Some(
                    "nothing would have been added here: the plan, or what it rests on, says otherwise",
                ),
            ),
        };
        let recorded: Value = serde_json::from_slice(entry.bytes()).unwrap_or_default();
        let derived = other.and_then(|Rehearsed { at, by, body }| {
            let entry = Entry::new(Payload { at, by, body, ..entry.payload().clone() }).ok()?;
            serde_json::from_slice(entry.bytes()).ok()
        });
        let mut pointer = String::new();
        let kind = |entry: &Value| entry.get("kind").cloned();
        let (recorded, derived) = match &derived {
            Some(derived) if kind(derived) != kind(&recorded) => {
                pointer.push_str("/kind");
                (kind(&recorded), kind(derived))
            }
            Some(derived) => first(&recorded, derived, &mut pointer),
            None => (None, None),
        };
        let cause = cause.unwrap_or_else(|| likely(&pointer));
        Some(Box::new(Self {
            seq: entry.seq(),
            kind: body.kind().to_string(),
            step: body.step().cloned(),
            pointer,
            recorded,
            derived,
            cause,
        }))
    }
}

/// Walks two values to where they differ first.
fn first(one: &Value, other: &Value, pointer: &mut String) -> (Option<Value>, Option<Value>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            // What was asked for tells more than the digests of it that decisions and permits name, and steps more
            // than their hash. Apart from that, what is signed differs before its signature does.
            let tells = |key: &str| matches!(key, "proposal" | "steps" | "task");
            keys.sort_unstable_by_key(|key| (!tells(key), *key));
            keys.dedup();
            for key in keys {
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) if one == other => {}
                    (one, other) => {
                        pointer.push('/');
                        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                        return match (one, other) {
                            (Some(one), Some(other)) => first(one, other, pointer),
                            (one, other) => (one.cloned(), other.cloned()),
                        };
                    }
                }
            }
            (None, None)
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                match (one.get(index), other.get(index)) {
                    (Some(one), Some(other)) if one == other => {}
                    (one, other) => {
                        pointer.push_str(&format!("/{index}"));
                        return match (one, other) {
                            (Some(one), Some(other)) => first(one, other, pointer),
                            (one, other) => (one.cloned(), other.cloned()),
                        };
                    }
                }
            }
            (None, None)
        }
        (one, other) => (Some(one.clone()), Some(other.clone())),
    }
}

/// What can cause a difference at a place.
fn likely(pointer: &str) -> &'static str {
    const CAUSES: [(&str, &str); 18] = [
        (
            "/kind",
            "another kind of entry would have been added: a decision or an outcome comes out otherwise",
        ),
        (
            "/body/proposal/args",
            "an expression gives another value: what it reads was altered, or its meaning has changed between versions",
        ),
        ("/body/proposal", "the plan names another tool or step"),
        (
            "/body/decision/doc/trace",
            "a stage finds something else: policies, tools or registry are not those that the decision names",
        ),
        ("/body/decision", "the decision comes out otherwise on the recorded inputs"),
        ("/body/permit", "the permit grants something else than the tool and its options say"),
        ("/body/delta", "what the tool declares that it changes gives another delta"),
        ("/body/steps", "a job file that says what these steps say compiles to another plan"),
        ("/body/tools", "the plan calls other tools than it says"),
        ("/body/hash", "the plan is named by another hash than that of its steps"),
        ("/body/world", "what was committed until here comes to another world"),
        ("/body/run_hash", "something else was done than what the end says"),
        (
            "/body/mode",
            "the plan, or what is said of the resource where it is declared, leads to something else",
        ),
        ("/body/answer", "what is answered is not what was done, here or in the child's own chain"),
        ("/body/spent", "the child's own chain says that it used something else"),
        ("/body/end", "the child's own chain ends otherwise"),
        ("/body/statement", "it does not follow from what the executor reported"),
        ("/body/retry_at", "the pause before another try is not what the step's seed gives"),
    ];
    CAUSES
        .iter()
        .find(|(place, _)| pointer.starts_with(place))
        .map_or("the entry was written by other rules, or not by Gesta", |(_, cause)| cause)
}
