//! The transparency log: what is not sealed is found, sealing is whole or absent, and nobody forks it.

use gesta_core::digest::{Digest, EntryId};
use gesta_core::log::tiles::TileId;
use gesta_core::time::UnixMs;
use gesta_store::{CheckpointRow, Lag, Opening, Run, Seal, UnsealedRow, Which};

use super::{Job, Subject};

fn ids(subject: &[gesta_store::StoredEntry]) -> Vec<EntryId> {
    subject.iter().map(|entry| entry.id).collect()
}

/// A seal of some runs onto a log of `from` leaves, with a node of the map that replaces the last one.
fn seal(from: u64, runs: Vec<Run>, tag: &str) -> Seal {
    let size = from + runs.iter().map(|run| run.ids.len() as u64).sum::<u64>();
    let note = format!("{tag}\n{size}\n");
    Seal {
        epoch: 1,
        from,
        checkpoint: CheckpointRow { size, at: UnixMs(size), witnesses: 0, note },
        runs,
        tiles: vec![(TileId { level: 0, number: 0 }, size.to_be_bytes().to_vec())],
        added: vec![(Digest::of(&size.to_be_bytes()), size.to_be_bytes().to_vec())],
        replaced: vec![Digest::of(&from.to_be_bytes())],
        forget: 0,
    }
}

/// What the log does not hold is found by what is new, and what it holds is told.
pub(crate) async fn what_is_not_sealed_is_found(subject: Subject) {
    let (store, log) = (&subject.store, subject.store.log());
    let now = subject.now().await;
    let (mut one, mut two) = (Job::new(1, now), Job::new(2, now));
    assert_eq!(log.unsealed(None, 9).await.unwrap(), []);
    assert_eq!(log.checkpoint(Which::Newest).await.unwrap(), None);
    store.append(one.begin()).await.unwrap();
    let begun = store.append(two.begin()).await.unwrap();
    let row = |trajectory, from, to| UnsealedRow { trajectory, from, to };
    let both = [row(one.id(), 0, begun.seq), row(two.id(), 0, begun.seq)];
    assert_eq!(log.unsealed(None, 9).await.unwrap(), both);
    assert_eq!(log.unsealed(None, 1).await.unwrap(), both[..1]);
    assert_eq!(log.unsealed(Some(one.id()), 9).await.unwrap(), both[1..]);
    let entries = 2 * (begun.seq + 1);
    assert_eq!(log.lag().await.unwrap(), Lag { trajectories: 2, entries });

    let first = store.entries(one.id(), 0, 9).await.unwrap();
    // Sealing races with an append: what came in between is left for the next.
    let grown = store.append(one.signal("later")).await.unwrap();
    let run = Run { first_leaf: 0, trajectory: one.id(), first_seq: 0, ids: ids(&first) };
    assert!(log.seal(&seal(0, vec![run.clone()], "a")).await.unwrap());
    let left = [row(one.id(), grown.seq, grown.seq), both[1]];
    assert_eq!(log.unsealed(None, 9).await.unwrap(), left);
    assert_eq!(log.run_before(one.id(), 0).await.unwrap(), Some(run.clone()));
    assert_eq!(log.run_before(one.id(), grown.seq).await.unwrap(), Some(run.clone()));
    assert_eq!(log.run_before(two.id(), 0).await.unwrap(), None);

    let size = run.ids.len() as u64;
    let rest = store.entries(one.id(), grown.seq, 9).await.unwrap();
    let rest =
        Run { first_leaf: size, trajectory: one.id(), first_seq: grown.seq, ids: ids(&rest) };
    let other = store.entries(two.id(), 0, 9).await.unwrap();
    let other = Run { first_leaf: size + 1, trajectory: two.id(), first_seq: 0, ids: ids(&other) };
    assert!(log.seal(&seal(size, vec![rest.clone(), other.clone()], "a")).await.unwrap());
    assert_eq!(log.unsealed(None, 9).await.unwrap(), []);
    assert_eq!(log.lag().await.unwrap(), Lag::default());
    assert_eq!(log.run_before(one.id(), grown.seq).await.unwrap(), Some(rest.clone()));
    assert_eq!(log.runs(0, 9).await.unwrap(), [run, rest.clone(), other.clone()]);
    assert_eq!(log.runs(size, 1).await.unwrap(), [rest]);
    assert_eq!(log.runs(size + 2, 9).await.unwrap(), std::slice::from_ref(&other), "it holds it");
    assert_eq!(log.runs(size + 1, 9).await.unwrap(), [other]);

    // An append after it is found again, and rebuilt projections are not mistaken for one.
    let head = store.trajectory(two.id()).await.unwrap().unwrap().head;
    store.reproject(two.id(), head, &two.projection()).await.unwrap();
    assert_eq!(log.unsealed(None, 9).await.unwrap(), []);
    let grown = store.append(two.signal("again")).await.unwrap();
    assert_eq!(log.unsealed(None, 9).await.unwrap(), [row(two.id(), grown.seq, grown.seq)]);
}

/// Of two who seal the same log one wins, whole; the same seal again is the same seal.
pub(crate) async fn a_log_is_never_forked(subject: Subject) {
    let (store, log) = (&subject.store, subject.store.log());
    let mut job = Job::new(1, subject.now().await);
    store.append(job.begin()).await.unwrap();
    let entries = store.entries(job.id(), 0, 9).await.unwrap();
    let run =
        |first_leaf| Run { first_leaf, trajectory: job.id(), first_seq: 0, ids: ids(&entries) };
    let (won, lost) = (seal(0, vec![run(0)], "won"), seal(0, vec![run(0)], "lost"));
    let (one, other) = tokio::join!(log.seal(&won), log.seal(&lost));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_ne!(one, other, "one of them");
    let (won, lost) = if one { (won, lost) } else { (lost, won) };
    assert!(log.seal(&won).await.unwrap(), "sent again, it counts once");
    assert!(!log.seal(&lost).await.unwrap());
    let size = won.checkpoint.size;
    assert!(!log.seal(&seal(size + 1, vec![run(size + 1)], "gap")).await.unwrap());
    assert_eq!(log.checkpoint(Which::Newest).await.unwrap(), Some(won.checkpoint.clone()));
    assert_eq!(log.runs(0, 9).await.unwrap(), won.runs);

    let mut next = seal(size, Vec::new(), "won");
    next.checkpoint.size = size + 5;
    next.tiles = vec![
        (TileId { level: 0, number: 0 }, vec![7; 64]),
        (TileId { level: 1, number: 3 }, vec![8; 32]),
    ];
    assert!(log.seal(&next).await.unwrap());
    assert!(log.seal(&won).await.unwrap(), "whatever has followed since");
    let wanted = [(1, 3), (0, 0), (2, 0)].map(|(level, number)| TileId { level, number });
    let mut found = log.tiles(&wanted).await.unwrap();
    found.sort();
    assert_eq!(found, next.tiles);
}

/// Checkpoints stay, and take cosignatures of whoever saw them as they are.
pub(crate) async fn checkpoints_are_cosigned(subject: Subject) {
    let log = subject.store.log();
    let grow = |from: u64| {
        let mut seal = seal(from, Vec::new(), "log");
        seal.checkpoint.size = from + 1;
        seal
    };
    for from in 0..3 {
        assert!(log.seal(&grow(from)).await.unwrap());
    }
    assert_eq!(log.checkpoint(Which::Witnessed).await.unwrap(), None);
    let old = log.checkpoint(Which::Size(2)).await.unwrap().unwrap();
    let new =
        CheckpointRow { witnesses: 1, note: format!("{}cosigned\n", old.note), ..old.clone() };
    assert!(log.cosign(&old, &new).await.unwrap());
    assert!(!log.cosign(&old, &new).await.unwrap(), "it is not as it was");
    assert_eq!(log.checkpoint(Which::Witnessed).await.unwrap(), Some(new.clone()));
    assert_eq!(log.checkpoint(Which::Size(2)).await.unwrap(), Some(new));
    assert_eq!(log.checkpoint(Which::Newest).await.unwrap().unwrap().size, 3);
    assert!(log.seal(&grow(1)).await.unwrap(), "a cosigned checkpoint is the same checkpoint");
}

/// What was made ready before the store was restored would be another log's.
pub(crate) async fn a_seal_of_another_epoch_is_not_taken(subject: Subject) {
    let log = subject.store.log();
    let opening =
        Opening { by: "owner".parse().unwrap(), copied_at: UnixMs(1), known: Vec::new(), above: 0 };
    let grow = |epoch| Seal {
        epoch,
        checkpoint: CheckpointRow {
            size: 1,
            at: UnixMs(0),
            witnesses: 0,
            note: format!("{epoch}"),
        },
        ..seal(0, Vec::new(), "log")
    };
    let opened = subject.store.epochs().open_epoch(&opening).await.unwrap().number;
    assert!(!log.seal(&grow(opened - 1)).await.unwrap());
    assert_eq!(log.checkpoint(Which::Newest).await.unwrap(), None);
    assert!(log.seal(&grow(opened)).await.unwrap());
    assert_eq!(log.checkpoint(Which::Newest).await.unwrap().unwrap().size, 1);
}

/// Nodes of the map are kept as long as a checkpoint may be asked about, and not longer.
pub(crate) async fn nodes_of_the_map_are_forgotten_in_time(subject: Subject) {
    let log = subject.store.log();
    let node = |n: u64| Digest::of(&n.to_be_bytes());
    let grow = |from: u64, forget: u64| Seal {
        checkpoint: CheckpointRow {
            size: from + 1,
            at: UnixMs(0),
            witnesses: 0,
            note: format!("{from}"),
        },
        added: vec![(node(from + 1), vec![1; 65])],
        replaced: vec![node(from)],
        forget,
        ..seal(from, Vec::new(), "log")
    };
    for (from, forget) in [(0, 0), (1, 0), (2, 0), (3, 2)] {
        assert!(log.seal(&grow(from, forget)).await.unwrap());
    }
    let there: Vec<u64> = {
        let found = log.map_nodes(&[1, 2, 3, 4, 5].map(node)).await.unwrap();
        (1..=5).filter(|n| found.iter().any(|(hash, _)| *hash == node(*n))).collect()
    };
    assert_eq!(there, [2, 3, 4], "1 was replaced when there were two leaves");
}
