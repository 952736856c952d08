//! Appending and reading back.

use std::sync::Arc;

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::{Act, Offer, State};
use gesta_core::time::UnixMs;
use gesta_store::{AppendError, ParkedListing, StoredEntry};

use super::{Job, Subject, report};

fn stored(admitted: &Admitted) -> Vec<StoredEntry> {
    let row = |entry: &Entry| StoredEntry {
        id: entry.id(),
        seq: entry.seq(),
        bytes: entry.bytes().to_vec(),
    };
    admitted.entries().iter().map(row).collect()
}

/// Stored bytes are the hashed bytes, in order, in pages.
pub(crate) async fn entries_come_back_as_they_were(subject: Subject) {
    let store = &subject.store;
    let mut job = Job::new(1, subject.now().await);
    let appends = [job.begin(), job.attempt("w"), job.wait_for_both("w"), job.signal("s")];
    let mut expected = Vec::new();
    for admitted in appends {
        expected.extend(stored(&admitted));
        let head = admitted.head();
        assert_eq!(store.append(admitted).await, Ok(head));
    }
    assert_eq!(store.entries(job.id(), 0, 100).await.unwrap(), expected);
    assert_eq!(store.entries(job.id(), 2, 3).await.unwrap(), expected[2..5]);
    assert_eq!(store.entries(job.id(), 6, 100).await.unwrap(), []);
    assert_eq!(store.entries(Job::new(2, job.at).id(), 0, 100).await.unwrap(), []);
    for entry in &expected {
        assert_eq!(Entry::from_bytes(&entry.bytes).unwrap().id(), entry.id);
        assert_eq!(store.locate(entry.id).await.unwrap(), Some((job.id(), entry.seq)));
    }
    assert_eq!(store.locate(EntryId::new(Digest::of(b"no such"))).await.unwrap(), None);
}

/// An append on top of a head that has moved changes nothing and says where it is.
pub(crate) async fn a_stale_append_conflicts(subject: Subject) {
    let store = &subject.store;
    let mut job = Job::new(1, subject.now().await);
    store.append(job.begin()).await.unwrap();
    let mut stale = job.clone();
    let head = store.append(job.signal("won")).await.unwrap();
    let conflict = Err(AppendError::Conflict { head: Some(head) });
    assert_eq!(store.append(stale.signal("lost")).await, conflict);
    assert_eq!(store.append(stale.signal("lost-too")).await, conflict);
    let mut twice = Job::new(1, job.at);
    assert_eq!(store.append(twice.begin_as("impostor")).await, conflict);
    assert_eq!(store.entries(job.id(), 0, 100).await.unwrap().len(), 3);
    let row = store.trajectory(job.id()).await.unwrap().unwrap();
    assert_eq!((row.head, row.summary), (head, job.state.summary().unwrap()));
}

/// Nothing can be appended to a trajectory that the store does not have.
pub(crate) async fn an_append_to_nothing_conflicts(subject: Subject) {
    let mut job = Job::new(1, subject.now().await);
    let _never_stored = job.begin();
    let lost = subject.store.append(job.signal("s")).await;
    assert_eq!(lost, Err(AppendError::Conflict { head: None }));
    assert_eq!(subject.store.trajectory(job.id()).await.unwrap(), None);
}

/// A worker whose attempt was taken over hears that, and not of a mere conflict.
pub(crate) async fn an_older_attempt_loses_its_fence(subject: Subject) {
    let store = &subject.store;
    let mut job = Job::new(1, subject.now().await);
    store.append(job.begin()).await.unwrap();
    store.append(job.attempt("old")).await.unwrap();
    let mut old = job.clone();
    let head = store.append(job.signal("unfenced")).await.unwrap();
    let conflict = Err(AppendError::Conflict { head: Some(head) });
    assert_eq!(store.append(old.clone().wait("old", "first", None)).await, conflict);
    let head = store.append(job.attempt("new")).await.unwrap();
    let lost = Err(AppendError::FenceLost { attempt: 2 });
    assert_eq!(store.append(old.clone().wait("old", "first", None)).await, lost);
    let conflict = Err(AppendError::Conflict { head: Some(head) });
    assert_eq!(store.append(old.signal("under-no-fence")).await, conflict);
    store.append(job.wait("new", "first", None)).await.unwrap();
}

/// Sending the same bytes again is how an unknown append is settled, whatever has followed since.
pub(crate) async fn a_resent_append_counts_once(subject: Subject) {
    let store = &subject.store;
    let mut job = Job::new(1, subject.now().await);
    let (begin, attempt) = (job.begin(), job.attempt("w"));
    let both = job.wait_for_both("w");
    for admitted in [&begin, &begin, &attempt, &attempt, &both, &both] {
        assert_eq!(store.append(admitted.clone()).await, Ok(admitted.head()));
    }
    for later in [job.signal("later"), job.attempt("taker")] {
        store.append(later).await.unwrap();
    }
    for admitted in [&begin, &attempt, &both] {
        assert_eq!(store.append(admitted.clone()).await, Ok(admitted.head()));
    }
    assert_eq!(store.entries(job.id(), 0, 100).await.unwrap().len(), 7);
    let row = store.trajectory(job.id()).await.unwrap().unwrap();
    assert_eq!((Some(row.head), row.summary), (job.state.head(), job.state.summary().unwrap()));
}

/// Several entries of one append are stored together or not at all, also when only some are there.
pub(crate) async fn an_append_is_whole_or_absent(subject: Subject) {
    let store = &subject.store;
    let mut job = Job::new(1, subject.now().await);
    store.append(job.begin()).await.unwrap();
    let mut other = job.clone();
    let head = store.append(job.signal("a")).await.unwrap();
    let overlapping = other.signals(&["a", "b"]);
    assert_eq!(overlapping.entries()[0].id(), head.id, "the first entry is there already");
    let conflict = Err(AppendError::Conflict { head: Some(head) });
    assert_eq!(store.append(overlapping).await, conflict);
    assert_eq!(store.entries(job.id(), 0, 100).await.unwrap().len(), 3);
    let head = store.append(job.signals(&["b", "c", "d"])).await.unwrap();
    assert_eq!((head.seq, store.entries(job.id(), 0, 100).await.unwrap().len()), (5, 6));
}

/// Writers that race for the same place: one wins each, the others fold what it wrote.
pub(crate) async fn one_racer_wins_each_place(subject: Subject) {
    const RACERS: usize = 4;
    const ROUNDS: usize = 25;
    let mut job = Job::new(1, subject.now().await);
    subject.store.append(job.begin()).await.unwrap();
    let races = (0..RACERS).map(|racer| {
        let (store, mut mine) = (Arc::clone(&subject.store), job.clone());
        tokio::spawn(async move {
            let mut won = Vec::new();
            while won.len() < ROUNDS {
                let next = mine.clone().signal(&format!("racer-{racer}-{}", won.len()));
                match store.append(next.clone()).await {
                    Ok(head) => won.push(head),
                    Err(AppendError::Conflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                let from = mine.state.head().unwrap().seq + 1;
                for entry in store.entries(mine.id(), from, 1000).await.unwrap() {
                    mine.state.apply(&Entry::from_bytes(&entry.bytes).unwrap()).unwrap();
                }
            }
            won
        })
    });
    let mut won = Vec::new();
    for race in races.collect::<Vec<_>>() {
        won.extend(race.await.unwrap());
    }
    won.sort_by_key(|head| head.seq);
    let chain = subject.store.entries(job.id(), 2, 1000).await.unwrap();
    let chain: Vec<_> = chain.into_iter().map(|entry| (entry.seq, entry.id)).collect();
    assert_eq!(won.iter().map(|head| (head.seq, head.id)).collect::<Vec<_>>(), chain);
    assert_eq!(chain.len(), RACERS * ROUNDS);
}

/// Appends to different trajectories do not disturb each other, also when some of them lose.
pub(crate) async fn many_trajectories_grow_side_by_side(subject: Subject) {
    let at = subject.now().await;
    let grown = (1..=32).map(|number| {
        let store = Arc::clone(&subject.store);
        tokio::spawn(async move {
            let mut job = Job::new(number, at);
            store.append(job.begin()).await.unwrap();
            for round in 0..10 {
                let mut stale = job.clone();
                store.append(job.signal(&format!("s-{round}"))).await.unwrap();
                let lost = store.append(stale.signal(&format!("stale-{round}"))).await;
                assert_eq!(lost, Err(AppendError::Conflict { head: job.state.head() }));
            }
            let row = store.trajectory(job.id()).await.unwrap().unwrap();
            assert_eq!((Some(row.head), row.head.seq), (job.state.head(), 11));
        })
    });
    for job in grown.collect::<Vec<_>>() {
        job.await.unwrap();
    }
}

/// An append that depends on the head of another trajectory is refused once that has moved; one that was
/// stored before counts all the same.
pub(crate) async fn what_was_decided_under_another_registry_is_outdated(subject: Subject) {
    let store = &subject.store;
    let at = subject.now().await;
    let (mut job, mut registry) = (Job::new(1, at), Job::new(2, at));
    store.append(job.begin()).await.unwrap();
    let first = store.append(registry.begin()).await.unwrap();
    let under = (registry.id(), first);
    let stored = job.signal_under("while-it-stands", under);
    assert_eq!(store.append(stored.clone()).await, Ok(stored.head()));
    let second = store.append(registry.signal("moves")).await.unwrap();
    let outdated = Err(AppendError::Outdated { registry: registry.id() });
    assert_eq!(store.append(job.clone().signal_under("too-late", under)).await, outdated);
    let nowhere = (Job::new(3, at).id(), first);
    let lost = Err(AppendError::Outdated { registry: nowhere.0 });
    assert_eq!(store.append(job.clone().signal_under("of-nothing", nowhere)).await, lost);
    assert_eq!(store.append(stored.clone()).await, Ok(stored.head()), "it is there");
    let row = store.trajectory(job.id()).await.unwrap().unwrap();
    assert_eq!((row.head, row.summary), (stored.head(), job.state.summary().unwrap()));
    let next = job.signal_under("decided-again", (registry.id(), second));
    assert_eq!(store.append(next.clone()).await, Ok(next.head()));
}

/// What an operator says of a doubt is not stored while the inbox holds a report about the trajectory that they have
/// not read. One that they have read and did not believe stands in nobody's way, and what was stored before a report
/// came counts.
pub(crate) async fn nobody_answers_a_doubt_over_an_unread_report(subject: Subject) {
    let store = &subject.store;
    let (cast, mut dice) = (Cast::new(1), Dice::new(1));
    let id = TrajectoryId::from_bytes([7; 16]);
    let mut doubt = cast.begin_job(id).unwrap();
    for act in [Act::Start, Act::Doubt] {
        let offer = offered(doubt.state(), act);
        cast.push(&mut doubt, &offer, EPOCH, &mut dice).unwrap();
    }
    let (begun, state) = doubt.finish().unwrap();
    store.append(begun).await.unwrap();
    let mut answered = |read: &[Digest]| {
        let mut answer = state.admit();
        let offer = offered(answer.state(), Act::ResolveGiveUp);
        cast.push(&mut answer, &offer, EPOCH, &mut dice).unwrap();
        answer.having_read(read.iter().copied());
        answer.finish().unwrap().0
    };

    let (first, second) = (report(id, UnixMs(1_000)), report(id, UnixMs(2_000)));
    let elsewhere = report(TrajectoryId::from_bytes([8; 16]), UnixMs(1_000));
    for report in [&first, &elsewhere] {
        store.put_effect(report).await.unwrap();
    }
    let unread = Err(AppendError::Unread { trajectory: id });
    assert_eq!(store.append(answered(&[])).await, unread);
    assert_eq!(store.append(answered(&[elsewhere.digest()])).await, unread);
    store.put_effect(&second).await.unwrap();
    assert_eq!(store.append(answered(&[first.digest()])).await, unread, "another has come");
    let row = store.trajectory(id).await.unwrap().unwrap();
    assert_eq!((Some(row.head), row.summary), (state.head(), state.summary().unwrap()));
    assert_eq!(store.parked(&ParkedListing::default(), 9).await.unwrap().len(), 1);

    store.drop_effect(&first).await.unwrap();
    let answer = answered(&[second.digest()]);
    assert_eq!(store.append(answer.clone()).await, Ok(answer.head()));
    store.put_effect(&first).await.unwrap();
    assert_eq!(store.append(answer.clone()).await, Ok(answer.head()), "it is there");
}

fn offered(state: &State, act: Act) -> Offer {
    let offers = state.next(EPOCH);
    offers.into_iter().find(|offer| offer.act == act).expect("it is offered")
}
