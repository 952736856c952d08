//! Whether everything that a job mentions is there: steps, inputs, names.

use std::collections::BTreeSet;

use gesta_core::ids::StepId;

use super::file::Draft;
use super::located::{Located, Slot};
use super::names::{Mention, What, mentions};
use super::problem::{Problem, enough};
use super::spec::ANSWER;
use super::step::{Step, Work};

/// Where an expression stands.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    /// The step that it belongs to; none for the answer.
    step: Option<&'a StepId>,
    /// Whether `item` and `index` mean something.
    item: bool,
}

/// The steps that a step needs: those it names, and those its expressions mention.
pub(super) fn needs_of(
    step: &Step,
    draft: &Draft,
    problems: &mut Vec<Problem>,
) -> BTreeSet<StepId> {
    let mut needs = BTreeSet::new();
    for (id, place) in &step.needs {
        match step_problem(id.as_str(), Some(&step.id), draft) {
            Some(problem) => problems.push(problem.at(*place)),
            None => {
                needs.insert(id.clone());
            }
        }
    }
    let each = match &step.work {
        Work::Call(call) => call.fans_out,
        Work::Delegate(delegate) => delegate.fans_out,
        Work::Set(_) | Work::Wait { .. } => false,
    };
    let outside = Position { step: Some(&step.id), item: false };
    let inside = Position { item: each, ..outside };
    let mut check = |slots: &[Slot], position| {
        for slot in slots {
            check_slot(slot, position, draft, &mut needs, problems);
        }
    };
    check(step.when.as_slice(), inside);
    match &step.work {
        Work::Call(call) => {
            check(&call.args.slots, inside);
            check(call.each.as_ref().map_or(&[], |each| &each.slots), outside);
        }
        Work::Set(value) => check(&value.slots, outside),
        Work::Delegate(delegate) => {
            check(&delegate.input.slots, inside);
            check(delegate.each.as_ref().map_or(&[], |each| &each.slots), outside);
        }
        Work::Wait { signal, until, .. } => {
            for template in signal.iter().chain(until) {
                check(&template.slots, outside);
            }
        }
    }
    needs
}

/// Checks what the answer mentions.
pub(super) fn check_answer(answer: &Located, draft: &Draft, problems: &mut Vec<Problem>) {
    let position = Position { step: None, item: false };
    for slot in &answer.slots {
        check_slot(slot, position, draft, &mut BTreeSet::new(), problems);
    }
}

fn check_slot(
    slot: &Slot,
    position: Position<'_>,
    draft: &Draft,
    needs: &mut BTreeSet<StepId>,
    problems: &mut Vec<Problem>,
) {
    // What cannot be parsed was reported when the file was read.
    let Ok(node) = slot.expr.node() else { return };
    for Mention { at, what } in mentions(node) {
        if enough(problems) {
            return;
        }
        let problem =
            match &what {
                What::Step { id, field } => match step_problem(id, position.step, draft) {
                    None => {
                        needs.extend(id.parse::<StepId>().ok());
                        field_problem(id, field.as_deref())
                    }
                    problem => problem,
                },
                What::BareSteps => Some(Problem::anywhere("`steps` is not a value").hint(
                    "name a step, as in `steps.order.result` or `steps[\"my-order\"].result`",
                )),
                What::BareWorld => Some(
                    Problem::anywhere("`world` is not a value")
                        .hint("name a resource, as in `world[\"type\"][\"id\"]`"),
                ),
                What::Input(name) => input_problem(name, draft),
                What::Name(name) => name_problem(name, position),
            };
        problems.extend(problem.map(|problem| problem.at(slot.place(at, &draft.source))));
    }
}

/// What is wrong with naming a step: there is none, or it is the one that asks.
fn step_problem(id: &str, own: Option<&StepId>, draft: &Draft) -> Option<Problem> {
    if own.is_some_and(|own| own.as_str() == id) {
        return Some(Problem::anywhere(format!("step `{id}` needs itself")));
    }
    if id.parse::<StepId>().is_ok_and(|id| draft.step_ids.contains(&id)) {
        return None;
    }
    let problem = Problem::anywhere(format!("unknown step `{id}`"));
    let dashed = format!("{id}-");
    let longer = draft.step_ids.iter().find(|known| known.as_str().starts_with(&dashed));
    Some(match longer {
        _ if id == ANSWER => problem.hint("the answer is computed last, so no step can use it"),
        // In an expression, `-` is a minus.
        Some(longer) => {
            problem.hint(format!("write `steps[\"{longer}\"]` for the step `{longer}`"))
        }
        None => problem.did_you_mean(id, draft.step_ids.iter().map(StepId::as_str)),
    })
}

fn field_problem(id: &str, field: Option<&str>) -> Option<Problem> {
    let problem = match field {
        Some("result" | "skipped") => return None,
        Some(field) => Problem::anywhere(format!("step `{id}` has no `{field}`")),
        None => Problem::anywhere(format!("step `{id}` is not a value")),
    };
    let path = if id.contains('-') { format!("steps[\"{id}\"]") } else { format!("steps.{id}") };
    Some(problem.hint(format!("write `{path}.result` or `{path}.skipped`")))
}

fn input_problem(name: &str, draft: &Draft) -> Option<Problem> {
    if draft.input_names.contains(name) {
        return None;
    }
    let problem = Problem::anywhere(format!("unknown input `{name}`"));
    let problem = problem.hint("declare it under `input`");
    Some(problem.did_you_mean(name, draft.input_names.iter().map(String::as_str)))
}

fn name_problem(name: &str, position: Position<'_>) -> Option<Problem> {
    match name {
        "input" | "world" => None,
        "item" | "index" if position.item => None,
        "item" | "index" => {
            let problem = Problem::anywhere(format!("`{name}` has no meaning here"));
            Some(problem.hint(
                "only the arguments or input and the condition of a step with `each` have it",
            ))
        }
        _ => {
            let known: &[&str] = match position.item {
                true => &["input", "steps", "world", "item", "index"],
                false => &["input", "steps", "world"],
            };
            let problem = Problem::anywhere(format!("unknown name `{name}`"));
            let all: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            let problem = problem.hint(format!("an expression may use {}", all.join(", ")));
            Some(problem.did_you_mean(name, known.iter().copied()))
        }
    }
}
