//! JSON with expressions in its strings. A string that is one `${…}` becomes the value itself; in
//! one with text around, strings, numbers and booleans are written out; `$${` is `${`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use gesta_core::json::{Canon, JsonError};
use gesta_core::sensitive::COMMIT;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cel::{Evaluation, Map, SyntaxError, Val, closing_brace, plain, reserved};
use super::expr::{Expr, ExprError};
use super::names::References;
use super::scope::{EvalError, Given, Looked, Scope};

/// A template. Cloning shares what was made of it; only the source is compared and stored.
#[derive(Clone)]
pub struct Template {
    source: Canon,
    tree: Arc<OnceLock<Result<Tree, ExprError>>>,
}

/// What a template consists of.
#[derive(Clone, Debug)]
enum Tree {
    /// Nothing in it is computed.
    Fixed(Val),
    Expression(Expr),
    Text(Vec<Piece>),
    List(Vec<Tree>),
    /// In the order of the keys, in which they are evaluated too.
    Map(Vec<(Arc<str>, Tree)>),
}

/// A part of a string.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Plain(String),
    Expression(Expr),
}

/// Why a string is no template: the byte at which an expression begins, its text as far as it is
/// known, and what is wrong inside it.
#[derive(Debug)]
pub(super) struct PieceError {
    pub(super) at: usize,
    pub(super) expression: String,
    pub(super) error: SyntaxError,
}

impl Template {
    /// A template from JSON. Its expressions are checked.
    pub fn of(value: &serde_json::Value) -> Result<Self, ExprError> {
        let source = Canon::of(value).map_err(|error| no_template(&error))?;
        let template = Self::unchecked(source);
        template.tree()?;
        Ok(template)
    }

    pub(super) fn unchecked(source: Canon) -> Self {
        Self { source, tree: Arc::default() }
    }

    /// The JSON that the template is written as.
    pub fn source(&self) -> &Canon {
        &self.source
    }

    /// What its expressions mention; nothing if they cannot be read.
    pub fn references(&self) -> References {
        let mut references = References::default();
        for expr in self.expressions() {
            if let Ok(node) = expr.node() {
                references.add(node);
            }
        }
        references
    }

    /// Refuses a template whose expressions cannot be read or use other names than these.
    pub fn check(&self, names: &[&str]) -> Result<(), ExprError> {
        self.tree()?;
        self.expressions().iter().try_for_each(|expr| expr.check(names))
    }

    /// The value, with every expression evaluated: keys in order, lists from the front.
    pub fn resolve(&self, scope: &Scope<'_>) -> Result<Canon, EvalError> {
        self.canon(&mut Evaluation::new(&Looked::new(scope)))
    }

    fn canon(&self, evaluation: &mut Evaluation<'_>) -> Result<Canon, EvalError> {
        let whole = |message: String| EvalError { expression: self.shown(), message };
        let tree = self
            .tree()
            .map_err(|error| EvalError { expression: error.expression, message: error.message })?;
        match tree {
            Tree::Fixed(_) if !self.source.as_str().contains("$${") => Ok(self.source.clone()),
            _ => resolve(tree, evaluation)?.canon().map_err(whole),
        }
    }

    /// The source, as much as an error can show.
    fn shown(&self) -> String {
        const SHOWN: usize = 80;
        let source = self.source.as_str();
        match source.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", source.get(..end).unwrap_or_default()),
            None => source.to_owned(),
        }
    }

    fn tree(&self) -> Result<&Tree, ExprError> {
        let made = self.tree.get_or_init(|| {
            Val::read(&self.source)
                .map_err(|error| no_template(&error))
                .and_then(|value| tree(&value))
        });
        made.as_ref().map_err(Clone::clone)
    }

    fn expressions(&self) -> Vec<Expr> {
        let mut found = Vec::new();
        if let Ok(tree) = self.tree() {
            collect(tree, &mut found);
        }
        found
    }
}

fn no_template(error: &JsonError) -> ExprError {
    ExprError::new("", SyntaxError::new(0, error.to_string()))
}

/// Evaluates a template over given variables, such as a tool's `args` and `result`. It has no steps,
/// no world, no clock and no randomness.
pub fn evaluate_with(template: &Template, vars: &[(&str, &Canon)]) -> Result<Canon, EvalError> {
    template.canon(&mut Evaluation::new(&Given::new(vars, None)))
}

/// Splits a string into what is written and what is computed.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece>, PieceError> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(after) = rest.strip_prefix("${") {
            let begins = at + 2;
            let failed = |end: usize, error| PieceError {
                at: begins,
                expression: after.get(..end).unwrap_or(after).to_owned(),
                error,
            };
            let end = closing_brace(after).map_err(|error| failed(after.len(), error))?;
            let expr = Expr::unchecked(after.get(..end).unwrap_or_default());
            if let Err(ExprError { at, message, hint, .. }) = expr.node() {
                return Err(failed(end, SyntaxError { at, message, hint }));
            }
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Expression(expr));
            at = begins + end + 1;
        } else if rest.starts_with("$${") {
            plain.push_str("${");
            at += 3;
        } else {
            let c = rest.chars().next().unwrap_or_default();
            plain.push(c);
            at += c.len_utf8();
        }
    }
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Plain(plain));
    }
    Ok(pieces)
}

fn tree(value: &Val) -> Result<Tree, ExprError> {
    Ok(match value {
        Val::Text(text) => {
            let pieces = pieces(text).map_err(|PieceError { expression, error, .. }| {
                ExprError::new(&expression, error)
            })?;
            match pieces.as_slice() {
                [Piece::Plain(text)] => Tree::Fixed(Val::text(text.as_str())),
                [Piece::Expression(expr)] => Tree::Expression(expr.clone()),
                _ => Tree::Text(pieces),
            }
        }
        Val::List(values) => {
            let trees = values.iter().map(tree).collect::<Result<Vec<_>, _>>()?;
            let fixed: Option<Vec<Val>> = trees.iter().map(fixed).collect();
            fixed.map_or(Tree::List(trees), |values| Tree::Fixed(Val::list(values)))
        }
        Val::Committed(_) => return Err(ExprError::new("", SyntaxError::new(0, reserved()))),
        Val::Map(map) if map.contains_key(COMMIT) => {
            return Err(ExprError::new("", SyntaxError::new(0, reserved())));
        }
        Val::Map(map) => {
            let trees = map
                .iter()
                .map(|(key, value)| Ok((Arc::clone(key), tree(value)?)))
                .collect::<Result<Vec<_>, ExprError>>()?;
            let fixed: Option<Map> =
                trees.iter().map(|(key, tree)| Some((Arc::clone(key), fixed(tree)?))).collect();
            fixed.map_or(Tree::Map(trees), |map| Tree::Fixed(Val::Map(Arc::new(map))))
        }
        other => Tree::Fixed(other.clone()),
    })
}

fn fixed(tree: &Tree) -> Option<Val> {
    match tree {
        Tree::Fixed(value) => Some(value.clone()),
        _ => None,
    }
}

fn resolve(tree: &Tree, evaluation: &mut Evaluation<'_>) -> Result<Val, EvalError> {
    Ok(match tree {
        Tree::Fixed(value) => value.clone(),
        Tree::Expression(expr) => expr.eval(evaluation)?,
        Tree::Text(pieces) => {
            let mut text = String::new();
            for piece in pieces {
                match piece {
                    Piece::Plain(plain) => text.push_str(plain),
                    Piece::Expression(expr) => {
                        let value = expr.eval(evaluation)?;
                        let value = plain(&value).map_err(|fault| {
                            expr.failed(format!(
                                "{fault}; write it with `to_json`, or alone as one `${{…}}`"
                            ))
                        })?;
                        text.push_str(&value);
                    }
                }
            }
            Val::text(text)
        }
        Tree::List(trees) => {
            Val::list(trees.iter().map(|tree| resolve(tree, evaluation)).collect::<Result<_, _>>()?)
        }
        Tree::Map(trees) => {
            let mut map = Map::new();
            for (key, tree) in trees {
                map.insert(Arc::clone(key), resolve(tree, evaluation)?);
            }
            Val::Map(Arc::new(map))
        }
    })
}

fn collect(tree: &Tree, found: &mut Vec<Expr>) {
    match tree {
        Tree::Fixed(_) => {}
        Tree::Expression(expr) => found.push(expr.clone()),
        Tree::Text(pieces) => found.extend(pieces.iter().filter_map(|piece| match piece {
            Piece::Plain(_) => None,
            Piece::Expression(expr) => Some(expr.clone()),
        })),
        Tree::List(trees) => trees.iter().for_each(|tree| collect(tree, found)),
        Tree::Map(trees) => trees.iter().for_each(|(_, tree)| collect(tree, found)),
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Template {}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({})", self.source)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Canon::deserialize(deserializer).map(Self::unchecked)
    }
}
