//! The effects inbox and the blobs.

use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::{Profile, StoreError};

use super::{Job, Subject, report, worker};

/// A report is kept once, as it was signed, until the chain has taken it up.
pub(crate) async fn effects_wait_in_the_inbox(subject: Subject) {
    let store = &subject.store;
    let (here, there) = (TrajectoryId::from_bytes([1; 16]), TrajectoryId::from_bytes([2; 16]));
    let (newer, older) = (report(here, UnixMs(2_000)), report(here, UnixMs(1_000)));
    let elsewhere = report(there, UnixMs(1_500));
    for report in [&newer, &older, &elsewhere, &newer, &older] {
        store.put_effect(report).await.unwrap();
    }
    assert_eq!(store.effects(here).await.unwrap(), [older.clone(), newer.clone()]);
    assert!(store.effects(here).await.unwrap().iter().all(|report| report.verifies()));
    for _ in 0..2 {
        store.drop_effect(&older).await.unwrap();
    }
    assert_eq!(store.effects(here).await.unwrap(), [newer]);
    assert_eq!(store.effects(there).await.unwrap(), [elsewhere]);
    assert_eq!(store.effects(TrajectoryId::from_bytes([3; 16])).await.unwrap(), []);
}

/// Reports that no owner reads are found, page by page: nobody with a lease holds their trajectory, or it has
/// ended, whoever drove it last.
pub(crate) async fn unread_reports_are_found(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    store.heartbeat(&worker("w"), &Profile::default(), 600_000).await.unwrap();
    let mut ids = Vec::new();
    for number in 1..=4 {
        let mut job = Job::new(number, now);
        store.append(job.begin()).await.unwrap();
        assert!(store.claim_one(&worker("w"), job.id()).await.unwrap());
        store.append(job.attempt("w")).await.unwrap();
        if number == 2 {
            store.append(job.cancel("w")).await.unwrap();
        }
        // The last has nothing to be read, and of what nobody has begun nothing can be said.
        let about = if number == 4 { TrajectoryId::from_bytes([9; 16]) } else { job.id() };
        for at in [1_000, 2_000] {
            store.put_effect(&report(about, UnixMs(at))).await.unwrap();
        }
        ids.push(job.id());
    }
    assert_eq!(store.reported(None, 9).await.unwrap(), [ids[1]], "its owner reads the others");
    store.release(&worker("w"), ids[0]).await.unwrap();
    assert_eq!(store.reported(None, 9).await.unwrap(), [ids[0], ids[1]]);
    store.retire(&worker("w")).await.unwrap();
    assert_eq!(store.reported(None, 2).await.unwrap(), [ids[0], ids[1]]);
    assert_eq!(store.reported(Some(ids[1]), 2).await.unwrap(), [ids[2]]);
    for report in store.effects(ids[0]).await.unwrap() {
        store.drop_effect(&report).await.unwrap();
    }
    assert_eq!(store.reported(None, 9).await.unwrap(), [ids[1], ids[2]]);
}

/// Blobs are found by what they hold, from none at all to a megabyte.
pub(crate) async fn blobs_are_found_by_their_content(subject: Subject) {
    let store = &subject.store;
    let large: Vec<u8> = (0..1_000_000_u32).map(|i| i.wrapping_mul(31).to_le_bytes()[1]).collect();
    for bytes in [&b""[..], b"\0\xff", &large] {
        for _ in 0..2 {
            assert_eq!(store.put_blob(bytes).await.unwrap(), BlobRef::of(bytes));
        }
        assert_eq!(store.blob(Digest::of(bytes)).await.unwrap().as_deref(), Some(bytes));
    }
    assert_eq!(store.blob(Digest::of(b"no such")).await.unwrap(), None);
}

/// A blob whose bytes changed on the disk is never handed out. `damage` changes them behind the
/// store's back.
pub(crate) async fn a_damaged_blob_is_an_error(subject: Subject, damage: impl AsyncFnOnce(Digest)) {
    let store = &subject.store;
    let damaged = store.put_blob(b"damaged").await.unwrap().sha256;
    let sound = store.put_blob(b"sound").await.unwrap().sha256;
    damage(damaged).await;
    assert_eq!(store.blob(damaged).await, Err(StoreError::DamagedBlob(damaged)));
    assert_eq!(store.blob(sound).await.unwrap().as_deref(), Some(&b"sound"[..]));
}
