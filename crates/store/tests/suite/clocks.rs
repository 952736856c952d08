//! Clocks that are wrong: those of workers, which stamp entries and decide nothing else, and the
//! store's own, which jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::clock::Clock;
use gesta_store::{AppendError, Chain, Profile, Store};

use super::{EPOCH, Job, fold, push_signal, worker};

const LEASE_MS: u64 = 60_000;
/// How wrong clocks are, and how far they jump.
const WRONG_MS: u64 = 10 * 60_000;
/// What the store's clock shows when a test begins, and then on clocks that are wrong.
pub(crate) const NOON: UnixMs = UnixMs(EPOCH);
const BEHIND: UnixMs = UnixMs(EPOCH - WRONG_MS);
const AHEAD: UnixMs = UnixMs(EPOCH + WRONG_MS);

/// One store as two processes have it open, and the clock that both go by.
pub(crate) struct Pair {
    pub(crate) stores: [Arc<dyn Store>; 2],
    pub(crate) clock: StoreClock,
    pub(crate) _home: Option<tempfile::TempDir>,
}

/// A store's clock, which stands still until it is set.
pub(crate) enum StoreClock {
    /// That of the machine, for a store without a server.
    Machine(Arc<AtomicU64>),
    #[cfg(feature = "postgres")]
    /// That of the database, in a table of its own.
    Database(tokio_postgres::Client),
}

impl StoreClock {
    /// A machine's clock at noon.
    pub(crate) fn machine() -> (Self, Clock) {
        let now = Arc::new(AtomicU64::new(NOON.0));
        let clock = Arc::clone(&now);
        (Self::Machine(now), Arc::new(move || UnixMs(clock.load(Ordering::SeqCst))))
    }

    pub(crate) async fn set(&self, now: UnixMs) {
        match self {
            Self::Machine(clock) => clock.store(now.0, Ordering::SeqCst),
            #[cfg(feature = "postgres")]
            Self::Database(client) => {
                let sql = "UPDATE clock SET now = 'epoch'::timestamptz + $1 * interval '1 ms'";
                #[expect(clippy::cast_precision_loss, reason = "it is a date of this century")]
                let now = now.0 as f64;
                assert_eq!(client.execute(sql, &[&now]).await.unwrap(), 1);
            }
        }
    }
}

async fn claim(store: &Arc<dyn Store>, name: &str) -> Vec<TrajectoryId> {
    store.claim(&worker(name), 10).await.unwrap()
}

/// Neither by chance nor by name does this worker get anything.
async fn claims_nothing(store: &Arc<dyn Store>, name: &str, job: &Job, why: &str) {
    assert_eq!(claim(store, name).await, [], "{why}");
    assert!(!store.claim_one(&worker(name), job.id()).await.unwrap(), "{why}");
}

/// Begins, extends or renews a lease, and checks whose time the store tells.
async fn beat(store: &Arc<dyn Store>, name: &str, expected: UnixMs) {
    assert_eq!(store.heartbeat(&worker(name), &Profile::default(), LEASE_MS).await, Ok(expected));
}

/// Whoever is ahead of the store does not see leases end before their time, and whoever is behind
/// does not keep them beyond it.
pub(crate) async fn a_lease_is_judged_by_the_stores_clock(pair: Pair) {
    let [here, there] = &pair.stores;
    let mut job = Job::new(1, BEHIND);
    here.append(job.begin()).await.unwrap();
    beat(here, "behind", NOON).await;
    assert_eq!(claim(here, "behind").await, [job.id()]);
    job.at = AHEAD;
    there.append(job.signal("much-later")).await.unwrap();
    for now in [NOON, NOON.plus(LEASE_MS)] {
        pair.clock.set(now).await;
        beat(there, "ahead", now).await;
        claims_nothing(there, "ahead", &job, "the lease holds").await;
    }
    let ended = NOON.plus(LEASE_MS + 1);
    pair.clock.set(ended).await;
    assert_eq!(claim(there, "ahead").await, [job.id()]);
    claims_nothing(here, "behind", &job, "no lease, no claims").await;
    beat(here, "behind", ended).await;
    claims_nothing(here, "behind", &job, "another has it").await;
}

/// A sleep that a worker asked for by its own clock ends by the store's.
pub(crate) async fn a_sleep_ends_by_the_stores_clock(pair: Pair) {
    let [here, there] = &pair.stores;
    let (mut short, mut long) = (Job::new(1, BEHIND), Job::new(2, AHEAD));
    for (store, job, name) in [(here, &mut short, "behind"), (there, &mut long, "ahead")] {
        let wake_at = job.at.plus(1_000);
        let appends = [
            job.begin(),
            job.attempt(name),
            job.wait(name, "first", None),
            job.wait(name, "second", Some(wake_at)),
        ];
        for admitted in appends {
            store.append(admitted).await.unwrap();
        }
    }
    beat(there, "ahead", NOON).await;
    assert_eq!(claim(there, "ahead").await, [short.id()], "its time has come");
    let asleep = AHEAD.plus(999);
    pair.clock.set(asleep).await;
    beat(here, "behind", asleep).await;
    assert_eq!(claim(here, "behind").await, [short.id()], "the other's lease is over");
    pair.clock.set(AHEAD.plus(1_000)).await;
    assert_eq!(claim(here, "behind").await, [long.id()]);
}

/// Two that differ by minutes append to one trajectory, and in between the store's clock jumps back.
/// Each takes the store's time and adds its error to it.
pub(crate) async fn recorded_time_never_runs_back(pair: Pair) {
    const ROUNDS: u64 = 20;
    let mut job = Job::new(1, BEHIND);
    pair.stores[0].append(job.begin()).await.unwrap();
    let mut latest = Vec::new();
    for (round, now) in [NOON, BEHIND].into_iter().enumerate() {
        pair.clock.set(now).await;
        let racers = ["behind", "ahead"].into_iter().zip(&pair.stores).map(|(name, store)| {
            let (id, store) = (job.id(), Arc::clone(store));
            tokio::spawn(async move {
                let mut chain: Chain = Chain::load(Arc::clone(&store), id).await.unwrap();
                for count in 0..ROUNDS {
                    let now = store
                        .heartbeat(&worker(name), &Profile::default(), LEASE_MS)
                        .await
                        .unwrap();
                    let at = match name {
                        "ahead" => now.plus(WRONG_MS + count),
                        _ => UnixMs(now.0 - WRONG_MS + count),
                    };
                    let signal = format!("{name}-{round}-{count}");
                    chain
                        .append(|admission| Ok(push_signal(admission, at, &signal)?))
                        .await
                        .unwrap();
                }
            })
        });
        for racer in racers.collect::<Vec<_>>() {
            racer.await.unwrap();
        }
        latest.push(fold(&*pair.stores[0], job.id()).await.at());
    }
    let stored = pair.stores[1].entries(job.id(), 0, usize::MAX).await.unwrap();
    let times: Vec<_> =
        stored.iter().map(|entry| Entry::from_bytes(&entry.bytes).unwrap().payload().at).collect();
    assert_eq!(times.len() as u64, 2 + 4 * ROUNDS);
    assert!(times.is_sorted(), "{times:?}");
    let last = AHEAD.plus(ROUNDS - 1);
    assert_eq!(latest, [last; 2], "after the jump everybody is behind what is recorded");
}

/// When the store's clock jumps back, leases last longer and none is lost. The next heartbeat makes a
/// lease as long as it should be; only one whose holder is dead lasts as much longer as the clock jumped.
pub(crate) async fn a_clock_that_jumps_back_ends_no_lease(pair: Pair) {
    let [here, there] = &pair.stores;
    let (mut living, mut dead) = (Job::new(1, NOON), Job::new(2, NOON));
    for (store, job, name) in [(here, &mut living, "living"), (there, &mut dead, "dead")] {
        store.append(job.begin()).await.unwrap();
        beat(store, name, NOON).await;
        assert_eq!(claim(store, name).await, [job.id()]);
    }
    pair.clock.set(BEHIND).await;
    beat(there, "other", BEHIND).await;
    claims_nothing(there, "other", &dead, "both leases hold").await;
    beat(here, "living", BEHIND).await;
    here.append(living.attempt("living")).await.unwrap();
    assert_eq!(fold(&**here, living.id()).await.at(), NOON, "recorded time stands still");

    pair.clock.set(BEHIND.plus(LEASE_MS)).await;
    beat(there, "other", BEHIND.plus(LEASE_MS)).await;
    claims_nothing(there, "other", &living, "the new lease holds").await;
    pair.clock.set(BEHIND.plus(LEASE_MS + 1)).await;
    assert_eq!(claim(there, "other").await, [living.id()], "it was counted from the new time");
    pair.clock.set(NOON.plus(LEASE_MS)).await;
    beat(there, "other", NOON.plus(LEASE_MS)).await;
    assert_eq!(claim(there, "other").await, [living.id()], "its own lease was over");
    pair.clock.set(NOON.plus(LEASE_MS + 1)).await;
    assert_eq!(claim(there, "other").await, [dead.id()]);
}

/// When the store's clock jumps ahead, leases end before their holders know. Another takes over, and
/// the fence tells the first one, whose clock saw nothing: of the two only one can append.
pub(crate) async fn a_clock_that_jumps_ahead_costs_a_lease_and_nothing_else(pair: Pair) {
    let [here, there] = &pair.stores;
    let mut job = Job::new(1, NOON);
    here.append(job.begin()).await.unwrap();
    beat(here, "first", NOON).await;
    assert_eq!(claim(here, "first").await, [job.id()]);
    here.append(job.attempt("first")).await.unwrap();
    let mut unaware = job.clone();

    pair.clock.set(AHEAD).await;
    beat(there, "second", AHEAD).await;
    assert!(there.claim_one(&worker("second"), job.id()).await.unwrap(), "the lease is over");
    job.at = AHEAD;
    there.append(job.attempt("second")).await.unwrap();
    let lost = here.append(unaware.wait("first", "first", None)).await;
    assert_eq!(lost, Err(AppendError::FenceLost { attempt: 2 }));
    beat(here, "first", AHEAD).await;
    claims_nothing(here, "first", &job, "another has it").await;
    there.append(job.wait("second", "first", None)).await.unwrap();
    assert_eq!(fold(&**here, job.id()).await, job.state);
}
