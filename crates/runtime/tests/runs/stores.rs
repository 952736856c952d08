//! Whole jobs on every store: the same bytes, and the same fate when writes fail.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_core::body::ConfirmationMode;
use gesta_core::ids::TrajectoryId;
use gesta_runtime::Left;
use gesta_store::Store;
use gesta_store::memory::MemoryStore;
use gesta_store::postgres::{self, PostgresStore};
use gesta_store::sqlite::{self, SqliteStore};
use tokio::time::Instant;

use crate::apart::Apart;
use crate::confirm::Outside;
use crate::scene::{REGISTRY, Scene};
use crate::stage::Witness;
use crate::{confirm, failing, undo};

/// A schema of its own on the server that `cargo xtask test` starts.
pub(crate) async fn on_postgres(started: Instant) -> Arc<dyn Store> {
    let url = std::env::var("GESTA_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("`GESTA_TEST_POSTGRES` is not set: run `cargo xtask test`, which starts a server")
    });
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let schema = Some(format!("runs-{since}-{}", std::process::id()));
    let options = postgres::Options { schema, ..postgres::Options::default() };
    let open = async move || {
        let store = PostgresStore::connect(&url, &options).await.unwrap();
        Arc::new(store) as Arc<dyn Store>
    };
    Arc::new(Apart::open(started, open).await)
}

pub(crate) async fn on_sqlite(started: Instant, home: &Path) -> Arc<dyn Store> {
    let path = home.join("store.db");
    let open = async move || {
        let store = SqliteStore::open(path, sqlite::Options::default()).unwrap();
        Arc::new(store) as Arc<dyn Store>
    };
    Arc::new(Apart::open(started, open).await)
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    /// A job that has something of everything.
    Everything,
    /// A job that fails, and whose effects are undone.
    Rollback,
    /// A job that goes on, with another worker, in a world that has changed meanwhile.
    Confirmation,
}

/// Runs it, and reads its bytes and the registry's.
async fn bytes(play: Play, store: Arc<dyn Store>, started: Instant) -> Vec<String> {
    let outside = Outside::default();
    let tools = match play {
        Play::Everything => failing::tools(&Witness::default()),
        Play::Rollback => undo::trip_tools(),
        Play::Confirmation => {
            confirm::tools(&outside, confirm::write(Some(ConfirmationMode::Warn)))
        }
    };
    let scene = Scene::on(store, tools, started).await;
    let job = match play {
        Play::Everything => failing::submitted(&scene, 1).await,
        Play::Rollback => scene.submit(1, undo::TRIP, &[]).await,
        Play::Confirmation => {
            let job = scene.submit(1, confirm::JOB, &[]).await;
            assert_eq!(drive(&scene, job, "first").await, Left::Parked);
            outside.put("a", "otherwise");
            confirm::signal(&scene, job).await;
            job
        }
    };
    assert_eq!(drive(&scene, job, "worker").await, Left::Ended);
    let ran = scene.ran(job).await;
    let (counted, wanted) = match play {
        Play::Everything => (usize::from(ran.answer() == "10"), 1),
        Play::Rollback => (ran.count("compensation"), 1),
        Play::Confirmation => (ran.count("confirmation"), 2),
    };
    assert_eq!(counted, wanted, "{:?}", ran.kinds());
    let mut bytes = Vec::new();
    for trajectory in [REGISTRY, job] {
        let stored = scene.store.entries(trajectory, 0, usize::MAX).await.unwrap();
        bytes.extend(stored.into_iter().map(|entry| String::from_utf8(entry.bytes).unwrap()));
    }
    bytes
}

/// With a worker of this name: names stand in the chain.
async fn drive(scene: &Scene, job: TrajectoryId, name: &str) -> Left {
    let worker = scene.worker_named(Arc::clone(&scene.store), name, None).await.unwrap();
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let left = worker.run_one(job, stopped).await.unwrap();
    worker.retire().await.unwrap();
    left
}

async fn gives_the_same_bytes(play: Play) {
    let started = Instant::now();
    let clock = Arc::new(move || crate::scene::now_since(started));
    let expected = bytes(play, Arc::new(MemoryStore::new(clock)), started).await;
    assert!(expected.len() > 20, "{}", expected.len());
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let on_file = bytes(play, on_sqlite(started, home.path()).await, started).await;
    assert_eq!(on_file.join("\n"), expected.join("\n"));
    let started = Instant::now();
    let on_server = bytes(play, on_postgres(started).await, started).await;
    assert_eq!(on_server.join("\n"), expected.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn the_same_job_gives_the_same_bytes_on_every_store() {
    gives_the_same_bytes(Play::Everything).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_rollback_gives_the_same_bytes_on_every_store() {
    gives_the_same_bytes(Play::Rollback).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_confirmation_gives_the_same_bytes_on_every_store() {
    gives_the_same_bytes(Play::Confirmation).await;
}
