//! Standing writs: what all jobs below one use together, however many workers drive them and die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::{EffectReport, ResolutionVerdict};
use gesta_core::duration::DurationMs;
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::Topic;
use gesta_core::sample::person;
use gesta_core::signed::Signed;
use gesta_core::state::State;
use gesta_core::writ::{Effect, Writ};
use gesta_runtime::jobs::{self, Finding, Submitted};
use gesta_runtime::tools::{Catalogue, CatalogueBuilder, FunctionCall, FunctionError};
use gesta_runtime::{Left, Spool};
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::{Account, AccountRow, Draw, Span, Store};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

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

/// A call whose worker is cut off from the store while it is under way.
struct CutOff {
    scene: Scene,
    standing: Signed<Writ>,
    job: TrajectoryId,
    /// How many of the worker's writes still reach the store.
    reach: Arc<AtomicU64>,
    /// Rung when the call is to come to its end.
    answers: Arc<Notify>,
    driven: JoinHandle<Left>,
}

impl CutOff {
    /// The first call does not come back until it is told to; the others do at once.
    async fn begin(file: &str, spool: Option<Spool>) -> Self {
        let reach = Arc::new(AtomicU64::new(u64::MAX));
        let (answers, called) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (cuts, waits) = (Arc::clone(&reach), Arc::clone(&answers));
        let pay = move |_: FunctionCall| {
            let first = !called.swap(true, Ordering::SeqCst);
            if first {
                cuts.store(0, Ordering::SeqCst);
            }
            let waits = Arc::clone(&waits);
            async move {
                if first {
                    waits.notified().await;
                }
                Ok::<_, FunctionError>(json!({}))
            }
        };
        let mut slow = manifest("pay", Effect::External);
        slow.timeout = DurationMs::from_ms(600_000);
        let mut scene = Scene::new(Catalogue::builder().function(slow, pay).build().unwrap()).await;
        scene.options.lease_ms = 5_000;
        let standing = scene.standing(3);
        let job = scene.submit_below(&standing, 1, file).await;
        let worker = scene.worker_with(scene.reaching(&reach), spool).await.unwrap();
        let (_stop, stopped) = watch::channel(false);
        let driven = tokio::spawn(async move { worker.run_one(job, stopped).await.unwrap() });
        while reach.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(scene.drive(job).await, Left::Parked, "it is in doubt");
        Self { scene, standing, job, reach, answers, driven }
    }

    /// A person says that it did not happen.
    async fn deny(&self) {
        let (step, verdict) = ("pay".parse().unwrap(), ResolutionVerdict::DidNotHappen);
        let finding = Finding { step, verdict, evidence: Canon::null(), forced: true };
        let (person, key) = (person().unwrap(), &self.scene.cast.operator);
        let (store, now) = (&self.scene.store, self.scene.now());
        jobs::resolve(store, self.job, &person, key, &finding, now).await.unwrap();
    }

    /// A person says that it did not happen, and that the job is to end.
    async fn cancel(&self) {
        let (store, now) = (&self.scene.store, self.scene.now());
        jobs::cancel(store, self.job, &person().unwrap(), ("stop", false), now).await.unwrap();
        self.deny().await;
    }

    /// The same, and it ends.
    async fn end(&self) {
        self.cancel().await;
        assert_eq!(self.scene.drive(self.job).await, Left::Ended);
        assert_eq!(self.scene.used_below(&self.standing).await.used, calls(0));
    }

    /// The call comes to its end, and so many writes of its worker reach the store.
    async fn answer(&mut self, reach: u64) {
        self.reach.store(reach, Ordering::SeqCst);
        self.answers.notify_one();
        assert_eq!((&mut self.driven).await.unwrap(), Left::Lost);
    }

    async fn reported(&self) -> usize {
        self.scene.store.effects(self.job).await.unwrap().len()
    }

    /// What the chain says was used.
    async fn in_the_chain(&self) -> Amounts {
        let mut state = State::new(self.job);
        for entry in self.scene.ran(self.job).await.entries {
            state.apply(&entry).unwrap();
        }
        let used = state.spent().plus(state.reserved());
        calls(used.calls)
    }
}

impl Scene {
    /// The store, for one whose writes reach it so many times more.
    fn reaching(&self, reach: &Arc<AtomicU64>) -> Arc<dyn Store> {
        let reach = Arc::clone(reach);
        let fault = move |_| {
            let left = |left: u64| left.checked_sub(1);
            reach.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).err().map(|_| Fault::Lost)
        };
        Arc::new(FaultyStore::new(Arc::clone(&self.store), Box::new(fault)))
    }
}

/// A call whose worker was cut off comes to its end when its job is over, and a person has said that it did not
/// happen: it counts all the same.
#[tokio::test(start_paused = true)]
async fn what_arrives_after_the_end_is_charged_to_the_writ_above() {
    let mut cut = CutOff::begin(ONE, None).await;
    cut.end().await;
    cut.answer(u64::MAX).await;
    assert_eq!(cut.scene.ran(cut.job).await.kinds().last().unwrap(), "late_effect");
    let row = cut.scene.used_below(&cut.standing).await;
    assert_eq!((row.used, row.drawn), (calls(1), calls(1)));
    assert_eq!(cut.reported().await, 0);
}

/// Its worker dies once the report is in the inbox, or once the chain has it: the next worker takes it up,
/// tells the account, and only then is it done with. Whoever comes after that changes nothing.
#[tokio::test(start_paused = true)]
async fn a_charge_that_died_with_its_worker_is_made_by_the_next() {
    for (reach, entries) in [(1, 0), (2, 1), (3, 1)] {
        let mut cut = CutOff::begin(ONE, None).await;
        cut.end().await;
        cut.answer(reach).await;
        let late = |kinds: Vec<String>| kinds.iter().filter(|kind| *kind == "late_effect").count();
        assert_eq!(late(cut.scene.ran(cut.job).await.kinds()), entries, "{reach}");
        assert_eq!(cut.reported().await, 1, "{reach}");
        for _ in 0..2 {
            drop(cut.scene.worker().await);
            assert_eq!(late(cut.scene.ran(cut.job).await.kinds()), 1, "{reach}");
            let row = cut.scene.used_below(&cut.standing).await;
            assert_eq!((row.used, row.drawn), (calls(1), calls(1)), "{reach}");
            assert_eq!(cut.reported().await, 0, "{reach}");
        }
        let told = cut.scene.store.notices(9).await.unwrap();
        let told = told.iter().filter(|row| row.notice.topic == Topic::LateEffect);
        assert_eq!(told.count(), 1, "{reach}");
    }
}

/// What was spooled is delivered when its job is over: it becomes a late effect, is charged and told of.
#[tokio::test(start_paused = true)]
async fn what_was_spooled_is_taken_up_after_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let spool = || Some(Spool::new(directory.path().join("spool")));
    let mut cut = CutOff::begin(ONE, spool()).await;
    cut.end().await;
    cut.answer(0).await;
    assert_eq!(cut.reported().await, 0, "the store was not reached");
    let worker = cut.scene.worker_with(Arc::clone(&cut.scene.store), spool()).await.unwrap();
    assert_eq!(cut.scene.ran(cut.job).await.kinds().last().unwrap(), "late_effect");
    assert_eq!(cut.scene.used_below(&cut.standing).await.used, calls(1));
    assert_eq!(cut.reported().await, 0);
    drop(worker);
}

/// The same while its job waits for somebody who knows: nobody drives it, and the report ends the doubt.
#[tokio::test(start_paused = true)]
async fn what_was_spooled_ends_a_doubt_that_nobody_drives() {
    let directory = tempfile::tempdir().unwrap();
    let spool = || Some(Spool::new(directory.path().join("spool")));
    let mut cut = CutOff::begin(ONE, spool()).await;
    cut.answer(0).await;
    let worker = cut.scene.worker_with(Arc::clone(&cut.scene.store), spool()).await.unwrap();
    assert_eq!(cut.scene.ran(cut.job).await.kinds().last().unwrap(), "resolution");
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(async move { worker.run(stopped).await.unwrap() });
    assert_eq!(cut.scene.end_of(cut.job).await, "completed");
    stop.send(true).unwrap();
    running.await.unwrap();
    assert_eq!(cut.scene.used_below(&cut.standing).await.used, calls(1));
}

/// What nobody signed who may is not taken up, and stays where it can be looked at.
#[tokio::test(start_paused = true)]
async fn a_report_that_no_executor_signed_is_left_where_it_is() {
    let mut cut = CutOff::begin(ONE, None).await;
    cut.end().await;
    cut.answer(1).await;
    let report = cut.scene.store.effects(cut.job).await.unwrap().remove(0);
    cut.scene.store.drop_effect(&report).await.unwrap();
    let stranger = PrivateKey::from_seed(&[0xee; 32]);
    let doc = EffectReport { key: stranger.id(), ..report.doc().clone() };
    let forged = Signed::sign(doc, &stranger).unwrap();
    cut.scene.store.put_effect(&forged).await.unwrap();
    drop(cut.scene.worker().await);
    assert_eq!(cut.scene.ran(cut.job).await.kinds().last().unwrap(), "cancelled");
    assert_eq!(cut.reported().await, 1);
}

/// A late effect is taken up by whoever drives the job to its end and dies at any of its writes: in the end the
/// account has what the chain has.
#[tokio::test(start_paused = true)]
async fn an_owner_that_dies_leaves_no_charge_behind() {
    for reach in 0..10 {
        let mut cut = CutOff::begin(ONE, None).await;
        cut.cancel().await;
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let worker = cut.scene.worker_with(cut.scene.reaching(&left), None).await.unwrap();
        cut.answer(1).await;
        left.store(reach, Ordering::SeqCst);
        let (_stop, stopped) = watch::channel(false);
        let _whatever_it_came_to = worker.run_one(cut.job, stopped).await;
        drop(worker);
        tokio::time::advance(Duration::from_secs(10)).await;
        cut.scene.drive(cut.job).await;
        drop(cut.scene.worker().await);
        assert_eq!(cut.in_the_chain().await, calls(1), "{reach}");
        let row = cut.scene.used_below(&cut.standing).await;
        assert_eq!((row.used, row.drawn), (calls(1), calls(1)), "{reach}");
        assert_eq!(cut.reported().await, 0, "{reach}");
    }
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
