//! What came into a chain from elsewhere and is told otherwise than it came: a child's end, what verifiers found
//! leads to, what an executor reported.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gesta_core::body::{CheckVerdict, ConfirmationMode, End};
use gesta_core::document::{CallResult, Recovery, ResolutionVerdict, ResolvedBy};
use gesta_core::world::Change;
use gesta_core::writ::Effect;
use gesta_runtime::duration::DurationMs;
use gesta_runtime::tools::{Catalogue, Change as Declared, FunctionCall, FunctionError};
use gesta_runtime::{Left, Spool};
use gesta_store::faulty::{Fault, FaultyStore};
use tokio::sync::watch;

use super::*;
use crate::stage::manifest;

#[tokio::test(start_paused = true)]
async fn another_end_of_a_child_than_its_own_chain_tells_is_found() {
    let mut honest = Honest::new().await;
    let child = TrajectoryId::of_child(EVERYTHING, &"ask".parse().unwrap(), 1);
    let result = ("delegation_result", "ask");
    let told_otherwise = |body: &mut Body| {
        let Body::DelegationResult(result) = body else { panic!() };
        result.answer = Content::Inline(canon(&json!("another")));
    };
    // Nobody can tell where the child is not at hand.
    let session = honest.with(EVERYTHING, result, told_otherwise).await;
    assert_eq!(session, Session::Complete);

    honest.beside = vec![(child, usize::MAX)];
    assert_eq!(honest.with(EVERYTHING, result, |_| ()).await, Session::Complete);
    let (pointer, recorded, _) = told(honest.with(EVERYTHING, result, told_otherwise).await);
    assert_eq!((pointer.as_str(), recorded), ("/body/answer/inline", Some(json!("another"))));
    let cheaper = |body: &mut Body| {
        let Body::DelegationResult(result) = body else { panic!() };
        result.spent = Default::default();
    };
    let found = diverged(honest.with(EVERYTHING, result, cheaper).await);
    assert_eq!((found.pointer.as_str(), found.derived), ("/body/spent/calls", Some(json!(1))));
    assert!(found.cause.contains("the child's own chain"), "{}", found.cause);
    let in_vain = |body: &mut Body| {
        let Body::DelegationResult(result) = body else { panic!() };
        result.end = End::Failed;
    };
    let (pointer, recorded, derived) = told(honest.with(EVERYTHING, result, in_vain).await);
    assert_eq!(pointer, "/body/end");
    assert_eq!((recorded, derived), (Some(json!("failed")), Some(json!("completed"))));

    // Before the child had ended it had nothing to tell.
    let early = honest.entries(child).await[1].head();
    let session = honest.with(EVERYTHING, result, |body| {
        let Body::DelegationResult(result) = body else { panic!() };
        result.head = early;
    });
    assert!(diverged(session.await).cause.contains("nothing would have been added here"));
    // A child of which only a part is at hand tells nothing either way.
    honest.beside = vec![(child, 2)];
    let why = failed(honest.with(EVERYTHING, result, |_| ()).await);
    assert!(why.contains(" is at hand up to entry 1, and its parent tells of entry "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn what_verifiers_found_leads_to_what_the_plan_says() {
    let (honest, jobs) = Honest::aftermath().await;
    let entries = honest.entries(jobs[0]).await;
    let parks = entries.iter().find_map(|entry| match &entry.payload().body {
        Body::Confirmation(found) if found.mode == ConfirmationMode::Human => {
            let differs = found.checks.iter().any(|it| it.verdict == CheckVerdict::Mismatch);
            differs.then(|| found.step.to_string())
        }
        _ => None,
    });
    let parks = parks.unwrap();
    let confirmation = ("confirmation", parks.as_str());
    assert_eq!(honest.with(jobs[0], confirmation, |_| ()).await, Session::Complete);
    // As if nobody had to be asked.
    let waved_through = |body: &mut Body| {
        let Body::Confirmation(found) = body else { panic!() };
        found.mode = ConfirmationMode::Warn;
    };
    let found = diverged(honest.with(jobs[0], confirmation, waved_through).await);
    assert_eq!(found.pointer, "/body/mode");
    assert_eq!((found.recorded, found.derived), (Some(json!("warn")), Some(json!("human"))));
    assert!(found.cause.contains("what is said of the resource"), "{}", found.cause);
    let by_another = |body: &mut Body| {
        let Body::Confirmation(found) = body else { panic!() };
        found.checks[0].verifier = "somebody".to_owned();
    };
    let (pointer, recorded, derived) = told(honest.with(jobs[0], confirmation, by_another).await);
    assert_eq!(pointer, "/body/checks/0/verifier");
    assert_eq!((recorded, derived), (Some(json!("somebody")), Some(json!("library"))));
    // As if there were nothing to look at, or something else.
    let overlooked = |body: &mut Body| {
        let Body::Confirmation(found) = body else { panic!() };
        found.checks.clear();
    };
    diverged(honest.with(jobs[0], confirmation, overlooked).await);
    let elsewhere = |body: &mut Body| {
        let Body::Confirmation(found) = body else { panic!() };
        found.checks[0].resource.id = "b".into();
    };
    diverged(honest.with(jobs[0], confirmation, elsewhere).await);
}

/// A worker makes a payment and does not reach the store any more; its report is spooled.
struct Cut {
    scene: Scene,
    job: TrajectoryId,
    spooled: tempfile::TempDir,
}

const PAY: &str = "job: pay\nsteps:\n  - { id: pay, tool: pay, args: { n: 1 } }\n";
impl Cut {
    async fn off(recovery: Recovery) -> Self {
        let gone = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&gone);
        let (type_, id) = ("payment".parse().unwrap(), "string(args.n)".to_owned());
        let change = Declared { type_, id, value: None, retract: false };
        let mut pay = manifest("pay", Effect::External);
        (pay.recovery, pay.changes) = (recovery, vec![change]);
        pay.timeout = DurationMs::from_ms(5_000);
        let tools = Catalogue::builder()
            .function(pay, move |_: FunctionCall| {
                cut.store(true, Ordering::SeqCst);
                async { Ok::<_, FunctionError>(json!({ "paid": 1 })) }
            })
            .build()
            .unwrap();
        let scene = Scene::new(tools).await;
        let job = scene.submit(1, PAY, &[]).await;
        let spooled = tempfile::tempdir().unwrap();
        let fault = move |_| gone.load(Ordering::SeqCst).then_some(Fault::Lost);
        let store: Arc<dyn Store> =
            Arc::new(FaultyStore::new(Arc::clone(&scene.store), Box::new(fault)));
        let cut = Self { scene, job, spooled };
        let worker = cut.scene.worker_with(store, cut.spool()).await.unwrap();
        let (_stop, stopped) = watch::channel(false);
        assert_eq!(worker.run_one(job, stopped).await.unwrap(), Left::Lost);
        drop(worker);
        cut
    }

    fn spool(&self) -> Option<Spool> {
        Some(Spool::new(self.spooled.path().join("spool")))
    }

    /// Brings what was spooled to the store, with a worker that drives nothing.
    async fn deliver(&self) {
        let store = Arc::clone(&self.scene.store);
        let worker = self.scene.worker_with(store, self.spool()).await.unwrap();
        worker.retire().await.unwrap();
    }

    /// What is in the inbox was made by an executor that saw another world.
    async fn of_another_world(&self) {
        let reports = self.scene.store.effects(self.job).await.unwrap();
        let [report] = &reports[..] else { panic!("{reports:?}") };
        let changed = signed(report, |report| {
            let CallResult::Succeeded(settlement) = &mut report.result else { panic!() };
            let Change::Create { resource, value, .. } = settlement.delta.0.remove(0) else {
                panic!()
            };
            let replaced = Change::Replace { expected: 9, external: None, resource, value };
            settlement.delta.0.push(replaced);
        });
        self.scene.store.drop_effect(report).await.unwrap();
        self.scene.store.put_effect(&changed).await.unwrap();
    }

    async fn count(&self, kind: &str) -> usize {
        let stored = self.scene.store.entries(self.job, 0, usize::MAX).await.unwrap();
        let entries = stored.iter().map(|stored| Entry::from_bytes(&stored.bytes).unwrap());
        entries.filter(|entry| entry.kind().to_string() == kind).count()
    }

    /// Lets one worker work until there are so many entries of a kind, and stop.
    async fn work_until(&self, kind: &str, count: usize) {
        let worker = self.scene.worker().await;
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(async move { worker.run(stopped).await });
        while self.count(kind).await < count {
            let time = Duration::from_millis(50);
            let _passed = tokio::time::timeout(time, std::future::pending::<()>()).await;
            assert!(self.scene.started.elapsed() < Duration::from_secs(1_200), "no {kind}");
        }
        stop.send(true).unwrap();
        working.await.unwrap().unwrap();
    }

    async fn honest(self) -> (Honest, TrajectoryId) {
        let job = self.job;
        // What is honest replays.
        let ran = self.scene.ran(job).await;
        let kinds: BTreeSet<String> = ran.kinds().into_iter().collect();
        assert!(kinds.contains("in_doubt") && kinds.contains("resolution"), "{kinds:?}");
        let started = self.scene.started;
        (Honest { scene: self.scene, started, beside: Vec::new() }, job)
    }
}

/// The resolution as if the executor had reported something else.
fn denied(body: &mut Body) {
    let Body::Resolution(resolution) = body else { panic!() };
    assert_eq!(resolution.statement.doc().source, ResolvedBy::Inbox);
    resolution.statement = signed(&resolution.statement, |statement| {
        statement.verdict = ResolutionVerdict::GiveUp;
    });
}

#[tokio::test(start_paused = true)]
async fn a_doubt_that_a_report_has_ended_ends_as_it_was_reported() {
    let cut = Cut::off(Recovery::Never).await;
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(cut.scene.drive(cut.job).await, Left::Parked, "nobody knows");
    cut.deliver().await;
    assert_eq!(cut.scene.drive(cut.job).await, Left::Ended);
    let (honest, job) = cut.honest().await;
    assert_eq!(honest.with(job, ("resolution", "pay"), |_| ()).await, Session::Complete);
    let found = diverged(honest.with(job, ("resolution", "pay"), denied).await);
    assert!(found.pointer.starts_with("/body/statement/doc/verdict"), "{}", found.pointer);
    assert!(found.cause.contains("what the executor reported"), "{}", found.cause);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_that_a_report_opens_follows_from_it() {
    // What it changed cannot be recorded: the world is not the one that it was made in.
    let cut = Cut::off(Recovery::Keyed).await;
    cut.deliver().await;
    cut.of_another_world().await;
    assert_eq!(cut.scene.drive(cut.job).await, Left::Ended);
    Box::pin(opened_by(cut, "delta_does_not_apply")).await;

    // It was to be sent again, and is known to have arrived.
    let cut = Cut::off(Recovery::Keyed).await;
    tokio::time::advance(Duration::from_secs(600)).await;
    cut.work_until("failure", 1).await;
    cut.deliver().await;
    assert_eq!(cut.scene.drive(cut.job).await, Left::Ended);
    Box::pin(opened_by(cut, "reported")).await;
}

/// A doubt with this code is derived, and another in its place is found.
async fn opened_by(cut: Cut, code: &str) {
    let (honest, job) = cut.honest().await;
    let entries = honest.entries(job).await;
    let known = entries.iter().find_map(|entry| match &entry.payload().body {
        Body::InDoubt(doubt) => Some(doubt.known.code.clone()),
        _ => None,
    });
    assert_eq!(known.as_deref(), Some(code));
    let session = play(&honest.scene.store, job).await;
    assert_eq!(session, Session::Complete);
    let found = diverged(honest.with(job, ("resolution", "pay"), denied).await);
    assert!(found.pointer.starts_with("/body/statement/doc/verdict"), "{}", found.pointer);

    // With words of its own, and with no report behind it.
    let at = entries.iter().position(|it| matches!(it.payload().body, Body::InDoubt(_))).unwrap();
    let store = honest.copy(job, at, &[]).await;
    let mut doubt = entries[at].payload().clone();
    let Body::InDoubt(body) = &mut doubt.body else { panic!() };
    body.known.message = "somebody says so".to_owned();
    append(&store, job, [doubt]).await;
    let chain = Chain::load(Arc::clone(&store), job).await.unwrap();
    let head = chain.state().head().unwrap().id;
    let mut answer = entries[at + 1].payload().clone();
    let Body::Resolution(resolution) = &mut answer.body else { panic!() };
    resolution.statement = signed(&resolution.statement, |statement| statement.doubt = head);
    append(&store, job, [answer]).await;
    let (pointer, recorded, _) = told(play(&store, job).await);
    assert_eq!(pointer, "/body/known/message");
    assert_eq!(recorded, Some(json!("somebody says so")));
}
