//! A plan as a Mermaid diagram. Solid edges carry data; dashed ones only say what comes first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gesta_core::body::{Plan, PlanStep, StepKind};
use gesta_core::ids::StepId;

use super::spec::{ANSWER, CallSpec, Spec, Work};

/// The plan as a diagram.
pub fn mermaid(plan: &Plan) -> String {
    let mut text = String::from("graph TD\n");
    let numbers: BTreeMap<&StepId, usize> =
        plan.steps.iter().enumerate().map(|(number, step)| (&step.id, number)).collect();
    for (number, step) in plan.steps.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  n{number}{}", shape(step));
    }
    for (number, step) in plan.steps.iter().enumerate() {
        let mentioned = Spec::of(step).map(|spec| spec.references().steps).unwrap_or_default();
        for need in &step.needs {
            let Some(from) = numbers.get(need) else { continue };
            let edge = if mentioned.contains(need) { "-->" } else { "-.->" };
            let _ = writeln!(text, "  n{from} {edge} n{number}");
        }
    }
    text
}

/// The node's label in the brackets of its kind.
fn shape(step: &PlanStep) -> String {
    let (open, close) = match step.kind {
        _ if step.id.as_str() == ANSWER => ("([", "])"),
        StepKind::Call => ("[", "]"),
        StepKind::Compute => ("(", ")"),
        StepKind::Wait => ("{{", "}}"),
        StepKind::Delegate => ("[/", "/]"),
        StepKind::Loop => ("[[", "]]"),
    };
    let under = match Spec::of(step).map(|spec| spec.work) {
        Ok(Work::Call(call)) => called(&call, ""),
        Ok(Work::Each { call, .. }) => called(&call, "each: "),
        Ok(Work::Wait { .. }) => vec!["wait".to_owned()],
        Ok(Work::Delegate(delegate)) => vec![format!("job: {}", delegate.job)],
        Ok(Work::Delegates { delegate, .. }) => vec![format!("each: job: {}", delegate.job)],
        _ => Vec::new(),
    };
    let lines =
        std::iter::once(escape(step.id.as_str())).chain(under.iter().map(|line| escape(line)));
    let label = lines.collect::<Vec<_>>().join("<br/>");
    format!("{open}\"{label}\"{close}")
}

/// What is called, and what undoes it.
fn called(call: &CallSpec, how: &str) -> Vec<String> {
    let undo = call.compensate.as_ref().map(|undo| format!("undo: {}", undo.tool));
    std::iter::once(format!("{how}{}", call.tool)).chain(undo).collect()
}

/// Leaves what cannot end a label, and spells everything else as an entity.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | '_' | '.' | ':' | '/' | '-' => {
                escaped.push(c);
            }
            _ => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
        }
    }
    escaped
}
