//! What the two chains of a delegation owe each other, carried across. Each function may run any number
//! of times, in any process: what is there already is left as it is. The chain that owes says so in its
//! state until a `delivered` entry says that it is done, so a crash between the two chains is made good
//! by whoever claims the one that owes.

use std::sync::Arc;

use gesta_core::body::{
    DelegatedBy, DelegationResult, Delivered, Delivery, End, Mandate, Plan, Purpose, Root,
    step_seed,
};
use gesta_core::content::Content;
use gesta_core::document::{Decision, Failing};
use gesta_core::entry::{Author, Body, Entry, Head};
use gesta_core::ids::{Principal, StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_store::{Chain, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::cut;
use crate::desk::{COMPILER, OUTPUT_LIMITS, Shared};
use crate::error::RunError;
use crate::facts::{Ending, Facts, Handed};
use crate::job::DelegateSpec;
use crate::jobs;

/// How a child ended that did not complete, in place of an answer.
#[derive(Serialize, Deserialize)]
struct Unanswered {
    end: End,
    error: Failing,
}

/// Why a child did not complete, for people; empty if its parent was not told.
pub(crate) fn why(answer: &Content) -> String {
    let Content::Inline(answer) = answer else { return String::new() };
    answer.read::<Unanswered>().map(|told| format!(": {}", told.error.message)).unwrap_or_default()
}

/// What a refused delegation found, as its decision says it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) refused: String,
}

/// Why a delegation was refused, for people.
pub(crate) fn refusal(decision: &Decision) -> String {
    let found = decision.trace.last().and_then(|stage| stage.found.as_ref());
    let why = found.and_then(|found| found.read::<Refused>().ok());
    let why = why.map(|why| format!(": {}", why.refused)).unwrap_or_default();
    format!("the child may not be given this{why}")
}

/// Delivers what a parent owes the child of one of its steps.
pub(crate) async fn to_child(
    store: &Arc<dyn Store>,
    (state, facts): (&State, &Facts),
    (what, child, step): (Delivery, TrajectoryId, &StepId),
    now: UnixMs,
) -> Result<Delivered, RunError> {
    let head = match what {
        Delivery::Beginning => {
            cut::here("after_delegation");
            let head = begin(store, (state, facts), step).await?;
            cut::here("after_child_root");
            head
        }
        Delivery::Cancel | Delivery::Result => {
            cancel(store, (state, facts), child, now).await?;
            let row = store.trajectory(child).await?;
            row.ok_or(StoreError::NoTrajectory(child))?.head
        }
    };
    Ok(Delivered { head, step: Some(step.clone()), to: child, what })
}

/// Begins the child of a step, unless it has begun. Everything in its first two entries follows from the
/// parent's chain, so that whoever begins it begins the same.
async fn begin(
    store: &Arc<dyn Store>,
    (state, facts): (&State, &Facts),
    step: &StepId,
) -> Result<Head, RunError> {
    let handed = facts.handed(step).ok_or(RunError::NotBegun)?;
    let mandate = facts.mandate().ok_or(RunError::NotBegun)?;
    let child = handed.delegation.child;
    let spec = facts.spec(&step.node()).ok_or(RunError::NotBegun)??;
    let plan = plan(store, spec.delegate().ok_or(RunError::NotBegun)?).await?;
    let root = root(state, mandate, handed)?;
    let by = Author::Principal(root.principal.clone());
    let mut chain = Chain::<Facts>::begin(Arc::clone(store), child);
    chain
        .write(|draft| {
            if draft.state().head().is_none() {
                draft.push(handed.at, by.clone(), Body::Root(Box::new(root.clone())))?;
                draft.push(handed.at, by.clone(), Body::Plan(Box::new(plan.clone())))?;
            }
            Ok::<_, RunError>(())
        })
        .await?;
    let ours = chain.view().mandate().and_then(|mandate| mandate.delegated_by.as_ref());
    if ours.is_none_or(|by| by.delegation != handed.entry) {
        return Err(RunError::OtherChild { child, parent: state.trajectory() });
    }
    chain.state().head().ok_or(RunError::NotBegun)
}

fn root(state: &State, mandate: &Mandate, handed: &Handed) -> Result<Root, RunError> {
    let Handed { entry, delegation, .. } = handed;
    let generation = state.step(&delegation.step).map_or(1, |step| step.generation);
    let seed = state.seed().ok_or(RunError::NotBegun)?;
    let mut writs = mandate.writs.clone();
    writs.push(delegation.writ.clone());
    Ok(Root {
        compiler: COMPILER.to_owned(),
        principal: delegation.writ.doc().principal.clone(),
        purpose: Purpose::Job(Mandate {
            delegated_by: Some(DelegatedBy { delegation: *entry, trajectory: state.trajectory() }),
            environment: mandate.environment,
            input: delegation.task.input.clone(),
            registry: mandate.registry.clone(),
            writs,
        }),
        seed: step_seed(seed, &delegation.step, generation),
    })
}

async fn plan(store: &Arc<dyn Store>, spec: &DelegateSpec) -> Result<Plan, RunError> {
    match &spec.plan {
        Content::Inline(plan) => Ok(plan.read()?),
        Content::Blob(blob) => {
            let bytes = store.blob(blob.sha256).await?.ok_or_else(|| {
                let what = format!("the plan of `{}`, blob {}, is missing", spec.job, blob.sha256);
                StoreError::Damaged { what }
            })?;
            Ok(Canon::parse_within(&bytes, OUTPUT_LIMITS)?.read()?)
        }
    }
}

/// Asks a child to stop because its parent does, and to undo what it did if its parent will.
async fn cancel(
    store: &Arc<dyn Store>,
    (state, facts): (&State, &Facts),
    child: TrajectoryId,
    now: UnixMs,
) -> Result<(), RunError> {
    let compensate = state.wants_rollback(facts.compensates_failure());
    let how = if facts.cancelled().is_some() { "was cancelled" } else { "is failing" };
    let reason = format!("its parent {} {how}", state.trajectory());
    let by = acts_for(state)?;
    match jobs::cancel(store, child, &by, (&reason, compensate), now).await {
        // Then its result is on its way.
        Ok(_) | Err(RunError::Ended(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn acts_for(state: &State) -> Result<Principal, RunError> {
    state.writ().map(|(_, writ)| writ.principal.clone()).ok_or(RunError::NotBegun)
}

/// Brings the result of a child that has ended to its parent, and notes that it is there. Returns what was
/// added to either chain.
pub(crate) async fn to_parent(
    shared: &Shared,
    chain: &mut Chain<Facts>,
) -> Result<Vec<Entry>, RunError> {
    let (store, now) = (&shared.store, shared.pulse.now());
    let Some(parent) = chain.state().owes_parent() else { return Ok(Vec::new()) };
    cut::here("after_child_end");
    let (child, facts) = (chain.state(), chain.view());
    let mut above = Chain::<Facts>::follow(Arc::clone(store), parent).await?;
    let written = above
        .write(|draft| {
            let step = draft.view().works_for(child.trajectory()).cloned();
            if let Some(step) = step {
                let (by, body) = ended(child, facts, step)?;
                #[cfg(feature = "sabotage")]
                let body = sabotaged(body, shared.options.sabotage);
                draft.push(now, by, Body::DelegationResult(Box::new(body)))?;
            }
            Ok::<_, RunError>(())
        })
        .await?;
    let by = Author::Principal(acts_for(chain.state())?);
    cut::here("after_result");
    let mut entries = written.entries;
    let head = above.state().head().ok_or(RunError::NotBegun)?;
    let body = Delivered { head, step: None, to: parent, what: Delivery::Result };
    let written = chain
        .write(|draft| {
            if draft.state().owes_parent().is_some() {
                let body = Body::Delivered(Box::new(body.clone()));
                draft.push(now, by.clone(), body)?;
            }
            Ok::<_, RunError>(())
        })
        .await?;
    entries.extend(written.entries);
    Ok(entries)
}

/// What a child that has ended tells its parent, and in whose name.
pub(crate) fn ended(
    child: &State,
    facts: &Facts,
    step: StepId,
) -> Result<(Author, DelegationResult), RunError> {
    Ok((Author::Principal(acts_for(child)?), result(child, facts, step)?))
}

fn result(child: &State, facts: &Facts, step: StepId) -> Result<DelegationResult, RunError> {
    let end = child.ended().ok_or(RunError::NotBegun)?;
    let answer = match facts.ending().ok_or(RunError::NotBegun)? {
        Ending::Completed(answer) => answer.clone(),
        Ending::Stopped(error) => {
            Content::Inline(Canon::of(&Unanswered { end, error: error.clone() })?)
        }
    };
    Ok(DelegationResult {
        answer,
        child: child.trajectory(),
        end,
        head: child.head().ok_or(RunError::NotBegun)?,
        spent: child.spent(),
        step,
    })
}

#[cfg(feature = "sabotage")]
fn sabotaged(mut result: DelegationResult, sabotage: Option<crate::Sabotage>) -> DelegationResult {
    match sabotage {
        Some(crate::Sabotage::FreeChildren) => result.spent = Default::default(),
        Some(crate::Sabotage::OtherAnswer) => result.answer = Content::Inline(Canon::null()),
        _ => {}
    }
    result
}
