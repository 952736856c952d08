//! `gesta signal`: something that a job waits for, or will.

use anyhow::Result;
use clap::Args;
use gesta_core::ids::SignalKey;
use gesta_core::json::Canon;
use gesta_runtime::jobs;
use serde_json::json;

use crate::problem::Problem;
use crate::session::Session;
use crate::{entropy, reference, workshop};

/// Send a signal to a job
#[derive(Debug, Args)]
#[command(after_help = "\
A signal is durable: it waits in the chain until a step waits for its key. The same `--id` twice is
one signal, in a job that has ended too; the same `--id` with another key or payload is refused (exit
code 2).

Examples:
  gesta signal t_4f2a approved
  gesta signal t_4f2a approved --payload '{\"by\":\"ada\"}' --id mail-7")]
pub(crate) struct Arguments {
    /// The job; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
    /// The key that the job waits on
    key: SignalKey,
    /// What it carries
    #[arg(long, value_name = "JSON", default_value = "null")]
    payload: String,
    /// Record no more of what it carries than a commitment
    #[arg(long)]
    sensitive: bool,
    /// The sender's own id of this signal [default: one that is drawn]
    #[arg(long, value_name = "ID")]
    id: Option<SignalKey>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Arguments { key, payload, .. } = arguments;
    let payload = Canon::parse(payload.as_bytes()).map_err(|error| {
        Problem::new(format!("the payload is not JSON: {error}"))
            .hint("quote it for the shell: --payload '{\"by\":\"ada\"}'")
            .bad_input()
    })?;
    let id = match &arguments.id {
        Some(id) => id.clone(),
        None => format!("cli-{}{}", entropy::suffix()?, entropy::suffix()?).parse()?,
    };
    let store = session.store()?;
    let trajectory = session.wait(reference::trajectory(&store, &arguments.trajectory))?;
    session.wait(reference::is_job(&store, trajectory))?;
    let by = workshop::operator()?;
    let sent = (id.clone(), key.clone());
    let now = Session::now();
    let new = if arguments.sensitive {
        let vault = session.vault(&store)?;
        let sending = jobs::signal_sensitive(&store, &vault, trajectory, &by, sent, &payload, now);
        session.wait(sending)?
    } else {
        session.wait(jobs::signal(&store, trajectory, &by, sent, &payload, now))?
    };
    if session.out.is_json() {
        let told = json!({ "trajectory": trajectory, "key": key, "id": id, "new": new });
        session.out.document(&told)?;
    } else if new {
        session.out.line(format!("sent `{key}` ({id}) to {trajectory}"))?;
    } else {
        session.out.line(format!("{trajectory} has the signal {id} already"))?;
    }
    Ok(0)
}
