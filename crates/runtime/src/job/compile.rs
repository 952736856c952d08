//! From a job file to a plan: everything is checked, and every problem found, before anything runs.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::amounts::Budget;
use gesta_core::body::{Plan, PlanStep};
use gesta_core::document::Recovery;
use gesta_core::ids::{StepId, ToolName};
use gesta_core::json::{Canon, JsonError, Limits, to_canonical_within};
use gesta_core::sensitive::{Commitment, Marks};
use gesta_core::writ::Effect;

use super::calls::{Undos, check_calls};
use super::cel::reserved;
use super::check::{check_answer, needs_of};
use super::constants::check_constants;
use super::delegate::{Children, Family, Files, NoFiles};
use super::expr::Expr;
use super::file::{self, Draft};
use super::graph::Graph;
use super::input::{self, Input};
use super::located::Located;
use super::mermaid::mermaid;
use super::problem::{Place, Problem, Problems, enough};
use super::sensitive::Secrecy;
use super::spec::{ANSWER, CallSpec, JobFacts, Spec, UndoSpec, Work};
use super::step::{Call, Step, Work as Declared};
use super::template::Template;
use crate::tools::{Catalogue, Compensate};

/// What an entry needs beside its plan: bytes, and levels of nesting.
const ENVELOPE: Limits = Limits { max_bytes: 4096, max_depth: 4 };

/// What a job's check asks of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolType {
    /// The schema of its arguments, if it has one.
    pub input_schema: Option<serde_json::Value>,
    /// Which of its arguments are sensitive, and what of its result.
    pub sensitive: (Marks, Marks),
    /// How it may be recovered.
    pub recovery: Recovery,
    /// What it does to the outside world.
    pub effect: Effect,
    /// The call that undoes it, unless a step says otherwise.
    pub compensate: Option<Compensate>,
    /// The tool that tells whether a call of it happened.
    pub probe: Option<ToolName>,
}

/// The tools that a job may call.
pub trait Tools {
    /// A tool; none if there is no such tool.
    fn tool(&self, name: &ToolName) -> Option<ToolType>;
    /// The names of all tools.
    fn names(&self) -> Vec<ToolName>;
    /// Why a tool may be missing, and what to do about it.
    fn missing(&self, _: &ToolName) -> Option<String> {
        None
    }
}

impl Tools for Catalogue {
    fn tool(&self, name: &ToolName) -> Option<ToolType> {
        let tool = self.get(name)?;
        Some(ToolType {
            input_schema: serde_json::from_str(tool.input_schema().as_str()).ok(),
            sensitive: tool.sensitive().clone(),
            recovery: tool.manifest().recovery,
            effect: tool.manifest().effect,
            compensate: tool.manifest().compensate.clone(),
            probe: tool.manifest().probe.clone(),
        })
    }

    fn names(&self) -> Vec<ToolName> {
        self.iter().map(|tool| tool.name().clone()).collect()
    }

    fn missing(&self, name: &ToolName) -> Option<String> {
        let server = name.as_str().split_once('.')?.0;
        let unpinned = self.unpinned_servers().iter().find(|known| known.as_str() == server)?;
        Some(format!(
            "MCP server `{unpinned}` is not pinned yet; `gesta tools pin` asks it what it offers"
        ))
    }
}

/// A job file that could be read.
#[derive(Clone, Debug)]
pub struct JobFile {
    label: String,
    draft: Draft,
}

/// A job that can be run.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The job's name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The plan.
    pub plan: Plan,
    /// What the job's writ is narrowed to.
    pub budget: Budget,
    /// The tools that it calls, those that undo among them.
    pub tools: BTreeSet<ToolName>,
    /// The tools that its writ must name: those, those that tell whether a call happened, and everything
    /// that it hands on to children.
    pub grants: BTreeSet<ToolName>,
    /// How often its writ is narrowed for children, theirs, and so on.
    pub depth: u64,
    /// Plans of children that must be blobs before the job is submitted.
    pub blobs: Vec<Canon>,
    /// How many calls may be open at once.
    pub parallel: u32,
    pub(super) inputs: Vec<Input>,
    label: String,
}

/// Reads a job file, YAML or JSON. The label names it in problems.
pub fn parse(label: &str, text: &str) -> Result<JobFile, Problems> {
    let mut problems = Vec::new();
    let draft = file::read(text, &mut problems);
    Problems::check(label, problems)?;
    Ok(JobFile { label: label.to_owned(), draft })
}

/// Reads and compiles a job file, and reports the problems of both at once. Other files, as of jobs
/// that it delegates to, are not there.
pub fn load(label: &str, text: &str, tools: &dyn Tools) -> Result<Compiled, Problems> {
    load_with(label, text, tools, &NoFiles)
}

/// The same, where other files are.
pub fn load_with(
    label: &str,
    text: &str,
    tools: &dyn Tools,
    files: &dyn Files,
) -> Result<Compiled, Problems> {
    load_below(label, text, tools, &mut Family::new(files))
}

/// The same, as one of a family of jobs.
pub(super) fn load_below(
    label: &str,
    text: &str,
    tools: &dyn Tools,
    family: &mut Family<'_>,
) -> Result<Compiled, Problems> {
    let mut problems = Vec::new();
    let draft = file::read(text, &mut problems);
    compile(label, &draft, tools, family, problems)
}

impl JobFile {
    /// The plan of the job, if everything it mentions is there and fits.
    pub fn compile(&self, tools: &dyn Tools) -> Result<Compiled, Problems> {
        compile(&self.label, &self.draft, tools, &mut Family::new(&NoFiles), Vec::new())
    }
}

impl Compiled {
    /// The job's input from the command line: strings as they are, anything else as JSON.
    pub fn input(&self, given: &BTreeMap<String, String>) -> Result<Canon, Problems> {
        input::from_text(&self.inputs, given)
            .and_then(in_clear)
            .map_err(|list| Problems { label: self.label.clone(), list })
    }

    /// The job's input from JSON: checked, with defaults filled in.
    pub fn input_json(&self, value: &Canon) -> Result<Canon, Problems> {
        input::from_json(&self.inputs, value)
            .and_then(in_clear)
            .map_err(|list| Problems { label: self.label.clone(), list })
    }

    /// The job's input from that of another run, as far as this job knows its names, and from the command
    /// line, which counts.
    pub fn input_over(
        &self,
        before: &Canon,
        given: &BTreeMap<String, String>,
    ) -> Result<Canon, Problems> {
        let before: BTreeMap<String, serde_json::Value> = before.read().unwrap_or_default();
        let mut all = BTreeMap::new();
        for (name, value) in before {
            let known = self.inputs.iter().any(|input| input.name == name);
            match value {
                serde_json::Value::Null => {}
                // What is committed to is not opened here: whoever wants another plan gives it again.
                value if Commitment::read(&value).is_some() => {}
                serde_json::Value::String(text) if known => drop(all.insert(name, text)),
                value if known => drop(all.insert(name, value.to_string())),
                _ => {}
            }
        }
        all.extend(given.iter().map(|(name, text)| (name.clone(), text.clone())));
        self.input(&all)
    }

    /// The places of its input that are sensitive.
    pub fn sensitive(&self) -> Marks {
        let sensitive = self.inputs.iter().filter(|input| input.sensitive);
        Marks::of_fields(sensitive.map(|input| input.name.as_str()))
    }

    /// The plan as a Mermaid diagram.
    pub fn mermaid(&self) -> String {
        mermaid(&self.plan)
    }
}

/// What comes from outside must not pass for a commitment.
fn in_clear(input: Canon) -> Result<Canon, Vec<Problem>> {
    let value = serde_json::from_str(input.as_str()).unwrap_or_default();
    match gesta_core::sensitive::reserved(&value) {
        Some(pointer) => Err(vec![Problem::anywhere(format!("at `{pointer}`: {}", reserved()))]),
        None => Ok(input),
    }
}

fn compile(
    label: &str,
    draft: &Draft,
    tools: &dyn Tools,
    family: &mut Family<'_>,
    mut problems: Vec<Problem>,
) -> Result<Compiled, Problems> {
    let undos = check_calls(draft, tools, &mut problems);
    let secrecy = Secrecy::of(draft, tools);
    secrecy.check(draft, tools, &mut problems);
    let children = Children::compile(label, draft, tools, family, &secrecy, &mut problems);
    let mut needs = Vec::with_capacity(draft.steps.len());
    for step in &draft.steps {
        if enough(&problems) {
            break;
        }
        needs.push((step.id.clone(), needs_of(step, draft, &mut problems)));
    }
    let graph = Graph::new(needs);
    if let Some(answer) = &draft.answer {
        check_answer(answer, draft, &mut problems);
    }
    check_constants(draft, &mut problems);
    let order = match graph.order() {
        Ok(order) => order,
        Err(cycles) => {
            problems.extend(cycles.iter().map(|cycle| needs_itself(cycle, draft)));
            Vec::new()
        }
    };
    Problems::check(label, problems)?;
    let too_large = |error: JsonError| {
        let problem = Problem::new(
            Place { line: 1, column: 1 },
            format!("the plan of this job is too large: {error}"),
        );
        Problems::one(label, problem.hint("split the job"))
    };
    let called = draft.steps.iter().filter_map(|step| match &step.work {
        Declared::Call(call) => Some(&call.tool),
        _ => None,
    });
    let called: BTreeSet<ToolName> =
        called.chain(undos.values().map(|undo| &undo.tool)).cloned().collect();
    let probes = called.iter().filter_map(|name| tools.tool(name)?.probe);
    let grants = probes.chain(called.iter().cloned()).chain(children.tools().cloned()).collect();
    let plan = plan(draft, &graph, &order, (&undos, &children), &called).map_err(too_large)?;
    Ok(Compiled {
        name: draft.name.clone(),
        description: draft.description.clone(),
        plan,
        budget: draft.budget,
        tools: called,
        grants,
        depth: children.depth(),
        blobs: children.blobs,
        parallel: draft.parallel,
        inputs: draft.inputs.clone(),
        label: label.to_owned(),
    })
}

fn needs_itself(cycle: &[usize], draft: &Draft) -> Problem {
    let steps: Vec<&Step> = cycle.iter().filter_map(|number| draft.steps.get(*number)).collect();
    let names: Vec<String> =
        steps.iter().chain(steps.first()).map(|step| format!("`{}`", step.id)).collect();
    let place = steps.first().map(|step| step.place).unwrap_or_default();
    Problem::new(place, format!("these steps wait for each other: {}", names.join(" needs ")))
}

fn plan(
    draft: &Draft,
    graph: &Graph,
    order: &[usize],
    (undos, children): (&Undos, &Children),
    tools: &BTreeSet<ToolName>,
) -> Result<Plan, JsonError> {
    let mut steps = Vec::with_capacity(order.len() + 1);
    for number in order {
        let Some(step) = draft.steps.get(*number) else { continue };
        let Some(spec) = spec(step, undos.get(&step.id), children) else { continue };
        steps.push(PlanStep {
            id: step.id.clone(),
            kind: spec.work.kind(),
            needs: graph.needs(*number),
            spec: spec.canon()?,
        });
    }
    steps.push(answer(draft, graph)?);
    let mut plan = Plan::new(steps)?.needing(tools);
    plan.priority = draft.priority;
    let room = Limits {
        max_bytes: Limits::DEFAULT.max_bytes - ENVELOPE.max_bytes,
        max_depth: Limits::DEFAULT.max_depth - ENVELOPE.max_depth,
    };
    to_canonical_within(&plan, room)?;
    Ok(plan)
}

/// None for a step whose child could not be compiled: it has its problem.
fn spec(step: &Step, undo: Option<&UndoSpec>, children: &Children) -> Option<Spec> {
    let when = step.when.as_ref().map(|slot| slot.expr.clone());
    let spec = |when, work| Spec { confirm: step.confirm, job: None, when, work };
    Some(match &step.work {
        Declared::Delegate(declared) => {
            let delegate = Box::new(children.specs.get(&step.id)?.clone());
            let Some(over) = &declared.each else {
                return Some(spec(when, Work::Delegate(delegate)));
            };
            let over = over.template.clone();
            let (when, whole) = of_items(when);
            spec(whole, Work::Delegates { delegate, over, when })
        }
        Declared::Set(value) => spec(when, Work::Set { value: value.template.clone() }),
        Declared::Wait { signal, until, for_ms } => {
            let template = |located: &Located| located.template.clone();
            let work = Work::Wait {
                signal: signal.as_ref().map(template),
                until: until.as_ref().map(template),
                for_ms: *for_ms,
            };
            spec(when, work)
        }
        Declared::Call(declared) => {
            let call = call(declared, undo);
            let Some(over) = &declared.each else {
                return Some(spec(when, Work::Call(call)));
            };
            let over = over.template.clone();
            let (when, whole) = of_items(when);
            spec(whole, Work::Each { call, over, when })
        }
    })
}

/// A condition on the item is asked of each item, any other one of the step.
fn of_items(when: Option<Expr>) -> (Option<Expr>, Option<Expr>) {
    match when {
        Some(when) if when.references().item() => (Some(when), None),
        when => (None, when),
    }
}

fn call(declared: &Call, undo: Option<&UndoSpec>) -> CallSpec {
    CallSpec {
        args: declared.args.template.clone(),
        compensate: undo.cloned(),
        on_cancel: declared.on_cancel,
        retry: declared.retry,
        timeout_ms: declared.timeout_ms,
        tool: declared.tool.clone(),
    }
}

/// The last step, which needs every step that no other needs, and so is reached only when all are done.
fn answer(draft: &Draft, graph: &Graph) -> Result<PlanStep, JsonError> {
    let leaves: Vec<StepId> =
        graph.leaves().into_iter().filter_map(|leaf| graph.id(leaf).cloned()).collect();
    let value = match &draft.answer {
        Some(answer) => answer.template.clone(),
        None => {
            let results: BTreeMap<&str, String> = leaves
                .iter()
                .map(|leaf| (leaf.as_str(), format!("${{steps[\"{leaf}\"].result}}")))
                .collect();
            Template::unchecked(Canon::of(&results)?)
        }
    };
    let mut needs: BTreeSet<StepId> = leaves.into_iter().collect();
    needs.extend(value.references().steps);
    let facts = JobFacts {
        confirm: draft.confirm,
        name: draft.name.clone(),
        on_failure: draft.on_failure,
        parallel: draft.parallel,
    };
    let spec = Spec { confirm: None, job: Some(facts), when: None, work: Work::Set { value } };
    Ok(PlanStep {
        id: Canon::of(ANSWER)?.read()?,
        kind: spec.work.kind(),
        needs: needs.into_iter().collect(),
        spec: spec.canon()?,
    })
}
