//! What there is of trajectories, told without believing rows, and rows put back.

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_store::{Mark, Trace};

use super::{Job, Subject};

fn mark(head: Head) -> Mark {
    let seq = i64::try_from(head.seq).unwrap();
    Mark { seq, id: head.id.as_bytes().to_vec(), archived: false }
}

pub(crate) async fn every_trajectory_leaves_a_trace(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let mut expected = Vec::new();
    for number in 1..=5 {
        let mut job = Job::new(number, now);
        store.append(job.begin()).await.unwrap();
        let parked = number == 3;
        if parked {
            store.append(job.attempt("w")).await.unwrap();
            store.append(job.wait_for_both("w")).await.unwrap();
        }
        let row = Some(mark(job.state.head().unwrap()));
        expected.push(Trace { trajectory: job.id(), row, entries: true, parked });
    }
    expected.sort_by_key(|trace| trace.trajectory);
    let mending = store.mending();
    assert_eq!(mending.traces(None, 9).await.unwrap(), expected);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = mending.traces(after, 2).await.unwrap();
        after = page.last().map(|trace| trace.trajectory);
        found.extend(page.clone());
        if page.len() < 2 {
            break;
        }
    }
    assert_eq!(found, expected);
    for trace in &expected {
        assert_eq!(mending.trace(trace.trajectory).await.unwrap(), *trace);
        assert!(trace.is_there() && trace.head().is_some() && !trace.is_archived());
    }
    let nowhere = mending.trace(Job::new(9, now).id()).await.unwrap();
    assert!(!nowhere.is_there() && !nowhere.parked && nowhere.head().is_none());
}

pub(crate) async fn a_row_is_put_where_the_entries_end(subject: Subject) {
    let store = &*subject.store;
    let mut job = Job::new(1, subject.now().await);
    for admitted in [job.begin(), job.attempt("w"), job.wait_for_both("w")] {
        store.append(admitted).await.unwrap();
    }
    let (head, summary) = (job.state.head().unwrap(), job.projection().summary);
    let row = store.trajectory(job.id()).await.unwrap();
    let mending = store.mending();
    let elsewhere = Head { id: EntryId::new(Digest::of(b"elsewhere")), ..head };
    let refused = [
        (Some(mark(elsewhere)), head, "the row was not so"),
        (None, head, "there is a row"),
        (Some(mark(head)), elsewhere, "the entries do not end there"),
        (Some(mark(head)), Head { seq: head.seq + 1, ..head }, "there is no such entry"),
    ];
    for (was, head, why) in refused {
        let put = mending.put_row(job.id(), was.as_ref(), head, &summary).await.unwrap();
        assert!(!put, "{why}");
    }
    let other = Job::new(2, job.at).id();
    assert!(!mending.put_row(other, None, head, &summary).await.unwrap(), "it has no entries");
    assert!(!mending.drop_parked(job.id()).await.unwrap(), "its steps are parked");
    assert!(!mending.drop_parked(other).await.unwrap());
    assert!(mending.put_row(job.id(), Some(&mark(head)), head, &summary).await.unwrap());
    assert_eq!(store.trajectory(job.id()).await.unwrap(), row);
    assert!(mending.trace(job.id()).await.unwrap().parked);
    assert_eq!(store.mending().traces(None, 9).await.unwrap().len(), 1);
}
