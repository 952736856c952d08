//! Jobs: the file that a person writes, the plan that it becomes, and the evaluation of the
//! expressions in it.
//!
//! A file is read into a tree that knows its places, then into a draft, then checked as a whole, then
//! compiled into a plan whose steps hold everything that running them needs. Nothing here does I/O,
//! reads a clock or draws a random number: the same file gives the same plan, byte for byte, and the
//! same scope the same values.

mod again;
mod arguments;
mod calls;
mod cel;
mod check;
mod compile;
mod constants;
mod delegate;
mod edit;
mod expr;
mod fields;
mod file;
mod graph;
mod input;
mod located;
mod mermaid;
mod names;
mod problem;
mod scope;
mod sensitive;
mod spec;
mod step;
mod template;
mod tree;

pub(crate) use again::again;
pub use compile::{Compiled, JobFile, ToolType, Tools, load, load_with, parse};
pub use delegate::Files;
pub use edit::{Edit, edited, edited_input};
pub use expr::{Expr, ExprError, test_with};
pub use input::{InputSpec, complete_input, sensitive_input};
pub use mermaid::mermaid;
pub use names::References;
pub use problem::{Problem, Problems};
pub use scope::{EvalError, Results, Scope, StepResult};
pub(crate) use sensitive::looks_into;
pub(crate) use spec::retry;
pub use spec::{
    ANSWER, CallSpec, DelegateSpec, JobFacts, OnCancel, OnFailure, Spec, UndoSpec, Work,
};
pub use template::{Template, evaluate_with};
pub use tree::read_value;

/// The JSON Schema of job files.
pub const SCHEMA: &str = include_str!("../../../../schemas/job.schema.json");
