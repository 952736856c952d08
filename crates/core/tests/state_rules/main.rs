//! The rules of the state machine, each stated by hand and violated on its own. `next` and `apply`
//! share their checks, so a rule that is missing from both shows only here.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod again;
mod append;
mod approval;
mod authority;
mod branch;
mod commit;
mod confirmation;
mod delegation;
mod doubt;
mod edit;
mod end;
mod envelope;
mod failure;
mod plan;
mod registry;
mod rollback;
mod scene;
mod start;
mod wait;
