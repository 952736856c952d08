//! What is known of an undo that was refused or failed, laid out from the chain for whoever must decide.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::document::{Certainty, Failing};
use gesta_core::entry::Body;
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::projection::ParkedOn;
use gesta_store::Store;
use serde::Serialize;

use crate::chains;
use crate::deeds::job_name;
use crate::doubts::parked;

/// An undo that waits for a person.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StuckUndo {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) job: Option<String>,
    pub(crate) step: StepId,
    /// The step that is not undone.
    pub(crate) undoes: Option<StepId>,
    /// What was to be called, if that could be told.
    pub(crate) tool: Option<ToolName>,
    pub(crate) args: Option<Canon>,
    /// Whether the undo happened all the same, so that trying again would do it twice.
    pub(crate) happened: bool,
    /// Why it stopped.
    pub(crate) known: Failing,
    /// The entry that says so.
    pub(crate) seq: u64,
}

/// Every stuck undo of a store, or of one job.
pub(crate) async fn list(
    store: &Arc<dyn Store>,
    trajectory: Option<TrajectoryId>,
) -> Result<Vec<StuckUndo>> {
    let mut undos = Vec::new();
    for row in parked(store, ParkedOn::Undo, trajectory).await? {
        undos.push(read(store, row.trajectory, &row.parked.step).await?);
    }
    Ok(undos)
}

async fn read(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    step: &StepId,
) -> Result<StuckUndo> {
    let mut undo = StuckUndo {
        trajectory,
        job: None,
        step: step.clone(),
        undoes: None,
        tool: None,
        args: None,
        happened: false,
        known: Failing { code: String::new(), message: String::new() },
        seq: 0,
    };
    chains::walk(store, &[trajectory], false, |visited| {
        let Some(entry) = visited.entry else { return Ok(()) };
        let seq = entry.seq();
        let proposal = match &entry.payload().body {
            Body::Plan(plan) => {
                undo.job = plan.steps.iter().find_map(job_name);
                None
            }
            Body::Compensation(rollback) => {
                let undone = rollback.undo.iter().map(|undo| &undo.step);
                let of = |undone: &&StepId| undone.undo().is_ok_and(|undo| undo == *step);
                undo.undoes = undone.into_iter().find(of).cloned().or(undo.undoes.take());
                None
            }
            Body::Started(started) => Some(&started.proposal),
            Body::Rejection(rejection) if rejection.proposal.step == *step => {
                let reason = rejection.decision.doc().reason;
                let code = reason.map_or("refused", |reason| reason.as_str()).to_owned();
                let message = "the Guardian refused it".to_owned();
                (undo.known, undo.happened, undo.seq) = (Failing { code, message }, false, seq);
                Some(&rejection.proposal)
            }
            Body::Failure(failure) if failure.step == *step => {
                undo.known = failure.error.clone();
                undo.happened = failure.certainty == Certainty::Happened;
                undo.seq = seq;
                None
            }
            _ => None,
        };
        if let Some(proposal) = proposal.filter(|proposal| proposal.step == *step) {
            undo.tool = Some(proposal.tool.clone());
            undo.args = Some(proposal.args.clone());
        }
        Ok(())
    })
    .await?;
    Ok(undo)
}
