//! `gesta approve` and `gesta deny`: a person's word on what waits for approval, signed and on record.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gesta_core::document::ApprovalVerdict;
use gesta_core::ids::StepId;
use gesta_core::keys::PrivateKey;
use gesta_runtime::approvals::{Heard, Word, speak};
use gesta_runtime::authority::OWNER;
use gesta_runtime::duration::DurationMs;
use serde_json::json;

use crate::approvals::{self, Asked};
use crate::key_file;
use crate::live::brief_id;
use crate::problem::Problem;
use crate::reference;
use crate::registry::Registry;
use crate::session::Session;
use crate::sight::{Reveal, Sight};
use crate::toolbox::Toolbox;

/// For how long a yes may be used, unless something else is said.
const FOR: DurationMs = DurationMs::from_ms(24 * 3_600_000);

/// What both commands need.
#[derive(Debug, Args)]
struct Which {
    /// The job, or the job and the step: `t_4f2a/refund`
    #[arg(value_name = "ID[/STEP]")]
    what: String,
    /// Whose key of the workspace signs
    #[arg(long = "as", value_name = "NAME", default_value = OWNER, conflicts_with = "key")]
    name: String,
    /// The file of the key that signs, wherever it is
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Why, for whoever reads the record
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    reveal: Reveal,
}

/// Approve a call that waits for people
#[derive(Debug, Args)]
#[command(after_help = "\
The word is signed over exactly the question that is shown, and lets exactly one effect happen. Before the call is
made, everything is decided once more: a revoked writ, a spent budget or a changed world still refuses it.
The approver's key needs the role `approver` in the registry; `gesta keys` shows who has it.

Examples:
  gesta approve t_4f2a
  gesta approve t_4f2a/refund --as alice --note 'checked with the customer'
  gesta approve t_4f2a/refund --key ~/alice.pem --store postgres://gesta@db.example/gesta")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// For how long the approval may be used
    #[arg(long = "for", value_name = "DURATION", default_value_t = FOR)]
    valid: DurationMs,
}

/// Refuse a call that waits for people, for good
#[derive(Debug, Args)]
#[command(after_help = "\
One no is enough. The step is refused with `approval_denied` and never asked again.

Examples:
  gesta deny t_4f2a/refund --note 'not this customer'")]
pub(crate) struct Denial {
    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    say(session, &arguments.which, ApprovalVerdict::Approve, arguments.valid)
}

pub(crate) fn deny(session: &mut Session, arguments: &Denial) -> Result<u8> {
    say(session, &arguments.which, ApprovalVerdict::Deny, FOR)
}

fn say(
    session: &mut Session,
    which: &Which,
    verdict: ApprovalVerdict,
    valid: DurationMs,
) -> Result<u8> {
    let store = session.store()?;
    let registry = Registry::open(session, &store)?;
    let key = signer(which)?;
    let mut asked = find(session, &store, &registry, &which.what)?;
    let sight = Sight::of(session, &store, asked.trajectory, which.reveal)?;
    super::approvals::see(&sight, &mut asked, session.out.is_json())?;
    if !session.out.is_json() {
        super::approvals::print(session, &asked)?;
    }
    let now = Session::now();
    let word = Word {
        step: &asked.step,
        pending: asked.pending,
        verdict,
        expires: now.plus(valid.ms()),
        note: which.note.clone(),
    };
    let speaking = speak(&store, asked.trajectory, &word, (registry.whole(), &key), now);
    let Heard { entry, missing } = session.wait(speaking)?;
    let (trajectory, step) = (asked.trajectory, &asked.step);
    if session.out.is_json() {
        session.out.document(&json!({
            "trajectory": trajectory,
            "step": step,
            "verdict": verdict,
            "seq": entry.seq(),
            "entry": entry.id(),
            "missing": missing,
        }))?;
        return Ok(0);
    }
    let word = if verdict == ApprovalVerdict::Approve { "approved" } else { "denied" };
    session.out.line(format!("{trajectory}/{step} is {word} in entry {}", entry.seq()))?;
    if missing > 0 {
        session.hint(&format!("it takes {missing} more of {}", channels(&asked)))?;
    } else {
        session.hint(&format!("`gesta resume {}`, or a worker, goes on", brief_id(trajectory)))?;
    }
    Ok(0)
}

fn channels(asked: &Asked) -> String {
    asked.channels.iter().map(|channel| channel.as_str()).collect::<Vec<_>>().join(", ")
}

fn signer(which: &Which) -> Result<PrivateKey> {
    match &which.key {
        Some(path) => key_file::read(path),
        None => {
            key_file::check_name(&which.name)?;
            key_file::read(&key_file::path(&Session::workspace()?.keys(), &which.name))
        }
    }
}

/// The one that is meant: the one named, or the only one.
fn find(
    session: &Session,
    store: &std::sync::Arc<dyn gesta_store::Store>,
    registry: &Registry,
    what: &str,
) -> Result<Asked> {
    let (id, step) = match what.split_once('/') {
        Some((id, step)) => (id, Some(step.parse::<StepId>()?)),
        None => (what, None),
    };
    let trajectory = session.wait(reference::trajectory(store, id))?;
    let tools = Session::find_workspace()?.map(|workspace| Toolbox::of(&workspace)).transpose()?;
    let catalogue = tools.as_ref().map(|tools| &tools.catalogue);
    let known = (catalogue, registry.whole());
    let mut asked = session.wait(approvals::list(store, Some(trajectory), known))?;
    asked.retain(|asked| step.as_ref().is_none_or(|step| *step == asked.step));
    match (asked.pop(), asked.pop()) {
        (Some(asked), None) => Ok(asked),
        (Some(_), Some(_)) => {
            Err(Problem::new(format!("more than one step of {trajectory} waits for approval"))
                .hint("name it, as in `gesta approve ID/STEP`; `gesta approvals` lists them")
                .bad_input()
                .into())
        }
        (None, _) => Err(Problem::new(format!("nothing of `{what}` waits for approval"))
            .hint("`gesta approvals` lists what does")
            .into()),
    }
}
