//! A worker dies and another takes over; who is alive; who can run what; limits across workers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::crew::Crew;
use crate::server::Database;
use crate::{pause, until};

/// How long a call of a limited tool takes: longer than it takes to begin another.
const CALL: Duration = Duration::from_millis(60);

/// With the default settings, on PostgreSQL, a dead worker's job goes on within three seconds.
#[test]
fn a_dead_workers_job_goes_on_within_three_seconds() {
    let database = Database::new();
    // The dead worker's own call is not waited for: the next step begins by itself.
    let mut crew = Crew::new(Some(&database.url()), 400, Duration::from_millis(30), "");
    crew.submit(1);
    let first = crew.worker("first");
    crew.witness.wait_for(3);
    let second = crew.worker("second");
    let alive = || crew.json(&["workers"]);
    until("both are alive", || (alive().len() == 2).then_some(()));
    let rows = alive();
    let mine = rows.iter().find(|row| row["pid"] == first.id()).unwrap();
    assert_eq!(mine["tools"], json!(["asked", "keyed", "probed"]));
    assert_eq!(mine["jobs"], json!(1), "{rows:?}");
    drop(first);
    let died = Instant::now();
    let attempts = || crew.json(&["jobs"])[0]["attempt"].as_u64().unwrap();
    until("the other has it", || (attempts() == 2).then_some(()));
    let took = died.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    let left = alive();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["pid"], second.id());
}

/// A tenant's limit holds however many workers there are.
#[test]
fn a_tenants_limit_holds_across_workers() {
    let database = Database::new();
    let settings = "[limits.tenants.main]\ncalls = 2\n";
    let mut crew = Crew::new(Some(&database.url()), 4, CALL, settings);
    crew.submit(6);
    let _workers = ["one", "two", "three"].map(|name| crew.worker(name));
    crew.all_is_well();
    assert_eq!(crew.witness.busiest(), 2);
}

/// So does a tool's.
#[test]
fn a_tools_limit_holds_across_workers() {
    let database = Database::new();
    let mut crew = Crew::new(Some(&database.url()), 4, CALL, "");
    let config = std::fs::read_to_string(crew.path().join("gesta.toml")).unwrap();
    let limited = config.replace("[tools.keyed]\n", "[tools.keyed]\nconcurrency = 2\n");
    std::fs::write(crew.path().join("gesta.toml"), limited).unwrap();
    crew.submit(8);
    let _workers = ["one", "two", "three"].map(|name| crew.worker(name));
    crew.all_is_well();
    assert_eq!(crew.witness.busiest_of("keyed"), 2);
    assert!(crew.witness.busiest() > 2, "others are not held up by it");
}

/// So do both where the files of workers disagree: the smallest limit binds those whose file names a greater
/// one, and those whose file names none.
fn the_smallest_limit_holds(store: Option<&str>) {
    // None of them can have all jobs.
    let mut crew = Crew::new(store, 4, CALL, "[worker]\njobs = 4\n");
    let path = crew.path().join("gesta.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let limited = |tool: u32, tenant: u32| {
        let tool = format!("[tools.keyed]\nconcurrency = {tool}\n");
        config.replace("[tools.keyed]\n", &tool)
            + &format!("\n[limits.tenants.main]\ncalls = {tenant}\n")
    };
    crew.submit(16);
    let alive = |count| {
        until("it is alive", || (crew.json(&["workers"]).len() == count).then_some(()));
    };
    let mut workers = Vec::new();
    for (name, file) in
        [("strict", limited(1, 3)), ("lavish", limited(9, 9)), ("silent", config.clone())]
    {
        std::fs::write(&path, file).unwrap();
        workers.push(crew.worker(name));
        alive(workers.len());
    }
    let declared = crew.json(&["workers"]);
    let of = |name: &str| {
        let row = declared.iter().find(|row| row["worker"].as_str().unwrap().contains(name));
        row.unwrap()["limits"].clone()
    };
    assert_eq!(of("strict"), json!({ "tenant main": 3, "tool keyed": 1 }));
    assert_eq!(of("silent"), json!({}));
    crew.all_is_well();
    assert_eq!(crew.witness.busiest_of("keyed"), 1, "{}", crew.log());
    assert!((2..=3).contains(&crew.witness.busiest()), "{}", crew.log());
    let said = crew.log();
    for told in [
        "tool keyed: another worker declares 1 at once, this one 9; 1 holds for all",
        "tool keyed: another worker declares 1 at once, this one none",
        "tenant main: another worker declares 3 at once, this one none",
    ] {
        assert!(said.contains(told), "{told}\n{said}");
    }
}

#[test]
fn the_smallest_limit_holds_where_files_disagree_on_sqlite() {
    the_smallest_limit_holds(None);
}

#[test]
fn the_smallest_limit_holds_where_files_disagree_on_postgres() {
    let database = Database::new();
    the_smallest_limit_holds(Some(&database.url()));
}

/// What a worker without a limit has under way when it hears of one counts towards it: nobody begins another call
/// before those are over. It has its hands full and asks for nothing more: hearing of the limit is enough. `shares` asks
/// the store.
fn what_is_under_way_counts(store: Option<&str>, shares: impl Fn(&Crew, &str) -> Option<String>) {
    let settings = "[worker]\nlease = \"1s\"\njobs = 3\n";
    let mut crew = Crew::new(store, 1, CALL, settings);
    let path = crew.path().join("gesta.toml");
    let config =
        std::fs::read_to_string(&path).unwrap().replace("\"1s\"\nsettle", "\"60s\"\nsettle");
    std::fs::write(&path, &config).unwrap();
    crew.submit(3);
    crew.witness.hold(true);
    let _silent = crew.worker("silent");
    until("they are under way", || (crew.witness.arrived() == 3).then_some(()));
    let limited = config.replace("[tools.keyed]\n", "[tools.keyed]\nconcurrency = 2\n");
    std::fs::write(&path, limited.replace("jobs = 3", "jobs = 9")).unwrap();
    let _strict = crew.worker("strict");
    let heard = "tool keyed: another worker declares 2 at once, this one none";
    until("it has heard", || crew.log().contains(heard).then_some(()));
    let sql = "SELECT CAST(sum(held) AS text) FROM shares WHERE scope = 'tool keyed'";
    until("it has told", || (shares(&crew, sql).as_deref() == Some("3")).then_some(()));
    crew.witness.count_anew();
    crew.submit(6);
    until("all are claimed", || {
        let jobs = crew.json(&["jobs"]);
        jobs.iter().all(|job| job["attempt"].as_u64() >= Some(1)).then_some(())
    });
    // Several times longer than it takes to be given a share.
    pause(Duration::from_secs(1));
    assert_eq!(crew.witness.arrived(), 3, "{}", crew.log());
    crew.witness.hold(false);
    crew.all_is_well();
    assert!(crew.witness.busiest_of("keyed") <= 2, "{}", crew.log());
}

#[test]
fn what_is_under_way_counts_towards_a_limit_that_is_heard_of_on_sqlite() {
    what_is_under_way_counts(None, |crew, sql| {
        let file = rusqlite::Connection::open(crew.path().join("gesta.db")).unwrap();
        file.query_row(sql, [], |row| row.get(0)).unwrap()
    });
}

#[test]
fn what_is_under_way_counts_towards_a_limit_that_is_heard_of_on_postgres() {
    let database = Database::new();
    what_is_under_way_counts(Some(&database.url()), |_, sql| database.ask(sql));
}

/// A job waits for a worker that has its tools, and the most urgent goes first.
#[test]
fn jobs_wait_for_whom_can_run_them_and_the_most_urgent_goes_first() {
    let database = Database::new();
    let settings = "[worker]\njobs = 1\n";
    let mut crew = Crew::new(Some(&database.url()), 2, Duration::from_millis(1), settings);
    let config = std::fs::read_to_string(crew.path().join("gesta.toml")).unwrap();
    crew.submit(2);
    let urgent = ["submit", "job.yaml", "--input", "job=9", "--priority", "50"];
    let urgent = crew.run(&urgent).trim().to_owned();
    let without = config.replace("[tools.probed]", "[tools.other]");
    std::fs::write(crew.path().join("gesta.toml"), without).unwrap();
    let lacking = crew.worker("lacking");
    until("it is alive", || (crew.json(&["workers"]).len() == 1).then_some(()));
    // Several times longer than it takes to claim.
    pause(Duration::from_secs(1));
    assert_eq!(crew.witness.count(), 0);
    drop(lacking);
    std::fs::write(crew.path().join("gesta.toml"), config).unwrap();
    let _able = crew.worker("able");
    until("all complete", || {
        (crew.json(&["jobs", "--status", "completed"]).len() == 3).then_some(())
    });
    let begun = |id: &str| {
        let entries = crew.json(&["log", id]);
        let mut entries = entries.iter().map(|line| &line["entry"]);
        let claimed = entries.find(|entry| entry["kind"] == "attempt").unwrap();
        claimed["at"].as_u64().unwrap()
    };
    let jobs = crew.json(&["jobs"]);
    let others =
        jobs.iter().map(|job| job["trajectory"].as_str().unwrap()).filter(|id| *id != urgent);
    assert!(others.map(begun).all(|other| begun(&urgent) <= other));
}
