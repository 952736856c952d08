//! `gesta erase`: destroys the data key of a trajectory's sensitive values, and puts that on record.

use anyhow::Result;
use clap::Args;
use gesta_runtime::{Erasure, erase};
use serde_json::json;

use crate::output::counted;
use crate::session::Session;
use crate::{reference, workshop};

/// Destroy the sensitive values of a trajectory that has ended
#[derive(Debug, Args)]
#[command(after_help = "\
What is destroyed is the key that the values are encrypted under: they are gone from the store, its
backups and every copy of it. The chain, its signatures and its structure still verify, and an entry
says what was destroyed, by whom and why. It cannot be undone. Children and branches share the values
of the trajectory that they come from: `--tree` erases them too, and all of them must have ended.
Asking again finishes what a crash has left.

Examples:
  gesta erase t_4f2a --reason 'the customer asked for it'
  gesta erase t_4f2a --tree --reason 'kept for 90 days'")]
pub(crate) struct Arguments {
    /// The trajectory; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
    /// Its children and branches too
    #[arg(long)]
    tree: bool,
    /// Why, for whoever reads the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store()?;
    let trajectory = session.wait(reference::trajectory(&store, &arguments.trajectory))?;
    let vault = session.vault(&store)?;
    let (by, now) = (workshop::operator()?, Session::now());
    let (what, why) = ((trajectory, arguments.tree), (&by, arguments.reason.as_str()));
    let Erasure { key, entries } = session.wait(erase(&store, &vault, what, why, now))?;
    if session.out.is_json() {
        let entries: Vec<_> = entries
            .iter()
            .map(|(trajectory, seq)| json!({ "trajectory": trajectory, "seq": seq }))
            .collect();
        session.out.document(&json!({ "key": key, "entries": entries }))?;
        return Ok(0);
    }
    let count = counted(entries.len() as u64, "trajectory", "trajectories");
    session
        .out
        .line(format!("erased the sensitive values of {count}: data key {key} is destroyed"))?;
    for (trajectory, seq) in entries {
        session.out.line(format!("  {trajectory}  entry {seq}"))?;
    }
    Ok(0)
}
