//! Making a branch: where it begins, what it is to do otherwise than its source, and its first entries.
//! From then on it is a job like any other, driven by whoever claims it.

mod point;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gesta_core::amounts::Budget;
use gesta_core::body::{Branch, BranchMode, Mandate, Plan, PlanStep, RegistryHead};
use gesta_core::content::{Content, MAX_INLINE_BYTES};
use gesta_core::digest::{Digest, Seed};
use gesta_core::entry::{Author, Body};
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::TrajectoryKind;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::writ::Writ;
use gesta_store::{Chain, ChainError, Draft, StoreError};

use crate::authority::{self, Unauthorised};
use crate::cut;
use crate::desk::COMPILER;
use crate::error::RunError;
use crate::facts::{Facts, Point};
use crate::home::Home;
use crate::job::{self, Compiled, Edit, Problems, Spec, Work};
use crate::jobs::Submitted;

pub use point::At;
use point::{Spot, survey};

/// A branch to be made.
#[derive(Clone, Debug)]
pub struct BranchOrder<'a> {
    /// The trajectory to branch from.
    pub source: TrajectoryId,
    /// The commit that it begins at.
    pub at: At,
    /// What it does about effects that were sent above it and that it does not inherit.
    pub mode: BranchMode,
    /// Why it is made.
    pub note: &'a str,
    /// Its plan, if not its source's.
    pub plan: Option<&'a Compiled>,
    /// Arguments that are other than its source's.
    pub edits: &'a [Edit],
    /// Inputs that are other than its source's.
    pub input: &'a BTreeMap<String, String>,
    /// What it may use at most, beside what its source's writ and its plan say.
    pub budget: Budget,
    /// The caller's key: the same key and content is the same branch.
    pub key: Option<&'a str>,
}

impl Home {
    /// Makes a branch, with authority of its own that is narrowed from the last of these writs by whoever
    /// holds it. A crash leaves all of it or nothing.
    pub async fn branch(
        &self,
        order: &BranchOrder<'_>,
        (above, holder): (Vec<Signed<Writ>>, &PrivateKey),
        now: UnixMs,
    ) -> Result<(TrajectoryId, Submitted), RunError> {
        let source = order.source;
        let parent = above.last().ok_or(Unauthorised::None)?.doc().clone();
        let row = self.store.trajectory(source).await?.ok_or(StoreError::NoTrajectory(source))?;
        if row.summary.kind != TrajectoryKind::Job {
            return Err(RunError::NotAJob(source));
        }
        if row.summary.tenant.as_ref() != Some(&parent.tenant) {
            return Err(RunError::OtherTenant(source));
        }
        let surveyed = survey(&self.store, source).await?;
        let spot = surveyed.spot(&order.at)?;
        surveyed.refuse_undone(spot)?;
        let trajectory = match order.key {
            Some(key) => self.keyed(parent.tenant.as_str(), key).await?,
            None => TrajectoryId::from_bytes(self.draw()?),
        };
        let store = Arc::clone(&self.store);
        let mut chain =
            Chain::<Facts>::branching(store, trajectory, (source, spot.head.id)).await?;
        let facts = chain.view();
        let plan = self.plan(order, facts).await?;
        let branch = Branch {
            compiler: COMPILER.to_owned(),
            mandate: self.mandate(order, facts, trajectory, (above, holder), now).await?,
            mode: order.mode,
            note: order.note.to_owned(),
            principal: parent.principal.clone(),
            seed: Seed::new(Digest::from_bytes(self.draw()?)),
            source,
            source_commit: spot.head.id,
            source_head: surveyed.head,
        };
        self.keep(order.plan).await?;
        if self.store.trajectory(trajectory).await?.is_none() {
            let written = chain.write(|draft| begin(draft, &branch, &plan, now)).await;
            match written {
                Ok(written) if !written.entries.is_empty() => {
                    cut::here("after_branch");
                    return Ok((trajectory, Submitted::New));
                }
                // Somebody was first: with this, or with something else.
                Ok(_) | Err(RunError::Chain(ChainError::Illegal { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let known = Chain::<Facts>::follow(Arc::clone(&self.store), trajectory).await?;
        if same(known.view(), &branch, &plan, spot) {
            return Ok((trajectory, Submitted::Known));
        }
        let key = order.key.map_or_else(|| trajectory.to_string(), str::to_owned);
        Err(RunError::OtherJob { key, trajectory })
    }

    /// What the branch starts with: its own input, and a writ for exactly what is left to do.
    async fn mandate(
        &self,
        order: &BranchOrder<'_>,
        facts: &Facts,
        trajectory: TrajectoryId,
        (above, holder): (Vec<Signed<Writ>>, &PrivateKey),
        now: UnixMs,
    ) -> Result<Mandate, RunError> {
        let (budget, grants) = match order.plan {
            Some(job) => (job.budget, job.grants.clone()),
            None => (source_budget(facts).unwrap_or_default(), granted(facts.plan())),
        };
        let budget = authority::least(&budget, &order.budget);
        let narrowed = (trajectory, &grants, &budget);
        let registry = self.store.trajectory(self.registry).await?;
        Ok(Mandate {
            delegated_by: None,
            environment: self.environment().await?,
            input: self.input(order, facts).await?,
            registry: registry
                .map(|row| RegistryHead { head: row.head, trajectory: self.registry }),
            writs: authority::narrow(above, holder, narrowed, &self.catalogue, now)?,
        })
    }

    /// What a worker finds in the store and nowhere else: the catalogue, and the plans of children.
    async fn keep(&self, job: Option<&Compiled>) -> Result<(), RunError> {
        self.store.put_blob(self.catalogue.canonical().as_bytes()).await?;
        for plan in job.into_iter().flat_map(|job| &job.blobs) {
            self.store.put_blob(plan.as_bytes()).await?;
        }
        Ok(())
    }

    /// The branch's plan. It is recorded even if it is its source's: then a branch tells by itself what it
    /// is to do.
    async fn plan(&self, order: &BranchOrder<'_>, facts: &Facts) -> Result<Plan, RunError> {
        if let Some(job) = order.plan {
            agrees(facts, &job.plan)?;
            return Ok(job.plan.clone());
        }
        let plan = facts.recorded_plan().ok_or(RunError::NotBegun)?;
        if order.edits.is_empty() {
            return Ok(plan);
        }
        for edit in order.edits {
            if begun(facts, &edit.step) {
                let why = "is done where the branch begins".to_owned();
                return Err(RunError::Committed { step: edit.step.clone(), why });
            }
        }
        let input = self.value(facts).await?;
        let steps = job::edited(&plan.steps, order.edits, &input, &*self.catalogue)
            .map_err(|problems| refused(&problems))?;
        Ok(Plan { hash: Plan::hash_of(&steps)?, steps, ..plan })
    }

    /// The branch's input, kept.
    async fn input(&self, order: &BranchOrder<'_>, facts: &Facts) -> Result<Content, RunError> {
        let before = self.value(facts).await?;
        let input = match order.plan {
            Some(job) => job.input_over(&before, order.input),
            None => job::edited_input(&before, order.input),
        };
        let mut input = input.map_err(|problems| refused(&problems))?;
        let marks = order.plan.map(Compiled::sensitive).unwrap_or_default();
        if let (false, Some(vault)) = (marks.is_empty(), &self.vault) {
            let family = vault.family(order.source).await?;
            input = vault.ensure(family).await?.protect(&input, &marks).await?;
        } else if !marks.is_empty() {
            let (what, remedy) =
                ("an input of this branch".to_owned(), "open the place with data keys");
            return Err(RunError::NoVault { what, remedy });
        }
        if input.as_bytes().len() <= MAX_INLINE_BYTES {
            return Ok(Content::Inline(input));
        }
        Ok(self.store.put_blob(input.as_bytes()).await.map(Content::Blob)?)
    }

    /// What the source works on.
    async fn value(&self, facts: &Facts) -> Result<Canon, RunError> {
        let mandate = facts.mandate().ok_or(RunError::NotBegun)?;
        self.content(&mandate.input).await
    }
}

/// Adds the first entries of a branch, unless they are there.
fn begin(
    draft: &mut Draft<Facts>,
    branch: &Branch,
    plan: &Plan,
    now: UnixMs,
) -> Result<(), RunError> {
    if draft.state().head().is_some() {
        return Ok(());
    }
    let by = Author::Principal(branch.principal.clone());
    draft.push(now, by.clone(), Body::Branch(Box::new(branch.clone())))?;
    draft.push(now, by, Body::Plan(Box::new(plan.clone())))?;
    Ok(())
}

/// Whether what is there is what was to be made.
fn same(facts: &Facts, branch: &Branch, plan: &Plan, spot: &Spot) -> bool {
    let from = Point { trajectory: branch.source, seq: spot.head.seq };
    let descends = facts
        .descent()
        .is_some_and(|descent| descent.mode == branch.mode && descent.points.last() == Some(&from));
    let input = facts.mandate().map(|mandate| mandate.input.digest());
    descends && input == Some(branch.mandate.input.digest()) && facts.plan_hash() == Some(plan.hash)
}

/// Another plan has every step that is done, and says the same of it.
fn agrees(facts: &Facts, plan: &Plan) -> Result<(), RunError> {
    for step in facts.plan().filter(|step| begun(facts, &step.id)) {
        let new = plan.steps.iter().find(|new| new.id == step.id);
        let why = match new {
            None => Some("is done where the branch begins, and the plan does not have it"),
            Some(new) if new.kind != step.kind || essence(new)? != essence(step)? => {
                Some("is done where the branch begins, and the plan has another")
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(RunError::Committed { step: step.id.clone(), why: why.to_owned() });
        }
    }
    Ok(())
}

/// What of a step led to what it did: not how often it would be tried, nor how it would be undone.
fn essence(step: &PlanStep) -> Result<Spec, RunError> {
    let mut spec = Spec::of(step)?;
    (spec.confirm, spec.job) = (None, None);
    if let Work::Call(call) | Work::Each { call, .. } = &mut spec.work {
        (call.compensate, call.retry, call.timeout_ms) = (None, None, None);
        call.on_cancel = job::OnCancel::default();
    }
    Ok(spec)
}

/// Whether a node is done, or a step below it.
fn begun(facts: &Facts, node: &StepId) -> bool {
    facts.settled().any(|step| step.node() == *node)
}

/// The tools that a writ for these steps must name: those that they call, those that undo, and what is
/// handed on to children.
fn granted<'a>(steps: impl Iterator<Item = &'a PlanStep>) -> BTreeSet<ToolName> {
    let mut tools = BTreeSet::new();
    for spec in steps.filter_map(|step| Spec::of(step).ok()) {
        let undo = spec.call().and_then(|call| call.compensate.as_ref());
        tools.extend(undo.map(|undo| undo.tool.clone()));
        tools.extend(spec.call().map(|call| call.tool.clone()));
        tools.extend(spec.delegate().into_iter().flat_map(|delegate| delegate.tools.clone()));
    }
    tools
}

fn source_budget(facts: &Facts) -> Option<Budget> {
    Some(facts.mandate()?.writs.last()?.doc().budget)
}

fn refused(problems: &Problems) -> RunError {
    RunError::Plan(problems.to_string())
}
