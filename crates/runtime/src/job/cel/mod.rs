//! CEL, the Common Expression Language, over JSON: a parser and an evaluator.
//!
//! Written here because an expression's value is part of what a replay must reproduce and an
//! expression comes from whoever may write a job. The crate `cel` walks maps in random order, bounds
//! neither work nor memory, and overflows the stack of a worker at fifty parentheses; it is the oracle
//! that the tests compare this with. Knows nothing of jobs: names are what [`Names`] says they are.

mod ast;
mod eval;
mod functions;
mod lexer;
mod parser;
mod value;

pub(super) use ast::{Kind, Node};
pub(super) use eval::{Evaluation, Fault, Found, Names};
pub(super) use functions::{Function, plain};
pub(super) use lexer::{SyntaxError, closing_brace};
pub(super) use parser::parse;
pub(super) use value::{Map, Val, reserved};

/// The longest expression, in bytes.
const MAX_SOURCE_BYTES: usize = 4096;

/// How many brackets may be open at once. The parser recurses as deep, with large frames.
const MAX_NESTING: usize = 32;

/// How deep the parts of an expression may lie one in another. The evaluator recurses as deep.
const MAX_DEPTH: usize = 64;

/// How much work one template may do: about a unit for each part of an expression evaluated.
const MAX_WORK: u64 = 2_000_000;
