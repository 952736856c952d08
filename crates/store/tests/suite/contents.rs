//! The effects inbox and the blobs.

use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_store::StoreError;

use super::{Subject, report};

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
