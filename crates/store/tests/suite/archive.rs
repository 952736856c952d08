//! Archiving: what leaves the store, what stays, and who may still add to it.

use gesta_core::digest::Digest;
use gesta_core::entry::Entry;
use gesta_core::time::UnixMs;
use gesta_store::{
    AppendError, Archived, Archiving, BundleRow, Listing, Store, StoreError, StoredEntry, Whole,
};

use super::{Job, Subject, fold, report};

const LATER: UnixMs = UnixMs(4_000_000_000_000);

async fn ended(store: &dyn Store, number: u8, at: UnixMs) -> Job {
    let mut job = Job::new(number, at);
    for admitted in [job.begin(), job.attempt("w"), job.cancel("w")] {
        store.append(admitted).await.unwrap();
    }
    job
}

fn archiving(job: &Job) -> Archiving {
    let sha256 = Digest::of(b"the bundle");
    Archiving {
        trajectory: job.id(),
        head: job.state.head().unwrap(),
        archived: Archived { bundle: "/archive/one.gesta".to_owned(), sha256, at: UnixMs(7) },
        blobs: Vec::new(),
        unused_since: LATER,
    }
}

fn whole(job: &Job, stored: &[StoredEntry]) -> Whole {
    let entries = stored.iter().map(|stored| Entry::from_bytes(&stored.bytes).unwrap()).collect();
    Whole::of(job.id(), entries).unwrap()
}

fn is_archived(error: &StoreError, job: &Job) -> bool {
    matches!(error, StoreError::Archived { trajectory, bundle, .. }
        if *trajectory == job.id() && bundle == "/archive/one.gesta")
}

/// Head, status and what is not sealed are as before; entries are told to be elsewhere, and come back byte
/// for byte. Others are not touched.
pub(crate) async fn what_is_archived_leaves_its_row(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let (job, other) = (ended(store, 1, now).await, ended(store, 2, now).await);
    let before = store.trajectory(job.id()).await.unwrap().unwrap();
    let entries = store.entries(job.id(), 0, 99).await.unwrap();
    let unsealed = store.log().unsealed(None, 9).await.unwrap();
    assert_eq!(store.archives().bundles().await.unwrap(), []);

    let asked = archiving(&job);
    assert_eq!(store.archives().archive(&asked).await.unwrap(), Some(0));
    let mut expected = before.clone();
    expected.archived = Some(asked.archived.clone());
    assert_eq!(store.trajectory(job.id()).await.unwrap().as_ref(), Some(&expected));
    assert_eq!(store.list(&Listing::default(), 1).await.unwrap(), [expected]);
    let head = job.state.head().unwrap();
    for from in [0, 1, head.seq] {
        let error = store.entries(job.id(), from, 1).await.unwrap_err();
        assert!(is_archived(&error, &job), "{error}");
    }
    assert_eq!(store.entries(job.id(), head.seq + 1, 9).await.unwrap(), []);
    assert_eq!(store.locate(head.id).await.unwrap(), None);
    assert_eq!(store.log().unsealed(None, 9).await.unwrap(), unsealed);
    fold(store, other.id()).await;
    let Archived { bundle, sha256, .. } = asked.archived.clone();
    let row = BundleRow { bundle, sha256, trajectories: 1 };
    assert_eq!(store.archives().bundles().await.unwrap(), [row]);

    assert!(store.archives().bring_back(&whole(&job, &entries)).await.unwrap());
    assert!(store.archives().bring_back(&whole(&job, &entries)).await.unwrap(), "asked again");
    assert_eq!(store.entries(job.id(), 0, 99).await.unwrap(), entries);
    assert_eq!(store.trajectory(job.id()).await.unwrap(), Some(before));
    assert_eq!(store.archives().bundles().await.unwrap(), []);
    assert_eq!(store.log().unsealed(None, 9).await.unwrap(), unsealed);
    assert!(store.archives().size().await.unwrap().bytes > 0);
}

/// Neither what goes on, nor what has another head, nor what a report waits for. Asking for the same again is
/// answered the same; another bundle is not taken for it, and what ends elsewhere does not come back.
pub(crate) async fn only_what_stands_still_is_archived(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let archives = store.archives();
    let mut open = Job::new(1, now);
    for admitted in [open.begin(), open.attempt("w")] {
        store.append(admitted).await.unwrap();
    }
    assert_eq!(archives.archive(&archiving(&open)).await.unwrap(), None);
    let job = ended(store, 2, now).await;
    let mut older = archiving(&job);
    older.head.seq -= 1;
    assert_eq!(archives.archive(&older).await.unwrap(), None);
    assert_eq!(archives.archive(&archiving(&Job::new(9, now).also_ended())).await.unwrap(), None);
    let waits = report(job.id(), now);
    store.put_effect(&waits).await.unwrap();
    assert_eq!(archives.archive(&archiving(&job)).await.unwrap(), None);
    store.drop_effect(&waits).await.unwrap();
    let entries = store.entries(job.id(), 0, 99).await.unwrap();
    fold(store, job.id()).await;

    assert_eq!(archives.archive(&archiving(&job)).await.unwrap(), Some(0));
    assert_eq!(archives.archive(&archiving(&job)).await.unwrap(), Some(0), "asked again");
    let mut other = archiving(&job);
    other.archived.sha256 = Digest::of(b"another bundle");
    assert_eq!(archives.archive(&other).await.unwrap(), None);
    let (_, shorter) = entries.split_last().unwrap();
    assert!(!archives.bring_back(&whole(&job, shorter)).await.unwrap());
    assert!(store.entries(job.id(), 0, 9).await.is_err());
}

/// What expects the head is refused and told where the entries are; what was appended before still counts,
/// what lost before loses as before, and once the entries are back it goes on.
pub(crate) async fn nothing_is_appended_to_what_is_archived(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let mut job = Job::new(1, now);
    let (begun, attempt) = (job.begin(), job.attempt("w"));
    let stale = job.clone().signal("stale");
    let cancelled = job.cancel("w");
    for admitted in [begun.clone(), attempt, cancelled.clone()] {
        store.append(admitted).await.unwrap();
    }
    let (entries, head) =
        (store.entries(job.id(), 0, 99).await.unwrap(), job.state.head().unwrap());
    store.archives().archive(&archiving(&job)).await.unwrap();

    let projection = job.projection();
    let late = job.erased();
    match store.append(late.clone()).await.unwrap_err() {
        AppendError::Refused(error) => assert!(is_archived(&error, &job), "{error}"),
        other => panic!("{other}"),
    }
    assert_eq!(store.append(cancelled).await.unwrap(), head, "it was appended before");
    let conflict = AppendError::Conflict { head: Some(head) };
    for lost in [stale, begun] {
        assert_eq!(store.append(lost).await.unwrap_err(), conflict);
    }
    assert_eq!(store.reproject(job.id(), head, &projection).await.unwrap_err(), conflict);
    assert_eq!(store.trajectory(job.id()).await.unwrap().map(|row| row.head), Some(head));

    assert!(store.archives().bring_back(&whole(&job, &entries)).await.unwrap());
    store.append(late).await.unwrap();
    fold(store, job.id()).await;
}

/// A blob goes with the trajectory unless somebody has put it since or a report in the inbox names it.
pub(crate) async fn blobs_that_somebody_may_name_stay(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    let (job, fresh) = (ended(store, 1, now).await, ended(store, 2, now).await);
    // The inbox names this one: see `report`.
    let reported = store.put_blob(b"started").await.unwrap().sha256;
    store.put_effect(&report(Job::new(3, now).id(), now)).await.unwrap();
    let own = store.put_blob(b"own").await.unwrap().sha256;
    let none = Digest::of(b"never put");

    let mut asked = archiving(&fresh);
    asked.blobs = vec![own];
    asked.unused_since = UnixMs(1);
    assert_eq!(store.archives().archive(&asked).await.unwrap(), Some(0));
    assert_eq!(store.blob(own).await.unwrap().as_deref(), Some(&b"own"[..]), "it was put since");
    let mut asked = archiving(&job);
    asked.blobs = vec![own, reported, none];
    assert_eq!(store.archives().archive(&asked).await.unwrap(), Some(1));
    assert_eq!(store.blob(own).await.unwrap(), None);
    assert!(store.blob(reported).await.unwrap().is_some());
}

/// Of an archiving and an append that meet, one wins, and the other is told.
pub(crate) async fn archiving_and_appending_never_both_win(subject: Subject) {
    let (store, now) = (&*subject.store, subject.now().await);
    for number in 1..=40 {
        let mut job = ended(store, number, now).await;
        let (asked, late) = (archiving(&job), job.erased());
        let (archived, appended) =
            tokio::join!(store.archives().archive(&asked), store.append(late.clone()));
        match (archived.unwrap(), appended) {
            (None, Ok(_)) => {
                fold(store, job.id()).await;
            }
            (Some(_), Err(AppendError::Refused(error))) => {
                assert!(is_archived(&error, &job), "{error}");
                assert_eq!(
                    store.trajectory(job.id()).await.unwrap().map(|row| row.head),
                    Some(asked.head)
                );
            }
            (archived, appended) => panic!("{archived:?}, {appended:?}"),
        }
    }
}
