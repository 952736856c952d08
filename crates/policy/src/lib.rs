//! Policies: what is published, how it is checked against the tools when it is loaded, and how it
//! answers. Cedar evaluates; what Cedar is asked, and in which types, is decided here.
//!
//! Values in, values out: no clock, no files, no randomness.

mod annotations;
mod arguments;
mod askers;
mod compile;
#[cfg(test)]
mod differential;
mod document;
mod error;
mod evaluate;
mod explain;
mod literals;
mod looks;
mod places;
mod schema;

pub use compile::PolicySet;
pub use document::{PolicyDocument, PolicyFile, PolicyType, ToolShape};
pub use error::{PolicyError, Problem};
pub use explain::{explain, verdict};
