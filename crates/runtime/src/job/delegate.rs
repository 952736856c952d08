//! Steps that hand a task to another job: what they say, the job that they name, and the authority that
//! is to be carved out for it. The whole family is read and checked before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gesta_core::amounts::Budget;
use gesta_core::body::{OnChildFailure, OnStop};
use gesta_core::content::{BlobRef, Content, MAX_INLINE_BYTES};
use gesta_core::ids::{Principal, StepId, ToolName};
use gesta_core::json::Canon;
use gesta_core::writ::Effect;

use super::compile::{Compiled, Tools, load_below};
use super::fields::{Fields, expected, integer, name, one_of, text};
use super::file::{Draft, budget};
use super::input::{Input, InputSpec, Type};
use super::located::{Located, Source};
use super::names::whole_input;
use super::problem::{Place, Problem, enough};
use super::sensitive::Secrecy;
use super::spec::DelegateSpec;
use super::step::Work;
use super::template::{Piece, pieces};
use super::tree::{Kind, Node};
use crate::authority::least;

/// How deep jobs may delegate to jobs.
const MAX_DEPTH: u64 = 8;

/// Where the files of other jobs are.
pub trait Files {
    /// The file that another one names: what it is called from here on, the same however it is reached,
    /// and its text. An error says why it cannot be had.
    fn read(&self, from: &str, path: &str) -> Result<(String, String), String>;
}

/// No files.
pub(super) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("no other files can be read here".to_owned())
    }
}

/// What a step says of the child.
#[derive(Clone, Debug)]
pub(super) struct Delegate {
    job: String,
    job_place: Place,
    pub(super) input: Located,
    /// What to go through, a child for each item.
    pub(super) each: Option<Located>,
    /// Whether it says so, whether or not that can be read.
    pub(super) fans_out: bool,
    principal: Option<Principal>,
    tools: Option<Vec<(ToolName, Place)>>,
    effect: Option<Effect>,
    budget: Budget,
    depth: Option<u64>,
    on_failure: OnChildFailure,
    on_stop: OnStop,
}

const KEYS: [&str; 9] =
    ["job", "input", "principal", "tools", "effect", "budget", "depth", "on_failure", "on_cancel"];

pub(super) fn read(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Delegate> {
    let fields = Fields::of(node, "`delegate`", &KEYS, problems)?;
    let job = match fields.get("job") {
        Some(job) => text(job, "the file of a job", problems).map(|text| (text, job.place)),
        None => {
            let problem = Problem::new(fields.place, "`delegate` has no `job`");
            problems.push(problem.hint("name the file of the job, relative to this one"));
            None
        }
    };
    let nothing = Node { place: fields.place, span: (0, 0), kind: Kind::Map(Vec::new()) };
    let given = fields.get("input").unwrap_or(&nothing);
    let mut input = Located::read(given, source, problems);
    if let Some(located) = &input
        && !matches!(given.kind, Kind::Map(_))
        && !located.is_expression()
    {
        problems.push(expected(given, "an input: an object, or one `${…}` that yields one"));
        input = None;
    }
    let principal = fields.get("principal").and_then(|node| name(node, "a principal", problems));
    let tools = fields.get("tools").map(|node| tools(node, problems));
    let effects = [
        ("read", Effect::Read),
        ("write", Effect::Write),
        ("external", Effect::External),
        ("irreversible", Effect::Irreversible),
    ];
    let effect = fields.get("effect").and_then(|node| one_of(node, "effect", effects, problems));
    let limits = fields.get("budget").map(|node| budget(node, problems)).unwrap_or_default();
    let depth = fields.get("depth");
    let depth = depth.and_then(|node| integer(node, "`depth`", 0, MAX_DEPTH, problems));
    let failures = [("fail", OnChildFailure::Fail), ("return", OnChildFailure::Return)];
    let on_failure =
        fields.get("on_failure").and_then(|node| one_of(node, "on_failure", failures, problems));
    let stops = [("cancel", OnStop::Cancel), ("wait", OnStop::Wait)];
    let on_stop =
        fields.get("on_cancel").and_then(|node| one_of(node, "on_cancel", stops, problems));
    let (job, job_place) = job?;
    Some(Delegate {
        job: job.to_owned(),
        job_place,
        input: input?,
        each: None,
        fans_out: false,
        principal,
        tools,
        effect,
        budget: limits,
        depth,
        on_failure: on_failure.unwrap_or_default(),
        on_stop: on_stop.unwrap_or_default(),
    })
}

fn tools(node: &Node, problems: &mut Vec<Problem>) -> Vec<(ToolName, Place)> {
    let Kind::List(nodes) = &node.kind else {
        problems.push(expected(node, "a list of tools"));
        return Vec::new();
    };
    let read = |node: &Node| Some((name(node, "the name of a tool", problems)?, node.place));
    nodes.iter().filter_map(read).collect()
}

/// The jobs that are being compiled, from the one that was asked for down, and those that are.
pub(super) struct Family<'a> {
    files: &'a dyn Files,
    above: Vec<String>,
    known: BTreeMap<String, Arc<Compiled>>,
}

impl<'a> Family<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self { files, above: Vec::new(), known: BTreeMap::new() }
    }

    /// The job that a step names. What is wrong with it is told at the step.
    fn child(
        &mut self,
        label: &str,
        delegate: &Delegate,
        tools: &dyn Tools,
    ) -> Result<Arc<Compiled>, Vec<Problem>> {
        let place = delegate.job_place;
        let refuse = |message: String| vec![Problem::new(place, message)];
        let (child, text) = self.files.read(label, &delegate.job).map_err(|why| {
            refuse(format!("the job file `{}` cannot be read: {why}", delegate.job))
        })?;
        if let Some(known) = self.known.get(&child) {
            return Ok(Arc::clone(known));
        }
        if self.above.contains(&child) || child == label {
            let problem = format!("`{}` delegates to itself in the end", delegate.job);
            let hint = "jobs that delegate to jobs must come to an end somewhere";
            return Err(vec![Problem::new(place, problem).hint(hint)]);
        }
        if self.above.len() as u64 + 1 >= MAX_DEPTH {
            return Err(refuse(format!("jobs delegate to jobs at most {MAX_DEPTH} deep")));
        }
        self.above.push(label.to_owned());
        let compiled = load_below(&child, &text, tools, self);
        self.above.pop();
        let compiled = compiled.map_err(|problems| {
            let of = |problem: &Problem| {
                let Problem { line, column, message, hint } = problem;
                let message = format!("{child}:{line}:{column}: {message}");
                Problem { hint: hint.clone(), ..Problem::new(place, message) }
            };
            problems.list.iter().map(of).collect::<Vec<_>>()
        })?;
        let compiled = Arc::new(compiled);
        self.known.insert(child, Arc::clone(&compiled));
        Ok(compiled)
    }
}

/// What the steps of a job hand on.
#[derive(Default)]
pub(super) struct Children {
    pub(super) specs: BTreeMap<StepId, DelegateSpec>,
    pub(super) blobs: Vec<Canon>,
}

impl Children {
    /// Reads and compiles every job that this one delegates to.
    pub(super) fn compile(
        label: &str,
        draft: &Draft,
        tools: &dyn Tools,
        family: &mut Family<'_>,
        secrecy: &Secrecy,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut children = Self::default();
        for step in &draft.steps {
            let Work::Delegate(delegate) = &step.work else { continue };
            if enough(problems) {
                break;
            }
            let compiled = match family.child(label, delegate, tools) {
                Ok(compiled) => compiled,
                Err(found) => {
                    problems.extend(found);
                    continue;
                }
            };
            check_input(&delegate.input, &compiled.inputs, draft, problems);
            secrecy.given(&delegate.input.node, &compiled.sensitive(), &delegate.job, problems);
            let granted = granted(delegate, &compiled, tools, problems);
            match children.spec(delegate, &compiled, granted, tools) {
                Ok(spec) => drop(children.specs.insert(step.id.clone(), spec)),
                Err(why) => problems.push(Problem::new(delegate.job_place, why)),
            }
        }
        children
    }

    fn spec(
        &mut self,
        delegate: &Delegate,
        compiled: &Compiled,
        granted: BTreeSet<ToolName>,
        tools: &dyn Tools,
    ) -> Result<DelegateSpec, String> {
        let plan = Canon::of(&compiled.plan).map_err(|error| error.to_string())?;
        self.blobs.extend(compiled.blobs.iter().cloned());
        // A plan inside a plan inside a plan would nest deeper than an entry may.
        let plan = if compiled.depth == 0 && plan.len() <= MAX_INLINE_BYTES {
            Content::Inline(plan)
        } else {
            let blob = BlobRef::of(plan.as_bytes());
            self.blobs.push(plan);
            Content::Blob(blob)
        };
        let effect = |name: &ToolName| tools.tool(name).map(|tool| tool.effect);
        let ceiling = granted.iter().map(|name| effect(name).unwrap_or(Effect::Irreversible));
        Ok(DelegateSpec {
            budget: least(&delegate.budget, &compiled.budget),
            depth: delegate.depth.unwrap_or(compiled.depth),
            effect: delegate.effect.or_else(|| ceiling.max()).unwrap_or(Effect::Read),
            input: delegate.input.template.clone(),
            inputs: compiled.inputs.iter().map(InputSpec::of).collect::<Result<_, _>>()?,
            job: compiled.name.clone(),
            on_failure: delegate.on_failure,
            on_stop: delegate.on_stop,
            plan,
            principal: delegate.principal.clone(),
            tools: granted.into_iter().collect(),
        })
    }

    /// Every tool that is handed on.
    pub(super) fn tools(&self) -> impl Iterator<Item = &ToolName> {
        self.specs.values().flat_map(|spec| &spec.tools)
    }

    /// How often the job's writ is narrowed on the way down.
    pub(super) fn depth(&self) -> u64 {
        self.specs.values().map(|spec| spec.depth.saturating_add(1)).max().unwrap_or(0)
    }
}

/// The tools of the child: those that the step names, or else those that the child's plan needs.
fn granted(
    delegate: &Delegate,
    compiled: &Compiled,
    tools: &dyn Tools,
    problems: &mut Vec<Problem>,
) -> BTreeSet<ToolName> {
    let Some(named) = &delegate.tools else { return compiled.grants.clone() };
    for (tool, place) in named {
        if tools.tool(tool).is_none() {
            let names = tools.names();
            let problem = Problem::unknown_tool(*place, tool);
            let known = names.iter().map(ToolName::as_str);
            problems.push(problem.did_you_mean(tool.as_str(), known));
        }
    }
    named.iter().map(|(tool, _)| tool.clone()).collect()
}

/// What the child is given against what it declares, as far as it is known before anything runs.
fn check_input(given: &Located, inputs: &[Input], draft: &Draft, problems: &mut Vec<Problem>) {
    let Kind::Map(entries) = &given.node.kind else { return };
    for entry in entries {
        let Some(input) = inputs.iter().find(|input| input.name == entry.key) else {
            let problem = Problem::new(entry.place, format!("unknown input `{}`", entry.key));
            let known = inputs.iter().map(|input| input.name.as_str());
            problems.push(problem.did_you_mean(&entry.key, known));
            continue;
        };
        if let Some(message) = mismatch(&entry.value, input, draft) {
            problems.push(Problem::new(entry.value.place, message));
        }
    }
    for input in inputs.iter().filter(|input| input.required()) {
        if !entries.iter().any(|entry| entry.key == input.name) {
            let problem =
                Problem::new(given.node.place, format!("input `{}` is missing", input.name));
            problems.push(problem.hint(format!("it is of type {}", input.type_.as_str())));
        }
    }
}

fn mismatch(node: &Node, input: &Input, draft: &Draft) -> Option<String> {
    let found = match &node.kind {
        Kind::Text(text) => match pieces(text).ok()?.as_slice() {
            [] | [Piece::Plain(_)] => return input.check(&node.value()).err(),
            [Piece::Expression(expr)] => {
                let name = expr.node().ok().and_then(whole_input)?;
                draft.inputs.iter().find(|input| input.name == **name)?.type_
            }
            _ => Type::String,
        },
        Kind::List(_) => Type::Array,
        Kind::Map(_) => Type::Object,
        _ => return input.check(&node.value()).err(),
    };
    // A number may turn out to be whole.
    let numbers = [Type::Integer, Type::Number];
    let fits = found == input.type_ || numbers.contains(&found) && numbers.contains(&input.type_);
    (!fits).then(|| {
        let (name, wanted) = (&input.name, input.type_.as_str());
        format!("input `{name}` is of type {wanted}, not {}", found.as_str())
    })
}
