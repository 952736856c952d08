//! A recorded plan, made once more from what its steps say. The file that it was compiled from is not on record; what
//! compiling adds to what the file says is: the order, what each step needs, its kind, the one spelling of what it
//! does, the tools that a worker must have, and the hash.

use std::collections::BTreeSet;

use gesta_core::body::{Plan, PlanStep};
use gesta_core::ids::StepId;
use gesta_core::json::JsonError;

use super::graph::Graph;
use super::spec::{ANSWER, Spec};

/// The plan that compiling gives where a file says what these steps say. None if they are none that a file compiles
/// to: whoever drives them finds out.
pub(crate) fn again(plan: &Plan) -> Result<Option<Plan>, JsonError> {
    let Ok(specs) = plan.steps.iter().map(Spec::of).collect::<Result<Vec<Spec>, _>>() else {
        return Ok(None);
    };
    let all: Vec<(&PlanStep, &Spec)> = plan.steps.iter().zip(&specs).collect();
    let is_answer = |step: &PlanStep| step.id.as_str() == ANSWER;
    let work: Vec<_> = all.iter().filter(|(step, _)| !is_answer(step)).collect();
    let graph =
        Graph::new(work.iter().map(|(step, spec)| (step.id.clone(), needs(step, spec))).collect());
    let Ok(order) = graph.order() else { return Ok(None) };
    let mut steps = Vec::with_capacity(all.len());
    for number in order {
        let Some((step, spec)) = work.get(number) else { continue };
        steps.push(made(step, spec, graph.needs(number))?);
    }
    for (step, spec) in all.iter().filter(|(step, _)| is_answer(step)) {
        // Reached only when everything is done.
        let leaves = graph.leaves().into_iter().filter_map(|leaf| graph.id(leaf).cloned());
        let needs: BTreeSet<StepId> = needs(step, spec).into_iter().chain(leaves).collect();
        steps.push(made(step, spec, needs.into_iter().collect())?);
    }
    let calls = specs.iter().filter_map(Spec::call);
    let undos = calls.clone().filter_map(|call| call.compensate.as_ref()).map(|undo| &undo.tool);
    let tools = calls.map(|call| &call.tool).chain(undos).cloned().collect();
    let made = Plan::new(steps)?.needing(&tools);
    Ok(Some(Plan { priority: plan.priority, ..made }))
}

/// What a step needs: what is said, and what its expressions mention.
fn needs(step: &PlanStep, spec: &Spec) -> BTreeSet<StepId> {
    step.needs.iter().cloned().chain(spec.references().steps).collect()
}

fn made(step: &PlanStep, spec: &Spec, needs: Vec<StepId>) -> Result<PlanStep, JsonError> {
    Ok(PlanStep { id: step.id.clone(), kind: spec.work.kind(), needs, spec: spec.canon()? })
}
