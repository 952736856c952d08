//! Many jobs, and a worker that dies every second. `cargo xtask soak` does it again and again.

use std::time::{Duration, Instant};

use crate::crew::{Crew, Process};
use crate::pause;
use crate::server::Database;

const WORKERS: usize = 6;
const KILL_EVERY: Duration = Duration::from_secs(1);
/// A machine that has others to serve may take longer than that to start a worker. Nobody is killed before so many
/// effects have happened since, or jobs would be given up that no attempt has got anywhere with.
const EFFECTS_BETWEEN: usize = 64;

/// Jobs, steps, and for how long one round follows another.
fn size() -> (usize, usize, Duration) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let jobs = number("GESTA_LOAD_JOBS").unwrap_or(64);
    let steps = number("GESTA_LOAD_STEPS").unwrap_or(100);
    let minutes = number("GESTA_LOAD_MINUTES").unwrap_or(0);
    (jobs as usize, steps as usize, Duration::from_secs(60 * minutes))
}

fn soak(name: &str, store: impl Fn() -> (Option<String>, Option<Database>)) {
    let (jobs, steps, time) = size();
    let begun = Instant::now();
    let mut killed = 0;
    for round in 1.. {
        let (store, _database) = store();
        let mut crew = Crew::new(
            store.as_deref(),
            steps,
            Duration::from_millis(40),
            "[worker]\nskew = \"100ms\"\njobs = 16\n",
        );
        crew.submit(jobs);
        let started = Instant::now();
        let mut births = 0;
        let mut birth = |crew: &Crew| -> Process {
            births += 1;
            crew.worker(&format!("worker-{births}"))
        };
        let mut workers: Vec<Process> = (0..WORKERS).map(|_| birth(&crew)).collect();
        let mut deaths = 0;
        while crew.witness.count() < crew.wanted() {
            let before = crew.witness.count();
            pause(KILL_EVERY);
            crew.witness.wait_for((before + EFFECTS_BETWEEN).min(crew.wanted()));
            drop(workers.remove(0));
            deaths += 1;
            workers.push(birth(&crew));
        }
        crew.all_is_well();
        eprintln!(
            "{name}, round {round}: {jobs} jobs x {steps} steps, {deaths} workers killed, {:.1} s",
            started.elapsed().as_secs_f64()
        );
        assert!(deaths > 0, "nobody died");
        killed += deaths;
        if begun.elapsed() >= time {
            eprintln!(
                "{name}: {round} rounds, {} jobs, {} steps, {killed} workers killed: every job completed, every \
                 effect happened once, every chain verifies",
                round * jobs,
                round * jobs * steps,
            );
            return;
        }
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_workers_die_on_sqlite() {
    soak("SQLite", || (None, None));
}

#[test]
fn nothing_is_lost_or_doubled_while_workers_die_on_postgres() {
    soak("PostgreSQL", || {
        let database = Database::new();
        (Some(database.url()), Some(database))
    });
}
