//! What the runtime remembers of a chain beside its state: the plan's steps, results, frozen
//! proposals, how often each step was tried, signals that wait. A function of the entries alone, so
//! any worker that reads the chain knows the same.

mod branch;
mod held;
mod restored;
mod undo;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use gesta_core::amounts::Amounts;
use gesta_core::body::{
    Check, ConfirmationMode, Delegation, DelegationResult, End, Mandate, OnChildFailure, Origin,
    Plan, PlanStep, Proposal, Purpose, Rejection, Resolution, Restored,
};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::{
    ApprovalStatement, Certainty, Failing, Outcome, Reason, ResolutionVerdict,
};
use gesta_core::entry::{Body, Entry};
use gesta_core::guardian;
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::{Canon, JsonError};
use gesta_core::policy::Evidence;
use gesta_core::sensitive::may_hold;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::world::ResourceRef;
use gesta_store::Follow;
use rpds::{QueueSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use crate::budgets::shortage;
use crate::delegation;
use crate::job::{ANSWER, OnFailure, Spec, UndoSpec};

pub use self::branch::{Descent, Point};

/// How many times of starts are remembered for rate windows.
pub const STARTS: usize = 4096;

/// What following a chain yields.
#[derive(Clone, Default)]
pub struct Facts {
    mandate: Option<Arc<Mandate>>,
    plan: Option<Arc<PlanFacts>>,
    results: RedBlackTreeMapSync<StepId, Recorded>,
    asked: RedBlackTreeMapSync<StepId, Asked>,
    signals: RedBlackTreeMapSync<EntryId, Content>,
    /// Tasks that children work on, by the step that handed each out.
    handed: RedBlackTreeMapSync<StepId, Arc<Handed>>,
    /// What was carved out for those, and what those have used that ended.
    given: Amounts,
    end: Option<Arc<Ending>>,
    undoable: RedBlackTreeMapSync<u64, Arc<Undoable>>,
    /// What the newest rollback undoes, by the steps that undo it.
    undos: Arc<BTreeMap<StepId, Arc<Undoable>>>,
    /// The newest commit of every resource that a call has changed.
    changed: RedBlackTreeMapSync<ResourceRef, Arc<Changed>>,
    /// Those of earlier attempts, as far as nothing has been found to agree in this one.
    unchecked: RedBlackTreeMapSync<ResourceRef, Arc<Changed>>,
    /// What was found in this attempt and is not agreement.
    findings: RedBlackTreeMapSync<ResourceRef, Arc<Check>>,
    /// Steps that wait for a person because of what was found in this attempt.
    asking: RedBlackTreeSetSync<StepId>,
    /// What confirmations looked at, for a person to confirm.
    looked_at: RedBlackTreeMapSync<EntryId, Arc<[ResourceRef]>>,
    /// Who has spoken about the newest `pending_approval` of a step, and when.
    approvals: RedBlackTreeMapSync<StepId, Arc<Vec<Spoken>>>,
    /// What is committed, by type and by the tool whose receipt says so, with how many there are.
    evidence: RedBlackTreeMapSync<Evidence, u64>,
    /// The tool that made each resource what it is.
    made_by: RedBlackTreeMapSync<ResourceRef, ToolName>,
    starts: QueueSync<UnixMs>,
    /// Steps that were held instead of refused: how often in a row, and why the last time.
    held: RedBlackTreeMapSync<StepId, (u64, Option<Reason>)>,
    broken: Option<Arc<(StepId, Failing)>>,
    cancelled: Option<Arc<str>>,
    fruitless: u64,
    descent: Option<Arc<Descent>>,
    /// What the newest `pending_approval` of a step told of what was done above a branch.
    told: RedBlackTreeMapSync<StepId, Arc<[EntryId]>>,
    /// Commits since the last checkpoint.
    commits: u64,
    /// The number of the newest entry.
    newest: u64,
    /// Whether any value of it is sensitive.
    sensitive: bool,
    restored: Option<Arc<Restored>>,
    /// Steps of which it was found out since then what became of what may have been sent before.
    since_restore: RedBlackTreeSetSync<StepId>,
}

/// The plan, its specifications read when they are first asked for.
struct PlanFacts {
    hash: Digest,
    priority: u8,
    tools: Vec<ToolName>,
    /// The ids of its steps, each after what it needs.
    order: Vec<StepId>,
    steps: BTreeMap<StepId, (PlanStep, OnceLock<Arc<Spec>>)>,
}

/// An approver's word, and when it came.
pub(crate) type Spoken = (UnixMs, Signed<ApprovalStatement>);

/// A task that a child works on.
#[derive(Debug)]
pub struct Handed {
    /// The entry that handed it out.
    pub entry: EntryId,
    /// When.
    pub at: UnixMs,
    /// What it says.
    pub delegation: Delegation,
}

/// What a trajectory has come to.
#[derive(Debug)]
pub enum Ending {
    /// It completed with this answer.
    Completed(Content),
    /// It failed or was cancelled, for this reason.
    Stopped(Failing),
}

/// What a settled step left behind.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its result.
    pub content: Content,
    /// Whether its condition was not met.
    pub skipped: bool,
}

/// What a call has made of a resource.
#[derive(Debug)]
pub struct Changed {
    /// The step that called.
    pub step: StepId,
    /// What was carried out.
    pub proposal: Arc<Proposal>,
    /// What came of it.
    pub result: Content,
    /// The resource's value as the call left it; none if it is gone.
    pub value: Option<Canon>,
}

/// An effect that is done and can be undone.
#[derive(Clone, Debug)]
pub struct Undoable {
    /// The entry that says that it is done.
    pub commit: EntryId,
    /// Its step.
    pub step: StepId,
    /// What was carried out.
    pub proposal: Arc<Proposal>,
    /// What came of it.
    pub result: Content,
}

/// A step that was proposed and is not settled.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The proposal: every retry reuses it.
    pub proposal: Arc<Proposal>,
    /// When the effect that is open or in doubt was first sent, in its generation.
    pub first_sent: Option<UnixMs>,
    /// Whether something was sent of which nobody knows what became.
    pub unknown: bool,
    /// How often it failed, or ended without anyone knowing how.
    pub failures: u64,
    /// How often the gate turned it away.
    pub turned_away: u64,
    /// What went wrong last.
    pub error: Option<Arc<Failing>>,
}

impl Follow for Facts {
    fn follow(&mut self, entry: &Entry) {
        let at = entry.payload().at;
        self.fruitless = match &entry.payload().body {
            Body::Attempt(_) => self.fruitless + 1,
            _ => 0,
        };
        self.sensitive = self.sensitive || may_hold(entry.bytes());
        self.count_commits(&entry.payload().body);
        match &entry.payload().body {
            Body::Root(root) => match &root.purpose {
                Purpose::Job(mandate) | Purpose::Session(mandate) => {
                    self.mandate = Some(Arc::new(mandate.clone()));
                }
                Purpose::Registry { .. } => {}
            },
            Body::Branch(branch) => self.branched(branch),
            Body::Plan(plan) => self.plan = Some(Arc::new(PlanFacts::new(plan))),
            Body::Attempt(attempt) => {
                self.attempted();
                attempt.restored.iter().for_each(|restored| self.goes_on(restored));
            }
            Body::Confirmation(confirmation) => self.confirmation(confirmation, entry.id()),
            Body::Started(started) => self.started(&started.proposal, at),
            Body::PendingApproval(pending) => {
                self.approvals.remove_mut(&pending.proposal.step);
                self.tell(pending);
                self.ask(&pending.proposal);
            }
            Body::Approval(approval) => self.spoken(&approval.step, at, &approval.statement),
            Body::Commit(commit) => {
                if let Origin::Woken { by } = &commit.origin {
                    self.signals.remove_mut(by);
                }
                if let Origin::RecordedFrom { proposal, .. } = &commit.origin {
                    self.taken_over(proposal, &commit.observation, &commit.delta);
                }
                let skipped = matches!(commit.origin, Origin::Skipped);
                if matches!(commit.origin, Origin::Effect { .. }) {
                    self.changes(&commit.step, &commit.observation, &commit.delta);
                    if commit.outcome == Outcome::SideEffectCommitted {
                        self.effect_done(&commit.step, &commit.observation, entry);
                    }
                }
                self.settle(&commit.step, &commit.observation, skipped);
            }
            Body::Failure(failure) => {
                let seen = (failure.outcome, failure.certainty, failure.dispatched);
                self.failure(&failure.step, &failure.error, seen);
            }
            Body::Rejection(rejection) if rejection.retry_at.is_some() => {
                self.hold(rejection);
            }
            Body::Rejection(rejection) => self.rejection(rejection),
            Body::Resolution(resolution) => {
                self.vouched(&resolution.step, entry);
                self.resolution(resolution, entry);
            }
            Body::Delegation(delegation) => self.hand(delegation, entry.id(), at),
            Body::DelegationResult(result) => self.child_ended(result, entry),
            Body::Completed(_) | Body::Failed(_) | Body::Cancelled(_) => self.ended(entry),
            Body::Signal(signal) => {
                self.signals.insert_mut(entry.id(), signal.payload.clone());
            }
            Body::Compensation(compensation) => self.rollback(compensation),
            Body::CancelRequested(request) => self.cancelled = Some(request.reason.as_str().into()),
            _ => {}
        }
        self.newest = entry.seq();
    }
}

impl Facts {
    /// What the trajectory started with.
    pub fn mandate(&self) -> Option<&Mandate> {
        self.mandate.as_deref()
    }

    /// The plan's hash.
    pub fn plan_hash(&self) -> Option<Digest> {
        self.plan.as_ref().map(|plan| plan.hash)
    }

    /// The plan's steps, by id.
    pub fn plan(&self) -> impl Iterator<Item = &PlanStep> {
        self.plan.iter().flat_map(|plan| plan.steps.values().map(|(step, _)| step))
    }

    /// What a node of the plan does; none when the plan has no such node.
    pub fn spec(&self, node: &StepId) -> Option<Result<Arc<Spec>, JsonError>> {
        let (step, read) = self.plan.as_ref()?.steps.get(node)?;
        if let Some(spec) = read.get() {
            return Some(Ok(Arc::clone(spec)));
        }
        Some(Spec::of(step).map(|spec| Arc::clone(read.get_or_init(|| Arc::new(spec)))))
    }

    /// The result of a settled step.
    pub fn result(&self, step: &StepId) -> Option<&Recorded> {
        self.results.get(step)
    }

    /// The steps that have a result.
    pub fn settled(&self) -> impl Iterator<Item = &StepId> {
        self.results.keys()
    }

    /// What was asked for on behalf of a step that is not settled.
    pub fn asked(&self, step: &StepId) -> Option<&Asked> {
        self.asked.get(step)
    }

    /// Calls that were sent and have no end: step, tool, and when they were sent first.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (&StepId, &ToolName, UnixMs)> {
        self.asked.iter().filter_map(|(step, asked)| {
            asked.first_sent.map(|since| (step, &asked.proposal.tool, since))
        })
    }

    /// What of all that counts against the writ are children's amounts.
    pub(crate) fn given_to_children(&self) -> Amounts {
        self.given
    }

    /// The task that a child works on for a step.
    pub fn handed(&self, step: &StepId) -> Option<&Arc<Handed>> {
        self.handed.get(step)
    }

    /// How many children are at work.
    pub fn children(&self) -> usize {
        self.handed.size()
    }

    /// The step that a child works for.
    pub fn works_for(&self, child: TrajectoryId) -> Option<&StepId> {
        let mut all = self.handed.iter();
        all.find(|(_, handed)| handed.delegation.child == child).map(|(step, _)| step)
    }

    /// What the trajectory has come to, once it has ended.
    pub fn ending(&self) -> Option<&Ending> {
        self.end.as_deref()
    }

    /// What a signal carries that no wait has taken.
    pub fn signal(&self, entry: &EntryId) -> Option<&Content> {
        self.signals.get(entry)
    }

    /// How a step's effect is undone, as the plan says it.
    pub fn undo_spec(&self, step: &StepId) -> Option<UndoSpec> {
        let spec = self.spec(&step.node())?.ok()?;
        spec.call()?.compensate.clone()
    }

    /// Whether the job is undone when it fails.
    pub fn compensates_failure(&self) -> bool {
        let job = ANSWER.parse().ok().and_then(|answer| self.spec(&answer)).and_then(Result::ok);
        let on_failure = job.and_then(|spec| spec.job.as_ref().map(|job| job.on_failure));
        on_failure == Some(OnFailure::Compensate)
    }

    /// The first step that failed for good, and why.
    pub fn broken(&self) -> Option<&(StepId, Failing)> {
        self.broken.as_deref()
    }

    /// Why it is to be cancelled, if it is.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// How many attempts in a row left nothing but themselves.
    pub fn fruitless(&self) -> u64 {
        self.fruitless
    }

    /// Whether any value of it is sensitive.
    pub fn sensitive(&self) -> bool {
        self.sensitive
    }

    /// When calls were started, the newest last, as far as remembered.
    pub fn starts(&self) -> &QueueSync<UnixMs> {
        &self.starts
    }

    /// The resources of earlier attempts of which it is not known in this one that the outside agrees,
    /// and what was found of each, if anything was.
    pub fn unchecked(&self) -> impl Iterator<Item = (&ResourceRef, &Arc<Changed>, Option<&Check>)> {
        self.unchecked.iter().map(|(resource, changed)| {
            (resource, changed, self.findings.get(resource).map(|check| &**check))
        })
    }

    /// What calls have made of the world, resource by resource.
    pub fn changed(&self) -> impl Iterator<Item = (&ResourceRef, &Arc<Changed>)> {
        self.changed.iter()
    }

    /// The nodes that a node needs, and those that they need, and so on.
    pub fn before(&self, node: &StepId) -> BTreeSet<StepId> {
        let mut before = BTreeSet::new();
        let mut left = vec![node.clone()];
        while let Some(node) = left.pop() {
            let step = self.plan.as_ref().and_then(|plan| plan.steps.get(&node));
            for need in step.into_iter().flat_map(|(step, _)| &step.needs) {
                if before.insert(need.clone()) {
                    left.push(need.clone());
                }
            }
        }
        before
    }

    /// Whether a step waits for a person because of what was found in this attempt.
    pub fn asks(&self, step: &StepId) -> bool {
        self.asking.contains(step)
    }

    /// What a mismatch leads to, as the job says.
    pub fn confirm(&self) -> Option<ConfirmationMode> {
        let job = ANSWER.parse().ok().and_then(|answer| self.spec(&answer)).and_then(Result::ok);
        job?.job.as_ref()?.confirm
    }

    /// A new owner: nothing that was found before it came counts.
    fn attempted(&mut self) {
        self.asking = RedBlackTreeSetSync::default();
        self.unchecked = self.changed.clone();
        self.findings = RedBlackTreeMapSync::default();
    }

    fn ask(&mut self, proposal: &Proposal) {
        if self.asked.contains_key(&proposal.step) {
            return;
        }
        let asked = Asked {
            proposal: Arc::new(proposal.clone()),
            first_sent: None,
            unknown: false,
            failures: 0,
            turned_away: 0,
            error: None,
        };
        self.asked.insert_mut(proposal.step.clone(), asked);
    }

    fn started(&mut self, proposal: &Proposal, at: UnixMs) {
        self.ask(proposal);
        self.held.remove_mut(&proposal.step);
        let first = self.first_sent(&proposal.step, at);
        self.change(&proposal.step, |asked| {
            asked.first_sent.get_or_insert(first);
        });
        self.starts.enqueue_mut(at);
        if self.starts.len() > STARTS {
            self.starts.dequeue_mut();
        }
    }

    fn change(&mut self, step: &StepId, change: impl FnOnce(&mut Asked)) {
        if let Some(asked) = self.asked.get(step) {
            let mut asked = asked.clone();
            change(&mut asked);
            self.asked.insert_mut(step.clone(), asked);
        }
    }

    fn failure(
        &mut self,
        step: &StepId,
        error: &Failing,
        (outcome, certainty, dispatched): (Outcome, Certainty, bool),
    ) {
        if outcome != Outcome::RetryableFailure {
            return self.end(step, error);
        }
        if !dispatched {
            // Nothing was found out of what may have been sent before.
            self.since_restore.remove_mut(step);
        }
        self.change(step, |asked| {
            asked.error = Some(Arc::new(error.clone()));
            if dispatched {
                asked.failures += 1;
            } else {
                asked.turned_away += 1;
            }
            match certainty {
                Certainty::Unknown => asked.unknown = true,
                // One of several sends did not happen: that says nothing about the others.
                Certainty::DidNotHappen if !asked.unknown => asked.first_sent = None,
                Certainty::DidNotHappen | Certainty::Happened => {}
            }
        });
    }

    fn rejection(&mut self, rejection: &Rejection) {
        let decision = rejection.decision.doc();
        let code = decision.reason.map_or("refused", |reason| reason.as_str());
        let message = match decision.reason {
            Some(Reason::DelegationExceedsAuthority) => delegation::refusal(decision),
            _ => {
                let tool = &rejection.proposal.tool;
                let why = shortage(decision).unwrap_or_else(|| guardian::why(decision));
                format!("the Guardian refused `{tool}`: {why}")
            }
        };
        self.refusal(&decision.step, Failing { code: code.to_owned(), message });
    }

    /// A refusal ends a step, unless it was a call of unknown outcome that was not to be sent again:
    /// the doubt stays.
    fn refusal(&mut self, step: &StepId, error: Failing) {
        if self.asked.get(step).is_some_and(|asked| asked.unknown) {
            self.change(step, |asked| asked.error = Some(Arc::new(error)));
        } else {
            self.end(step, &error);
        }
    }

    fn hand(&mut self, delegation: &Delegation, entry: EntryId, at: UnixMs) {
        self.given = self.given.plus(delegation.writ.doc().budget.carved());
        let handed = Handed { entry, at, delegation: delegation.clone() };
        self.handed.insert_mut(delegation.step.clone(), Arc::new(handed));
    }

    fn ended(&mut self, entry: &Entry) {
        self.end = match &entry.payload().body {
            Body::Completed(completed) => Some(Ending::Completed(completed.answer.clone())),
            Body::Failed(stopped) | Body::Cancelled(stopped) => {
                Some(Ending::Stopped(stopped.error.clone()))
            }
            _ => None,
        }
        .map(Arc::new);
    }

    /// A child has ended: its step is done, or fails with what the child says of itself.
    fn child_ended(&mut self, result: &DelegationResult, entry: &Entry) {
        let handed = self.handed.get(&result.step).cloned();
        self.handed.remove_mut(&result.step);
        let carved = handed.as_ref().map(|handed| handed.delegation.writ.doc().budget.carved());
        self.given = self.given.minus(carved.unwrap_or_default()).plus(result.spent);
        let returns = handed
            .as_ref()
            .is_some_and(|handed| handed.delegation.on_failure == OnChildFailure::Return);
        if result.end == End::Completed || returns {
            handed.iter().for_each(|handed| self.child_done(handed, result, entry));
            return self.settle(&result.step, &result.answer, false);
        }
        let how = if result.end == End::Cancelled { "was cancelled" } else { "failed" };
        let why = delegation::why(&result.answer);
        let message = format!("child {} {how}{why}", result.child);
        self.end(&result.step, &Failing { code: "child_failed".to_owned(), message });
    }

    fn resolution(&mut self, resolution: &Resolution, entry: &Entry) {
        match &resolution.statement.doc().verdict {
            ResolutionVerdict::Happened(settlement) => {
                self.changes(&resolution.step, &settlement.observation, &settlement.delta);
                self.effect_done(&resolution.step, &settlement.observation, entry);
                self.settle(&resolution.step, &settlement.observation, false);
            }
            ResolutionVerdict::DidNotHappen => self.did_not_happen(&resolution.step),
            ResolutionVerdict::GiveUp => {
                let message = "nobody knows whether it happened, and it was given up";
                let code = "given_up".to_owned();
                self.end(&resolution.step, &Failing { code, message: message.to_owned() });
            }
        }
    }

    fn did_not_happen(&mut self, step: &StepId) {
        self.change(step, |asked| (asked.first_sent, asked.unknown) = (None, false));
    }

    fn settle(&mut self, step: &StepId, content: &Content, skipped: bool) {
        self.asked.remove_mut(step);
        self.approvals.remove_mut(step);
        self.results.insert_mut(step.clone(), Recorded { content: content.clone(), skipped });
    }

    fn end(&mut self, step: &StepId, error: &Failing) {
        self.asked.remove_mut(step);
        self.approvals.remove_mut(step);
        if self.broken.is_none() {
            self.broken = Some(Arc::new((step.clone(), error.clone())));
        }
    }
}

impl PlanFacts {
    fn new(plan: &Plan) -> Self {
        let steps = plan
            .steps
            .iter()
            .map(|step| (step.id.clone(), (step.clone(), OnceLock::new())))
            .collect();
        let order = plan.steps.iter().map(|step| step.id.clone()).collect();
        let (hash, priority, tools) = (plan.hash, plan.priority, plan.tools.clone());
        Self { hash, priority, tools, order, steps }
    }
}
