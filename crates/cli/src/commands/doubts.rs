//! `gesta doubts`: what waits for a person: calls of which nobody knows whether they happened, undos that
//! were refused or failed, and what verifiers found; with everything that is known.

use anstyle::Style;
use anyhow::Result;
use clap::Args;
use gesta_core::body::CheckVerdict;
use serde::Serialize;

use crate::confirmations::{self, Unconfirmed};
use crate::doubts::{self, Doubt};
use crate::escape::{visible, visible_lines};
use crate::live::brief_id;
use crate::session::Session;
use crate::sight::hidden;
use crate::timeline::{cut, word};
use crate::undos::{self, StuckUndo};
use crate::{moment, reference};

/// List what waits for a person: calls in doubt, stuck undos, a world that differs
#[derive(Debug, Args)]
#[command(after_help = "\
A call is in doubt when it was started, nobody knows how it ended, and its tool says that it must not
be tried again. Look at the other side, then say what you found with `gesta resolve`.
An undo is stuck when it was refused or failed for good: `gesta resolve` tries it again or gives it up.
A step waits to be confirmed when something that it uses is not as the job left it: `gesta confirm`.

Examples:
  gesta doubts
  gesta doubts t_4f2a --json | jq .key")]
pub(crate) struct Arguments {
    /// Only of this job; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: Option<String>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let trajectory = match &arguments.trajectory {
        Some(text) => Some(session.wait(reference::trajectory(&store, text))?),
        None => None,
    };
    let doubts = session.wait(doubts::list(&store, trajectory))?;
    let undos = session.wait(undos::list(&store, trajectory))?;
    let found = session.wait(confirmations::list(&store, trajectory))?;
    let waiting = doubts.iter().map(Waiting::Doubt).chain(undos.iter().map(Waiting::Undo));
    for waiting in waiting.chain(found.iter().map(Waiting::Confirmation)) {
        match &waiting {
            _ if session.out.is_json() => session.out.json_line(&waiting)?,
            Waiting::Doubt(doubt) => print(session, doubt)?,
            Waiting::Undo(undo) => print_undo(session, undo)?,
            Waiting::Confirmation(found) => print_found(session, found)?,
        }
    }
    if doubts.is_empty() && undos.is_empty() && found.is_empty() {
        Session::note("nothing is in doubt");
    }
    Ok(0)
}

/// Something that waits for a person.
#[derive(Serialize)]
#[serde(tag = "on", rename_all = "snake_case")]
enum Waiting<'a> {
    Doubt(&'a Doubt),
    Undo(&'a StuckUndo),
    Confirmation(&'a Unconfirmed),
}

fn print_found(session: &mut Session, found: &Unconfirmed) -> Result<()> {
    let bold = Style::new().bold();
    let out = &mut session.out;
    let name = found.job.as_deref().map(visible).unwrap_or_default();
    let (id, step) = (brief_id(found.trajectory), &found.step);
    out.line(format!("{bold}{}/{step}{bold:#}  {name}", found.trajectory))?;
    for check in &found.checks {
        let how = match check.verdict {
            CheckVerdict::Unknown => "cannot be checked",
            CheckVerdict::Mismatch | CheckVerdict::Ok => "is not as it was left",
        };
        out.line(format!("  differs    {} {how}", visible(&check.resource.to_string())))?;
        out.line(format!(
            "  found      {} by {}",
            visible(&cut(check.found.as_str())),
            check.verifier
        ))?;
    }
    out.line("  go on with one of")?;
    out.line(format!("    gesta confirm {id} {step}   # it may be so"))?;
    out.line(format!("    gesta resume {id}   # put it right first: it is looked at again"))?;
    out.line(format!("    gesta cancel {id}"))?;
    Ok(())
}

fn print_undo(session: &mut Session, undo: &StuckUndo) -> Result<()> {
    let bold = Style::new().bold();
    let out = &mut session.out;
    let name = undo.job.as_deref().map(visible).unwrap_or_default();
    let (id, step) = (brief_id(undo.trajectory), &undo.step);
    out.line(format!("{bold}{}/{step}{bold:#}  {name}", undo.trajectory))?;
    if let Some(undoes) = &undo.undoes {
        out.line(format!("  undoes     {undoes}, which stands as it was done"))?;
    }
    if let (Some(tool), Some(args)) = (&undo.tool, &undo.args) {
        out.line(format!("  call       {tool} {}", visible(&hidden(args.as_str()))))?;
    }
    let known = format!("{}: {}", undo.known.code, undo.known.message);
    for (i, line) in visible_lines(&known).lines().enumerate() {
        out.line(format!("  {:<9}  {line}", if i == 0 { "stuck" } else { "" }))?;
    }
    if undo.happened {
        out.line("  careful    the undo happened; trying again would do it twice")?;
    }
    out.line("  resolve with one of")?;
    out.line(format!("    gesta resolve {id}/{step} --did-not-happen   # it is tried again"))?;
    out.line(format!(
        "    gesta resolve {id}/{step} --give-up   # it stays as it is; the rest is undone"
    ))?;
    Ok(())
}

fn print(session: &mut Session, doubt: &Doubt) -> Result<()> {
    let bold = Style::new().bold();
    let out = &mut session.out;
    let name = doubt.job.as_deref().map(visible).unwrap_or_default();
    let (id, step) = (brief_id(doubt.trajectory), &doubt.step);
    out.line(format!("{bold}{}/{step}{bold:#}  {name}", doubt.trajectory))?;
    out.line(format!(
        "  tool       {}: {}, recovery {}",
        doubt.tool,
        doubt.effect,
        word(&doubt.recovery)
    ))?;
    out.line(format!("  arguments  {}", visible(&hidden(doubt.args.as_str()))))?;
    out.line(format!("  key        {}", doubt.key))?;
    out.line(format!(
        "  started    {} by attempt {} (entry {})",
        moment::utc(doubt.started_at),
        doubt.attempt,
        doubt.started_seq
    ))?;
    let now = Session::now();
    let landed = if now < doubt.dead_at { "can still land until" } else { "cannot land since" };
    out.line(format!("  effect     {landed} {}", moment::utc(doubt.dead_at)))?;
    for failing in &doubt.before {
        out.line(format!(
            "  before     {}",
            visible(&format!("{}: {}", failing.code, failing.message))
        ))?;
    }
    let known = format!("{}: {}", doubt.known.code, doubt.known.message);
    for (i, line) in visible_lines(&known).lines().enumerate() {
        out.line(format!("  {:<9}  {line}", if i == 0 { "known" } else { "" }))?;
    }
    for (i, line) in visible_lines(doubt.output.as_deref().unwrap_or("")).lines().enumerate() {
        out.line(format!("  {:<9}  {line}", if i == 0 { "output" } else { "" }))?;
    }
    let force = if now < doubt.dead_at { " --force" } else { "" };
    out.line("  resolve with one of")?;
    out.line(format!("    gesta resolve {id}/{step} --happened '{{…}}'   # it did; this is what the tool returned"))?;
    out.line(format!(
        "    gesta resolve {id}/{step} --did-not-happen{force}   # it did not; it is tried again"
    ))?;
    out.line(format!(
        "    gesta resolve {id}/{step} --give-up   # nobody will know; the step fails"
    ))?;
    Ok(())
}
