//! Evaluates expressions: deterministic, within a bound of work, and never by panicking.
//!
//! Differs from strict CEL in two points, both because JSON does not tell `1` from `1.0`: an integer
//! and a double may be added, and so on; and `has(null.field)` is false rather than an error.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use gesta_core::ids::{ResourceType, StepId};
use regex::{Regex, RegexBuilder};

use super::MAX_WORK;
use super::ast::{Fold, FoldKind, Kind, Node, Operator};
use super::value::{Map, Val};

/// Where names lead. Asked only for what an expression mentions.
pub(in crate::job) trait Names {
    /// The value of a name; none if it means nothing here.
    fn variable(&self, name: &str) -> Result<Option<Val>, String>;
    /// The result of a step.
    fn result(&self, step: &StepId) -> Result<Found, String>;
    /// Whether a step was skipped.
    fn skipped(&self, step: &StepId) -> Result<bool, String>;
    /// The value of a resource; none if there is no such resource.
    fn resource(&self, type_: &ResourceType, id: &str) -> Result<Option<Found>, String>;
    /// The recorded time in milliseconds, where there is one.
    fn now(&self) -> Option<u64>;
    /// The 128 random bits with this number, where there is a seed.
    fn draw(&self, number: u64) -> Option<(u64, u64)>;
}

/// A value, and how many bytes of JSON were read for it.
pub(in crate::job) struct Found {
    pub(in crate::job) value: Val,
    pub(in crate::job) bytes: usize,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::job) enum Fault {
    /// What CEL calls an error: `||`, `&&`, `exists` and `all` may do without the value.
    Error(String),
    /// The bound of work is reached: nothing goes on.
    Exhausted,
}

impl Fault {
    pub(in crate::job) fn error(message: impl Into<String>) -> Self {
        Self::Error(message.into())
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(message) => f.write_str(message),
            Self::Exhausted => {
                f.write_str("this takes too much work; compute it in parts, or in a tool")
            }
        }
    }
}

/// The evaluation of one template: all its expressions share the bound of work and the sequence of
/// random values.
pub(in crate::job) struct Evaluation<'a> {
    names: &'a dyn Names,
    /// Names that macros have bound, the innermost last.
    bound: Vec<(Arc<str>, Val)>,
    patterns: BTreeMap<Arc<str>, Regex>,
    work_left: u64,
    draws: u64,
}

impl<'a> Evaluation<'a> {
    /// An evaluation that begins with the first random value.
    pub(in crate::job) fn new(names: &'a dyn Names) -> Self {
        Self::drawing_from(names, 0)
    }

    /// An evaluation that begins with another random value.
    pub(in crate::job) fn drawing_from(names: &'a dyn Names, draws: u64) -> Self {
        Self { names, bound: Vec::new(), patterns: BTreeMap::new(), work_left: MAX_WORK, draws }
    }

    pub(super) fn spend(&mut self, work: u64) -> Result<(), Fault> {
        match self.work_left.checked_sub(work) {
            Some(left) => self.work_left = left,
            None => {
                self.work_left = 0;
                return Err(Fault::Exhausted);
            }
        }
        Ok(())
    }

    /// Work on text: a unit for every 16 bytes.
    pub(super) fn spend_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.spend(1 + bytes as u64 / 16)
    }

    /// Work on a value that may be a text.
    pub(super) fn spend_text(&mut self, value: &Val) -> Result<(), Fault> {
        match value {
            Val::Text(text) => self.spend_bytes(text.len()),
            _ => Ok(()),
        }
    }

    pub(in crate::job) fn eval(&mut self, node: &Node) -> Result<Val, Fault> {
        self.spend(1)?;
        match &node.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::Name(name) => self.name(name),
            Kind::Select { of, field } => {
                let of = self.eval(of)?;
                self.field(&of, field)?.ok_or_else(|| missing(&of, field))
            }
            Kind::Has { of, field } => {
                let of = self.eval(of)?;
                Ok(Val::Bool(!matches!(of, Val::Null) && self.field(&of, field)?.is_some()))
            }
            Kind::Index { of, index } => {
                let of = self.eval(of)?;
                let index = self.eval(index)?;
                self.index(&of, &index)
            }
            Kind::Not(of) => match self.eval(of)? {
                Val::Bool(value) => Ok(Val::Bool(!value)),
                other => Err(Fault::error(format!("`!` cannot be used on {}", other.type_name()))),
            },
            Kind::Negate(of) => negate(&self.eval(of)?),
            Kind::Binary { operator, left, right } => self.binary(*operator, left, right),
            Kind::Conditional { test, yes, no } => match self.eval(test)? {
                Val::Bool(true) => self.eval(yes),
                Val::Bool(false) => self.eval(no),
                other => Err(not_a_boolean("the condition before `?`", &other)),
            },
            Kind::List(nodes) => {
                let values: Result<Vec<Val>, Fault> =
                    nodes.iter().map(|node| self.eval(node)).collect();
                values.map(Val::list)
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Call { function, args } => {
                let args: Result<Vec<Val>, Fault> = args.iter().map(|arg| self.eval(arg)).collect();
                self.call(*function, &args?)
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn name(&mut self, name: &Arc<str>) -> Result<Val, Fault> {
        if let Some((_, value)) = self.bound.iter().rev().find(|(bound, _)| bound == name) {
            return Ok(value.clone());
        }
        match self.names.variable(name) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(Fault::error(format!("unknown name `{name}`"))),
            Err(error) => Err(Fault::Error(error)),
        }
    }

    /// The field of an object or a handle, if it is there.
    fn field(&mut self, of: &Val, field: &str) -> Result<Option<Val>, Fault> {
        let found = match (of, field) {
            (Val::Map(map), _) => return Ok(map.get(field).cloned()),
            (Val::Steps, _) => return handle(field, Val::Step),
            (Val::World, _) => return handle(field, Val::Resources),
            (Val::Step(step), "result") => self.names.result(step).map(Some),
            (Val::Step(step), "skipped") => {
                let skipped = self.names.skipped(step).map_err(Fault::Error)?;
                return Ok(Some(Val::Bool(skipped)));
            }
            (Val::Step(_), _) => return Ok(None),
            (Val::Resources(type_), _) => self.names.resource(type_, field),
            (other, _) => Err(format!("{} has no field `{field}`", other.type_name())),
        };
        let Some(Found { value, bytes }) = found.map_err(Fault::Error)? else { return Ok(None) };
        self.spend_bytes(bytes)?;
        Ok(Some(value))
    }

    fn index(&mut self, of: &Val, index: &Val) -> Result<Val, Fault> {
        match (of, index) {
            (Val::List(values), Val::Int(_) | Val::Double(_)) => {
                let position = match index {
                    Val::Int(at) => usize::try_from(*at).ok(),
                    Val::Double(at) if *at >= 0.0 && at.fract() == 0.0 => Some(*at as usize),
                    _ => None,
                };
                let value = position.and_then(|at| values.get(at)).cloned();
                value.ok_or_else(|| {
                    Fault::error(format!("a list of {} has nothing at this index", values.len()))
                })
            }
            (_, Val::Text(field)) => self.field(of, field)?.ok_or_else(|| missing(of, field)),
            _ => Err(Fault::error(format!(
                "{} cannot be indexed by {}",
                of.type_name(),
                index.type_name()
            ))),
        }
    }

    fn map(&mut self, entries: &[(Node, Node)]) -> Result<Val, Fault> {
        let mut map = Map::new();
        for (key, value) in entries {
            let Val::Text(key) = self.eval(key)? else {
                return Err(Fault::error("the keys of an object are strings"));
            };
            let value = self.eval(value)?;
            if map.contains_key(&key) {
                return Err(Fault::error(format!("the key `{key}` stands twice in this object")));
            }
            map.insert(key, value);
        }
        Ok(Val::Map(Arc::new(map)))
    }

    fn binary(&mut self, operator: Operator, left: &Node, right: &Node) -> Result<Val, Fault> {
        if matches!(operator, Operator::And | Operator::Or) {
            return self.logical(operator == Operator::Or, left, right).map(Val::Bool);
        }
        let left = self.eval(left)?;
        let right = self.eval(right)?;
        self.spend_text(&left)?;
        let compared = |wanted: fn(Ordering) -> bool| {
            compare(&left, &right).map(|order| Val::Bool(wanted(order)))
        };
        match operator {
            Operator::Equal => self.equal(&left, &right).map(Val::Bool),
            Operator::NotEqual => self.equal(&left, &right).map(|equal| Val::Bool(!equal)),
            Operator::Less => compared(Ordering::is_lt),
            Operator::LessOrEqual => compared(Ordering::is_le),
            Operator::Greater => compared(Ordering::is_gt),
            Operator::GreaterOrEqual => compared(Ordering::is_ge),
            Operator::In => self.contains(&right, &left).map(Val::Bool),
            _ => self.arithmetic(operator, &left, &right),
        }
    }

    /// `&&` and `||`: one side that decides makes up for an error of the other.
    fn logical(&mut self, decisive: bool, left: &Node, right: &Node) -> Result<bool, Fault> {
        let left = self.truth(left);
        if matches!(left, Ok(value) if value == decisive) {
            return Ok(decisive);
        }
        // When no work is left, none is left for this side either, so that it decides nothing.
        match (left, self.truth(right)) {
            (_, Ok(value)) if value == decisive => Ok(decisive),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(value)) => Ok(value),
        }
    }

    fn truth(&mut self, node: &Node) -> Result<bool, Fault> {
        match self.eval(node)? {
            Val::Bool(value) => Ok(value),
            other => Err(not_a_boolean("a condition", &other)),
        }
    }

    fn equal(&mut self, left: &Val, right: &Val) -> Result<bool, Fault> {
        self.spend(1)?;
        Ok(match (left, right) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(left), Val::Bool(right)) => left == right,
            (Val::Int(left), Val::Int(right)) => left == right,
            (Val::Int(_) | Val::Double(_), Val::Int(_) | Val::Double(_)) => {
                numbers(left, right) == Some(Ordering::Equal)
            }
            (Val::Text(left), Val::Text(right)) => {
                self.spend_bytes(left.len().min(right.len()))?;
                left == right
            }
            (Val::List(left), Val::List(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Val::Map(left), Val::Map(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for ((left_key, left), (right_key, right)) in left.iter().zip(right.iter()) {
                    if left_key != right_key || !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                true
            }
            // Two commitments to one value differ, and that two are the same tells something of it.
            (Val::Committed(_) | Val::Steps | Val::Step(_) | Val::World | Val::Resources(_), _)
            | (_, Val::Committed(_) | Val::Steps | Val::Step(_) | Val::World | Val::Resources(_)) =>
            {
                return Err(Fault::error(format!(
                    "cannot compare {} with {}",
                    left.type_name(),
                    right.type_name()
                )));
            }
            _ => false,
        })
    }

    /// `value in of`.
    fn contains(&mut self, of: &Val, value: &Val) -> Result<bool, Fault> {
        match (of, value) {
            (Val::List(values), _) => {
                for each in values.iter() {
                    if self.equal(each, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Val::Map(map), Val::Text(key)) => Ok(map.contains_key(key)),
            (Val::Resources(_), Val::Text(id)) => Ok(self.field(of, id)?.is_some()),
            _ => Err(Fault::error(format!(
                "`in` cannot look for {} in {}",
                value.type_name(),
                of.type_name()
            ))),
        }
    }

    fn arithmetic(&mut self, operator: Operator, left: &Val, right: &Val) -> Result<Val, Fault> {
        match (operator, left, right) {
            (_, Val::Int(left), Val::Int(right)) => integers(operator, *left, *right),
            (Operator::Add, Val::Text(left), Val::Text(right)) => {
                self.spend_bytes(left.len() + right.len())?;
                Ok(Val::text([&**left, &**right].concat()))
            }
            (Operator::Add, Val::List(left), Val::List(right)) => {
                self.spend((left.len() + right.len()) as u64)?;
                Ok(Val::list(left.iter().chain(right.iter()).cloned().collect()))
            }
            _ => match (operator, left.number(), right.number()) {
                (Operator::Add, Some(left), Some(right)) => Ok(Val::Double(left + right)),
                (Operator::Subtract, Some(left), Some(right)) => Ok(Val::Double(left - right)),
                (Operator::Multiply, Some(left), Some(right)) => Ok(Val::Double(left * right)),
                (Operator::Divide, Some(left), Some(right)) => Ok(Val::Double(left / right)),
                _ => Err(Fault::error(format!(
                    "cannot {} {} and {}",
                    verb(operator),
                    left.type_name(),
                    right.type_name()
                ))),
            },
        }
    }

    fn fold(&mut self, fold: &Fold) -> Result<Val, Fault> {
        let over: Vec<Val> = match self.eval(&fold.over)? {
            Val::List(values) => values.to_vec(),
            Val::Map(map) => map.keys().map(|key| Val::Text(Arc::clone(key))).collect(),
            other => {
                return Err(Fault::error(format!(
                    "{} has no elements to go through",
                    other.type_name()
                )));
            }
        };
        self.spend(over.len() as u64)?;
        let depth = self.bound.len();
        let result = self.fold_over(fold, over);
        // An error leaves a name behind, which an `||` further out must not see.
        self.bound.truncate(depth);
        result
    }

    fn fold_over(&mut self, fold: &Fold, over: Vec<Val>) -> Result<Val, Fault> {
        let mut kept = Vec::new();
        let mut found = 0_u64;
        let mut pending = None;
        for value in over {
            self.bound.push((Arc::clone(&fold.name), value.clone()));
            match fold.kind {
                FoldKind::All | FoldKind::Exists => match self.truth(&fold.body) {
                    Ok(truth) if truth == (fold.kind == FoldKind::Exists) => {
                        return Ok(Val::Bool(truth));
                    }
                    Ok(_) => {}
                    Err(Fault::Exhausted) => return Err(Fault::Exhausted),
                    Err(error) => pending = Some(error),
                },
                FoldKind::ExistsOne => found += u64::from(self.truth(&fold.body)?),
                FoldKind::Filter => {
                    if self.truth(&fold.body)? {
                        kept.push(value);
                    }
                }
                FoldKind::Map => {
                    let wanted = match &fold.guard {
                        Some(guard) => self.truth(guard)?,
                        None => true,
                    };
                    if wanted {
                        kept.push(self.eval(&fold.body)?);
                    }
                }
            }
            self.bound.pop();
        }
        match (fold.kind, pending) {
            (_, Some(error)) => Err(error),
            (FoldKind::All, None) => Ok(Val::Bool(true)),
            (FoldKind::Exists, None) => Ok(Val::Bool(false)),
            (FoldKind::ExistsOne, None) => Ok(Val::Bool(found == 1)),
            (FoldKind::Map | FoldKind::Filter, None) => Ok(Val::list(kept)),
        }
    }

    pub(super) fn now(&self) -> Result<Val, Fault> {
        let now = self.names.now().and_then(|ms| i64::try_from(ms).ok());
        now.map(Val::Int).ok_or_else(|| Fault::error("`now` has no meaning here"))
    }

    /// The next 128 random bits.
    pub(super) fn draw(&mut self) -> Result<(u64, u64), Fault> {
        let number = self.draws;
        self.draws += 1;
        self.spend(8)?;
        self.names.draw(number).ok_or_else(|| Fault::error("random values have no meaning here"))
    }

    pub(super) fn matches(&mut self, text: &str, pattern: &Arc<str>) -> Result<bool, Fault> {
        if let Some(regex) = self.patterns.get(pattern) {
            return Ok(regex.is_match(text));
        }
        self.spend(1_000 + 10 * pattern.len() as u64)?;
        let regex = RegexBuilder::new(pattern)
            .size_limit(1 << 18)
            .dfa_size_limit(1 << 18)
            .build()
            .map_err(|_| Fault::error("`matches` cannot read this pattern"))?;
        let found = regex.is_match(text);
        self.patterns.insert(Arc::clone(pattern), regex);
        Ok(found)
    }
}

/// The handle with this name.
fn handle<T: FromStr<Err: Display>>(name: &str, make: fn(T) -> Val) -> Result<Option<Val>, Fault> {
    name.parse().map(|name| Some(make(name))).map_err(|error| Fault::error(format!("{error}")))
}

fn not_a_boolean(what: &str, value: &Val) -> Fault {
    Fault::error(format!("{what} must be true or false, not {}", value.type_name()))
}

/// The error for a field that is not there, with the fields that are.
fn missing(of: &Val, field: &str) -> Fault {
    const SHOWN: usize = 8;
    match of {
        Val::Map(map) if map.is_empty() => {
            Fault::error(format!("no field `{field}`: the object is empty"))
        }
        Val::Map(map) => {
            let mut keys: Vec<String> =
                map.keys().take(SHOWN).map(|key| format!("`{key}`")).collect();
            if map.len() > SHOWN {
                keys.push("…".to_owned());
            }
            Fault::error(format!("no field `{field}`; there are {}", keys.join(", ")))
        }
        Val::Resources(type_) => {
            Fault::error(format!("the world has no `{type_}` with the id `{field}`"))
        }
        Val::Step(step) => {
            Fault::error(format!("step `{step}` has no `{field}`, only `result` and `skipped`"))
        }
        other => Fault::error(format!("{} has no field `{field}`", other.type_name())),
    }
}

fn negate(value: &Val) -> Result<Val, Fault> {
    match value {
        Val::Int(number) => {
            number.checked_neg().map(Val::Int).ok_or_else(|| overflow(Operator::Subtract))
        }
        Val::Double(number) => Ok(Val::Double(-number)),
        other => Err(Fault::error(format!("`-` cannot be used on {}", other.type_name()))),
    }
}

fn compare(left: &Val, right: &Val) -> Result<Ordering, Fault> {
    let order = match (left, right) {
        (Val::Text(left), Val::Text(right)) => Some(left.cmp(right)),
        (Val::Bool(left), Val::Bool(right)) => Some(left.cmp(right)),
        _ => numbers(left, right),
    };
    order.ok_or_else(|| {
        Fault::error(format!("cannot compare {} with {}", left.type_name(), right.type_name()))
    })
}

/// Compares numbers exactly, even where a double cannot hold the integer.
fn numbers(left: &Val, right: &Val) -> Option<Ordering> {
    match (left, right) {
        (Val::Int(left), Val::Int(right)) => Some(left.cmp(right)),
        (Val::Double(left), Val::Double(right)) => left.partial_cmp(right),
        (Val::Int(left), Val::Double(right)) => integer_and_double(*left, *right),
        (Val::Double(left), Val::Int(right)) => {
            integer_and_double(*right, *left).map(Ordering::reverse)
        }
        _ => None,
    }
}

fn integer_and_double(integer: i64, double: f64) -> Option<Ordering> {
    let limit = 9_223_372_036_854_775_808.0;
    if double.is_nan() {
        None
    } else if double >= limit {
        Some(Ordering::Less)
    } else if double < -limit {
        Some(Ordering::Greater)
    } else {
        // In range, so the cast only drops the fraction, which then decides between equals.
        let whole = double.trunc();
        Some(integer.cmp(&(whole as i64)).then(0.0_f64.total_cmp(&(double - whole))))
    }
}

fn integers(operator: Operator, left: i64, right: i64) -> Result<Val, Fault> {
    if right == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
        return Err(Fault::error("division by zero"));
    }
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        Operator::Remainder => left.checked_rem(right),
        _ => None,
    };
    result.map(Val::Int).ok_or_else(|| overflow(operator))
}

fn overflow(operator: Operator) -> Fault {
    Fault::error(format!("integer overflow when trying to {}", verb(operator)))
}

fn verb(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "add",
        Operator::Subtract => "subtract",
        Operator::Multiply => "multiply",
        Operator::Divide => "divide",
        Operator::Remainder => "take the remainder of",
        _ => "compare",
    }
}
