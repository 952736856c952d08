//! Driving one job in this process until it has ended, needs a person, or is interrupted; and telling
//! what it came to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gesta_core::document::Recovery;
use gesta_core::entry::{Author, Head, Kind};
use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::projection::{Parked, ParkedOn, Status};
use gesta_core::state::{self, State};
use gesta_core::time::UnixMs;
use gesta_runtime::{Left, Worker, family, has_work};
use gesta_store::{Chain, ParkedListing, Store, StoreError, TrajectoryRow};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::chains;
use crate::commands::release;
use crate::interrupt::Interrupt;
use crate::live::{Live, brief_id};
use crate::pinning;
use crate::toolbox::Toolbox;
use crate::workshop::{Hands, Workshop};
use crate::workspace::Workspace;
use crate::{moment, session::Session};

/// How long a job is left alone that looks as if there were something to do and had nothing.
const CIRCLING_FIRST: Duration = Duration::from_secs(1);
const CIRCLING_MOST: Duration = Duration::from_secs(30);
/// What is said when work goes on with other tools.
pub(crate) const PINNED_AGAIN: &str = "tools were pinned again: going on with them";
/// More steps than a person reads about.
const PARKED_MOST: usize = 100;

/// How driving a job ended, for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Failed,
    Cancelled,
    /// Only an operator can say how it goes on.
    InDoubt,
    /// Told to stop.
    Interrupted,
}

impl Ending {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 10,
            Self::Cancelled => 11,
            Self::InDoubt => 12,
            Self::Interrupted => 13,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::InDoubt => "in_doubt",
            Self::Interrupted => "interrupted",
        }
    }

    fn of(status: Status) -> Option<Self> {
        match status {
            Status::Completed => Some(Self::Completed),
            Status::Failed => Some(Self::Failed),
            Status::Cancelled => Some(Self::Cancelled),
            Status::Queued | Status::Running | Status::Parked | Status::Standing => None,
        }
    }
}

/// Drives a job with a worker of this process.
pub(crate) fn drive(
    session: &Session,
    workshop: &Workshop,
    (trajectory, hands): (TrajectoryId, Hands),
    live: &Arc<Live>,
) -> Result<Ending> {
    let interrupt = session.wait(async {
        workshop.openable(trajectory).await?;
        release::is_free(&workshop.store, trajectory).await?;
        Interrupt::watch(workshop.options.grace_ms)
    })?;
    let with = (trajectory, &interrupt, live);
    let (mut ending, mut pinned) = session.wait(Box::pin(stretch(workshop, hands, with)))?;
    while let Some((workspace, tools)) = pinned.filter(|_| ending == Ending::Interrupted) {
        live.say(PINNED_AGAIN);
        let place = workshop.place.clone();
        let anew = Workshop::at(session, workspace, place, tools.catalogue)?;
        (ending, pinned) = session.wait(Box::pin(stretch(&anew, anew.hands()?, with)))?;
    }
    Ok(ending)
}

/// Drives a job with one set of tools, until they are another.
async fn stretch(
    workshop: &Workshop,
    hands: Hands,
    (trajectory, interrupt, live): (TrajectoryId, &Interrupt, &Arc<Live>),
) -> Result<(Ending, Option<(Workspace, Toolbox)>)> {
    let worker = workshop.start(hands, None, Some(live.listener())).await?;
    let driving = Driving { worker: &worker, store: &workshop.store, trajectory, live };
    let drive = pinning::unless_pinned(workshop, interrupt.stop(), async |stop| {
        driving.run(stop, workshop.options.poll_ms).await
    });
    let left = tokio::select! {
        left = drive => left,
        () = interrupt.out_of_patience() => Ok((Ending::Interrupted, None)),
    };
    live.clear();
    worker.retire().await?;
    left
}

struct Driving<'a> {
    worker: &'a Worker,
    store: &'a Arc<dyn Store>,
    trajectory: TrajectoryId,
    live: &'a Live,
}

impl Driving<'_> {
    async fn run(&self, mut stop: watch::Receiver<bool>, poll_ms: u64) -> Result<Ending> {
        let poll = Duration::from_millis(poll_ms);
        let (mut told, mut circling, mut before) = (BTreeSet::new(), CIRCLING_FIRST, None);
        let mut owner = None;
        loop {
            let known = self.registry();
            let left = self.worker.run_family(self.trajectory, stop.clone()).await?;
            let row = self.row().await?;
            if let Some(ending) = Ending::of(row.summary.status) {
                return Ok(ending);
            }
            if left == Left::Stopped || *stop.borrow() {
                return Ok(Ending::Interrupted);
            }
            if left == Left::Lost {
                self.tell_owner(&mut owner).await?;
            }
            let family = family(self.store, self.trajectory).await?;
            let mut waits_for_person = false;
            for member in &family {
                let parked = parked(self.store, member.trajectory).await?;
                self.tell(member.trajectory, &parked, &mut told);
                waits_for_person |= self.needs_operator(member.trajectory, &parked).await?;
            }
            if waits_for_person && !family.iter().any(|member| member.summary.runnable) {
                return Ok(Ending::InDoubt);
            }
            // An attempt that left nothing but itself is no progress.
            let entries: u64 = family.iter().map(|member| member.head.seq).sum();
            let fruitless = before.is_some_and(|before| entries <= before + family.len() as u64);
            circling = if fruitless { (circling * 2).min(CIRCLING_MOST) } else { CIRCLING_FIRST };
            let busy = has_work(&row.summary, self.worker.now());
            let pause = if busy { circling } else { Duration::ZERO };
            before = Some(entries);
            self.quiet(&family, (poll, pause), known, &mut stop).await?;
        }
    }

    /// Waits until somebody has appended something, or a worker has something to do again.
    async fn quiet(
        &self,
        family: &[TrajectoryRow],
        (poll, pause): (Duration, Duration),
        known: Option<Head>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<()> {
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                _ = stop.changed() => return Ok(()),
                () = sleep(poll) => {}
            }
            // What is held goes on once the registry lets it.
            let rested = tokio::time::Instant::now() >= until || self.registry() != known;
            for before in family {
                if self.worker.is_reported(before.trajectory) {
                    return Ok(());
                }
                let row = self.store.trajectory(before.trajectory).await?;
                let moved = row.as_ref().is_none_or(|row| row.head != before.head);
                let works = |row: TrajectoryRow| has_work(&row.summary, self.worker.now());
                if moved || (rested && row.is_some_and(works)) {
                    return Ok(());
                }
            }
        }
    }

    fn registry(&self) -> Option<Head> {
        self.worker.registry().and_then(|(_, state)| state.head())
    }

    async fn row(&self) -> Result<TrajectoryRow> {
        let row = self.store.trajectory(self.trajectory).await?;
        Ok(row.ok_or(StoreError::NoTrajectory(self.trajectory))?)
    }

    /// Says which live worker has the job, each worker once.
    async fn tell_owner(&self, told: &mut Option<WorkerId>) -> Result<()> {
        let mut last = None;
        chains::walk(self.store, &[self.trajectory], false, |visited| {
            if let Some(entry) = visited.entry.filter(|entry| entry.kind() == Kind::Attempt)
                && let Author::Worker { worker, .. } = &entry.payload().by
            {
                last = Some(worker.clone());
            }
            Ok(())
        })
        .await?;
        let Some(owner) = last.filter(|owner| told.as_ref() != Some(owner)) else { return Ok(()) };
        let live = self.store.workers().await?;
        if live.iter().any(|row| row.worker == owner) && owner != *self.worker.id() {
            self.live.say(&format!("worker {owner} has it, waiting; Ctrl-C leaves it there"));
            *told = Some(owner);
        }
        Ok(())
    }

    /// Says what the job waits for, each thing once.
    fn tell(
        &self,
        trajectory: TrajectoryId,
        parked: &[Parked],
        told: &mut BTreeSet<gesta_core::digest::EntryId>,
    ) {
        // A child is driven here too, and says itself what it waits for.
        for row in parked.iter().filter(|row| !matches!(row.on, ParkedOn::Doubt | ParkedOn::Child))
        {
            if told.insert(row.entry) {
                self.live.say(&format!(
                    "{} waits {}; Ctrl-C leaves it waiting",
                    row.step,
                    waits_for(trajectory, row)
                ));
            }
        }
    }

    /// Whether some doubt will be looked into by nobody but a person.
    async fn needs_operator(&self, of: TrajectoryId, parked: &[Parked]) -> Result<bool> {
        if parked.iter().any(|row| row.on == ParkedOn::Confirmation) {
            return Ok(true);
        }
        if !parked.iter().any(|row| matches!(row.on, ParkedOn::Doubt | ParkedOn::Undo)) {
            return Ok(false);
        }
        let chain = Chain::load(Arc::clone(self.store), of).await?;
        let now = self.worker.now();
        Ok(parked.iter().any(|row| for_a_person(chain.state(), row, now)))
    }
}

fn for_a_person(state: &State, row: &Parked, now: UnixMs) -> bool {
    match state.step(&row.step).map(|step| &step.status) {
        Some(state::Status::InDoubt { opened, .. }) => {
            opened.recovery != Recovery::Probe || now >= opened.dead_at
        }
        Some(state::Status::Blocked { .. }) => true,
        _ => false,
    }
}

/// The parked steps of a job.
pub(crate) async fn parked(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
) -> Result<Vec<Parked>> {
    let listing = ParkedListing { trajectory: Some(trajectory), ..ParkedListing::default() };
    let rows = store.parked(&listing, PARKED_MOST).await?;
    Ok(rows.into_iter().map(|row| row.parked).collect())
}

/// What a parked step waits for, and how to let it go on.
pub(crate) fn waits_for(trajectory: TrajectoryId, row: &Parked) -> String {
    let until = row.until.map(|until| format!("until {}", moment::utc(until)));
    match (row.on, &row.key) {
        (ParkedOn::Wait, Some(key)) => {
            let or = until.map(|until| format!(", at most {until}")).unwrap_or_default();
            format!("for the signal `{key}`{or}: `gesta signal {trajectory} {key}` sends it")
        }
        (ParkedOn::Wait, None) => until.unwrap_or_else(|| "for a time".to_owned()),
        (ParkedOn::Doubt, _) => {
            "for somebody who knows whether it happened: `gesta doubts` shows what is known"
                .to_owned()
        }
        (ParkedOn::Approval, key) => {
            let by = key.as_deref().unwrap_or("somebody");
            let or = until.map(|until| format!(", at most {until}")).unwrap_or_default();
            let id = brief_id(trajectory);
            format!("for an approval by {by}{or}: `gesta approvals {id}` shows what is asked")
        }
        (ParkedOn::Confirmation, _) => {
            "for a person to confirm what a verifier found: `gesta doubts` shows it".to_owned()
        }
        (ParkedOn::Undo, _) => {
            "for a person to decide about an undo that did not succeed: `gesta doubts` shows why"
                .to_owned()
        }
        (ParkedOn::Child, key) => {
            let child = key.as_deref().unwrap_or("a child");
            format!("for its child {child}: `gesta tree {trajectory}` shows how far it is")
        }
    }
}
