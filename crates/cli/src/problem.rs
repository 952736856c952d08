//! Errors for whoever is at the terminal: what happened, to which thing, what to do, and the exit
//! code that goes with it.

use std::fmt;
use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use gesta_core::verification::Class;
use gesta_runtime::RunError;
use gesta_store::{AppendError, ChainError, StoreError};
use serde_json::json;

use crate::args::Color;
use crate::escape;

const ERROR: u8 = 1;
/// What the user gave was refused: the command line, a job file, tools, arguments.
pub(crate) const BAD_INPUT: u8 = 2;

/// An error with advice.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    hint: Option<String>,
    code: u8,
}

impl Problem {
    /// Something went wrong: lower case, no full stop, what the user typed in backticks.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, code: ERROR }
    }

    /// What the command line was refused for: all that is said of it, without how to do it right.
    pub(crate) fn of_command_line(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let what: Vec<&str> =
            text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:")).collect();
        let what = what.join(" ");
        let what = what.trim().strip_prefix("error: ").unwrap_or(what.trim());
        Self::new(what)
            .hint("`gesta help` lists the commands, `--help` what each takes")
            .bad_input()
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the user gave is at fault: the exit code says so.
    pub(crate) fn bad_input(mut self) -> Self {
        self.code = BAD_INPUT;
        self
    }

    /// The exit code of a verdict instead of plain 1.
    pub(crate) fn class(mut self, class: Class) -> Self {
        self.code = class.exit_code();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

/// Prints an error to stderr and says which exit code it has. Whoever asked for JSON gets a line of it.
pub(crate) fn print(error: &anyhow::Error, color: Color, json: bool) -> u8 {
    let stderr = std::io::stderr();
    let mut stderr = anstream::AutoStream::new(stderr, color.choice(&std::io::stderr()));
    let problem = error.downcast_ref::<Problem>();
    let code = problem.map_or_else(|| code_of(error), |problem| problem.code);
    let hint = problem.and_then(|problem| problem.hint.clone()).or_else(|| advice(error));
    let text = format!("{error:#}");
    // Nobody is left to be told when stderr is gone.
    if json {
        let told = json!({ "error": text, "hint": hint, "exit_code": code });
        let _ = writeln!(stderr, "{}", escape::json(&told.to_string()));
        return code;
    }
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let cyan = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    let _ = writeln!(stderr, "{red}error{red:#}: {}", escape::visible_lines(&text));
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "{cyan}hint{cyan:#}: {}", escape::visible_lines(&hint));
    }
    code
}

/// Advice for errors that bring none.
fn advice(error: &anyhow::Error) -> Option<String> {
    match store_error(error)? {
        StoreError::NoTrajectory(_) => Some("`gesta log` lists the trajectories".to_owned()),
        StoreError::Older { .. } => Some(
            "`gesta doctor --rebuild` does, as whatever writes; an older gesta cannot open it then"
                .to_owned(),
        ),
        StoreError::DamagedBlob(_) => {
            Some("`gesta verify` says what holds and what does not".to_owned())
        }
        StoreError::Archived { trajectory, .. } => Some(format!(
            "put the file back, there or where `to` under [retention] in gesta.toml says; `gesta import FILE` brings all of a bundle back into the store, `gesta archive --restore {trajectory}` this one"
        )),
        _ => None,
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    let unreadable = Class::Unreadable.exit_code();
    if let Some(RunError::OtherJob { .. } | RunError::OtherSignal { .. }) = error.downcast_ref() {
        return BAD_INPUT;
    }
    if let Some(RunError::Forged { class, .. }) = error.downcast_ref::<RunError>() {
        return class.exit_code();
    }
    match chain_error(error) {
        Some(
            ChainError::Altered { .. } | ChainError::Illegal { .. } | ChainError::Damaged { .. },
        ) => return Class::Tampered.exit_code(),
        Some(ChainError::NoSource { .. }) => return Class::Incomplete.exit_code(),
        _ => {}
    }
    match store_error(error) {
        Some(StoreError::Newer { .. } | StoreError::Damaged { .. }) => unreadable,
        Some(StoreError::DamagedBlob(_)) => Class::Tampered.exit_code(),
        Some(StoreError::Archived { .. }) => Class::Incomplete.exit_code(),
        _ => ERROR,
    }
}

/// The chain's own error, however it was wrapped.
fn chain_error(error: &anyhow::Error) -> Option<&ChainError> {
    match error.downcast_ref::<RunError>() {
        Some(RunError::Chain(chain)) => Some(chain),
        _ => error.downcast_ref::<ChainError>(),
    }
}

/// The store's own error, however it was wrapped.
fn store_error(error: &anyhow::Error) -> Option<&StoreError> {
    if let Some(store) = error.downcast_ref::<StoreError>() {
        return Some(store);
    }
    match chain_error(error)? {
        ChainError::Store(store)
        | ChainError::Append(AppendError::Refused(store) | AppendError::Unknown(store)) => {
            Some(store)
        }
        _ => None,
    }
}
