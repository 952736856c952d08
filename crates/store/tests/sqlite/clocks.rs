//! The clock of a file's leases is the machine's: all processes that open the file must read the
//! same one.

use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_core::time::UnixMs;
use gesta_store::sqlite::{Options, SqliteStore};
use gesta_store::{AppendError, Profile, Store as _};

use super::faults::{expect_success, part, store_of_this_process};
use super::open;
use crate::suite::{Job, NOON, Pair, StoreClock, fold, worker};

clocks!(pair);

async fn pair() -> Pair {
    let (clock, reading) = StoreClock::machine();
    let home = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options { clock: Arc::clone(&reading), ..Options::default() };
        SqliteStore::open(home.path().join("gesta.db"), options).unwrap()
    };
    let stores = [Arc::new(open()) as _, Arc::new(open()) as _];
    Pair { stores, clock, _home: Some(home) }
}

/// All processes of one machine tell its time.
#[tokio::test]
async fn processes_of_one_machine_share_its_clock() {
    const TEST: &str = "sqlite::clocks::processes_of_one_machine_share_its_clock";
    let heartbeat = async |store: &SqliteStore| {
        store.heartbeat(&worker("w"), &Profile::default(), 60_000).await
    };
    if let Some(path) = store_of_this_process() {
        println!("\nnow {}", heartbeat(&open(&path)).await.unwrap().0);
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let store = open(&path);
    let begun = machine_time();
    let before = heartbeat(&store).await.unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    part(&mut child, TEST, &path);
    let said = expect_success(&child.output().unwrap());
    let between = said.split_whitespace().skip_while(|word| *word != "now").nth(1).unwrap();
    let between = UnixMs(between.parse().unwrap());
    let after = heartbeat(&store).await.unwrap();
    let times = [begun, before, between, after, machine_time()];
    assert!(times.is_sorted(), "{times:?}");
}

fn machine_time() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMs(since.as_millis().try_into().unwrap())
}

/// A process whose clock is ahead of the others', as no two of one machine are, takes what they
/// hold. Even then the fence keeps the chain whole.
#[tokio::test]
async fn a_process_with_a_clock_of_its_own_is_fenced() {
    let home = tempfile::tempdir().unwrap();
    let open = |now: UnixMs| {
        let options = Options { clock: Arc::new(move || now), ..Options::default() };
        SqliteStore::open(home.path().join("gesta.db"), options).unwrap()
    };
    let (right, ahead) = (open(NOON), open(NOON.plus(600_000)));
    let mut job = Job::new(1, NOON);
    right.append(job.begin()).await.unwrap();
    for (store, name) in [(&right, "right"), (&ahead, "ahead")] {
        store.heartbeat(&worker(name), &Profile::default(), 60_000).await.unwrap();
        assert_eq!(store.claim(&worker(name), 1).await.unwrap(), [job.id()]);
    }
    right.append(job.attempt("right")).await.unwrap();
    let mut unaware = job.clone();
    ahead.append(job.attempt("ahead")).await.unwrap();
    let lost = right.append(unaware.wait("right", "first", None)).await;
    assert_eq!(lost, Err(AppendError::FenceLost { attempt: 2 }));
    ahead.append(job.wait("ahead", "first", None)).await.unwrap();
    assert_eq!(fold(&right, job.id()).await, job.state);
}
