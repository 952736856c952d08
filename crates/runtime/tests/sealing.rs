//! The sealer on every store: everything is sealed once, whatever fails and whoever else seals, and what
//! was sealed can be shown.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_core::digest::EntryId;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::PrivateKey;
use gesta_core::log::Leaf;
use gesta_core::log::checkpoint::{Checkpoint, TreeHead};
use gesta_core::log::evidence::{Breach, Evidence, follows};
use gesta_core::log::map;
use gesta_core::log::note::Note;
use gesta_core::log::tiles::{Edge, Tiles};
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_runtime::{Prover, SealError, Sealer};
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::memory::MemoryStore;
use gesta_store::postgres::{Options as PostgresOptions, PostgresStore};
use gesta_store::sqlite::{Options as SqliteOptions, SqliteStore};
use gesta_store::{Lag, Listing, Opening, Store, Which};

/// A store, and what keeps it alive.
struct Fresh {
    store: Arc<dyn Store>,
    _home: Option<tempfile::TempDir>,
}

fn on_memory() -> Fresh {
    Fresh { store: Arc::new(MemoryStore::new(Arc::new(|| EPOCH))), _home: None }
}

fn on_sqlite() -> Fresh {
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(home.path().join("gesta.db"), SqliteOptions::default()).unwrap();
    Fresh { store: Arc::new(store), _home: Some(home) }
}

async fn on_postgres() -> Fresh {
    let url = std::env::var("GESTA_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("`GESTA_TEST_POSTGRES` is not set: run `cargo xtask test`, which starts a server")
    });
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let schema = Some(format!("sealing-{since}-{}", std::process::id()));
    let options = PostgresOptions { schema, ..PostgresOptions::default() };
    Fresh { store: Arc::new(PostgresStore::connect(&url, &options).await.unwrap()), _home: None }
}

/// Runs the same on every store, one test each.
macro_rules! on_every_store {
    ($($test:ident,)*) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$test(crate::on_memory()).await;
                }
            )*
        }

        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$test(crate::on_sqlite()).await;
                }
            )*
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    crate::$test(crate::on_postgres().await).await;
                }
            )*
        }
    };
}

on_every_store! {
    everything_is_sealed_once_and_can_be_shown,
    a_seal_may_fail_in_both_ways,
    several_sealers_never_fork_the_log,
    a_witnessed_checkpoint_can_be_shown_until_the_next,
    each_epoch_has_a_log_of_its_own_name,
}

fn sealer() -> Sealer {
    let key = PrivateKey::from_seed(&[0xa1; 32]);
    Sealer { key, origin: "gesta.example/log".to_owned(), every_ms: 1 }
}

fn id(number: u16) -> TrajectoryId {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    TrajectoryId::from_bytes(bytes)
}

/// Jobs that grow.
struct Jobs {
    cast: Cast,
    states: BTreeMap<u16, (State, UnixMs)>,
}

impl Jobs {
    fn new() -> Self {
        Self { cast: Cast::new(1), states: BTreeMap::new() }
    }

    /// Adds some entries to a job, or begins it.
    async fn grow(&mut self, store: &dyn Store, number: u16, entries: usize) {
        let (mut admission, mut clock) = match self.states.get(&number) {
            Some((state, clock)) => (state.clone().admit(), *clock),
            None => (self.cast.begin_job(id(number)).unwrap(), EPOCH.plus(1)),
        };
        let mut dice = Dice::new(u64::from(number) * 1000 + clock.0 % 1000);
        self.cast.wander(&mut admission, entries, &mut clock, &mut dice).unwrap();
        let (admitted, state) = admission.finish().unwrap();
        store.append(admitted).await.unwrap();
        self.states.insert(number, (state, clock.plus(1)));
    }
}

/// The log, computed anew from what it says it holds, compared with the chains and with its checkpoint.
async fn audit(store: &dyn Store) -> Checkpoint {
    let log = store.log();
    let mut edge = Edge::new(0, &Tiles::default()).unwrap();
    let (mut heads, mut values) = (BTreeMap::<TrajectoryId, Head>::new(), BTreeMap::new());
    for run in log.runs(0, usize::MAX).await.unwrap() {
        assert_eq!(run.first_leaf, edge.size(), "no gap, nothing twice");
        let next = heads.get(&run.trajectory).map_or(0, |head| head.seq + 1);
        assert_eq!(run.first_seq, next, "each entry once, in order");
        let there = store.entries(run.trajectory, next, run.ids.len()).await.unwrap();
        assert_eq!(there.iter().map(|entry| entry.id).collect::<Vec<EntryId>>(), run.ids);
        for entry in &there {
            let head = Head { id: entry.id, seq: entry.seq };
            let leaf = Leaf::new(run.trajectory, head).hash().unwrap();
            edge.push(leaf);
            heads.insert(run.trajectory, head);
            values.insert(map::key(run.trajectory), leaf);
        }
    }
    let row = log.checkpoint(Which::Newest).await.unwrap().unwrap();
    let note = Note::parse(row.note.as_bytes()).unwrap();
    let checkpoint = Checkpoint::parse(&note.text).unwrap();
    assert!(checkpoint.sealed_by(&note, sealer().id()));
    assert_eq!((checkpoint.size, checkpoint.root), (edge.size(), edge.root()));
    assert_eq!(checkpoint.map, map::root(&values));
    checkpoint
}

/// Seals until it is known to be done.
async fn seal(store: &dyn Store) {
    for _ in 0..9 {
        if sealer().seal(store, EPOCH.plus(1_000_000)).await.is_ok() {
            return;
        }
    }
    panic!("nothing is ever sealed");
}

async fn everything_is_sealed_once_and_can_be_shown(fresh: Fresh) {
    let store = &*fresh.store;
    let mut jobs = Jobs::new();
    assert_eq!(sealer().seal(store, EPOCH).await.unwrap().checkpoint, None, "nothing is new");
    let mut before: Option<TreeHead> = None;
    for round in 0..4 {
        for number in 0..12 {
            if round == 0 || number % (round + 1) == 0 {
                jobs.grow(store, number, 7).await;
            }
        }
        let sealed = sealer().seal(store, EPOCH.plus(u64::from(round))).await.unwrap();
        let checkpoint = audit(store).await;
        assert_eq!((sealed.checkpoint, sealed.left_out.len()), (Some(checkpoint.clone()), 0));
        assert_eq!(store.log().lag().await.unwrap(), Lag::default());
        let row = store.log().checkpoint(Which::Newest).await.unwrap().unwrap();
        let prover = Prover::new(store, row).unwrap();
        let head = TreeHead::parse(&checkpoint.to_string()).unwrap();
        if let Some(before) = before.replace(head.clone()) {
            let proof = prover.consistency(before.size).await.unwrap();
            follows(&before, &head, &proof.consistency).unwrap();
        }
        let all: Vec<TrajectoryId> = (0..13).map(id).collect();
        let note = prover.row.note.as_bytes();
        let shown = Evidence::new(note, &prover.heads(&all).await.unwrap()).unwrap();
        let whole = Evidence::new(note, &prover.all().await.unwrap()).unwrap();
        for trajectory in all {
            let head = store.trajectory(trajectory).await.unwrap().map(|row| row.head);
            assert_eq!(shown.heads[&trajectory], head);
            assert_eq!(whole.heads.get(&trajectory).copied().flatten(), head);
            for seq in 0..head.map_or(0, |head| head.seq + 1) {
                prover.entry(trajectory, seq).await.unwrap().unwrap().check().unwrap();
            }
        }
        assert_eq!(prover.entry(id(0), 9999).await.unwrap(), None);
    }
    let again = sealer().seal(store, EPOCH).await.unwrap();
    assert_eq!(again.checkpoint, None, "nothing is new");
    let renamed = Sealer { origin: "other".to_owned(), ..sealer() };
    jobs.grow(store, 1, 1).await;
    assert!(matches!(renamed.seal(store, EPOCH).await, Err(SealError::Origin { .. })));
}

/// What is sealed after a restore is no split view of what was sealed before: it says that it is another log.
async fn each_epoch_has_a_log_of_its_own_name(fresh: Fresh) {
    let store = &*fresh.store;
    let mut jobs = Jobs::new();
    jobs.grow(store, 1, 5).await;
    seal(store).await;
    let first = audit(store).await;
    assert_eq!(first.origin, sealer().origin);
    let opening =
        Opening { by: "owner".parse().unwrap(), copied_at: EPOCH, known: Vec::new(), above: 1 };
    store.epochs().open_epoch(&opening).await.unwrap();
    assert_eq!(sealer().seal(store, EPOCH).await.unwrap().checkpoint, None, "nothing is new");
    for (number, size) in [(2, 1), (3, 2)] {
        jobs.grow(store, number, 5).await;
        seal(store).await;
        let second = audit(store).await;
        assert_eq!(second.origin, format!("{}/epoch-2", first.origin));
        assert!(second.size > first.size + size);
        let heads = [&first, &second].map(|it| TreeHead::parse(&it.to_string()).unwrap());
        let breach = follows(&heads[0], &heads[1], &[]).unwrap_err();
        assert!(matches!(breach, Breach::OtherLog { .. }), "{breach}");
    }
    let renamed = Sealer { origin: format!("{}/epoch-3", first.origin), ..sealer() };
    jobs.grow(store, 4, 5).await;
    assert!(matches!(renamed.seal(store, EPOCH).await, Err(SealError::Origin { .. })));
}

/// Every seal fails: the first of each round never reaches the store, and nobody hears that the second did.
async fn a_seal_may_fail_in_both_ways(fresh: Fresh) {
    let mut jobs = Jobs::new();
    let inner = Arc::clone(&fresh.store);
    let faults = |n: u64| Some(if n.is_multiple_of(2) { Fault::Lost } else { Fault::Unanswered });
    let faulty = FaultyStore::new(Arc::clone(&inner), Box::new(faults));
    for round in 0..6 {
        for number in 0..4 {
            jobs.grow(&*inner, number + round / 2, 5).await;
        }
        let failed = sealer().seal(&faulty, EPOCH).await.is_err();
        if inner.log().checkpoint(Which::Newest).await.unwrap().is_some() {
            audit(&*inner).await;
        }
        assert!(failed, "the first try of round {round}");
        seal(&faulty).await;
        audit(&*inner).await;
        assert_eq!(inner.log().lag().await.unwrap(), Lag::default());
    }
    assert_eq!(faulty.writes(), 12);
}

async fn several_sealers_never_fork_the_log(fresh: Fresh) {
    let mut sealers = tokio::task::JoinSet::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    for _ in 0..4 {
        let (store, stopped) = (Arc::clone(&fresh.store), stopped.clone());
        sealers.spawn(async move {
            let mut signed = 0;
            while !*stopped.borrow() {
                let sealed = sealer().seal(&*store, EPOCH).await.unwrap();
                signed += usize::from(sealed.checkpoint.is_some());
                tokio::task::yield_now().await;
            }
            signed
        });
    }
    let mut jobs = Jobs::new();
    for round in 0..40 {
        jobs.grow(&*fresh.store, round % 9, 3).await;
        tokio::task::yield_now().await;
    }
    stop.send(true).unwrap();
    let mut signed = 0;
    while let Some(done) = sealers.join_next().await {
        signed += done.unwrap();
    }
    assert!(signed > 0);
    seal(&*fresh.store).await;
    audit(&*fresh.store).await;
    let rows = fresh.store.list(&Listing::default(), 99).await.unwrap();
    let entries: u64 = rows.iter().map(|row| row.head.seq + 1).sum();
    assert_eq!(audit(&*fresh.store).await.size, entries);
}

async fn a_witnessed_checkpoint_can_be_shown_until_the_next(fresh: Fresh) {
    let store = &*fresh.store;
    let mut jobs = Jobs::new();
    let mut sizes = Vec::new();
    let shows = async |size: u64| {
        let row = store.log().checkpoint(Which::Size(size)).await.unwrap().unwrap();
        let prover = Prover::new(store, row).unwrap();
        match prover.heads(&[id(0), id(1), id(2)]).await {
            Ok(proofs) => Evidence::new(prover.row.note.as_bytes(), &proofs).is_ok(),
            Err(SealError::Map(_)) => false,
            Err(error) => panic!("{error}"),
        }
    };
    for round in 0..6 {
        for number in 0..3 {
            jobs.grow(store, number, 2).await;
        }
        sizes.push(sealer().seal(store, EPOCH).await.unwrap().checkpoint.unwrap().size);
        if round == 1 || round == 4 {
            let old = store.log().checkpoint(Which::Newest).await.unwrap().unwrap();
            let new = gesta_store::CheckpointRow { witnesses: 1, ..old.clone() };
            assert!(store.log().cosign(&old, &new).await.unwrap());
        }
        if round == 3 {
            assert!(shows(sizes[1]).await, "witnessed");
        }
    }
    let mut shown = Vec::new();
    for size in &sizes {
        shown.push(shows(*size).await);
    }
    assert_eq!(
        shown,
        [false, false, false, false, true, true],
        "the newest, and the witnessed one"
    );
}

/// More than fits into one batch.
#[tokio::test]
async fn many_trajectories_are_sealed_in_batches() {
    let fresh = on_memory();
    let mut jobs = Jobs::new();
    for number in 0..1100 {
        jobs.grow(&*fresh.store, number, 0).await;
    }
    sealer().seal(&*fresh.store, EPOCH).await.unwrap();
    audit(&*fresh.store).await;
    assert_eq!(fresh.store.log().lag().await.unwrap(), Lag::default());
}
