//! `gesta tools test`: a real call, a real worker killed before it can record the reply, and a second
//! one that recovers as the tool declares. What rests on a key is tried under another key too, and there the
//! worker is killed while the tool runs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::body::external_key;
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
know of the call, a `never` must park. A tool that is `keyed` or has a `probe` is then CALLED ONCE MORE,
under another key: this worker is killed while the tool runs, half-way by the time that the first
call took, and another one recovers.

The same result for the same key tells something only if another key gives another result. A tool
that answers the same to every key is certified only with `--count`; without, nobody can tell.
Recovery may have to wait until a call cannot land any more, which takes as long as the tool's timeout.

Exit codes:
  0 it holds, 10 it does not, 14 cannot tell

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
    /// A read-only tool to ask how many effects there were: given `args` and `key`, it answers
    /// {"effects": N}
    #[arg(long, value_name = "TOOL")]
    count: Option<ToolName>,
}

/// Whether the tool recovers as it declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Yes,
    No,
    /// What was tried says nothing either way.
    CannotTell,
}

impl Holds {
    fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    fn exit_code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => Ending::Failed.exit_code(),
            Self::CannotTell => 14,
        }
    }
}

/// What was found.
struct Found {
    holds: Holds,
    verdict: String,
    first: Value,
    second: Option<Value>,
    /// The result under another key.
    other: Option<Value>,
    asked: Vec<Value>,
}

impl Found {
    fn add(&mut self, holds: Holds, what: &str) {
        // What was found not to hold does not hold, whatever else is found.
        if self.holds != Holds::No {
            self.holds = holds;
        }
        self.verdict.push_str(&format!("; {what}"));
    }
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
    init::found_throw_away(session, directory.path())?;
    let trial = Trial::submit(session, directory.path(), &arguments.name, &args)?;
    Session::note(&format!("calling `{}`; the worker is killed when it has answered", tool.name()));
    let first = trial.killed()?;
    let rule = match recovery {
        Recovery::Safe | Recovery::Keyed | Recovery::KeyedConcurrent => Rule::Pass,
        Recovery::Probe | Recovery::Never => Rule::Forbid,
    };
    let waits =
        if recovery.waits_for_death() { ", once the call cannot land any more" } else { "" };
    Session::note(&format!("killed it; another worker recovers{waits}"));
    let told = trial.recovered(rule)?;
    let mut found = judge(recovery, &arguments.name, &first, &told);
    let mut counted = false;
    if let Some(counter) = counter {
        let answer = ask(session, counter, &trial, &args)?;
        counted = effects(&answer).is_some();
        found.count(answer, 1..=1);
    }
    let rests_on_key =
        matches!(recovery, Recovery::Keyed | Recovery::KeyedConcurrent | Recovery::Probe);
    if rests_on_key && found.holds != Holds::No {
        let other = Trial::submit(session, directory.path(), &arguments.name, &args)?;
        let before = counter.map(|counter| ask(session, counter, &other, &args)).transpose()?;
        Session::note("calling it under another key; the worker is killed while the tool runs");
        let answered = other.killed_midway(first.took / 2)?;
        Session::note(&format!("killed it; another worker recovers{waits}"));
        let told = other.recovered(Rule::Pass)?;
        let completed = midway(recovery, &arguments.name, (answered, counted), &told, &mut found);
        if let (Some(counter), Some(before)) = (counter, before) {
            let after = ask(session, counter, &other, &args)?;
            // A counter may not look at the key.
            let before = effects(&before).unwrap_or(0);
            found.count(after, before + u64::from(completed)..=before + 1);
        }
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
    output: String,
    /// From the call to the reply.
    took: Duration,
}

struct Trial<'a> {
    directory: &'a Path,
    trajectory: TrajectoryId,
    tool: &'a ToolName,
}

impl<'a> Trial<'a> {
    /// Submits a job that makes one call, in a throw-away workspace.
    fn submit(
        session: &Session,
        directory: &'a Path,
        tool: &'a ToolName,
        args: &Canon,
    ) -> Result<Self> {
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
        Ok(Self { directory, trajectory, tool })
    }

    /// The key that the other side is given.
    fn key(&self) -> Result<String> {
        Ok(external_key(self.trajectory, &STEP.parse()?, 1))
    }

    /// Makes the call and kills the worker when the tool has answered.
    fn killed(&self) -> Result<First> {
        let mut worker = self.worker(Rule::Hold)?;
        let told = worker.stdout.take().map(BufReader::new).context("the worker tells nothing")?;
        let mut called = Instant::now();
        let mut first = None;
        for told in told.lines().map_while(Result::ok).filter_map(|line| read_told(&line)) {
            match told {
                Told::Called { tool, .. } if tool == *self.tool => called = Instant::now(),
                Told::Replied { tool, output, error, .. } if tool == *self.tool => {
                    first = Some((output, error));
                    break;
                }
                _ => {}
            }
        }
        let took = called.elapsed();
        kill(&mut worker)?;
        match first {
            Some((Some(output), _)) => Ok(First { output, took }),
            Some((None, error)) => {
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

    /// Makes the call and kills the worker so long after it began. Whether the tool had answered by then.
    fn killed_midway(&self, after: Duration) -> Result<bool> {
        let mut worker = self.worker(Rule::Hold)?;
        let told = worker.stdout.take().map(BufReader::new).context("the worker tells nothing")?;
        let mut told = told.lines().map_while(Result::ok).filter_map(|line| read_told(&line));
        let called =
            told.any(|told| matches!(told, Told::Called { tool, .. } if tool == *self.tool));
        std::thread::sleep(after);
        kill(&mut worker)?;
        if !called {
            return Err(Problem::new(format!("`{}` was not called again", self.tool)).into());
        }
        Ok(told.any(|told| matches!(told, Told::Replied { tool, .. } if tool == *self.tool)))
    }

    /// Lets another worker recover, and hears what it tells.
    fn recovered(&self, rule: Rule) -> Result<Vec<Told>> {
        let mut worker = self.worker(rule)?;
        let told = worker.stdout.take().map(BufReader::new).context("the worker tells nothing")?;
        let told: Vec<Told> =
            told.lines().map_while(Result::ok).filter_map(|line| read_told(&line)).collect();
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

fn read_told(line: &str) -> Option<Told> {
    serde_json::from_str(line).ok()
}

/// SIGKILL, and nothing else: it must have no chance to tidy up.
fn kill(worker: &mut Child) -> Result<()> {
    worker.kill().context("cannot kill the worker")?;
    worker.wait().context("cannot wait for the worker")?;
    Ok(())
}

/// What a tool returned, JSON or not.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// What the tool returned, or what the others did.
fn replied(told: &[Told], tool: &ToolName, wanted: bool) -> Vec<Value> {
    let replies = told.iter().filter_map(|told| match told {
        Told::Replied { tool: which, output, .. } if (which == tool) == wanted => output.as_deref(),
        _ => None,
    });
    replies.map(value).collect()
}

/// How far the job came.
fn status(told: &[Told]) -> Option<&str> {
    told.iter().find_map(|told| match told {
        Told::Ended { status } => Some(status.as_str()),
        _ => None,
    })
}

fn judge(recovery: Recovery, tool: &ToolName, first: &First, told: &[Told]) -> Found {
    let sent_again = told.iter().any(|told| matches!(told, Told::Forbidden { .. }));
    let status = status(told);
    let completed = status == Some(Ending::Completed.as_str());
    let second = replied(told, tool, true).into_iter().next();
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
    let (holds, verdict) = (Holds::of(holds), verdict.to_owned());
    Found { holds, verdict, first, second, other: None, asked: replied(told, tool, false) }
}

/// Judges what became of the call under another key, whose worker was killed while it ran. Whether it was
/// recovered.
fn midway(
    recovery: Recovery,
    tool: &ToolName,
    (answered, counted): (bool, bool),
    told: &[Told],
    found: &mut Found,
) -> bool {
    let when = if answered { "killed when it had answered" } else { "killed while it ran" };
    let completed = status(told) == Some(Ending::Completed.as_str());
    found.other = replied(told, tool, true).pop();
    found.asked.extend(replied(told, tool, false));
    let same = found.other.as_ref() == Some(&found.first);
    // Whoever counts knows, whatever the results are.
    let unclear = if counted { Holds::Yes } else { Holds::CannotTell };
    match (recovery, completed) {
        (Recovery::Probe, true) => found.add(Holds::Yes, &format!("{when}, it was recovered too")),
        (_, false) => {
            found.add(unclear, &format!("{when}, a call under another key did not succeed"));
        }
        (_, true) if same => found.add(
            unclear,
            "another key gave that result too, so it tells nothing; name a tool that counts effects with `--count`",
        ),
        (_, true) => found.add(Holds::Yes, &format!("another key, {when}, gave another result")),
    }
    completed
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
fn ask(session: &Session, counter: &Tool, trial: &Trial<'_>, args: &Canon) -> Result<Value> {
    let args: Value = serde_json::from_str(args.as_str())?;
    let key = trial.key()?;
    let reply = session.wait(async {
        let call = Call {
            trajectory: trial.trajectory,
            step: STEP.parse()?,
            attempt: 1,
            args: Canon::of(&json!({ "args": args, "key": key }))?,
            key,
            deadline: tokio::time::Instant::now() + counter.manifest().timeout.duration(),
            progress: None,
        };
        anyhow::Ok(counter.call(call).await)
    })?;
    match reply {
        Reply::Answered { output, .. } => Ok(serde_json::from_slice(&output).unwrap_or_default()),
        Reply::Failed { .. } => {
            Err(Problem::new(format!("`{}` did not answer", counter.name())).into())
        }
    }
}

fn effects(counted: &Value) -> Option<u64> {
    counted.get("effects").and_then(Value::as_u64)
}

impl Found {
    /// Notes how many effects were counted, and whether that is as many as there should be.
    fn count(&mut self, counted: Value, right: RangeInclusive<u64>) {
        match effects(&counted) {
            Some(1) if right.contains(&1) => self.verdict.push_str("; there was one effect"),
            Some(effects) if right.contains(&effects) => {
                self.verdict.push_str(&format!("; there were {effects} effects in all"));
            }
            Some(effects) => self.add(Holds::No, &format!("there were {effects} effects")),
            None => {
                let what = "the counter did not say how many effects there were";
                self.add(Holds::CannotTell, what);
            }
        }
        self.asked.push(counted);
    }
}

fn print(session: &mut Session, tool: &Tool, found: &Found) -> Result<u8> {
    let Found { holds, verdict, first, second, other, asked } = found;
    let recovery = word(&tool.manifest().recovery);
    if session.out.is_json() {
        session.out.document(&json!({
            "tool": tool.name(),
            "recovery": tool.manifest().recovery,
            "holds": match holds {
                Holds::Yes => Some(true),
                Holds::No => Some(false),
                Holds::CannotTell => None,
            },
            "verdict": verdict,
            "first": first,
            "second": second,
            "other": other,
            "asked": asked,
        }))?;
    } else {
        let (word, colour) = match holds {
            Holds::Yes => ("holds", AnsiColor::Green),
            Holds::No => ("DOES NOT HOLD", AnsiColor::Red),
            Holds::CannotTell => ("CANNOT TELL", AnsiColor::Yellow),
        };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let out = &mut session.out;
        out.line(format!("first reply   {}", visible(&first.to_string())))?;
        if let Some(second) = second {
            out.line(format!("second reply  {}", visible(&second.to_string())))?;
        }
        if let Some(other) = other {
            out.line(format!("other key     {}", visible(&other.to_string())))?;
        }
        for answer in asked {
            out.line(format!("asked         {}", visible(&answer.to_string())))?;
        }
        out.line(format!(
            "{style}{word}{style:#}  `{}` declares `{recovery}`: {verdict}",
            tool.name()
        ))?;
    }
    Ok(holds.exit_code())
}
