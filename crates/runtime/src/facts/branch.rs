//! Where a branch left the trajectories above it, and what it does not take over from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Branch, BranchMode, PendingApproval, Plan, Proposal};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::repeat;
use gesta_core::world::Delta;
use rpds::{QueueSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::Facts;

/// The last entry of a trajectory that a branch of it took over: a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The number of the commit in it.
    pub seq: u64,
}

/// What it means for a trajectory to be a branch.
#[derive(Clone, Debug)]
pub struct Descent {
    /// What it does about what was done above it.
    pub mode: BranchMode,
    /// Where it left each trajectory above it, its own source last.
    pub points: Vec<Point>,
}

impl Facts {
    /// Where the trajectory branched from; none if it began by itself.
    pub fn descent(&self) -> Option<&Descent> {
        self.descent.as_deref()
    }

    /// The plan as it was recorded.
    pub(crate) fn recorded_plan(&self) -> Option<Plan> {
        let plan = self.plan.as_deref()?;
        let steps = plan.order.iter().filter_map(|id| Some(plan.steps.get(id)?.0.clone()));
        Some(Plan {
            hash: plan.hash,
            priority: plan.priority,
            steps: steps.collect(),
            tools: plan.tools.clone(),
        })
    }

    /// What whoever was last asked about a step was told of what was done above the branch.
    pub(crate) fn told(&self, step: &StepId) -> &[EntryId] {
        self.told.get(step).map_or(&[], |told| told)
    }

    pub(super) fn tell(&mut self, pending: &PendingApproval) {
        let repeats = repeat::Found::of(pending.decision.doc()).repeats;
        let told: Vec<EntryId> = repeats.iter().map(|repeat| repeat.started).collect();
        self.told.insert_mut(pending.proposal.step.clone(), told.into());
    }

    /// Begins a branch on top of what was seen of its source: results, the plan and what was made of the
    /// world are inherited; what was under way, said or to be undone there is not.
    pub(super) fn branched(&mut self, branch: &Branch) {
        let mut points = self.descent().map(|descent| descent.points.clone()).unwrap_or_default();
        points.push(Point { trajectory: branch.source, seq: self.newest });
        self.descent = Some(Arc::new(Descent { mode: branch.mode, points }));
        self.mandate = Some(Arc::new(branch.mandate.clone()));
        self.asked = RedBlackTreeMapSync::default();
        self.told = RedBlackTreeMapSync::default();
        self.signals = RedBlackTreeMapSync::default();
        self.handed = RedBlackTreeMapSync::default();
        self.given = Amounts::default();
        self.undoable = RedBlackTreeMapSync::default();
        self.undos = Arc::new(BTreeMap::new());
        self.findings = RedBlackTreeMapSync::default();
        self.asking = RedBlackTreeSetSync::default();
        self.looked_at = RedBlackTreeMapSync::default();
        self.approvals = RedBlackTreeMapSync::default();
        self.starts = QueueSync::default();
        self.held = RedBlackTreeMapSync::default();
        self.end = None;
        self.broken = None;
        self.cancelled = None;
    }

    /// A result that was taken over: what it made of the world counts as if the call had been made here,
    /// but for its undoing, which is the source's affair.
    pub(super) fn taken_over(&mut self, proposal: &Proposal, observation: &Content, delta: &Delta) {
        self.ask(proposal);
        self.changes(&proposal.step, observation, delta);
    }
}
