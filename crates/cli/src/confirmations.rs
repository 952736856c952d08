//! What verifiers found that a person must confirm, read from the chain; and how often they found what.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use gesta_core::body::{Check, CheckVerdict, Confirmation, ConfirmationMode};
use gesta_core::entry::Body;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::projection::ParkedOn;
use gesta_store::{ParkedRow, Store};
use serde::Serialize;

use crate::chains;
use crate::deeds::job_name;
use crate::doubts::parked;

/// A step that waits for a person to confirm what a verifier found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Unconfirmed {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) job: Option<String>,
    pub(crate) step: StepId,
    pub(crate) mode: ConfirmationMode,
    /// What was found and does not agree.
    pub(crate) checks: Vec<Check>,
    /// The entry that says so.
    pub(crate) seq: u64,
}

/// Every such step of a store, or of one job.
pub(crate) async fn list(
    store: &Arc<dyn Store>,
    trajectory: Option<TrajectoryId>,
) -> Result<Vec<Unconfirmed>> {
    let mut all = Vec::new();
    for row in parked(store, ParkedOn::Confirmation, trajectory).await? {
        all.extend(read(store, &row).await?);
    }
    Ok(all)
}

async fn read(store: &Arc<dyn Store>, row: &ParkedRow) -> Result<Option<Unconfirmed>> {
    let (mut job, mut found) = (None, None);
    chains::walk(store, &[row.trajectory], false, |visited| {
        let Some(entry) = visited.entry else { return Ok(()) };
        match &entry.payload().body {
            Body::Plan(plan) => job = plan.steps.iter().find_map(job_name),
            Body::Confirmation(body) if entry.id() == row.parked.entry => {
                found = Some((body.mode, doubtful(body), entry.seq()));
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    let (trajectory, step) = (row.trajectory, row.parked.step.clone());
    Ok(found.map(|(mode, checks, seq)| Unconfirmed { trajectory, job, step, mode, checks, seq }))
}

fn doubtful(body: &Confirmation) -> Vec<Check> {
    let doubtful = body.checks.iter().filter(|check| check.verdict != CheckVerdict::Ok);
    doubtful.cloned().collect()
}

/// How often verifiers found what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdicts {
    pub(crate) ok: u64,
    pub(crate) mismatch: u64,
    pub(crate) unknown: u64,
}

impl Verdicts {
    fn see(&mut self, check: &Check) {
        let count = match check.verdict {
            CheckVerdict::Ok => &mut self.ok,
            CheckVerdict::Mismatch => &mut self.mismatch,
            CheckVerdict::Unknown => &mut self.unknown,
        };
        *count += 1;
    }
}

/// What each verifier has found, and how often a person confirmed it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) verifiers: BTreeMap<String, Verdicts>,
    pub(crate) by_person: u64,
}

/// That of one job, or of every trajectory that is not archived.
pub(crate) async fn tally(
    store: &Arc<dyn Store>,
    trajectory: Option<TrajectoryId>,
) -> Result<Tally> {
    let asked = match trajectory {
        Some(trajectory) => vec![trajectory],
        None => {
            let rows = chains::all(store).await?.into_iter();
            rows.filter(|row| row.archived.is_none()).map(|row| row.trajectory).collect()
        }
    };
    let mut tally = Tally::default();
    chains::walk(store, &asked, false, |visited| {
        let body = visited.entry.map(|entry| &entry.payload().body);
        let Some(Body::Confirmation(body)) = body else { return Ok(()) };
        tally.by_person += u64::from(body.confirms.is_some());
        for check in &body.checks {
            tally.verifiers.entry(check.verifier.clone()).or_default().see(check);
        }
        Ok(())
    })
    .await?;
    Ok(tally)
}

/// How often verifiers found what in one job, and how often a person confirmed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    #[serde(flatten)]
    verdicts: Verdicts,
    by_person: u64,
}

impl Counts {
    pub(crate) fn see(&mut self, body: &Confirmation) {
        self.by_person += u64::from(body.confirms.is_some());
        for check in &body.checks {
            self.verdicts.see(check);
        }
    }

    /// In words; nothing if nothing was looked at.
    pub(crate) fn told(&self) -> Option<String> {
        let Verdicts { ok, mismatch, unknown } = self.verdicts;
        let parts = [
            (ok, "as it was left"),
            (mismatch, "different"),
            (unknown, "not to be told"),
            (self.by_person, "confirmed by a person"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
