//! Sensitive values in a job, as far as they can be seen before anything runs: they are handed on whole,
//! into places that are marked, and no expression looks into them. What is not seen here is refused
//! when it happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::sensitive::{Marks, Reach};

use super::cel::{Kind, Node};
use super::compile::Tools;
use super::file::Draft;
use super::located::{Located, Slot};
use super::problem::{Problem, enough};
use super::step::{Call, Step, Undo, Work};
use super::template::{Piece, pieces};
use super::tree::{self, Kind as Written};

/// What names lead to that is sensitive: `input`, `args` and so on by name, results by step.
#[derive(Default)]
pub(super) struct Secrecy {
    names: BTreeMap<String, Marks>,
    steps: BTreeMap<String, Marks>,
}

/// A sensitive value in an expression.
struct Touched {
    at: usize,
    path: String,
    /// Whether the expression yields it as it is.
    whole: bool,
}

impl Secrecy {
    /// What of a job is sensitive, as its inputs and the results of its tools are marked.
    pub(super) fn of(draft: &Draft, tools: &dyn Tools) -> Self {
        let inputs = draft.inputs.iter().filter(|input| input.sensitive);
        let input = Marks::of_fields(inputs.map(|input| input.name.as_str()));
        let names = BTreeMap::from([("input".to_owned(), input)]);
        let mut steps = BTreeMap::new();
        for step in &draft.steps {
            let Work::Call(call) = &step.work else { continue };
            if let Some(tool) = tools.tool(&call.tool).filter(|_| !call.fans_out) {
                steps.insert(step.id.to_string(), tool.sensitive.1);
            }
        }
        Self { names, steps }
    }

    fn of_call((args, result): &(Marks, Marks)) -> Self {
        let names = [("args".to_owned(), args.clone()), ("result".to_owned(), result.clone())];
        Self { names: names.into(), steps: BTreeMap::new() }
    }

    /// Checks every expression of a job.
    pub(super) fn check(&self, draft: &Draft, tools: &dyn Tools, problems: &mut Vec<Problem>) {
        for step in &draft.steps {
            if enough(problems) {
                return;
            }
            self.condition(step.when.as_ref(), draft, problems);
            match &step.work {
                Work::Call(call) => {
                    if let Some(each) = &call.each {
                        self.handed_on(each, problems);
                    }
                    self.call(step, call, tools, problems);
                }
                Work::Set(value) => self.handed_on(value, problems),
                Work::Wait { signal, until, .. } => {
                    for template in signal.iter().chain(until) {
                        template.slots.iter().for_each(|slot| {
                            self.condition(Some(slot), draft, problems);
                        });
                    }
                }
                // What it is given is compared with what the child declares.
                Work::Delegate(delegate) => {
                    if let Some(each) = &delegate.each {
                        self.handed_on(each, problems);
                    }
                }
            }
        }
        if let Some(answer) = &draft.answer {
            self.handed_on(answer, problems);
        }
    }

    fn call(&self, step: &Step, call: &Call, tools: &dyn Tools, problems: &mut Vec<Problem>) {
        let Some(tool) = tools.tool(&call.tool) else { return };
        self.given(&call.args.node, &tool.sensitive.0, call.tool.as_str(), problems);
        let (name, args) = match &call.undo {
            Undo::None => return,
            Undo::AsDeclared => match &tool.compensate {
                Some(undo) => (undo.tool.clone(), tree::Node::of(&undo.args, call.tool_place)),
                None => return,
            },
            Undo::Call { tool, args, .. } => (tool.clone(), args.node.clone()),
        };
        let Some(undo) = tools.tool(&name) else { return };
        let mut found = Vec::new();
        Self::of_call(&tool.sensitive).given(&args, &undo.sensitive.0, name.as_str(), &mut found);
        let of = format!("the undo of step `{}`", step.id);
        problems.extend(found.into_iter().map(|problem| problem.about(&of)));
    }

    /// Checks arguments, or an input, against the marks of whatever takes them.
    pub(super) fn given(
        &self,
        node: &tree::Node,
        marks: &Marks,
        to: &str,
        problems: &mut Vec<Problem>,
    ) {
        self.walk(node, &mut Vec::new(), &mut |node, path, touched| {
            let shown = path.join("/");
            let problem = match touched {
                Touched { path, whole: false, .. } => looked_into(path),
                Touched { path: value, .. } => {
                    let inside = path.split_last().map(|(_, above)| above).unwrap_or_default();
                    let parts = path.iter().map(String::as_str);
                    let inside = inside.iter().map(String::as_str);
                    if marks.reach(inside) == Reach::Sensitive {
                        Problem::anywhere(format!(
                            "`{value}` is sensitive, and stands inside of `{shown}`, which is too"
                        ))
                        .hint("hand it on whole")
                    } else if marks.reach(parts) == Reach::Sensitive {
                        return;
                    } else {
                        Problem::anywhere(format!(
                            "`{value}` is sensitive, and `{shown}` of `{to}` is not marked so"
                        ))
                        .hint("mark it where it is declared: `\"x-gesta-sensitive\": true` in a schema, `sensitive: true` at an input")
                    }
                }
            };
            problems.push(problem.at(node.place));
        });
    }

    /// Checks a template whose value is recorded as it is.
    fn handed_on(&self, template: &Located, problems: &mut Vec<Problem>) {
        self.walk(&template.node, &mut Vec::new(), &mut |node, _, touched| {
            if !touched.whole {
                problems.push(looked_into(&touched.path).at(node.place));
            }
        });
    }

    /// Checks an expression that is used, not handed on.
    fn condition(&self, slot: Option<&Slot>, draft: &Draft, problems: &mut Vec<Problem>) {
        let Some((slot, node)) = slot.and_then(|slot| Some((slot, slot.expr.node().ok()?))) else {
            return;
        };
        for touched in self.touches(node) {
            let place = slot.place(touched.at, &draft.source);
            problems.push(looked_into(&touched.path).at(place));
        }
    }

    /// Every sensitive value in the expressions of a template, with the path of where it would go.
    fn walk(
        &self,
        node: &tree::Node,
        path: &mut Vec<String>,
        found: &mut dyn FnMut(&tree::Node, &[String], &Touched),
    ) {
        match &node.kind {
            Written::Text(text) => {
                let pieces = pieces(text).unwrap_or_default();
                let alone = pieces.len() == 1;
                for piece in &pieces {
                    let Piece::Expression(expr) = piece else { continue };
                    let Ok(expression) = expr.node() else { continue };
                    for touched in self.touches(expression) {
                        let whole = touched.whole && alone;
                        found(node, path, &Touched { whole, ..touched });
                    }
                }
            }
            Written::List(nodes) => {
                for (i, node) in nodes.iter().enumerate() {
                    path.push(i.to_string());
                    self.walk(node, path, found);
                    path.pop();
                }
            }
            Written::Map(entries) => {
                for entry in entries {
                    path.push(entry.key.clone());
                    self.walk(&entry.value, path, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn touches(&self, node: &Node) -> Vec<Touched> {
        let mut found = Vec::new();
        self.look(node, true, &mut found);
        found
    }

    /// Looks for sensitive values. What is only chosen between, or put into a list or an object, is not
    /// looked into.
    fn look(&self, node: &Node, whole: bool, found: &mut Vec<Touched>) {
        if let Some(path) = self.sensitive(node) {
            found.push(Touched { at: node.at, path, whole });
            return;
        }
        match &node.kind {
            Kind::Conditional { test, yes, no } => {
                self.look(test, false, found);
                self.look(yes, whole, found);
                self.look(no, whole, found);
            }
            // Whether a field is there is no secret.
            Kind::Has { of, .. } => self.look(of, false, found),
            _ => {
                for part in node.parts() {
                    self.look(part, false, found);
                }
            }
        }
    }

    /// The path of a part, if it leads to a sensitive value.
    fn sensitive(&self, node: &Node) -> Option<String> {
        let path = path(node)?;
        let (root, below) = path.split_first()?;
        let (marks, below) = match (&**root, below) {
            ("steps", [step, result, below @ ..]) if &**result == "result" => {
                (self.steps.get(&**step)?, below)
            }
            ("steps", _) => return None,
            (name, below) => (self.names.get(name)?, below),
        };
        let reached = marks.reach(below.iter().map(|part| &**part)) == Reach::Sensitive;
        reached.then(|| path.join("."))
    }
}

/// A name and the fields that lead down from it.
fn path(node: &Node) -> Option<Vec<Arc<str>>> {
    let (of, field) = match &node.kind {
        Kind::Name(name) => return Some(vec![Arc::clone(name)]),
        Kind::Select { of, field } => (of, Arc::clone(field)),
        Kind::Index { of, index } => match (&index.kind, index.literal_text()) {
            (_, Some(field)) => (of, Arc::clone(field)),
            // Whichever element it is, its marks are the same.
            _ => (of, "0".into()),
        },
        _ => return None,
    };
    let mut path = path(of)?;
    path.push(field);
    Some(path)
}

fn looked_into(path: &str) -> Problem {
    Problem::anywhere(format!("`{path}` is sensitive: no expression can look into it"))
        .hint("hand it on whole, as `${…}` alone, to something that is marked sensitive")
}

/// The sensitive value that an expression looks into, over `args` and `result` of a tool so marked.
/// With `whole`, yielding it as it is is no looking.
pub(crate) fn looks_into(
    expr: &super::Expr,
    sensitive: &(Marks, Marks),
    whole: bool,
) -> Option<String> {
    let touches = Secrecy::of_call(sensitive).touches(expr.node().ok()?);
    touches.into_iter().find(|touched| !(whole && touched.whole)).map(|touched| touched.path)
}
