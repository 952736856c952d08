//! From an entry to the part of a turn that must have written it, and what that part writes now.

mod arrived;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use gesta_core::body::{
    Attempt, Check, Checkpoint, Commit, Failure, Mandate, Origin, Plan, Rejection,
};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::{Decision, EffectReport, Outcome, Permit, Receipt, ResolutionStatement};
use gesta_core::entry::{Author, Body, Entry};
use gesta_core::guardian::{self, Allowance, Standing, Unpublished};
use gesta_core::ids::{StepId, ToolName};
use gesta_core::json::Canon;
use gesta_core::repeat;
use gesta_core::sensitive::Commitment;
use gesta_core::signed::{Document as _, Signed};
use gesta_core::state::Act;
use gesta_core::temporal::{Pace, Whose};
use gesta_core::time::UnixMs;
use gesta_core::verification::{SignedRef, signed};
use gesta_core::world::ResourceRef;
use gesta_store::{Draft, Rehearsed};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::library::Recorded;
use super::{Divergence, Player};
use crate::decide::Outside;
use crate::desk::{Desk, OUTPUT_LIMITS, Shared};
use crate::error::RunError;
use crate::job;
use crate::pipeline::{Ended, How};
use crate::published;
use crate::signer::Signer;
use crate::turn::{Made, Part, Place, Turn};

/// How often a part is tried again with values that it lacked.
const TRIES: usize = 64;

/// What became of an entry.
pub(super) enum Derived {
    /// It came out as it is recorded.
    Same,
    /// It came from outside.
    Given,
    /// It came out otherwise.
    Other(Box<Divergence>),
    /// Something that it rests on is not at hand.
    Missing(String),
}

/// A part of a turn, with the time and the outside of then.
struct Scene<'a> {
    part: Part<'a>,
    now: UnixMs,
    outside: Outside,
    /// Whether what is refused matters, so that entries must really be let in.
    trial: bool,
}

impl<'a> Scene<'a> {
    fn of(part: Part<'a>, now: UnixMs) -> Self {
        let outside = Outside {
            account: None,
            standing: Vec::new(),
            dispatch_by: UnixMs(0),
            frozen: None,
            for_good: false,
            pace: Vec::new(),
            repeats: Vec::new(),
            takes_over: false,
        };
        Self { part, now, outside, trial: false }
    }

    /// With what the trajectories above a branch have done.
    fn taking_over(mut self) -> Self {
        self.outside.takes_over = true;
        self
    }
}

impl Player<'_> {
    /// A worker takes the trajectory: what it had, as far as its decisions rest on it.
    pub(super) async fn sit_down(
        &mut self,
        attempt: &Attempt,
        entry: &Entry,
    ) -> Result<Result<(), String>, RunError> {
        let recorded = match self.library.environment(attempt.environment).await? {
            Ok(recorded) => recorded,
            Err(why) => return Ok(Err(why)),
        };
        let mandate = self.facts.mandate().ok_or(RunError::NotBegun)?.clone();
        self.other = match &self.asked.what_if {
            None => None,
            Some(what_if) => match what_if.instead_of(&recorded) {
                Ok(other) => self.desk(&other, &mandate, entry),
                // Policies may name tools that there were not yet: that is no fault of the record.
                Err(why) => {
                    self.misfit = Some(why);
                    None
                }
            },
        };
        self.desk = self.desk(&recorded, &mandate, entry);
        if let Some(desk) = &self.desk {
            desk.lineage.look(&self.facts, &*self.library.store).await?;
        }
        Ok(Ok(()))
    }

    fn desk(&self, recorded: &Recorded, mandate: &Mandate, entry: &Entry) -> Option<Arc<Desk>> {
        let Recorded { tools, in_force, options, .. } = recorded.clone();
        let Author::Worker { attempt, worker } = entry.payload().by.clone() else { return None };
        // Stands for the worker's keys until a document names them.
        let key = mandate.writs.first()?.doc().key;
        let store = Arc::clone(&self.library.store);
        let shared = Shared::of_record(store, worker, key, tools, (Arc::clone(&in_force), options));
        let claimed = (0, attempt, in_force);
        Some(Arc::new(Desk::new(Arc::new(shared), claimed, &self.state, mandate)))
    }

    /// Derives an entry from what was before it.
    pub(super) async fn derive(&mut self, entry: &Entry) -> Result<Derived, RunError> {
        let payload = entry.payload();
        match &payload.body {
            Body::Plan(plan) => return self.plan(entry, plan),
            Body::Checkpoint(_) => {
                let body = Checkpoint { world: self.state.world().digest() };
                return Ok(compared(entry, Some(rehearsed(entry, Body::Checkpoint(body.into())))));
            }
            _ => {}
        }
        if let Body::DelegationResult(told) = &payload.body {
            return self.child_ended(entry, told).await;
        }
        if !matches!(payload.by, Author::Worker { .. }) {
            return Ok(Derived::Given);
        }
        let at = payload.at;
        let scene = match &payload.body {
            Body::Started(started) => {
                let permit = Some(started.permit.doc());
                return self.decided(entry, &started.decision, permit).await;
            }
            Body::PendingApproval(pending) => {
                return self.decided(entry, &pending.decision, None).await;
            }
            Body::Rejection(rejection) => return self.rejected(entry, rejection).await,
            Body::Commit(commit) => match &commit.origin {
                Origin::Effect { receipt, started, .. } => {
                    return self.committed(entry, commit, receipt, *started).await;
                }
                Origin::Computed | Origin::Skipped => Scene::of(Part::Work(&commit.step), at),
                Origin::RecordedFrom { .. } => {
                    Scene::of(Part::Work(&commit.step), at).taking_over()
                }
                Origin::Woken { .. } => Scene::of(Part::Woken(&commit.step), at),
            },
            Body::Failure(failure) => return self.failed(entry, failure).await,
            Body::InDoubt(doubt) => return self.doubted(entry, doubt).await,
            Body::Resolution(resolution) => return self.resolved(entry, resolution).await,
            Body::LateEffect(late) => return self.taken_up(entry, &late.report, at).await,
            Body::Confirmation(found) => return self.confirmed(entry, found).await,
            Body::Waiting(waiting) if waiting.rests() => Scene::of(Part::Rest, at),
            Body::Waiting(waiting) => Scene::of(Part::Work(&waiting.step), at),
            Body::Timer(timer) => Scene::of(Part::Timer(&timer.step), at),
            Body::Delegation(delegation) => {
                return self.decided(entry, &delegation.decision, None).await;
            }
            Body::Compensation(_) => Scene::of(Part::Whole(Act::Compensate), at),
            Body::Completed(_) => Scene::of(Part::Whole(Act::Complete), at),
            Body::Failed(_) => Scene::of(Part::Whole(Act::EndFailed), at),
            Body::Cancelled(_) => Scene::of(Part::Whole(Act::EndCancelled), at),
            _ => return Ok(Derived::Given),
        };
        self.perform(entry, scene).await
    }

    /// A plan is what its steps compile to, and named by their hash.
    fn plan(&self, entry: &Entry, plan: &Plan) -> Result<Derived, RunError> {
        let body = match job::again(plan)? {
            Some(plan) => plan,
            None => Plan { hash: Plan::hash_of(&plan.steps)?, ..plan.clone() },
        };
        Ok(compared(entry, Some(rehearsed(entry, Body::Plan(Box::new(body))))))
    }

    async fn rejected(
        &mut self,
        entry: &Entry,
        rejection: &Rejection,
    ) -> Result<Derived, RunError> {
        let (decision, step) = (rejection.decision.doc(), &rejection.proposal.step);
        let (part, trial) = match decision.trace.last().map(|stage| stage.stage.as_str()) {
            Some("approval") => (Part::Unapproved(step), false),
            Some("delegation") => (Part::Work(step), true),
            _ => return self.decided(entry, &rejection.decision, None).await,
        };
        if let Err(why) = self.under(decision).await? {
            return Ok(Derived::Missing(why));
        }
        let mut scene = Scene { trial, ..Scene::of(part, decision.at) };
        if let Some(desk) = self.desk.clone().filter(|_| trial) {
            scene.outside = self.outside(&desk, decision, None, Some(&rejection.proposal.tool));
        }
        self.perform(entry, scene).await
    }

    /// A decision is reached again, on what it was reached on then.
    async fn decided(
        &mut self,
        entry: &Entry,
        decision: &Signed<Decision>,
        permit: Option<&Permit>,
    ) -> Result<Derived, RunError> {
        let doc = decision.doc();
        if let Err(why) = self.under(doc).await? {
            return Ok(Derived::Missing(why));
        }
        let Some(desk) = self.desk.clone() else { return Ok(nobody()) };
        let tool = tool_of(entry);
        let mut outside = self.outside(&desk, doc, permit, tool.as_ref());
        // Whether a tool that is not what was pinned is held or refused is on record too.
        outside.for_good = outside.frozen.is_some() && is_final(entry);
        if self.asked.counts(entry.payload().at) {
            self.decisions += 1;
            if self.asked.what_if.is_some() {
                self.decide_otherwise(entry, doc, &outside).await?;
            }
        }
        self.perform(entry, Scene { outside, ..Scene::of(Part::Work(&doc.step), doc.at) }).await
    }

    /// What the decision says it found outside.
    fn outside(
        &self,
        desk: &Desk,
        decision: &Decision,
        permit: Option<&Permit>,
        tool: Option<&ToolName>,
    ) -> Outside {
        #[derive(Deserialize)]
        struct Frozen {
            frozen: String,
        }
        #[derive(Deserialize)]
        struct Accounts {
            account: Option<Allowance>,
            #[serde(default)]
            writs: Vec<Standing>,
        }
        let known = desk.shared.registry();
        let registry = known.as_ref().map(|state| state.registry());
        let frozen_by = |tool| guardian::frozen_by(tool, &self.state, registry);
        let unpublished = |tool| desk.published(tool, known.as_deref()).err();
        let by_registry =
            [tool.and_then(frozen_by), tool.and_then(unpublished).map(Unpublished::why)];
        // What the registry says is derived; what the worker's own pins said is on record.
        let frozen: Option<Frozen> = found(decision, "tool")
            .filter(|found: &Frozen| !by_registry.contains(&Some(found.frozen.as_str())));
        let accounts: Option<Accounts> = found(decision, "budget");
        let (account, standing) =
            accounts.map_or((None, Vec::new()), |found| (found.account, found.writs));
        let recorded: Vec<Pace> = found(decision, "temporal").unwrap_or_default();
        // What the chain holds is counted again; what other trajectories did is on record.
        let starts = self.facts.starts();
        let own =
            desk.shared.options.temporal.trajectory.iter().map(|rule| {
                Pace::of(*rule, Whose::Trajectory, starts.iter().copied(), decision.at)
            });
        let others = recorded.into_iter().filter(|pace| pace.whose == Whose::Principal);
        Outside {
            account,
            standing,
            dispatch_by: permit.map_or(UnixMs(0), |permit| permit.dispatch_by),
            frozen: frozen.map(|frozen| frozen.frozen),
            for_good: false,
            pace: own.chain(others).collect(),
            repeats: repeat::Found::of(decision).repeats,
            takes_over: false,
        }
    }

    /// The registry as the decision names it.
    async fn under(&mut self, decision: &Decision) -> Result<Result<(), String>, RunError> {
        let registry = self.facts.mandate().and_then(|mandate| mandate.registry.clone());
        let state = match (decision.registry, registry) {
            (None, None) => None,
            (None, Some(_)) => {
                return Ok(Err("a decision names no head of its job's registry".to_owned()));
            }
            (Some(_), None) => {
                return Ok(Err("a decision names a registry, and its job does not".to_owned()));
            }
            (Some(head), Some(registry)) => {
                match self.library.registry(registry.trajectory, head).await? {
                    Ok(state) => Some(state),
                    Err(why) => return Ok(Err(why)),
                }
            }
        };
        if let Some(digest) = published::digest(state.as_deref()) {
            let published = match self.library.published(digest).await? {
                Ok(published) => published,
                Err(why) => return Ok(Err(why)),
            };
            if let Some(desk) = &self.desk {
                desk.shared.published.insert(digest, Arc::clone(&published));
            }
            if let Some(other) = &self.other {
                // Other tools are asked about as if they were published.
                let tools = self.asked.what_if.as_ref().and_then(|what_if| what_if.tools.as_ref());
                let instead = tools.map(|tools| Arc::new(tools.definitions().clone()));
                other.shared.published.insert(digest, instead.unwrap_or(published));
            }
        }
        for desk in self.desk.iter().chain(&self.other) {
            let mut known = desk.shared.registry.write().unwrap_or_else(PoisonError::into_inner);
            known.clone_from(&state);
        }
        Ok(Ok(()))
    }

    async fn committed(
        &mut self,
        entry: &Entry,
        commit: &Commit,
        receipt: &Signed<Receipt>,
        started: EntryId,
    ) -> Result<Derived, RunError> {
        let Origin::Effect { evidence, .. } = &commit.origin else { return Ok(Derived::Given) };
        let value = match (evidence, &commit.observation) {
            (Some(_), _) => Canon::null(),
            (None, Content::Inline(value)) => value.clone(),
            (None, Content::Blob(blob)) => match self.fetch(blob.sha256).await? {
                Ok(value) => value,
                Err(why) => return Ok(Derived::Missing(why)),
            },
        };
        let observation = commit.observation.clone();
        let how = How::Succeeded { value, observation, cost: commit.cost };
        let now = receipt.doc().at;
        self.settled(entry, &commit.step, (started, how), evidence.as_deref(), now).await
    }

    async fn failed(&mut self, entry: &Entry, failure: &Failure) -> Result<Derived, RunError> {
        let Failure { certainty, cost, error, outcome, output, .. } = failure.clone();
        let now = failure.receipt.doc().at;
        let Some(started) = failure.started else {
            let scene = Scene::of(Part::Work(&failure.step), now).taking_over();
            let scene = Scene { trial: true, ..scene };
            return self.perform(entry, scene).await;
        };
        let how = if failure.dispatched {
            let since = now.max(self.state.at()).0;
            let retry_after_ms = failure.retry_at.map_or(0, |at| at.0.saturating_sub(since));
            let retryable = outcome == Outcome::RetryableFailure;
            How::Failed { certainty, retryable, cost, error, retry_after_ms, output }
        } else {
            How::TurnedAway(error)
        };
        let evidence = failure.evidence.as_deref();
        self.settled(entry, &failure.step, (started, how), evidence, now).await
    }

    /// A call is settled again.
    async fn settled(
        &mut self,
        entry: &Entry,
        step: &StepId,
        (started, how): (EntryId, How),
        evidence: Option<&Signed<EffectReport>>,
        now: UnixMs,
    ) -> Result<Derived, RunError> {
        let Some(asked) = self.facts.asked(step) else { return Ok(compared(entry, None)) };
        let proposal = (*asked.proposal).clone();
        let ended = Ended { step: step.clone(), started, proposal, at: now, how };
        self.perform(entry, Scene::of(Part::Settle(&ended, evidence), now)).await
    }

    /// Plays a scene, and compares what it writes with what is recorded.
    async fn perform(&mut self, entry: &Entry, scene: Scene<'_>) -> Result<Derived, RunError> {
        let Some(desk) = self.desk.clone() else { return Ok(nobody()) };
        stand_in(&desk, &entry.payload().body);
        match self.play_out(entry, &desk, &scene).await? {
            Ok(written) => Ok(compared(entry, written)),
            Err(why) => Ok(Derived::Missing(why)),
        }
    }

    /// The first entry that a scene writes, with every value that it asks for.
    async fn play_out(
        &mut self,
        entry: &Entry,
        desk: &Desk,
        scene: &Scene<'_>,
    ) -> Result<Result<Option<Rehearsed>, String>, RunError> {
        for _ in 0..TRIES {
            let view = self.facts.clone();
            let mut draft = if scene.trial {
                Draft::trial(&self.state, view)
            } else {
                Draft::rehearsal(&self.state, view)
            };
            let made = self.turn(desk, scene).rehearse(&mut draft, &scene.part)?;
            let written = draft.first();
            let Made { wanted, to_keep, to_seal, .. } = made;
            let sealed = self.take_commitments(entry, to_seal);
            if written.is_some() || (wanted.is_empty() && to_keep.is_empty() && !sealed) {
                return Ok(Ok(written));
            }
            for value in to_keep {
                self.blobs.put(Digest::of(value.as_bytes()), value);
            }
            for digest in wanted {
                if let Err(why) = self.fetch(digest).await? {
                    return Ok(Err(why));
                }
            }
        }
        Ok(Err("a step asks for ever more values".to_owned()))
    }

    fn turn<'t>(&'t self, desk: &'t Desk, scene: &'t Scene<'_>) -> Turn<'t> {
        static NONE: (BTreeSet<EntryId>, BTreeMap<ResourceRef, Check>, BTreeSet<ResourceRef>) =
            (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Turn {
            desk,
            now: scene.now,
            ended: &[],
            answers: &[],
            reports: &[],
            delivered: &[],
            running: &NONE.0,
            probed: &NONE.0,
            findings: &NONE.1,
            looking: &NONE.2,
            may_open: true,
            may_rest: false,
            trial: false,
            recorded: Some(&scene.outside),
            blobs: &self.blobs,
            sealed: &self.sealed,
            lists: &self.lists,
        }
    }

    /// Takes the commitments to sensitive values from where the entry has them: nobody can derive what
    /// random salts went into. False if it has none of them there.
    fn take_commitments(&mut self, entry: &Entry, places: Vec<(Place, Value)>) -> bool {
        if places.is_empty() {
            return false;
        }
        let recorded: Value = serde_json::from_slice(entry.bytes()).unwrap_or_default();
        let mut found = false;
        for (place, _) in places {
            let at = |above: &str| recorded.pointer(&format!("{above}{}", place.1));
            let value = at("/body/proposal/args")
                .or_else(|| at("/body/proposal/args/input/inline"))
                .or_else(|| at("/body/task/input/inline"));
            if let Some(commitment) = value.and_then(Commitment::read) {
                self.sealed.put(place, commitment);
                self.committed += 1;
                found = true;
            }
        }
        found
    }

    /// A value from the blob store.
    async fn fetch(&mut self, digest: Digest) -> Result<Result<Canon, String>, RunError> {
        if let Some(known) = self.blobs.get(&digest) {
            return Ok(Ok(known));
        }
        let Some(bytes) = self.library.store.blob(digest).await? else {
            return Ok(Err(format!("the value {digest} is not at hand")));
        };
        let value = Canon::parse_within(&bytes, OUTPUT_LIMITS)?;
        self.blobs.put(digest, value.clone());
        Ok(Ok(value))
    }

    /// What would be decided under what is asked about, on the same inputs. What cannot be decided is
    /// counted: it may have come out either way.
    async fn decide_otherwise(
        &mut self,
        entry: &Entry,
        decision: &Decision,
        outside: &Outside,
    ) -> Result<(), RunError> {
        let written = match self.other.clone() {
            Some(desk) => {
                stand_in(&desk, &entry.payload().body);
                let outside = outside.clone();
                let scene = Scene { outside, ..Scene::of(Part::Work(&decision.step), decision.at) };
                self.play_out(entry, &desk, &scene).await?.ok().flatten()
            }
            None => None,
        };
        match written.as_ref().and_then(|written| super::what_if::decision_of(&written.body)) {
            Some(instead) => {
                self.otherwise.extend(super::what_if::compare(entry, decision, instead));
            }
            None => self.undecided += 1,
        }
        Ok(())
    }
}

/// What the desk signs again as it was signed then has the signature of then.
fn stand_in(desk: &Desk, body: &Body) {
    let signed = signed(body);
    let executors = |document: &&SignedRef<'_>| {
        [Receipt::TYPE, ResolutionStatement::TYPE].contains(&document.type_)
    };
    let by = |signer: &Signer, of: Vec<&SignedRef<'_>>| {
        if let Some(first) = of.first() {
            let signed = of.iter().map(|document| (document.message(), document.signature()));
            signer.stand_for(first.key, signed);
        }
    };
    by(&desk.shared.key, signed.iter().filter(executors).collect());
    by(&desk.shared.guardian, signed.iter().filter(|document| !executors(document)).collect());
}

/// What a stage of a decision says it found, if it says so in this form.
pub(super) fn found<T: DeserializeOwned>(decision: &Decision, stage: &str) -> Option<T> {
    let stage = decision.trace.iter().find(|found| found.stage == stage)?;
    serde_json::from_str(stage.found.as_ref()?.as_str()).ok()
}

pub(super) fn tool_of(entry: &Entry) -> Option<ToolName> {
    match &entry.payload().body {
        Body::Started(started) => Some(started.proposal.tool.clone()),
        Body::PendingApproval(pending) => Some(pending.proposal.tool.clone()),
        Body::Rejection(rejection) => Some(rejection.proposal.tool.clone()),
        Body::Delegation(delegation) => Some(ToolName::of_delegation(delegation.task.effect)),
        _ => None,
    }
}

fn rehearsed(entry: &Entry, body: Body) -> Rehearsed {
    let payload = entry.payload();
    Rehearsed { at: payload.at, by: payload.by.clone(), body }
}

fn compared(entry: &Entry, mut written: Option<Rehearsed>) -> Derived {
    // Which program wrote an entry is a fact about then: a newer one derives what an older one wrote.
    if let (Body::Commit(was), Some(Rehearsed { body: Body::Commit(is), .. })) =
        (&entry.payload().body, &mut written)
    {
        is.compiler.clone_from(&was.compiler);
    }
    match Divergence::between(entry, written) {
        None => Derived::Same,
        Some(divergence) => Derived::Other(divergence),
    }
}

fn nobody() -> Derived {
    Derived::Missing("a worker wrote it before any had claimed the trajectory".to_owned())
}

/// Whether a refusal says nothing of another try.
fn is_final(entry: &Entry) -> bool {
    matches!(&entry.payload().body, Body::Rejection(rejection) if rejection.retry_at.is_none())
}
