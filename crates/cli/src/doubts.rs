//! What is known of a step in doubt, laid out from the chain for whoever must find out.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use gesta_core::body::external_key;
use gesta_core::content::BlobRef;
use gesta_core::digest::EntryId;
use gesta_core::document::{Failing, Recovery};
use gesta_core::entry::Body;
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::projection::{Parked, ParkedOn};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::{ParkedListing, ParkedRow, Store};
use serde::Serialize;

use crate::chains;
use crate::deeds::job_name;

/// How many rows are read at a time.
const PAGE: usize = 512;
/// How much of a tool's output is worth showing, in bytes.
const OUTPUT_SHOWN: usize = 4096;

/// A step of which nobody knows whether it happened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Doubt {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) job: Option<String>,
    pub(crate) step: StepId,
    pub(crate) tool: ToolName,
    pub(crate) args: Canon,
    pub(crate) effect: Effect,
    pub(crate) recovery: Recovery,
    /// The key that the other side was given.
    pub(crate) key: String,
    /// When the call was started,
    pub(crate) started_at: UnixMs,
    /// by which attempt,
    pub(crate) attempt: u64,
    /// and in which entry.
    pub(crate) started_seq: u64,
    /// From when the effect cannot land any more.
    pub(crate) dead_at: UnixMs,
    /// What was seen last.
    pub(crate) known: Failing,
    /// What the tool had said, as text, as much as is worth showing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// What went wrong with this step before that, oldest first.
    pub(crate) before: Vec<Failing>,
    /// The entry that says so.
    pub(crate) seq: u64,
}

/// Every doubt of a store, or of one job.
pub(crate) async fn list(
    store: &Arc<dyn Store>,
    trajectory: Option<TrajectoryId>,
) -> Result<Vec<Doubt>> {
    let mut doubts = Vec::new();
    for row in parked(store, ParkedOn::Doubt, trajectory).await? {
        doubts.extend(read(store, row.trajectory, &row.parked).await?);
    }
    Ok(doubts)
}

/// Every step of a store, or of one job, that is parked on this.
pub(crate) async fn parked(
    store: &Arc<dyn Store>,
    on: ParkedOn,
    trajectory: Option<TrajectoryId>,
) -> Result<Vec<ParkedRow>> {
    let mut rows = Vec::new();
    let mut listing = ParkedListing { on: Some(on), trajectory, after: None };
    loop {
        let page = store.parked(&listing, PAGE).await?;
        listing.after = page.last().map(|row| (row.trajectory, row.parked.step.clone()));
        let full = page.len() == PAGE;
        rows.extend(page);
        if !full {
            return Ok(rows);
        }
    }
}

/// What a chain says of one step.
#[derive(Default)]
struct Seen {
    job: Option<String>,
    started: BTreeMap<EntryId, Doubt>,
    failures: Vec<Failing>,
    doubt: Option<(EntryId, Failing, u64)>,
    output: Option<BlobRef>,
}

/// What is known of a step in doubt.
async fn read(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    parked: &Parked,
) -> Result<Option<Doubt>> {
    let step = &parked.step;
    let mut seen = Seen::default();
    chains::walk(store, &[trajectory], false, |visited| {
        let Some(entry) = visited.entry else { return Ok(()) };
        match &entry.payload().body {
            Body::Plan(plan) => seen.job = plan.steps.iter().find_map(job_name),
            Body::Started(started) if started.proposal.step == *step => {
                let permit = started.permit.doc();
                let doubt = Doubt {
                    trajectory,
                    job: None,
                    step: step.clone(),
                    tool: started.proposal.tool.clone(),
                    args: started.proposal.args.clone(),
                    effect: permit.effect,
                    recovery: permit.recovery,
                    key: external_key(trajectory, step, permit.generation),
                    started_at: entry.payload().at,
                    attempt: permit.attempt,
                    started_seq: entry.seq(),
                    // Earlier than the permit says when its worker was found dead.
                    dead_at: parked.until.unwrap_or(permit.dead_at),
                    known: Failing { code: String::new(), message: String::new() },
                    output: None,
                    before: Vec::new(),
                    seq: 0,
                };
                seen.started.insert(entry.id(), doubt);
            }
            Body::Failure(failure) if failure.step == *step => {
                seen.failures.push(failure.error.clone());
                seen.output = failure.output.or(seen.output);
            }
            Body::InDoubt(doubt) if doubt.step == *step => {
                seen.doubt = Some((doubt.started, doubt.known.clone(), entry.seq()));
                seen.output = doubt.output.or(seen.output);
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    let Seen { job, mut started, failures, doubt, output } = seen;
    let output = match output {
        Some(blob) => store.blob(blob.sha256).await?,
        None => None,
    };
    let output = output.map(|bytes| {
        let shown = bytes.get(..OUTPUT_SHOWN).unwrap_or(&bytes);
        String::from_utf8_lossy(shown).into_owned()
    });
    Ok(doubt.and_then(|(id, known, seq)| {
        let doubt = started.remove(&id)?;
        Some(Doubt { job, known, output, before: failures, seq, ..doubt })
    }))
}
