//! `gesta check`: whether a job file would run, before anything does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gesta_core::amounts::Budget;
use gesta_core::body::PlanStep;
use gesta_core::ids::{StepId, ToolName};
use gesta_core::writ::Effect;
use gesta_runtime::authority;
use gesta_runtime::job::{Compiled, DelegateSpec, OnFailure, Problem, Problems, SCHEMA, Spec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::job_file;
use crate::output::counted;
use crate::problem::BAD_INPUT;
use crate::session::Session;
use crate::toolbox::Toolbox;

/// Check a job file: syntax, references, cycles, tools, types
#[derive(Debug, Args)]
#[command(after_help = "\
Every problem is told with its place, `FILE:LINE:COLUMN`, on stdout; nothing runs and nothing is
written. Tools are those of the workspace, or those of `tools.toml` beside the file if it has none.
The exit code is 2 if something is wrong.

Examples:
  gesta check examples/refund/job.yaml
  gesta check job.yaml --json | jq '.problems[]'
  gesta check --schema > job.schema.json")]
pub(crate) struct Arguments {
    /// The job file
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the JSON Schema of job files instead
    #[arg(long, conflicts_with = "file")]
    schema: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Some(file) = &arguments.file else {
        session.out.text(SCHEMA)?;
        return Ok(0);
    };
    let workspace = Session::find_workspace()?;
    let tools = Toolbox::for_job(workspace.as_ref(), file)?;
    match job_file::load(file, &tools.catalogue)? {
        Ok(compiled) => sound(session, &compiled, &tools)?,
        Err(problems) => {
            print(session, &problems)?;
            if let Some(advice) = tools.advice().filter(|_| problems.miss_a_tool()) {
                session.hint(&advice)?;
            }
            return Ok(BAD_INPUT);
        }
    }
    Ok(0)
}

fn print(session: &mut Session, problems: &Problems) -> Result<()> {
    if !session.out.is_json() {
        return Ok(session.out.line(crate::escape::visible_lines(&problems.to_string()))?);
    }
    let of = |problem: &Problem| {
        let Problem { line, column, message, hint } = problem;
        json!({ "line": line, "column": column, "message": message, "hint": hint })
    };
    let list: Vec<Value> = problems.list.iter().map(of).collect();
    session.out.document(&json!({ "ok": false, "file": problems.label, "problems": list }))
}

fn sound(session: &mut Session, compiled: &Compiled, tools: &Toolbox) -> Result<()> {
    let Compiled { name, description, plan, budget, .. } = compiled;
    let needed = authority::needed(&compiled.grants, &tools.catalogue);
    let effect = authority::ceiling(&needed, &tools.catalogue);
    let frozen: Vec<_> = needed
        .iter()
        .filter_map(|name| tools.catalogue.get(name))
        .filter_map(|tool| Some(format!("{} ({})", tool.name(), tool.frozen()?)))
        .collect();
    let undo = Undoing::of(compiled, tools);
    let handed: Vec<(StepId, DelegateSpec)> = plan.steps.iter().filter_map(handed).collect();
    if session.out.is_json() {
        let steps: Vec<Value> = plan
            .steps
            .iter()
            .map(|step| json!({ "id": step.id, "kind": step.kind, "needs": step.needs }))
            .collect();
        return session.out.document(&json!({
            "ok": true,
            "job": name,
            "description": description,
            "steps": steps,
            "plan": plan.hash,
            "tools": compiled.tools,
            "writ": { "tools": needed, "effect": effect, "budget": budget },
            "frozen": frozen,
            "undo": undo,
            "delegates": handed
                .iter()
                .map(|(step, to)| {
                    json!({
                        "step": step, "job": to.job, "tools": to.tools, "effect": to.effect,
                        "budget": to.budget, "depth": to.depth,
                    })
                })
                .collect::<Vec<_>>(),
        }));
    }
    let names: Vec<&str> = needed.iter().map(|name| name.as_str()).collect();
    let out = &mut session.out;
    // The answer is a step that the file does not name.
    let steps = (plan.steps.len() as u64).saturating_sub(1);
    out.line(format!("{name} is sound: {}", counted(steps, "step", "steps")))?;
    out.line(format!("  tools   {}", names.join(", ")))?;
    out.line(format!("  writ    effects up to `{effect}`, {}", limits(budget)))?;
    for (step, to) in &handed {
        let names: Vec<&str> = to.tools.iter().map(|name| name.as_str()).collect();
        out.line(format!(
            "  child   {step}: {} with {}, effects up to `{}`, {}",
            to.job,
            if names.is_empty() { "no tools".to_owned() } else { names.join(", ") },
            to.effect,
            limits(&to.budget)
        ))?;
    }
    if let Some(told) = undo.told() {
        out.line(format!("  undo    {told}"))?;
    }
    out.line(format!("  plan    {}", plan.hash))?;
    for tool in frozen {
        Session::note(&format!("warning: frozen: {tool}"));
    }
    Ok(())
}

/// What a step hands to a child, if it does.
fn handed(step: &PlanStep) -> Option<(StepId, DelegateSpec)> {
    Some((step.id.clone(), Spec::of(step).ok()?.delegate()?.clone()))
}

/// What of a job can be undone.
#[derive(Serialize)]
struct Undoing {
    on_failure: OnFailure,
    /// Steps whose effect is undone by a call of this tool.
    by: BTreeMap<StepId, ToolName>,
    /// Steps that do something which nothing undoes.
    cannot: Vec<StepId>,
}

impl Undoing {
    fn of(compiled: &Compiled, tools: &Toolbox) -> Self {
        let mut undoing =
            Self { on_failure: OnFailure::default(), by: BTreeMap::new(), cannot: Vec::new() };
        for step in &compiled.plan.steps {
            let Ok(spec) = Spec::of(step) else { continue };
            if let Some(job) = &spec.job {
                undoing.on_failure = job.on_failure;
            }
            if spec.delegate().is_some_and(|to| to.effect > Effect::Read) {
                // What a child has done by the time it completes stays.
                undoing.cannot.push(step.id.clone());
            }
            let Some(call) = spec.call() else { continue };
            let tool = tools.catalogue.get(&call.tool);
            match &call.compensate {
                Some(undo) => drop(undoing.by.insert(step.id.clone(), undo.tool.clone())),
                None if tool.is_some_and(|tool| tool.manifest().effect > Effect::Read) => {
                    undoing.cannot.push(step.id.clone());
                }
                None => {}
            }
        }
        undoing
    }

    /// Nothing for a job that undoes nothing and does not mean to.
    fn told(&self) -> Option<String> {
        let when = match self.on_failure {
            OnFailure::Compensate => "when it fails, or",
            OnFailure::Keep if self.by.is_empty() => return None,
            OnFailure::Keep => "only",
        };
        let list = |steps: Vec<&StepId>| {
            steps.into_iter().map(|step| step.as_str()).collect::<Vec<_>>().join(", ")
        };
        let by = list(self.by.keys().collect());
        let by = if by.is_empty() { "nothing" } else { &by };
        let cannot = match self.cannot.is_empty() {
            true => String::new(),
            false => format!("; cannot be undone: {}", list(self.cannot.iter().collect())),
        };
        Some(format!("{when} by `cancel --compensate`: {by}{cannot}"))
    }
}

/// A budget, for people.
pub(super) fn limits(budget: &Budget) -> String {
    let limits = budget.dimensions();
    let limits: Vec<String> =
        limits.iter().filter_map(|(name, most)| Some(format!("{name} {}", (*most)?))).collect();
    if limits.is_empty() {
        "no limit of its own".to_owned()
    } else {
        format!("at most {}", limits.join(", "))
    }
}
