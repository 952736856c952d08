//! The state machine: one pure function that says what may follow what.
//!
//! [`State::apply`] is the only judge of a chain. Every handler below it checks everything first and
//! changes the state only then, so a refused entry leaves no trace. [`State::next`] says what may
//! happen now. A state is cheap to clone: clones share what has not changed since, and the cost of
//! `apply` grows neither with the history nor with the world.

use std::collections::BTreeMap;
use std::sync::Arc;

use rpds::{QueueSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use crate::amounts::Amounts;
use crate::body::{self, BranchMode, End, StepKind};
use crate::digest::{Digest, EntryId, ReceiptId, Seed, WritId};
use crate::entry::{Author, Body, Entry, Head, Payload};
use crate::ids::{Principal, SignalKey, StepId, Tenant, ToolName, TrajectoryId, WorkerId};
use crate::projection::TrajectoryKind;
use crate::time::UnixMs;
use crate::world::World;
use crate::writ::Writ;

mod admit;
mod approve;
mod begin;
mod call;
mod confirm;
mod delegate;
mod doubt;
mod end;
mod illegal;
mod next;
mod registry;
mod rollback;
mod settle;
mod settled;
mod shelf;
mod step;
mod steps;
mod wait;

pub use admit::Admission;
pub use illegal::{AdmitError, Illegal, Why};
pub use next::{Act, Failed, Offer, Scope};
pub use registry::{Registered, Registry};
pub use shelf::{Forgotten, Page, Shelf};
pub use step::{Frozen, Grant, Opened, Pending, Status, Step, Terms, Unaccounted};

use settled::Settled;

/// What folding a trajectory yields.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    trajectory: TrajectoryId,
    head: Option<Head>,
    at: UnixMs,
    phase: Phase,
    /// The folded source, until the `branch` entry takes it over.
    source: Option<Arc<(TrajectoryId, Head, State)>>,
    beginning: Option<Arc<Beginning>>,
    plan: Option<Arc<PlanIndex>>,
    attempt: u64,
    worker: Option<WorkerId>,
    /// What is in force for the newest attempt, by its digest.
    environment: Option<Digest>,

    /// Steps that something may still happen to.
    steps: RedBlackTreeMapSync<StepId, Arc<Step>>,
    /// The others.
    settled: Settled,
    /// Steps that may begin, or begin again.
    idle: RedBlackTreeSetSync<StepId>,
    /// Steps that are neither idle nor settled.
    busy: RedBlackTreeSetSync<StepId>,
    /// How many needs of a plan's node are not met yet.
    missing: RedBlackTreeMapSync<StepId, usize>,
    /// How many nodes of the plan are not done.
    nodes_left: usize,
    /// How many steps keep the trajectory from ending.
    holding: usize,
    /// How many effects could still arrive late.
    late: usize,
    /// How many steps want a worker whatever the time.
    wanting: usize,
    /// How many idle steps may not begin again before some time.
    resting: usize,
    /// When steps change by themselves.
    timers: RedBlackTreeSetSync<(UnixMs, StepId)>,
    /// Steps that wait on a key.
    waits: RedBlackTreeMapSync<SignalKey, RedBlackTreeSetSync<StepId>>,
    /// Signals that no wait has taken yet.
    mailbox: RedBlackTreeMapSync<SignalKey, QueueSync<EntryId>>,
    /// Keys that have both a signal and a wait.
    meetings: RedBlackTreeSetSync<SignalKey>,
    /// Ids of signals received.
    signals: RedBlackTreeSetSync<SignalKey>,
    /// Idle steps that a person must confirm first.
    unconfirmed: RedBlackTreeMapSync<StepId, Unconfirmed>,

    spent: Amounts,
    /// What of `spent` is counted twice.
    twice: Amounts,
    reserved: Amounts,
    world: World,
    last_receipt: Option<ReceiptId>,
    lamport: u64,
    last_commit: Option<EntryId>,
    failing: bool,
    cancelling: Option<Cancelling>,
    rollback: Option<Rollback>,
    /// Whether the parent is known to have this child's result.
    result_delivered: bool,
    /// Whether the newest entry says that nothing can be done until something arrives or a time comes.
    quiet: bool,
    registry: Registry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unbegun,
    Live,
    Ended(End),
}

/// What `root` or `branch` fixed.
#[derive(Clone, Debug, PartialEq)]
struct Beginning {
    kind: TrajectoryKind,
    principal: Principal,
    seed: Seed,
    begun_at: UnixMs,
    input: Option<Digest>,
    writ: Option<(WritId, Writ)>,
    /// The trajectory that delegated to this one.
    parent: Option<TrajectoryId>,
    branch: Option<BranchMode>,
}

/// The plan, ready to be asked.
#[derive(Debug, PartialEq)]
struct PlanIndex {
    hash: Digest,
    nodes: BTreeMap<StepId, Node>,
    priority: u8,
    tools: Vec<ToolName>,
    /// Whether it came from the source of a branch.
    inherited: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    kind: StepKind,
    dependents: Vec<StepId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cancelling {
    compensate: bool,
}

/// A confirmation that waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unconfirmed {
    entry: EntryId,
    /// Whether the world differs; else it could not be checked.
    mismatch: bool,
}

/// A rollback, and how far it is.
#[derive(Clone, Debug, PartialEq)]
struct Rollback {
    undo: Arc<[body::Undo]>,
    done: usize,
}

impl Rollback {
    fn next(&self) -> Option<&body::Undo> {
        self.undo.get(self.done)
    }
}

impl State {
    /// A trajectory of which nothing is known yet.
    pub fn new(trajectory: TrajectoryId) -> Self {
        Self {
            trajectory,
            head: None,
            at: UnixMs(0),
            phase: Phase::Unbegun,
            source: None,
            beginning: None,
            plan: None,
            attempt: 0,
            worker: None,
            environment: None,
            steps: RedBlackTreeMapSync::default(),
            settled: Settled::default(),
            idle: RedBlackTreeSetSync::default(),
            busy: RedBlackTreeSetSync::default(),
            missing: RedBlackTreeMapSync::default(),
            nodes_left: 0,
            holding: 0,
            late: 0,
            wanting: 0,
            resting: 0,
            timers: RedBlackTreeSetSync::default(),
            waits: RedBlackTreeMapSync::default(),
            mailbox: RedBlackTreeMapSync::default(),
            meetings: RedBlackTreeSetSync::default(),
            signals: RedBlackTreeSetSync::default(),
            unconfirmed: RedBlackTreeMapSync::default(),
            spent: Amounts::default(),
            twice: Amounts::default(),
            reserved: Amounts::default(),
            world: World::default(),
            last_receipt: None,
            lamport: 0,
            last_commit: None,
            failing: false,
            cancelling: None,
            rollback: None,
            result_delivered: false,
            quiet: false,
            registry: Registry::default(),
        }
    }

    /// The same, which puts on a shelf what it hardly looks at again: it then needs no more memory for a long trajectory
    /// than for a short one.
    #[must_use]
    pub fn on(mut self, shelf: Arc<dyn Shelf>) -> Self {
        self.settled = self.settled.on(shelf);
        self
    }

    /// Folds one more entry. On error nothing has changed; only once something is [`Forgotten`] nothing counts any more, and
    /// every entry is refused.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Illegal> {
        let followed = self.envelope(entry.payload()).and_then(|()| self.transition(entry));
        // First of all: what was decided without knowing what is lost says nothing.
        self.settled.check().map_err(Why::from).and(followed).map_err(|why| Illegal {
            seq: entry.seq(),
            kind: entry.kind(),
            state: self.name(),
            why,
        })?;
        self.head = Some(entry.head());
        self.at = entry.payload().at;
        self.quiet = matches!(&entry.payload().body, Body::Waiting(waiting) if waiting.rests());
        Ok(())
    }

    /// What holds for every entry: it is the next one of this chain, and time does not run back.
    fn envelope(&self, payload: &Payload) -> Result<(), Why> {
        if payload.trajectory != self.trajectory {
            return Err(Why::OtherTrajectory);
        }
        let expected = self.head.map_or(0, |head| head.seq + 1);
        if payload.seq != expected {
            return Err(Why::Sequence { expected });
        }
        if payload.parent != self.head.map(|head| head.id) {
            return Err(Why::Parent);
        }
        if payload.at < self.at {
            return Err(Why::TimeRunsBack);
        }
        Ok(())
    }

    /// One handler a kind. Each begins with who may append it and in which phase.
    fn transition(&mut self, entry: &Entry) -> Result<(), Why> {
        let Payload { at, by, body, .. } = entry.payload();
        let at = *at;
        match body {
            Body::Root(root) => return self.root(root, at),
            Body::Branch(branch) => return self.branch(branch, at),
            Body::LateEffect(late) => return self.late_effect(late),
            Body::Erased(_) => return self.erased(),
            Body::Delivered(delivered) if delivered.what == body::Delivery::Result => {
                return self.result_delivered(delivered);
            }
            _ => self.live()?,
        }
        if let Body::Registration(registration) = body {
            return self.registration(registration, entry);
        }
        if self.kind() == Some(TrajectoryKind::Registry) {
            return Err(Why::WrongKindOfTrajectory);
        }
        // Open kinds: anyone allowed appends them, under no fence.
        match body {
            Body::Plan(plan) => return self.check_author(by).and_then(|()| self.planned(plan)),
            Body::Attempt(attempt) => return self.attempted(attempt, by, at),
            Body::Approval(approval) => return self.approval(approval, at),
            Body::Resolution(resolution) => return self.resolution(resolution, entry),
            Body::Signal(signal) => return self.signal(signal, entry.id()),
            Body::CancelRequested(request) => return self.cancel_requested(request),
            // Whoever drives the child brings its result.
            Body::DelegationResult(result) => return self.delegation_result(result, entry),
            Body::Confirmation(confirmation) if confirmation.confirms.is_some() => {
                return self.confirmed(confirmation, by);
            }
            _ => self.check_owner(by)?,
        }
        match body {
            Body::Started(started) => self.started(started, entry),
            Body::Commit(commit) => self.commit(commit, entry),
            Body::Failure(failure) => self.failure(failure, entry),
            Body::Rejection(rejection) => self.rejection(rejection, entry),
            Body::PendingApproval(pending) => self.pending_approval(pending, entry),
            Body::InDoubt(doubt) => self.in_doubt(doubt, entry.id()),
            Body::Confirmation(confirmation) => self.confirmation(confirmation, entry.id()),
            Body::Compensation(compensation) => self.compensation(compensation),
            Body::Waiting(waiting) => self.waiting(waiting, entry.id()),
            Body::Timer(timer) => self.timer(timer, entry.id(), at),
            Body::Delegation(delegation) => self.delegation(delegation, entry.id(), at),
            Body::Delivered(delivered) => self.delivered(delivered),
            Body::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            Body::Completed(completed) => self.completed(completed),
            Body::Failed(stopped) => self.failed(stopped),
            Body::Cancelled(stopped) => self.cancelled(stopped),
            _ => Err(Why::WrongKindOfTrajectory),
        }
    }

    fn live(&self) -> Result<(), Why> {
        match self.phase {
            Phase::Unbegun => Err(Why::NotBegun),
            Phase::Live => Ok(()),
            Phase::Ended(end) => Err(Why::Ended(end)),
        }
    }

    /// A worker among the authors must be the one that owns the trajectory.
    fn check_author(&self, by: &Author) -> Result<(), Why> {
        match by {
            Author::Principal(_) => Ok(()),
            Author::Worker { .. } => self.check_owner(by),
        }
    }

    fn check_owner(&self, by: &Author) -> Result<(), Why> {
        match by {
            Author::Principal(_) => Err(Why::OwnerOnly),
            Author::Worker { attempt, worker } => {
                if *attempt == self.attempt && Some(worker) == self.worker.as_ref() {
                    Ok(())
                } else {
                    Err(Why::NotOwner { by: *attempt, current: self.attempt })
                }
            }
        }
    }

    /// The state in a word, for errors and people.
    pub fn name(&self) -> &'static str {
        match self.phase {
            Phase::Unbegun => "not begun",
            Phase::Ended(End::Completed) => "completed",
            Phase::Ended(End::Failed) => "failed",
            Phase::Ended(End::Cancelled) => "cancelled",
            Phase::Live if self.kind() == Some(TrajectoryKind::Registry) => "standing",
            Phase::Live if self.rollback.is_some() => "rolling back",
            Phase::Live if self.cancelling.is_some() => "cancelling",
            Phase::Live if self.failing => "failing",
            Phase::Live => "live",
        }
    }

    /// The trajectory.
    pub fn trajectory(&self) -> TrajectoryId {
        self.trajectory
    }

    /// The newest entry.
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// The time of the newest entry: no later one may be earlier.
    pub fn at(&self) -> UnixMs {
        self.at
    }

    /// The newest attempt; 0 when nobody has claimed the trajectory.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The worker that made the newest attempt.
    pub fn owner(&self) -> Option<&WorkerId> {
        self.worker.as_ref()
    }

    /// How the trajectory ended, if it has.
    pub fn ended(&self) -> Option<End> {
        match self.phase {
            Phase::Ended(end) => Some(end),
            Phase::Unbegun | Phase::Live => None,
        }
    }

    /// What the trajectory is for, once it has begun.
    pub fn kind(&self) -> Option<TrajectoryKind> {
        self.beginning.as_ref().map(|beginning| beginning.kind)
    }

    /// The seed of the trajectory.
    pub fn seed(&self) -> Option<Seed> {
        self.beginning.as_ref().map(|beginning| beginning.seed)
    }

    /// The writ that roots the trajectory, with its id.
    pub fn writ(&self) -> Option<(WritId, &Writ)> {
        self.beginning.as_ref()?.writ.as_ref().map(|(id, writ)| (*id, writ))
    }

    /// Whose trajectory it is.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.writ().map(|(_, writ)| &writ.tenant)
    }

    /// A step, if anything has happened to it.
    pub fn step(&self, step: &StepId) -> Option<&Step> {
        self.steps.get(step).map(|step| &**step).or_else(|| self.settled.get(step))
    }

    /// What the plan's step does; none for what no plan names.
    pub fn kind_of(&self, step: &StepId) -> Option<StepKind> {
        Some(self.plan.as_ref()?.nodes.get(step)?.kind)
    }

    /// All steps that anything has happened to, by id.
    pub fn steps(&self) -> impl Iterator<Item = (&StepId, &Step)> {
        let mut settled = self.settled.iter().peekable();
        let mut others = self.steps.iter().map(|(id, step)| (id, &**step)).peekable();
        std::iter::from_fn(move || match (settled.peek(), others.peek()) {
            (Some((one, _)), Some((other, _))) if one > other => others.next(),
            (Some(_), _) => settled.next(),
            (None, _) => others.next(),
        })
    }

    /// The folded world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What has been used, unknown outcomes included.
    pub fn spent(&self) -> Amounts {
        self.spent.minus(self.twice)
    }

    /// The same as the first programs that wrote version 1 counted it: what was kept for a call of unknown
    /// outcome, and what it cost once that was known. Never less, so that whatever they let in still fits.
    pub fn spent_at_most(&self) -> Amounts {
        self.spent
    }

    /// What is set aside for what is open.
    pub fn reserved(&self) -> Amounts {
        self.reserved
    }

    /// The newest receipt and its Lamport number.
    pub fn last_receipt(&self) -> (Option<ReceiptId>, u64) {
        (self.last_receipt, self.lamport)
    }

    /// The newest commit.
    pub fn last_commit(&self) -> Option<EntryId> {
        self.last_commit
    }

    /// What the registry says; empty in other trajectories.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
