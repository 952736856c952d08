//! `gesta run --dry-run`: what the Guardian would say to every call whose arguments can be known
//! beforehand. Nothing is called, and nothing is written.

mod judged;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use gesta_core::body::{Mandate, Proposal, Purpose, Root, step_seed};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, Seed, WritId};
use gesta_core::document::{Reason, Verdict};
use gesta_core::entry::{Author, Body};
use gesta_core::guardian;
use gesta_core::ids::{StepId, ToolName};
use gesta_core::json::Canon;
use gesta_core::signed::Signed;
use gesta_core::state::{Admission, State};
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_core::writ::Writ;
use gesta_policy::PolicySet;
use gesta_runtime::COMPILER;
use gesta_runtime::authority::{self, OWNER};
use gesta_runtime::job::{CallSpec, EvalError, Expr, Results, Scope, Spec, StepResult, Work};
use gesta_runtime::tools::Definitions;
use gesta_store::Chain;
use serde::Serialize;
use serde_json::{Value, json};

use self::judged::Used;
use super::{check, init};
use crate::entropy;
use crate::escape::visible;
use crate::job_file::{Job, JobArguments};
use crate::key_file;
use crate::policies;
use crate::session::Session;
use crate::timeline::{cut, word};
use crate::toolbox::Toolbox;
use crate::workspace::Workspace;
use crate::writs;

const NOT_MET: &str = "its condition does not hold";

/// What would become of one step, or of one item of it.
#[derive(Serialize)]
struct Foreseen {
    step: StepId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<ToolName>,
    /// allow, deny, compute, skip, wait, fail or depends.
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Canon>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

impl Foreseen {
    fn new(step: &StepId, tool: Option<ToolName>, what: &'static str, note: String) -> Self {
        Self { step: step.clone(), tool, what, args: None, reason: None, note }
    }
}

pub(super) fn run(session: &mut Session, arguments: &JobArguments) -> Result<u8> {
    let workspace = Session::find_workspace()?;
    let tools = Toolbox::for_job(workspace.as_ref(), &arguments.file)?;
    let job = Job::read(arguments, &tools)?;
    let job = Job { input: job.compiled.sensitive().stand_in(&job.input)?, ..job };
    let preview =
        Preview::new(session, workspace.as_ref(), &tools, &job, arguments.writ.as_deref())?;
    let foreseen = preview.walk(&job)?;
    let denied = foreseen.iter().filter(|step| step.what == "deny").count();
    if session.out.is_json() {
        session.out.document(&json!({
            "job": job.compiled.name,
            "dry_run": true,
            "writ": { "tools": preview.writ.tools, "effect": preview.writ.effect, "budget": preview.writ.budget },
            "steps": foreseen,
            "denied": denied,
        }))?;
    } else {
        print(session, &job, &preview.writ, &foreseen)?;
        Session::note("nothing was called and nothing was written");
    }
    Ok(0)
}

fn print(session: &mut Session, job: &Job, writ: &Writ, foreseen: &[Foreseen]) -> Result<()> {
    let out = &mut session.out;
    out.line(format!(
        "{} would act under a writ for effects up to `{}`, {}",
        job.compiled.name,
        writ.effect,
        check::limits(&writ.budget)
    ))?;
    for Foreseen { step, tool, what, args, reason, note } in foreseen {
        let colour = match *what {
            "allow" => AnsiColor::Green,
            "deny" | "fail" => AnsiColor::Red,
            "depends" => AnsiColor::Yellow,
            _ => AnsiColor::Cyan,
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let tool = tool.as_ref().map_or("", ToolName::as_str);
        let args = args.as_ref().map(|args| visible(&cut(args.as_str()))).unwrap_or_default();
        let reason = reason.map(|reason| format!("{}: ", word(&reason))).unwrap_or_default();
        let note = format!("{reason}{}", visible(note));
        let rest: Vec<String> = [args, note].into_iter().filter(|it| !it.is_empty()).collect();
        let rest = rest.join("  ");
        let line = format!("  {step:<14}  {tool:<18}  {style}{what:<8}{style:#}  {rest}");
        out.line(line.trim_end())?;
    }
    Ok(())
}

/// Everything that the Guardian would decide with.
struct Preview<'a> {
    tools: &'a Toolbox,
    state: State,
    seed: Seed,
    writ: Writ,
    writ_chain: Vec<WritId>,
    writ_holds: Result<(), String>,
    registry: Option<State>,
    policies: Arc<PolicySet>,
    published: Option<Result<Definitions, String>>,
    options: gesta_runtime::Options,
    now: UnixMs,
}

/// What is in force.
struct InForce {
    registry: Option<State>,
    policies: Arc<PolicySet>,
    /// The published tool catalogue, if there is one and as far as it can be read.
    published: Option<Result<Definitions, String>>,
}

/// Results that are known beforehand.
#[derive(Default)]
struct Known(BTreeMap<StepId, StepResult>);

impl Results for Known {
    fn result(&self, step: &StepId) -> Option<StepResult> {
        self.0.get(step).cloned()
    }
}

impl<'a> Preview<'a> {
    fn new(
        session: &Session,
        workspace: Option<&Workspace>,
        tools: &'a Toolbox,
        job: &Job,
        under: Option<&std::path::Path>,
    ) -> Result<Self> {
        let now = Session::now();
        let (owner, root) = match workspace {
            Some(workspace) => match under {
                Some(file) => {
                    let chain = writs::read(file)?;
                    (writs::holder_of(workspace, writs::leaf(file, &chain)?)?, chain)
                }
                None => {
                    let owner = key_file::read(&key_file::path(&workspace.keys(), OWNER))?;
                    (owner, vec![writs::root(workspace)?])
                }
            },
            None => {
                let owner = key_file::draw()?;
                let root = init::first_writ(&owner, now)?;
                (owner, vec![root])
            }
        };
        let InForce { registry, policies, published } = in_force(session, workspace, tools)?;
        let settings = workspace.map(|workspace| workspace.config.worker.clone());
        let lease_ms = session.place().map_or(0, |place| place.lease_ms());
        let mut options = settings.unwrap_or_default().options(lease_ms);
        if let Some(workspace) = workspace {
            options.temporal = workspace.config.temporal.temporal();
        }
        let trajectory = entropy::trajectory()?;
        let to = (trajectory, &job.compiled.tools, &job.budget);
        let writ_holds = holds(&root, registry.as_ref(), now);
        let writs = authority::narrow(root, &owner, to, &tools.catalogue, now);
        let writs = writs.map_err(writs::hinted)?;
        let writ_chain = writs.iter().map(Signed::<Writ>::id).collect();
        let seed = Seed::new(Digest::from_bytes(entropy::bytes()?));
        let environment = gesta_core::document::Environment {
            config: options.digest()?,
            policy: policies.digest(),
            tools: tools.catalogue.digest(),
        };
        let mandate = Mandate {
            delegated_by: None,
            environment,
            input: Content::Inline(job.input.clone()),
            registry: None,
            writs,
        };
        let admission = begin(trajectory, mandate, seed, job, now)?;
        let state = admission.state().clone();
        let writ = state.writ().map(|(_, writ)| writ.clone());
        let writ = writ.ok_or_else(|| crate::problem::Problem::new("the job has no writ"))?;
        Ok(Self {
            tools,
            state,
            seed,
            writ,
            writ_chain,
            writ_holds,
            registry,
            policies,
            published,
            options,
            now,
        })
    }

    fn walk(&self, job: &Job) -> Result<Vec<Foreseen>> {
        let mut foreseen = Vec::new();
        let mut known = Known::default();
        let mut used = Used::default();
        for step in &job.compiled.plan.steps {
            let spec = Spec::of(step)?;
            if spec.job.is_some() {
                continue;
            }
            let eval =
                Evaluation { preview: self, input: &job.input, step: &step.id, known: &known };
            let (steps, result) = self.step(&eval, &spec, &mut used)?;
            foreseen.extend(steps);
            if let Some(result) = result {
                known.0.insert(step.id.clone(), result);
            }
        }
        Ok(foreseen)
    }

    /// What would become of a step, and its result if that is known beforehand.
    fn step(
        &self,
        eval: &Evaluation<'_>,
        spec: &Spec,
        used: &mut Used,
    ) -> Result<(Vec<Foreseen>, Option<StepResult>)> {
        let tool = spec.call().map(|call| call.tool.clone());
        let plain = |what, note: String| Foreseen::new(eval.step, tool.clone(), what, note);
        let nothing = |skipped| Some(StepResult { value: Canon::null(), skipped });
        let missing = missing(spec, eval.known);
        if !missing.is_empty() {
            return Ok((vec![self.unknown(eval, spec, missing, used)?], None));
        }
        let when = spec.when.as_ref().map(|when| eval.scope(None, |scope| when.test(scope)));
        match when {
            Some(Err(error)) => return Ok((vec![plain("fail", error.to_string())], None)),
            Some(Ok(false)) => return Ok((vec![plain("skip", NOT_MET.to_owned())], nothing(true))),
            Some(Ok(true)) | None => {}
        }
        Ok(match &spec.work {
            Work::Call(call) => (vec![self.call(eval, eval.step, call, None, used)?], None),
            Work::Each { call, over, when } => {
                match eval.scope(None, |scope| over.resolve(scope)) {
                    Ok(list) => (self.each(eval, call, when.as_ref(), &list, used)?, None),
                    Err(error) => (vec![plain("fail", error.to_string())], None),
                }
            }
            Work::Set { value } => match eval.scope(None, |scope| value.resolve(scope)) {
                Ok(value) => {
                    let args = Some(value.clone());
                    let computed = Foreseen { args, ..plain("compute", String::new()) };
                    (vec![computed], Some(StepResult { value, skipped: false }))
                }
                Err(error) => (vec![plain("fail", error.to_string())], None),
            },
            Work::Wait { signal: Some(key), .. } => {
                (vec![plain("wait", format!("for the signal {}", key.source()))], None)
            }
            Work::Delegates { delegate, over, .. } => {
                match eval.scope(None, |scope| over.resolve(scope)) {
                    Ok(list) => {
                        let note = format!("the job `{}` to a child for each item", delegate.job);
                        (vec![Foreseen { args: Some(list), ..plain("delegate", note) }], None)
                    }
                    Err(error) => (vec![plain("fail", error.to_string())], None),
                }
            }
            Work::Delegate(delegate) => {
                match eval.scope(None, |scope| delegate.input.resolve(scope)) {
                    Ok(input) => {
                        let note = format!("the job `{}` to a child", delegate.job);
                        (vec![Foreseen { args: Some(input), ..plain("delegate", note) }], None)
                    }
                    Err(error) => (vec![plain("fail", error.to_string())], None),
                }
            }
            Work::Wait { .. } => (vec![plain("wait", "for a time".to_owned())], nothing(false)),
        })
    }

    /// What can be said of a step that looks at what does not exist yet.
    fn unknown(
        &self,
        eval: &Evaluation<'_>,
        spec: &Spec,
        missing: BTreeSet<String>,
        used: &mut Used,
    ) -> Result<Foreseen> {
        let tool = spec.call().map(|call| call.tool.clone());
        let plain = |what, note: String| Foreseen::new(eval.step, tool.clone(), what, note);
        let note = missing.into_iter().collect::<Vec<_>>().join(", ");
        let certain = spec.call().map(|call| self.certain(eval.step, call, used)).transpose()?;
        Ok(match certain {
            None => plain("depends", format!("on {note}")),
            Some(Ok(certain)) => plain("depends", format!("on {note}; {certain}")),
            Some(Err((reason, why))) => {
                // With a condition, or over a list, it may be that nothing is called.
                let called = spec.when.is_none() && matches!(spec.work, Work::Call(_));
                let what = if called { "deny" } else { "depends" };
                Foreseen { reason: Some(reason), ..plain(what, why) }
            }
        })
    }

    fn each(
        &self,
        eval: &Evaluation<'_>,
        call: &CallSpec,
        when: Option<&Expr>,
        list: &Canon,
        used: &mut Used,
    ) -> Result<Vec<Foreseen>> {
        let list = serde_json::from_str::<Vec<Value>>(list.as_str()).unwrap_or_default();
        let mut foreseen = Vec::with_capacity(list.len());
        for (index, item) in (0..).zip(&list) {
            let below: StepId = format!("{}/{index}", eval.step).parse()?;
            let item = Some((index, item));
            let met = when.map(|when| eval.scope(item, |scope| when.test(scope)));
            foreseen.push(match met {
                Some(Ok(false)) => {
                    Foreseen::new(&below, Some(call.tool.clone()), "skip", NOT_MET.to_owned())
                }
                _ => self.call(eval, &below, call, item, used)?,
            });
        }
        Ok(foreseen)
    }

    fn call(
        &self,
        eval: &Evaluation<'_>,
        step: &StepId,
        call: &CallSpec,
        item: Option<(u64, &Value)>,
        used: &mut Used,
    ) -> Result<Foreseen> {
        let mut foreseen = Foreseen::new(step, Some(call.tool.clone()), "fail", String::new());
        let args = match eval.scope(item, |scope| call.args.resolve(scope)) {
            Ok(args) => args,
            Err(error) => return Ok(Foreseen { note: error.to_string(), ..foreseen }),
        };
        let tool = self.tools.catalogue.get(&call.tool);
        let args = match tool {
            Some(tool) => tool.sensitive().0.stand_in(&args)?,
            None => args,
        };
        let proposal = Proposal { args: args.clone(), step: step.clone(), tool: call.tool.clone() };
        let reserve = tool.map(|tool| tool.manifest().cost).unwrap_or_default();
        let (judgement, depends) = self.judged(&proposal, tool, used)?;
        let called = tool.filter(|_| judgement.verdict != Verdict::Deny);
        called.into_iter().for_each(|tool| used.may_call(tool));
        // The state does not move on here, so what the steps before would use is counted beside it.
        let over = self.writ.budget.exceeded_by(&used.amounts.plus(reserve));
        foreseen.args = Some(args);
        (foreseen.what, foreseen.reason) = match (judgement.verdict, over) {
            (Verdict::Allow, None) => {
                used.amounts = used.amounts.plus(reserve);
                used.calls += 1;
                ("allow", None)
            }
            (Verdict::Allow, Some(over)) => {
                foreseen.note = format!("the budget `{over}` does not reach");
                ("deny", Some(Reason::BudgetExhausted))
            }
            (Verdict::Deny, _) => ("deny", judgement.reason),
            (Verdict::Escalate, _) => ("escalate", None),
        };
        if let Some(asking) = &judgement.asking {
            let channels: Vec<&str> =
                asking.channels.iter().map(|channel| channel.as_str()).collect();
            foreseen.note = format!("asks {}: {}", channels.join(", "), asking.reason);
        }
        if let Some(why) = guardian::refused(judgement.reason, &judgement.trace) {
            foreseen.note = why;
        }
        if let Some(on) = depends {
            (foreseen.what, foreseen.reason, foreseen.note) = ("depends", None, format!("on {on}"));
        }
        Ok(foreseen)
    }
}

/// The registry and the policies as they are, or as they would be.
fn in_force(session: &Session, workspace: Option<&Workspace>, tools: &Toolbox) -> Result<InForce> {
    let Some(workspace) = workspace else {
        let would_be = policies::would_be(tools.beside.as_deref(), &tools.catalogue)?;
        let policies = Arc::new(PolicySet::compile(&would_be)?);
        return Ok(InForce { registry: None, policies, published: None });
    };
    let store = session.store_to_read()?;
    let chain = Chain::load(Arc::clone(&store), workspace.config.registry);
    let state = session.wait(chain)?.state().clone();
    let policies =
        session.wait(gesta_runtime::policies(&*store, Some(&state), &tools.catalogue))?;
    let published = session.wait(authority::published_tools(&*store, &state))?;
    let published = published.map(|(_, published)| published);
    Ok(InForce { registry: Some(state), policies, published })
}

/// What a step's expressions look at that does not exist yet.
fn missing(spec: &Spec, known: &Known) -> BTreeSet<String> {
    let references = spec.references();
    let unknown = references.steps.iter().filter(|step| !known.0.contains_key(*step));
    let world = references.names.contains("world").then(|| "the world".to_owned());
    unknown.map(|step| format!("`{step}`")).chain(world).collect()
}

/// Whether the root writ is signed by someone who may.
fn holds(chain: &[Signed<Writ>], registry: Option<&State>, now: UnixMs) -> Result<(), String> {
    let Some(registry) = registry else { return Ok(()) };
    if !chain.iter().all(Signed::verifies) {
        return Err("the signature of a writ does not hold".to_owned());
    }
    let Some(root) = chain.first() else { return Err("there is no writ".to_owned()) };
    let (key, tenant) = (root.doc().key, &root.doc().tenant);
    let keys = registry.registry().keys();
    keys.check(key, &[Role::Issuer], Some(tenant), now).map_err(|distrust| distrust.to_string())
}

/// The job as it would begin.
fn begin(
    trajectory: gesta_core::ids::TrajectoryId,
    mandate: Mandate,
    seed: Seed,
    job: &Job,
    now: UnixMs,
) -> Result<Admission> {
    let principal = crate::workshop::operator()?;
    let by = Author::Principal(principal.clone());
    let root =
        Root { compiler: COMPILER.to_owned(), principal, purpose: Purpose::Job(mandate), seed };
    let mut admission = State::new(trajectory).admit();
    admission.push(now, by.clone(), Body::Root(Box::new(root)))?;
    admission.push(now, by, Body::Plan(Box::new(job.compiled.plan.clone())))?;
    Ok(admission)
}

/// The scope of one step.
struct Evaluation<'a> {
    preview: &'a Preview<'a>,
    input: &'a Canon,
    step: &'a StepId,
    known: &'a Known,
}

impl Evaluation<'_> {
    fn scope<T>(
        &self,
        item: Option<(u64, &Value)>,
        evaluate: impl FnOnce(&Scope<'_>) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        evaluate(&Scope {
            input: self.input,
            results: self.known,
            world: self.preview.state.world(),
            now: self.preview.now,
            seed: step_seed(self.preview.seed, self.step, 1),
            item,
        })
    }
}
