//! `gesta jobs`: the jobs of a store, how far each is, and what it waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{Tenant, ToolName, TrajectoryId, WorkerId};
use gesta_core::projection::{Parked, ParkedOn, Status, TrajectoryKind};
use gesta_core::state;
use gesta_store::{Chain, Listing, ParkedListing, Store, StoreError, TrajectoryRow, WorkerRow};
use serde::Serialize;

use crate::deeds::job_name;
use crate::escape::visible;
use crate::session::Session;
use crate::{moment, table};

/// How many rows are read at a time.
const PAGE: usize = 512;

/// List jobs: how far each is, and what it waits for
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta jobs
  gesta jobs --status parked
  gesta jobs --archived
  gesta jobs --json | jq 'select(.status == \"failed\") | .trajectory'")]
pub(crate) struct Arguments {
    /// Only those that stand so
    #[arg(long, value_name = "STATUS", value_parser = status_parser())]
    status: Option<Status>,
    /// Those that are archived, too
    #[arg(long)]
    archived: bool,
}

fn status_parser() -> impl clap::builder::TypedValueParser<Value = Status> {
    let words = Status::ALL.iter().filter(|status| **status != Status::Standing);
    PossibleValuesParser::new(words.map(|status| status.as_str()))
        .try_map(|word| Status::from_word(&word).ok_or("no such status"))
}

/// One job.
#[derive(Serialize)]
struct Row {
    trajectory: TrajectoryId,
    job: Option<String>,
    status: Status,
    /// Steps done, of so many; not counted once the job has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<usize>,
    steps: usize,
    parked: Vec<Parked>,
    /// Whether it is to stop and waits for what is under way.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancelling: bool,
    /// The worker that drives it.
    worker: Option<WorkerId>,
    tenant: Option<Tenant>,
    priority: u8,
    /// The tools for which it waits: workers are alive, and each lacks some of its tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacking: Vec<ToolName>,
    /// Whether it is held since the store was restored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    /// The bundle that it is archived in.
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<String>,
    attempt: u64,
    begun_at: u64,
    changed_at: u64,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let rows = session.wait(read(&store, arguments))?;
    if session.out.is_json() {
        for row in &rows {
            session.out.json_line(row)?;
        }
        return Ok(0);
    }
    let now = Session::now();
    let told = Told::of(&rows);
    let columns: Vec<Vec<String>> = rows.iter().map(|row| told.columns(row, now.0)).collect();
    for line in table::lines(told.header(), &columns) {
        session.out.line(line)?;
    }
    Ok(0)
}

async fn read(store: &Arc<dyn Store>, arguments: &Arguments) -> Result<Vec<Row>> {
    let mut parked = all_parked(store).await?;
    let workers = store.workers().await?;
    let mut rows = Vec::new();
    let mut listing = Listing { after: None, status: arguments.status };
    loop {
        let page = store.list(&listing, PAGE).await?;
        let shown = |row: &&TrajectoryRow| arguments.archived || row.archived.is_none();
        let jobs = page.iter().filter(|row| row.summary.kind == TrajectoryKind::Job);
        for row in jobs.filter(shown) {
            let parked = parked.remove(&row.trajectory).unwrap_or_default();
            rows.push(one(store, row, parked, &workers).await?);
        }
        match page.last() {
            Some(last) if page.len() == PAGE => listing.after = Some(last.trajectory),
            _ => break,
        }
    }
    rows.sort_by_key(|row| (row.begun_at, row.trajectory));
    Ok(rows)
}

async fn all_parked(store: &Arc<dyn Store>) -> Result<BTreeMap<TrajectoryId, Vec<Parked>>> {
    let mut all: BTreeMap<TrajectoryId, Vec<Parked>> = BTreeMap::new();
    let mut listing = ParkedListing::default();
    loop {
        let page = store.parked(&listing, PAGE).await?;
        let full = page.len() == PAGE;
        for row in page {
            listing.after = Some((row.trajectory, row.parked.step.clone()));
            all.entry(row.trajectory).or_default().push(row.parked);
        }
        if !full {
            return Ok(all);
        }
    }
}

async fn one(
    store: &Arc<dyn Store>,
    row: &TrajectoryRow,
    parked: Vec<Parked>,
    workers: &[WorkerRow],
) -> Result<Row> {
    let TrajectoryRow { trajectory, summary, archived, .. } = row;
    let beginning = match store.entries(*trajectory, 0, 2).await {
        // What the row says is told even if the bundle is away.
        Err(StoreError::Archived { .. }) => Vec::new(),
        beginning => beginning?,
    };
    let plan = beginning.iter().find_map(|stored| {
        match &Entry::from_bytes(&stored.bytes).ok()?.payload().body {
            Body::Plan(plan) => Some(plan.steps.clone()),
            _ => None,
        }
    });
    let plan = plan.unwrap_or_default();
    let (mut done, mut cancelling, mut worker) = (None, false, None);
    if !summary.status.ended() {
        let chain = Chain::load(Arc::clone(store), *trajectory).await?;
        let is_done = |step: &&state::Step| matches!(step.status, state::Status::Done { .. });
        let steps = plan.iter().filter_map(|step| chain.state().step(&step.id));
        done = Some(steps.filter(is_done).count());
        cancelling = chain.state().cancelling().is_some();
        let drives = |worker: &&WorkerId| workers.iter().any(|alive| alive.worker == **worker);
        let running = summary.status == Status::Running;
        worker = chain.state().owner().filter(|_| running).filter(drives).cloned();
    }
    let waits = worker.is_none() && summary.runnable && !summary.status.ended();
    let lacking = if waits { lacking(&summary.tools, workers) } else { Vec::new() };
    let held = store.epochs().held_one(*trajectory).await?;
    Ok(Row {
        trajectory: *trajectory,
        job: plan.iter().find_map(job_name),
        status: summary.status,
        done,
        // The answer is a step that the file does not name.
        steps: plan.len().saturating_sub(1),
        parked,
        cancelling,
        worker,
        tenant: summary.tenant.clone(),
        priority: summary.priority,
        lacking,
        held: held.is_some_and(|held| held.release.is_none()),
        archived: archived.as_ref().map(|archived| archived.bundle.clone()),
        attempt: summary.attempt,
        begun_at: summary.begun_at.0,
        changed_at: summary.changed_at.0,
    })
}

/// The tools that the best of these workers lacks; none when one of them has them all, or none is alive.
fn lacking(needed: &[ToolName], workers: &[WorkerRow]) -> Vec<ToolName> {
    let lacks = |worker: &WorkerRow| -> Vec<ToolName> {
        needed.iter().filter(|tool| !worker.profile.tools.contains(tool)).cloned().collect()
    };
    workers.iter().map(lacks).min_by_key(Vec::len).unwrap_or_default()
}

/// Which columns are worth their place.
struct Told {
    worker: bool,
    tenant: bool,
    priority: bool,
}

impl Told {
    fn of(rows: &[Row]) -> Self {
        let first = rows.first().map(|row| &row.tenant);
        Self {
            worker: rows.iter().any(|row| row.worker.is_some()),
            tenant: rows.iter().any(|row| Some(&row.tenant) != first),
            priority: rows.iter().any(|row| row.priority > 0),
        }
    }

    fn header(&self) -> Vec<&'static str> {
        let more = [(self.tenant, "tenant"), (self.priority, "priority"), (self.worker, "worker")];
        let more = more.into_iter().filter(|(told, _)| *told).map(|(_, name)| name);
        ["id", "job", "status", "steps", "age"].into_iter().chain(more).collect()
    }

    fn columns(&self, row: &Row, now: u64) -> Vec<String> {
        let steps = match (row.parked.first(), row.done) {
            _ if row.held => "held since a restore".to_owned(),
            (Some(parked), _) => waits(parked, row.parked.len()),
            (None, _) if !row.lacking.is_empty() => {
                let tools: Vec<String> = row.lacking.iter().map(|it| format!("`{it}`")).collect();
                format!("no worker has {}", tools.join(", "))
            }
            (None, Some(done)) => format!("{done} of {}", row.steps),
            (None, None) => row.steps.to_string(),
        };
        let age =
            moment::since(gesta_core::time::UnixMs(row.begun_at), gesta_core::time::UnixMs(now));
        let status = match (row.cancelling, &row.archived) {
            (true, _) => "cancelling".to_owned(),
            (false, Some(_)) => format!("{}, archived", row.status),
            (false, None) => row.status.to_string(),
        };
        let mut columns = vec![
            row.trajectory.to_string(),
            row.job.as_deref().map(visible).unwrap_or_default(),
            status,
            steps,
            age.trim_start_matches('+').to_owned(),
        ];
        let tenant = || row.tenant.as_ref().map(ToString::to_string).unwrap_or_default();
        columns.extend(self.tenant.then(tenant));
        columns.extend(self.priority.then(|| row.priority.to_string()));
        let worker = || row.worker.as_ref().map(ToString::to_string).unwrap_or_default();
        columns.extend(self.worker.then(worker));
        columns
    }
}

/// What the first parked step waits for, and how many more there are.
fn waits(parked: &Parked, count: usize) -> String {
    let what = match (parked.on, &parked.key) {
        (ParkedOn::Wait, Some(key)) => format!("for the signal `{key}`"),
        (ParkedOn::Wait, None) => match parked.until {
            Some(until) => format!("until {}", moment::utc(until)),
            None => "for a time".to_owned(),
        },
        (ParkedOn::Doubt, _) => "in doubt".to_owned(),
        (ParkedOn::Undo, _) => "is stuck".to_owned(),
        (ParkedOn::Confirmation, _) => "is to be confirmed".to_owned(),
        (on, _) => format!("for: {on}"),
    };
    let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    visible(&format!("{} {what}{more}", parked.step))
}
