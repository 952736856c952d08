//! `gesta help`: of commands, and of codes.

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use gesta_core::codes::{self, Code, Kind};
use serde_json::json;

use crate::args;
use crate::problem::Problem;
use crate::session::Session;
use crate::table;

/// Explain a command or a code
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta help keys add
  gesta help tool_frozen
  gesta help codes")]
pub(crate) struct Arguments {
    /// A command, a code as entries and reports have it, or `codes` for all of them
    #[arg(value_name = "COMMAND|CODE")]
    what: Vec<String>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let mut command = args::Arguments::command();
    command.build();
    let words: Vec<&str> = arguments.what.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["codes"] => list(session)?,
        [code] if codes::find(code).is_some() => explain(session, codes::find(code))?,
        words => {
            let mut found = &mut command;
            for word in words {
                found = found.find_subcommand_mut(word).ok_or_else(|| {
                    Problem::new(format!("there is no command and no code `{word}`"))
                        .hint("`gesta help` lists the commands, `gesta help codes` the codes")
                        .bad_input()
                })?;
            }
            let help = found.render_long_help();
            session.out.text(&help.ansi().to_string())?;
        }
    }
    Ok(0)
}

fn explain(session: &mut Session, code: Option<&Code>) -> Result<()> {
    let Some(Code { code, kind, means, remedy }) = code else { return Ok(()) };
    if session.out.is_json() {
        let kind = kind.as_str();
        let document = json!({ "code": code, "kind": kind, "means": means, "remedy": remedy });
        return session.out.document(&document);
    }
    session.out.line(*code)?;
    session.out.line(format!("  where  {}", kind.as_str()))?;
    session.out.line(format!("  means  {means}"))?;
    Ok(session.out.line(format!("  do     {remedy}"))?)
}

fn list(session: &mut Session) -> Result<()> {
    if session.out.is_json() {
        for Code { code, kind, means, remedy } in codes::ALL {
            let kind = kind.as_str();
            let line = json!({ "code": code, "kind": kind, "means": means, "remedy": remedy });
            session.out.json_line(&line)?;
        }
        return Ok(());
    }
    for (i, kind) in Kind::ALL.into_iter().enumerate() {
        let rows: Vec<_> = codes::ALL
            .iter()
            .filter(|code| code.kind == kind)
            .map(|code| [code.code.to_owned(), code.means.to_owned()])
            .collect();
        if i > 0 {
            session.out.line("")?;
        }
        for line in table::lines([kind.as_str(), ""], &rows) {
            session.out.line(line)?;
        }
    }
    Ok(())
}
