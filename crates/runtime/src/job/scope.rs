//! What an expression can see: the job's input, results of steps, the world, the recorded time and
//! seed. Nothing is read before an expression asks for it; the world is never walked.

use std::cell::RefCell;
use std::collections::BTreeMap;

use gesta_core::digest::{Digest, Seed};
use gesta_core::ids::{ResourceType, StepId};
use gesta_core::json::Canon;
use gesta_core::time::UnixMs;
use gesta_core::world::{ResourceRef, World};

use super::cel::{Found, Names, Val};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in `{expression}`: {message}")]
pub struct EvalError {
    /// The source of the expression.
    pub expression: String,
    /// What went wrong.
    pub message: String,
}

/// Everything that the expressions of a step may look at. The same scope gives the same values.
pub struct Scope<'a> {
    /// The job's input, an object.
    pub input: &'a Canon,
    /// What the steps before came to.
    pub results: &'a dyn Results,
    /// The world.
    pub world: &'a World,
    /// The recorded time, which `now()` returns.
    pub now: UnixMs,
    /// The step's seed, from which `random()`, `random_int()` and `uuid()` draw.
    pub seed: Seed,
    /// The index and the value of `item`, inside a fan-out.
    pub item: Option<(u64, &'a serde_json::Value)>,
}

/// What steps came to.
pub trait Results {
    /// The result of a step that has ended well; none if it has not.
    fn result(&self, step: &StepId) -> Option<StepResult>;
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepResult {
    /// Its result; null if it was skipped.
    pub value: Canon,
    /// Whether its `when` was false.
    pub skipped: bool,
}

/// A scope whose JSON is read when it is first looked at, and once.
pub(super) struct Looked<'a> {
    scope: &'a Scope<'a>,
    input: RefCell<Option<Val>>,
    item: RefCell<Option<Val>>,
    results: RefCell<BTreeMap<StepId, Val>>,
}

impl<'a> Looked<'a> {
    pub(super) fn new(scope: &'a Scope<'a>) -> Self {
        Self {
            scope,
            input: RefCell::default(),
            item: RefCell::default(),
            results: RefCell::default(),
        }
    }

    fn step(&self, step: &StepId) -> Result<StepResult, String> {
        let result = self.scope.results.result(step);
        result.ok_or_else(|| format!("step `{step}` has no result yet"))
    }
}

fn read(canon: &Canon) -> Result<Val, String> {
    Val::read(canon).map_err(|error| error.to_string())
}

fn found(canon: &Canon) -> Result<Found, String> {
    Ok(Found { value: read(canon)?, bytes: canon.len() })
}

fn resource(world: &World, type_: &ResourceType, id: &str) -> Result<Option<Found>, String> {
    let name = ResourceRef { id: id.into(), type_: type_.clone() };
    world.get(&name).map(|resource| found(&resource.value)).transpose()
}

impl Names for Looked<'_> {
    fn variable(&self, name: &str) -> Result<Option<Val>, String> {
        Ok(Some(match (name, self.scope.item) {
            ("steps", _) => Val::Steps,
            ("world", _) => Val::World,
            ("input", _) => {
                let mut input = self.input.borrow_mut();
                match &*input {
                    Some(value) => value.clone(),
                    None => input.insert(read(self.scope.input)?).clone(),
                }
            }
            ("index", Some((index, _))) => Val::Int(i64::try_from(index).unwrap_or(i64::MAX)),
            ("item", Some((_, item))) => {
                self.item.borrow_mut().get_or_insert_with(|| Val::from(item)).clone()
            }
            _ => return Ok(None),
        }))
    }

    fn result(&self, step: &StepId) -> Result<Found, String> {
        if let Some(value) = self.results.borrow().get(step) {
            return Ok(Found { value: value.clone(), bytes: 0 });
        }
        let found = found(&self.step(step)?.value)?;
        self.results.borrow_mut().insert(step.clone(), found.value.clone());
        Ok(found)
    }

    fn skipped(&self, step: &StepId) -> Result<bool, String> {
        Ok(self.step(step)?.skipped)
    }

    fn resource(&self, type_: &ResourceType, id: &str) -> Result<Option<Found>, String> {
        resource(self.scope.world, type_, id)
    }

    fn now(&self) -> Option<u64> {
        Some(self.scope.now.0)
    }

    fn draw(&self, number: u64) -> Option<(u64, u64)> {
        // As text, because a part that is hashed before another must not contain NUL.
        let seed = self.scope.seed.to_string();
        let digest = Digest::of_parts(&[seed.as_bytes(), number.to_string().as_bytes()]);
        let (words, _) = digest.as_bytes().as_chunks::<8>();
        match words {
            [high, low, ..] => Some((u64::from_be_bytes(*high), u64::from_be_bytes(*low))),
            _ => None,
        }
    }
}

/// Variables given one by one, perhaps the world, and nothing else: no steps, clock or randomness.
pub(super) struct Given<'a> {
    vars: &'a [(&'a str, &'a Canon)],
    world: Option<&'a World>,
    read: RefCell<BTreeMap<String, Val>>,
}

impl<'a> Given<'a> {
    pub(super) fn new(vars: &'a [(&'a str, &'a Canon)], world: Option<&'a World>) -> Self {
        Self { vars, world, read: RefCell::default() }
    }
}

impl Names for Given<'_> {
    fn variable(&self, name: &str) -> Result<Option<Val>, String> {
        if let Some(value) = self.read.borrow().get(name) {
            return Ok(Some(value.clone()));
        }
        let Some((_, canon)) = self.vars.iter().find(|(given, _)| *given == name) else {
            return Ok(self.world.filter(|_| name == "world").map(|_| Val::World));
        };
        let value = read(canon)?;
        self.read.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(Some(value))
    }

    fn result(&self, _: &StepId) -> Result<Found, String> {
        Err("there are no steps here".to_owned())
    }

    fn skipped(&self, _: &StepId) -> Result<bool, String> {
        Err("there are no steps here".to_owned())
    }

    fn resource(&self, type_: &ResourceType, id: &str) -> Result<Option<Found>, String> {
        let world = self.world.ok_or("there is no world here")?;
        resource(world, type_, id)
    }

    fn now(&self) -> Option<u64> {
        None
    }

    fn draw(&self, _: u64) -> Option<(u64, u64)> {
        None
    }
}
