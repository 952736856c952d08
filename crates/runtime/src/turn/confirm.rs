//! Agreeing with the world before a step uses what earlier attempts left there.
//!
//! A step uses what the steps before it have changed: those that it needs, those that they need, and so
//! on; a step whose expressions or whose tool's preconditions look at the world uses all of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_core::body::{Check, CheckVerdict, Confirmation, ConfirmationMode};
use gesta_core::entry::Body;
use gesta_core::ids::StepId;
use gesta_core::world::ResourceRef;
use gesta_store::Draft;

use super::{Made, Turn};
use crate::error::RunError;
use crate::facts::{Changed, Facts};
use crate::job::Spec;
use crate::rules::VerifyRule;
use crate::verify::Question;

/// Something that a step uses and of which nobody knows in this attempt that it is still so.
struct Used {
    resource: ResourceRef,
    changed: Arc<Changed>,
    rule: VerifyRule,
    mode: ConfirmationMode,
    /// What was found of it on behalf of another step.
    known: Option<Check>,
}

impl Turn<'_> {
    /// Whether a node may go on. If not, a verifier is looking, or a person must.
    pub(super) fn confirm(
        &self,
        draft: &mut Draft<Facts>,
        node: &StepId,
        spec: &Spec,
        made: &mut Made,
    ) -> Result<bool, RunError> {
        #[cfg(feature = "sabotage")]
        if self.desk.shared.options.sabotage == Some(crate::Sabotage::TrustTheWorld) {
            return Ok(true);
        }
        if !self.desk.shared.verifies() {
            return Ok(true);
        }
        if draft.view().asks(node) {
            return Ok(false);
        }
        let used = self.used(draft.view(), node, spec);
        let mut checks: Vec<(ConfirmationMode, Check)> = Vec::new();
        let mut waits = false;
        for one in used {
            match (&one.known, self.findings.get(&one.resource)) {
                // What was found is on record; a warning is given once.
                (Some(_), _) if one.mode == ConfirmationMode::Warn => {}
                (Some(known), _) => checks.push((one.mode, known.clone())),
                (None, Some(found)) => checks.push((one.mode, found.clone())),
                (None, None) => {
                    waits = true;
                    self.look(one, made);
                }
            }
        }
        if waits {
            return Ok(false);
        }
        self.record(draft, node, &checks)?;
        Ok(draft.state().name() == "live" && draft.state().unconfirmed(node).is_none())
    }

    /// The same, with what was found on record in place of verifiers: of what the node uses, what the record has
    /// findings of. What it leaves out is missed when the node goes on.
    pub(super) fn found_again(
        &self,
        draft: &mut Draft<Facts>,
        recorded: &Confirmation,
    ) -> Result<(), RunError> {
        let node = &recorded.step;
        let Some(spec) = draft.view().spec(node).and_then(Result::ok) else {
            return Ok(());
        };
        if draft.view().asks(node) {
            return Ok(());
        }
        let mut checks: Vec<(ConfirmationMode, Check)> = Vec::new();
        for one in self.used(draft.view(), node, &spec) {
            let found = recorded.checks.iter().find(|check| check.resource == one.resource);
            match (one.known, found) {
                (Some(_), _) if one.mode == ConfirmationMode::Warn => {}
                (Some(known), Some(_)) => checks.push((one.mode, known)),
                (None, Some(found)) => {
                    let verifier = one.rule.verifier.to_string();
                    checks.push((one.mode, Check { verifier, ..found.clone() }));
                }
                // Nothing is left to confirm only where nothing is left to look at.
                (_, None) if recorded.checks.is_empty() => return Ok(()),
                (_, None) => {}
            }
        }
        self.record(draft, node, &checks)
    }

    fn used(&self, facts: &Facts, node: &StepId, spec: &Spec) -> Vec<Used> {
        let mut before: Option<BTreeSet<StepId>> = None;
        let everything = self.looks_at_world(spec);
        let mut used = Vec::new();
        for (resource, changed, known) in facts.unchecked() {
            let rules = self.desk.shared.rules(&changed.proposal.tool);
            let Some(rule) = rules.and_then(|rules| rules.verify(resource)) else { continue };
            let before = before.get_or_insert_with(|| facts.before(node));
            if !everything && !before.contains(&changed.step.node()) {
                continue;
            }
            let mode = spec.confirm.or(rule.confirm).or_else(|| facts.confirm());
            used.push(Used {
                resource: resource.clone(),
                changed: Arc::clone(changed),
                rule: rule.clone(),
                mode: mode.unwrap_or(ConfirmationMode::Strict),
                known: known.cloned(),
            });
        }
        used
    }

    fn looks_at_world(&self, spec: &Spec) -> bool {
        let rules = spec.call().and_then(|call| self.desk.shared.rules(&call.tool));
        spec.references().names.contains("world")
            || rules.is_some_and(|rules| rules.looks_at_world())
    }

    /// Asks a verifier, unless one is looking already.
    fn look(&self, used: Used, made: &mut Made) {
        let asked = made.questions.iter().any(|question| question.resource == used.resource);
        if asked || !self.may_open || self.looking.contains(&used.resource) {
            return;
        }
        let Used { resource, changed, rule, mode, .. } = used;
        let Some(result) = self.value(&changed.result, made) else { return };
        let patient = mode != ConfirmationMode::Warn;
        made.questions.push(Question { resource, changed, rule, result, patient });
    }

    /// Records what was found. What parks the step comes last: an entry that does not would free it.
    fn record(
        &self,
        draft: &mut Draft<Facts>,
        node: &StepId,
        checks: &[(ConfirmationMode, Check)],
    ) -> Result<(), RunError> {
        use ConfirmationMode::{Human, Strict, Warn};
        let mut entries: Vec<(bool, ConfirmationMode, Vec<Check>)> = Vec::new();
        for mode in [Warn, Human, Strict] {
            let of_mode: Vec<Check> = checks
                .iter()
                .filter(|(of, _)| *of == mode)
                .map(|(_, check)| check.clone())
                .collect();
            let doubtful = of_mode.iter().any(|check| check.verdict != CheckVerdict::Ok);
            if !of_mode.is_empty() {
                entries.push((mode != Warn && doubtful, mode, of_mode));
            }
        }
        if entries.is_empty() && draft.state().unconfirmed(node).is_some() {
            // It waited for a person, and there is nothing left to confirm.
            entries.push((false, Warn, Vec::new()));
        }
        entries.sort_by_key(|(parks, ..)| *parks);
        for (_, mode, checks) in entries {
            if draft.state().name() != "live" {
                return Ok(());
            }
            let body = Confirmation { checks, confirms: None, mode, step: node.clone() };
            draft.push(self.now, self.desk.author(), Body::Confirmation(Box::new(body)))?;
        }
        Ok(())
    }
}
