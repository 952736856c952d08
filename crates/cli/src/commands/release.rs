//! `gesta release`: what is held since a restore, and letting it go on.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::projection::Status;
use gesta_core::state;
use gesta_core::time::UnixMs;
use gesta_runtime::Facts;
use gesta_store::{Chain, HeldListing, HeldRow, Release, Store};
use serde::Serialize;
use serde_json::json;

use crate::deeds::job_name;
use crate::escape::visible;
use crate::output::counted;
use crate::problem::Problem;
use crate::session::Session;
use crate::{moment, reference, workshop};

/// How many rows are read at a time.
const PAGE: usize = 256;

/// Let trajectories go on that are held since a restore
#[derive(Debug, Args)]
#[command(after_help = "\
Without an id, lists what is held: how far the backup knows each, what was under way then, and which
steps may have been carried out since. Look there before you release anything.

Once released, the first call of each step counts as one that may have been made already. `safe` calls and
reads are made; `keyed` ones are sent under the key that they had, as long as the other side remembers it;
`probe` asks; `never` waits in doubt until `gesta resolve` says what happened. With `--ask` all but reads
wait for you, whatever their tools declare.

Examples:
  gesta release
  gesta release t_4f2a --note 'the ledger shows no charge'
  gesta release --all --ask")]
pub(crate) struct Arguments {
    /// The trajectories; the first digits of an id are enough
    #[arg(value_name = "ID")]
    trajectories: Vec<String>,
    /// Everything that is held
    #[arg(long, conflicts_with = "trajectories")]
    all: bool,
    /// Have every call that may have happened wait for a person
    #[arg(long)]
    ask: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// A trajectory that is held, and what may have happened to it.
#[derive(Serialize)]
pub(crate) struct Held {
    trajectory: TrajectoryId,
    job: Option<String>,
    status: Status,
    epoch: u64,
    copied_at: UnixMs,
    /// The number of its last entry here,
    seq: u64,
    /// and the last that anybody remembers, if that is beyond it.
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<u64>,
    /// Steps whose calls were under way or in doubt.
    open: Vec<StepId>,
    /// Steps that were not begun: each may have been carried out since.
    left: Vec<StepId>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store()?;
    let held = session.wait(held(&store))?;
    if arguments.trajectories.is_empty() && !arguments.all {
        if session.out.is_json() {
            for row in &held {
                session.out.json_line(row)?;
            }
            return Ok(0);
        }
        print(session, &held)?;
        return Ok(0);
    }
    let mut asked = Vec::new();
    for text in &arguments.trajectories {
        let id = session.wait(reference::trajectory(&store, text))?;
        if !held.iter().any(|row| row.trajectory == id) {
            return Err(Problem::new(format!("{id} is not held"))
                .hint("`gesta release` lists what is")
                .into());
        }
        asked.push(id);
    }
    if arguments.all {
        asked.extend(held.iter().map(|row| row.trajectory));
    }
    if asked.is_empty() && !session.out.is_json() {
        session.out.line("nothing is held")?;
    }
    let (by, ask, note) = (workshop::operator()?, arguments.ask, arguments.note.clone());
    let release = Release { at: Session::now(), by, ask, note };
    for trajectory in asked {
        let new = session.wait(store.epochs().let_go(trajectory, &release))?;
        if session.out.is_json() {
            session.out.json_line(
                &json!({ "trajectory": trajectory, "new": new, "by": release.by, "ask": ask }),
            )?;
        } else if new {
            session.out.line(format!("{trajectory} may go on"))?;
        } else {
            session.out.line(format!("{trajectory} was released by somebody else"))?;
        }
    }
    Ok(0)
}

/// Everything that is held.
pub(crate) async fn held(store: &Arc<dyn Store>) -> Result<Vec<Held>> {
    let (mut listing, mut all) = (HeldListing::default(), Vec::new());
    loop {
        let page = store.epochs().held(listing, PAGE).await?;
        for row in &page {
            all.push(one(store, row).await?);
        }
        match page.last() {
            Some(last) if page.len() == PAGE => listing.after = Some(last.trajectory),
            _ => return Ok(all),
        }
    }
}

async fn one(store: &Arc<dyn Store>, row: &HeldRow) -> Result<Held> {
    let chain = Chain::<Facts>::follow(Arc::clone(store), row.trajectory).await?;
    let (state, facts) = (chain.state(), chain.view());
    let mut open = Vec::new();
    for (id, step) in state.steps() {
        let pending = matches!(
            step.status,
            state::Status::Open(_) | state::Status::Unknown { .. } | state::Status::InDoubt { .. }
        );
        if pending {
            open.push(id.clone());
        }
    }
    // The answer is a step that the file does not name.
    let named = facts.plan().filter(|step| step.id.as_str() != gesta_runtime::job::ANSWER);
    let left = named.filter(|step| state.step(&step.id).is_none_or(|step| !step.status.settled()));
    let left = left.map(|step| step.id.clone()).filter(|id| !open.contains(id)).collect();
    let status = state.summary().map_or(Status::Standing, |summary| summary.status);
    Ok(Held {
        trajectory: row.trajectory,
        job: facts.plan().find_map(job_name),
        status,
        epoch: row.epoch,
        copied_at: row.copied_at,
        seq: state.head().map_or(0, |head| head.seq),
        known: row.known,
        open,
        left,
    })
}

/// Tells what is held.
pub(crate) fn print(session: &mut Session, held: &[Held]) -> Result<()> {
    if held.is_empty() {
        session.out.line("nothing is held")?;
        return Ok(());
    }
    session.out.line(format!(
        "{} held:",
        counted(held.len() as u64, "trajectory is", "trajectories are")
    ))?;
    for row in held {
        let name = row.job.as_deref().map(visible).unwrap_or_default();
        session.out.line(format!(
            "  {}  {name}, as of {}",
            row.trajectory,
            moment::utc(row.copied_at)
        ))?;
        if let Some(known) = row.known {
            let more = counted(known.saturating_sub(row.seq), "entry", "entries");
            session.out.line(format!(
                "    the backup ends at entry {}; {more} more are known to have been written",
                row.seq
            ))?;
        }
        for (what, steps) in
            [("under way then:", &row.open), ("may have been carried out since:", &row.left)]
        {
            if !steps.is_empty() {
                let steps: Vec<&str> = steps.iter().map(StepId::as_str).collect();
                session.out.line(format!("    {what} {}", steps.join(", ")))?;
            }
        }
    }
    session.out.line("`gesta release ID` lets one go on, `gesta release --all` everything")?;
    Ok(())
}

/// Refuses what is held.
pub(crate) async fn is_free(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<()> {
    match store.epochs().held_one(trajectory).await? {
        Some(HeldRow { release: None, epoch, .. }) => Err(Problem::new(format!(
            "{trajectory} is held since the store was restored (epoch {epoch})"
        ))
        .hint("`gesta release` shows what may have happened since the backup, and lets it go on")
        .into()),
        _ => Ok(()),
    }
}
