//! What came into the chain from elsewhere, and what follows from it: a child's end, which its own chain tells;
//! reports of executors, which are on record whole; what verifiers found, under what the plan and the tool say of it.

use gesta_core::amounts::Amounts;
use gesta_core::body::{Confirmation, DelegationResult, InDoubt, Resolution};
use gesta_core::content::Content;
use gesta_core::document::{Certainty, EffectReport, ResolvedBy};
use gesta_core::entry::{Body, Entry};
use gesta_core::signed::Signed;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_store::{ChainError, Rehearsed, StoreError};

use super::{Derived, Scene, compared, nobody, rehearsed, stand_in};
use crate::delegation;
use crate::error::RunError;
use crate::facts::Facts;
use crate::pipeline::How;
use crate::replay::Player;
use crate::turn::Part;

impl Player<'_> {
    /// A child's end is what its chain says. Where that is not at hand, it is taken as it is.
    pub(super) async fn child_ended(
        &mut self,
        entry: &Entry,
        told: &DelegationResult,
    ) -> Result<Derived, RunError> {
        let store = &self.library.store;
        let Some(row) = store.trajectory(told.child).await? else { return Ok(Derived::Given) };
        if row.head.seq < told.head.seq {
            return Ok(Derived::Missing(format!(
                "{} is at hand up to entry {}, and its parent tells of entry {}",
                told.child, row.head.seq, told.head.seq
            )));
        }
        let folded = gesta_store::as_of(store, told.child, told.head.id).await;
        let (child, facts): (State, Facts) = match folded {
            Ok(folded) => folded,
            Err(ChainError::Store(StoreError::Archived { .. })) => return Ok(Derived::Given),
            Err(error) => return Ok(Derived::Missing(format!("{}: {error}", told.child))),
        };
        let step = self.facts.works_for(told.child).cloned();
        let written = match step.filter(|_| child.ended().is_some()) {
            None => None,
            Some(step) => {
                let (by, body) = delegation::ended(&child, &facts, step)?;
                let body = Body::DelegationResult(Box::new(body));
                Some(Rehearsed { by, ..rehearsed(entry, body) })
            }
        };
        Ok(compared(entry, written))
    }

    /// What was found is from outside; of what, by which verifier and what it leads to are not.
    pub(super) async fn confirmed(
        &mut self,
        entry: &Entry,
        found: &Confirmation,
    ) -> Result<Derived, RunError> {
        self.perform(entry, Scene::of(Part::Found(found), entry.payload().at)).await
    }

    pub(super) async fn doubted(
        &mut self,
        entry: &Entry,
        doubt: &InDoubt,
    ) -> Result<Derived, RunError> {
        let InDoubt { known, output, started, step } = doubt;
        let now = entry.payload().at;
        if known.code == "not_sent_again" {
            return self.perform(entry, Scene::of(Part::Work(step), now)).await;
        }
        // A doubt that a report opens it ends as well: the next entry has it.
        if matches!(known.code.as_str(), "reported" | "delta_does_not_apply")
            && let Some(report) = self.reported_next(entry).await?
        {
            return self.perform(entry, Scene::of(Part::Reported(&report), now)).await;
        }
        let how = How::Failed {
            certainty: Certainty::Unknown,
            retryable: false,
            cost: Amounts::default(),
            error: known.clone(),
            retry_after_ms: 0,
            output: *output,
        };
        self.settled(entry, step, (*started, how), None, now).await
    }

    /// The report that ends a doubt, if it does so at once.
    async fn reported_next(&self, doubt: &Entry) -> Result<Option<Signed<EffectReport>>, RunError> {
        let trajectory = self.state.trajectory();
        let next = self.library.store.entries(trajectory, doubt.seq() + 1, 1).await?;
        let Some(stored) = next.first() else { return Ok(None) };
        Ok(match &gesta_store::read_entry(trajectory, stored)?.payload().body {
            Body::Resolution(resolution) if resolution.statement.doc().doubt == doubt.id() => {
                report_of(resolution)
            }
            _ => None,
        })
    }

    /// A doubt that a report has ended. What a probe answered is from outside, like a person's word.
    pub(super) async fn resolved(
        &mut self,
        entry: &Entry,
        resolution: &Resolution,
    ) -> Result<Derived, RunError> {
        let statement = resolution.statement.doc();
        if statement.source != ResolvedBy::Inbox {
            return Ok(Derived::Given);
        }
        match report_of(resolution) {
            Some(report) => self.taken_up(entry, &report, statement.at).await,
            None => Ok(compared(entry, None)),
        }
    }

    /// A report is taken up again. Whoever reached the store first has brought it: that is a fact about then.
    pub(super) async fn taken_up(
        &mut self,
        entry: &Entry,
        report: &Signed<EffectReport>,
        now: UnixMs,
    ) -> Result<Derived, RunError> {
        let Some(desk) = self.desk.clone() else { return Ok(nobody()) };
        stand_in(&desk, &entry.payload().body);
        Ok(match self.play_out(entry, &desk, &Scene::of(Part::Reported(report), now)).await? {
            Ok(written) => {
                let by = entry.payload().by.clone();
                compared(entry, written.map(|written| Rehearsed { by, ..written }))
            }
            Err(why) => Derived::Missing(why),
        })
    }
}

fn report_of(resolution: &Resolution) -> Option<Signed<EffectReport>> {
    match &resolution.statement.doc().evidence {
        Content::Inline(report) => report.read().ok(),
        Content::Blob(_) => None,
    }
}
