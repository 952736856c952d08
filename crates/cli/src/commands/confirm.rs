//! `gesta confirm`: a person lets a step go on although the world is not as it was left.

use anyhow::Result;
use clap::Args;
use gesta_core::entry::Entry;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_runtime::jobs;
use serde_json::{Value, json};

use crate::confirmations::{self, Verdicts};
use crate::escape::visible;
use crate::live::brief_id;
use crate::session::Session;
use crate::{reference, table, workshop};

/// Let a step go on although the world is not as it was left, or could not be checked
#[derive(Debug, Args)]
#[command(after_help = "\
When a job goes on after a crash or a wait, what it left outside is verified before a step uses it. A
step waits for a person when its mode is `human` and something differs, and when it is not `warn` and
something could not be checked. `gesta doubts` shows what was found. Confirming is on record, with who
did it, and holds until the job changes the resource again; `gesta resume ID` without confirming looks
once more.

`--counts` confirms nothing: it counts what each verifier has found, in one job or in all of the store
that are not archived.

Examples:
  gesta confirm t_4f2a
  gesta confirm t_4f2a charge
  gesta confirm --counts --json")]
pub(crate) struct Arguments {
    /// The job; the first digits of its id are enough
    #[arg(value_name = "ID", required_unless_present = "counts")]
    trajectory: Option<String>,
    /// The step [default: every step of the job that waits for this]
    #[arg(value_name = "STEP")]
    step: Option<StepId>,
    /// Count what verifiers have found, of all jobs if none is named
    #[arg(long, conflicts_with = "step")]
    counts: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Some(trajectory) = &arguments.trajectory else { return counts(session, None) };
    let store = match arguments.counts {
        true => session.store_to_read()?,
        false => session.store()?,
    };
    let trajectory = session.wait(reference::trajectory(&store, trajectory))?;
    session.wait(reference::is_job(&store, trajectory))?;
    if arguments.counts {
        return counts(session, Some(trajectory));
    }
    let (by, now) = (workshop::operator()?, Session::now());
    let step = arguments.step.as_ref();
    let entries = session.wait(jobs::confirm(&store, trajectory, &by, step, now))?;
    let step_of = |entry: &Entry| entry.payload().body.step().cloned();
    if session.out.is_json() {
        let confirmed: Vec<Value> = entries
            .iter()
            .map(|entry| json!({ "step": step_of(entry), "seq": entry.seq(), "entry": entry.id() }))
            .collect();
        session.out.document(&json!({ "trajectory": trajectory, "confirmed": confirmed }))?;
        return Ok(0);
    }
    for entry in &entries {
        let step = step_of(entry).map(|step| step.to_string()).unwrap_or_default();
        session.out.line(format!("{trajectory}/{step} is confirmed in entry {}", entry.seq()))?;
    }
    session.hint(&format!("`gesta resume {}`, or a worker, goes on", brief_id(trajectory)))?;
    Ok(0)
}

/// What each verifier has found, how often.
fn counts(session: &mut Session, trajectory: Option<TrajectoryId>) -> Result<u8> {
    let store = session.store_to_read()?;
    let found = session.wait(confirmations::tally(&store, trajectory))?;
    if session.out.is_json() {
        session.out.document(&found)?;
        return Ok(0);
    }
    let row = |(verifier, of): (&String, &Verdicts)| {
        let Verdicts { ok, mismatch, unknown } = of;
        [visible(verifier), ok.to_string(), mismatch.to_string(), unknown.to_string()]
    };
    let rows: Vec<[String; 4]> = found.verifiers.iter().map(row).collect();
    for line in table::lines(["verifier", "ok", "mismatch", "unknown"], &rows) {
        session.out.line(line)?;
    }
    session.out.line(format!("confirmed by a person: {}", found.by_person))?;
    Ok(0)
}
