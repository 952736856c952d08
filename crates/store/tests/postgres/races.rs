//! Stores in several processes that append to the same heads. Each store has connections, batches
//! and a queue of its own, so two in one process race as two processes do.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::digest::EntryId;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::postgres::{Options, PostgresStore};
use gesta_store::{AppendError, Store as _, StoreError};

use super::{Place, url};
use crate::suite::{Job, fold};

const AT: UnixMs = UnixMs(1_000_000);

/// Two appends expect the same head and wait for the same lock. The one that comes second looks at
/// the row again and loses; what it brought for other trajectories is not lost with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waited_looks_again() {
    let place = Place::new();
    let (here, there) = (Arc::new(place.open().await), Arc::new(place.open().await));
    let mut job = Job::new(1, AT);
    here.append(job.begin()).await.unwrap();
    let admin = place.admin().await;
    let held = "BEGIN; SELECT FROM trajectories FOR UPDATE";
    admin.batch_execute(held).await.unwrap();
    let races = [&here, &there].map(|store| {
        let (store, mut mine) = (Arc::clone(store), job.clone());
        let name = format!("racer-{:p}", Arc::as_ptr(&store));
        tokio::spawn(async move { store.append(mine.signal(&name)).await })
    });
    place.until_blocked(2).await;
    admin.batch_execute("COMMIT").await.unwrap();
    let mut answers = Vec::new();
    for race in races {
        answers.push(race.await.unwrap());
    }
    answers.sort_by_key(Result::is_err);
    let head = *answers[0].as_ref().unwrap();
    assert_eq!(answers[1], Err(AppendError::Conflict { head: Some(head) }));
    assert_eq!(fold(&*here, job.id()).await.head(), Some(head));
}

/// Many racers in two stores, many heads at once: every place is won once, by whoever was told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_place_is_won_once() {
    const RACERS: usize = 6;
    const JOBS: u8 = 12;
    const ROUNDS: usize = 15;
    let place = Place::new();
    let several = Options { append_batches: 3, ..place.options() };
    let several = PostgresStore::connect(&url(), &several).await.unwrap();
    let stores = [Arc::new(place.open().await), Arc::new(several)];
    let mut jobs: Vec<_> = (1..=JOBS).map(|number| Job::new(number, AT)).collect();
    for job in &mut jobs {
        stores[0].append(job.begin()).await.unwrap();
    }
    let races = (0..RACERS).flat_map(|racer| {
        let store = &stores[racer % stores.len()];
        jobs.iter().map(move |job| {
            tokio::spawn(race(Arc::clone(store), job.clone(), format!("racer-{racer}"), ROUNDS))
        })
    });
    let mut won: BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>> = BTreeMap::new();
    let mut conflicts = 0;
    for race in races.collect::<Vec<_>>() {
        let (trajectory, mine, lost) = race.await.unwrap();
        conflicts += lost;
        for (seq, id) in mine {
            let before = won.entry(trajectory).or_default().insert(seq, id);
            assert_eq!(before, None, "number {seq} of {trajectory} was won twice");
        }
    }
    assert!(conflicts > 0, "nobody raced");
    for (trajectory, won) in won {
        let state = fold(&*stores[0], trajectory).await;
        let stored = stores[0].entries(trajectory, 2, usize::MAX).await.unwrap();
        let stored: BTreeMap<_, _> =
            stored.into_iter().map(|entry| (entry.seq, entry.id)).collect();
        assert_eq!(stored, won);
        assert_eq!(state.head().unwrap().seq, 1 + (RACERS * ROUNDS) as u64);
    }
}

/// Appends until it has won `rounds` times, folding what others wrote in between.
async fn race(
    store: Arc<PostgresStore>,
    mut job: Job,
    name: String,
    rounds: usize,
) -> (TrajectoryId, Vec<(u64, EntryId)>, usize) {
    let (mut won, mut conflicts) = (Vec::new(), 0);
    while won.len() < rounds {
        let next = job.clone().signal(&format!("{name}-{}", won.len()));
        match store.append(next).await {
            Ok(head) => won.push((head.seq, head.id)),
            Err(AppendError::Conflict { head }) => {
                assert!(head.unwrap().seq > job.state.head().unwrap().seq);
                conflicts += 1;
            }
            Err(other) => panic!("{other}"),
        }
        let from = job.state.head().unwrap().seq + 1;
        for entry in store.entries(job.id(), from, 1000).await.unwrap() {
            job.state.apply(&Entry::from_bytes(&entry.bytes).unwrap()).unwrap();
        }
    }
    (job.id(), won, conflicts)
}

/// A row that the database refuses does not take its batch with it. On one thread, so that everything
/// spawned has reached the queue when this task runs again.
#[tokio::test]
async fn a_refused_row_fails_alone() {
    let place = Place::new();
    let options = Options { append_batches: 1, ..place.options() };
    let store = Arc::new(PostgresStore::connect(&url(), &options).await.unwrap());
    let mut first = Job::new(1, AT);
    store.append(first.begin()).await.unwrap();
    let admin = place.admin().await;
    let stray = "INSERT INTO entries VALUES ($1, 1, '\\x00', '\\x00')";
    let damaged = Job::new(2, AT).id();
    admin.execute(stray, &[&damaged.as_bytes().as_slice()]).await.unwrap();

    // While the first append waits for a lock, the others gather behind it.
    admin.batch_execute("BEGIN; SELECT FROM trajectories FOR UPDATE").await.unwrap();
    let append = |admitted| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.append(admitted).await })
    };
    let ahead = append(first.signal("ahead"));
    place.until_blocked(1).await;
    let mut jobs: Vec<_> = (2..=9).map(|number| Job::new(number, AT)).collect();
    let behind: Vec<_> = jobs.iter_mut().map(|job| append(job.begin())).collect();
    tokio::task::yield_now().await;
    admin.batch_execute("COMMIT").await.unwrap();

    ahead.await.unwrap().unwrap();
    for (job, answer) in jobs.iter().zip(behind) {
        let answer = answer.await.unwrap();
        if job.id() == damaged {
            assert!(matches!(answer, Err(AppendError::Refused(StoreError::Refused { .. }))));
        } else {
            assert_eq!(answer.ok(), job.state.head());
        }
    }
}
