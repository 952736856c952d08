//! What would have been decided under other policies or other tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gesta_core::document::{Decision, Reason, Verdict};
use gesta_core::entry::{Body, Entry};
use gesta_core::guardian;
use gesta_core::ids::{Principal, StepId, ToolName, TrajectoryId};
use gesta_core::policy::{Deciding, Ruling};
use gesta_core::time::UnixMs;
use gesta_policy::{PolicyDocument, PolicyFile};
use serde::{Deserialize, Serialize};

use super::library::{Recorded, with_rules};
use crate::in_force::{InForce, compiled};
use crate::tools::Catalogue;

/// Who is in which role.
pub type Roles = BTreeMap<String, BTreeSet<Principal>>;

/// What to decide under, instead of what was in force.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// Texts of policies and roles, in place of the published ones.
    pub policies: Option<(Vec<PolicyFile>, Roles)>,
    /// Tools, in place of the worker's.
    pub tools: Option<Arc<Catalogue>>,
}

impl WhatIf {
    /// What is in force instead.
    pub(super) fn instead_of(&self, recorded: &Recorded) -> Result<Recorded, String> {
        let mut other = recorded.clone();
        if let Some(tools) = &self.tools {
            other.tools = with_rules(Arc::clone(tools))?;
        }
        let shapes = other.tools.0.shapes().map_err(|error| error.to_string())?;
        let PolicyDocument { policies, roles, channels, .. } = &*recorded.document;
        let (policies, roles) = match &self.policies {
            Some((policies, roles)) => (policies, roles),
            None => (policies, roles),
        };
        let document = PolicyDocument::new(policies.clone(), roles.clone(), shapes)
            .with_channels(channels.clone());
        let set = compiled(&document).map_err(|error| error.to_string())?;
        let environment = recorded.in_force.environment;
        let in_force =
            InForce::recorded(environment, Ok(set)).map_err(|error| error.to_string())?;
        other.in_force = Arc::new(in_force);
        other.document = Arc::new(document);
        Ok(other)
    }
}

/// A verdict, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The verdict.
    pub verdict: Verdict,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// The same in words.
    pub why: String,
}

/// A call that would have been decided otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Otherwise {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The entry with the decision.
    pub seq: u64,
    /// When.
    pub at: UnixMs,
    /// The step.
    pub step: StepId,
    /// The tool.
    pub tool: ToolName,
    /// What was decided.
    pub was: Change,
    /// What would have been.
    pub would_be: Change,
}

/// The decision that an entry holds, if it holds one.
pub(super) fn decision_of(body: &Body) -> Option<&Decision> {
    match body {
        Body::Started(started) => Some(started.decision.doc()),
        Body::PendingApproval(pending) => Some(pending.decision.doc()),
        Body::Rejection(rejection) => Some(rejection.decision.doc()),
        Body::Delegation(delegation) => Some(delegation.decision.doc()),
        _ => None,
    }
}

/// Compares a decision with the one that would stand in its place.
pub(super) fn compare(entry: &Entry, was: &Decision, decision: &Decision) -> Option<Otherwise> {
    if (was.verdict, was.reason) == (decision.verdict, decision.reason) {
        return None;
    }
    Some(Otherwise {
        trajectory: was.trajectory,
        seq: entry.seq(),
        at: entry.payload().at,
        step: was.step.clone(),
        tool: super::derive::tool_of(entry)?,
        was: change(was),
        would_be: change(decision),
    })
}

fn change(decision: &Decision) -> Change {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Policies {
        call: Ruling,
        unattended: Ruling,
    }
    let found: Policies = super::derive::found(decision, "policy").unwrap_or_default();
    let mut by: Vec<&Deciding> = found.call.by.iter().collect();
    // Who may not act unattended is what an escalation rests on.
    if decision.verdict == Verdict::Escalate || by.is_empty() {
        by.extend(&found.unattended.by);
    }
    let policies: BTreeSet<String> = by.into_iter().map(|policy| policy.id.clone()).collect();
    let why = match decision.verdict {
        Verdict::Allow => "allowed".to_owned(),
        Verdict::Escalate => "a person is asked".to_owned(),
        Verdict::Deny => guardian::why(decision),
    };
    let policies = policies.into_iter().collect();
    Change { verdict: decision.verdict, reason: decision.reason, policies, why }
}
