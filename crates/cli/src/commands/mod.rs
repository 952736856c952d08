//! One file a command: its arguments, and what it does.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod show;
pub(crate) mod verify;
