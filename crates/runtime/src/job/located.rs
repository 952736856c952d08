//! Templates and expressions together with where they stand in the file, so that a problem inside an
//! expression is shown at its very character.

use std::sync::Arc;

use super::cel::SyntaxError;
use super::expr::{Expr, ExprError};
use super::fields::expected;
use super::problem::{Place, Problem, enough};
use super::template::{Piece, PieceError, Template, pieces};
use super::tree::{Kind, Node};

/// The text of a file. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(super) struct Source(pub(super) Arc<str>);

impl Source {
    /// Where a byte stands. Costs as much as the text before it: only problems are asked for.
    fn place(&self, byte: usize) -> Place {
        let before = self.0.get(..byte).unwrap_or(&self.0);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Place { line: number(line), column: number(column) }
    }
}

/// An expression in a file.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) expr: Expr,
    origin: Origin,
}

impl Slot {
    /// Where a byte of the expression stands.
    pub(super) fn place(&self, at: usize, source: &Source) -> Place {
        self.origin.place(at, source)
    }
}

/// Where an expression stands.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// From this byte of the file on, as it is.
    Byte(usize),
    /// From this byte of the file on, with escapes or broken lines.
    Near(usize),
    /// Somewhere in the value here.
    Value(Place),
}

impl Origin {
    fn place(self, at: usize, source: &Source) -> Place {
        match self {
            Self::Byte(begins) => source.place(begins + at),
            Self::Near(begins) => source.place(begins),
            Self::Value(place) => place,
        }
    }
}

/// A template in a file.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) template: Template,
    pub(super) node: Node,
    /// The expressions that could be read.
    pub(super) slots: Vec<Slot>,
    /// Whether there are others, each with its problem.
    unread: bool,
}

impl Located {
    /// Reads a template and reports every expression in it that cannot be read.
    pub(super) fn read(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let mut slots = Vec::new();
        walk(node, source, &mut slots, problems);
        let unread = problems.len() > before;
        match node.value().canon() {
            Ok(canon) => Some(Self {
                template: Template::unchecked(canon),
                node: node.clone(),
                slots,
                unread,
            }),
            Err(message) => {
                problems.push(Problem::new(node.place, message));
                None
            }
        }
    }

    /// Whether the template is one expression and nothing else, or might be if it could be read.
    pub(super) fn is_expression(&self) -> bool {
        match (&self.node.kind, self.slots.as_slice()) {
            (Kind::Text(_), []) => self.unread,
            (Kind::Text(text), [slot]) => text
                .strip_prefix("${")
                .and_then(|rest| rest.strip_prefix(slot.expr.source()))
                .is_some_and(|rest| rest == "}"),
            _ => false,
        }
    }
}

fn walk(node: &Node, source: &Source, slots: &mut Vec<Slot>, problems: &mut Vec<Problem>) {
    match &node.kind {
        _ if enough(problems) => {}
        Kind::Text(text) => match pieces(text) {
            Ok(pieces) => {
                let mut finder = Finder::new(node, source);
                for piece in pieces {
                    if let Piece::Expression(expr) = piece {
                        let origin = finder.next(expr.source());
                        slots.push(Slot { expr, origin });
                    }
                }
            }
            Err(PieceError { at, expression, error }) => {
                let mut finder = Finder::new(node, source);
                // The expressions before it are passed over, so that the finder comes to this one.
                for _ in 0..text.get(..at.saturating_sub(2)).map_or(0, opened) {
                    finder.skip();
                }
                problems.push(problem(finder.next(&expression), source, error));
            }
        },
        Kind::List(nodes) => nodes.iter().for_each(|node| walk(node, source, slots, problems)),
        Kind::Map(entries) => {
            for entry in entries {
                if opened(&entry.key) > 0 {
                    let problem =
                        Problem::new(entry.place, "the keys of an object are not computed");
                    problems.push(problem.hint("write the object as one `${{…}}`"));
                }
                walk(&entry.value, source, slots, problems);
            }
        }
        _ => {}
    }
}

/// How many expressions a text opens.
fn opened(text: &str) -> usize {
    text.matches("${").count() - text.matches("$${").count()
}

fn problem(origin: Origin, source: &Source, error: SyntaxError) -> Problem {
    let SyntaxError { at, message, hint } = error;
    Problem { hint, ..Problem::new(origin.place(at, source), message) }
}

/// Finds the expressions of one string in the file, one after the other.
struct Finder<'n> {
    node: &'n Node,
    source: &'n Source,
    from: usize,
}

impl<'n> Finder<'n> {
    fn new(node: &'n Node, source: &'n Source) -> Self {
        Self { node, source, from: node.span.0 }
    }

    fn rest(&self) -> &'n str {
        self.source.0.get(self.from..self.node.span.1).unwrap_or_default()
    }

    /// Moves to behind the next `${` that is one.
    fn skip(&mut self) {
        while let Some(at) = self.rest().find("${") {
            let escaped = self.rest().get(..at).is_some_and(|before| before.ends_with('$'));
            self.from += at + 2;
            if !escaped {
                return;
            }
        }
    }

    /// Where the next expression stands.
    fn next(&mut self, expression: &str) -> Origin {
        self.skip();
        let begins = self.from;
        if begins == self.node.span.0 {
            return Origin::Value(self.node.place);
        }
        if !self.rest().starts_with(expression) {
            return Origin::Near(begins);
        }
        self.from += expression.len();
        Origin::Byte(begins)
    }
}

/// Reads a condition: an expression with or without `${}`, or true or false.
pub(super) fn condition(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Slot> {
    let text = match &node.kind {
        Kind::Bool(true) => "true",
        Kind::Bool(false) => "false",
        Kind::Text(text) => text.trim(),
        _ => {
            problems.push(expected(node, "a condition"));
            return None;
        }
    };
    let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let raw = source.0.get(node.span.0..node.span.1).unwrap_or_default();
    let origin = match raw.find(inner) {
        Some(at) => Origin::Byte(node.span.0 + at),
        None => Origin::Value(node.place),
    };
    match Expr::of(inner) {
        Ok(expr) => Some(Slot { expr, origin }),
        Err(ExprError { at, message, hint, .. }) => {
            problems.push(problem(origin, source, SyntaxError { at, message, hint }));
            None
        }
    }
}
