//! Expressions that depend on nothing outside of them and cannot be evaluated: whatever the job is given, the step
//! that holds one fails. Found before anything runs.

use super::cel::{Evaluation, Fault, Function, Kind, Node, Val};
use super::file::Draft;
use super::located::{Located, Slot};
use super::names::mentions;
use super::problem::{Problem, enough};
use super::scope::Given;
use super::step::{Step, Work};

/// What a value is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// Anything.
    Any,
    /// A condition.
    When,
    /// What a fan-out goes through.
    Each,
}

/// Evaluates every constant of a job once. All of them together may take as much work as one template: what goes
/// beyond is left to whoever runs the job.
pub(super) fn check_constants(draft: &Draft, problems: &mut Vec<Problem>) {
    let nothing = Given::new(&[], None);
    let mut evaluation = Evaluation::new(&nothing);
    let mut wanted: Vec<(&Slot, For)> = draft.steps.iter().flat_map(of_step).collect();
    wanted.extend(draft.answer.iter().flat_map(|answer| of_value(answer, For::Any)));
    for (slot, what_for) in wanted {
        let Ok(node) = slot.expr.node() else { continue };
        if !mentions(node).is_empty() || depends_on_the_run(node) {
            continue;
        }
        let problem = match evaluation.eval(node) {
            Err(Fault::Exhausted) => return,
            Err(Fault::Error(why)) => Problem::anywhere(format!("this always fails: {why}")),
            Ok(value) => match unfit(&value, what_for) {
                Some(why) => Problem::anywhere(why),
                None => continue,
            },
        };
        problems.push(problem.at(slot.place(0, &draft.source)));
        if enough(problems) {
            return;
        }
    }
}

/// The expressions that are evaluated whenever the step's turn comes. What a condition guards may be meant to fail.
fn of_step(step: &Step) -> Vec<(&Slot, For)> {
    if let Some(when) = &step.when {
        return vec![(when, For::When)];
    }
    let (value, each) = match &step.work {
        Work::Call(call) => (vec![&call.args], &call.each),
        Work::Delegate(delegate) => (vec![&delegate.input], &delegate.each),
        Work::Set(value) => (vec![value], &None),
        Work::Wait { signal, until, .. } => (signal.iter().chain(until).collect(), &None),
    };
    let values = value.into_iter().flat_map(|value| of_value(value, For::Any));
    values.chain(each.iter().flat_map(|each| of_value(each, For::Each))).collect()
}

/// The expressions of a template; what it is for counts where it is one of them and nothing else.
fn of_value(value: &Located, what_for: For) -> impl Iterator<Item = (&Slot, For)> {
    let what_for = if value.is_expression() { what_for } else { For::Any };
    value.slots.iter().map(move |slot| (slot, what_for))
}

/// Why a value is of no use where it stands.
fn unfit(value: &Val, what_for: For) -> Option<String> {
    let found = value.type_name();
    match (what_for, value) {
        (For::When, Val::Bool(_)) | (For::Each, Val::List(_)) | (For::Any, _) => None,
        (For::When, _) => Some(format!("a condition must be true or false, not {found}")),
        (For::Each, _) => Some(format!("`each` goes through a list, not {found}")),
    }
}

/// Whether a part of it is another in every run: the time, and what is drawn from the seed.
fn depends_on_the_run(node: &Node) -> bool {
    let draws = matches!(
        &node.kind,
        Kind::Call {
            function: Function::Now | Function::Random | Function::RandomInt | Function::Uuid,
            ..
        }
    );
    draws || node.parts().into_iter().any(depends_on_the_run)
}
