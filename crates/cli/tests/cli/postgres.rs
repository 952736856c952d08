//! The same commands on PostgreSQL.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gesta_store::Store;
use gesta_store::postgres::{Options, PostgresStore};
use gesta_verify::report::Verdict;
use rustix::process::Signal;

use crate::backup;
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
        self.one(sql)
    }

    pub(crate) fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> T {
        self.runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            tokio::spawn(connection);
            client.query_one(sql, &[]).await.unwrap().get(0)
        })
    }

    /// Runs a command line with the server's own programs in PATH.
    pub(crate) fn shell(&self, world: &World, line: &str) -> String {
        let bin: String = self.one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
        let path = std::env::var("PATH").unwrap_or_default();
        let ran = Command::new("sh")
            .args(["-c", line])
            .env("PATH", format!("{bin}:{path}"))
            .env("PGPASSWORD", "gesta")
            .current_dir(world.path("."))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{line}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Everything in it is lost, and a dump is put in its place.
    pub(crate) fn replace(&self, world: &World, dump: &str) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        self.run(&format!("CREATE DATABASE {}", self.name));
        let url = self.url();
        self.shell(world, &format!("pg_restore --exit-on-error --dbname='{url}' {dump}"));
    }

    fn run(&self, sql: &str) {
        self.run_in(&self.server, sql);
    }

    pub(crate) fn run_in(&self, url: &str, sql: &str) {
        self.runtime.block_on(async {
            let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
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
fn rows_of_a_database_are_rebuilt_from_its_entries() {
    let database = Database::new("mending");
    let (url, world) = (database.url(), World::new());
    let trust = database.runtime.block_on(async {
        let store = PostgresStore::connect(&url, &Options::default()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        sample::fill(&store).await
    });
    std::fs::write(world.path("t.json"), serde_json::to_vec(&trust).unwrap()).unwrap();
    let run = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    let before = run(&["log", "--json"]).ok();
    let tampered = Some("tampered");
    for (damage, said, verified) in [
        ("UPDATE trajectories SET status = 'nonsense'", "its row cannot be read", None),
        ("UPDATE trajectories SET rank = 99", "its row cannot be read", None),
        ("UPDATE parked SET on_what = 'nothing'", "rows of its parked steps cannot be read", None),
        ("UPDATE trajectories SET head_seq = 1", "its row ends at entry 1", tampered),
        ("UPDATE trajectories SET head_id = ''", "its row does not say where it ends", tampered),
        ("DELETE FROM trajectories", "its row is gone", tampered),
        (
            "INSERT INTO parked VALUES (substr(sha256('ghost'), 1, 16), 'ghost', 'nothing', '', NULL, NULL, '')",
            "parked rows without a trajectory",
            None,
        ),
    ] {
        database.run_in(&url, damage);
        let verify =
            run(&["verify", "--trust", "t.json"]).expect(if verified.is_some() { 3 } else { 0 });
        assert!(verify.out.starts_with(verified.unwrap_or("sound")), "{damage}:\n{}", verify.out);
        let found = run(&["doctor"]).expect(1);
        assert!(found.out.contains(said), "{damage}:\n{}", found.out);
        let rebuilt = run(&["doctor", "--rebuild"]).ok();
        assert!(rebuilt.contains("repaired") && rebuilt.contains(said), "{damage}:\n{rebuilt}");
        assert_eq!(run(&["log", "--json"]).ok(), before, "{damage}");
        run(&["doctor"]).ok();
    }
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

#[test]
fn a_database_that_was_set_back_is_refused_until_an_epoch_is_open() {
    let database = Database::new("epochs");
    let (url, world) = (database.url(), World::new());
    world.free();
    world.gesta(&["init", "--store", &url]).ok();
    world.write("gesta.toml", &(world.read("gesta.toml") + backup::TOOLS));
    world.write("job.yaml", backup::JOB);
    let run = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    let told = run(&["backup", "b.db"]).expect(1);
    assert!(told.err.contains("pg_dump --format=custom"), "{}", told.err);
    let id =
        run(&["submit", "job.yaml", "--json"]).json()["trajectory"].as_str().unwrap().to_owned();
    run(&["worker", "--once"]).ok();
    let (name, copy) = (&database.name, format!("{}_copy", database.name));
    database.run(&format!("CREATE DATABASE {copy} TEMPLATE {name}"));
    run(&["signal", &id, "go"]).ok();
    run(&["worker", "--once"]).ok();
    assert_eq!(run(&["jobs", "--status", "completed", "--json"]).json_lines().len(), 1);
    database.run(&format!("DROP DATABASE {name} WITH (FORCE)"));
    database.run(&format!("ALTER DATABASE {copy} RENAME TO {name}"));

    let refused = run(&["worker", "--once"]).expect(1);
    assert!(refused.err.contains("behind its anchor"), "{}", refused.err);
    assert_eq!(run(&["restore", "--in-place", "--json"]).json()["epoch"], 2);
    run(&["signal", &id, "go"]).ok();
    run(&["worker", "--once"]).ok();
    assert_eq!((world.files("sent"), world.files("mails")), (2, 1), "nothing goes on");
    run(&["release", "--all"]).ok();
    run(&["worker", "--once"]).ok();
    let outside = ["payments", "sent", "mails"].map(|what| world.files(what));
    assert_eq!(outside, [2, 3, 1], "one payment was sent again under its key, and no mail");
    assert_eq!(run(&["doubts", "--json"]).json_lines()[0]["step"], "tell");
}

/// The copy that `gesta backup` says how to make, of the middle of work: workers go on with everything, then the
/// database is lost, and the copy is put in its place.
#[test]
fn a_dump_of_a_database_at_work_is_restored_and_nothing_is_repeated() {
    let database = Database::new("dump");
    let (url, world) = (database.url(), World::new());
    world.free();
    world.gesta(&["init", "--store", &url]).ok();
    world.write("gesta.toml", &(world.read("gesta.toml") + backup::TOOLS));
    world.write("job.yaml", backup::JOB);
    let variables = [("GESTA_STORE", url.as_str())];
    let run = |arguments: &[&str]| world.gesta_with(arguments, &variables);
    let submit = || {
        let told = run(&["submit", "job.yaml", "--json"]).json();
        told["trajectory"].as_str().unwrap().to_owned()
    };
    let workers = [(); 2].map(|()| world.start_with(&["worker"], &variables));
    let old = [submit(), submit()];
    wait_for(|| run(&["jobs", "--status", "parked", "--json"]).json_lines().len() == 2);
    let busy: Vec<String> = (0..6).map(|_| submit()).collect();

    // As it is told, word for word, while the others are under way, and without the keys that may be there.
    database.run_in(&url, "CREATE SCHEMA gesta_keys");
    let told = run(&["backup", "b.dump"]).expect(1).err;
    let line = told.split('`').find(|part| part.starts_with("pg_dump ")).unwrap();
    database.shell(&world, &line.replace("--file=FILE", "--file=b.dump"));
    let listed = database.shell(&world, "pg_restore --list b.dump");
    assert!(listed.contains("TABLE DATA public entries"), "{listed}");
    assert!(!listed.contains("gesta_keys"), "{listed}");

    for id in old.iter().chain(&busy) {
        run(&["signal", id, "go"]).ok();
    }
    wait_for(|| run(&["jobs", "--status", "completed", "--json"]).json_lines().len() == 8);
    for worker in workers {
        worker.signal(Signal::TERM);
        assert!(worker.ends().0.success());
    }
    let outside = || ["payments", "mails"].map(|what| world.files(what));
    assert_eq!(outside(), [16, 8]);

    database.replace(&world, "b.dump");
    let refused = run(&["worker", "--once"]).expect(1);
    assert!(refused.err.contains("behind its anchor"), "{}", refused.err);
    let restored = run(&["restore", "--in-place", "--json"]).json();
    assert_eq!(restored["epoch"], 2, "{restored:#}");
    run(&["worker", "--once"]).ok();
    assert_eq!(outside(), [16, 8], "nothing goes on");
    run(&["release", "--all"]).ok();
    let known = run(&["jobs", "--json"]).json_lines();
    for job in &known {
        run(&["signal", job["trajectory"].as_str().unwrap(), "go"]).ok();
    }
    run(&["worker", "--once"]).ok();
    assert_eq!(
        outside(),
        [16, 8],
        "payments were sent again under their keys, and mails not at all"
    );
    let doubts = run(&["doubts", "--json"]).json_lines();
    assert!(old.iter().all(|id| doubts.iter().any(|doubt| doubt["trajectory"] == **id)));
    assert!(doubts.iter().all(|doubt| doubt["step"] == "tell"), "{doubts:?}");
    run(&["verify"]).ok();
}

#[track_caller]
fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come to that");
    }
}
