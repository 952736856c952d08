//! Windows of a principal, across workers.

use std::time::Duration;

use gesta_core::document::FreezeTarget;
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::temporal::{Grade, Rule};
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use gesta_store::Chain;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::scene::{REGISTRY, Scene};
use crate::stage::{Witness, manifest};

const ONE: &str = "job: one\nsteps:\n  - { id: pay, tool: pay }\n";

async fn scene(paid: &Witness, rule: Rule) -> Scene {
    let witness = paid.clone();
    let tools = Catalogue::builder()
        .function(manifest("pay", Effect::External), move |_: FunctionCall| {
            witness.saw("paid");
            async move { Ok::<_, FunctionError>(json!({})) }
        })
        .build()
        .unwrap();
    let mut scene = Scene::new(tools).await;
    scene.options.temporal.principal = vec![rule];
    scene.options.jobs = 2;
    scene
}

/// Submits jobs of one call each and has three workers drive them.
async fn crew(scene: &Scene, jobs: u8) -> (Vec<TrajectoryId>, watch::Sender<bool>, JoinSet<()>) {
    let mut submitted = Vec::new();
    for number in 1..=jobs {
        submitted.push(scene.submit(number, ONE, &[]).await);
    }
    let (stop, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let (worker, stopped) = (scene.worker().await, stopped.clone());
        workers.spawn(async move { worker.run(stopped).await.unwrap() });
    }
    (submitted, stop, workers)
}

/// Three workers each start less than the window allows, and together they are caught: not one call more.
#[tokio::test(start_paused = true)]
async fn a_runaway_on_several_workers_is_put_into_quarantine() {
    let paid = Witness::default();
    let rule = Rule { calls: 20, per_ms: 600_000, then: Grade::Quarantine };
    let scene = scene(&paid, rule).await;
    let (submitted, stop, mut workers) = crew(&scene, 60).await;
    let who = scene.cast.standing_writ().unwrap().doc().principal.clone();
    let caught = async || {
        let chain: Chain = Chain::load(scene.store.clone(), REGISTRY).await.unwrap();
        chain.state().registry().is_quarantined(&FreezeTarget::Principal(who.clone()))
    };
    while !caught().await {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    stop.send(true).unwrap();
    while workers.join_next().await.is_some() {}
    assert_eq!(paid.total(), 20);
    // Whoever derives the decisions again comes to the same.
    let mut held = 0;
    for job in submitted {
        held += scene.ran(job).await.count("rejection");
    }
    assert!(held > 0);
}

/// In no stretch as wide as the window are there more starts than it allows, whoever made them.
#[tokio::test(start_paused = true)]
async fn throttled_jobs_keep_to_the_window_together() {
    let paid = Witness::default();
    let rule = Rule { calls: 4, per_ms: 10_000, then: Grade::Throttle };
    let scene = scene(&paid, rule).await;
    let (submitted, stop, mut workers) = crew(&scene, 18).await;
    for job in &submitted {
        assert_eq!(scene.end_of(*job).await, "completed");
    }
    stop.send(true).unwrap();
    while workers.join_next().await.is_some() {}
    let mut starts = Vec::new();
    for job in submitted {
        let entries = scene.ran(job).await.entries;
        let started = entries.iter().filter(|it| matches!(it.payload().body, Body::Started(_)));
        starts.extend(started.map(|entry| entry.payload().at.0));
    }
    starts.sort_unstable();
    assert_eq!(starts.len(), 18);
    assert!(starts.windows(5).all(|five| five[4] >= five[0] + 10_000), "{starts:?}");
}

/// What a worker had started counts after its death, also for one of the same name.
#[tokio::test(start_paused = true)]
async fn what_a_dead_worker_started_counts() {
    let paid = Witness::default();
    let rule = Rule { calls: 3, per_ms: 60_000, then: Grade::Throttle };
    let scene = scene(&paid, rule).await;
    let (stop, stopped) = watch::channel(false);
    let doomed = scene.worker().await;
    for number in 1..=3 {
        let job = scene.submit(number, ONE, &[]).await;
        doomed.run_one(job, stopped.clone()).await.unwrap();
    }
    drop(doomed);
    assert_eq!(paid.total(), 3);
    let job = scene.submit(4, ONE, &[]).await;
    let begun = scene.now();
    let next = scene.worker().await;
    let running = tokio::spawn(async move { next.run(stopped).await });
    assert_eq!(scene.end_of(job).await, "completed");
    assert!(scene.now().0 >= begun.0 + 50_000, "{begun} {}", scene.now());
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}
