//! What is not done again: calls whose key may be forgotten, jobs that get nowhere, and calls that nobody waits
//! for any more.

use std::sync::Arc;
use std::time::Duration;

use gesta_core::body::InDoubt;
use gesta_core::document::Recovery;
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::person;
use gesta_core::writ::Effect;
use gesta_runtime::duration::DurationMs;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{Event, Left, Setup, Worker, jobs};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::scene::{REGISTRY, Scene};
use crate::stage::{Ran, Witness, manifest};

/// A tool that deduplicates by key for ten seconds.
fn keyed() -> Manifest {
    Manifest {
        recovery: Recovery::KeyedConcurrent,
        key_ttl: DurationMs::from_ms(10_000),
        timeout: DurationMs::from_ms(5_000),
        ..manifest("pay", Effect::External)
    }
}

/// Never answers the first time.
fn hangs_once(witness: &Witness) -> Catalogue {
    let witness = witness.clone();
    let pay = move |call: FunctionCall| {
        let times = witness.saw(&call.key);
        async move {
            if times == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, FunctionError>(json!(times))
        }
    };
    Catalogue::builder().function(keyed(), pay).build().unwrap()
}

/// What the newest doubt says.
fn doubt(ran: &Ran) -> &InDoubt {
    let doubt =
        |entry: &'_ gesta_core::entry::Entry| matches!(entry.payload().body, Body::InDoubt(_));
    match &ran.entries.iter().rfind(|entry| doubt(entry)).unwrap().payload().body {
        Body::InDoubt(doubt) => doubt,
        other => panic!("{other:?}"),
    }
}

/// Kills a worker in the middle of its call, and lets another one come so long after.
async fn taken_over(pause: Duration) -> (Left, Ran, Witness) {
    let paid = Witness::default();
    let scene = Scene::new(hangs_once(&paid)).await;
    let job = "job: pay\nsteps:\n  - { id: it, tool: pay, args: {} }\n";
    let trajectory = scene.submit(1, job, &[]).await;
    let worker = scene.worker().await;
    let (_stop, stopped) = watch::channel(false);
    let call = worker.run_one(trajectory, stopped);
    let killed = tokio::time::timeout(Duration::from_secs(1), call).await;
    assert!(killed.is_err(), "it hangs");
    drop(worker);
    tokio::time::advance(pause).await;
    for row in scene.store.workers().await.unwrap() {
        scene.store.retire(&row.worker).await.unwrap();
    }
    let left = scene.drive(trajectory).await;
    (left, scene.ran(trajectory).await, paid)
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_worker_died_is_sent_again_only_while_its_key_is_remembered() {
    let (left, ran, paid) = taken_over(Duration::from_secs(2)).await;
    assert_eq!((left, ran.answer().as_str()), (Left::Ended, r#"{"it":2}"#));
    assert_eq!(paid.all().len(), 1, "under the same key");

    let (left, ran, paid) = taken_over(Duration::from_secs(11)).await;
    assert_eq!((left, paid.total()), (Left::Parked, 1), "it is not sent again");
    let known = &doubt(&ran).known;
    assert_eq!(known.code, "worker_lost");
    let told = "attempt 1 ended without a word; its key has expired, it was not sent again";
    assert_eq!(known.message, told);
}

/// A step may take longer than its tool says.
#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_its_key_is_in_doubt() {
    let paid = Witness::default();
    let scene = Scene::new(hangs_once(&paid)).await;
    let job = "job: pay\nsteps:\n  - { id: it, tool: pay, args: {}, timeout: 12s }\n";
    let (left, ran) = scene.run(job, &[]).await;
    assert_eq!((left, paid.total()), (Left::Parked, 1));
    let told = &doubt(&ran).known.message;
    assert!(told.ends_with("; its key has expired, it was not sent again"), "{told}");
}

/// The key is good when the call ends, and expires while the next try is waited for.
#[tokio::test(start_paused = true)]
async fn a_key_that_expires_before_the_next_try_is_not_used_again() {
    for (backoff, sent) in [("1s", 2), ("60s", 1)] {
        let paid = Witness::default();
        let scene = Scene::new(hangs_once(&paid)).await;
        let job = format!(
            "job: pay\nsteps:\n  - id: it\n    tool: pay\n    args: {{}}\n    retry: {{ attempts: 3, backoff: {backoff}, max_backoff: {backoff} }}\n"
        );
        let trajectory = scene.submit(1, &job, &[]).await;
        scene.drive(trajectory).await;
        tokio::time::advance(Duration::from_secs(120)).await;
        scene.drive(trajectory).await;
        let ran = scene.ran(trajectory).await;
        assert_eq!(paid.total(), sent, "{backoff}: {:?}", ran.kinds());
        if sent == 1 {
            let known = &doubt(&ran).known;
            assert_eq!((&*known.code, &*known.message), ("not_sent_again", "its key has expired"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_gets_nowhere_is_given_up_with_its_reason() {
    let paid = Witness::default();
    let scene = Scene::new(hangs_once(&paid)).await;
    let job = "job: pay\nsteps:\n  - { id: it, tool: pay, args: {} }\n";
    let trajectory = scene.submit(1, job, &[]).await;
    for _ in 0..scene.options.fruitless_most {
        // A worker that is told to stop as soon as it has the job.
        let worker = scene.worker().await;
        let (_stop, stopped) = watch::channel(true);
        assert_eq!(worker.run_one(trajectory, stopped).await, Ok(Left::Stopped));
        worker.retire().await.unwrap();
    }
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    let reason = "9 attempts in a row left nothing behind".to_owned();
    assert_eq!(ran.error(), ("poison".to_owned(), reason));
    assert_eq!(paid.total(), 0);
}

/// Cancels a job while it waits for a read of an hour. What became of the job, and how long that took.
async fn cancelled(on_cancel: &str) -> (Ran, Duration) {
    let look = async |_: FunctionCall| {
        std::future::pending::<()>().await;
        Ok::<Value, FunctionError>(json!(1))
    };
    let read =
        Manifest { timeout: DurationMs::from_ms(3_600_000), ..manifest("look", Effect::Read) };
    let scene = Scene::new(Catalogue::builder().function(read, look).build().unwrap()).await;
    let job = format!(
        "job: look\nsteps:\n  - {{ id: it, tool: look, args: {{}}, on_cancel: {on_cancel} }}\n"
    );
    let trajectory = scene.submit(1, &job, &[]).await;
    let cancel = async {
        tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(60)).await;
        let asked = ("enough", false);
        jobs::cancel(&scene.store, trajectory, &person().unwrap(), asked, scene.now()).await
    };
    let begun = tokio::time::Instant::now();
    let (left, _) = tokio::join!(scene.drive(trajectory), cancel);
    assert_eq!(left, Left::Ended);
    (scene.ran(trajectory).await, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_read_that_nobody_waits_for_is_stopped_where_its_step_says_so() {
    let (ran, took) = Box::pin(cancelled("stop")).await;
    assert_eq!(ran.error(), ("cancelled".to_owned(), "enough".to_owned()));
    assert!(took < Duration::from_secs(120), "{took:?}");
    let stopped = ran.entries.iter().any(|entry| match &entry.payload().body {
        Body::Failure(failure) => failure.error.message == "the job was cancelled",
        _ => false,
    });
    assert!(stopped, "{:?}", ran.kinds());

    let (ran, took) = Box::pin(cancelled("finish")).await;
    assert_eq!(ran.error().0, "cancelled");
    assert!(took >= Duration::from_secs(3_600), "{took:?}");
}

/// The store takes so long to say that a failure is recorded that the next try is due by then.
#[tokio::test]
async fn a_try_that_falls_due_while_an_append_is_slow_is_made_in_the_same_attempt() {
    let tried = Witness::default();
    let witness = tried.clone();
    let flaky = move |_: FunctionCall| {
        let times = witness.saw("flaky");
        async move { if times < 3 { Err(FunctionError::retry("not today")) } else { Ok(json!(times)) } }
    };
    let tools = Catalogue::builder().function(manifest("flaky", Effect::External), flaky);
    let scene = Scene::new(tools.build().unwrap()).await;
    let job = "job: flaky\nsteps:\n  - { id: it, tool: flaky, args: {}, retry: { attempts: 3, backoff: 10ms } }\n";
    let trajectory: TrajectoryId = scene.submit(1, job, &[]).await;
    let slow = |event: Event| {
        if matches!(&event, Event::Entry(entry) if matches!(entry.payload().body, Body::Failure(_)))
        {
            // Until the next try is due, and longer.
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                std::thread::yield_now();
            }
        }
    };
    let worker = Worker::start(Setup {
        store: Arc::clone(&scene.store),
        worker: "slow".parse().unwrap(),
        key: Scene::worker_key(),
        guardian: None,
        sealer: None,
        catalogue: Arc::clone(&scene.catalogue),
        registry: Some(REGISTRY),
        options: scene.options.clone(),
        listener: Some(Arc::new(slow)),
        spool: None,
        vault: None,
        presence: None,
        anchor: None,
        host: "test".to_owned(),
    })
    .await
    .unwrap();
    let (_stop, stopped) = watch::channel(false);
    assert_eq!(worker.run_one(trajectory, stopped).await, Ok(Left::Ended));
    let ran = scene.ran(trajectory).await;
    assert_eq!((ran.answer().as_str(), ran.count("attempt")), (r#"{"it":3}"#, 1));
}
