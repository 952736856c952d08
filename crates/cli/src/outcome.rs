//! The end of a run, told: the answer, what was done to the outside, and how to look deeper.

use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use gesta_core::content::Content;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::{Parked, ParkedOn};
use gesta_store::Store;
use serde_json::{Value, json};

use crate::approvals;
use crate::deeds::{self, Deed, Deeds, Known, Undone};
use crate::driving::{self, Ending};
use crate::escape::{visible, visible_lines};
use crate::live::brief_id;
use crate::output::counted;
use crate::session::Session;
use crate::sight::{Reveal, Sight};
use crate::timeline::{cost, cut};

/// Tells how a job ended. What comes back is the exit code.
pub(crate) fn tell(
    session: &mut Session,
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    ending: Ending,
    reveal: Reveal,
) -> Result<u8> {
    let deeds = session.wait(Deeds::read(store, trajectory))?;
    let below = session.wait(deeds.below(store))?;
    let parked = session.wait(driving::parked(store, trajectory))?;
    let mut answer = match &deeds.answer {
        Some(answer) => Some(session.wait(deeds::value(store, answer))?),
        None => None,
    };
    let sight = Sight::of(session, store, trajectory, reveal)?;
    if let Some(answer) = answer.as_mut().filter(|_| sight.is_open() || !session.out.is_json()) {
        sight.value(answer)?;
    }
    if session.out.is_json() {
        session.out.document(&json!({
            "trajectory": trajectory,
            "job": deeds.name,
            "status": ending.as_str(),
            "answer": answer,
            "error": deeds.error,
            "effects": deeds.deeds,
            "effects_of_children": below,
            "cost": deeds.cost,
            "confirmations": deeds.confirmations,
            "parked": parked,
        }))?;
    } else {
        print(session, (trajectory, ending), (&deeds, below), answer.as_ref())?;
    }
    if let Some((seq, decision)) = deeds.refused.as_ref().filter(|_| ending == Ending::Failed) {
        let id = brief_id(trajectory);
        let unapproved = session.wait(approvals::unapproved(store, trajectory, decision))?;
        let why = unapproved.map(|why| format!("{}: {}; ", decision.step, visible(&why)));
        let why = why.unwrap_or_default();
        session
            .hint(&format!("{why}`gesta policy explain {id}:{seq}` tells why it was refused"))?;
    }
    advise(session, trajectory, ending, &deeds, &parked)?;
    Ok(ending.exit_code())
}

fn print(
    session: &mut Session,
    (trajectory, ending): (TrajectoryId, Ending),
    (deeds, below): (&Deeds, u64),
    answer: Option<&Value>,
) -> Result<()> {
    let (word, colour) = match ending {
        Ending::Completed => ("completed", AnsiColor::Green),
        Ending::Failed => ("failed", AnsiColor::Red),
        Ending::Cancelled => ("cancelled", AnsiColor::Red),
        Ending::InDoubt => ("in doubt", AnsiColor::Yellow),
        Ending::Interrupted => ("interrupted", AnsiColor::Yellow),
    };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let name = deeds.name.as_deref().unwrap_or("job");
    let why = deeds.error.as_ref().map(|error| format!(": {}", visible(&error.message)));
    session.out.line(format!(
        "{style}{word}{style:#}  {} {trajectory}{}",
        visible(name),
        why.unwrap_or_default()
    ))?;
    if let Some(answer) = answer {
        session.out.line("answer")?;
        let text = serde_json::to_string_pretty(answer)?;
        for line in visible_lines(&crate::escape::json(&text)).lines() {
            session.out.line(format!("  {line}"))?;
        }
    }
    session.out.line(match (deeds.deeds.is_empty(), below) {
        (true, 0) => "did nothing to the outside".to_owned(),
        (true, _) => "did nothing to the outside by itself".to_owned(),
        (false, _) => format!("did to the outside ({} in all)", cost(&deeds.cost)),
    })?;
    if below > 0 {
        let calls = counted(below, "call", "calls");
        session.out.line(format!(
            "its children made {calls} to the outside: `gesta tree {}` lists them",
            brief_id(trajectory)
        ))?;
    }
    if let Some(told) = deeds.confirmations.told() {
        session.out.line(format!("found outside: {told}"))?;
    }
    for deed in &deeds.deeds {
        for line in lines(deed) {
            session.out.line(format!("  {line}"))?;
        }
    }
    Ok(())
}

/// What one call did, in one line, and what proves it, in another.
fn lines(deed: &Deed) -> [String; 2] {
    let Deed { step, tool, effect, known, args, result, receipt, seq, undoes, undone } = deed;
    let bold = Style::new().bold();
    let result = match (known, result) {
        (Known::Happened, Some(Content::Inline(value))) => {
            format!(" → {}", visible(&cut(value.as_str())))
        }
        (Known::Happened, Some(Content::Blob(blob))) => format!(" → {} bytes", blob.size),
        (Known::Happened, None) => String::new(),
        (Known::HappenedAndFailed, _) => ", and failed".to_owned(),
        (Known::InDoubt, _) => ", perhaps: nobody knows".to_owned(),
    };
    let proof = match receipt {
        Some(receipt) => format!("receipt {receipt}"),
        None => "no receipt".to_owned(),
    };
    let undo = match (undoes, undone) {
        (Some(undone), _) => format!(", undoes {undone}"),
        (None, Some(Undone::Done)) => ", undone".to_owned(),
        (None, Some(Undone::Open)) => ", not undone yet".to_owned(),
        (None, Some(Undone::GivenUp)) => ", not undone: given up".to_owned(),
        (None, Some(Undone::CannotBe)) => ", cannot be undone: nothing says how".to_owned(),
        (None, None) => String::new(),
    };
    [
        format!("{bold}{step}{bold:#}  {tool} {}{result}", visible(&cut(args.as_str()))),
        format!("    {effect}{undo}, entry {seq}, {proof}"),
    ]
}

/// How to go on, and how to look deeper.
fn advise(
    session: &mut Session,
    trajectory: TrajectoryId,
    ending: Ending,
    deeds: &Deeds,
    parked: &[Parked],
) -> Result<()> {
    let id = brief_id(trajectory);
    match ending {
        Ending::InDoubt => {
            let for_a_person = |row: &&Parked| {
                matches!(row.on, ParkedOn::Doubt | ParkedOn::Undo | ParkedOn::Confirmation)
            };
            let confirm = parked.iter().any(|row| row.on == ParkedOn::Confirmation);
            for row in parked.iter().filter(for_a_person) {
                let waits = driving::waits_for(trajectory, row);
                session.hint(&format!("{} waits {waits}", row.step))?;
            }
            let say = if confirm { "gesta confirm" } else { "gesta resolve" };
            let what = if confirm { "lets it be" } else { "says what happened" };
            session.hint(&format!("`{say} {id} …` {what}, `gesta resume {id}` goes on"))
        }
        Ending::Interrupted => {
            session.hint(&format!("`gesta resume {id}` goes on where it stopped"))
        }
        Ending::Completed | Ending::Failed | Ending::Cancelled => {
            let failed = deeds.failed_at.filter(|_| ending == Ending::Failed);
            let (seq, what) = match failed {
                Some(seq) => (seq, "what failed"),
                None => (deeds.deeds.last().map_or(0, |deed| deed.seq), "one entry of it"),
            };
            session.hint(&format!(
                "`gesta log {id}` tells the story, `gesta show {id}:{seq}` {what}, `gesta verify {id}` proves it"
            ))
        }
    }
}
