//! Gesta's build commands, run as `cargo xtask COMMAND`.
//!
//! Each command is one file; [`COMMANDS`] is the only place that lists them. Depends on nothing of
//! the workspace and on almost nothing else, because every other command waits for it to compile.

mod bench;
mod coverage;
mod deps;
mod fuzz;
mod postgres;
mod servers;
mod simulate;
mod soak;
mod test;
mod tidy;
mod tool;
mod vectors;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    Command { name: "test", arguments: "[-- ARGS]", about: "format, tidy, dependencies, clippy, every test on every store, doc tests; ARGS go to the test runner", run: test::run },
    Command { name: "tidy", arguments: "", about: "check the style that rustfmt and clippy cannot see", run: tidy::run },
    Command { name: "deps", arguments: "[--bless]", about: "check layers, licences, sources and the core's allowlist; --bless rewrites the allowlist", run: deps::run },
    Command { name: "postgres", arguments: "[-- CMD ...]", about: "start a throw-away PostgreSQL and stay, or run CMD with its variables set", run: postgres::run },
    Command { name: "servers", arguments: "[-- CMD ...]", about: "install the MCP servers of the tests, and run CMD with their variable set", run: servers::run },
    Command { name: "bench", arguments: "[PART ...] | peers [--rounds N] [--only NAME]", about: "measure against the machine's own limits, as a table; PART: sqlite, postgres, verify, growth, jobs, governance, long, postgres-jobs, claims, policy, replay; peers: the durable steps of others too, which are installed below target/ for it", run: bench::run },
    Command { name: "simulate", arguments: "--seeds N | --seed N", about: "run the simulation for N seeds, or for one", run: simulate::run },
    Command { name: "soak", arguments: "[--minutes N] [--store sqlite|postgres]", about: "64 jobs of 100 steps while a worker dies every second, again and again for N minutes", run: soak::run },
    Command { name: "fuzz", arguments: "[TARGET] [--seconds N]", about: "run libFuzzer on the parsers and the verifier, and keep what it finds; needs nightly and cargo-fuzz", run: fuzz::run },
    Command { name: "coverage", arguments: "[core|replay] [--missing]", about: "which lines the tests run, per crate; fails below 95 % of the core and of replay", run: coverage::run },
    Command { name: "vectors", arguments: "[--check]", about: "write vectors/ again, or compare it with what would be written", run: vectors::run },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match coverage::count().and_then(|()| dispatch(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let root = tool::root();
    std::env::set_current_dir(&root)
        .with_context(|| format!("cannot enter the repository at `{}`", root.display()))?;
    match args.split_first() {
        None => bail!("no command given\n\n{}", help()),
        Some((name, _)) if matches!(name.as_str(), "help" | "--help" | "-h") => {
            println!("{}", help());
            Ok(())
        }
        Some((_, rest)) if rest.first().is_some_and(|arg| arg == "--help" || arg == "-h") => {
            println!("{}", help());
            Ok(())
        }
        Some((name, rest)) => match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => (command.run)(rest),
            None => bail!("no command `{name}`\n\n{}", help()),
        },
    }
}

fn help() -> String {
    let mut text = String::from("Usage: cargo xtask COMMAND\n");
    for Command { name, arguments, about, .. } in COMMANDS {
        let usage = format!("{name} {arguments}");
        text.push_str(&format!("\n  {usage:<24} {about}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        for command in COMMANDS {
            assert!(help().contains(command.name));
        }
    }

    #[test]
    fn an_unknown_command_is_an_error_that_lists_the_known_ones() {
        let error = dispatch(&["tst".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("no command `tst`"), "{error}");
        assert!(error.contains("cargo xtask COMMAND"), "{error}");
    }
}
