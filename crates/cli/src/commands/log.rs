//! `gesta log`: the trajectories of a store, or one of them as a timeline.

use std::sync::Arc;

use anstyle::Style;
use anyhow::Result;
use clap::Args;
use gesta_core::ids::TrajectoryId;
use gesta_core::verification::Class;
use gesta_store::{Archived, Listing, Store, TrajectoryRow};
use serde_json::json;

use crate::escape::visible;
use crate::output::counted;
use crate::problem::Problem;
use crate::session::Session;
use crate::sight::{Reveal, Sight};
use crate::timeline::{Line, Timeline, read};
use crate::{moment, reference, table};

/// How many rows or entries are read at a time.
const PAGE: usize = 512;

/// List trajectories, or show one as a timeline
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta log
  gesta log t_4f2a
  gesta log t_4f2a --json | jq 'select(.entry.kind == \"commit\") | .entry.body.step'")]
pub(crate) struct Arguments {
    /// The trajectory; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: Option<String>,
    #[command(flatten)]
    reveal: Reveal,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    match &arguments.trajectory {
        None => list(session, &store)?,
        Some(text) => {
            let trajectory = session.wait(reference::trajectory(&store, text))?;
            if !timeline(session, &store, trajectory, arguments.reveal)? {
                session.out.flush()?;
                return Err(Problem::new(format!("{trajectory} was altered"))
                    .hint(format!("`gesta verify {trajectory}` gives a full report"))
                    .class(Class::Tampered)
                    .into());
            }
        }
    }
    Ok(0)
}

fn list(session: &mut Session, store: &Arc<dyn Store>) -> Result<()> {
    if !session.out.is_json() {
        let rows: Vec<_> = session.wait(crate::chains::all(store))?.iter().map(columns).collect();
        let header = ["id", "kind", "status", "entries", "principal", "begun", "changed"];
        for line in table::lines(header, &rows) {
            session.out.line(line)?;
        }
        return Ok(());
    }
    let mut after = None;
    loop {
        let page = session.wait(store.list(&Listing { after, status: None }, PAGE))?;
        for row in &page {
            let TrajectoryRow { trajectory, head, summary, archived } = row;
            let mut line = json!({
                "trajectory": trajectory,
                "head": head,
                "entries": head.seq + 1,
                "summary": summary,
            });
            if let (Some(archived), Some(line)) = (archived, line.as_object_mut()) {
                let Archived { bundle, sha256, at } = archived;
                let archived = json!({ "bundle": bundle, "sha256": sha256, "at": at });
                line.insert("archived".to_owned(), archived);
            }
            session.out.json_line(&line)?;
        }
        after = page.last().map(|row| row.trajectory);
        if page.len() < PAGE || session.out.is_closed() {
            return Ok(());
        }
    }
}

fn columns(row: &TrajectoryRow) -> [String; 7] {
    let TrajectoryRow { trajectory, head, summary, archived } = row;
    [
        trajectory.to_string(),
        summary.kind.to_string(),
        match archived {
            Some(_) => format!("{}, archived", summary.status),
            None => summary.status.to_string(),
        },
        (head.seq + 1).to_string(),
        visible(summary.principal.as_str()),
        moment::utc(summary.begun_at),
        moment::utc(summary.changed_at),
    ]
}

/// Prints a trajectory. Says whether every entry is what it is stored as.
pub(super) fn timeline(
    session: &mut Session,
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    reveal: Reveal,
) -> Result<bool> {
    let sight = Sight::of(session, store, trajectory, reveal)?;
    if !session.out.is_json() {
        let row = session.wait(store.trajectory(trajectory))?;
        session.out.line(heading(trajectory, row.as_ref()))?;
    }
    let mut timeline = Timeline::default();
    let mut sound = true;
    let mut from = 0;
    loop {
        let page = session.wait(store.entries(trajectory, from, PAGE))?;
        for stored in &page {
            sound &= read(stored).is_ok();
            if session.out.is_json() {
                session.out.json_line(&Line::new(trajectory, stored))?;
            } else {
                for line in timeline.lines(stored, &sight) {
                    session.out.line(line)?;
                }
            }
            from = stored.seq + 1;
        }
        if page.len() < PAGE || session.out.is_closed() {
            return Ok(sound);
        }
    }
}

fn heading(trajectory: TrajectoryId, row: Option<&TrajectoryRow>) -> String {
    let bold = Style::new().bold();
    let mut heading = format!("{bold}{trajectory}{bold:#}");
    if let Some(TrajectoryRow { summary, head, archived, .. }) = row {
        let tenant = summary.tenant.as_ref().map(|tenant| format!(" of {tenant}"));
        heading.push_str(&format!(
            "  {}{}, {}, {}",
            summary.kind,
            tenant.unwrap_or_default(),
            summary.status,
            counted(head.seq + 1, "entry", "entries")
        ));
        if let Some(archived) = archived {
            heading.push_str(&format!(", archived in `{}`", visible(&archived.bundle)));
        }
    }
    heading
}
