//! `gesta calls`: what was asked for, in all trajectories, one line a call: the way from what happened to the
//! entry that says why. Trajectories are read one after the other, and none is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::body::{Origin, Proposal};
use gesta_core::digest::EntryId;
use gesta_core::document::{Certainty, Decision, Reason, ResolutionVerdict, Verdict};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::projection::TrajectoryKind;
use gesta_core::time::UnixMs;
use gesta_core::verification::Class;
use gesta_store::{Listing, Store, StoreError, TrajectoryRow};
use serde::Serialize;
use serde_json::Value;

use crate::escape::visible;
use crate::moment;
use crate::session::Session;
use crate::sight::hidden;

/// How many rows or entries are read at a time.
const PAGE: usize = 512;
/// How much of the arguments people are shown.
const SHOWN_CHARS: usize = 80;

/// List the calls of all trajectories, to find one
#[derive(Debug, Args)]
#[command(after_help = "\
A line says when, which entry, step and tool, what was decided, what became of it, and the arguments.
`gesta show ENTRY` and `gesta policy explain ENTRY` tell more of it. Sensitive arguments are hidden, and
`--where` does not find them.

Examples:
  gesta calls
  gesta calls --tool payments.pay --since 7d
  gesta calls --where cents=420000
  gesta calls --where /to/name=ada --json | jq .entry")]
pub(crate) struct Arguments {
    /// Only calls of this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<ToolName>,
    /// Only calls of this time or later: 2026-11-16T09:30:00Z, or 7d for so long ago
    #[arg(long, value_name = "TIME", value_parser = moment::parse_or_ago)]
    since: Option<UnixMs>,
    /// Only calls before this time
    #[arg(long, value_name = "TIME", value_parser = moment::parse_or_ago)]
    before: Option<UnixMs>,
    /// Only calls with this argument: `cents=420000`, `to.name=ada`, or a JSON pointer; may be repeated
    #[arg(long = "where", value_name = "PATH=VALUE", value_parser = condition)]
    conditions: Vec<Condition>,
}

/// What an argument must be.
#[derive(Clone, Debug)]
struct Condition {
    pointer: String,
    text: String,
}

fn condition(given: &str) -> Result<Condition, String> {
    let (path, text) = given.split_once('=').ok_or("write it as PATH=VALUE: `cents=420000`")?;
    if path.is_empty() {
        return Err("write it as PATH=VALUE: `cents=420000`".to_owned());
    }
    let pointer = match path.starts_with('/') {
        true => path.to_owned(),
        false => path.split('.').map(|name| format!("/{}", name.replace('~', "~0"))).collect(),
    };
    Ok(Condition { pointer, text: text.to_owned() })
}

impl Condition {
    fn holds(&self, args: &Value) -> bool {
        let Some(found) = args.pointer(&self.pointer) else { return false };
        found.as_str() == Some(self.text.as_str())
            || serde_json::from_str::<Value>(&self.text).is_ok_and(|value| value == *found)
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Became {
    /// It was not made.
    NotMade,
    /// A person was asked first.
    Asked,
    /// It is under way, or was when its worker ended.
    Open,
    /// It was made.
    Done,
    /// It failed.
    Failed,
    /// It happened, and failed.
    HappenedAndFailed,
    /// Nobody knows.
    InDoubt,
    /// It did not happen, as was found out later.
    DidNotHappen,
    /// What became of it is not asked any more.
    GivenUp,
}

impl Became {
    fn word(self) -> &'static str {
        match self {
            Self::NotMade => "not made",
            Self::Asked => "waits",
            Self::Open => "open",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::HappenedAndFailed => "happened, failed",
            Self::InDoubt => "in doubt",
            Self::DidNotHappen => "did not happen",
            Self::GivenUp => "given up",
        }
    }
}

/// One call.
#[derive(Clone, Debug, Serialize)]
struct Call {
    trajectory: TrajectoryId,
    seq: u64,
    /// The entry that asks for it.
    entry: EntryId,
    at: UnixMs,
    step: StepId,
    tool: ToolName,
    args: Canon,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    outcome: Became,
    /// The entry that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let mut listing = Listing { after: None, status: None };
    let mut code = 0;
    loop {
        let page = session.wait(store.list(&listing, PAGE))?;
        for row in page.iter().filter(|row| may_have(row, arguments)) {
            match session.wait(calls(&store, row.trajectory)) {
                Ok(calls) => tell(session, calls, arguments)?,
                Err(Unread(class, why)) => {
                    session.out.flush()?;
                    Session::note(&format!("warning: {} is left out: {why}", row.trajectory));
                    code = class.exit_code();
                }
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE && !session.out.is_closed() => {
                listing.after = Some(last.trajectory);
            }
            _ => return Ok(code),
        }
    }
}

/// Whether a trajectory was at work in the time asked for.
fn may_have(row: &TrajectoryRow, arguments: &Arguments) -> bool {
    let Arguments { since, before, .. } = arguments;
    row.summary.kind != TrajectoryKind::Registry
        && since.is_none_or(|since| row.summary.changed_at >= since)
        && before.is_none_or(|before| row.summary.begun_at < before)
}

/// Why a trajectory could not be read: one does not stand in the way of all others.
struct Unread(Class, String);

/// The calls of a trajectory, in order.
async fn calls(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<Vec<Call>, Unread> {
    let mut course = Course::default();
    let mut from = 0;
    loop {
        let page = store.entries(trajectory, from, PAGE).await.map_err(|error| match error {
            error @ StoreError::Archived { .. } => Unread(Class::Incomplete, error.to_string()),
            error => Unread(Class::Unreadable, error.to_string()),
        })?;
        for stored in &page {
            let entry = gesta_store::read_entry(trajectory, stored)
                .map_err(|error| Unread(Class::Tampered, error.to_string()))?;
            course.see(&entry);
            from = stored.seq + 1;
        }
        if page.len() < PAGE {
            return Ok(course.calls);
        }
    }
}

/// A trajectory on its way.
#[derive(Default)]
struct Course {
    calls: Vec<Call>,
    /// Which of them a `started` is.
    started: BTreeMap<EntryId, usize>,
    /// The newest of each step.
    newest: BTreeMap<StepId, usize>,
}

impl Course {
    fn see(&mut self, entry: &Entry) {
        match &entry.payload().body {
            Body::Started(it) => {
                self.asked(entry, &it.proposal, it.decision.doc(), Became::Open);
                self.started.insert(entry.id(), self.calls.len() - 1);
            }
            Body::PendingApproval(it) => {
                self.asked(entry, &it.proposal, it.decision.doc(), Became::Asked);
            }
            Body::Rejection(it) => {
                self.asked(entry, &it.proposal, it.decision.doc(), Became::NotMade);
            }
            Body::Commit(commit) => {
                if let Origin::Effect { started, .. } = &commit.origin {
                    self.became(self.started.get(started).copied(), Became::Done, entry);
                }
            }
            Body::Failure(failure) => {
                let became = match failure.certainty {
                    Certainty::Happened => Became::HappenedAndFailed,
                    _ => Became::Failed,
                };
                let of = failure.started.and_then(|started| self.started.get(&started).copied());
                self.became(of, became, entry);
            }
            Body::InDoubt(doubt) => {
                self.became(self.started.get(&doubt.started).copied(), Became::InDoubt, entry);
            }
            Body::Resolution(resolution) => {
                let became = match &resolution.statement.doc().verdict {
                    ResolutionVerdict::Happened(_) => Became::Done,
                    ResolutionVerdict::DidNotHappen => Became::DidNotHappen,
                    ResolutionVerdict::GiveUp => Became::GivenUp,
                };
                self.became(self.newest.get(&resolution.step).copied(), became, entry);
            }
            Body::LateEffect(late) => {
                let of = self.started.get(&late.report.doc().started).copied();
                self.became(of, Became::Done, entry);
            }
            _ => {}
        }
    }

    fn asked(&mut self, entry: &Entry, proposal: &Proposal, decision: &Decision, outcome: Became) {
        let payload = entry.payload();
        self.newest.insert(proposal.step.clone(), self.calls.len());
        self.calls.push(Call {
            trajectory: payload.trajectory,
            seq: payload.seq,
            entry: entry.id(),
            at: payload.at,
            step: proposal.step.clone(),
            tool: proposal.tool.clone(),
            args: proposal.args.clone(),
            verdict: decision.verdict,
            reason: decision.reason,
            outcome,
            ended: None,
        });
    }

    fn became(&mut self, of: Option<usize>, outcome: Became, by: &Entry) {
        if let Some(call) = of.and_then(|at| self.calls.get_mut(at)) {
            (call.outcome, call.ended) = (outcome, Some(by.seq()));
        }
    }
}

fn tell(session: &mut Session, calls: Vec<Call>, arguments: &Arguments) -> Result<()> {
    let Arguments { tool, since, before, conditions } = arguments;
    for call in calls {
        let args: Value = serde_json::from_str(call.args.as_str())?;
        let asked_for = tool.as_ref().is_none_or(|tool| *tool == call.tool)
            && since.is_none_or(|since| call.at >= since)
            && before.is_none_or(|before| call.at < before)
            && conditions.iter().all(|condition| condition.holds(&args));
        if !asked_for {
            continue;
        }
        if session.out.is_json() {
            session.out.json_line(&call)?;
        } else {
            session.out.line(line(&call))?;
        }
    }
    Ok(())
}

fn line(call: &Call) -> String {
    let Call { trajectory, seq, at, step, tool, args, verdict, outcome, .. } = call;
    let id: String = trajectory.to_string().chars().take(10).collect();
    let verdict = match verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "refused",
        Verdict::Escalate => "asked",
    };
    let args = hidden(args.as_str());
    let mut shown: String = args.chars().take(SHOWN_CHARS).collect();
    if shown.len() < args.len() {
        shown.push('…');
    }
    visible(&format!(
        "{}  {:<14}  {step:<12}  {tool:<16}  {verdict:<7}  {:<9}  {shown}",
        moment::utc(*at),
        format!("{id}:{seq}"),
        outcome.word(),
    ))
}
