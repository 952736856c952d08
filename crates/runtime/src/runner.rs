//! Drives one trajectory until it has ended, can go no further, or is lost to another worker.
//!
//! This task is the only one that appends for its attempt, so parallel steps never race each other.
//! It takes turns: settle what is over, begin what may begin, append, dispatch, wait.

mod children;
mod claim;
mod fetch;
mod giving_up;
mod held;
mod inbox;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gesta_core::body::{Check, Delivered, Proposal};
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::world::ResourceRef;
use gesta_store::Chain;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::claim::lacking;
use crate::cut;
use crate::desk::{Desk, Event, Shared};
use crate::effects;
use crate::error::RunError;
use crate::facts::Facts;
use crate::pipeline::{self, Ended, How};
use crate::probe::{self, Answer};
use crate::quarantine;
use crate::turn::{Blobs, Lists, Made, Sealed, Turn};
use crate::verify;
use crate::vouch;
use crate::worker;

/// How long to wait before asking a store again that failed: this, doubled up to the second.
const AGAIN_FIRST: Duration = Duration::from_millis(20);
const AGAIN_MOST: Duration = Duration::from_secs(1);
/// A trajectory that has something to do this soon is kept.
const SOON_MS: u64 = 2_000;
/// How often to look for what others have added, where it is usually heard.
const HEARD_LOOK_MS: u64 = 2_000;
/// How often to look whether a tool that was busy still is.
const BUSY_LOOK: Duration = Duration::from_millis(100);
/// For how many calls that are over at once a trajectory keeps its thread.
const AT_A_STRETCH: u32 = 64;
/// How often a probe that cannot tell is asked again before a person must.
const PROBES_MOST: u32 = 3;

/// How driving a trajectory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It has ended.
    Ended,
    /// There is nothing to do until something arrives, or a time comes.
    Parked,
    /// There is nothing to do until somebody lets go on what is held: nothing was added.
    Held,
    /// The worker was told to stop.
    Stopped,
    /// Another worker has it, or may have it.
    Lost,
    /// Something else is in force than what the attempt names: it takes another attempt.
    Outdated,
}

/// What a task of this trajectory brings back.
enum Back {
    Ended(Box<Ended>),
    Answered(Box<Answer>),
    Looked(Box<Check>),
}

/// A call under way.
struct Running {
    task: tokio::task::AbortHandle,
    proposal: Proposal,
    /// Whether it may be abandoned when its result is no use to anyone.
    may_abandon: bool,
    /// Whether it is to be abandoned when the job is cancelled.
    stops: bool,
}

struct Runner {
    desk: Arc<Desk>,
    chain: Chain<Facts>,
    tasks: JoinSet<Back>,
    running: BTreeMap<EntryId, Running>,
    ended: Vec<Ended>,
    answers: Vec<Answer>,
    reports: Vec<Signed<EffectReport>>,
    /// What the inbox held when it was last read, whoever signed it.
    read: BTreeSet<Digest>,
    delivered: Vec<Delivered>,
    probed: BTreeMap<EntryId, u32>,
    probing: BTreeSet<EntryId>,
    findings: BTreeMap<ResourceRef, Check>,
    looking: BTreeSet<ResourceRef>,
    blobs: Blobs,
    sealed: Sealed,
    lists: Lists,
    stop: watch::Receiver<bool>,
    /// How many calls were over at once.
    stretch: u32,
    /// Up to which entry it is known who signed what.
    vouched: u64,
    /// Rung when others add to the trajectory.
    bell: Arc<Notify>,
    /// Whether the next turn says so if there is nothing to do.
    rests: bool,
    /// What time the last turn took it to be.
    turned_at: UnixMs,
}

/// Drives a trajectory, with another attempt whenever something else is in force. The caller holds its
/// claim in the store.
pub(crate) async fn drive(
    shared: Arc<Shared>,
    trajectory: TrajectoryId,
    stop: watch::Receiver<bool>,
) -> Result<Left, RunError> {
    loop {
        let left = attempt(Arc::clone(&shared), trajectory, stop.clone()).await?;
        if left != Left::Outdated {
            return Ok(left);
        }
    }
}

/// Claims the trajectory with an `attempt` and drives it.
async fn attempt(
    shared: Arc<Shared>,
    trajectory: TrajectoryId,
    stop: watch::Receiver<bool>,
) -> Result<Left, RunError> {
    let lease = shared.pulse.lease();
    let mut chain = Chain::<Facts>::follow(Arc::clone(&shared.store), trajectory).await?;
    shared.reaches(trajectory, chain.state().head())?;
    if chain.state().ended().is_some() {
        children::bring_back(&shared, &mut chain).await?;
        return Ok(Left::Ended);
    }
    vouch::check(&shared, &chain).await?;
    let vouched = chain.state().head().map_or(0, |head| head.seq);
    if let Some(tool) = lacking(&shared, &chain) {
        let note = format!("{trajectory} needs the tool `{tool}`, which this worker does not have");
        return Ok(leave(&shared, note));
    }
    let safe = match fetch::safe_of(&shared, &chain).await? {
        Ok(safe) => safe,
        Err(why) => return Ok(leave(&shared, format!("{trajectory} is left as it is: {why}"))),
    };
    // An attempt that could do nothing would only count as fruitless.
    if !shared.pulse.held(lease) {
        return Ok(Left::Lost);
    }
    let in_force = shared.in_force();
    if chain.view().all_held().next().is_some() {
        let (held, unclaimed) = held::look(&shared, chain, (lease, vouched), &safe).await?;
        if held {
            return Ok(Left::Held);
        }
        chain = unclaimed;
    }
    let attempt = claim::claim(&shared, &mut chain, in_force.environment).await?;
    for (step, tool, since) in chain.view().under_way() {
        let (step, tool) = (step.clone(), tool.clone());
        shared.tell(|| Event::UnderWay { trajectory, step, tool, since });
    }
    let mandate = chain.view().mandate().ok_or(RunError::NotBegun)?;
    let desk = Desk::new(Arc::clone(&shared), (lease, attempt, in_force), chain.state(), mandate);
    let desk = Arc::new(desk);
    safe.into_iter().for_each(|safe| desk.take_safe(safe));
    let bell = Arc::new(Notify::new());
    shared.drivers().insert(trajectory, Arc::clone(&bell));
    let runner = Runner::new(desk, chain, stop, (vouched, bell));
    let left = Box::pin(runner.run()).await;
    shared.drivers().remove(&trajectory);
    left
}

/// Says why a trajectory is left to others.
fn leave(shared: &Shared, note: String) -> Left {
    tracing::warn!("{note}");
    shared.tell(|| Event::Note(note));
    Left::Parked
}

impl Runner {
    fn new(
        desk: Arc<Desk>,
        chain: Chain<Facts>,
        stop: watch::Receiver<bool>,
        (vouched, bell): (u64, Arc<Notify>),
    ) -> Self {
        Self {
            desk,
            chain,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            answers: Vec::new(),
            reports: Vec::new(),
            read: BTreeSet::new(),
            delivered: Vec::new(),
            probed: BTreeMap::new(),
            probing: BTreeSet::new(),
            findings: BTreeMap::new(),
            looking: BTreeSet::new(),
            blobs: Blobs::default(),
            sealed: Sealed::default(),
            lists: Lists::default(),
            stop,
            stretch: 0,
            vouched,
            bell,
            rests: false,
            turned_at: UnixMs(0),
        }
    }

    /// Drives, and whatever ends it: calls under way are not dropped with it, but reported.
    async fn run(mut self) -> Result<Left, RunError> {
        match self.go_on().await {
            Ok(Left::Lost) => Box::pin(self.lose()).await,
            Ok(left) => {
                self.desk.standing.leave(&self.desk.shared, &self.chain).await;
                Ok(left)
            }
            Err(error) => Box::pin(self.lose()).await.and(Err(error)),
        }
    }

    async fn go_on(&mut self) -> Result<Left, RunError> {
        // Before anything is in doubt: this machine may know.
        effects::deliver_spooled(&self.desk.shared).await;
        self.read_inbox().await?;
        let mut again = AGAIN_FIRST;
        loop {
            if !self.desk.held() {
                return Ok(Left::Lost);
            }
            if self.desk.shared.disowned().is_some() {
                let sent = !self.ended.is_empty() || !self.running.is_empty();
                return Ok(if sent { Left::Lost } else { Left::Stopped });
            }
            if self.desk.outdated() && self.tasks.is_empty() && self.ended.is_empty() {
                return Ok(Left::Outdated);
            }
            self.stop_cancelled();
            let left = match self.take_turn().await {
                Ok(left) => left,
                Err(error) if error.fence_lost() => return Ok(Left::Lost),
                Err(error) if error.transient() => {
                    tracing::warn!(trajectory = %self.desk.trajectory, %error, "trying again");
                    tokio::time::sleep(again).await;
                    again = (again * 2).min(AGAIN_MOST);
                    continue;
                }
                Err(error) => return Err(error),
            };
            again = AGAIN_FIRST;
            if let Some(left) = left {
                return Ok(left);
            }
        }
    }

    /// One append, and waiting for the next thing to do. Some when there is nothing to wait for here.
    async fn take_turn(&mut self) -> Result<Option<Left>, RunError> {
        let made = match self.turn().await {
            Err(error) if error.outdated() => {
                let registry = self.desk.shared.registry_head().map(|(registry, _)| registry);
                worker::read_registry(&self.desk.shared, registry).await?;
                return Ok(None);
            }
            // A probe has found something, and the executor has reported meanwhile.
            Err(error) if error.unread() => {
                self.hear().await?;
                return Ok(None);
            }
            // Others were faster. What they have added is looked at before anything follows it.
            Err(RunError::Overtaken) => return Ok(None),
            made => made?,
        };
        quarantine::register(&self.desk.shared).await;
        if self.chain.state().ended().is_some() {
            children::bring_back(&self.desk.shared, &mut self.chain).await?;
            return Ok(Some(Left::Ended));
        }
        if self.hand_over().await? || self.desk.standing.keep(&self.desk, &self.chain).await {
            return Ok(None);
        }
        if self.fetch(&made).await? || made.more {
            return Ok(None);
        }
        if !self.ended.is_empty() {
            // A call was over at once. Others who share this thread have their turn too, though not after
            // every call: letting go wakes other threads, which takes as long as deciding does.
            self.stretch = self.stretch.wrapping_add(1);
            if self.stretch.is_multiple_of(AT_A_STRETCH) {
                tokio::task::yield_now().await;
            }
            return Ok(None);
        }
        self.wait(&made).await
    }

    /// One append, and what follows from it.
    async fn turn(&mut self) -> Result<Made, RunError> {
        let desk = Arc::clone(&self.desk);
        desk.lineage.look(self.chain.view(), &*desk.shared.store).await?;
        self.vouch_for_others().await?;
        let running: BTreeSet<EntryId> = self.running.keys().copied().collect();
        let probed = self.not_to_be_probed();
        let turn = Turn {
            desk: &desk,
            now: desk.shared.pulse.now(),
            ended: &self.ended,
            answers: &self.answers,
            reports: &self.reports,
            delivered: &self.delivered,
            running: &running,
            probed: &probed,
            findings: &self.findings,
            looking: &self.looking,
            may_open: !*self.stop.borrow() && !desk.outdated() && desk.shared.may_sign().is_ok(),
            may_rest: self.rests,
            trial: false,
            recorded: None,
            blobs: &self.blobs,
            sealed: &self.sealed,
            lists: &self.lists,
        };
        self.turned_at = turn.now;
        let (settles, vouched) = (!self.ended.is_empty(), self.vouched);
        // What a worker signs after its key was revoked would never count, and nobody would go on from it:
        // so what is settled depends on what is known of the registry, like what is begun.
        let known = desk.shared.registry_head().filter(|_| settles);
        let read = Some(&self.read).filter(|_| !self.answers.is_empty());
        let written = self
            .chain
            .write(|draft| {
                known.into_iter().for_each(|(registry, head)| draft.under(registry, head));
                draft.warn_at(&desk.shared.options.warn_at);
                draft.having_read(read.into_iter().flatten().copied());
                let head = draft.state().head();
                if head.is_some_and(|head| head.seq > vouched) || desk.shared.disowned().is_some() {
                    return Err(RunError::Overtaken);
                }
                let made = turn.build(draft)?;
                let (holds, starts) = (draft.state().head() != head, !made.prepared.is_empty());
                cut::append("before", holds, settles, starts);
                #[cfg(feature = "sabotage")]
                skip_barrier(&desk, &made, &mut self.tasks, &mut self.running);
                Ok::<_, RunError>(made)
            })
            .await?;
        // Durable. What was to be settled is; what was prepared may be dispatched.
        let (holds, starts) = (!written.entries.is_empty(), !written.made.prepared.is_empty());
        cut::append("after", holds, settles, starts);
        desk.shared.acknowledged(written.entries.last());
        self.vouched = written.entries.last().map_or(self.vouched, Entry::seq);
        for entry in written.entries {
            desk.shared.tell(|| Event::Entry(Arc::new(entry)));
        }
        self.settled();
        let mut made = written.made;
        self.lists.settled(&made.settled);
        #[cfg(feature = "sabotage")]
        if desk.shared.options.sabotage == Some(crate::Sabotage::SkipBarrier) {
            made.prepared.clear();
        }
        self.dispatch(&mut made);
        self.look(&mut made);
        self.drop_taken(&made).await;
        Ok(made)
    }

    /// Doubts that a probe is looking into, or has looked into too often.
    fn not_to_be_probed(&self) -> BTreeSet<EntryId> {
        let given_up = self.probed.iter().filter(|(_, times)| **times >= PROBES_MOST);
        given_up.map(|(doubt, _)| *doubt).chain(self.probing.iter().copied()).collect()
    }

    /// The chain has it all.
    fn settled(&mut self) {
        self.ended.clear();
        self.answers.clear();
        self.delivered.clear();
    }

    /// Looks who signed what others have added since.
    async fn vouch_for_others(&mut self) -> Result<(), RunError> {
        let head = self.chain.state().head().map_or(0, |head| head.seq);
        if head > self.vouched {
            let (shared, trajectory) = (&self.desk.shared, self.desk.trajectory);
            vouch::added(shared, trajectory, self.vouched + 1, head).await?;
            self.vouched = head;
        }
        Ok(())
    }

    /// Hands out what a durable append has permitted.
    fn dispatch(&mut self, made: &mut Made) {
        let desk = Arc::clone(&self.desk);
        // One call at a time: whatever is over at once needs no task, and no thread is woken for it.
        let alone = made.prepared.len() == 1 && self.running.is_empty();
        for prepared in std::mem::take(&mut made.prepared) {
            let ticket = prepared.into_ticket();
            let (started, proposal) = (ticket.started(), ticket.proposal().clone());
            let may_abandon = ticket.may_abandon();
            let stops = ticket.only_reads() && self.stops(&proposal);
            let mut call = Box::pin(pipeline::carry_out(Arc::clone(&desk), ticket));
            if alone {
                match begin(&mut call) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(ended)) => {
                        self.back(Ok(Back::Ended(Box::new(ended))));
                        continue;
                    }
                    Err(()) => {
                        self.driver_died(started, proposal);
                        continue;
                    }
                }
            }
            let task = self.tasks.spawn(async move { Back::Ended(Box::new(call.await)) });
            self.running.insert(started, Running { task, proposal, may_abandon, stops });
        }
        for inquiry in std::mem::take(&mut made.inquiries) {
            self.probing.insert(inquiry.doubt);
            let desk = Arc::clone(&desk);
            self.tasks
                .spawn(async move { Back::Answered(Box::new(probe::ask(desk, inquiry).await)) });
        }
    }

    /// Sends verifiers to look.
    fn look(&mut self, made: &mut Made) {
        for question in std::mem::take(&mut made.questions) {
            self.looking.insert(question.resource.clone());
            let step = self.chain.state().step(&question.changed.step);
            let generation = step.map_or(1, |step| step.generation);
            let desk = Arc::clone(&self.desk);
            self.tasks.spawn(async move {
                Back::Looked(Box::new(verify::look(desk, question, generation).await))
            });
        }
    }

    /// Reports that the chain has leave the inbox, once accounts know what they cost. One that stays is
    /// found to be taken up again.
    async fn drop_taken(&mut self, made: &Made) {
        if made.taken.is_empty() || !self.desk.standing.tell(&self.desk.shared, &self.chain).await {
            return;
        }
        for report in &self.reports {
            if made.taken.contains(&report.digest())
                && let Err(error) = self.desk.shared.store.drop_effect(report).await
            {
                tracing::warn!(trajectory = %self.desk.trajectory, %error, "a report stays in the inbox");
            }
        }
        self.reports.retain(|report| !made.taken.contains(&report.digest()));
    }

    /// Waits for the next thing to do. Some when there is nothing to wait for here.
    async fn wait(&mut self, made: &Made) -> Result<Option<Left>, RunError> {
        let shared = Arc::clone(&self.desk.shared);
        let quiet = self.tasks.is_empty();
        if quiet && (*self.stop.borrow() || shared.may_sign().is_err()) {
            return Ok(Some(Left::Stopped));
        }
        let now = shared.pulse.now();
        let wake = self.chain.state().summary().and_then(|summary| summary.wake_at);
        if wake.is_some_and(|wake| self.turned_at < wake && wake <= now) {
            // Its time has come while the turn was being stored.
            return Ok(None);
        }
        let soon = wake.is_some_and(|wake| wake.0 <= now.0.saturating_add(SOON_MS) && wake > now);
        if quiet && !made.busy && !soon {
            let looks_busy = || self.chain.state().summary().is_some_and(|it| it.runnable);
            if self.rests || !looks_busy() {
                return Ok(Some(Left::Parked));
            }
            self.rests = true;
            return Ok(None);
        }
        self.rests = false;
        let look = if made.busy { BUSY_LOOK } else { shared.look_after(HEARD_LOOK_MS) };
        let poll = Instant::now() + look;
        let bell = Arc::clone(&self.bell);
        let wake = wake.filter(|wake| *wake > now);
        let wake = wake.map_or(poll, |wake| shared.pulse.instant_of(wake).min(poll));
        let freed = shared.freed.notified();
        tokio::select! {
            biased;
            Some(back) = self.tasks.join_next(), if !quiet => self.back(back),
            _ = self.stop.changed() => {}
            () = freed, if made.busy => {}
            () = bell.notified() => self.hear().await?,
            () = tokio::time::sleep_until(wake.min(shared.pulse.held_until())) => {
                self.hear().await?;
            }
        }
        while let Some(back) = self.tasks.try_join_next() {
            self.back(back);
        }
        Ok(None)
    }

    /// Reads what others have added and reported.
    async fn hear(&mut self) -> Result<(), RunError> {
        self.chain.refresh().await?;
        self.read_inbox().await
    }

    /// A task has come back.
    fn back(&mut self, back: Result<Back, tokio::task::JoinError>) {
        match back {
            Ok(Back::Ended(ended)) => {
                self.running.remove(&ended.started);
                self.desk.shared.freed.notify_waiters();
                if let How::Succeeded { value, observation, .. } = &ended.how {
                    self.blobs.put(observation.digest(), value.clone());
                }
                self.ended.push(*ended);
            }
            Ok(Back::Answered(answer)) => {
                self.probing.remove(&answer.doubt);
                *self.probed.entry(answer.doubt).or_default() += 1;
                self.answers.push(*answer);
            }
            Ok(Back::Looked(check)) => {
                self.looking.remove(&check.resource);
                self.findings.insert(check.resource.clone(), *check);
            }
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(trajectory = %self.desk.trajectory, %error, "a call's task died");
                }
                self.died(error.id());
            }
        }
    }
}

/// Polls a call for the first time. Whoever goes on with it polls it again, and is woken then.
fn begin(call: &mut Pin<Box<impl Future<Output = Ended>>>) -> Result<Poll<Ended>, ()> {
    let mut context = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut context)));
    polled.map_err(|_| tracing::error!("a tool's driver died"))
}

/// Dispatches what is not durable yet.
#[cfg(feature = "sabotage")]
fn skip_barrier(
    desk: &Arc<Desk>,
    made: &Made,
    tasks: &mut JoinSet<Back>,
    running: &mut BTreeMap<EntryId, Running>,
) {
    if desk.shared.options.sabotage != Some(crate::Sabotage::SkipBarrier) {
        return;
    }
    for prepared in &made.prepared {
        let ticket = prepared.forge_ticket();
        let (started, proposal) = (ticket.started(), ticket.proposal().clone());
        let may_abandon = ticket.may_abandon();
        let desk = Arc::clone(desk);
        let task =
            tasks.spawn(async { Back::Ended(Box::new(pipeline::carry_out(desk, ticket).await)) });
        running.insert(started, Running { task, proposal, may_abandon, stops: false });
    }
}
