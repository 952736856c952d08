//! `gesta tools test`: a real call, a real worker killed before it can record the reply, and a second
//! one that recovers as the tool declares.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::document::Recovery;
use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use gesta_policy::{PolicyDocument, PolicyFile};
use gesta_runtime::job;
use gesta_runtime::tools::{Call, Reply, Tool};
use serde_json::{Value, json};

use super::under_test::{self, Rule, Told};
use crate::commands::init;
use crate::driving::Ending;
use crate::escape::visible;
use crate::job_file::Job;
use crate::policies;
use crate::problem::Problem;
use crate::session::Session;
use crate::timeline::word;
use crate::toolbox::Toolbox;

/// The only step of the job that is run.
const STEP: &str = "call";
/// The policy of the throw-away store.
const ALL: &str = "@id(\"test\") permit (principal, action, resource);";

/// Kill a call in the middle and see whether the tool recovers as it declares
#[derive(Debug, Args)]
#[command(after_help = "\
The tool is REALLY CALLED, in a throw-away store. A worker process makes the call and is killed with
SIGKILL when the tool has answered and nothing of that is on record; another worker then recovers:
a `keyed` tool is sent the same key again and must give the same result, a `probe` is asked and must
know of the call, a `never` must park. Recovery may have to wait until the first call cannot land any
more, which takes as long as the tool's timeout.

The exit code is 0 if it holds, 10 if it does not.

Examples:
  gesta tools test orders.read --args '{\"order\":1042}'
  gesta tools test payments.refund --args '{\"order\":1042,\"cents\":1}' --yes
  gesta tools test payments.refund --args '{\"order\":1042,\"cents\":1}' --yes --count payments.count")]
pub(super) struct Arguments {
    /// The tool
    name: ToolName,
    /// Its arguments
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    /// Yes, really call it, although that changes something
    #[arg(long)]
    yes: bool,
    /// A read-only tool to ask afterwards how many effects there were: given `args` and `key`, it
    /// answers {"effects": N}
    #[arg(long, value_name = "TOOL")]
    count: Option<ToolName>,
}

/// What was found.
struct Found {
    holds: bool,
    verdict: String,
    first: Value,
    second: Option<Value>,
    asked: Vec<Value>,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let tools = Toolbox::of(&Session::workspace()?)?;
    let tool = known(&tools, &arguments.name)?;
    let args = read_args(tool, arguments)?;
    let counter = arguments.count.as_ref().map(|name| counter(&tools, name)).transpose()?;
    let (effect, recovery) = (tool.manifest().effect, tool.manifest().recovery);
    if effect > Effect::Read && !arguments.yes {
        return Err(Problem::new(format!(
            "this really calls `{}`, whose effect is `{effect}`",
            tool.name()
        ))
        .hint("use arguments that are meant for a test, and say `--yes`")
        .bad_input()
        .into());
    }
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let trajectory = submit(session, directory.path(), &arguments.name, &args)?;
    let trial = Trial { directory: directory.path(), trajectory, tool: &arguments.name };

    Session::note(&format!("calling `{}`; the worker is killed when it has answered", tool.name()));
    let first = trial.killed()?;
    let rule = match recovery {
        Recovery::Safe | Recovery::Keyed | Recovery::KeyedConcurrent => Rule::Pass,
        Recovery::Probe | Recovery::Never => Rule::Forbid,
    };
    Session::note(&format!(
        "killed it; another worker recovers{}",
        if recovery.waits_for_death() { ", once the first call cannot land any more" } else { "" }
    ));
    let told = trial.recovered(rule)?;
    let mut found = judge(recovery, &arguments.name, &first, &told);
    if let Some(counter) = counter {
        count(session, counter, &trial, &args, &first.key, &mut found)?;
    }
    print(session, tool, &found)
}

fn known<'a>(tools: &'a Toolbox, name: &ToolName) -> Result<&'a Tool> {
    let found = tools.catalogue.get(name);
    Ok(found.ok_or_else(|| {
        Problem::new(format!("there is no tool `{name}`"))
            .hint("`gesta tools list` shows what there is")
            .bad_input()
    })?)
}

fn counter<'a>(tools: &'a Toolbox, name: &ToolName) -> Result<&'a Tool> {
    let tool = known(tools, name)?;
    if tool.manifest().effect > Effect::Read {
        return Err(Problem::new(format!("`{name}` does not only read")).bad_input().into());
    }
    Ok(tool)
}

fn read_args(tool: &Tool, arguments: &Arguments) -> Result<Canon> {
    let refused = |why: String| {
        Problem::new(format!("these are no arguments for `{}`: {why}", tool.name()))
            .hint("give them as `--args JSON`; `gesta tools list --json` shows the schema")
            .bad_input()
    };
    let args =
        Canon::parse(arguments.args.as_bytes()).map_err(|error| refused(error.to_string()))?;
    match tool.check_input(&args).into_iter().next() {
        Some(mismatch) => Err(refused(mismatch.to_string()).into()),
        None => Ok(args),
    }
}

/// Makes a throw-away workspace with a job in it that makes one call.
fn submit(
    session: &Session,
    directory: &Path,
    tool: &ToolName,
    args: &Canon,
) -> Result<TrajectoryId> {
    init::found_throw_away(session, directory)?;
    let tools = Toolbox::of(&Session::workspace()?)?;
    let watched = under_test::watched(tools.catalogue, None)?;
    let args: Value = serde_json::from_str(args.as_str())?;
    let text = json!({
        "job": "tools-test",
        "steps": [{ "id": STEP, "tool": tool, "args": plain(args), "retry": { "attempts": 3, "backoff": "100ms" } }],
    });
    let compiled = job::load("the test", &text.to_string(), &watched)
        .map_err(|problems| Problem::new(problems.to_string()).bad_input())?;
    let input = Canon::of(&json!({}))?;
    let job = Job { budget: compiled.budget, compiled, input };
    let workshop = under_test::open(session, directory, watched)?;
    // The person who runs the test has consented to every call in it.
    let (text, name) = (ALL.to_owned(), "the test".to_owned());
    let tools = workshop.catalogue.shapes()?;
    let policy = PolicyDocument::new(vec![PolicyFile { name, text }], BTreeMap::new(), tools);
    let owner = workshop.owner()?;
    session.wait(policies::publish(&workshop.store, workshop.registry, &policy, &owner))?;
    let (writs, holder) = workshop.authority(session, None)?;
    let (trajectory, _) = session.wait(workshop.submit(&job, None, (writs, &holder)))?;
    Ok(trajectory)
}

/// Text in which nothing is taken for an expression.
fn plain(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("${", "$${")),
        Value::Array(list) => Value::Array(list.into_iter().map(plain).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(name, value)| (name, plain(value))).collect())
        }
        other => other,
    }
}

/// The first reply.
struct First {
    key: String,
    output: String,
}

struct Trial<'a> {
    directory: &'a Path,
    trajectory: TrajectoryId,
    tool: &'a ToolName,
}

impl Trial<'_> {
    /// Makes the call and kills the worker when the tool has answered.
    fn killed(&self) -> Result<First> {
        let mut worker = self.worker(Rule::Hold)?;
        let told = worker.stdout.take().map(BufReader::new).context("the worker tells nothing")?;
        let first =
            told.lines().map_while(Result::ok).find_map(|line| {
                match serde_json::from_str(&line).ok()? {
                    Told::Replied { tool, key, output, error, .. } if tool == *self.tool => {
                        Some((key, output, error))
                    }
                    _ => None,
                }
            });
        // SIGKILL, and nothing else: it must have no chance to tidy up.
        worker.kill().context("cannot kill the worker")?;
        worker.wait().context("cannot wait for the worker")?;
        match first {
            Some((key, Some(output), _)) => Ok(First { key, output }),
            Some((_, None, error)) => {
                let why = error.map(|error| format!("{}: {}", error.code, error.message));
                Err(Problem::new(format!(
                    "`{}` did not succeed, so there is nothing to recover: {}",
                    self.tool,
                    visible(&why.unwrap_or_default())
                ))
                .hint("give it arguments with which it succeeds")
                .into())
            }
            None => Err(Problem::new(format!("`{}` was never called", self.tool))
                .hint("`gesta -v tools test …` tells more")
                .into()),
        }
    }

    /// Lets another worker recover, and hears what it tells.
    fn recovered(&self, rule: Rule) -> Result<Vec<Told>> {
        let mut worker = self.worker(rule)?;
        let told = worker.stdout.take().map(BufReader::new).context("the worker tells nothing")?;
        let told: Vec<Told> = told
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect();
        worker.wait().context("cannot wait for the worker")?;
        Ok(told)
    }

    fn worker(&self, rule: Rule) -> Result<Child> {
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let rule = clap::ValueEnum::to_possible_value(&rule);
        let mut command = Command::new(program);
        command.args([under_test::COMMAND, "--place"]).arg(self.directory);
        command.args(["--trajectory", &self.trajectory.to_string(), "--tool", self.tool.as_str()]);
        command.args(["--rule", rule.as_ref().map_or("pass", |rule| rule.get_name())]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).env_remove("GESTA_STORE");
        command.spawn().context("cannot start a worker")
    }
}

fn judge(recovery: Recovery, tool: &ToolName, first: &First, told: &[Told]) -> Found {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let replied = |wanted: bool| {
        told.iter().filter_map(move |told| match told {
            Told::Replied { tool: which, output, .. } if (which == tool) == wanted => {
                output.as_deref()
            }
            _ => None,
        })
    };
    let sent_again = told.iter().any(|told| matches!(told, Told::Forbidden { .. }));
    let status = told.iter().find_map(|told| match told {
        Told::Ended { status } => Some(status.as_str()),
        _ => None,
    });
    let completed = status == Some(Ending::Completed.as_str());
    let second = replied(true).next().map(value);
    let first = value(&first.output);
    let (holds, verdict) = match recovery {
        Recovery::Safe => (completed, safe(completed, second.as_ref() == Some(&first))),
        Recovery::Keyed | Recovery::KeyedConcurrent => keyed(&first, second.as_ref(), completed),
        Recovery::Probe => probed(completed, sent_again),
        Recovery::Never if sent_again => (false, "the call was about to be made again"),
        Recovery::Never => (
            status == Some(Ending::InDoubt.as_str()),
            "the call was not made again: the job waits for an operator, as `never` says",
        ),
    };
    let asked = replied(false).map(value).collect();
    Found { holds, verdict: verdict.to_owned(), first, second, asked }
}

fn safe(completed: bool, same: bool) -> &'static str {
    match (completed, same) {
        (true, true) => "the call was made again and gave the same result",
        (true, false) => "the call was made again and gave another result, which a read may",
        (false, _) => "the call could not be made again",
    }
}

fn keyed(first: &Value, second: Option<&Value>, completed: bool) -> (bool, &'static str) {
    match second {
        None => (false, "the call was not sent again"),
        Some(second) if second != first => {
            (false, "the same key gave another result: the other side does not deduplicate")
        }
        Some(_) if !completed => {
            (false, "the same key gave the same result, but the job did not complete")
        }
        Some(_) => (true, "the same key gave the same result"),
    }
}

fn probed(completed: bool, sent_again: bool) -> (bool, &'static str) {
    match (completed, sent_again) {
        (_, true) => {
            (false, "the probe denies a call that was answered: it would have been made twice")
        }
        (true, false) => (true, "the probe knows of the call, and it was not made again"),
        (false, false) => (false, "the probe cannot tell whether the call happened"),
    }
}

/// Asks how many effects there were.
fn count(
    session: &Session,
    counter: &Tool,
    trial: &Trial<'_>,
    args: &Canon,
    key: &str,
    found: &mut Found,
) -> Result<()> {
    let args: Value = serde_json::from_str(args.as_str())?;
    let reply = session.wait(async {
        let call = Call {
            trajectory: trial.trajectory,
            step: STEP.parse()?,
            attempt: 1,
            key: key.to_owned(),
            args: Canon::of(&json!({ "args": args, "key": key }))?,
            deadline: tokio::time::Instant::now() + counter.manifest().timeout.duration(),
            progress: None,
        };
        anyhow::Ok(counter.call(call).await)
    })?;
    let Reply::Answered { output, .. } = reply else {
        return Err(Problem::new(format!("`{}` did not answer", counter.name())).into());
    };
    let answer: Value = serde_json::from_slice(&output).unwrap_or_default();
    match answer.get("effects").and_then(Value::as_u64) {
        Some(1) => found.verdict.push_str("; there was one effect"),
        Some(effects) => {
            found.holds = false;
            found.verdict.push_str(&format!("; there were {effects} effects"));
        }
        None => found.verdict.push_str("; the counter did not say how many effects there were"),
    }
    found.asked.push(answer);
    Ok(())
}

fn print(session: &mut Session, tool: &Tool, found: &Found) -> Result<u8> {
    let Found { holds, verdict, first, second, asked } = found;
    let recovery = word(&tool.manifest().recovery);
    if session.out.is_json() {
        session.out.document(&json!({
            "tool": tool.name(),
            "recovery": tool.manifest().recovery,
            "holds": holds,
            "verdict": verdict,
            "first": first,
            "second": second,
            "asked": asked,
        }))?;
    } else {
        let (word, colour) =
            if *holds { ("holds", AnsiColor::Green) } else { ("DOES NOT HOLD", AnsiColor::Red) };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let out = &mut session.out;
        out.line(format!("first reply   {}", visible(&first.to_string())))?;
        if let Some(second) = second {
            out.line(format!("second reply  {}", visible(&second.to_string())))?;
        }
        for answer in asked {
            out.line(format!("asked         {}", visible(&answer.to_string())))?;
        }
        out.line(format!(
            "{style}{word}{style:#}  `{}` declares `{recovery}`: {verdict}",
            tool.name()
        ))?;
    }
    Ok(if *holds { 0 } else { Ending::Failed.exit_code() })
}
