//! The `gesta` command: the composition root. It reads the command line, opens what a command needs
//! and turns results into output and exit codes. What a trajectory may do is decided elsewhere.

mod args;
mod chains;
mod commands;
mod durable;
mod escape;
mod key_file;
mod moment;
mod output;
mod place;
mod problem;
mod reference;
mod registry;
mod session;
mod signatures;
mod table;
mod timeline;
mod workspace;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Arguments;
use crate::session::Session;

fn main() -> ExitCode {
    let Arguments { global, command } = Arguments::parse();
    args::start_logs(&global);
    let colour = global.color;
    match Session::new(global).and_then(|mut session| command.run(&mut session)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(problem::print(&error, colour)),
    }
}
