//! `gesta policy check`: whether policies hold against the tools, before anything rests on them.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gesta_policy::{PolicyError, PolicySet, Problem};
use serde_json::{Value, json};

use crate::output::counted;
use crate::policies::{brief, tools_of};
use crate::problem::BAD_INPUT;
use crate::session::Session;

/// Check policies: syntax, names, types of arguments, annotations
#[derive(Debug, Args)]
#[command(after_help = "\
Every problem is told with its place, `FILE:LINE:COLUMN`, on stdout; nothing is published. Arguments
are checked against the schemas of the tools, which are those of the workspace, or those of
`tools.toml` beside the first file if it has none. The exit code is 2 if something is wrong.

Examples:
  gesta policy check
  gesta policy check examples/refund/policy.cedar
  gesta policy check --json | jq '.problems[]'")]
pub(super) struct Arguments {
    /// The files, in place of those that gesta.toml names
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let document = super::written(&arguments.files)?;
    let set = match PolicySet::compile(&document) {
        Ok(set) => set,
        Err(error) => {
            print(session, &error)?;
            return Ok(BAD_INPUT);
        }
    };
    for channel in set.unasked() {
        Session::note(&format!(
            "warning: no policy asks on the channel `{channel}`, to which names are bound under [policy.channels]"
        ));
    }
    let (policies, tools) = (set.policies() as u64, tools_of(&document).count() as u64);
    if session.out.is_json() {
        session.out.document(&json!({
            "ok": true,
            "digest": set.digest(),
            "policies": policies,
            "tools": tools,
        }))?;
        return Ok(0);
    }
    session.out.line(format!(
        "sound: {} for {}, {}",
        counted(policies, "policy", "policies"),
        counted(tools, "tool", "tools"),
        brief(set.digest()),
    ))?;
    Ok(0)
}

fn print(session: &mut Session, error: &PolicyError) -> Result<()> {
    if !session.out.is_json() {
        return Ok(session.out.line(crate::escape::visible_lines(&error.to_string()))?);
    }
    let of = |problem: &Problem| {
        let Problem { file, line, column, policy, message, hint } = problem;
        json!({ "file": file, "line": line, "column": column, "policy": policy, "message": message, "hint": hint })
    };
    let problems: Vec<Value> = error.problems.iter().map(of).collect();
    session.out.document(&json!({ "ok": false, "problems": problems }))
}
