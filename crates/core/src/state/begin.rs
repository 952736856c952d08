//! How trajectories begin: `root`, `branch`, `plan`, `attempt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::step::{Status, Step};
use super::{Beginning, Node, Phase, PlanIndex, Registry, State, Why};
use crate::body::{Attempt, Branch, Mandate, Plan, Purpose, Root};
use crate::digest::WritId;
use crate::entry::Author;
use crate::ids::{StepId, TrajectoryId};
use crate::projection::TrajectoryKind;
use crate::time::UnixMs;
use crate::writ::{self, Writ};

/// A plan's node id leaves room for the steps below it.
const MAX_NODE_ID: usize = 100;

impl State {
    /// A trajectory that branches from this one as it stands: its last entry must be the commit that
    /// the `branch` entry names.
    pub fn branching(&self, trajectory: TrajectoryId) -> Self {
        let mut next = Self::new(trajectory);
        next.source = self.head.map(|head| Arc::new((self.trajectory, head, self.clone())));
        next
    }

    pub(super) fn root(&mut self, root: &Root, at: UnixMs) -> Result<(), Why> {
        if self.phase != Phase::Unbegun {
            return Err(Why::Begun);
        }
        let (kind, mandate) = match &root.purpose {
            Purpose::Job(mandate) => (TrajectoryKind::Job, Some(mandate)),
            Purpose::Session(mandate) => (TrajectoryKind::Session, Some(mandate)),
            Purpose::Registry { owner } => {
                let registry = Registry::owned_by(*owner)?;
                self.registry = registry;
                (TrajectoryKind::Registry, None)
            }
        };
        let writ = mandate.map(|mandate| self.check_mandate(mandate, at)).transpose()?;
        self.beginning = Some(Arc::new(Beginning {
            kind,
            principal: root.principal.clone(),
            seed: root.seed,
            begun_at: at,
            input: mandate.map(|mandate| mandate.input.digest()),
            writ,
            parent: mandate.and_then(parent_of),
            branch: None,
        }));
        self.phase = Phase::Live;
        Ok(())
    }

    /// The writ chain must narrow link by link and end in a writ for this trajectory, valid now.
    fn check_mandate(&self, mandate: &Mandate, at: UnixMs) -> Result<(WritId, Writ), Why> {
        let leaf = writ::leaf(&mandate.writs)?;
        if leaf.doc().trajectory != Some(self.trajectory) {
            return Err(Why::WritElsewhere);
        }
        if !leaf.doc().window.contains(at) {
            return Err(Why::WritWindow);
        }
        Ok((leaf.id(), leaf.doc().clone()))
    }

    /// A branch folds its source up to the commit it names; what was open there is not inherited.
    pub(super) fn branch(&mut self, branch: &Branch, at: UnixMs) -> Result<(), Why> {
        if self.phase != Phase::Unbegun {
            return Err(Why::Begun);
        }
        let source = self.source.clone().ok_or(Why::Source)?;
        let (trajectory, head, from) = &*source;
        let matches = branch.source == *trajectory
            && branch.source_commit == head.id
            && from.last_commit == Some(head.id)
            && (branch.source_head == *head || branch.source_head.seq > head.seq);
        if !matches {
            return Err(Why::Source);
        }
        let kind =
            from.kind().filter(|kind| *kind != TrajectoryKind::Registry).ok_or(Why::Source)?;
        let writ = self.check_mandate(&branch.mandate, at)?;
        self.beginning = Some(Arc::new(Beginning {
            kind,
            principal: branch.principal.clone(),
            seed: branch.seed,
            begun_at: at,
            input: Some(branch.mandate.input.digest()),
            writ: Some(writ),
            // Its source's parent waits for its source.
            parent: None,
            branch: Some(branch.mode),
        }));
        self.phase = Phase::Live;
        self.world = from.world.clone();
        self.last_commit = from.last_commit;
        self.settled.inherit(&from.settled);
        for (id, step) in &from.steps {
            if matches!(step.status, Status::Done { .. }) {
                // Effects of the source that arrive late belong in the source's chain.
                let step = Step { unaccounted: Vec::new(), inherited: true, ..(**step).clone() };
                if !self.settled.insert(id, &step) {
                    self.steps.insert_mut(id.clone(), Arc::new(step));
                }
            }
        }
        if let Some(plan) = &from.plan {
            self.index_plan(PlanIndex {
                hash: plan.hash,
                nodes: plan.nodes.clone(),
                priority: plan.priority,
                tools: plan.tools.clone(),
                inherited: true,
            });
        }
        self.source = None;
        Ok(())
    }

    pub(super) fn may_plan(&self) -> Result<(), Why> {
        if self.kind() != Some(TrajectoryKind::Job) {
            return Err(Why::WrongKindOfTrajectory);
        }
        match &self.plan {
            None => Ok(()),
            // A branch may replace the plan it inherited, as long as nothing of its own has begun.
            Some(plan) if plan.inherited && self.attempt == 0 => Ok(()),
            Some(_) => Err(Why::PlanTwice),
        }
    }

    pub(super) fn planned(&mut self, plan: &Plan) -> Result<(), Why> {
        self.may_plan()?;
        if Plan::hash_of(&plan.steps)? != plan.hash {
            return Err(Why::PlanHash);
        }
        if plan.priority > Plan::MAX_PRIORITY {
            return Err(Why::PlanPriority);
        }
        if !plan.tools.is_sorted_by(|a, b| a < b) {
            return Err(Why::PlanTools);
        }
        let mut nodes: BTreeMap<StepId, Node> = BTreeMap::new();
        for step in &plan.steps {
            if !step.id.is_node() || step.id.as_str().len() > MAX_NODE_ID {
                return Err(Why::PlanNode(step.id.clone()));
            }
            for needs in &step.needs {
                let node = nodes.get_mut(needs).ok_or_else(|| Why::PlanOrder {
                    step: step.id.clone(),
                    needs: needs.clone(),
                })?;
                if !node.dependents.contains(&step.id) {
                    node.dependents.push(step.id.clone());
                }
            }
            let node = Node { kind: step.kind, dependents: Vec::new() };
            if nodes.insert(step.id.clone(), node).is_some() {
                return Err(Why::PlanDuplicate(step.id.clone()));
            }
        }
        let (priority, tools) = (plan.priority, plan.tools.clone());
        self.index_plan(PlanIndex { hash: plan.hash, nodes, priority, tools, inherited: false });
        Ok(())
    }

    /// Counts what each node still needs, given what is done already.
    fn index_plan(&mut self, plan: PlanIndex) {
        self.idle = rpds::RedBlackTreeSetSync::default();
        self.missing = rpds::RedBlackTreeMapSync::default();
        self.nodes_left = 0;
        let done = |state: &Self, id: &StepId| state.knows(id);
        for (id, node) in &plan.nodes {
            if done(self, id) {
                continue;
            }
            self.nodes_left += 1;
            for dependent in &node.dependents {
                let missing = self.missing.get(dependent).copied().unwrap_or(0);
                self.missing.insert_mut(dependent.clone(), missing + 1);
            }
        }
        for id in plan.nodes.keys() {
            if !self.missing.contains_key(id) && !done(self, id) {
                self.idle.insert_mut(id.clone());
            }
        }
        self.plan = Some(Arc::new(plan));
    }

    pub(super) fn attempted(&mut self, body: &Attempt, by: &Author, at: UnixMs) -> Result<(), Why> {
        let expected = self.attempt + 1;
        if body.died.is_some_and(|died| died > at) {
            return Err(Why::Died);
        }
        match by {
            Author::Principal(_) => Err(Why::WorkerOnly),
            Author::Worker { attempt, .. } if *attempt != expected => {
                Err(Why::Attempt { expected })
            }
            Author::Worker { attempt, worker } => {
                if let Some(died) = body.died {
                    self.bury(died);
                }
                self.environment = Some(body.environment.digest()?);
                self.attempt = *attempt;
                self.worker = Some(worker.clone());
                Ok(())
            }
        }
    }

    /// The owner is dead: what it sent cannot land for longer than if it had sent it in its last
    /// moment.
    fn bury(&mut self, died: UnixMs) {
        let busy: Vec<StepId> = self.busy.iter().cloned().collect();
        for id in busy {
            let mut step = self.step_or_fresh(&id);
            let (Status::Open(opened)
            | Status::Unknown { opened, .. }
            | Status::InDoubt { opened, .. }) = &mut step.status
            else {
                continue;
            };
            if opened.attempt == self.attempt {
                opened.dead_at = opened.dead_at.min(died.plus(opened.lasts_ms));
                self.put(&id, step);
            }
        }
    }
}

/// The trajectory that delegated to a child.
fn parent_of(mandate: &Mandate) -> Option<TrajectoryId> {
    mandate.delegated_by.as_ref().map(|by| by.trajectory)
}
