//! `gesta approvals`: what waits for people to approve, with exactly what would happen.

use anstyle::Style;
use anyhow::Result;
use clap::Args;
use gesta_core::ids::Channel;
use gesta_core::json::Canon;
use gesta_runtime::Foreseen;

use crate::approvals::{self, Asked};
use crate::escape::{visible, visible_lines};
use crate::live::brief_id;
use crate::registry::Registry;
use crate::session::Session;
use crate::sight::{Reveal, Sight};
use crate::timeline::{cost, cut};
use crate::toolbox::Toolbox;
use crate::{moment, reference};

/// List the calls that wait for approval, with exactly what would happen
#[derive(Debug, Args)]
#[command(after_help = "\
A call waits here when a policy lets it happen, but not unattended. `gesta approve` and `gesta deny` answer, signed
with an approver's key over exactly this question. An approved call is decided once more before it is made.

Examples:
  gesta approvals
  gesta approvals t_4f2a
  gesta approvals --channel finance --json | jq .args")]
pub(crate) struct Arguments {
    /// Only of this job; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: Option<String>,
    /// Only what is asked on this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<Channel>,
    #[command(flatten)]
    reveal: Reveal,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let trajectory = match &arguments.trajectory {
        Some(text) => Some(session.wait(reference::trajectory(&store, text))?),
        None => None,
    };
    // What the tools declare makes the view richer; whoever only approves need not have them.
    let tools = Session::find_workspace()?.map(|workspace| Toolbox::of(&workspace)).transpose()?;
    let catalogue = tools.as_ref().map(|tools| &tools.catalogue);
    let registry = Registry::open(session, &store)?;
    let known = (catalogue, registry.whole());
    let mut asked = session.wait(approvals::list(&store, trajectory, known))?;
    if let Some(channel) = &arguments.channel {
        asked.retain(|asked| asked.channels.contains(channel));
    }
    for asked in &mut asked {
        let sight = Sight::of(session, &store, asked.trajectory, arguments.reveal)?;
        see(&sight, asked, session.out.is_json())?;
        if session.out.is_json() {
            session.out.json_line(asked)?;
        } else {
            print(session, asked)?;
        }
    }
    if asked.is_empty() {
        Session::note("nothing waits for approval");
    }
    Ok(0)
}

/// Shows the arguments as they are to be seen; programs are told commitments.
pub(crate) fn see(sight: &Sight, asked: &mut Asked, json: bool) -> Result<()> {
    if sight.is_open() || !json {
        let mut args: serde_json::Value = serde_json::from_str(asked.args.as_str())?;
        sight.value(&mut args)?;
        asked.args = Canon::of(&args)?;
    }
    Ok(())
}

/// Lays out what is asked.
pub(crate) fn print(session: &mut Session, asked: &Asked) -> Result<()> {
    let bold = Style::new().bold();
    let out = &mut session.out;
    let name = asked.job.as_deref().map(visible).unwrap_or_default();
    let (id, step) = (brief_id(asked.trajectory), &asked.step);
    out.line(format!("{bold}{}/{step}{bold:#}  {name}", asked.trajectory))?;
    let effect = asked.effect.map(|effect| format!(" ({effect})")).unwrap_or_default();
    out.line(format!("  call       {bold}{}{bold:#}{effect}", asked.tool))?;
    let args: serde_json::Value = serde_json::from_str(asked.args.as_str())?;
    let args = crate::escape::json(&serde_json::to_string_pretty(&args)?);
    for (i, line) in visible_lines(&args).lines().enumerate() {
        out.line(format!("  {:<9}  {line}", if i == 0 { "arguments" } else { "" }))?;
    }
    for change in &asked.changes {
        out.line(format!("  world      {}", changed(change)))?;
    }
    if let Some(reserve) = asked.cost.filter(|reserve| *reserve != Default::default()) {
        out.line(format!("  cost       {}, set aside", cost(&reserve)))?;
    }
    if let (Some(principal), Some(tenant)) = (&asked.principal, &asked.tenant) {
        out.line(format!("  wanted by  {principal} of {tenant}"))?;
    }
    let ids: Vec<String> =
        asked.policies.iter().map(|by| format!("`{}`", visible(&by.id))).collect();
    let by = if ids.is_empty() { String::new() } else { format!(" (policy {})", ids.join(", ")) };
    out.line(format!("  because    {}{by}", visible(&asked.reason)))?;
    let channels: Vec<&str> = asked.channels.iter().map(Channel::as_str).collect();
    let so_far = if asked.approved.is_empty() {
        String::new()
    } else {
        format!(", so far {}", asked.approved.join(", "))
    };
    out.line(format!("  asks       {} of {}{so_far}", asked.quorum, channels.join(", ")))?;
    out.line(format!(
        "  since      {}, until {}",
        moment::utc(asked.asked_at),
        moment::utc(asked.deadline)
    ))?;
    out.line(format!("  entry      {} ({})", asked.seq, asked.pending))?;
    out.line("  answer with one of")?;
    out.line(format!("    gesta approve {id}/{step}"))?;
    out.line(format!("    gesta deny {id}/{step} --note 'why not'"))?;
    Ok(())
}

fn changed(change: &Foreseen) -> String {
    let resource = visible(&change.resource.to_string());
    let value = |value: &Option<gesta_core::json::Canon>, none: &str| match value {
        Some(value) => visible(&cut(value.as_str())),
        None => none.to_owned(),
    };
    let now = value(&change.now, "nothing");
    let then = match change.retracted {
        true => "nothing".to_owned(),
        false => value(&change.then, "what the call returns"),
    };
    format!("{resource}: {now} → {then}")
}
