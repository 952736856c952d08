//! What replay finds in a record that somebody wrote who has the worker's key, and keeps to the rules of the
//! chain: one entry of an honest run at a time says something else than follows from what is before it. And
//! what it says when something is lacking that a record rests on.

mod arrived;

use std::sync::Arc;

use gesta_core::body::{Attempt, Completed, Origin, Plan, PlanStep, StepKind};
use gesta_core::content::Content;
use gesta_core::digest::Digest;
use gesta_core::document::{Environment, ReceiptResult, RegistryItem, TenantLimit};
use gesta_core::entry::{Author, Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::signed::{Document, Signed};
use gesta_core::time::UnixMs;
use gesta_core::verification::{blobs, in_force};
use gesta_core::world::Delta;
use gesta_runtime::authority;
use gesta_runtime::replay::{Asked, Divergence, Library, Session, replay};
use gesta_store::memory::MemoryStore;
use gesta_store::{Chain, Store};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{REGISTRY, Scene, now_since};
use crate::{aftermath, written};

const EVERYTHING: TrajectoryId = TrajectoryId::from_bytes([1; 16]);
const UNDONE: TrajectoryId = TrajectoryId::from_bytes([2; 16]);
const REFUSED: TrajectoryId = TrajectoryId::from_bytes([3; 16]);

/// An honest history.
struct Honest {
    scene: Scene,
    started: Instant,
    /// Trajectories that copies have as well, to so many entries.
    beside: Vec<(TrajectoryId, usize)>,
}

impl Honest {
    async fn new() -> Self {
        let started = Instant::now();
        let clock = Arc::new(move || now_since(started));
        let (scene, _) = written::run(Arc::new(MemoryStore::new(clock)), started).await;
        Self { scene, started, beside: Vec::new() }
    }

    /// What befell jobs whose store was cut off, whose world had changed, and so on. Says which there are.
    async fn aftermath() -> (Self, Vec<TrajectoryId>) {
        let started = Instant::now();
        let clock = Arc::new(move || now_since(started));
        let (scene, jobs) = aftermath::run(Arc::new(MemoryStore::new(clock)), started).await;
        (Self { scene, started, beside: Vec::new() }, jobs)
    }

    async fn entries(&self, trajectory: TrajectoryId) -> Vec<Entry> {
        let stored = self.scene.store.entries(trajectory, 0, usize::MAX).await.unwrap();
        stored.iter().map(|stored| Entry::from_bytes(&stored.bytes).unwrap()).collect()
    }

    /// Another store with the registry and the beginning of a trajectory, and without some blobs.
    async fn copy(
        &self,
        trajectory: TrajectoryId,
        until: usize,
        lost: &[Digest],
    ) -> Arc<dyn Store> {
        let started = self.started;
        let clock = Arc::new(move || now_since(started));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock));
        let whole = [(REGISTRY, usize::MAX), (trajectory, until)];
        for (id, most) in whole.into_iter().chain(self.beside.iter().copied()) {
            let entries: Vec<Entry> = self.entries(id).await.into_iter().take(most).collect();
            for entry in &entries {
                let body = &entry.payload().body;
                let named = blobs(body).into_iter().map(|blob| blob.sha256);
                for digest in named.chain(in_force(body)).filter(|digest| !lost.contains(digest)) {
                    if let Some(bytes) = self.scene.store.blob(digest).await.unwrap() {
                        store.put_blob(&bytes).await.unwrap();
                    }
                }
            }
            append(&store, id, entries.iter().map(|entry| entry.payload().clone())).await;
        }
        store
    }

    /// Replays a trajectory whose entry of this kind and step says something else.
    async fn with(
        &self,
        trajectory: TrajectoryId,
        (kind, step): (&str, &str),
        change: impl FnOnce(&mut Body),
    ) -> Session {
        let entries = self.entries(trajectory).await;
        let is = |entry: &&Entry| {
            let body = &entry.payload().body;
            entry.kind().to_string() == kind
                && body.step().is_none_or(|found| found.as_str() == step)
        };
        let entry = entries.iter().find(is).unwrap_or_else(|| panic!("no {kind} of {step}"));
        let until = usize::try_from(entry.seq()).unwrap();
        let store = self.copy(trajectory, until, &[]).await;
        let mut payload = entry.payload().clone();
        change(&mut payload.body);
        append(&store, trajectory, [payload]).await;
        play(&store, trajectory).await
    }
}

async fn append(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    payloads: impl IntoIterator<Item = gesta_core::entry::Payload>,
) {
    let payloads: Vec<_> = payloads.into_iter().collect();
    let known = store.trajectory(trajectory).await.unwrap().is_some();
    let mut chain = match known {
        true => Chain::load(Arc::clone(store), trajectory).await.unwrap(),
        false => Chain::unbegun(Arc::clone(store), trajectory),
    };
    chain
        .append(|admission| {
            for payload in &payloads {
                admission.push(payload.at, payload.by.clone(), payload.body.clone())?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

async fn play(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Session {
    let mut library = Library::new(Arc::clone(store));
    let played = replay(&mut library, trajectory, &Asked::default(), &mut |_| ()).await;
    played.unwrap().0.session
}

#[track_caller]
fn diverged(session: Session) -> Divergence {
    match session {
        Session::Diverged(found) => *found,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn failed(session: Session) -> String {
    match session {
        Session::Failed { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

/// What differs, as it is told: where, what is recorded, what was derived.
#[track_caller]
fn told(session: Session) -> (String, Option<Value>, Option<Value>) {
    let found = diverged(session);
    (found.pointer, found.recorded, found.derived)
}

/// The same document with something else in it, signed by the worker.
fn signed<D: Document + Clone>(document: &Signed<D>, change: impl FnOnce(&mut D)) -> Signed<D> {
    let mut changed = document.doc().clone();
    change(&mut changed);
    Signed::sign(changed, &Scene::worker_key()).unwrap()
}

fn canon(value: &Value) -> Canon {
    Canon::of(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn other_arguments_than_the_plans_are_found_and_told_as_such() {
    let honest = Honest::new().await;
    let session = honest
        .with(EVERYTHING, ("started", "pay"), |body| {
            let Body::Started(started) = body else { panic!() };
            started.proposal.args = canon(&json!({ "n": 70 }));
            let (proposal, key) =
                (started.proposal.id().unwrap(), started.proposal.idempotency_key(EVERYTHING));
            started.decision = signed(&started.decision, |decision| decision.proposal = proposal);
            let decision = started.decision.id();
            started.permit = signed(&started.permit, |permit| {
                permit.decision = decision;
                permit.idempotency_key = key;
            });
        })
        .await;
    let found = diverged(session);
    assert_eq!((found.kind.as_str(), found.step.unwrap().as_str()), ("started", "pay"));
    assert_eq!(found.pointer, "/body/proposal/args/n");
    assert_eq!((found.recorded, found.derived), (Some(json!(70)), Some(json!(7))));
    assert!(found.cause.contains("an expression gives another value"), "{}", found.cause);
}

fn step<'p>(plan: &'p mut Plan, id: &str) -> &'p mut PlanStep {
    plan.steps.iter_mut().find(|step| step.id.as_str() == id).unwrap()
}

/// A plan that no file compiles to: its hash is that of its steps, and the chain lets it in.
#[tokio::test(start_paused = true)]
async fn another_plan_than_its_steps_compile_to_is_found() {
    let honest = Honest::new().await;
    let with = async |change: fn(&mut Plan)| {
        let changed = |body: &mut Body| {
            let Body::Plan(plan) = body else { panic!() };
            change(plan);
            plan.hash = Plan::hash_of(&plan.steps).unwrap();
        };
        diverged(honest.with(EVERYTHING, ("plan", ""), changed).await)
    };
    let found = with(|plan| step(plan, "pay").needs.clear()).await;
    assert!(found.pointer.ends_with("/needs/0"), "{}", found.pointer);
    assert_eq!((found.recorded, found.derived), (None, Some(json!("read"))));
    assert!(found.cause.contains("compiles to another plan"), "{}", found.cause);

    let found = with(|plan| step(plan, "pay").kind = StepKind::Compute).await;
    assert!(found.pointer.ends_with("/kind"), "{}", found.pointer);
    assert_eq!((found.recorded, found.derived), (Some(json!("compute")), Some(json!("call"))));

    // What goes without saying is not said.
    let found = with(|plan| {
        let step = step(plan, "answer");
        let mut spec: Value = step.spec.read().unwrap();
        spec["job"]["on_failure"] = json!("keep");
        step.spec = canon(&spec);
    })
    .await;
    assert!(found.pointer.ends_with("/spec/job/on_failure"), "{}", found.pointer);
    assert_eq!((found.recorded, found.derived), (Some(json!("keep")), None));

    // The end does not come before everything is done.
    let found = with(|plan| step(plan, "answer").needs.retain(|id| id.as_str() != "ask")).await;
    assert!(found.pointer.contains("/needs/"), "{}", found.pointer);

    let found = with(|plan| plan.tools.retain(|tool| tool.as_str() != "pay")).await;
    assert!(found.pointer.starts_with("/body/tools/"), "{}", found.pointer);
    assert!(found.cause.contains("calls other tools"), "{}", found.cause);
}

#[tokio::test(start_paused = true)]
async fn another_decision_or_permit_than_follows_is_found() {
    let honest = Honest::new().await;
    let session = honest
        .with(EVERYTHING, ("started", "pay"), |body| {
            let Body::Started(started) = body else { panic!() };
            started.decision = signed(&started.decision, |decision| {
                decision.trace.retain(|stage| stage.stage != "policy");
            });
            let decision = started.decision.id();
            started.permit = signed(&started.permit, |permit| permit.decision = decision);
        })
        .await;
    let found = diverged(session);
    assert!(found.pointer.starts_with("/body/decision/doc/trace/"), "{}", found.pointer);
    assert!(found.cause.contains("a stage finds something else"), "{}", found.cause);

    let later = |body: &mut Body| {
        let Body::Started(started) = body else { panic!() };
        started.permit = signed(&started.permit, |permit| permit.dead_at.0 += 60_000);
    };
    let found = diverged(honest.with(EVERYTHING, ("started", "pay"), later).await);
    assert_eq!(found.pointer, "/body/permit/doc/dead_at");
    assert!(found.cause.contains("the permit grants something else"), "{}", found.cause);
}

#[tokio::test(start_paused = true)]
async fn another_change_of_the_world_than_the_tool_declares_is_found() {
    let honest = Honest::new().await;
    let hidden = |body: &mut Body| {
        let Body::Commit(commit) = body else { panic!() };
        commit.delta = Delta::default();
        let digest = commit.delta.digest().unwrap();
        let Origin::Effect { receipt, .. } = &mut commit.origin else { panic!() };
        **receipt = signed(receipt, |receipt| {
            let ReceiptResult::Committed { delta, .. } = &mut receipt.result else { panic!() };
            *delta = digest;
        });
    };
    let found = diverged(honest.with(EVERYTHING, ("commit", "pay"), hidden).await);
    assert_eq!(found.pointer, "/body/delta/0");
    assert_eq!(found.recorded, None);
    assert!(found.derived.unwrap().to_string().contains("payment"));
    assert!(found.cause.contains("what the tool declares that it changes"), "{}", found.cause);
}

#[tokio::test(start_paused = true)]
async fn another_result_of_a_computation_or_draw_is_found() {
    let honest = Honest::new().await;
    let six = |body: &mut Body| {
        let Body::Commit(commit) = body else { panic!() };
        let Content::Inline(value) = &commit.observation else { panic!() };
        let mut value: Value = serde_json::from_str(value.as_str()).unwrap();
        value["dice"] = json!(6);
        commit.observation = Content::Inline(canon(&value));
    };
    let (pointer, recorded, derived) = told(honest.with(EVERYTHING, ("commit", "draw"), six).await);
    assert_eq!((pointer.as_str(), recorded), ("/body/observation/inline/dice", Some(json!(6))));
    assert!(derived.unwrap().as_u64().unwrap() > 6);

    // A step that has no condition was not skipped, but done.
    let skipped = |body: &mut Body| {
        let Body::Commit(commit) = body else { panic!() };
        commit.origin = Origin::Skipped;
        commit.observation = Content::Inline(Canon::null());
    };
    let (pointer, recorded, derived) =
        told(honest.with(EVERYTHING, ("commit", "draw"), skipped).await);
    assert_eq!((pointer.as_str(), recorded), ("/body/observation/inline", Some(json!(null))));
    assert!(derived.unwrap()["name"].is_string());
}

#[tokio::test(start_paused = true)]
async fn another_pause_question_or_refusal_is_found() {
    let honest = Honest::new().await;
    let sooner = |body: &mut Body| {
        let Body::Failure(failure) = body else { panic!() };
        failure.retry_at = failure.receipt.doc().at.0.checked_add(1).map(UnixMs);
    };
    let found = diverged(honest.with(EVERYTHING, ("failure", "flaky"), sooner).await);
    assert_eq!(found.pointer, "/body/retry_at");

    let longer = |body: &mut Body| {
        let Body::PendingApproval(pending) = body else { panic!() };
        pending.quorum += 1;
    };
    let (pointer, recorded, derived) =
        told(honest.with(EVERYTHING, ("pending_approval", "mail"), longer).await);
    assert_eq!(pointer, "/body/quorum");
    assert_eq!((recorded, derived), (Some(json!(2)), Some(json!(1))));

    let excused = |body: &mut Body| {
        let Body::Rejection(rejection) = body else { panic!() };
        let named = |decision: &mut gesta_core::document::Decision| {
            decision.trace.pop();
        };
        rejection.decision = signed(&rejection.decision, named);
    };
    let found = diverged(honest.with(REFUSED, ("rejection", "pay"), excused).await);
    assert!(found.pointer.starts_with("/body/decision/doc/trace/"), "{}", found.pointer);
}

#[tokio::test(start_paused = true)]
async fn another_undoing_or_answer_is_found() {
    let honest = Honest::new().await;
    let answered = |body: &mut Body| {
        let Body::Completed(completed) = body else { panic!() };
        let Completed { answer, .. } = &mut **completed;
        *answer = Content::Inline(canon(&json!(0)));
    };
    let found = diverged(honest.with(EVERYTHING, ("completed", ""), answered).await);
    assert!(found.pointer.starts_with("/body/answer"), "{}", found.pointer);
    assert_eq!(found.step, None);

    // Undone is what was done, with what it was done with.
    let entries = honest.entries(UNDONE).await;
    let undo = entries.iter().find_map(|entry| match &entry.payload().body {
        Body::Started(started) if started.compensates.is_some() => {
            Some(started.proposal.step.to_string())
        }
        _ => None,
    });
    let undo = undo.unwrap();
    let session = honest
        .with(UNDONE, ("started", &undo), |body| {
            let Body::Started(started) = body else { panic!() };
            started.proposal.args = canon(&json!({ "n": 2 }));
            let (proposal, key) =
                (started.proposal.id().unwrap(), started.proposal.idempotency_key(UNDONE));
            started.decision = signed(&started.decision, |decision| decision.proposal = proposal);
            let decision = started.decision.id();
            started.permit = signed(&started.permit, |permit| {
                permit.decision = decision;
                permit.idempotency_key = key;
            });
        })
        .await;
    let (pointer, recorded, derived) = told(session);
    assert_eq!(pointer, "/body/proposal/args/n");
    assert_eq!((recorded, derived), (Some(json!(2)), Some(json!(3))));
}

#[tokio::test(start_paused = true)]
async fn what_a_record_rests_on_must_be_at_hand() {
    let honest = Honest::new().await;
    let entries = honest.entries(UNDONE).await;
    let environment = entries.iter().find_map(|entry| match &entry.payload().body {
        Body::Attempt(attempt) => Some(attempt.environment),
        _ => None,
    });
    let Environment { config, policy, tools } = environment.unwrap();
    let large = entries.iter().find_map(|entry| match &entry.payload().body {
        Body::Commit(commit) => commit.observation.blob().map(|blob| blob.sha256),
        _ => None,
    });
    let large = large.unwrap();
    for (lost, said) in [
        (config, format!("the configuration {config} is not at hand")),
        (policy, format!("the policy set {policy} is not at hand")),
        (tools, format!("the tool catalogue {tools} is not at hand")),
        (large, format!("the value {large} is not at hand")),
    ] {
        let store = honest.copy(UNDONE, entries.len(), &[lost]).await;
        assert_eq!(failed(play(&store, UNDONE).await), said);
    }
    let store = honest.copy(UNDONE, entries.len(), &[]).await;
    assert_eq!(play(&store, UNDONE).await, Session::Complete);
}

#[tokio::test(start_paused = true)]
async fn what_is_at_hand_must_be_what_it_is_named() {
    let honest = Honest::new().await;
    let entries = honest.entries(UNDONE).await;
    let at = entries.iter().position(|entry| matches!(entry.payload().body, Body::Attempt(_)));
    let at = at.unwrap();
    let Body::Attempt(attempt) = &entries[at].payload().body else { panic!() };
    let honest_one = attempt.environment;
    let other = b"{\"type\":\"something else\"}";
    let digest = Digest::of(other);
    for (environment, said) in [
        (Environment { tools: digest, ..honest_one }, "the tool catalogue"),
        (Environment { config: digest, ..honest_one }, "the configuration"),
        (Environment { policy: digest, ..honest_one }, "the policy set"),
    ] {
        let store = honest.copy(UNDONE, at, &[]).await;
        let body = &entries[at].payload().body;
        for known in in_force(body) {
            let bytes = honest.scene.store.blob(known).await.unwrap().unwrap();
            store.put_blob(&bytes).await.unwrap();
        }
        store.put_blob(other).await.unwrap();
        let mut payload = entries[at].payload().clone();
        payload.body = Body::Attempt(Box::new(Attempt { environment, ..(**attempt).clone() }));
        append(&store, UNDONE, [payload]).await;
        let why = failed(play(&store, UNDONE).await);
        assert!(why.starts_with(&format!("{said} {digest}")), "{why}");
        assert!(!why.contains("is not at hand"), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_registry_must_be_the_one_that_was_decided_on() {
    let honest = Honest::new().await;
    let entries = honest.entries(UNDONE).await;
    // A decision that names an entry of the registry which is not there, or is another one.
    for (ahead, said) in [(true, "is not at hand"), (false, "is another than the decision names")] {
        let session = honest
            .with(UNDONE, ("started", "pay"), |body| {
                let Body::Started(started) = body else { panic!() };
                started.decision = signed(&started.decision, |decision| {
                    let head = decision.registry.as_mut().unwrap();
                    match ahead {
                        true => head.seq += 9,
                        false => head.id = entries[0].id(),
                    }
                });
                let decision = started.decision.id();
                started.permit = signed(&started.permit, |permit| permit.decision = decision);
            })
            .await;
        let why = failed(session);
        assert!(why.contains("of the registry") && why.ends_with(said), "{why}");
    }
    // One that says nothing of the registry, as if nothing were frozen or revoked there.
    let session = honest.with(UNDONE, ("started", "pay"), |body| {
        let Body::Started(started) = body else { panic!() };
        started.decision = signed(&started.decision, |decision| decision.registry = None);
        let decision = started.decision.id();
        started.permit = signed(&started.permit, |permit| permit.decision = decision);
    });
    assert_eq!(failed(session.await), "a decision names no head of its job's registry");
    // What was registered later changes nothing about what was decided before.
    let mut registry = Chain::load(Arc::clone(&honest.scene.store), REGISTRY).await.unwrap();
    let tenant = honest.scene.cast.standing_writ().unwrap().doc().tenant.clone();
    let item = RegistryItem::Limit(TenantLimit { daily: Default::default(), tenant });
    let (owner, now) = (&honest.scene.cast.owner, honest.scene.now());
    registry
        .append(|admission| authority::register(admission, (&item, None), owner, now))
        .await
        .unwrap();
    for trajectory in [EVERYTHING, UNDONE, REFUSED] {
        assert_eq!(play(&honest.scene.store, trajectory).await, Session::Complete);
    }
}

/// A newer program derives what an older one wrote: which one it was is a fact about then.
#[tokio::test(start_paused = true)]
async fn what_another_version_wrote_follows_all_the_same() {
    let honest = Honest::new().await;
    let session = honest
        .with(EVERYTHING, ("commit", "pay"), |body| {
            let Body::Commit(commit) = body else { panic!() };
            commit.compiler = "gesta 0.0.9".to_owned();
        })
        .await;
    assert_eq!(session, Session::Complete);
}

/// An entry in a worker's name that no part of the plan would have written.
#[tokio::test(start_paused = true)]
async fn what_nothing_leads_to_is_found() {
    let honest = Honest::new().await;
    let entries = honest.entries(EVERYTHING).await;
    let undone = honest.entries(UNDONE).await;
    let failed = undone.iter().find(|entry| matches!(entry.payload().body, Body::Failed(_)));
    let Body::Failed(stopped) = failed.unwrap().payload().body.clone() else { panic!() };
    let at = entries.iter().position(|entry| matches!(entry.payload().body, Body::Attempt(_)));
    let until = at.unwrap() + 1;
    let store = honest.copy(EVERYTHING, until, &[]).await;
    let mut payload = entries[until - 1].payload().clone();
    assert!(matches!(payload.by, Author::Worker { .. }));
    let chain = Chain::load(Arc::clone(&store), EVERYTHING).await.unwrap();
    let mut stopped = *stopped;
    stopped.run_hash = chain.state().run_hash().unwrap();
    payload.body = Body::Failed(Box::new(stopped));
    append(&store, EVERYTHING, [payload]).await;
    let found = diverged(play(&store, EVERYTHING).await);
    assert_eq!(found.kind, "failed");
    assert!(found.cause.contains("nothing would have been added here"), "{}", found.cause);
    assert_eq!((found.recorded, found.derived), (None, None));
}
