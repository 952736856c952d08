//! The job file: read as far as it can be read, with every problem on the way noted.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::amounts::Budget;
use gesta_core::body::{ConfirmationMode, Plan};
use gesta_core::ids::StepId;

use super::fields::{Fields, confirmation_mode, expected, integer, one_of, text};
use super::input::{self, Input};
use super::located::{Located, Source};
use super::problem::{Place, Problem, enough};
use super::spec::OnFailure;
use super::step::{self, Step};
use super::tree::{self, Kind, Node};

/// How many steps a job may have.
const MAX_STEPS: usize = 10_000;
/// How many calls may be open at once, at most and unless the job says otherwise.
const MAX_PARALLEL: u64 = 1_000;
const DEFAULT_PARALLEL: u32 = 8;
/// The longest name of a job.
const MAX_NAME: usize = 64;
/// The greatest amount that canonical JSON can tell.
const MAX_AMOUNT: u64 = (1 << 53) - 1;

/// A job file as far as it could be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) inputs: Vec<Input>,
    /// The names of all inputs, those that could not be read among them.
    pub(super) input_names: BTreeSet<String>,
    pub(super) budget: Budget,
    pub(super) parallel: u32,
    pub(super) priority: u8,
    pub(super) on_failure: OnFailure,
    pub(super) confirm: Option<ConfirmationMode>,
    pub(super) steps: Vec<Step>,
    /// The ids of all steps, those that could not be read among them.
    pub(super) step_ids: BTreeSet<StepId>,
    pub(super) answer: Option<Located>,
    /// The file itself, to tell where in it a problem is.
    pub(super) source: Source,
}

/// Reads a job file.
pub(super) fn read(content: &str, problems: &mut Vec<Problem>) -> Draft {
    let mut draft = Draft { parallel: DEFAULT_PARALLEL, ..Draft::default() };
    let Some(root) = tree::read(content, problems) else { return draft };
    let keys = [
        "job",
        "description",
        "input",
        "budget",
        "parallel",
        "priority",
        "on_failure",
        "confirm",
        "steps",
        "answer",
    ];
    let Some(fields) = Fields::of(&root, "a job", &keys, problems) else { return draft };
    draft.source = Source(content.into());
    let source = draft.source.clone();
    draft.name = name(&fields, problems).unwrap_or_default();
    if let Some(node) = fields.get("description") {
        draft.description = text(node, "a description", problems).map(str::to_owned);
    }
    if let Some(node) = fields.get("input") {
        read_inputs(node, &mut draft, problems);
    }
    if let Some(node) = fields.get("budget") {
        draft.budget = budget(node, problems);
    }
    if let Some(node) = fields.get("parallel") {
        let parallel = integer(node, "`parallel`", 1, MAX_PARALLEL, problems);
        draft.parallel = parallel.and_then(|n| u32::try_from(n).ok()).unwrap_or(DEFAULT_PARALLEL);
    }
    if let Some(node) = fields.get("priority") {
        let most = u64::from(Plan::MAX_PRIORITY);
        let priority = integer(node, "`priority`", 0, most, problems);
        draft.priority = priority.and_then(|n| u8::try_from(n).ok()).unwrap_or_default();
    }
    if let Some(node) = fields.get("on_failure") {
        let known = [("keep", OnFailure::Keep), ("compensate", OnFailure::Compensate)];
        draft.on_failure = one_of(node, "on_failure", known, problems).unwrap_or_default();
    }
    draft.confirm = fields.get("confirm").and_then(|node| confirmation_mode(node, problems));
    match fields.get("steps") {
        Some(node) => read_steps(node, &source, &mut draft, problems),
        None => problems.push(Problem::new(fields.place, "a job has `steps`")),
    }
    draft.answer = fields.get("answer").and_then(|node| Located::read(node, &source, problems));
    draft
}

fn name(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<String> {
    let Some(node) = fields.get("job") else {
        let problem = Problem::new(fields.place, "this job has no name");
        problems.push(problem.hint("begin the file with `job: NAME`"));
        return None;
    };
    let name = text(node, "the name of the job", problems)?;
    let spelled = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(spelled) {
        let problem = Problem::new(node.place, format!("`{name}` is not the name of a job"));
        problems.push(problem.hint(format!("use at most {MAX_NAME} of `a-z`, `0-9`, `_` and `-`")));
        return None;
    }
    Some(name.to_owned())
}

fn read_inputs(node: &Node, draft: &mut Draft, problems: &mut Vec<Problem>) {
    let Kind::Map(entries) = &node.kind else {
        problems.push(expected(node, "inputs: an object of names and types"));
        return;
    };
    draft.input_names = entries.iter().map(|entry| entry.key.clone()).collect();
    draft.inputs = entries.iter().filter_map(|entry| input::read(entry, problems)).collect();
}

pub(super) fn budget(node: &Node, problems: &mut Vec<Problem>) -> Budget {
    let keys = ["calls", "money_micros", "tokens", "wall_ms"];
    let Some(fields) = Fields::of(node, "`budget`", &keys, problems) else {
        return Budget::default();
    };
    let mut amount =
        |key: &str| integer(fields.get(key)?, &format!("`{key}`"), 0, MAX_AMOUNT, problems);
    Budget {
        calls: amount("calls"),
        money_micros: amount("money_micros"),
        tokens: amount("tokens"),
        wall_ms: amount("wall_ms"),
    }
}

fn read_steps(node: &Node, source: &Source, draft: &mut Draft, problems: &mut Vec<Problem>) {
    let Kind::List(nodes) = &node.kind else {
        problems.push(expected(node, "a list of steps"));
        return;
    };
    if nodes.is_empty() {
        problems.push(Problem::new(node.place, "a job has at least one step"));
    }
    if nodes.len() > MAX_STEPS {
        let message = format!("a job has at most {MAX_STEPS} steps, this one has {}", nodes.len());
        problems.push(Problem::new(node.place, message).hint("use `each`, or `delegate`"));
        return;
    }
    let mut lines: BTreeMap<StepId, u32> = BTreeMap::new();
    for node in nodes {
        if enough(problems) {
            return;
        }
        let (id, step) = step::read(node, source, problems);
        let Some(id) = id else { continue };
        if let Some(line) = lines.get(&id) {
            let place = step.map_or(node.place, |step: Step| step.place);
            problems.push(twice(place, &id, *line));
            continue;
        }
        lines.insert(id.clone(), node.place.line);
        draft.step_ids.insert(id);
        draft.steps.extend(step);
    }
}

fn twice(place: Place, id: &StepId, line: u32) -> Problem {
    Problem::new(place, format!("there are two steps `{id}`"))
        .hint(format!("the first is in line {line}"))
}
