//! Changing arguments in a plan that was recorded. What is changed is checked as the job file would be:
//! a job of the changed calls is compiled, in which every other step stands for itself.

use std::collections::BTreeMap;
use std::str::FromStr;

use gesta_core::body::{Plan, PlanStep};
use gesta_core::ids::StepId;
use gesta_core::json::{Canon, JsonError};
use gesta_core::sensitive::Commitment;
use serde_json::{Map, Value, json};

use super::compile::{Tools, load};
use super::problem::{Place, Problem, Problems};
use super::spec::{ANSWER, CallSpec, Spec, Work};

/// What stands for a file in problems.
const LABEL: &str = "--set";

/// A new value for a part of a step's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The step.
    pub step: StepId,
    /// Which part: keys of objects and numbers in lists, from the outside; all of them if empty.
    pub path: Vec<String>,
    /// The value; expressions in it are evaluated as in a job file.
    pub value: Value,
}

impl FromStr for Edit {
    type Err = String;

    /// `STEP.args.PATH=VALUE`, the value in JSON if it is JSON, else as a string.
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("write it as STEP.args.PATH=VALUE, not as `{text}`");
        let (place, value) = text.split_once('=').ok_or_else(shape)?;
        let mut parts = place.split('.');
        let step: StepId = parts.next().and_then(|id| id.parse().ok()).ok_or_else(shape)?;
        if parts.next() != Some("args") {
            return Err(shape());
        }
        let path: Vec<String> = parts.map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(shape());
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Ok(Self { step, path, value })
    }
}

/// The steps of a plan with some arguments changed, each after what it needs.
pub fn edited(
    steps: &[PlanStep],
    edits: &[Edit],
    input: &Canon,
    tools: &dyn Tools,
) -> Result<Vec<PlanStep>, Problems> {
    let unreadable = |error: JsonError| refused(format!("the plan cannot be read: {error}"));
    let mut changed: BTreeMap<&StepId, (Spec, Value)> = BTreeMap::new();
    for edit in edits {
        let known = steps.iter().find(|step| step.id == edit.step);
        let step = known.ok_or_else(|| refused(format!("there is no step `{}`", edit.step)))?;
        if !changed.contains_key(&step.id) {
            let spec = Spec::of(step).map_err(unreadable)?;
            let call = spec.call().ok_or_else(|| no_call(&step.id))?;
            let args = call.args.source().read().map_err(unreadable)?;
            changed.insert(&step.id, (spec, args));
        }
        if let Some((_, args)) = changed.get_mut(&step.id) {
            put(args, &edit.path, edit.value.clone())
                .map_err(|why| refused(format!("cannot change step `{}`: {why}", step.id)))?;
        }
    }
    let checked = check(steps, &changed, input, tools)?;
    let mut all = Vec::with_capacity(steps.len());
    for PlanStep { id, needs, spec: compiled, .. } in checked {
        let Some(step) = steps.iter().find(|step| step.id == id) else { continue };
        let mut step = step.clone();
        if let Some((mut spec, _)) = changed.remove(&id) {
            let compiled: Spec = compiled.read().map_err(unreadable)?;
            if let (Some(call), Some(new)) = (call_of(&mut spec), compiled.call()) {
                call.args = new.args.clone();
            }
            (step.spec, step.needs) = (spec.canon().map_err(unreadable)?, needs);
        }
        all.push(step);
    }
    Ok(all)
}

/// Compiles the changed calls among steps that stand for the others.
fn check(
    steps: &[PlanStep],
    changed: &BTreeMap<&StepId, (Spec, Value)>,
    input: &Canon,
    tools: &dyn Tools,
) -> Result<Vec<PlanStep>, Problems> {
    let mut list = Vec::new();
    for step in steps.iter().filter(|step| step.id.as_str() != ANSWER) {
        let mut entry = Map::new();
        let mut put = |key: &str, value| entry.insert(key.to_owned(), value);
        put("id", json!(step.id));
        put("needs", json!(step.needs));
        match changed.get(&step.id) {
            None => put("set", json!(0)),
            Some((spec, args)) => {
                if let Work::Each { over, .. } = &spec.work {
                    put("each", over.source().read().unwrap_or_default());
                }
                put("tool", json!(spec.call().map(|call| &call.tool)));
                put("args", args.clone())
            }
        };
        list.push(Value::Object(entry));
    }
    let given: Map<String, Value> = input.read().unwrap_or_default();
    let inputs: Map<String, Value> =
        given.iter().map(|(name, value)| (name.clone(), declared(value))).collect();
    let job = json!({ "job": "edited", "input": inputs, "steps": list, "answer": 0 });
    let compiled = load(LABEL, &job.to_string(), tools).map_err(|mut problems| {
        // Nobody has seen this file: its places mean nothing.
        problems.list.iter_mut().for_each(|problem| (problem.line, problem.column) = (0, 0));
        problems
    })?;
    let mut plan: Plan = compiled.plan;
    let answer = steps.iter().find(|step| step.id.as_str() == ANSWER);
    plan.steps.retain(|step| step.id.as_str() != ANSWER);
    plan.steps.extend(answer.cloned());
    Ok(plan.steps)
}

/// An input with some values changed, each of the type that it had: strings as they are, anything else in
/// JSON.
pub fn edited_input(input: &Canon, given: &BTreeMap<String, String>) -> Result<Canon, Problems> {
    let mut values: Map<String, Value> = input.read().unwrap_or_default();
    for (name, text) in given {
        let known = values.get_mut(name);
        let old = known.ok_or_else(|| refused(format!("the job has no input `{name}`")))?;
        if Commitment::read(old).is_some() {
            let why = format!(
                "input `{name}` is sensitive; give a job file whose input is marked, with `--plan`, to change it"
            );
            return Err(refused(why));
        }
        let json = || serde_json::from_str::<Value>(text).ok();
        let new = match &*old {
            Value::String(_) => Some(Value::String(text.clone())),
            Value::Null => Some(json().unwrap_or_else(|| Value::String(text.clone()))),
            old => json().filter(|new| declared(new) == declared(old)),
        };
        let unfit = || format!("input `{name}` was {old}, and `{text}` is not of that type");
        *old = new.ok_or_else(|| refused(unfit()))?;
    }
    Canon::of(&values).map_err(|error| refused(error.to_string()))
}

/// An input that has this value, as a job would declare it.
fn declared(value: &Value) -> Value {
    let type_ = match value {
        Value::Null => return json!({ "type": "string", "default": null }),
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    json!({ "type": type_ })
}

fn call_of(spec: &mut Spec) -> Option<&mut CallSpec> {
    match &mut spec.work {
        Work::Call(call) | Work::Each { call, .. } => Some(call),
        Work::Set { .. } | Work::Wait { .. } | Work::Delegate(_) | Work::Delegates { .. } => None,
    }
}

/// Puts a value where the path leads. What is not there yet is made.
fn put(at: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((key, rest)) = path.split_first() else {
        *at = value;
        return Ok(());
    };
    match at {
        Value::Object(object) => put(object.entry(key).or_insert_with(|| json!({})), rest, value),
        Value::Array(list) => {
            let length = list.len();
            let item = key.parse::<usize>().ok().and_then(|number| list.get_mut(number));
            let item = item.ok_or_else(|| format!("`{key}` is not one of {length} items"))?;
            put(item, rest, value)
        }
        _ => Err(format!("`{key}` is neither in an object nor in a list")),
    }
}

fn no_call(step: &StepId) -> Problems {
    refused(format!("step `{step}` calls no tool, so it has no arguments"))
}

fn refused(message: String) -> Problems {
    Problems::one(LABEL, Problem::new(Place::default(), message))
}
