//! The calls of a job against the tools there are: names, arguments, how each call is undone.

use std::collections::BTreeMap;

use gesta_core::document::Recovery;
use gesta_core::ids::{StepId, ToolName};
use gesta_core::writ::Effect;

use super::arguments::Schemas;
use super::compile::{ToolType, Tools};
use super::file::Draft;
use super::located::Located;
use super::problem::{Place, Problem, enough};
use super::spec::{OnCancel, UndoSpec};
use super::step::{Call, Step, Undo, Work};
use super::template::Template;
use super::tree::Node;
use crate::tools::{COMPENSATE_NAMES, Compensate};

/// How the call of each step is undone, if it is.
pub(super) type Undos = BTreeMap<StepId, UndoSpec>;

/// Checks every call of a job, and says how each is undone.
pub(super) fn check_calls(draft: &Draft, tools: &dyn Tools, problems: &mut Vec<Problem>) -> Undos {
    let mut checks = Checks { tools, known: BTreeMap::new(), schemas: Schemas::default(), draft };
    let mut undos = Undos::new();
    for step in &draft.steps {
        let Work::Call(call) = &step.work else { continue };
        if enough(problems) {
            break;
        }
        let Some(tool) = checks.tool(&call.tool, call.tool_place, problems) else { continue };
        check_stop(call, &tool, problems);
        checks.args(&call.tool, &tool, &call.args.node, problems);
        if let Some(undo) = checks.undo(step, call, &tool, problems) {
            undos.insert(step.id.clone(), undo);
        }
    }
    undos
}

fn check_stop(call: &Call, tool: &ToolType, problems: &mut Vec<Problem>) {
    if call.on_cancel != OnCancel::Stop || tool.recovery == Recovery::Safe {
        return;
    }
    let message = format!(
        "a call of `{}` cannot be stopped: whether it happened would be unknown",
        call.tool
    );
    let problem = Problem::new(call.on_cancel_place, message);
    problems.push(
        problem
            .hint("leave `on_cancel: finish`; only tools whose recovery is `safe` can be stopped"),
    );
}

struct Checks<'a> {
    tools: &'a dyn Tools,
    known: BTreeMap<ToolName, Option<ToolType>>,
    schemas: Schemas,
    draft: &'a Draft,
}

impl Checks<'_> {
    fn tool(
        &mut self,
        name: &ToolName,
        place: Place,
        problems: &mut Vec<Problem>,
    ) -> Option<ToolType> {
        let known = self.known.entry(name.clone()).or_insert_with(|| self.tools.tool(name));
        if known.is_none() {
            let names = self.tools.names();
            let problem = Problem::unknown_tool(place, name);
            problems.push(match self.tools.missing(name) {
                Some(hint) => problem.hint(hint),
                None => problem.did_you_mean(name.as_str(), names.iter().map(ToolName::as_str)),
            });
        }
        known.clone()
    }

    fn args(&mut self, name: &ToolName, tool: &ToolType, args: &Node, problems: &mut Vec<Problem>) {
        if let Some(schema) = &tool.input_schema {
            self.schemas.check(name, schema, args, self.draft, problems);
        }
    }

    /// How the call of a step is undone: as the step says, or else as its tool does.
    fn undo(
        &mut self,
        step: &Step,
        call: &Call,
        tool: &ToolType,
        problems: &mut Vec<Problem>,
    ) -> Option<UndoSpec> {
        match &call.undo {
            Undo::None => None,
            Undo::AsDeclared => {
                let Compensate { args, tool: name } = tool.compensate.as_ref()?;
                let mut found = Vec::new();
                if let Some(undo) = self.tool(name, call.tool_place, &mut found) {
                    self.args(name, &undo, &Node::of(args, call.tool_place), &mut found);
                }
                let of = format!("the undo of `{}` by `{name}`", call.tool);
                problems.extend(found.into_iter().map(|problem| problem.about(&of)));
                Some(UndoSpec { args: Template::of(args).ok()?, tool: name.clone() })
            }
            Undo::Call { tool: name, tool_place, args } => {
                if tool.effect == Effect::Read {
                    let message = format!(
                        "`{}` is read-only: step `{}` leaves nothing to undo",
                        call.tool, step.id
                    );
                    problems.push(Problem::new(*tool_place, message).hint("remove `compensate`"));
                    return None;
                }
                let undo = self.tool(name, *tool_place, problems)?;
                if undo.effect == Effect::Read {
                    let message = format!("`{name}` is read-only, and undoing changes something");
                    problems.push(Problem::new(*tool_place, message));
                }
                self.args(name, &undo, &args.node, problems);
                check_names(args, self.draft, problems);
                Some(UndoSpec { args: args.template.clone(), tool: name.clone() })
            }
        }
    }
}

/// The arguments of an undo see the call that is undone, and nothing else: they must come out the same
/// whoever computes them, and whenever.
fn check_names(args: &Located, draft: &Draft, problems: &mut Vec<Problem>) {
    for slot in &args.slots {
        if let Err(error) = slot.expr.check(&COMPENSATE_NAMES) {
            let place = slot.place(error.at, &draft.source);
            let problem = Problem::new(place, error.message);
            problems.push(problem.hint(
                "the arguments of `compensate` may use `args`, `result` and `key` of the call that is undone",
            ));
        }
    }
}
