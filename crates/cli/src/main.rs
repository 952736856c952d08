//! The `gesta` command: the composition root. It reads the command line, opens what a command needs
//! and turns results into output and exit codes. What a trajectory may do is decided elsewhere.

mod approvals;
mod archive;
mod archiving;
mod args;
mod catalogues;
mod chains;
mod commands;
mod confirmations;
mod course;
mod deeds;
mod doubts;
mod driving;
mod dsse;
mod durable;
mod entropy;
mod escape;
mod importing;
mod interrupt;
mod job_file;
mod key_file;
mod live;
mod moment;
mod outcome;
mod output;
mod passphrase;
mod pinning;
mod place;
mod policies;
mod problem;
mod projections;
mod reference;
mod registry;
mod sealing;
mod session;
mod settings;
mod sight;
mod signatures;
mod table;
mod timeline;
mod toolbox;
mod undos;
mod workshop;
mod workspace;
mod writs;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Color, Global, Internal};
use crate::problem::Problem;
use crate::session::Session;

/// Entries are read on several threads and dropped on another, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let first = std::env::args_os().nth(1).unwrap_or_default();
    // The supervisor of a tool must find this process as it was started: no threads, no output.
    if first == toolbox::SUPERVISE {
        return gesta_runtime::tools::supervise();
    }
    if first == commands::tools::UNDER_TEST {
        let Internal { global, command } = Internal::parse();
        return run(global, |session| command.run(session));
    }
    match Arguments::try_parse() {
        Ok(Arguments { global, command }) => run(global, |session| command.run(session)),
        Err(error) if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") => {
            let problem = Problem::of_command_line(&error).into();
            ExitCode::from(problem::print(&problem, Color::Never, true))
        }
        Err(error) => error.exit(),
    }
}

fn run(global: Global, command: impl FnOnce(&mut Session) -> anyhow::Result<u8>) -> ExitCode {
    args::start_logs(&global);
    let (colour, json) = (global.color, global.json);
    match Session::new(global).and_then(|mut session| command(&mut session)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(problem::print(&error, colour, json)),
    }
}
