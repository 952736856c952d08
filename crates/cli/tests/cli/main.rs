//! `gesta` through its front door: the real binary, real files, real databases.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod demo;
mod doctor;
mod errors;
mod export;
mod help;
mod init;
mod keys;
mod log;
#[cfg(feature = "postgres")]
mod postgres;
mod sample;
mod verify;
mod world;
