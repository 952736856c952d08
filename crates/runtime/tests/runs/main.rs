//! Jobs, driven to their end by real workers on a real store, with tools that are functions.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod aftermath;
mod apart;
mod approvals;
mod budget;
mod confirm;
mod diverging;
mod expressions;
mod failing;
mod frozen;
mod given_up;
mod golden;
mod keyed;
mod plain;
mod probed;
mod replay;
#[path = "../scene/mod.rs"]
mod scene;
mod sensitive;
mod spooling;
mod stage;
mod standing;
mod stores;
mod undo;
mod windows;
mod written;
