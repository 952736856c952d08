//! Tenant budgets: what is set aside, settled, refunded and kept; days; workers that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::{RegistryItem, TenantLimit};
use gesta_core::entry::{Author, Body};
use gesta_core::sample::person;
use gesta_core::time::Day;
use gesta_core::writ::Effect;
use gesta_runtime::Left;
use gesta_runtime::tools::{Catalogue, CatalogueBuilder, FunctionCall, FunctionError, Returned};
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::{AccountRow, Chain, Store};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::scene::{REGISTRY, Scene};
use crate::stage::{Ran, Witness, manifest};

const ONE: &str = "job: one\nsteps:\n  - { id: pay, tool: pay }\n";

/// A tool that counts its calls and costs one call and a hundred millionths, as it says.
fn pay(paid: &Witness) -> CatalogueBuilder {
    let witness = paid.clone();
    let mut manifest = manifest("pay", Effect::External);
    manifest.cost.money_micros = 100;
    Catalogue::builder().function(manifest, move |_: FunctionCall| {
        witness.saw("paid");
        async move {
            tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
            Ok::<_, FunctionError>(json!({}))
        }
    })
}

impl Scene {
    /// Limits what the jobs' tenant may use in a day.
    async fn limit(&self, daily: Budget) {
        let tenant = self.tenant();
        let mut chain = Chain::load(Arc::clone(&self.store), REGISTRY).await.unwrap();
        let (by, now) = (Author::Principal(person().unwrap()), self.now());
        chain
            .append(|admission| {
                let item = RegistryItem::Limit(TenantLimit { daily, tenant: tenant.clone() });
                let body = self.cast.registration(admission.state(), item, now).unwrap();
                admission.push(now, by.clone(), body).map(drop)?;
                Ok(())
            })
            .await
            .unwrap();
    }

    fn tenant(&self) -> gesta_core::ids::Tenant {
        self.cast.standing_writ().unwrap().doc().tenant.clone()
    }

    async fn account(&self) -> AccountRow {
        let rows = self.store.accounts(Some(&self.tenant()), Day(0)).await.unwrap();
        rows.into_iter().next().unwrap()
    }
}

fn calls(calls: u64) -> Budget {
    Budget { calls: Some(calls), ..Budget::default() }
}

fn stage(ran: &Ran, kind: &str) -> Value {
    let decision = ran.entries.iter().rev().find_map(|entry| match &entry.payload().body {
        Body::Started(started) if kind == "started" => Some(started.decision.doc()),
        Body::Rejection(rejection) if kind == "rejection" => Some(rejection.decision.doc()),
        _ => None,
    });
    let stage = decision.unwrap().trace.iter().find(|stage| stage.stage == "budget").unwrap();
    serde_json::from_str(stage.found.as_ref().unwrap().as_str()).unwrap()
}

/// The call that does not fit is refused, and the refusal names tenant, day and what is left; all that
/// the decision rests on and the chain does not hold is in its trace.
#[tokio::test(start_paused = true)]
async fn the_call_that_does_not_fit_is_refused() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    scene.limit(Budget { money_micros: Some(250), ..calls(9) }).await;
    let steps = "job: x\nsteps:\n  - { id: a, tool: pay }\n  - { id: b, tool: pay, needs: [a] }\n  - { id: c, tool: pay, needs: [b] }\n";
    let (left, ran) = scene.run(steps, &[]).await;
    assert_eq!((left, paid.total()), (Left::Ended, 2));
    let (code, message) = ran.error();
    assert_eq!(code, "budget_exhausted");
    let (tenant, day) = (scene.tenant(), scene.now().day());
    let short = format!(
        "tenant `{tenant}` has 50 of its 250 money_micros of {day} left, and the call needs 100"
    );
    assert!(message.ends_with(&short), "{message}");
    let found = stage(&ran, "rejection");
    assert_eq!(found["exceeded"], "money_micros");
    assert_eq!(found["account"]["limit"], json!({ "calls": 9, "money_micros": 250 }));
    assert_eq!(found["account"]["left"]["money_micros"], 50);
    let allowed = stage(&ran, "started");
    assert_eq!(allowed["account"]["reserve"], json!({ "calls": 1, "money_micros": 100 }));
    let row = scene.account().await;
    assert_eq!((row.used.calls, row.used.money_micros), (2, 200));
    assert_eq!(row.drawn, row.used, "what was not needed was given back");
}

/// However many jobs and workers: not one call more than allowed, and not one less.
#[tokio::test(start_paused = true)]
async fn many_jobs_use_exactly_what_there_is() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    scene.limit(calls(37)).await;
    let mut jobs = Vec::new();
    for number in 1..=64 {
        jobs.push(scene.submit(number, ONE, &[]).await);
    }
    let (stop, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let (worker, stopped) = (scene.worker().await, stopped.clone());
        workers.spawn(async move { worker.run(stopped).await.unwrap() });
    }
    let (mut completed, mut refused) = (0, 0);
    for job in jobs {
        let ran = loop {
            let ran = scene.ran(job).await;
            match ran.kinds().last().unwrap().as_str() {
                "completed" | "failed" => break ran,
                _ => tokio::time::advance(Duration::from_millis(50)).await,
            }
        };
        completed += ran.count("completed");
        refused += ran.count("rejection");
    }
    assert_eq!((completed, refused, paid.total()), (37, 27, 37));
    stop.send(true).unwrap();
    while workers.join_next().await.is_some() {}
    let row = scene.account().await;
    assert_eq!((row.used.calls, row.drawn.calls, row.reached), (37, 37, 80));
}

/// What costs more or less than was set aside is settled with what it cost; what did not happen costs
/// nothing; what nobody knows about keeps what was set aside for it.
#[tokio::test(start_paused = true)]
async fn calls_are_settled_refunded_or_kept() {
    let tried = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&tried);
    let mut priced = manifest("priced", Effect::Read);
    priced.cost.tokens = 50;
    let mut lost = manifest("lost", Effect::Read);
    lost.cost.tokens = 7;
    let tools = Catalogue::builder()
        .function(priced, async |call: FunctionCall| {
            let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
            let tokens = args["tokens"].as_u64().unwrap();
            let cost = Amounts { tokens, ..Amounts::ONE_CALL };
            Ok::<_, FunctionError>(Returned { value: json!({}), cost: Some(cost) })
        })
        .function(manifest("flaky", Effect::External), move |_: FunctionCall| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    return Err(FunctionError::retry("later"));
                }
                Ok(json!({}))
            }
        })
        .function(lost, async |_: FunctionCall| -> Result<Value, FunctionError> {
            Err(FunctionError::unknown("gone"))
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    scene.limit(Budget { tokens: Some(10_000), ..calls(100) }).await;
    let steps = "job: x\nsteps:\n  - { id: more, tool: priced, args: { tokens: 80 } }\n  - { id: less, tool: priced, args: { tokens: 3 }, needs: [more] }\n  - { id: flaky, tool: flaky, needs: [less] }\n  - { id: lost, tool: lost, needs: [flaky] }\n";
    let (_, ran) = scene.run(steps, &[]).await;
    assert_eq!((ran.count("commit"), tried.load(Ordering::SeqCst)), (3, 2), "{:?}", ran.kinds());
    let row = scene.account().await;
    // A read of unknown outcome is sent three times, and each may have cost something.
    assert_eq!((row.used.tokens, row.used.calls), (80 + 3 + 3 * 7, 6));
    assert_eq!(row.drawn, row.used);
}

/// A call counts towards the day on which it was decided, however long it takes.
#[tokio::test(start_paused = true)]
async fn a_call_counts_towards_the_day_on_which_it_began() {
    let mut slow = manifest("slow", Effect::External);
    slow.timeout = "2h".parse().unwrap();
    let tools = Catalogue::builder()
        .function(slow, async |_: FunctionCall| {
            tokio::time::sleep_until(Instant::now() + Duration::from_secs(3600)).await;
            Ok::<_, FunctionError>(json!({}))
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    scene.limit(calls(1)).await;
    let first = scene.now().day();
    let midnight = Day(first.0 + 1).begins().0 - scene.now().0;
    tokio::time::advance(Duration::from_millis(midnight - 60_000)).await;
    let steps = "job: x\nsteps:\n  - { id: a, tool: slow }\n  - { id: b, tool: slow, needs: [a] }\n  - { id: c, tool: slow, needs: [b] }\n";
    let (_, ran) = scene.run(steps, &[]).await;
    assert_eq!((ran.count("commit"), ran.count("rejection")), (2, 1), "{:?}", ran.kinds());
    let rows = scene.store.accounts(None, Day(0)).await.unwrap();
    let used: Vec<_> =
        rows.iter().map(|row| (row.account.day().unwrap().0, row.used.calls)).collect();
    assert_eq!(used, [(first.0 + 1, 1), (first.0, 1)]);
}

/// A raised limit lets calls pass again; a lowered one holds although a slice was drawn under the
/// old one.
#[tokio::test(start_paused = true)]
async fn a_changed_limit_counts_at_once() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    scene.limit(calls(1000)).await;
    let worker = scene.worker().await;
    let (_stop, stopped) = watch::channel(false);
    let run = async |number| {
        let job = scene.submit(number, ONE, &[]).await;
        worker.run_one(job, stopped.clone()).await.unwrap();
        scene.ran(job).await.kinds().last().unwrap().clone()
    };
    assert_eq!([run(1).await, run(2).await], ["completed", "completed"]);
    scene.limit(calls(2)).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(run(3).await, "failed");
    scene.limit(calls(3)).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!([run(4).await, run(5).await], ["completed", "failed"]);
    assert_eq!(paid.total(), 3);
    worker.retire().await.unwrap();
}

/// What a lost worker had drawn stays drawn: the others get the rest and never more.
#[tokio::test(start_paused = true)]
async fn a_lost_workers_slice_is_never_used_twice() {
    let paid = Witness::default();
    let scene = Scene::new(pay(&paid).build().unwrap()).await;
    scene.limit(calls(20)).await;
    let lost = scene.worker().await;
    let job = scene.submit(1, ONE, &[]).await;
    let (_stop, stopped) = watch::channel(false);
    lost.run_one(job, stopped.clone()).await.unwrap();
    drop(lost);
    let drawn = scene.account().await.drawn.calls;
    assert!(drawn >= 1, "{drawn}");
    let worker = scene.worker().await;
    let mut done = 1;
    for number in 2..=30 {
        let job = scene.submit(number, ONE, &[]).await;
        worker.run_one(job, stopped.clone()).await.unwrap();
        done += scene.ran(job).await.count("completed") as u64;
    }
    worker.retire().await.unwrap();
    assert_eq!((done, paid.total()), (20 - drawn + 1, 20 - drawn + 1));
}

/// Whatever write fails, lost or unanswered: never a call too many, and none forgotten.
#[tokio::test(start_paused = true)]
async fn failing_writes_never_make_a_tenant_exceed() {
    for fault in [Fault::Lost, Fault::Unanswered] {
        for at in 0..40 {
            let paid = Witness::default();
            let mut scene = Scene::new(pay(&paid).build().unwrap()).await;
            scene.limit(calls(3)).await;
            for number in 1..=4 {
                scene.submit(number, ONE, &[]).await;
            }
            let faults = Box::new(move |write: u64| (write == at + 3).then_some(fault));
            let inner = Arc::clone(&scene.store);
            let store: Arc<dyn Store> = Arc::new(FaultyStore::new(inner, faults));
            scene.options.lease_ms = 5_000;
            let worker = scene.worker_on(store).await.unwrap();
            let (stop, stopped) = watch::channel(false);
            let running = tokio::spawn(async move { worker.run(stopped).await });
            let mut ended = 0;
            while ended < 4 {
                tokio::time::advance(Duration::from_millis(100)).await;
                ended = 0;
                for number in 1..=4 {
                    let id = gesta_core::ids::TrajectoryId::from_bytes([number; 16]);
                    let row = scene.store.trajectory(id).await.unwrap().unwrap();
                    ended += u32::from(row.summary.status.ended());
                }
            }
            stop.send(true).unwrap();
            let _it_may_not_have_been_able_to_say_goodbye = running.await.unwrap();
            assert_eq!(paid.total(), 3, "{fault:?} at {at}");
            let row = scene.account().await;
            assert!(row.used.calls <= 3 && row.drawn.calls <= 3, "{fault:?} at {at}: {row:?}");
        }
    }
}
