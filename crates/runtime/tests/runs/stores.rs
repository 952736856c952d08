//! Whole jobs on every store: the same bytes, and the same fate when writes fail.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_core::ids::TrajectoryId;
use gesta_store::Store;
use gesta_store::memory::MemoryStore;
use gesta_store::postgres::{self, PostgresStore};
use gesta_store::sqlite::{self, SqliteStore};
use tokio::time::Instant;

use crate::apart::Apart;
use crate::failing;
use crate::scene::{REGISTRY, Scene};
use crate::stage::Witness;

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

async fn on_sqlite(started: Instant, home: &tempfile::TempDir) -> Arc<dyn Store> {
    let path = home.path().join("store.db");
    let open = async move || {
        let store = SqliteStore::open(path, sqlite::Options::default()).unwrap();
        Arc::new(store) as Arc<dyn Store>
    };
    Arc::new(Apart::open(started, open).await)
}

/// Runs a job that has something of everything, and reads its bytes.
async fn bytes(store: Arc<dyn Store>, started: Instant) -> Vec<(TrajectoryId, Vec<u8>)> {
    let scene = Scene::on(store, failing::tools(&Witness::default()), started).await;
    let job = failing::submitted(&scene, 1).await;
    let worker = scene.worker_named(Arc::clone(&scene.store), "worker", None).await.unwrap();
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    worker.run_one(job, stopped).await.unwrap();
    worker.retire().await.unwrap();
    let mut bytes = Vec::new();
    for trajectory in [REGISTRY, job] {
        let stored = scene.store.entries(trajectory, 0, usize::MAX).await.unwrap();
        bytes.extend(stored.into_iter().map(|entry| (trajectory, entry.bytes)));
    }
    assert_eq!(scene.ran(job).await.answer(), "10");
    bytes
}

#[tokio::test(start_paused = true)]
async fn the_same_job_gives_the_same_bytes_on_every_store() {
    let memory = async |started| {
        let clock = Arc::new(move || crate::scene::now_since(started));
        bytes(Arc::new(MemoryStore::new(clock)), started).await
    };
    let expected = memory(Instant::now()).await;
    assert!(expected.len() > 25, "{}", expected.len());
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let told = |bytes: &[(TrajectoryId, Vec<u8>)]| {
        let lines = bytes.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
        lines.collect::<Vec<_>>().join("\n")
    };
    let on_file = bytes(on_sqlite(started, &home).await, started).await;
    assert_eq!(told(&on_file), told(&expected));
    let started = Instant::now();
    let on_server = bytes(on_postgres(started).await, started).await;
    assert_eq!(told(&on_server), told(&expected));
}
