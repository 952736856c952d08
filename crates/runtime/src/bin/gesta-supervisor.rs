//! The supervisor of tools that are processes, as a program by itself: for whoever builds on this
//! crate. The `gesta` binary has it as a hidden command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gesta_runtime::tools::supervise()
}
