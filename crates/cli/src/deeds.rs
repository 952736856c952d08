//! What a job has come to, read from its chain: its answer, what it did to the outside, what it cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use gesta_core::amounts::Amounts;
use gesta_core::body::{Origin, PlanStep, Undo};
use gesta_core::content::Content;
use gesta_core::digest::{EntryId, ReceiptId};
use gesta_core::document::{Certainty, Decision, Failing, Outcome, ResolutionVerdict};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use gesta_runtime::job::{ANSWER, Spec};
use gesta_store::Store;
use serde::{Serialize, Serializer};

use crate::chains;
use crate::confirmations::Counts;

/// What is known of one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Known {
    /// It happened.
    Happened,
    /// It happened, and the step failed.
    HappenedAndFailed,
    /// Nobody knows.
    InDoubt,
}

/// What became of undoing a deed, in a job that was rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Undone {
    /// It is undone.
    Done,
    /// It is to be undone, and is not yet.
    Open,
    /// Its undo was given up.
    GivenUp,
    /// Nothing says how it could be undone.
    CannotBe,
}

/// One call that did something to the outside, or may have.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Deed {
    pub(crate) step: StepId,
    pub(crate) tool: ToolName,
    pub(crate) effect: Effect,
    pub(crate) known: Known,
    pub(crate) args: Canon,
    /// What it returned; large results as the reference to their blob.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "plainly")]
    pub(crate) result: Option<Content>,
    /// The signed record of it; a resolution by an operator is its own record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<ReceiptId>,
    /// The entry that says so.
    pub(crate) seq: u64,
    /// The step that it undoes, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undoes: Option<StepId>,
    /// Whether it is undone, in a job that was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undone: Option<Undone>,
}

/// What a job has come to.
#[derive(Default)]
pub(crate) struct Deeds {
    /// The job's name.
    pub(crate) name: Option<String>,
    pub(crate) answer: Option<Content>,
    pub(crate) error: Option<Failing>,
    /// The entry that made the job fail: of the step that failed, else of its end.
    pub(crate) failed_at: Option<u64>,
    pub(crate) deeds: Vec<Deed>,
    /// What everything cost that is settled.
    pub(crate) cost: Amounts,
    /// What verifiers found.
    pub(crate) confirmations: Counts,
    /// The entry of the last refusal that ended a step, and what was decided.
    pub(crate) refused: Option<(u64, Decision)>,
    /// The children that it handed something to.
    children: Vec<TrajectoryId>,
    started: BTreeMap<EntryId, Call>,
    /// The steps that a rollback undoes, by the step that undoes each, and what became of that.
    undos: Option<BTreeMap<StepId, (StepId, Undone)>>,
}

#[derive(Clone)]
struct Call {
    step: StepId,
    tool: ToolName,
    effect: Effect,
    args: Canon,
}

impl Deeds {
    /// Reads a trajectory.
    pub(crate) async fn read(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<Self> {
        let mut deeds = Self::default();
        chains::walk(store, &[trajectory], false, |visited| {
            if let Some(entry) = visited.entry {
                deeds.see(entry);
            }
            Ok(())
        })
        .await?;
        deeds.tell_undone();
        Ok(deeds)
    }

    /// How many calls did something to the outside in its children, and theirs.
    pub(crate) async fn below(&self, store: &Arc<dyn Store>) -> Result<u64> {
        let (mut count, mut queue) = (0, self.children.clone());
        let mut seen = BTreeSet::new();
        while let Some(child) = queue.pop() {
            // A child that was handed over and never begun has no chain.
            if !seen.insert(child) || store.trajectory(child).await?.is_none() {
                continue;
            }
            let deeds = Self::read(store, child).await?;
            count += deeds.deeds.len() as u64;
            queue.extend(&deeds.children);
        }
        Ok(count)
    }

    /// Says of each deed what became of undoing it, once there was a rollback.
    fn tell_undone(&mut self) {
        let Some(undos) = &self.undos else { return };
        for deed in &mut self.deeds {
            deed.undoes = undos.get(&deed.step).map(|(undone, _)| undone.clone());
            if deed.undoes.is_none() {
                let told = undos.values().find(|(undone, _)| *undone == deed.step);
                deed.undone = Some(told.map_or(Undone::CannotBe, |(_, told)| *told));
            }
        }
    }

    fn undo(&mut self, step: &StepId, told: Undone) {
        if let Some((_, undone)) = self.undos.as_mut().and_then(|undos| undos.get_mut(step)) {
            *undone = told;
        }
    }

    fn see(&mut self, entry: &Entry) {
        let seq = entry.seq();
        match &entry.payload().body {
            Body::Plan(plan) => self.name = plan.steps.iter().find_map(job_name),
            Body::Started(started) => {
                let (proposal, permit) = (&started.proposal, started.permit.doc());
                let call = Call {
                    step: proposal.step.clone(),
                    tool: proposal.tool.clone(),
                    effect: permit.effect,
                    args: proposal.args.clone(),
                };
                self.started.insert(entry.id(), call);
            }
            Body::Commit(commit) => {
                self.cost = self.cost.plus(commit.cost);
                self.undo(&commit.step, Undone::Done);
                if let Origin::Effect { receipt, started, .. } = &commit.origin {
                    let result = Some(commit.observation.clone());
                    self.deed(*started, Known::Happened, result, Some(receipt.id()), seq);
                }
            }
            Body::Failure(failure) => {
                self.cost = self.cost.plus(failure.cost);
                if failure.outcome != Outcome::RetryableFailure {
                    self.failed_at.get_or_insert(seq);
                }
                if failure.certainty == Certainty::Happened
                    && let Some(started) = failure.started
                {
                    let receipt = Some(failure.receipt.id());
                    self.deed(started, Known::HappenedAndFailed, None, receipt, seq);
                }
            }
            Body::Rejection(rejection) if rejection.retry_at.is_none() => {
                self.failed_at.get_or_insert(seq);
                self.refused = Some((seq, rejection.decision.doc().clone()));
            }
            Body::InDoubt(doubt) => self.deed(doubt.started, Known::InDoubt, None, None, seq),
            Body::Resolution(resolution) => match &resolution.statement.doc().verdict {
                ResolutionVerdict::Happened(settlement) => {
                    self.cost = self.cost.plus(settlement.cost);
                    self.undo(&resolution.step, Undone::Done);
                    let result = Some(settlement.observation.clone());
                    self.resolved(&resolution.step, Some((Known::Happened, result)), seq);
                }
                ResolutionVerdict::DidNotHappen => self.resolved(&resolution.step, None, seq),
                ResolutionVerdict::GiveUp => {
                    self.failed_at.get_or_insert(seq);
                    self.undo(&resolution.step, Undone::GivenUp);
                }
            },
            Body::LateEffect(late) => {
                self.deed(late.report.doc().started, Known::Happened, None, None, seq);
            }
            Body::Confirmation(confirmation) => self.confirmations.see(confirmation),
            Body::Compensation(rollback) => {
                let undos = rollback.undo.iter().filter_map(to_be_undone);
                self.undos.get_or_insert_default().extend(undos);
            }
            Body::Delegation(delegation) => self.children.push(delegation.child),
            Body::DelegationResult(result) => self.cost = self.cost.plus(result.spent),
            Body::Completed(completed) => self.answer = Some(completed.answer.clone()),
            Body::Failed(stopped) | Body::Cancelled(stopped) => {
                self.error = Some(stopped.error.clone());
                self.failed_at.get_or_insert(seq);
            }
            _ => {}
        }
    }

    fn deed(
        &mut self,
        started: EntryId,
        known: Known,
        result: Option<Content>,
        receipt: Option<ReceiptId>,
        seq: u64,
    ) {
        let Some(Call { step, tool, effect, args }) = self.started.get(&started).cloned() else {
            return;
        };
        if effect > Effect::Read {
            let (undoes, undone) = (None, None);
            self.deeds.push(Deed {
                step,
                tool,
                effect,
                known,
                args,
                result,
                receipt,
                seq,
                undoes,
                undone,
            });
        }
    }

    /// A doubt about a step is over: it is known to have happened, or struck out.
    fn resolved(&mut self, step: &StepId, known: Option<(Known, Option<Content>)>, seq: u64) {
        let doubt = |deed: &Deed| deed.step == *step && deed.known == Known::InDoubt;
        match known {
            None => self.deeds.retain(|deed| !doubt(deed)),
            Some((known, result)) => {
                if let Some(deed) = self.deeds.iter_mut().find(|deed| doubt(deed)) {
                    (deed.known, deed.result, deed.seq) = (known, result, seq);
                }
            }
        }
    }
}

fn plainly<S: Serializer>(content: &Option<Content>, serializer: S) -> Result<S::Ok, S::Error> {
    match content {
        Some(Content::Inline(value)) => value.serialize(serializer),
        other => other.serialize(serializer),
    }
}

/// A commit that a rollback is to undo, by the step that undoes it.
fn to_be_undone(undo: &Undo) -> Option<(StepId, (StepId, Undone))> {
    Some((undo.step.undo().ok()?, (undo.step.clone(), Undone::Open)))
}

/// The name of the job, which stands in the last step of its plan.
pub(crate) fn job_name(step: &PlanStep) -> Option<String> {
    if step.id.as_str() != ANSWER {
        return None;
    }
    Spec::of(step).ok()?.job.map(|job| job.name)
}

/// A value, wherever it is kept.
pub(crate) async fn value(store: &Arc<dyn Store>, content: &Content) -> Result<serde_json::Value> {
    match content {
        Content::Inline(value) => Ok(serde_json::from_str(value.as_str())?),
        Content::Blob(blob) => {
            let bytes = store.blob(blob.sha256).await?;
            let missing = || {
                crate::problem::Problem::new(format!(
                    "the blob `{}` is not in the store",
                    blob.sha256
                ))
                .class(gesta_core::verification::Class::Incomplete)
            };
            Ok(serde_json::from_slice(&bytes.ok_or_else(missing)?)?)
        }
    }
}
