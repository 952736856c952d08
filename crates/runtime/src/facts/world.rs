//! What calls have made of the world, what verifiers found of it, and what people said.

use std::sync::Arc;

use gesta_core::body::{CheckVerdict, Confirmation, ConfirmationMode};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::document::{ApprovalStatement, Failing};
use gesta_core::entry::Body;
use gesta_core::ids::{StepId, ToolName};
use gesta_core::policy::Evidence;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::world::{Change, Delta, ResourceRef};

use super::{Changed, Facts, Spoken};

impl Facts {
    /// How much was committed since the last checkpoint.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) fn count_commits(&mut self, body: &Body) {
        self.commits = match body {
            Body::Checkpoint(_) => 0,
            Body::Commit(_) => self.commits + 1,
            _ => self.commits,
        };
    }

    /// What approvers have said of a step.
    pub(crate) fn spoken_of(&self, step: &StepId) -> &[Spoken] {
        self.approvals.get(step).map_or(&[], |spoken| spoken.as_slice())
    }

    /// What is committed, by type and by the tool whose receipt says so.
    pub fn evidence(&self) -> impl Iterator<Item = &Evidence> {
        self.evidence.keys()
    }

    pub(super) fn spoken(
        &mut self,
        step: &StepId,
        at: UnixMs,
        statement: &Signed<ApprovalStatement>,
    ) {
        let mut spoken = self.spoken_of(step).to_vec();
        spoken.push((at, statement.clone()));
        self.approvals.insert_mut(step.clone(), Arc::new(spoken));
    }

    fn count(&mut self, evidence: Evidence, counted: impl FnOnce(u64) -> u64) {
        let count = counted(self.evidence.get(&evidence).copied().unwrap_or(0));
        if count == 0 {
            self.evidence.remove_mut(&evidence);
        } else {
            self.evidence.insert_mut(evidence, count);
        }
    }

    /// Remembers what a call has made of resources.
    pub(super) fn changes(&mut self, step: &StepId, result: &Content, delta: &Delta) {
        let Some(asked) = self.asked.get(step) else { return };
        let proposal = Arc::clone(&asked.proposal);
        for change in &delta.0 {
            let value = match change {
                Change::Create { value, .. } | Change::Replace { value, .. } => Some(value.clone()),
                Change::Retract { .. } => None,
            };
            let resource = change.resource();
            let of = |by: &ToolName| Evidence { by: by.clone(), type_: resource.type_.to_string() };
            if let Some(before) = self.made_by.get(resource).cloned() {
                self.count(of(&before), |count| count.saturating_sub(1));
                self.made_by.remove_mut(resource);
            }
            if value.is_some() {
                self.count(of(&proposal.tool), |count| count + 1);
                self.made_by.insert_mut(resource.clone(), proposal.tool.clone());
            }
            let (step, proposal) = (step.clone(), Arc::clone(&proposal));
            let changed = Changed { step, proposal, result: result.clone(), value };
            self.changed.insert_mut(change.resource().clone(), Arc::new(changed));
            self.unchecked.remove_mut(change.resource());
            self.findings.remove_mut(change.resource());
        }
    }

    pub(super) fn confirmation(&mut self, body: &Confirmation, entry: EntryId) {
        if let Some(confirmed) = &body.confirms {
            self.asking.remove_mut(&body.step);
            // A person's word stands until the resource is changed again.
            for resource in self.looked_at.get(confirmed).cloned().iter().flat_map(|all| all.iter())
            {
                self.changed.remove_mut(resource);
                self.unchecked.remove_mut(resource);
                self.findings.remove_mut(resource);
            }
            return;
        }
        let mut differs = Vec::new();
        for check in &body.checks {
            match check.verdict {
                CheckVerdict::Ok => {
                    self.unchecked.remove_mut(&check.resource);
                    self.findings.remove_mut(&check.resource);
                }
                CheckVerdict::Mismatch | CheckVerdict::Unknown => {
                    self.findings.insert_mut(check.resource.clone(), Arc::new(check.clone()));
                }
            }
            if check.verdict == CheckVerdict::Mismatch {
                differs.push(format!(
                    "`{}`, of which `{}` found {}",
                    check.resource, check.verifier, check.found
                ));
            }
        }
        match body.mode {
            ConfirmationMode::Strict if !differs.is_empty() => {
                let message = format!("the world is not as it was left: {}", differs.join("; "));
                let error = Failing { code: "confirmation_mismatch".to_owned(), message };
                self.broken.get_or_insert_with(|| Arc::new((body.step.clone(), error)));
            }
            ConfirmationMode::Strict | ConfirmationMode::Human => {
                let doubtful = body.checks.iter().filter(|check| check.verdict != CheckVerdict::Ok);
                let resources: Vec<ResourceRef> =
                    doubtful.map(|check| check.resource.clone()).collect();
                if !resources.is_empty() {
                    self.asking.insert_mut(body.step.clone());
                    self.looked_at.insert_mut(entry, resources.into());
                }
            }
            ConfirmationMode::Warn => {}
        }
    }
}
