//! The same commands on PostgreSQL.

use std::sync::Arc;

use gesta_store::Store;
use gesta_store::postgres::{Options, PostgresStore};
use gesta_verify::report::Verdict;

use crate::export::audit;
use crate::sample;
use crate::world::World;

/// A database of its own, with its URL.
pub(crate) struct Database {
    runtime: tokio::runtime::Runtime,
    server: String,
    name: String,
}

impl Database {
    pub(crate) fn new(name: &str) -> Self {
        let server = std::env::var("GESTA_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!(
                "`GESTA_TEST_POSTGRES` is not set: `cargo xtask test` starts a server and sets it"
            )
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let name = format!("gesta_cli_{name}_{}", std::process::id());
        let database = Self { runtime, server, name };
        database.run(&format!("CREATE DATABASE {}", database.name));
        database
    }

    pub(crate) fn url(&self) -> String {
        let (server, _) = self.server.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name)
    }

    /// The number that a query yields.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        self.runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            tokio::spawn(connection);
            client.query_one(sql, &[]).await.unwrap().get(0)
        })
    }

    fn run(&self, sql: &str) {
        self.runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.server, tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
        });
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

#[test]
fn a_workspace_on_postgres_works_like_one_on_a_file() {
    let database = Database::new("workspace");
    let (url, world) = (database.url(), World::new());
    let made = world.gesta(&["init", "--store", &url]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let (user, host) = url.split_once('@').unwrap();
    let user = user.rsplit_once(':').unwrap().0;
    let stored = format!("store = \"{user}@{host}\"");
    assert!(world.read("gesta.toml").contains(&stored), "{}", world.read("gesta.toml"));
    assert!(made.err.contains("GESTA_STORE"), "{}", made.err);
    let run = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    run(&["keys", "add", "ci", "--roles", "guardian"]).ok();
    assert_eq!(run(&["log", "--json"]).json_lines().len(), 1);
    run(&["verify"]).ok();
    run(&["doctor"]).ok();
    run(&["export", "--all", "-o", "all.gesta"]).ok();
    let report = audit(&world.path("all.gesta"), &world.path("trust.json"));
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
}

#[test]
fn both_stores_export_the_same_bytes() {
    let database = Database::new("bundle");
    let (url, world) = (database.url(), World::new());
    database.runtime.block_on(async {
        let store = PostgresStore::connect(&url, &Options::default()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        sample::fill(&store).await;
    });
    let trust = sample::write_file(&world.path("s.db"));
    std::fs::write(world.path("t.json"), serde_json::to_vec(&trust).unwrap()).unwrap();
    for (store, file) in [("s.db", "sqlite.gesta"), (url.as_str(), "postgres.gesta")] {
        world.gesta(&["--store", store, "export", "--all", "-o", file]).ok();
        world.gesta(&["--store", store, "verify", "--trust", "t.json"]).ok();
        assert_eq!(audit(&world.path(file), &world.path("t.json")).verdict, Verdict::Sound);
    }
    let bytes = |file| std::fs::read(world.path(file)).unwrap();
    assert_eq!(bytes("sqlite.gesta"), bytes("postgres.gesta"));
}

#[test]
fn jobs_run_on_postgres_as_on_a_file() {
    let database = Database::new("jobs");
    let (url, world) = (database.url(), World::with_examples());
    let run = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    let job = ["examples/refund/job.yaml", "--input", "order=1042"];
    let ran = run(&[&["run"][..], &job, &["--json"]].concat()).json();
    assert_eq!((&ran["status"], &ran["answer"]["cents"]), (&"completed".into(), &4200.into()));
    let submit = [&["submit"][..], &job, &["--key", "k"]].concat();
    assert_eq!(run(&submit).ok(), run(&submit).ok());
    run(&["worker", "--once"]).ok();
    assert_eq!(run(&["jobs", "--status", "completed", "--json"]).json_lines().len(), 2);
    assert_eq!(world.files("examples/refund/outside/ledger"), 2);
    run(&["verify"]).ok();
}
