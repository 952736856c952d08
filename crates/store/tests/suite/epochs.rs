//! Epochs: what is held in a copy, and what lets it go.

use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::{AppendError, HeldListing, Opening, Profile, Release, Store};

use super::{Job, Subject, worker};

const LONG_MS: u64 = 600_000;

fn opening(known: Vec<(TrajectoryId, Head)>) -> Opening {
    Opening { by: "owner".parse().unwrap(), copied_at: UnixMs(1_000), known, above: 0 }
}

fn release(at: UnixMs) -> Release {
    Release { at, by: "operator".parse().unwrap(), ask: true, note: "looked: \"nothing\"".into() }
}

async fn begin(store: &dyn Store, number: u8, at: UnixMs) -> Job {
    let mut job = Job::new(number, at);
    store.append(job.begin()).await.unwrap();
    job
}

async fn lease(store: &dyn Store, name: &str) {
    store.heartbeat(&worker(name), &Profile::default(), LONG_MS).await.unwrap();
}

async fn held(store: &dyn Store, released: bool) -> Vec<TrajectoryId> {
    let (mut listing, mut ids) = (HeldListing { after: None, released }, Vec::new());
    loop {
        let page = store.epochs().held(listing, 2).await.unwrap();
        ids.extend(page.iter().map(|row| row.trajectory));
        match page.last() {
            Some(last) => listing.after = Some(last.trajectory),
            None => return ids,
        }
    }
}

/// Nothing that was open is claimed in a new epoch, by turn or by name, until it is released, whatever
/// others add to it; what ended stays ended, and what begins afterwards is free.
pub(crate) async fn what_was_open_is_held_in_a_new_epoch(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let first = store.epochs().epoch().await.unwrap();
    assert_eq!((first.number, first.copied_at), (1, None));
    let ready = begin(store, 1, now).await;
    let mut asleep = begin(store, 2, now).await;
    store.append(asleep.attempt("w")).await.unwrap();
    for step in ["first", "second"] {
        store.append(asleep.wait("w", step, Some(now))).await.unwrap();
    }
    let mut ended = begin(store, 3, now).await;
    for admitted in [ended.attempt("w"), ended.cancel("w")] {
        store.append(admitted).await.unwrap();
    }
    assert_eq!(held(store, true).await, []);
    let mut known = ready.state.head().unwrap();
    known.seq += 7;
    let opening = Opening { above: 4, ..opening(vec![(ready.id(), known), (asleep.id(), known)]) };
    let opened = store.epochs().open_epoch(&opening).await.unwrap();
    assert_eq!((opened.store, opened.number), (first.store, 5), "above what somebody remembers");
    assert_eq!(store.epochs().epoch().await.unwrap(), opened);

    lease(store, "a").await;
    assert_eq!(store.claim(&worker("a"), 9).await.unwrap(), []);
    for id in [ready.id(), asleep.id(), ended.id()] {
        assert!(!store.claim_one(&worker("a"), id).await.unwrap());
    }
    let mut both = [ready.id(), asleep.id()];
    both.sort();
    assert_eq!(held(store, false).await, both);
    let row = store.epochs().held_one(ready.id()).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.copied_at, row.known), (5, UnixMs(1_000), Some(known.seq)));
    assert_eq!(row.release, None);
    assert_eq!(store.epochs().held_one(ended.id()).await.unwrap(), None);

    // Neither what others add nor a rebuild of its rows brings it back into a queue.
    store.append(asleep.signal("s-1")).await.unwrap();
    store.reproject(asleep.id(), asleep.state.head().unwrap(), &asleep.projection()).await.unwrap();
    assert_eq!(store.claim(&worker("a"), 9).await.unwrap(), []);
    let fresh = begin(store, 4, now).await;
    assert_eq!(store.claim(&worker("a"), 9).await.unwrap(), [fresh.id()]);

    assert!(store.epochs().let_go(asleep.id(), &release(now)).await.unwrap());
    assert_eq!(store.claim(&worker("a"), 9).await.unwrap(), [asleep.id()]);
    assert!(store.epochs().let_go(ready.id(), &release(now)).await.unwrap());
    assert!(store.claim_one(&worker("a"), ready.id()).await.unwrap());
    assert_eq!(held(store, false).await, []);
    assert_eq!(held(store, true).await, both);
}

/// A worker that knows nothing of the restore has the right head and the right attempt, and still adds
/// nothing; people may speak meanwhile.
pub(crate) async fn what_is_held_takes_nothing_from_an_attempt(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let mut job = begin(store, 1, now).await;
    store.append(job.attempt("w")).await.unwrap();
    store.epochs().open_epoch(&opening(Vec::new())).await.unwrap();
    let before = job.state.head().unwrap();
    let mut zombie = job.clone();
    let refused = store.append(zombie.wait_for_both("w")).await.unwrap_err();
    assert_eq!(refused, AppendError::Conflict { head: Some(before) });
    store.append(job.signal("s-1")).await.unwrap();
    store.epochs().let_go(job.id(), &release(now)).await.unwrap();
    store.append(job.wait_for_both("w")).await.unwrap();
}

/// The first word stays, with whoever said it; a later epoch asks again, and forgets no doubt.
pub(crate) async fn a_release_is_said_once(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let job = begin(store, 1, now).await;
    assert!(!store.epochs().let_go(job.id(), &release(now)).await.unwrap(), "nothing is held");
    store.epochs().open_epoch(&opening(Vec::new())).await.unwrap();
    let said = release(now);
    assert!(store.epochs().let_go(job.id(), &said).await.unwrap());
    let other = Release { by: "other".parse().unwrap(), ask: false, ..said.clone() };
    assert!(!store.epochs().let_go(job.id(), &other).await.unwrap());
    let row = store.epochs().held_one(job.id()).await.unwrap().unwrap();
    assert_eq!(row.release, Some(said));
    let later = Opening { copied_at: UnixMs(5_000), ..opening(Vec::new()) };
    assert_eq!(store.epochs().open_epoch(&later).await.unwrap().number, 3);
    let row = store.epochs().held_one(job.id()).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.copied_at, row.release), (3, UnixMs(1_000), None));
}

/// Leases and claims of the copy are nobody's.
pub(crate) async fn an_epoch_ends_every_lease(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let job = begin(store, 1, now).await;
    lease(store, "a").await;
    assert_eq!(store.claim(&worker("a"), 1).await.unwrap(), [job.id()]);
    store.epochs().open_epoch(&opening(Vec::new())).await.unwrap();
    assert_eq!(store.workers().await.unwrap(), []);
    assert_eq!(store.claim(&worker("a"), 1).await.unwrap(), [], "it has no lease");
    store.epochs().let_go(job.id(), &release(now)).await.unwrap();
    lease(store, "b").await;
    assert_eq!(store.claim(&worker("b"), 1).await.unwrap(), [job.id()]);
}
