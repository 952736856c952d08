//! `gesta branch`: a new trajectory from a commit of another, run here or left to a worker.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use gesta_core::body::BranchMode;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::ids::TrajectoryId;
use gesta_runtime::job::{Compiled, Edit};
use gesta_runtime::jobs::Submitted;
use gesta_runtime::{At, BranchOrder, RunError};
use serde_json::json;

use crate::job_file::{self, Limited, budget_of, limit, pair};
use crate::live::Live;
use crate::problem::Problem;
use crate::session::Session;
use crate::sight::Reveal;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::{driving, outcome, reference, sealing, writs};

/// Branch from a commit of a job, and let another plan or other arguments run on from there
#[derive(Debug, Args)]
#[command(after_help = "\
Steps that were committed up to that point are inherited, with their results and the world as they
left it. Whatever the source has sent after it is not done again on the quiet: `ask` puts each such
effect before a person first, `recorded` takes the source's result for the same step, tool and
arguments and asks about anything else, `live` runs. Calls that only read are free to run.
The source may be running, may have failed, or be a branch itself; it is not changed.
The exit codes are those of `gesta run`.

Examples:
  gesta branch t_4f2a --at charge
  gesta branch t_4f2a --at 7 --set 'ship.args.address=Main Street 1' --note 'the right address'
  gesta branch t_4f2a --at charge --plan fixed.yaml --mode recorded
  gesta branch t_4f2a --at charge --submit")]
pub(crate) struct Arguments {
    /// The trajectory to branch from; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
    /// The commit to begin at: its number, ID:NUMBER, its id, or the step that it commits
    #[arg(long, value_name = "ENTRY")]
    at: String,
    /// Another value for an argument of a step that is not done there, as JSON or as text; again for more
    #[arg(long = "set", value_name = "STEP.args.PATH=VALUE", conflicts_with = "plan")]
    edits: Vec<Edit>,
    /// Another job file; what is done there must be the same in it
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Another value of the job's input, for what is not done there; again for more
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// What to do about effects that the source has sent after that commit
    #[arg(long, value_name = "MODE", default_value = "ask")]
    mode: Mode,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// What the branch may use at most: calls, money_micros, tokens or wall_ms
    #[arg(long = "budget", value_name = "WHAT=N", value_parser = limit)]
    budgets: Vec<(Limited, u64)>,
    /// The caller's key: the same key and content is the same branch
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The writ to narrow the branch's from [default: the workspace's root writ]
    #[arg(long, value_name = "FILE")]
    writ: Option<PathBuf>,
    /// Leave it to a worker, and print its id
    #[arg(long)]
    submit: bool,
    #[command(flatten)]
    reveal: Reveal,
}

/// What a branch does about effects that were sent above it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Take the source's result for the same step, tool and arguments; else ask
    Recorded,
    /// Ask about each
    Ask,
    /// Run
    Live,
}

impl From<Mode> for BranchMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Recorded => Self::Recorded,
            Mode::Ask => Self::Ask,
            Mode::Live => Self::Live,
        }
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?;
    let advice = tools.advice();
    let workshop = Workshop::open(session, workspace, tools.catalogue)?;
    let source = session.wait(reference::trajectory(&workshop.store, &arguments.trajectory))?;
    let at = session.wait(point(&workshop, source, &arguments.at))?;
    let plan = match &arguments.plan {
        Some(file) => Some(
            job_file::load(file, &workshop.catalogue)?
                .map_err(|problems| job_file::refused_file(&problems, advice))?,
        ),
        None => None,
    };
    let hands = if arguments.submit { None } else { Some(workshop.hands()?) };
    let (branch, submitted) = make(session, arguments, &workshop, (source, at, plan.as_ref()))?;
    let Some(hands) = hands else {
        return tell(session, branch, source, submitted);
    };
    Session::note(&format!("branch {branch} of {source}"));
    let live = Live::new(session, false);
    let ending = driving::drive(session, &workshop, (branch, hands), &live)?;
    sealing::after_run(session, &workshop);
    outcome::tell(session, &workshop.store, branch, ending, arguments.reveal)
}

fn make(
    session: &Session,
    arguments: &Arguments,
    workshop: &Workshop,
    (source, at, plan): (TrajectoryId, At, Option<&Compiled>),
) -> Result<(TrajectoryId, Submitted)> {
    let input: BTreeMap<String, String> = arguments.inputs.iter().cloned().collect();
    let order = BranchOrder {
        source,
        at,
        mode: arguments.mode.into(),
        note: &arguments.note,
        plan,
        edits: &arguments.edits,
        input: &input,
        budget: budget_of(&arguments.budgets),
        key: arguments.key.as_deref(),
    };
    let (above, holder) = workshop.authority(session, arguments.writ.as_deref())?;
    session.wait(workshop.branch(&order, (above, &holder), Session::now())).map_err(refused)
}

fn tell(
    session: &mut Session,
    branch: TrajectoryId,
    source: TrajectoryId,
    submitted: Submitted,
) -> Result<u8> {
    let known = submitted == Submitted::Known;
    if session.out.is_json() {
        let document = json!({ "trajectory": branch, "source": source, "new": !known });
        session.out.document(&document)?;
        return Ok(0);
    }
    session.out.line(branch.to_string())?;
    session.hint(match known {
        true => "the same branch was made before; nothing was changed",
        false => "`gesta worker` runs it, `gesta tree` shows where it belongs",
    })?;
    Ok(0)
}

/// The commit that a text names.
async fn point(workshop: &Workshop, source: TrajectoryId, text: &str) -> Result<At> {
    if let Some((id, _)) = text.split_once(':') {
        let (of, entry) = reference::entry(&workshop.store, text).await?;
        if of != source {
            let what = format!("`{text}` is an entry of {of}, not of {source}");
            return Err(Problem::new(what)
                .hint(format!("`gesta branch {id} --at {text}` branches from there"))
                .bad_input()
                .into());
        }
        return Ok(At::Entry(entry.id));
    }
    if let Some(digest) = Digest::from_hex(text) {
        return Ok(At::Entry(EntryId::new(digest)));
    }
    if let Ok(seq) = text.parse() {
        return Ok(At::Seq(seq));
    }
    let step = text.parse().map_err(|_| {
        Problem::new(format!("`{text}` names neither an entry nor a step")).bad_input()
    })?;
    Ok(At::Step(step))
}

/// What the caller gave is at fault, or what could not be done.
fn refused(error: RunError) -> anyhow::Error {
    match &error {
        RunError::NoPoint { .. } => {
            Problem::new(error.to_string()).hint("`gesta log ID` lists the entries")
        }
        RunError::NotAJob(_)
        | RunError::Committed { .. }
        | RunError::Undone { .. }
        | RunError::OtherTenant(_)
        | RunError::Plan(_) => Problem::new(error.to_string()),
        _ => return writs::hinted(error),
    }
    .bad_input()
    .into()
}
