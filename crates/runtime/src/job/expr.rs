//! An expression as it is kept: its source, and the tree that is made of it when it is first needed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use gesta_core::json::Canon;
use gesta_core::world::World;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cel::{self, Evaluation, Fault, Node, SyntaxError, Val};
use super::names::{References, What, mentions};
use super::scope::{EvalError, Given, Looked, Scope};

/// The first random value of a condition. Far from those of arguments: a step that happens only if
/// `random() < 0.1` must not find its arguments below 0.1 as well.
const CONDITION_DRAWS: u64 = 1 << 32;

/// An expression that cannot be used, found without evaluating it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in `{expression}`: {message}{}", .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct ExprError {
    /// The source of the expression.
    pub expression: String,
    /// The byte of the source at which the problem is.
    pub at: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ExprError {
    pub(super) fn new(expression: &str, error: SyntaxError) -> Self {
        let SyntaxError { at, message, hint } = error;
        Self { expression: expression.to_owned(), at, message, hint }
    }
}

/// A CEL expression. Cloning shares the tree; only the source is compared and stored.
#[derive(Clone)]
pub struct Expr {
    source: Arc<str>,
    tree: Arc<OnceLock<Result<Node, SyntaxError>>>,
}

impl Expr {
    /// An expression from its source, which is checked.
    pub fn of(source: &str) -> Result<Self, ExprError> {
        let expr = Self::unchecked(source);
        expr.node()?;
        Ok(expr)
    }

    pub(super) fn unchecked(source: &str) -> Self {
        Self { source: source.into(), tree: Arc::default() }
    }

    /// The source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What it mentions; nothing if it cannot be read.
    pub fn references(&self) -> References {
        let mut references = References::default();
        if let Ok(node) = self.node() {
            references.add(node);
        }
        references
    }

    /// Refuses an expression that cannot be read or that uses other names than these.
    pub fn check(&self, names: &[&str]) -> Result<(), ExprError> {
        let node = self.node()?;
        for mention in mentions(node) {
            let name: &str = match &mention.what {
                What::Input(_) => "input",
                What::Step { .. } | What::BareSteps => "steps",
                What::BareWorld => "world",
                What::Name(name) => name,
            };
            if !names.contains(&name) {
                let error = SyntaxError::new(mention.at, format!("unknown name `{name}`"));
                let known: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let error = error.hint(format!("it may use {}", known.join(" and ")));
                return Err(ExprError::new(&self.source, error));
            }
        }
        Ok(())
    }

    /// Whether it holds. Anything but true and false is an error.
    pub fn test(&self, scope: &Scope<'_>) -> Result<bool, EvalError> {
        self.truth(&mut Evaluation::drawing_from(&Looked::new(scope), CONDITION_DRAWS))
    }

    fn truth(&self, evaluation: &mut Evaluation<'_>) -> Result<bool, EvalError> {
        match self.eval(evaluation)? {
            Val::Bool(value) => Ok(value),
            other => {
                let message =
                    format!("a condition must be true or false, not {}", other.type_name());
                Err(self.failed(message))
            }
        }
    }

    pub(super) fn node(&self) -> Result<&Node, ExprError> {
        let tree = self.tree.get_or_init(|| cel::parse(&self.source));
        tree.as_ref().map_err(|error| ExprError::new(&self.source, error.clone()))
    }

    pub(super) fn eval(&self, evaluation: &mut Evaluation<'_>) -> Result<Val, EvalError> {
        let node = self.node().map_err(|error| self.failed(error.message))?;
        evaluation.eval(node).map_err(|fault: Fault| self.failed(fault.to_string()))
    }

    pub(super) fn failed(&self, message: impl Into<String>) -> EvalError {
        EvalError { expression: self.source.to_string(), message: message.into() }
    }
}

/// Whether an expression over given variables, and perhaps the world, holds. As in
/// [`super::evaluate_with`], there are no steps, no clock and no randomness.
pub fn test_with(
    expr: &Expr,
    vars: &[(&str, &Canon)],
    world: Option<&World>,
) -> Result<bool, EvalError> {
    expr.truth(&mut Evaluation::new(&Given::new(vars, world)))
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expr {}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expr({:?})", self.source)
    }
}

impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|source| Self::unchecked(&source))
    }
}
