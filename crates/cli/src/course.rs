//! What each step of a trajectory came to, those that a branch inherited among them.

use std::collections::BTreeMap;

use gesta_core::body::{End, Origin, Proposal};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::document::ResolutionVerdict;
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_store::Follow;
use serde::Serialize;

use crate::deeds::job_name;
use crate::timeline::word;

/// What a step came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Passage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<ToolName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Canon>,
    /// How it stands or ended, in a word or two.
    pub(crate) outcome: String,
    /// What it returned; large results as the reference to their blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Content>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The entry that says so, and whose it is.
    pub(crate) trajectory: Option<TrajectoryId>,
    pub(crate) seq: u64,
    /// Whether a branch took it over as done.
    pub(crate) inherited: bool,
    /// The commit that its result was taken over from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recorded_from: Option<EntryId>,
}

/// A trajectory, step by step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    pub(crate) job: Option<String>,
    /// Where it branched from, if it did.
    pub(crate) source: Option<(TrajectoryId, u64)>,
    pub(crate) steps: BTreeMap<StepId, Passage>,
    /// The steps in the order in which anything happened to them.
    pub(crate) order: Vec<StepId>,
    newest: u64,
}

impl Follow for Course {
    fn follow(&mut self, entry: &Entry) {
        match &entry.payload().body {
            Body::Plan(plan) => self.job = plan.steps.iter().find_map(job_name),
            Body::Branch(branch) => {
                self.source = Some((branch.source, self.newest));
                self.steps.retain(|_, passage| passage.result.is_some());
                self.order.retain(|step| self.steps.contains_key(step));
                self.steps.values_mut().for_each(|passage| passage.inherited = true);
            }
            _ => self.step(entry),
        }
        self.newest = entry.seq();
    }
}

impl Course {
    fn step(&mut self, entry: &Entry) {
        let body = &entry.payload().body;
        let Some(step) = body.step() else { return };
        let Some((outcome, result, error)) = ending(body) else { return };
        if !self.steps.contains_key(step) {
            self.order.push(step.clone());
        }
        let passage = self.steps.entry(step.clone()).or_default();
        if let Some(Proposal { args, tool, .. }) = proposal(body) {
            (passage.tool, passage.args) = (Some(tool.clone()), Some(args.clone()));
        }
        if let Body::Commit(commit) = body
            && let Origin::RecordedFrom { commit, .. } = &commit.origin
        {
            passage.recorded_from = Some(*commit);
        }
        (passage.outcome, passage.result, passage.error) = (outcome, result, error);
        passage.trajectory = Some(entry.payload().trajectory);
        passage.seq = entry.seq();
    }
}

fn proposal(body: &Body) -> Option<&Proposal> {
    match body {
        Body::Started(started) => Some(&started.proposal),
        Body::PendingApproval(pending) => Some(&pending.proposal),
        Body::Rejection(rejection) => Some(&rejection.proposal),
        Body::Commit(commit) => match &commit.origin {
            Origin::RecordedFrom { proposal, .. } => Some(proposal),
            _ => None,
        },
        _ => None,
    }
}

/// What an entry says of how its step stands: in words, with what it returned, or why it failed.
fn ending(body: &Body) -> Option<(String, Option<Content>, Option<String>)> {
    let stands = |how: &str| Some((how.to_owned(), None, None));
    match body {
        Body::Started(_) => stands("open"),
        Body::PendingApproval(_) => stands("pending approval"),
        Body::InDoubt(_) => stands("in doubt"),
        Body::Waiting(_) => stands("waiting"),
        Body::Delegation(_) => stands("delegated"),
        Body::Commit(commit) => {
            let how = match &commit.origin {
                Origin::Skipped => "skipped".to_owned(),
                _ => word(&commit.outcome),
            };
            Some((how, Some(commit.observation.clone()), None))
        }
        Body::Failure(failure) => {
            Some((word(&failure.outcome), None, Some(failure.error.message.clone())))
        }
        Body::Rejection(rejection) if rejection.retry_at.is_some() => stands("held"),
        Body::Rejection(rejection) => {
            Some(("rejected".to_owned(), None, rejection.decision.doc().reason.map(|r| word(&r))))
        }
        Body::Resolution(resolution) => match &resolution.statement.doc().verdict {
            ResolutionVerdict::Happened(settlement) => {
                let how = "side effect committed".to_owned();
                Some((how, Some(settlement.observation.clone()), None))
            }
            ResolutionVerdict::DidNotHappen => stands("did not happen"),
            ResolutionVerdict::GiveUp => stands("given up"),
        },
        Body::DelegationResult(result) => match result.end {
            End::Completed => Some(("pure".to_owned(), Some(result.answer.clone()), None)),
            end => Some((word(&end), None, None)),
        },
        _ => None,
    }
}
