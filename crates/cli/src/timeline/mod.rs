//! A trajectory as a timeline: one line an entry.

mod summary;

use anstyle::{AnsiColor, Color, Style};
use gesta_core::digest::EntryId;
use gesta_core::entry::{Entry, Kind};
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::StoredEntry;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::escape::{short, visible};
use crate::moment;
use crate::sight::Sight;

use summary::summary;
pub(crate) use summary::{brief, cost, cut, word};

/// The width of the column for steps; longer ones push the rest.
const STEP_WIDTH: usize = 14;
/// The width of the column for authors.
const AUTHOR_WIDTH: usize = 11;
/// The width of the column for kinds: the longest.
const KIND_WIDTH: usize = 17;

/// Prints entries in order.
#[derive(Default)]
pub(crate) struct Timeline {
    begun: Option<UnixMs>,
    date: Option<String>,
}

impl Timeline {
    /// The lines for one more entry: the day when it is a new one, then the entry.
    pub(crate) fn lines(&mut self, stored: &StoredEntry, sight: &Sight) -> Vec<String> {
        let seen = |entry| sight.entry(entry).map_err(|error| format!("{error:#}"));
        let entry = match read(stored).and_then(seen) {
            Ok(entry) => entry,
            Err(why) => {
                let red = colour(AnsiColor::Red).bold();
                return vec![format!("{:>5}  {red}ALTERED{red:#}  {}", stored.seq, visible(&why))];
            }
        };
        let payload = entry.payload();
        let begun = *self.begun.get_or_insert(payload.at);
        let mut lines = Vec::new();
        let date = moment::date(payload.at);
        if self.date.as_ref() != Some(&date) {
            let dim = Style::new().dimmed();
            lines.push(format!("       {dim}{date} UTC{dim:#}"));
            self.date = Some(date);
        }
        let style = style_of(entry.kind());
        let step = payload.body.step().map_or("", |step| step.as_str());
        let line = format!(
            "{seq:>5}  {time}  {since:>8}  {style}{kind:<KIND_WIDTH$}{style:#}  {step:<STEP_WIDTH$}  {by:<AUTHOR_WIDTH$}  {summary}",
            seq = stored.seq,
            time = moment::time_of_day(payload.at),
            since = moment::since(begun, payload.at),
            kind = entry.kind().as_str(),
            by = short(&payload.by.to_string(), 24),
            summary = visible(&summary(&payload.body)),
        );
        lines.push(line.trim_end().to_owned());
        lines
    }
}

/// One entry as a line of JSON.
#[derive(Serialize)]
pub(crate) struct Line {
    trajectory: TrajectoryId,
    seq: u64,
    id: EntryId,
    #[serde(skip_serializing_if = "Option::is_none")]
    altered: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<Box<RawValue>>,
}

impl Line {
    pub(crate) fn new(trajectory: TrajectoryId, stored: &StoredEntry) -> Self {
        let (id, seq) = (stored.id, stored.seq);
        let text = || String::from_utf8(stored.bytes.clone()).ok();
        match read(stored) {
            Ok(entry) => Self {
                trajectory,
                seq,
                id,
                altered: None,
                summary: Some(summary(&entry.payload().body)),
                entry: text().and_then(|text| RawValue::from_string(text).ok()),
            },
            Err(why) => {
                Self { trajectory, seq, id, altered: Some(why), summary: None, entry: None }
            }
        }
    }
}

/// Reads an entry that must be what it is stored as.
pub(crate) fn read(stored: &StoredEntry) -> Result<Entry, String> {
    let entry = Entry::from_bytes(&stored.bytes).map_err(|error| error.to_string())?;
    if entry.id() != stored.id {
        return Err("its bytes do not hash to the id it is stored under".to_owned());
    }
    Ok(entry)
}

fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

/// Blue begins and ends, cyan may touch the world, green is done, yellow waits, red went wrong.
fn style_of(kind: Kind) -> Style {
    match kind {
        Kind::Root | Kind::Branch | Kind::Plan => colour(AnsiColor::Blue),
        Kind::Started | Kind::Compensation | Kind::Delegation => colour(AnsiColor::Cyan),
        Kind::Commit | Kind::Approval | Kind::Resolution | Kind::DelegationResult => {
            colour(AnsiColor::Green)
        }
        Kind::Completed => colour(AnsiColor::Green).bold(),
        Kind::PendingApproval | Kind::Waiting | Kind::InDoubt | Kind::LateEffect => {
            colour(AnsiColor::Yellow)
        }
        Kind::Failure | Kind::Rejection => colour(AnsiColor::Red),
        Kind::Failed | Kind::Cancelled => colour(AnsiColor::Red).bold(),
        Kind::Signal | Kind::CancelRequested | Kind::Registration | Kind::Erased => {
            colour(AnsiColor::Magenta)
        }
        Kind::Attempt | Kind::Timer | Kind::Checkpoint | Kind::Confirmation | Kind::Delivered => {
            Style::new().dimmed()
        }
    }
}
