//! Leases, claims and giving back.

use std::sync::Arc;

use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::{Profile, Store};

use super::{Job, Subject, worker};

/// Longer than any test runs.
const LONG_MS: u64 = 600_000;

/// Short enough to be waited for where the clock is real.
const SHORT_MS: u64 = 300;

async fn begin(store: &dyn Store, number: u8, at: UnixMs) -> Job {
    let mut job = Job::new(number, at);
    store.append(job.begin()).await.unwrap();
    job
}

async fn claim(store: &dyn Store, name: &str, max: usize) -> Vec<TrajectoryId> {
    store.claim(&worker(name), max).await.unwrap()
}

/// Claims go out once, longest unchanged first, and only to workers with a lease.
pub(crate) async fn claims_go_to_one_worker(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let mut ids = Vec::new();
    for (number, changed_ms) in [(1, 3), (2, 1), (3, 2), (4, 1)] {
        ids.push(begin(store, number, now.plus(changed_ms)).await.id());
    }
    assert_eq!(claim(store, "a", 10).await, [], "no lease");
    store.heartbeat(&worker("a"), &Profile::default(), LONG_MS).await.unwrap();
    store.heartbeat(&worker("b"), &Profile::default(), LONG_MS).await.unwrap();
    assert_eq!(claim(store, "a", 0).await, []);
    assert_eq!(claim(store, "a", 3).await, [ids[1], ids[3], ids[2]]);
    assert_eq!(claim(store, "b", 3).await, [ids[0]]);
    assert_eq!(claim(store, "a", 3).await, [], "what is held is not claimed again");
    store.heartbeat(&worker("a"), &Profile::default(), LONG_MS).await.unwrap();
    assert_eq!(claim(store, "b", 3).await, [], "a heartbeat keeps what is held");
}

/// One trajectory can be asked for by name, whatever there is to do, and goes to one worker.
pub(crate) async fn one_is_claimed_by_name(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let mut parked = begin(store, 1, now).await;
    for admitted in [parked.attempt("w"), parked.wait_for_both("w")] {
        store.append(admitted).await.unwrap();
    }
    let mut ended = begin(store, 2, now).await;
    for admitted in [ended.attempt("w"), ended.cancel("w")] {
        store.append(admitted).await.unwrap();
    }
    let take = async |name: &str, id| store.claim_one(&worker(name), id).await.unwrap();
    assert!(!take("a", parked.id()).await, "no lease");
    store.heartbeat(&worker("a"), &Profile::default(), LONG_MS).await.unwrap();
    store.heartbeat(&worker("b"), &Profile::default(), LONG_MS).await.unwrap();
    assert!(take("a", parked.id()).await);
    assert!(take("a", parked.id()).await, "what is held may be asked for again");
    assert!(!take("b", parked.id()).await, "another holds it");
    assert!(!take("b", ended.id()).await, "it has ended");
    assert!(!take("b", Job::new(9, now).id()).await, "there is no such trajectory");
    store.release(&worker("a"), parked.id()).await.unwrap();
    assert!(take("b", parked.id()).await);
    store.retire(&worker("b")).await.unwrap();
    assert!(take("a", parked.id()).await);
}

/// A worker whose claim went unanswered gives back what it does not know of, and nothing else.
pub(crate) async fn what_was_claimed_unknowingly_is_given_back(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let known = begin(store, 1, now).await.id();
    let unknown = begin(store, 2, now).await.id();
    let others = begin(store, 3, now).await.id();
    store.heartbeat(&worker("a"), &Profile::default(), LONG_MS).await.unwrap();
    store.heartbeat(&worker("b"), &Profile::default(), LONG_MS).await.unwrap();
    assert_eq!(claim(store, "a", 2).await, [known, unknown]);
    assert_eq!(claim(store, "b", 1).await, [others]);
    store.release_others(&worker("a"), &[known]).await.unwrap();
    assert_eq!(claim(store, "b", 9).await, [unknown]);
    store.release_others(&worker("a"), &[]).await.unwrap();
    assert_eq!(claim(store, "b", 9).await, [known]);
}

/// Only what has something to do now is claimed: not what is parked, not before its time, not after its end.
pub(crate) async fn only_work_is_claimed(subject: Subject) {
    let store = &*subject.store;
    let now = store.heartbeat(&worker("w"), &Profile::default(), LONG_MS).await.unwrap();
    let mut parked = begin(store, 1, now).await;
    for admitted in [parked.attempt("w"), parked.wait_for_both("w")] {
        store.append(admitted).await.unwrap();
    }
    let mut ended = begin(store, 2, now).await;
    for admitted in [ended.attempt("w"), ended.cancel("w")] {
        store.append(admitted).await.unwrap();
    }
    let wake_at = now.plus(2 * SHORT_MS);
    let mut asleep = begin(store, 3, now).await;
    let waits = [
        asleep.attempt("w"),
        asleep.wait("w", "first", None),
        asleep.wait("w", "second", Some(wake_at)),
    ];
    for admitted in waits {
        store.append(admitted).await.unwrap();
    }
    let woken = subject
        .eventually("the time has come", async || {
            let claimed = claim(store, "w", 10).await;
            (!claimed.is_empty()).then_some(claimed)
        })
        .await;
    assert!(subject.now().await >= wake_at, "before its time");
    assert_eq!(woken, [asleep.id()]);
}

/// What a dead worker held is claimed by others once its lease has ended, and not before.
pub(crate) async fn an_ended_lease_frees_its_claims(subject: Subject) {
    let store = &*subject.store;
    let job = begin(store, 1, subject.now().await).await;
    store.heartbeat(&worker("live"), &Profile::default(), LONG_MS).await.unwrap();
    let begun = store.heartbeat(&worker("dying"), &Profile::default(), SHORT_MS).await.unwrap();
    assert_eq!(claim(store, "dying", 10).await, [job.id()]);
    let freed = subject
        .eventually("the lease ends", async || claim(store, "live", 10).await.first().copied())
        .await;
    assert_eq!(freed, job.id());
    assert!(subject.now().await > begun.plus(SHORT_MS), "the lease was cut short");
    assert_eq!(claim(store, "dying", 10).await, [], "no lease, no claims");
    store.heartbeat(&worker("dying"), &Profile::default(), LONG_MS).await.unwrap();
    assert_eq!(claim(store, "dying", 10).await, [], "another has it");
}

/// A worker that is late begins anew: what it held before is anybody's, itself included.
pub(crate) async fn a_late_heartbeat_begins_a_new_lease(subject: Subject) {
    let store = &*subject.store;
    let job = begin(store, 1, subject.now().await).await;
    let begun = store.heartbeat(&worker("late"), &Profile::default(), SHORT_MS).await.unwrap();
    assert_eq!(claim(store, "late", 10).await, [job.id()]);
    let ended = |now: UnixMs| (now > begun.plus(SHORT_MS)).then_some(());
    subject.eventually("the lease ends", async || ended(subject.now().await)).await;
    store.heartbeat(&worker("late"), &Profile::default(), LONG_MS).await.unwrap();
    assert_eq!(claim(store, "late", 10).await, [job.id()]);
    assert_eq!(claim(store, "late", 10).await, []);
}

/// Only the holder gives back, one by one or everything at once.
pub(crate) async fn claims_are_given_back(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let (one, two) = (begin(store, 1, now).await.id(), begin(store, 2, now).await.id());
    for name in ["a", "b"] {
        store.heartbeat(&worker(name), &Profile::default(), LONG_MS).await.unwrap();
    }
    assert_eq!(claim(store, "a", 10).await, [one, two]);
    store.release(&worker("b"), one).await.unwrap();
    assert_eq!(claim(store, "b", 10).await, [], "not b's to give");
    store.release(&worker("a"), one).await.unwrap();
    assert_eq!(claim(store, "b", 10).await, [one]);
    store.release(&worker("a"), Job::new(9, now).id()).await.unwrap();
    store.retire(&worker("a")).await.unwrap();
    assert_eq!(claim(store, "a", 10).await, [], "the lease is over");
    assert_eq!(claim(store, "b", 10).await, [two]);
    store.retire(&worker("nobody")).await.unwrap();
}

/// An append is not stopped by claims, nor does it change them.
pub(crate) async fn claims_and_appends_are_apart(subject: Subject) {
    let store = &*subject.store;
    let mut job = begin(store, 1, subject.now().await).await;
    store.heartbeat(&worker("holder"), &Profile::default(), LONG_MS).await.unwrap();
    store.heartbeat(&worker("other"), &Profile::default(), LONG_MS).await.unwrap();
    assert_eq!(claim(store, "holder", 1).await, [job.id()]);
    store.append(job.attempt("other")).await.unwrap();
    assert_eq!(claim(store, "other", 1).await, [], "still held");
    store.reproject(job.id(), job.state.head().unwrap(), &job.projection()).await.unwrap();
    assert_eq!(claim(store, "other", 1).await, [], "still held");
    store.release(&worker("holder"), job.id()).await.unwrap();
    assert_eq!(claim(store, "other", 1).await, [job.id()]);
}

/// Workers that claim at the same moment share the work, and nothing is handed out twice.
pub(crate) async fn racing_claims_are_disjoint(subject: Subject) {
    let at = subject.now().await;
    for number in 1..=40 {
        begin(&*subject.store, number, at).await;
    }
    let races = (0..4).map(|racer| {
        let store = Arc::clone(&subject.store);
        tokio::spawn(async move {
            let me = worker(&format!("racer-{racer}"));
            store.heartbeat(&me, &Profile::default(), LONG_MS).await.unwrap();
            let mut mine = Vec::new();
            for _ in 0..20 {
                mine.extend(store.claim(&me, 3).await.unwrap());
            }
            mine
        })
    });
    let mut claimed = Vec::new();
    for race in races.collect::<Vec<_>>() {
        claimed.extend(race.await.unwrap());
    }
    claimed.sort();
    assert_eq!(claimed, (1..=40).map(|number| Job::new(number, at).id()).collect::<Vec<_>>());
}
