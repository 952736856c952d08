//! The same job comes to the same, however many workers have a hand in it, and on whichever store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gesta_core::digest::Digest;
use gesta_core::entry::{Author, Body};
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use gesta_store::Store;
use gesta_store::memory::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::scene::{Scene, now_since};
use crate::stage::{Ran, Witness, manifest};
use crate::stores::{on_postgres, on_sqlite};

const JOBS: u8 = 6;
const JOB: &str = r#"
job: golden
parallel: 4
steps:
  - { id: draw, set: { dice: "${random_int(1, 1000000)}", name: "${uuid()}" } }
  - { id: each, each: "${[1, 2, 3, 4, 5, 6, 7, 8]}", tool: pay, args: { n: "${item + steps.draw.result.dice}" } }
  - { id: flaky, tool: flaky, args: { name: "${steps.draw.result.name}" } }
  - { id: pause, wait: { for: 2s }, needs: [flaky] }
  - { id: last, tool: pay, args: { n: "${size(steps.each.result)}" }, needs: [pause] }
answer: "${steps.each.result}"
"#;

fn tools() -> Catalogue {
    let flaky = Witness::default();
    let slow = async |call: FunctionCall| {
        let took = Duration::from_millis(700);
        let _it_took_a_while = tokio::time::timeout(took, std::future::pending::<()>()).await;
        let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
        Ok::<_, FunctionError>(json!({ "paid": args["n"] }))
    };
    let mut pay = manifest("pay", Effect::External);
    pay.recovery = gesta_core::document::Recovery::Keyed;
    Catalogue::builder()
        .function(pay, slow)
        .function(manifest("flaky", Effect::Read), move |call: FunctionCall| {
            let times = flaky.saw(call.args.as_str());
            async move {
                if times == 1 { Err(FunctionError::retry("again")) } else { Ok(json!("calm")) }
            }
        })
        .build()
        .unwrap()
}

fn run_hash(ran: &Ran) -> Digest {
    match &ran.entries.last().unwrap().payload().body {
        Body::Completed(completed) => completed.run_hash,
        other => panic!("{other:?}"),
    }
}

/// Runs all jobs, with so many workers at a time; each worker is told to stop after a while, and another comes.
/// Says what each job came to, and how many workers had a hand in all of them.
async fn run(store: Arc<dyn Store>, started: Instant, workers: u64) -> (Vec<Digest>, usize) {
    let mut scene = Scene::on(store, tools(), started).await;
    scene.options.grace_ms = 0;
    let mut jobs = Vec::new();
    for number in 1..=JOBS {
        jobs.push(scene.submit(number, JOB, &[]).await);
    }
    let scene = Arc::new(scene);
    let (over, ended) = watch::channel(false);
    let mut crew = tokio::task::JoinSet::new();
    for number in 0..workers {
        let (scene, mut ended) = (Arc::clone(&scene), ended.clone());
        crew.spawn(async move {
            while !*ended.borrow() {
                let worker = scene.worker().await;
                let (stop, stopped) = watch::channel(false);
                let shift = Duration::from_millis(900 + 350 * number);
                let work = worker.run(stopped);
                let relief = async {
                    if workers > 1 {
                        let _over = tokio::time::timeout(shift, ended.wait_for(|over| *over)).await;
                    } else {
                        ended.wait_for(|over| *over).await.unwrap();
                    }
                    stop.send(true).unwrap();
                };
                tokio::join!(work, relief).0.unwrap();
            }
        });
    }
    for job in &jobs {
        while !scene.store.trajectory(*job).await.unwrap().unwrap().summary.status.ended() {
            let a_while = Duration::from_millis(50);
            let _has_passed = tokio::time::timeout(a_while, std::future::pending::<()>()).await;
        }
    }
    over.send(true).unwrap();
    while let Some(done) = crew.join_next().await {
        done.unwrap();
    }
    let mut hands = BTreeSet::new();
    let mut hashes = Vec::new();
    for job in jobs {
        let ran = scene.ran(job).await;
        hands.extend(ran.entries.iter().filter_map(|entry| match &entry.payload().by {
            Author::Worker { worker, .. } => Some((job, worker.clone())),
            Author::Principal(_) => None,
        }));
        hashes.push(run_hash(&ran));
    }
    (hashes, hands.len())
}

/// The two on a store of their own each: the same hashes, and jobs did change hands.
macro_rules! one_and_eight {
    ($open:expr) => {{
        let started = Instant::now();
        let (alone, hands) = run($open(started).await, started, 1).await;
        assert_eq!(hands, usize::from(JOBS));
        assert_eq!(alone.iter().collect::<BTreeSet<_>>().len(), usize::from(JOBS), "seeds differ");
        let started = Instant::now();
        let (together, hands) = run($open(started).await, started, 8).await;
        assert!(hands > usize::from(JOBS), "no job changed hands");
        assert_eq!(together, alone);
        alone
    }};
}

async fn in_memory(started: Instant) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(move || now_since(started))))
}

#[tokio::test(start_paused = true)]
async fn one_worker_and_eight_come_to_the_same_run_hash() {
    one_and_eight!(in_memory);
}

#[tokio::test(start_paused = true)]
async fn one_worker_and_eight_come_to_the_same_on_a_file() {
    let home = tempfile::tempdir().unwrap();
    let stores = std::cell::Cell::new(0);
    let open = async |started| {
        stores.set(stores.get() + 1);
        let place = home.path().join(stores.get().to_string());
        std::fs::create_dir(&place).unwrap();
        on_sqlite(started, &place).await
    };
    let on_file = one_and_eight!(open);
    assert_eq!(on_file, one_and_eight!(in_memory));
}

#[tokio::test(start_paused = true)]
async fn one_worker_and_eight_come_to_the_same_on_a_server() {
    let on_server = one_and_eight!(on_postgres);
    assert_eq!(on_server, one_and_eight!(in_memory));
}
