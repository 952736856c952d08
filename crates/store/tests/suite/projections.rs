//! Rows of trajectories and parked steps.

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::projection::{ParkedOn, Status};
use gesta_store::{AppendError, Listing, ParkedListing, ParkedRow, Store, TrajectoryRow};

use super::{Job, Subject};

fn row(job: &Job) -> TrajectoryRow {
    TrajectoryRow {
        trajectory: job.id(),
        head: job.state.head().unwrap(),
        summary: job.state.summary().unwrap(),
        archived: None,
    }
}

fn parked(job: &Job) -> Vec<ParkedRow> {
    job.state.parked().map(|parked| ParkedRow { trajectory: job.id(), parked }).collect()
}

async fn parked_of(store: &dyn Store, job: &Job) -> Vec<ParkedRow> {
    let listing = ParkedListing { trajectory: Some(job.id()), ..ParkedListing::default() };
    store.parked(&listing, 100).await.unwrap()
}

/// After every append the rows are those of the state.
pub(crate) async fn rows_follow_the_chain(subject: Subject) {
    let store = &*subject.store;
    let at = subject.now().await;
    let mut job = Job::new(1, at);
    let mut statuses = Vec::new();
    let appends: [fn(&mut Job) -> _; 5] = [
        |job| job.begin(),
        |job| job.attempt("w"),
        |job| job.wait("w", "first", Some(job.at.plus(5_000))),
        |job| job.wait("w", "second", None),
        |job| job.cancel("w"),
    ];
    for append in appends {
        let admitted = append(&mut job);
        store.append(admitted).await.unwrap();
        let stored = store.trajectory(job.id()).await.unwrap().unwrap();
        assert_eq!(stored, row(&job));
        assert_eq!(parked_of(store, &job).await, parked(&job));
        statuses.push((stored.summary.status, parked(&job).len()));
    }
    let expected = [
        (Status::Queued, 0),
        (Status::Running, 0),
        (Status::Running, 1),
        (Status::Parked, 2),
        (Status::Cancelled, 0),
    ];
    assert_eq!(statuses, expected);
    assert_eq!(store.trajectory(Job::new(2, at).id()).await.unwrap(), None);
}

/// Pages of trajectories run by id, and a status narrows them.
pub(crate) async fn trajectories_are_listed_in_pages(subject: Subject) {
    let store = &*subject.store;
    let at = subject.now().await;
    let mut jobs: Vec<_> = [3, 1, 200, 2, 100].map(|number| Job::new(number, at)).into();
    for job in &mut jobs {
        store.append(job.begin()).await.unwrap();
    }
    store.append(jobs[0].attempt("w")).await.unwrap();
    jobs.sort_by_key(Job::id);
    let rows: Vec<_> = jobs.iter().map(row).collect();
    assert_eq!(store.list(&Listing::default(), 100).await.unwrap(), rows);
    let mut listing = Listing::default();
    let mut paged = Vec::new();
    loop {
        let page = store.list(&listing, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        listing.after = Some(last.trajectory);
        paged.extend(page);
    }
    assert_eq!(paged, rows);
    let running = Listing { status: Some(Status::Running), ..Listing::default() };
    assert_eq!(store.list(&running, 100).await.unwrap(), [rows[2].clone()]);
    let queued = Listing { status: Some(Status::Queued), after: Some(jobs[1].id()) };
    assert_eq!(store.list(&queued, 100).await.unwrap(), rows[3..]);
    assert_eq!(store.list(&Listing::default(), 0).await.unwrap(), []);
}

/// Pages of parked steps run by trajectory and step; what they wait for and whose they are narrows them.
pub(crate) async fn parked_steps_are_listed_in_pages(subject: Subject) {
    let store = &*subject.store;
    let at = subject.now().await;
    let mut rows = Vec::new();
    let mut jobs: Vec<_> = [1, 2, 200].map(|number| Job::new(number, at)).into();
    for job in &mut jobs {
        for admitted in [job.begin(), job.attempt("w"), job.wait_for_both("w")] {
            store.append(admitted).await.unwrap();
        }
        rows.extend(parked(job));
    }
    assert_eq!(rows.len(), 6);
    assert_eq!(store.parked(&ParkedListing::default(), 100).await.unwrap(), rows);
    let mut listing = ParkedListing { on: Some(ParkedOn::Wait), ..ParkedListing::default() };
    for expected in &rows {
        let page = store.parked(&listing, 1).await.unwrap();
        assert_eq!(page, std::slice::from_ref(expected));
        listing.after = Some((expected.trajectory, expected.parked.step.clone()));
    }
    assert_eq!(store.parked(&listing, 1).await.unwrap(), []);
    let doubts = ParkedListing { on: Some(ParkedOn::Doubt), ..ParkedListing::default() };
    assert_eq!(store.parked(&doubts, 100).await.unwrap(), []);
    assert_eq!(parked_of(store, &jobs[1]).await, rows[2..4]);
    let rest = ParkedListing {
        after: Some((jobs[1].id(), "first".parse().unwrap())),
        trajectory: Some(jobs[1].id()),
        ..ParkedListing::default()
    };
    assert_eq!(store.parked(&rest, 100).await.unwrap(), rows[3..4]);
}

/// Projections are replaced whole, and only under the head that they were computed from.
pub(crate) async fn projections_are_rebuilt(subject: Subject) {
    let store = &*subject.store;
    let mut job = Job::new(1, subject.now().await);
    for admitted in [job.begin(), job.attempt("w"), job.wait_for_both("w")] {
        store.append(admitted).await.unwrap();
    }
    let head = job.state.head().unwrap();
    let mut wrong = job.projection();
    wrong.summary.status = Status::Running;
    wrong.summary.runnable = true;
    wrong.summary.principal = "nobody".parse().unwrap();
    wrong.summary.tenant = None;
    wrong.parked.truncate(1);
    wrong.parked[0].note = "wrong, and with a \0 in it".to_owned();
    store.reproject(job.id(), head, &wrong).await.unwrap();
    let stored = store.trajectory(job.id()).await.unwrap().unwrap();
    assert_eq!((stored.head, stored.summary), (head, wrong.summary));
    let rows = parked_of(store, &job).await;
    assert_eq!(rows.iter().map(|row| &row.parked).collect::<Vec<_>>(), [&wrong.parked[0]]);

    store.reproject(job.id(), head, &job.projection()).await.unwrap();
    assert_eq!(store.trajectory(job.id()).await.unwrap(), Some(row(&job)));
    assert_eq!(parked_of(store, &job).await, parked(&job));

    let elsewhere = Head { id: EntryId::new(Digest::of(b"elsewhere")), seq: head.seq };
    let stale = store.reproject(job.id(), elsewhere, &job.projection()).await;
    assert_eq!(stale, Err(AppendError::Conflict { head: Some(head) }));
    let nowhere = store.reproject(Job::new(2, job.at).id(), head, &job.projection()).await;
    assert_eq!(nowhere, Err(AppendError::Conflict { head: None }));
    assert_eq!(store.trajectory(job.id()).await.unwrap(), Some(row(&job)));
}
