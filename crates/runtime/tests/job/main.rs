//! Job files: what is refused and where, the plans they become, and what their expressions come to.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod arguments;
mod constants;
mod expressions;
mod inputs;
mod oracle;
mod plans;
mod problems;
mod properties;
mod schema;
mod setting;
