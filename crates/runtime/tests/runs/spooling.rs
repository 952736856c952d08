//! What was seen while the store could not be reached is not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use gesta_runtime::{Left, Spool};
use gesta_store::Store;
use gesta_store::faulty::{Fault, FaultyStore};
use serde_json::json;
use tokio::sync::watch;

use crate::scene::Scene;
use crate::stage::{Witness, manifest};

/// More than an entry holds inline.
const LARGE: usize = 200_000;

#[tokio::test(start_paused = true)]
async fn a_large_result_survives_a_store_that_is_gone_for_longer_than_the_lease() {
    let (paid, gone) = (Witness::default(), Arc::new(AtomicBool::new(false)));
    let (witness, cut) = (paid.clone(), Arc::clone(&gone));
    let tools = Catalogue::builder()
        .function(manifest("pay", Effect::External), move |call: FunctionCall| {
            witness.saw(&call.key);
            cut.store(true, Ordering::SeqCst);
            async { Ok::<_, FunctionError>(json!({ "receipt": "x".repeat(LARGE) })) }
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let job = "job: pay\nsteps:\n  - { id: pay, tool: pay, args: {} }\nanswer: ${size(steps.pay.result.receipt)}\n";
    let trajectory = scene.submit(1, job, &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let spool = Spool::new(directory.path().join("spool"));
    let spooled = || std::fs::read_dir(directory.path().join("spool")).unwrap().count();

    let broken = Arc::clone(&gone);
    let fault = move |_| broken.load(Ordering::SeqCst).then_some(Fault::Lost);
    let store: Arc<dyn Store> =
        Arc::new(FaultyStore::new(Arc::clone(&scene.store), Box::new(fault)));
    let worker = scene.worker_with(store, Some(spool.clone())).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    assert_eq!(worker.run_one(trajectory, stopped).await.unwrap(), Left::Lost);
    drop(worker);
    assert_eq!(spooled(), 2, "the report and the blob that it names");

    gone.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(1)).await; // past the lease by the store's clock, too
    let worker = scene.worker_with(Arc::clone(&scene.store), Some(spool)).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    assert_eq!(worker.run_one(trajectory, stopped).await.unwrap(), Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!((ran.answer().as_str(), paid.total()), ("200000", 1), "{:?}", ran.kinds());
    assert_eq!(spooled(), 0);
}

/// The store is back before the worker is gone: nobody has to start another, and nobody is asked.
#[tokio::test(start_paused = true)]
async fn a_living_worker_ends_a_doubt_with_what_it_spooled() {
    let (paid, gone) = (Witness::default(), Arc::new(AtomicBool::new(false)));
    let (witness, cut) = (paid.clone(), Arc::clone(&gone));
    let tools = Catalogue::builder()
        .function(manifest("pay", Effect::External), move |call: FunctionCall| {
            witness.saw(&call.key);
            cut.store(true, Ordering::SeqCst);
            async { Ok::<_, FunctionError>(json!({ "receipt": 7 })) }
        })
        .build()
        .unwrap();
    let mut scene = Scene::new(tools).await;
    scene.options.lease_ms = 1_000;
    let job = "job: pay\nsteps:\n  - { id: pay, tool: pay, args: {} }\nanswer: ${steps.pay.result.receipt}\n";
    let trajectory = scene.submit(1, job, &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let spool = directory.path().join("spool");
    let spooled = || std::fs::read_dir(&spool).map_or(0, Iterator::count);

    let broken = Arc::clone(&gone);
    let fault = move |_| broken.load(Ordering::SeqCst).then_some(Fault::Lost);
    let store: Arc<dyn Store> =
        Arc::new(FaultyStore::new(Arc::clone(&scene.store), Box::new(fault)));
    let worker = scene.worker_with(store, Some(Spool::new(spool.clone()))).await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(async move { worker.run(stopped).await });
    while spooled() == 0 {
        pass(Duration::from_millis(100)).await;
    }
    // Another worker finds the call, waits until it cannot land any more, and asks people.
    let other = scene.worker().await;
    loop {
        let (_stop, stopped) = watch::channel(false);
        other.run_one(trajectory, stopped).await.unwrap();
        if scene.ran(trajectory).await.count("in_doubt") == 1 {
            break;
        }
        pass(Duration::from_secs(1)).await;
    }
    other.retire().await.unwrap();

    gone.store(false, Ordering::SeqCst);
    while scene.ran(trajectory).await.count("completed") == 0 {
        pass(Duration::from_secs(1)).await;
        assert!(scene.started.elapsed() < Duration::from_secs(3_600), "nobody delivers");
    }
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    let ran = scene.ran(trajectory).await;
    assert_eq!((ran.answer().as_str(), paid.total()), ("7", 1), "{:?}", ran.kinds());
    assert_eq!((ran.count("in_doubt"), ran.count("resolution"), spooled()), (1, 1, 0));
}

/// Lets virtual time pass, and everybody else do something in it.
async fn pass(time: Duration) {
    let _passed = tokio::time::timeout(time, std::future::pending::<()>()).await;
}
