//! `gesta resolve`: an operator's word on a call in doubt or a stuck undo, signed and on record.

use anyhow::Result;
use clap::Args;
use gesta_core::content::Content;
use gesta_core::document::{ResolutionVerdict, Settlement};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::sensitive::reserved;
use gesta_core::time::UnixMs;
use gesta_runtime::jobs::{self, Finding};
use gesta_runtime::tools::Tool;
use gesta_runtime::{RunError, delta_of};
use gesta_store::Chain;
use serde_json::json;

use crate::doubts::{self, Doubt};
use crate::live::brief_id;
use crate::problem::Problem;
use crate::session::Session;
use crate::toolbox::Toolbox;
use crate::undos::{self, StuckUndo};
use crate::workshop::{self, Workshop};
use crate::{moment, reference};

/// Say what became of a call in doubt, or what is to become of a stuck undo
#[derive(Debug, Args)]
#[command(after_help = "\
The word is signed with the workspace's owner key and stays on record with its evidence. \"It did not
happen\" is believed only once the call cannot land any more; `--force` overrides that, and is
recorded too. An undo that was refused or failed is tried again (`--did-not-happen`) or left undone
(`--give-up`). `gesta resume ID`, or a worker, then goes on.

Examples:
  gesta resolve t_4f2a/charge --happened '{\"refund\":\"rf_7\"}' --evidence 'seen in the bank statement'
  gesta resolve t_4f2a --did-not-happen --evidence 'the provider has no such key'
  gesta resolve t_4f2a --give-up")]
pub(crate) struct Arguments {
    /// The job, or the job and the step: `t_4f2a/charge`
    #[arg(value_name = "ID[/STEP]")]
    doubt: String,
    /// The step, if more than one is in doubt
    #[arg(long, value_name = "STEP")]
    step: Option<StepId>,
    #[command(flatten)]
    verdict: Said,
    /// Believe that it did not happen although it could still land
    #[arg(long, requires = "did_not_happen")]
    force: bool,
    /// What this rests on, for whoever reads the record
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Said {
    /// It happened, and this is what the tool returned
    #[arg(long, value_name = "RESULT")]
    happened: Option<String>,
    /// It did not happen; it is tried again
    #[arg(long)]
    did_not_happen: bool,
    /// Nobody will ever know; the step fails
    #[arg(long)]
    give_up: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?;
    let workshop = Workshop::open(session, workspace, tools.catalogue)?;
    session.wait(workshop.deliver_spooled())?;
    let (trajectory, meant) = find(session, &workshop, arguments)?;
    let verdict = verdict(session, &workshop, &meant, &arguments.verdict)?;
    let step = meant.step();
    let finding = Finding {
        step: step.clone(),
        verdict,
        evidence: Canon::of(&json!({ "operator": arguments.evidence }))?,
        forced: arguments.force,
    };
    let (owner, by) = (workshop.owner()?, workshop::operator()?);
    let now = Session::now();
    let resolving = jobs::resolve(&workshop.store, trajectory, &by, &owner, &finding, now);
    let entry = session.wait(resolving).map_err(explained)?;
    let id = brief_id(trajectory);
    if session.out.is_json() {
        session.out.document(&json!({
            "trajectory": trajectory,
            "step": step,
            "seq": entry.seq(),
            "entry": entry.id(),
        }))?;
    } else {
        session.out.line(format!("{trajectory}/{step} is resolved in entry {}", entry.seq()))?;
        session.hint(&format!("`gesta resume {id}`, or a worker, goes on"))?;
    }
    Ok(0)
}

/// What a person has to say something about.
enum Meant {
    Doubt(Box<Doubt>),
    Undo(Box<StuckUndo>),
}

impl Meant {
    fn step(&self) -> &StepId {
        match self {
            Self::Doubt(doubt) => &doubt.step,
            Self::Undo(undo) => &undo.step,
        }
    }
}

/// The one that is meant: the one named, or the only one.
fn find(
    session: &Session,
    workshop: &Workshop,
    arguments: &Arguments,
) -> Result<(TrajectoryId, Meant)> {
    let (id, step) = match arguments.doubt.split_once('/') {
        Some((id, step)) => (id, Some(step.parse::<StepId>()?)),
        None => (arguments.doubt.as_str(), arguments.step.clone()),
    };
    let trajectory = session.wait(reference::trajectory(&workshop.store, id))?;
    let doubts = session.wait(doubts::list(&workshop.store, Some(trajectory)))?;
    let undos = session.wait(undos::list(&workshop.store, Some(trajectory)))?;
    let doubts = doubts.into_iter().map(|doubt| Meant::Doubt(Box::new(doubt)));
    let undos = undos.into_iter().map(|undo| Meant::Undo(Box::new(undo)));
    let named = |meant: &Meant| step.as_ref().is_none_or(|step| step == meant.step());
    let mut meant = doubts.chain(undos).filter(named);
    match (meant.next(), meant.next()) {
        (Some(meant), None) => Ok((trajectory, meant)),
        (Some(_), Some(_)) => {
            Err(Problem::new(format!("more than one step of {trajectory} is in doubt"))
                .hint("name it, as in `gesta resolve ID/STEP`; `gesta doubts` lists them")
                .bad_input()
                .into())
        }
        (None, _) => Err(match step.clone() {
            Some(step) => RunError::NoDoubt { trajectory, step }.into(),
            None => Problem::new(format!("nothing of {trajectory} is in doubt"))
                .hint("`gesta doubts` lists what is")
                .into(),
        }),
    }
}

fn verdict(
    session: &Session,
    workshop: &Workshop,
    meant: &Meant,
    said: &Said,
) -> Result<ResolutionVerdict> {
    let result = match said {
        Said { give_up: true, .. } => return Ok(ResolutionVerdict::GiveUp),
        Said { happened: Some(result), .. } => result,
        Said { .. } => return Ok(ResolutionVerdict::DidNotHappen),
    };
    let doubt = match meant {
        Meant::Doubt(doubt) => doubt,
        Meant::Undo(undo) => {
            let what =
                format!("the undo `{}` was refused or failed: it did not succeed", undo.step);
            return Err(Problem::new(what)
                .hint("`--did-not-happen` tries it again, `--give-up` leaves it undone")
                .bad_input()
                .into());
        }
    };
    let refused = |why: String| {
        Problem::new(format!("what `{}` returned cannot be recorded: {why}", doubt.tool))
            .bad_input()
    };
    let value = Canon::parse(result.as_bytes())
        .map_err(|error| refused(format!("it is not JSON: {error}")))?;
    let tool = workshop.catalogue.get(&doubt.tool);
    let tool = tool.ok_or_else(|| {
        refused("the workspace has no such tool any more".to_owned())
            .hint("declare it again, so that its result can be checked")
    })?;
    if let Some(mismatch) = tool.check_output(&value).into_iter().next() {
        return Err(refused(format!("it does not fit the tool's schema: {mismatch}")).into());
    }
    let value = session.wait(committed(workshop, doubt.trajectory, tool, value))?;
    let observation = session.wait(content(workshop, &value))?;
    let chain =
        session.wait(Chain::load(std::sync::Arc::clone(&workshop.store), doubt.trajectory))?;
    let delta = delta_of(tool.manifest(), &doubt.args, &value, chain.state().world())
        .map_err(|failing| refused(failing.message))?;
    let cost = tool.manifest().cost;
    Ok(ResolutionVerdict::Happened(Settlement { cost, delta, observation }))
}

/// A result as it may be recorded: what is sensitive is committed to.
async fn committed(
    workshop: &Workshop,
    trajectory: TrajectoryId,
    tool: &Tool,
    value: Canon,
) -> Result<Canon> {
    if let Some(pointer) = reserved(&serde_json::from_str(value.as_str())?) {
        return Err(RunError::Reserved(pointer).into());
    }
    match &workshop.vault {
        Some(vault) if !tool.sensitive().1.is_empty() => {
            let safe = vault.ensure(vault.family(trajectory).await?).await?;
            Ok(safe.protect(&value, &tool.sensitive().1).await?)
        }
        _ => Ok(value),
    }
}

async fn content(workshop: &Workshop, value: &Canon) -> Result<Content> {
    if value.as_bytes().len() <= gesta_core::content::MAX_INLINE_BYTES {
        return Ok(Content::Inline(value.clone()));
    }
    Ok(Content::Blob(workshop.store.put_blob(value.as_bytes()).await?))
}

fn explained(error: RunError) -> anyhow::Error {
    match error {
        RunError::TooEarly { step, dead_at_ms } => Problem::new(format!(
            "the effect of step `{step}` can still land until {}",
            moment::utc(UnixMs(dead_at_ms))
        ))
        .hint("say it again then, or with `--force`, which is recorded")
        .into(),
        other => other.into(),
    }
}
