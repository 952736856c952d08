//! A principal that calls too fast, from several jobs on several workers.

use std::time::Duration;

use crate::crew::Crew;
use crate::server::Database;
use crate::until;

const LIMIT: usize = 12;

/// No worker alone starts as many calls as the window allows before the others do, and together they start no
/// more; then the principal is in quarantine, and somebody is told.
fn caught(store: Option<&str>) {
    let settings = format!(
        "[worker]\njobs = 2\n\n[temporal]\nprincipal = [{{ calls = {LIMIT}, per = \"10m\", then = \"quarantine\" }}]\n"
    );
    let mut crew = Crew::new(store, 2, Duration::from_millis(100), &settings);
    crew.submit(24);
    let _workers = ["one", "two", "three"].map(|name| crew.worker(name));
    let rows = until("it is in quarantine", || {
        Some(crew.json(&["quarantine"])).filter(|rows| !rows.is_empty())
    });
    assert_eq!(rows[0]["target"]["principal"], "agent:main");
    assert!(crew.witness.arrived() <= LIMIT, "{}\n{}", crew.witness.arrived(), crew.log());
    let notices = crew.json(&["notices"]);
    let told = notices.iter().find(|notice| notice["topic"] == "quarantine").unwrap();
    let note = told["data"]["note"].as_str().unwrap();
    assert!(note.contains("principal agent:main is in quarantine"), "{note}");
    crew.run(&["verify"]);
}

#[test]
fn a_runaway_on_several_workers_is_caught_on_sqlite() {
    caught(None);
}

#[test]
fn a_runaway_on_several_workers_is_caught_on_postgres() {
    let database = Database::new();
    caught(Some(&database.url()));
}
