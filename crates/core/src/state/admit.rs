//! Letting entries in: from bodies to [`Admitted`], checked against a copy of the state.

use std::collections::BTreeSet;

use serde::Serialize;

use super::step::{Status, Step};
use super::{AdmitError, Phase, State};
use crate::body::{End, Mandate, Purpose};
use crate::digest::Digest;
use crate::document::{FreezeTarget, RegistryItem, ResolvedBy};
use crate::entry::{Author, Body, Entry, Head, Payload};
use crate::ids::{Principal, StepId, Tenant, TrajectoryId};
use crate::json::Canon;
use crate::projection::{
    Admitted, Fence, Notice, Parked, ParkedOn, Projection, Status as Standing, Summary, Topic,
    TrajectoryKind,
};
use crate::time::UnixMs;

/// Entries on their way into one append. They are stored together or not at all.
#[derive(Clone, Debug)]
pub struct Admission {
    base: State,
    state: State,
    fence: Fence,
    entries: Vec<Entry>,
    touched: Vec<StepId>,
    under: Option<(TrajectoryId, Head)>,
    resolves: bool,
    read: BTreeSet<Digest>,
    says_nothing: bool,
    warn_at: Vec<u8>,
}

impl State {
    /// Begins an append on top of this state.
    pub fn admit(&self) -> Admission {
        Admission {
            base: self.clone(),
            state: self.clone(),
            fence: Fence::Open,
            entries: Vec::new(),
            touched: Vec::new(),
            under: None,
            resolves: false,
            read: BTreeSet::new(),
            says_nothing: false,
            warn_at: Vec::new(),
        }
    }
}

impl Admission {
    /// Adds an entry. Its number and parent follow from what is there; its time is never before its
    /// parent's. A refused entry changes nothing, and others may still be added. Refused is what the state
    /// refuses, and a beginning on what another trajectory may: version 1 lets those be read.
    pub fn push(&mut self, at: UnixMs, by: Author, body: Body) -> Result<&Entry, AdmitError> {
        let entry = Entry::new(Payload {
            at: at.max(self.state.at()),
            body,
            by,
            parent: self.state.head().map(|head| head.id),
            seq: self.state.head().map_or(0, |head| head.seq + 1),
            trajectory: self.state.trajectory(),
        })?;
        if let Some(of) = entry.payload().body.mandate().and_then(Mandate::uncarved) {
            return Err(AdmitError::Uncarved(of));
        }
        self.state.apply(&entry)?;
        if let Author::Worker { attempt, .. } = entry.payload().by
            && self.base.attempt() == attempt
        {
            self.fence = Fence::Attempt(attempt);
        }
        if let Body::Resolution(resolution) = &entry.payload().body {
            self.resolves |= resolution.statement.doc().source != ResolvedBy::Inbox;
        }
        self.touched.extend(entry.payload().body.step().cloned());
        let slot = self.entries.len();
        self.entries.push(entry);
        #[expect(clippy::indexing_slicing, reason = "the entry was pushed one line above")]
        Ok(&self.entries[slot])
    }

    /// Makes the append depend on the head of another trajectory: what was decided under a registry
    /// is not stored once the registry has moved. Of several heads the first counts: what was decided on
    /// it must not pass under a newer one.
    pub fn under(&mut self, trajectory: TrajectoryId, head: Head) {
        self.under.get_or_insert((trajectory, head));
    }

    /// Names reports about this trajectory that were read in the effects inbox. Where an operator or a probe says what
    /// became of a doubt, the append is not stored while the inbox holds any other: its executor knows better.
    pub fn having_read(&mut self, reports: impl IntoIterator<Item = Digest>) {
        self.read.extend(reports);
    }

    /// What was added so far.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Leaves out the notices, and looks into no inbox: what is added happened elsewhere, and whoever had to be
    /// told was.
    pub fn say_nothing(&mut self) {
        self.says_nothing = true;
    }

    /// Tells when the trajectory comes to one of these thresholds of its own budget, in percent.
    pub fn warn_at(&mut self, thresholds: &[u8]) {
        self.warn_at = thresholds.to_vec();
    }

    /// The state with everything added so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The append, and the state once it is stored. None when nothing was added.
    pub fn finish(self) -> Option<(Admitted, State)> {
        let Self { base, state, fence, entries, mut touched, under, says_nothing, warn_at, .. } =
            self;
        let read = (self.resolves && !says_nothing).then_some(self.read);
        if state.ended().is_some() && base.ended().is_none() {
            touched.extend(base.parked().map(|parked| parked.step));
        }
        touched.sort();
        touched.dedup();
        let unparked =
            touched.iter().filter(|step| base.parked_row(step).is_some()).cloned().collect();
        let parked: Vec<_> = touched.iter().filter_map(|step| state.parked_row(step)).collect();
        let telling = entries.iter().filter(|_| !says_nothing);
        let notices = telling.filter_map(|entry| notice(&state, &parked, entry));
        let notices = notices.chain(threshold(&base, &state, &warn_at)).collect();
        let admitted = Admitted {
            trajectory: state.trajectory(),
            expected: base.head(),
            fence,
            entries,
            head: state.head()?,
            under,
            read,
            projection: Projection { summary: state.summary()?, unparked, parked },
            notices,
        };
        (!admitted.entries.is_empty()).then_some((admitted, state))
    }
}

/// What somebody is to be told of an entry: that a step or all of a principal waits for a person, or that
/// an effect is late.
fn notice(state: &State, parked: &[Parked], entry: &Entry) -> Option<Notice> {
    #[derive(Serialize)]
    struct Data<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        channels: Option<Vec<&'a str>>,
        note: &'a str,
        seq: u64,
        step: Option<&'a StepId>,
        tenant: Option<&'a Tenant>,
        trajectory: TrajectoryId,
        until: Option<UnixMs>,
    }
    let row = parked.iter().find(|row| row.entry == entry.id());
    let Payload { at, body, .. } = entry.payload();
    let quarantined = quarantined(body);
    let topic = match (body, row.map(|row| row.on)) {
        _ if quarantined.is_some() => Topic::Quarantine,
        (Body::LateEffect(_), _) => Topic::LateEffect,
        (_, Some(ParkedOn::Approval)) => Topic::Approval,
        (_, Some(ParkedOn::Doubt)) => Topic::Doubt,
        (_, Some(ParkedOn::Confirmation)) => Topic::Confirmation,
        (_, Some(ParkedOn::Undo)) => Topic::Undo,
        _ => return None,
    };
    let note = row.map_or("an effect has arrived after its call was closed", |row| &row.note);
    let tenant = match &quarantined {
        Some((FreezeTarget::Tenant(tenant), _)) => Some(tenant),
        _ => state.tenant(),
    };
    let asks = row.filter(|row| row.on == ParkedOn::Approval).and_then(|row| row.key.as_ref());
    let data = Data {
        channels: asks.map(|channels| channels.split(',').collect()),
        note: quarantined.as_ref().map_or(note, |(_, note)| note),
        seq: entry.seq(),
        step: body.step(),
        tenant,
        trajectory: state.trajectory(),
        until: row.and_then(|row| row.until),
    };
    let id = Digest::from_bytes(*entry.id().as_bytes());
    // Names, numbers and notes of ours: there is always a canonical form.
    let data = Canon::of(&data).unwrap_or_else(|_| Canon::null());
    Some(Notice { id, topic, at: *at, data })
}

/// What somebody is to be told of a trajectory that has come to a threshold of its own budget.
fn threshold(base: &State, state: &State, warn_at: &[u8]) -> Option<Notice> {
    let ((_, writ), used) = (state.writ()?, state.spent());
    let reached = writ.budget.reached(&used, warn_at)?;
    let before = writ.budget.reached(&base.spent(), warn_at);
    let of = (state.trajectory(), &writ.tenant);
    let notice = || Notice::of_own_budget(of, reached, &writ.budget, used, state.at());
    (before < Some(reached)).then(notice)
}

/// What an entry of the registry puts into quarantine, and in words.
fn quarantined(body: &Body) -> Option<(FreezeTarget, String)> {
    let Body::Registration(registration) = body else { return None };
    let statement = registration.statement.doc();
    let RegistryItem::Quarantine(target) = &statement.item else { return None };
    let because = statement.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    Some((target.clone(), format!("{target} is in quarantine: too many calls{because}")))
}

impl Body {
    /// The step that an entry is about, if it is about one.
    pub fn step(&self) -> Option<&StepId> {
        match self {
            Self::Started(body) => Some(&body.proposal.step),
            Self::Commit(body) => Some(&body.step),
            Self::Failure(body) => Some(&body.step),
            Self::Rejection(body) => Some(&body.proposal.step),
            Self::PendingApproval(body) => Some(&body.proposal.step),
            Self::Approval(body) => Some(&body.step),
            Self::InDoubt(body) => Some(&body.step),
            Self::Resolution(body) => Some(&body.step),
            Self::LateEffect(body) => Some(&body.step),
            Self::Confirmation(body) => Some(&body.step),
            Self::Waiting(body) => Some(&body.step),
            Self::Timer(body) => Some(&body.step),
            Self::Delegation(body) => Some(&body.step),
            Self::DelegationResult(body) => Some(&body.step),
            Self::Delivered(body) => body.step.as_ref(),
            Self::Root(_)
            | Self::Branch(_)
            | Self::Plan(_)
            | Self::Attempt(_)
            | Self::Compensation(_)
            | Self::Signal(_)
            | Self::Checkpoint(_)
            | Self::Registration(_)
            | Self::Erased(_)
            | Self::CancelRequested(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Cancelled(_) => None,
        }
    }

    /// What a job, a session or a branch begins with.
    fn mandate(&self) -> Option<&Mandate> {
        match self {
            Self::Root(root) => match &root.purpose {
                Purpose::Job(mandate) | Purpose::Session(mandate) => Some(mandate),
                Purpose::Registry { .. } => None,
            },
            Self::Branch(branch) => Some(&branch.mandate),
            _ => None,
        }
    }
}

impl State {
    /// The trajectory in one row; none before it has begun.
    pub fn summary(&self) -> Option<Summary> {
        let beginning = self.beginning.as_ref()?;
        let runnable = self.runnable();
        let wake_at = self.wakes_at().filter(|_| self.phase == Phase::Live);
        Some(Summary {
            attempt: self.attempt,
            begun_at: beginning.begun_at,
            changed_at: self.at,
            kind: beginning.kind,
            principal: Principal::clone(&beginning.principal),
            priority: self.plan.as_ref().map_or(0, |plan| plan.priority),
            runnable,
            status: self.standing(beginning.kind, runnable),
            tenant: self.tenant().cloned(),
            tools: self.plan.as_ref().map(|plan| plan.tools.clone()).unwrap_or_default(),
            wake_at,
        })
    }

    /// When something changes by itself. What may not begin any more wakes nobody, and neither does what
    /// a person must confirm first.
    fn wakes_at(&self) -> Option<UnixMs> {
        let next = if self.stopping() { self.next_undo() } else { None };
        let over = |id: &StepId| {
            let rests = self.step(id).is_some_and(Step::rests);
            let begins = !self.stopping() || next.as_ref() == Some(id);
            rests && (!begins || self.unconfirmed.contains_key(id))
        };
        self.timers.iter().find(|(_, id)| !over(id)).map(|(at, _)| *at)
    }

    fn standing(&self, kind: TrajectoryKind, runnable: bool) -> Standing {
        match self.phase {
            // Its parent is to be told.
            Phase::Ended(_) if runnable => Standing::Running,
            Phase::Ended(End::Completed) => Standing::Completed,
            Phase::Ended(End::Failed) => Standing::Failed,
            Phase::Ended(End::Cancelled) => Standing::Cancelled,
            Phase::Unbegun | Phase::Live => match kind {
                TrajectoryKind::Registry => Standing::Standing,
                _ if self.attempt == 0 => Standing::Queued,
                _ if runnable || kind == TrajectoryKind::Session => Standing::Running,
                _ => Standing::Parked,
            },
        }
    }

    /// Whether a worker has something to do whatever the time. A session's next call comes from
    /// outside, so only what it left open counts.
    fn runnable(&self) -> bool {
        if self.owes_parent().is_some() {
            return true;
        }
        if self.phase != Phase::Live || self.kind() == Some(TrajectoryKind::Registry) {
            return false;
        }
        if self.wanting > 0 || !self.meetings.is_empty() {
            return true;
        }
        if self.stopping() && self.owed().next().is_some() {
            return true;
        }
        if self.kind() == Some(TrajectoryKind::Session) {
            return self.stopping() && self.may_fail().is_ok();
        }
        if self.stopping() {
            return self.may_fail().is_ok()
                || self.may_compensate().is_ok()
                || self.next_undo().is_some_and(|undo| {
                    let rests = self.step(&undo).is_some_and(Step::rests);
                    !rests && self.check_idle(&undo).is_ok()
                });
        }
        // What rests and waits for a person too is kept back once.
        let both = self.unconfirmed.keys().filter(|id| self.step(id).is_some_and(Step::rests));
        let may_begin = self.idle.size() + both.count() > self.unconfirmed.size() + self.resting;
        self.may_complete().is_ok() || may_begin && !self.quiet
    }

    /// Whether nothing new may start.
    pub(super) fn stopping(&self) -> bool {
        self.failing || self.cancelling.is_some() || self.rollback.is_some()
    }

    /// Every parked step.
    pub fn parked(&self) -> impl Iterator<Item = Parked> {
        let live = self.phase == Phase::Live;
        self.busy
            .iter()
            .chain(self.unconfirmed.keys())
            .filter(move |_| live)
            .filter_map(|step| self.parked_row(step))
    }

    /// A step's row, if it is parked.
    fn parked_row(&self, id: &StepId) -> Option<Parked> {
        if self.phase != Phase::Live {
            return None;
        }
        let row = |on, entry, note: &str| {
            Some(Parked {
                entry,
                key: None,
                note: note.to_owned(),
                on,
                step: id.clone(),
                until: None,
            })
        };
        if let Some(parked) = self.unconfirmed.get(id) {
            let note = match parked.mismatch {
                true => "a verifier found that the world differs",
                false => "a verifier could not check the world",
            };
            return row(ParkedOn::Confirmation, parked.entry, note);
        }
        // What is settled waits for nobody, and is not unpacked to find that out.
        match &self.steps.get(id)?.status {
            Status::Pending(pending) => Some(Parked {
                key: Some(pending.channels.to_string()),
                until: Some(pending.deadline),
                ..row(ParkedOn::Approval, pending.entry, &pending.reason)?
            }),
            Status::Waiting { entry, key, until } => Some(Parked {
                key: key.as_ref().map(ToString::to_string),
                until: *until,
                ..row(ParkedOn::Wait, *entry, "")?
            }),
            Status::InDoubt { entry, opened } => Some(Parked {
                until: Some(opened.dead_at),
                ..row(ParkedOn::Doubt, *entry, "nobody knows whether it happened")?
            }),
            Status::Blocked { entry } => {
                row(ParkedOn::Undo, *entry, "an undo was refused or failed")
            }
            Status::Delegated { entry, child, .. } => {
                Some(Parked { key: Some(child.to_string()), ..row(ParkedOn::Child, *entry, "")? })
            }
            _ => None,
        }
    }
}
