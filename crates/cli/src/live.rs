//! Steps as they happen: on a terminal in place, elsewhere as lines. Told by the entries that a
//! worker makes durable, so nothing is shown that is not on record.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use gesta_core::amounts::Amounts;
use gesta_core::body::{
    CheckVerdict, Commit, Confirmation, Delegation, DelegationResult, End, Failure, Origin,
    PendingApproval, Rejection, Started, Waiting,
};
use gesta_core::document::{Certainty, Decision, Outcome, Reason, ResolutionVerdict};
use gesta_core::entry::{Body, Entry};
use gesta_core::guardian;
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::temporal::{Grade, Pace};
use gesta_core::time::UnixMs;
use gesta_runtime::job::ANSWER;
use gesta_runtime::{Event, Listener};
use gesta_store::StoredEntry;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::args::Color;
use crate::escape::{short, visible};
use crate::moment;
use crate::output::counted;
use crate::session::Session;
use crate::timeline::{Line, brief, cost, word};

const STEP_WIDTH: usize = 14;
const TOOL_WIDTH: usize = 18;
const STATE_WIDTH: usize = 9;
/// How much of a message is shown beside a step.
const NOTE_LENGTH: usize = 160;
const TICK: Duration = Duration::from_millis(100);

/// Where steps are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// On a terminal, in place.
    Terminal,
    /// As lines.
    Lines,
    /// As JSON on stdout, an entry a line, for a program that watches.
    Json,
    /// Nowhere: a program reads the result.
    Nowhere,
}

/// Shows steps.
pub(crate) struct Live {
    to: Where,
    color: Color,
    /// Whether each line says which job it is about.
    many: bool,
    /// The job that is shown, if it is one: the first that is heard of.
    main: OnceLock<TrajectoryId>,
    bars: MultiProgress,
    open: Mutex<BTreeMap<(TrajectoryId, StepId), Open>>,
}

/// A step that something was begun for.
struct Open {
    tool: Option<ToolName>,
    since: UnixMs,
    bar: Option<ProgressBar>,
}

/// One line about one step.
struct Told<'a> {
    step: &'a StepId,
    state: &'static str,
    style: AnsiColor,
    took: Option<u64>,
    cost: Amounts,
    note: String,
}

impl Live {
    pub(crate) fn new(session: &Session, many: bool) -> Arc<Self> {
        let to = match (session.out.is_json(), crate::output::shows_progress(false)) {
            (true, _) if many => Where::Json,
            (true, _) => Where::Nowhere,
            (false, true) if !many => Where::Terminal,
            (false, _) => Where::Lines,
        };
        Arc::new(Self { to, color: session.global.color, many, ..Self::nowhere() })
    }

    /// Shows nothing.
    pub(crate) fn unseen() -> Arc<Self> {
        Arc::new(Self::nowhere())
    }

    fn nowhere() -> Self {
        Self {
            to: Where::Nowhere,
            color: Color::Never,
            many: false,
            main: OnceLock::new(),
            bars: MultiProgress::new(),
            open: Mutex::default(),
        }
    }

    /// What a worker is given.
    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        let live = Arc::clone(self);
        Arc::new(move |event| match event {
            Event::Entry(entry) => live.see(&entry),
            Event::UnderWay { trajectory, step, tool, since } => {
                live.put(trajectory, &step, Open { tool: Some(tool), since, bar: None });
            }
            Event::Progress { trajectory, step, tool, says } => {
                let which = live.which(trajectory);
                live.say(&visible(&format!("{which}{step} ({tool}): {says}")));
            }
            Event::Note(note) => live.say(&visible(&note)),
        })
    }

    /// A line that is not about a step.
    pub(crate) fn say(&self, text: &str) {
        match self.to {
            // Nobody is left to be told when stderr is gone.
            Where::Terminal => self.bars.suspend(|| self.print(text)),
            Where::Lines | Where::Json | Where::Nowhere => self.print(text),
        }
    }

    /// Takes away what is shown in place.
    pub(crate) fn clear(&self) {
        for (_, open) in std::mem::take(&mut *self.lock()) {
            if let Some(bar) = open.bar {
                bar.finish_and_clear();
            }
        }
    }

    fn see(&self, entry: &Entry) {
        let payload = entry.payload();
        let (trajectory, at) = (payload.trajectory, payload.at);
        // The first is the one that was asked for: nothing is delegated before it is claimed.
        self.main.get_or_init(|| trajectory);
        match self.to {
            Where::Nowhere => return,
            Where::Json => return json_line(trajectory, entry),
            Where::Terminal | Where::Lines => {}
        }
        match &payload.body {
            Body::Attempt(attempt) => {
                if let gesta_core::entry::Author::Worker { attempt: number @ 2.., .. } = payload.by
                {
                    let which = self.which(trajectory);
                    self.say(&format!("{which}attempt {number}, {}", visible(&attempt.note)));
                }
            }
            Body::Started(started) => self.begin(trajectory, started, at),
            Body::Waiting(waiting) => self.wait(trajectory, waiting, at),
            Body::Delegation(delegation) => self.delegate(trajectory, delegation, at),
            Body::DelegationResult(result) => self.returned(trajectory, result, at),
            Body::Commit(commit) => self.commit(trajectory, commit, at),
            Body::Failure(failure) => self.failure(trajectory, failure, at),
            Body::Rejection(rejection) => self.rejection(trajectory, rejection, at),
            Body::PendingApproval(pending) => self.pending(trajectory, pending, at),
            Body::InDoubt(doubt) => {
                let note = format!("nobody knows whether it happened: {}", doubt.known.message);
                self.end(trajectory, told(&doubt.step, "in doubt", AnsiColor::Yellow, note), at);
            }
            Body::Resolution(resolution) => {
                let note = match &resolution.statement.doc().verdict {
                    ResolutionVerdict::Happened(_) => "it happened",
                    ResolutionVerdict::DidNotHappen => "it did not happen",
                    ResolutionVerdict::GiveUp => "it was given up",
                };
                let note = note.to_owned();
                self.end(
                    trajectory,
                    told(&resolution.step, "resolved", AnsiColor::Green, note),
                    at,
                );
            }
            Body::Confirmation(confirmation) => self.confirmation(trajectory, confirmation, at),
            Body::Compensation(rollback) => {
                let which = self.which(trajectory);
                let count = counted(rollback.undo.len() as u64, "effect", "effects");
                self.say(&format!("{which}undoing {count}: {}", visible(&rollback.reason)));
            }
            Body::LateEffect(late) => {
                let note = "an effect arrived after its call was closed".to_owned();
                self.end(trajectory, told(&late.step, "late", AnsiColor::Yellow, note), at);
            }
            Body::Completed(_) | Body::Failed(_) | Body::Cancelled(_) if self.many => {
                self.say(&format!("{}: {}", brief_id(trajectory), entry.kind()));
            }
            _ => {}
        }
    }

    fn pending(&self, trajectory: TrajectoryId, pending: &PendingApproval, at: UnixMs) {
        let channels: Vec<&str> = pending.channels.iter().map(|channel| channel.as_str()).collect();
        let channels = channels.join(", ");
        let note = format!("{}, asks {channels}: {}", pending.proposal.tool, pending.reason);
        let step = &pending.proposal.step;
        self.end(trajectory, told(step, "asks", AnsiColor::Yellow, note), at);
    }

    fn rejection(&self, trajectory: TrajectoryId, rejection: &Rejection, at: UnixMs) {
        let decision = rejection.decision.doc();
        let note = decision.reason.map(|reason| word(&reason)).unwrap_or_default();
        let note = match gesta_runtime::shortage(decision) {
            Some(short) => format!("{note}: {}: {short}", rejection.proposal.tool),
            None => format!("{note}: {}", rejection.proposal.tool),
        };
        let (state, colour) = match rejection.retry_at {
            Some(_) => ("held", AnsiColor::Yellow),
            None => ("refused", AnsiColor::Red),
        };
        let lifts = rejection.retry_at.and_then(|_| lifted_by(decision));
        let note = lifts.map_or(note.clone(), |lifts| format!("{note}; {lifts}"));
        self.end(trajectory, told(&decision.step, state, colour, note), at);
    }

    /// Whether a line says which job it is about: there are many, or it is a child of the one that is shown.
    fn names(&self, trajectory: TrajectoryId) -> bool {
        self.many || *self.main.get_or_init(|| trajectory) != trajectory
    }

    /// Which job a line is about, when there are many.
    fn which(&self, trajectory: TrajectoryId) -> String {
        if self.names(trajectory) { format!("{}: ", brief_id(trajectory)) } else { String::new() }
    }

    fn begin(&self, trajectory: TrajectoryId, started: &Started, at: UnixMs) {
        let (step, tool) = (&started.proposal.step, &started.proposal.tool);
        let bar = self.bar(&format!("{step:<STEP_WIDTH$}  {tool:<TOOL_WIDTH$}"));
        let open = Open { tool: Some(tool.clone()), since: at, bar };
        self.put(trajectory, step, open);
        if self.to == Where::Lines {
            let told = told(step, "started", AnsiColor::Cyan, String::new());
            self.print(&self.line(trajectory, &told, Some(tool)));
        }
    }

    fn wait(&self, trajectory: TrajectoryId, waiting: &Waiting, at: UnixMs) {
        let key = waiting.key.as_ref().map(|key| format!("for the signal `{key}`"));
        let until = waiting.until.map(|until| format!("until {}", moment::utc(until)));
        let note = key.into_iter().chain(until).collect::<Vec<_>>().join(" or ");
        let bar = self.bar(&format!("{:<STEP_WIDTH$}  waits {}", waiting.step, visible(&note)));
        self.put(trajectory, &waiting.step, Open { tool: None, since: at, bar });
        if self.to == Where::Lines {
            let told = told(&waiting.step, "waits", AnsiColor::Yellow, note);
            self.print(&self.line(trajectory, &told, None));
        }
    }

    fn delegate(&self, trajectory: TrajectoryId, delegation: &Delegation, at: UnixMs) {
        let note = format!("to child {}", brief_id(delegation.child));
        let bar = self.bar(&format!("{:<STEP_WIDTH$}  {note}", delegation.step));
        self.put(trajectory, &delegation.step, Open { tool: None, since: at, bar });
        if self.to == Where::Lines {
            let told = told(&delegation.step, "handed", AnsiColor::Cyan, note);
            self.print(&self.line(trajectory, &told, None));
        }
    }

    fn returned(&self, trajectory: TrajectoryId, result: &DelegationResult, at: UnixMs) {
        let (state, style) = match result.end {
            End::Completed => ("returned", AnsiColor::Green),
            End::Failed => ("failed", AnsiColor::Red),
            End::Cancelled => ("cancelled", AnsiColor::Red),
        };
        let note = format!("by child {}", brief_id(result.child));
        let cost = Amounts { wall_ms: 0, ..result.spent };
        let told = told(&result.step, state, style, note);
        self.end(trajectory, Told { cost, ..told }, at);
    }

    fn commit(&self, trajectory: TrajectoryId, commit: &Commit, at: UnixMs) {
        let state = match &commit.origin {
            // Its value is the answer, and is shown as that; a list is shown by its items.
            Origin::Computed if commit.step.as_str() == ANSWER => return,
            Origin::Computed if commit.step.as_str().ends_with("/items") => return,
            Origin::Computed => "computed",
            Origin::Skipped => "skipped",
            Origin::Woken { .. } => "woken",
            Origin::Effect { .. } if commit.outcome == Outcome::Compensated => "undone",
            Origin::Effect { .. } => "done",
            Origin::RecordedFrom { .. } => "recorded",
        };
        let cost = Amounts { wall_ms: 0, ..commit.cost };
        let told = told(&commit.step, state, AnsiColor::Green, String::new());
        self.end(trajectory, Told { cost, ..told }, at);
    }

    /// What verifiers found, unless all is as it was left.
    fn confirmation(&self, trajectory: TrajectoryId, confirmation: &Confirmation, at: UnixMs) {
        let doubtful = confirmation.checks.iter().filter(|check| check.verdict != CheckVerdict::Ok);
        let notes: Vec<String> = doubtful
            .map(|check| {
                format!("{} {}: {}", check.resource, word(&check.verdict), check.found.as_str())
            })
            .collect();
        if !notes.is_empty() {
            let (state, note) = ("differs", notes.join("; "));
            self.end(trajectory, told(&confirmation.step, state, AnsiColor::Yellow, note), at);
        }
    }

    fn failure(&self, trajectory: TrajectoryId, failure: &Failure, at: UnixMs) {
        let again = failure.outcome == Outcome::RetryableFailure;
        let (state, style) = match (failure.certainty, again) {
            (Certainty::Unknown, true) => ("unknown", AnsiColor::Yellow),
            (_, true) => ("retry", AnsiColor::Yellow),
            (_, false) => ("failed", AnsiColor::Red),
        };
        let error = &failure.error;
        let told = told(&failure.step, state, style, format!("{}: {}", error.code, error.message));
        let cost = Amounts { wall_ms: 0, ..failure.cost };
        self.end(trajectory, Told { cost, ..told }, at);
    }

    /// Something has become of a step.
    fn end(&self, trajectory: TrajectoryId, told: Told<'_>, at: UnixMs) {
        let open = self.lock().remove(&(trajectory, told.step.clone()));
        let took = open.as_ref().map(|open| at.0.saturating_sub(open.since.0));
        let tool = open.as_ref().and_then(|open| open.tool.clone());
        if let Some(bar) = open.and_then(|open| open.bar) {
            bar.finish_and_clear();
            self.bars.remove(&bar);
        }
        self.say(&self.line(trajectory, &Told { took, ..told }, tool.as_ref()));
    }

    fn line(&self, trajectory: TrajectoryId, told: &Told<'_>, tool: Option<&ToolName>) -> String {
        let Told { step, state, style, took, cost: costs, note } = told;
        let style = Style::new().fg_color(Some((*style).into()));
        let tool = tool.map_or("", ToolName::as_str);
        let took = took.map(span).unwrap_or_default();
        let costs = if *costs == Amounts::default() { String::new() } else { cost(costs) };
        let which = match self.names(trajectory) {
            true => format!("{}  ", brief_id(trajectory)),
            false => String::new(),
        };
        let note = short(note, NOTE_LENGTH);
        let line = format!(
            "{which}{step:<STEP_WIDTH$}  {tool:<TOOL_WIDTH$}  {style}{state:<STATE_WIDTH$}{style:#}  {took:>8}  {costs}  {note}"
        );
        line.trim_end().to_owned()
    }

    fn bar(&self, message: &str) -> Option<ProgressBar> {
        if self.to != Where::Terminal {
            return None;
        }
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(TICK);
        Some(bar)
    }

    fn put(&self, trajectory: TrajectoryId, step: &StepId, open: Open) {
        let before = self.lock().insert((trajectory, step.clone()), open);
        if let Some(bar) = before.and_then(|open| open.bar) {
            bar.finish_and_clear();
        }
    }

    fn print(&self, line: &str) {
        let stderr = std::io::stderr();
        let mut stderr = anstream::AutoStream::new(stderr, self.color.choice(&std::io::stderr()));
        let _ = writeln!(stderr, "{line}");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(TrajectoryId, StepId), Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told<'a>(step: &'a StepId, state: &'static str, style: AnsiColor, note: String) -> Told<'a> {
    Told { step, state, style, took: None, cost: Amounts::default(), note }
}

/// An entry as `gesta log --json` tells it.
fn json_line(trajectory: TrajectoryId, entry: &Entry) {
    let (id, seq, bytes) = (entry.id(), entry.seq(), entry.bytes().to_vec());
    let line = serde_json::to_string(&Line::new(trajectory, &StoredEntry { id, seq, bytes }));
    let line = line.map(|line| crate::escape::json(&line)).unwrap_or_default();
    // Nobody is left to be told when stdout is gone.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// `t_` and the first digits.
pub(crate) fn brief_id(trajectory: TrajectoryId) -> String {
    format!("t_{}", brief(&trajectory.to_string().replace("t_", "")))
}

/// `12 ms`, `1.2 s`, `3 min`.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min", ms / 60_000),
    }
}

/// What lets a step go on that is held, if it takes somebody.
fn lifted_by(decision: &Decision) -> Option<String> {
    match decision.reason {
        Some(Reason::ToolFrozen) => Some(match guardian::why(decision) {
            why if why.contains("`gesta tools p") => why,
            _ => "`gesta freeze` lists why, `gesta unfreeze` lets it go on".to_owned(),
        }),
        // What only comes too fast goes on by itself.
        Some(Reason::TemporalIntervention) if !throttled(decision) => {
            Some("`gesta quarantine` lists why, `gesta quarantine lift` lets it go on".to_owned())
        }
        _ => None,
    }
}

/// Whether nothing but a window that empties by itself is full.
fn throttled(decision: &Decision) -> bool {
    let found = decision.trace.last().and_then(|stage| stage.found.as_ref());
    let paces = found.and_then(|found| found.read::<Vec<Pace>>().ok());
    paces.is_some_and(|paces| {
        let mut full = paces.iter().filter(|pace| pace.full());
        full.all(|pace| pace.rule.then == Grade::Throttle)
    })
}
