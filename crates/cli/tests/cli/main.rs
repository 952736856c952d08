//! `gesta` through its front door: the real binary, real files, real databases.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod approvals;
mod archive;
mod backup;
mod branch;
mod budget;
mod c2sp;
mod check;
mod codes;
mod confirm;
mod conformance;
mod copies;
mod delegation;
mod demo;
mod diff;
mod disowned;
mod doctor;
mod embedded;
mod errors;
mod explain;
mod export;
mod forensics;
mod forged;
mod freeze;
mod gateway;
mod help;
#[path = "../shared/http.rs"]
mod http;
mod import;
mod init;
mod jobs;
mod keys;
mod log;
mod mcp;
mod mcp_suite;
mod misbehaving;
mod payments;
mod policy;
#[cfg(feature = "postgres")]
mod postgres;
mod published;
mod quarantine;
#[cfg(unix)]
mod read_only;
mod rebound;
mod receipt;
mod recovery;
mod replay;
mod run;
mod sample;
mod sensitive;
mod shop;
mod told;
mod tools;
mod transparency;
mod undo;
mod verify;
mod world;
mod writs;
