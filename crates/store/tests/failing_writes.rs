//! Every write of a long history fails once, in both ways. Nothing may be lost, doubled or forked:
//! the chain must come out as if nothing had failed, byte for byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "postgres")]
mod place;

use std::sync::Arc;

use gesta_core::digest::EntryId;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::{Act, Offer, State};
use gesta_core::time::UnixMs;
use gesta_core::verification::Verifier;
use gesta_store::faulty::{Fault, Faults, FaultyStore};
use gesta_store::memory::MemoryStore;
use gesta_store::{Archived, Archiving, Chain, ChainError, Store, Whole};

const APPENDS: u64 = 70;
const ID: TrajectoryId = TrajectoryId::from_bytes([5; 16]);
const BOTH: [Fault; 2] = [Fault::Lost, Fault::Unanswered];

/// An empty store, and what keeps it alive.
struct Fresh {
    store: Arc<dyn Store>,
    _home: Option<tempfile::TempDir>,
}

/// Runs the same on every store, one test each.
macro_rules! on_every_store {
    ($($test:ident,)*) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$test(async || crate::memory()).await;
                }
            )*
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$test(async || crate::sqlite()).await;
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    crate::$test(crate::postgres).await;
                }
            )*
        }
    };
}

on_every_store! {
    every_third_write_may_fail_in_both_ways,
    every_second_write_may_fail,
    an_append_that_stays_unknown_is_told_to_the_caller_and_settled_by_loading,
    blobs_and_effects_may_be_repeated,
    archiving_may_be_repeated,
}

fn memory() -> Fresh {
    Fresh { store: Arc::new(MemoryStore::new(Arc::new(|| EPOCH))), _home: None }
}

#[cfg(feature = "sqlite")]
fn sqlite() -> Fresh {
    use gesta_store::sqlite::{Options, SqliteStore};
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(home.path().join("gesta.db"), Options::default()).unwrap();
    Fresh { store: Arc::new(store), _home: Some(home) }
}

#[cfg(feature = "postgres")]
async fn postgres() -> Fresh {
    Fresh { store: Arc::new(place::Place::new().open().await), _home: None }
}

/// Adds to a chain what a number stands for. The same state and number always add the same.
fn add(
    cast: &Cast,
    chain: &mut gesta_core::state::Admission,
    number: u64,
) -> Result<(), ChainError> {
    let now = EPOCH.plus(number * 300);
    let mut dice = Dice::new(number);
    let offers: Vec<Offer> =
        chain.state().next(now).into_iter().filter(|offer| !ends(offer.act)).collect();
    let offer = dice.pick(&offers).unwrap().clone();
    cast.push(chain, &offer, now, &mut dice).unwrap();
    if number.is_multiple_of(3) {
        let more: Vec<Offer> =
            chain.state().next(now).into_iter().filter(|offer| !ends(offer.act)).collect();
        let offer = dice.pick(&more).unwrap().clone();
        cast.push(chain, &offer, now, &mut dice).unwrap();
    }
    Ok(())
}

fn ends(act: Act) -> bool {
    matches!(act, Act::Complete | Act::EndFailed | Act::EndCancelled | Act::RequestCancel)
}

/// Writes the history through whatever fails; returns how many writes it took.
async fn write(inner: &Arc<dyn Store>, faults: Faults) -> u64 {
    let cast = Cast::new(3);
    let faulty = Arc::new(FaultyStore::new(Arc::clone(inner), faults));
    let store: Arc<dyn Store> = Arc::clone(&faulty) as Arc<dyn Store>;
    let mut chain = Chain::unbegun(store, ID);
    chain
        .append(|admission| {
            *admission = cast.begin_session(ID).unwrap();
            Ok(())
        })
        .await
        .unwrap();
    for number in 0..APPENDS {
        chain.append(|admission| add(&cast, admission, number)).await.unwrap();
    }
    faulty.writes()
}

/// What is stored, after verifying it with every signature.
async fn verified(store: &Arc<dyn Store>) -> Vec<(EntryId, Vec<u8>)> {
    let keyring = Cast::new(3).trust_root().keyring().unwrap();
    let mut verifier = Verifier::new(State::new(ID), &keyring);
    let stored = store.entries(ID, 0, usize::MAX).await.unwrap();
    for entry in &stored {
        verifier.entry(&entry.bytes, Some(entry.id)).unwrap();
    }
    let row = store.trajectory(ID).await.unwrap().unwrap();
    assert_eq!(Some(row.head), verifier.state().head());
    assert_eq!(Some(row.summary), verifier.state().summary());
    stored.into_iter().map(|entry| (entry.id, entry.bytes)).collect()
}

/// What the history is when nothing fails, and how many writes it takes.
async fn unhindered() -> (Vec<(EntryId, Vec<u8>)>, u64) {
    let reference = memory().store;
    let writes = write(&reference, Box::new(|_| None)).await;
    let expected = verified(&reference).await;
    assert_eq!(writes, APPENDS + 1);
    assert!(expected.len() as u64 > APPENDS);
    (expected, writes)
}

/// One write of a whole history fails, each in its turn. In memory only, where a history is cheap.
#[tokio::test]
async fn every_write_may_fail_in_both_ways() {
    let (expected, writes) = unhindered().await;
    for fault in BOTH {
        for failing in 0..writes {
            let store = memory().store;
            let faults = move |write| (write == failing).then_some(fault);
            assert_eq!(write(&store, Box::new(faults)).await, writes + 1);
            assert_eq!(verified(&store).await, expected, "write {failing} {fault:?}");
        }
    }
}

/// Three histories are enough for every write to fail.
async fn every_third_write_may_fail_in_both_ways(open: impl AsyncFn() -> Fresh) {
    let (expected, writes) = unhindered().await;
    for fault in BOTH {
        for third in 0..3 {
            let fresh = open().await;
            let faults = move |write: u64| (write % 3 == third).then_some(fault);
            let took = write(&fresh.store, Box::new(faults)).await;
            assert!(took > writes + writes / 3, "{took} writes");
            let stored = verified(&fresh.store).await;
            assert_eq!(stored, expected, "{fault:?} of every third write from {third}");
        }
    }
}

/// Some are lost, some unanswered, in one history.
async fn every_second_write_may_fail(open: impl AsyncFn() -> Fresh) {
    let (expected, _) = unhindered().await;
    for offset in 0..2 {
        let fresh = open().await;
        let faults = move |write: u64| {
            (write % 2 == offset).then_some(if write % 4 < 2 {
                Fault::Lost
            } else {
                Fault::Unanswered
            })
        };
        write(&fresh.store, Box::new(faults)).await;
        assert_eq!(verified(&fresh.store).await, expected);
    }
}

/// Someone who gives up on an unknown append loads the chain and finds out.
async fn an_append_that_stays_unknown_is_told_to_the_caller_and_settled_by_loading(
    open: impl AsyncFn() -> Fresh,
) {
    for fault in BOTH {
        let fresh = open().await;
        let inner = Arc::clone(&fresh.store);
        let faulty: Arc<dyn Store> = Arc::new(FaultyStore::new(
            Arc::clone(&inner),
            Box::new(move |write| (write > 0).then_some(fault)),
        ));
        let cast = Cast::new(3);
        let mut chain = Chain::unbegun(faulty, ID);
        chain
            .append(|admission| {
                *admission = cast.begin_session(ID).unwrap();
                Ok(())
            })
            .await
            .unwrap();
        let before = chain.state().clone();
        let told = chain.append(|admission| add(&cast, admission, 1)).await.unwrap_err();
        assert!(matches!(told, ChainError::Append(gesta_store::AppendError::Unknown(_))), "{told}");
        assert!(chain.state() == &before, "an unknown append must not change the state in hand");

        let loaded = Chain::load(inner, ID).await.unwrap();
        let grown = loaded.state().head() != before.head();
        assert_eq!(grown, fault == Fault::Unanswered);
        assert!(loaded.state().at() <= UnixMs(EPOCH.0 + 300));
    }
}

/// Writes beside the chain are repeated until they succeed, and are one write in the end.
async fn blobs_and_effects_may_be_repeated(open: impl AsyncFn() -> Fresh) {
    for fault in BOTH {
        let fresh = open().await;
        let inner = Arc::clone(&fresh.store);
        write(&inner, Box::new(|_| None)).await;
        let state = Chain::load(Arc::clone(&inner), ID).await.unwrap().state().clone();
        let cast = Cast::new(3);
        let started = state.head().unwrap().id;
        let result = gesta_core::document::CallResult::Failed {
            certainty: gesta_core::document::Certainty::Happened,
            cost: gesta_core::amounts::Amounts::ONE_CALL,
            error: gesta_core::document::Failing { code: "late".into(), message: "late".into() },
            retryable: false,
        };
        let report = cast.report(&state, &"late".parse().unwrap(), started, result, EPOCH).unwrap();
        let store = FaultyStore::new(
            Arc::clone(&inner),
            Box::new(move |write| write.is_multiple_of(2).then_some(fault)),
        );
        store.put_blob(b"output").await.unwrap_err();
        let blob = store.put_blob(b"output").await.unwrap();
        assert_eq!(store.blob(blob.sha256).await.unwrap().unwrap(), b"output");
        store.put_effect(&report).await.unwrap_err();
        store.put_effect(&report).await.unwrap();
        assert_eq!(store.effects(ID).await.unwrap(), std::slice::from_ref(&report));
        store.drop_effect(&report).await.unwrap_err();
        store.drop_effect(&report).await.unwrap();
        assert!(store.effects(ID).await.unwrap().is_empty());
    }
}

/// Entries leave the store once and come back once, whatever the first answer was; lost or not, none is gone
/// without its row saying where it is.
async fn archiving_may_be_repeated(open: impl AsyncFn() -> Fresh) {
    for fault in BOTH {
        let fresh = open().await;
        let inner = Arc::clone(&fresh.store);
        let cast = Cast::new(3);
        let mut chain = Chain::unbegun(Arc::clone(&inner), ID);
        chain
            .append(|admission| {
                *admission = cast.begin_session(ID).unwrap();
                Ok(())
            })
            .await
            .unwrap();
        for act in [Act::RequestCancel, Act::EndCancelled] {
            let end = |admission: &mut gesta_core::state::Admission| {
                let offers = admission.state().next(EPOCH);
                let offer = offers.into_iter().find(|offer| offer.act == act).unwrap();
                cast.push(admission, &offer, EPOCH, &mut Dice::new(1)).unwrap();
                Ok(())
            };
            chain.append(end).await.unwrap();
        }
        let stored = inner.entries(ID, 0, 99).await.unwrap();
        let entries = stored.iter().map(|one| Entry::from_bytes(&one.bytes).unwrap()).collect();
        let whole = Whole::of(ID, entries).unwrap();
        let sha256 = gesta_core::digest::Digest::of(b"bundle");
        let archived = Archived { bundle: "b.gesta".to_owned(), sha256, at: EPOCH };
        let (head, blobs) = (whole.head(), Vec::new());
        let asked = Archiving { trajectory: ID, head, archived, blobs, unused_since: EPOCH };
        let store = FaultyStore::new(
            Arc::clone(&inner),
            Box::new(move |write| write.is_multiple_of(2).then_some(fault)),
        );
        let row = async || inner.trajectory(ID).await.unwrap().unwrap();

        store.archives().archive(&asked).await.unwrap_err();
        let gone = inner.entries(ID, 0, 99).await.is_err();
        assert_eq!((gone, row().await.archived.is_some()), (fault == Fault::Unanswered, gone));
        assert_eq!(store.archives().archive(&asked).await.unwrap(), Some(0));
        assert_eq!(row().await.archived, Some(asked.archived));

        store.archives().bring_back(&whole).await.unwrap_err();
        assert!(store.archives().bring_back(&whole).await.unwrap());
        assert_eq!(inner.entries(ID, 0, 99).await.unwrap(), stored);
        assert_eq!(row().await.archived, None);
    }
}
