//! `gesta` through its front door: the real binary, real files, real databases.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod check;
mod confirm;
mod delegation;
mod demo;
mod doctor;
mod embedded;
mod errors;
mod export;
mod help;
mod init;
mod jobs;
mod keys;
mod log;
mod mcp;
#[cfg(feature = "postgres")]
mod postgres;
mod recovery;
mod run;
mod sample;
mod shop;
mod tools;
mod undo;
mod verify;
mod world;
