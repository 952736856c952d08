//! What an expression mentions: inputs, steps, the world. Found without evaluating anything, so that
//! a plan can be derived and a misspelt name refused before anything runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_core::ids::StepId;

use super::cel::{Kind, Node};

/// A name that an expression uses, and the byte of its source at which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) at: usize,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// `input.name`.
    Input(Arc<str>),
    /// `steps.id.field`; no field if the step itself is used as a value.
    Step { id: Arc<str>, field: Option<Arc<str>> },
    /// `steps` used as a value, or indexed by something computed.
    BareSteps,
    /// `world` used as a value.
    BareWorld,
    /// Any other name.
    Name(Arc<str>),
}

/// What a template or an expression mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The steps whose result or skipping it looks at.
    pub steps: BTreeSet<StepId>,
    /// The inputs that it names one by one.
    pub inputs: BTreeSet<String>,
    /// Every name that it uses: `input`, `steps`, `world`, `item`, `index`, or what a manifest gives.
    pub names: BTreeSet<String>,
}

impl References {
    pub(super) fn add(&mut self, node: &Node) {
        for Mention { what, .. } in mentions(node) {
            let name = match what {
                What::Input(name) => {
                    self.inputs.insert(name.to_string());
                    "input".into()
                }
                What::Step { id, .. } => {
                    self.steps.extend(id.parse::<StepId>().ok());
                    "steps".into()
                }
                What::BareSteps => "steps".into(),
                What::BareWorld => "world".into(),
                What::Name(name) => name,
            };
            self.names.insert(name.to_string());
        }
    }

    /// Whether it depends on the item of a fan-out.
    pub fn item(&self) -> bool {
        self.names.contains("item") || self.names.contains("index")
    }
}

/// Every name that is not bound inside the expression, in the order of the source.
pub(super) fn mentions(node: &Node) -> Vec<Mention> {
    let mut found = Vec::new();
    walk(node, &mut Vec::new(), &mut found);
    found.sort_by_key(|mention| mention.at);
    found
}

fn walk(node: &Node, bound: &mut Vec<Arc<str>>, found: &mut Vec<Mention>) {
    match &node.kind {
        Kind::Name(name) if !bound.contains(name) => {
            let what = match &**name {
                "steps" => What::BareSteps,
                "world" => What::BareWorld,
                _ => What::Name(Arc::clone(name)),
            };
            found.push(Mention { at: node.at, what });
        }
        Kind::Select { of, field } | Kind::Has { of, field } => {
            if !select(of, field, bound, found) {
                walk(of, bound, found);
            }
        }
        Kind::Index { of, index } => {
            let taken = match index.literal_text() {
                Some(field) => select(of, field, bound, found),
                None => false,
            };
            if !taken {
                walk_indexed(of, bound, found);
                walk(index, bound, found);
            }
        }
        Kind::Fold(fold) => {
            walk(&fold.over, bound, found);
            bound.push(Arc::clone(&fold.name));
            for part in fold.guard.iter().chain([&fold.body]) {
                walk(part, bound, found);
            }
            bound.pop();
        }
        _ => {
            for part in node.parts() {
                walk(part, bound, found);
            }
        }
    }
}

/// What is indexed by something computed: of the two handles, only `world` may be.
fn walk_indexed(of: &Node, bound: &mut Vec<Arc<str>>, found: &mut Vec<Mention>) {
    match global(of, bound) {
        Some("world") => found.push(Mention { at: of.at, what: What::Name("world".into()) }),
        _ => walk(of, bound, found),
    }
}

/// A field of `input`, `steps`, `world` or of a step; false if it is of something else.
fn select(of: &Node, field: &Arc<str>, bound: &[Arc<str>], found: &mut Vec<Mention>) -> bool {
    let what = match global(of, bound) {
        Some("input") => What::Input(Arc::clone(field)),
        Some("world") => What::Name("world".into()),
        Some("steps") => What::Step { id: Arc::clone(field), field: None },
        Some(_) => return false,
        None => {
            let Some((at, id)) = step(of, bound) else { return false };
            found.push(Mention { at, what: What::Step { id, field: Some(Arc::clone(field)) } });
            return true;
        }
    };
    found.push(Mention { at: of.at, what });
    true
}

/// The place and id of a step, if the part names one.
fn step(node: &Node, bound: &[Arc<str>]) -> Option<(usize, Arc<str>)> {
    let (of, id) = match &node.kind {
        Kind::Select { of, field } => (of, field),
        Kind::Index { of, index } => (of, index.literal_text()?),
        _ => return None,
    };
    (global(of, bound) == Some("steps")).then(|| (of.at, Arc::clone(id)))
}

/// The name, if the part is one that no macro has bound.
fn global<'n>(node: &'n Node, bound: &[Arc<str>]) -> Option<&'n str> {
    match &node.kind {
        Kind::Name(name) if !bound.contains(name) => Some(name),
        _ => None,
    }
}

/// The input, if the whole expression is nothing but `input.name`.
pub(super) fn whole_input(node: &Node) -> Option<&Arc<str>> {
    match &node.kind {
        Kind::Select { of, field } if global(of, &[]) == Some("input") => Some(field),
        Kind::Index { of, index } if global(of, &[]) == Some("input") => index.literal_text(),
        _ => None,
    }
}
