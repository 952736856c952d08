//! One file a command: its arguments, and what it does.

pub(crate) mod budget;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod doubts;
mod dry_run;
pub(crate) mod export;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod notices;
pub(crate) mod resolve;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod signal;
pub(crate) mod submit;
pub(crate) mod tools;
pub(crate) mod verify;
pub(crate) mod worker;
pub(crate) mod workers;
