//! `gesta cancel`: asks a job to stop.

use anyhow::Result;
use clap::Args;
use gesta_runtime::jobs::{self, Cancelled};
use serde_json::json;

use crate::problem::Problem;
use crate::session::Session;
use crate::{reference, workshop};

/// Ask a job to stop
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing new is begun; calls that are under way end first, unless their step says `on_cancel: stop`.
What was done stays done, unless `--compensate` is given: then everything that can be undone is, newest
first, each undo a call with its own permit and receipt. Asking twice is asking once, in a job that has
stopped too, and the first to ask has decided about undoing.

Examples:
  gesta cancel t_4f2a
  gesta cancel t_4f2a --compensate
  gesta cancel t_4f2a --reason 'the customer called'")]
pub(crate) struct Arguments {
    /// The job; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
    /// Undo what was done, newest first, as far as it can be
    #[arg(long)]
    compensate: bool,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "asked for by an operator")]
    reason: String,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store()?;
    let trajectory = session.wait(reference::trajectory(&store, &arguments.trajectory))?;
    session.wait(reference::is_job(&store, trajectory))?;
    let (by, now) = (workshop::operator()?, Session::now());
    let how = (arguments.reason.as_str(), arguments.compensate);
    let asked = session.wait(jobs::cancel(&store, trajectory, &by, how, now))?;
    let compensate = match asked {
        Cancelled::New => arguments.compensate,
        Cancelled::Known { compensate } => compensate,
    };
    if arguments.compensate && !compensate {
        let what = format!("{trajectory} was to stop already, and what it did is not undone");
        return Err(Problem::new(what)
            .hint("whoever asked first asked without `--compensate`; undo it in another job")
            .into());
    }
    if session.out.is_json() {
        let new = asked == Cancelled::New;
        session
            .out
            .document(&json!({ "trajectory": trajectory, "new": new, "compensate": compensate }))?;
        return Ok(0);
    }
    let undone = if compensate { ", and what it did is undone" } else { "" };
    if asked == Cancelled::New {
        session.out.line(format!("{trajectory} is to stop{undone}"))?;
        session.hint("the worker that has it ends it, or `gesta resume` does")?;
    } else {
        session.out.line(format!("{trajectory} was to stop already{undone}"))?;
    }
    Ok(0)
}
