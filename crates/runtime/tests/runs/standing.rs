//! Standing writs: what all jobs below one use together, however many workers drive them and die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::ResolutionVerdict;
use gesta_core::duration::DurationMs;
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::sample::person;
use gesta_core::signed::Signed;
use gesta_core::writ::{Effect, Writ};
use gesta_runtime::Left;
use gesta_runtime::jobs::{self, Finding, Submitted};
use gesta_runtime::tools::{Catalogue, CatalogueBuilder, FunctionCall, FunctionError};
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::{Account, AccountRow, Draw, Span, Store};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::scene::Scene;
use crate::stage::{Witness, manifest};

const ONE: &str = "job: one\nsteps:\n  - { id: pay, tool: pay }\n";

fn pay(paid: &Witness) -> CatalogueBuilder {
    let witness = paid.clone();
    Catalogue::builder().function(manifest("pay", Effect::External), move |_: FunctionCall| {
        witness.saw("paid");
        async move { Ok::<_, FunctionError>(json!({})) }
    })
}

impl Scene {
    fn standing(&self, calls: u64) -> Signed<Writ> {
        let everything = self.cast.standing_writ().unwrap().doc().clone();
        let budget = Budget { calls: Some(calls), ..Budget::default() };
        Signed::sign(Writ { budget, ..everything }, &self.cast.issuer).unwrap()
    }

    async fn submit_below(&self, standing: &Signed<Writ>, number: u8, file: &str) -> TrajectoryId {
        let mut submission = self.submission(number, file, &[]).await;
        let writ = self.cast.narrow(standing, submission.trajectory).unwrap();
        submission.writs = vec![standing.clone(), writ];
        assert_eq!(jobs::submit(&self.store, &submission, self.now()).await, Ok(Submitted::New));
        submission.trajectory
    }

    async fn used_below(&self, standing: &Signed<Writ>) -> AccountRow {
        self.store.account(&of(standing)).await.unwrap().unwrap()
    }

    pub(crate) async fn end_of(&self, job: TrajectoryId) -> String {
        for _ in 0..20_000 {
            let ran = self.ran(job).await;
            match ran.kinds().last().unwrap().as_str() {
                end @ ("completed" | "failed") => return end.to_owned(),
                _ => tokio::time::advance(Duration::from_millis(50)).await,
            }
        }
        panic!("{job} does not end: {:?}", self.ran(job).await.kinds());
    }
}

fn of(standing: &Signed<Writ>) -> Account {
    Account { tenant: standing.doc().tenant.clone(), span: Span::Writ(standing.id()) }
}

fn calls(calls: u64) -> Amounts {
    Amounts { calls, ..Amounts::default() }
}

/// However many jobs and workers: not one call more than the writ allows, and not one less; and what the
/// account said is in the decisions, so that they can be derived again.
#[tokio::test(start_paused = true)]
async fn jobs_use_exactly_what_the_writ_above_them_has() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    let standing = scene.standing(37);
    let mut submitted = Vec::new();
    for number in 1..=64 {
        submitted.push(scene.submit_below(&standing, number, ONE).await);
    }
    let (stop, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let (worker, stopped) = (scene.worker().await, stopped.clone());
        workers.spawn(async move { worker.run(stopped).await.unwrap() });
    }
    let mut refused = None;
    let mut completed = 0;
    for job in submitted {
        match scene.end_of(job).await.as_str() {
            "completed" => completed += 1,
            _ => refused = Some(job),
        }
    }
    assert_eq!((completed, paid.total()), (37, 37));
    stop.send(true).unwrap();
    while workers.join_next().await.is_some() {}
    let row = scene.used_below(&standing).await;
    assert_eq!((row.used, row.drawn), (calls(37), calls(37)));

    let ran = scene.ran(refused.unwrap()).await;
    let (code, message) = ran.error();
    assert_eq!(code, "budget_exhausted");
    let writ = standing.id();
    let short = format!("writ `{writ}` has 0 of its 37 calls left, and the call needs 1");
    assert!(message.ends_with(&short), "{message}");
    let decision = ran.entries.iter().find_map(|entry| match &entry.payload().body {
        Body::Rejection(rejection) => Some(rejection.decision.doc()),
        _ => None,
    });
    let found = decision.unwrap().trace.last().unwrap().found.clone().unwrap();
    let found: Value = serde_json::from_str(found.as_str()).unwrap();
    assert_eq!(found["writs"][0]["writ"], writ.to_string());
}

/// What a job does not use comes back when it ends, and what it sets aside meanwhile is not given to
/// another.
#[tokio::test(start_paused = true)]
async fn a_writ_above_another_counts_what_is_used_below_both() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    let wide = scene.standing(3);
    let narrow = Writ {
        budget: Budget { calls: Some(2), ..Budget::default() },
        depth: 3,
        key: scene.cast.agent.id(),
        parent: Some(wide.id()),
        ..wide.doc().clone()
    };
    let narrow = Signed::sign(narrow, &scene.cast.agent).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let worker = scene.worker().await;
    let mut ends = Vec::new();
    for (number, below) in [(1, &narrow), (2, &narrow), (3, &narrow), (4, &wide), (5, &wide)] {
        let mut submission = scene.submission(number, ONE, &[]).await;
        let writ = scene.cast.narrow(below, submission.trajectory).unwrap();
        submission.writs = vec![wide.clone()];
        submission.writs.extend((below.id() != wide.id()).then(|| below.clone()));
        submission.writs.push(writ);
        jobs::submit(&scene.store, &submission, scene.now()).await.unwrap();
        worker.run_one(submission.trajectory, stopped.clone()).await.unwrap();
        ends.push(scene.end_of(submission.trajectory).await);
    }
    assert_eq!(ends, ["completed", "completed", "failed", "completed", "failed"]);
    assert_eq!(scene.used_below(&narrow).await.drawn, calls(2));
    assert_eq!(scene.used_below(&wide).await.drawn, calls(3));
}

/// Whoever drove a job died after its end and before a word about it: what it had drawn is settled by
/// whoever lacks something, to what the job's chain says.
#[tokio::test(start_paused = true)]
async fn what_a_dead_worker_held_for_an_ended_job_comes_back() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    let standing = scene.standing(3);
    let (_stop, stopped) = watch::channel(false);
    let worker = scene.worker().await;
    let first = scene.submit_below(&standing, 1, ONE).await;
    worker.run_one(first, stopped.clone()).await.unwrap();
    assert_eq!(scene.end_of(first).await, "completed");
    // As if its last word had never come: it holds everything.
    let limit = standing.doc().budget;
    let held =
        Draw { seq: (1 << 32) + 99, limit, keep: calls(3), used: calls(1), ..Draw::default() };
    let drawn = scene.store.draw(&of(&standing), &first.to_string(), &held).await.unwrap();
    assert_eq!(drawn.left, calls(0));
    tokio::time::advance(Duration::from_secs(6)).await;
    for (number, end) in [(2, "completed"), (3, "completed"), (4, "failed")] {
        let job = scene.submit_below(&standing, number, ONE).await;
        worker.run_one(job, stopped.clone()).await.unwrap();
        assert_eq!(scene.end_of(job).await, end, "{number}");
    }
    assert_eq!(paid.total(), 3);
    assert_eq!(scene.used_below(&standing).await.drawn, calls(3));
}

/// A call whose worker was cut off comes to its end when its job is over, and a person has said that it did not
/// happen: it counts all the same.
#[tokio::test(start_paused = true)]
async fn what_arrives_after_the_end_is_charged_to_the_writ_above() {
    let (cut_off, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (cuts, waits) = (Arc::clone(&cut_off), Arc::clone(&answers));
    let pay = move |_: FunctionCall| {
        cuts.store(true, Ordering::SeqCst);
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            Ok::<_, FunctionError>(json!({}))
        }
    };
    let mut slow = manifest("pay", Effect::External);
    slow.timeout = DurationMs::from_ms(600_000);
    let mut scene = Scene::new(Catalogue::builder().function(slow, pay).build().unwrap()).await;
    scene.options.lease_ms = 5_000;
    let standing = scene.standing(3);
    let job = scene.submit_below(&standing, 1, ONE).await;
    let broken = Arc::clone(&cut_off);
    let fault = move |_| broken.load(Ordering::SeqCst).then_some(Fault::Lost);
    let store = FaultyStore::new(Arc::clone(&scene.store), Box::new(fault));
    let worker = scene.worker_on(Arc::new(store)).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    let first = tokio::spawn(async move { worker.run_one(job, stopped).await.unwrap() });
    while !cut_off.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_secs(10)).await;

    assert_eq!(scene.drive(job).await, Left::Parked, "it is in doubt");
    let (person, key) = (person().unwrap(), &scene.cast.operator);
    jobs::cancel(&scene.store, job, &person, ("stop", false), scene.now()).await.unwrap();
    let (step, verdict) = ("pay".parse().unwrap(), ResolutionVerdict::DidNotHappen);
    let finding = Finding { step, verdict, evidence: Canon::null(), forced: true };
    jobs::resolve(&scene.store, job, &person, key, &finding, scene.now()).await.unwrap();
    assert_eq!(scene.drive(job).await, Left::Ended);
    assert_eq!(scene.used_below(&standing).await.used, calls(0));

    cut_off.store(false, Ordering::SeqCst);
    answers.notify_one();
    assert_eq!(first.await.unwrap(), Left::Lost);
    assert_eq!(scene.ran(job).await.kinds().last().unwrap(), "late_effect");
    let row = scene.used_below(&standing).await;
    assert_eq!((row.used, row.drawn), (calls(1), calls(1)));
}

/// Whatever write fails, lost or unanswered: never a call too many, and none is lost for good.
#[tokio::test(start_paused = true)]
async fn failing_writes_never_make_jobs_exceed_a_writ() {
    for fault in [Fault::Lost, Fault::Unanswered] {
        for at in 0..40 {
            let paid = Witness::default();
            let mut scene = Scene::new(pay(&paid).build().unwrap()).await;
            let standing = scene.standing(3);
            let mut submitted = Vec::new();
            for number in 1..=4 {
                submitted.push(scene.submit_below(&standing, number, ONE).await);
            }
            let faults = Box::new(move |write: u64| (write == at + 3).then_some(fault));
            let inner = Arc::clone(&scene.store);
            let store: Arc<dyn Store> = Arc::new(FaultyStore::new(inner, faults));
            scene.options.lease_ms = 5_000;
            let worker = scene.worker_on(store).await.unwrap();
            let (stop, stopped) = watch::channel(false);
            let running = tokio::spawn(async move { worker.run(stopped).await });
            for job in submitted {
                scene.end_of(job).await;
            }
            stop.send(true).unwrap();
            let _it_may_not_have_been_able_to_say_goodbye = running.await.unwrap();
            assert_eq!(paid.total(), 3, "{fault:?} at {at}");
            let row = scene.used_below(&standing).await;
            assert!(row.used.calls <= 3 && row.drawn.calls <= 3, "{fault:?} at {at}: {row:?}");
        }
    }
}
