//! `gesta demo`: what Gesta does, shown on a throw-away store.

mod ledger;
mod story;
mod tamper;
mod teller;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::session::Session;

/// See what Gesta does, on a throw-away store
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gesta demo ledger\n  gesta demo ledger --keep /tmp/demo")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(Debug, Subcommand)]
enum Demo {
    /// Write every kind of entry, verify, change one byte, verify again
    #[command(after_help = "Examples:\n  gesta demo ledger\n  gesta demo ledger --keep /tmp/demo")]
    Ledger {
        /// Keep the workspace in this directory, to try other commands on it
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> anyhow::Result<u8> {
    match &arguments.demo {
        Demo::Ledger { keep } => ledger::run(session, keep.as_deref()),
    }
}
