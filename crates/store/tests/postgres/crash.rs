//! The server is killed, not the connections alone: nobody says goodbye, and it comes back by
//! recovering from its log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gesta_core::digest::EntryId;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use gesta_core::sample::Dice;
use gesta_core::time::UnixMs;
use gesta_store::postgres::{Options, PostgresStore};
use gesta_store::{AppendError, Profile, Store as _, StoreError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use crate::suite::{Job, fold, worker};

const AT: UnixMs = UnixMs(1_000_000);
const LONG_MS: u64 = 600_000;

/// Before it recovers, a server syncs its files one by one, unless it can do so at once.
const SETTINGS: &[&str] =
    if cfg!(target_os = "linux") { &["recovery_init_sync_method=syncfs"] } else { &[] };

/// The server dies again and again while two stores append, each to trajectories of its own and both
/// to one that they share. What was acknowledged is there after each restart. In the end there is
/// nothing else: every append that was left unknown was settled by sending the same again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_doubles_and_forks_nothing() {
    const KILLS: usize = 8;
    let mut cluster = Cluster::start(SETTINGS).await;
    let url = cluster.url();
    let connect = async || PostgresStore::connect(&url, &Options::default()).await.unwrap();
    let stores = [Arc::new(connect().await), Arc::new(connect().await)];
    let told = Arc::new(Told::default());
    let mut jobs: Vec<_> = (0..=5).map(|number| Job::new(number, AT)).collect();
    for job in &mut jobs {
        settle(&stores[0], &job.begin(), &told).await;
    }
    let held = hold(&stores[0]).await;
    told.up.send_replace(true);

    let enough = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for (store, job) in [(0, 0), (0, 0), (1, 0), (1, 0), (0, 1), (0, 2), (0, 3), (1, 4), (1, 5)] {
        let name = format!("w-{}", writers.len());
        let (store, job) = (Arc::clone(&stores[store]), jobs[job].clone());
        writers.spawn(write(store, job, name, Arc::clone(&told), Arc::clone(&enough)));
    }
    let mut dice = Dice::new(2026);
    for _ in 0..KILLS {
        tokio::select! {
            () = told.wait_for(1 + dice.below(300)) => {}
            died = writers.join_next() => panic!("{died:?}"),
        }
        told.up.send_replace(false);
        cluster.kill().await;
        let acknowledged = told.acknowledged();
        cluster.restart().await;
        told.up.send_replace(true);
        let store = connect().await;
        for (trajectory, acknowledged) in acknowledged {
            let stored = stored(&store, trajectory).await;
            let lost: Vec<_> =
                acknowledged.iter().filter(|(seq, id)| stored.get(seq) != Some(id)).collect();
            assert!(lost.is_empty(), "acknowledged and gone from {trajectory}: {lost:?}");
        }
        let other = worker("other");
        store.heartbeat(&other, &Profile::default(), LONG_MS).await.unwrap();
        assert!(!store.claim(&other, 100).await.unwrap().contains(&held), "a lease was lost");
    }
    enough.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let acknowledged = told.acknowledged();
    for job in jobs {
        fold(&*stores[1], job.id()).await;
        assert_eq!(stored(&stores[1], job.id()).await, acknowledged[&job.id()]);
    }
    assert!(told.unknown() > 0, "nothing was under way when the server died");
}

/// A worker with a lease takes one trajectory.
async fn hold(store: &PostgresStore) -> TrajectoryId {
    store.heartbeat(&worker("holder"), &Profile::default(), LONG_MS).await.unwrap();
    store.claim(&worker("holder"), 1).await.unwrap()[0]
}

async fn stored(store: &PostgresStore, trajectory: TrajectoryId) -> BTreeMap<u64, EntryId> {
    let stored = store.entries(trajectory, 0, usize::MAX).await.unwrap();
    stored.into_iter().map(|entry| (entry.seq, entry.id)).collect()
}

/// Appends until it is enough. Whoever hears that an append is absent believes it, folds what others
/// wrote and comes with another.
async fn write(
    store: Arc<PostgresStore>,
    mut job: Job,
    name: String,
    told: Arc<Told>,
    enough: Arc<AtomicBool>,
) {
    let mut count = 0;
    while !enough.load(Ordering::Relaxed) {
        count += 1;
        let mut next = job.clone();
        if settle(&store, &next.signal(&format!("{name}-{count}")), &told).await {
            job = next;
        } else {
            catch_up(&store, &mut job, &told).await;
        }
    }
}

/// Sends the same until it is known whether it is there. That it was refused tells only whoever has
/// not sent it before.
async fn settle(store: &PostgresStore, admitted: &Admitted, told: &Told) -> bool {
    let mut sent = false;
    loop {
        match store.append(admitted.clone()).await {
            Ok(head) => {
                assert_eq!(head, admitted.head());
                told.there(admitted);
                return true;
            }
            Err(AppendError::Unknown(StoreError::Unreachable { .. })) => {
                told.nothing();
                sent = true;
            }
            Err(AppendError::Refused(StoreError::Unreachable { .. })) if sent => {}
            Err(
                AppendError::Conflict { .. } | AppendError::Refused(StoreError::Unreachable { .. }),
            ) => {
                told.absent(admitted);
                return false;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

async fn catch_up(store: &PostgresStore, job: &mut Job, told: &Told) {
    let from = job.state.head().unwrap().seq + 1;
    let entries = loop {
        match store.entries(job.id(), from, usize::MAX).await {
            Ok(entries) => break entries,
            Err(StoreError::Unreachable { .. }) => {
                told.up.subscribe().wait_for(|up| *up).await.unwrap();
            }
            Err(other) => panic!("{other}"),
        }
    };
    for entry in entries {
        job.state.apply(&Entry::from_bytes(&entry.bytes).unwrap()).unwrap();
    }
}

/// What the writers were told.
#[derive(Default)]
struct Told {
    facts: Mutex<Facts>,
    /// Acknowledgements.
    count: watch::Sender<u64>,
    /// Whether the server is running.
    up: watch::Sender<bool>,
}

#[derive(Default)]
struct Facts {
    there: BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>>,
    absent: BTreeSet<EntryId>,
    unknown: usize,
}

impl Told {
    fn there(&self, admitted: &Admitted) {
        let mut facts = self.facts.lock().unwrap();
        for entry in admitted.entries() {
            let (seq, id) = (entry.seq(), entry.id());
            let before = facts.there.entry(admitted.trajectory()).or_default().insert(seq, id);
            assert_eq!(before, None, "place {seq} was given away twice");
            assert!(!facts.absent.contains(&id), "what was told to be absent is there");
        }
        self.count.send_modify(|count| *count += 1);
    }

    fn absent(&self, admitted: &Admitted) {
        let ids = admitted.entries().iter().map(Entry::id);
        self.facts.lock().unwrap().absent.extend(ids);
    }

    fn nothing(&self) {
        self.facts.lock().unwrap().unknown += 1;
    }

    fn acknowledged(&self) -> BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>> {
        self.facts.lock().unwrap().there.clone()
    }

    fn unknown(&self) -> usize {
        self.facts.lock().unwrap().unknown
    }

    /// Waits for so many more acknowledgements.
    async fn wait_for(&self, more: u64) {
        let mut count = self.count.subscribe();
        let enough = *count.borrow() + more;
        count.wait_for(|count| *count >= enough).await.unwrap();
    }
}
