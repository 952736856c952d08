//! Real processes killed with SIGKILL while several of them append to one store. After each kill
//! everything that was acknowledged is there, and every chain folds and verifies.
#![cfg(any(feature = "sqlite", feature = "postgres"))]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "postgres")]
mod place;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use gesta_core::digest::EntryId;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::{Act, State};
use gesta_core::verification::Verifier;
use gesta_store::{Chain, Store, StoreError};

/// Trajectories are left behind after so many kills, so that folding them stays cheap.
const KILLS_A_TRAJECTORY: u64 = 10;
/// Set in the processes that write: the store, the trajectories, a seed.
const ORDERS: &str = "GESTA_TEST_KILL_ORDERS";

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("gesta.db");
    kill_writers(&format!("sqlite:{}", file.display()), 2, 200).await;
}

/// The server goes on: it may finish what a dead process has sent, and still hold its locks.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_what_was_acknowledged_survives_kill_9() {
    kill_writers(&format!("postgres:{}", place::Place::new().name), 3, 60).await;
}

async fn open(store: &str) -> Arc<dyn Store> {
    match store.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", file)) => {
            use gesta_store::sqlite::{Options, SqliteStore};
            Arc::new(SqliteStore::open(file, Options::default()).unwrap())
        }
        #[cfg(feature = "postgres")]
        Some(("postgres", schema)) => {
            Arc::new(place::Place { name: schema.to_owned() }.open().await)
        }
        _ => panic!("there is no store `{store}`"),
    }
}

/// In a process that was started to write, writes for ever; otherwise there is nothing to do here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let mut orders = orders.split('|');
    let mut order = || orders.next().expect("four orders");
    let store = open(order()).await;
    let (own, shared) = (order().parse().unwrap(), order().parse().unwrap());
    let seed = order().parse().unwrap();
    // One trajectory of its own, and one that all writers fight for.
    let own = tokio::spawn(write(Arc::clone(&store), own, seed));
    let shared = tokio::spawn(write(store, shared, seed));
    tokio::try_join!(own, shared).unwrap();
}

async fn write(store: Arc<dyn Store>, id: TrajectoryId, seed: u64) {
    let cast = Cast::new(4);
    let mut dice = Dice::new(seed);
    let mut chain = match Chain::load(Arc::clone(&store), id).await {
        Ok(chain) => chain,
        Err(gesta_store::ChainError::Store(StoreError::NoTrajectory(_))) => {
            Chain::unbegun(store, id)
        }
        Err(error) => panic!("{error}"),
    };
    loop {
        let head = chain
            .append(|admission| {
                if admission.state().head().is_none() {
                    *admission = cast.begin_session(id).unwrap();
                    return Ok(());
                }
                let offers = admission.state().next(EPOCH);
                let calls: Vec<_> = offers
                    .into_iter()
                    .filter(|offer| {
                        matches!(offer.act, Act::Start | Act::CommitEffect | Act::Signal)
                    })
                    .collect();
                cast.push(admission, dice.pick(&calls).unwrap(), EPOCH, &mut dice).unwrap();
                Ok(())
            })
            .await
            .unwrap();
        // One write, so that lines of two tasks never mix.
        let line = format!("acknowledged {id} {} {}\n", head.seq, head.id);
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// A trajectory of one era: numbered by its writer, or 0 for the one that they share.
fn trajectory(era: u64, number: u64) -> TrajectoryId {
    TrajectoryId::from_bytes((1000 * u128::from(1 + era) + u128::from(number)).to_be_bytes())
}

struct Writer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(store: &str, own: TrajectoryId, shared: TrajectoryId, seed: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writing_process", "--nocapture"])
            .env(ORDERS, format!("{store}|{own}|{shared}|{seed}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for `count` acknowledgements, kills the process, and returns all that it gave.
    fn kill_after(mut self, count: u64) -> Vec<(TrajectoryId, u64, EntryId)> {
        let mut acknowledged = Vec::new();
        while (acknowledged.len() as u64) < count {
            let line = self.lines.next().expect("the writer goes on until it is killed").unwrap();
            acknowledged.extend(parse(&line));
        }
        self.process.kill().unwrap();
        let ended = self.process.wait().unwrap();
        assert_eq!(ended.signal(), Some(9), "the writer had ended by itself: {ended}");
        acknowledged.extend(self.lines.map_while(Result::ok).filter_map(|line| parse(&line)));
        acknowledged
    }
}

/// An acknowledgement; a line that was cut by the kill is none.
fn parse(line: &str) -> Option<(TrajectoryId, u64, EntryId)> {
    let mut words = line.split("acknowledged ").nth(1)?.split(' ');
    let trajectory = words.next()?.parse().ok()?;
    let seq = words.next()?.parse().ok()?;
    let id = gesta_core::digest::Digest::from_hex(words.next()?)?;
    Some((trajectory, seq, EntryId::new(id)))
}

/// Kills writers in turn and looks into the store after each.
async fn kill_writers(store: &str, writers: u64, kills: u64) {
    let mut dice = Dice::new(2026);
    let mut acknowledged: BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>> = BTreeMap::new();
    let mut running: Vec<Option<Writer>> = (0..writers).map(|_| None).collect();
    for kill in 0..kills {
        let era = kill / KILLS_A_TRAJECTORY;
        for (number, writer) in (1..).zip(&mut running) {
            let (own, shared) = (trajectory(era, number), trajectory(era, 0));
            // No two writers make the same call: the second would be refused.
            let seed = kill * (writers + 1) + number;
            writer.get_or_insert_with(|| Writer::start(store, own, shared, seed));
        }
        // One dies, the others go on: they hold the lock, or wait for it, or are in the middle of a commit.
        let slot = usize::try_from(kill % writers).unwrap();
        let dying = running.get_mut(slot).unwrap().take().unwrap();
        for (trajectory, seq, id) in dying.kill_after(1 + dice.below(12)) {
            let before = acknowledged.entry(trajectory).or_default().insert(seq, id);
            assert!(
                before.is_none_or(|before| before == id),
                "two entries were acknowledged for one place"
            );
        }
        check(store, &acknowledged, kill).await;
        acknowledged.retain(|id, _| (0..=writers).any(|number| trajectory(era, number) == *id));
    }
    for writer in running.into_iter().flatten() {
        writer.kill_after(0);
    }
}

/// Every chain folds, its signatures hold, and everything acknowledged is in it.
async fn check(
    store: &str,
    acknowledged: &BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>>,
    kill: u64,
) {
    let store = open(store).await;
    let keyring = Cast::new(4).trust_root().keyring().unwrap();
    for (trajectory, entries) in acknowledged {
        let mut verifier = Verifier::new(State::new(*trajectory), &keyring);
        if kill % KILLS_A_TRAJECTORY != KILLS_A_TRAJECTORY - 1 {
            verifier = verifier.without_signatures();
        }
        let stored = store.entries(*trajectory, 0, usize::MAX).await.unwrap();
        let ids: Vec<EntryId> = stored
            .iter()
            .map(|stored| {
                verifier.entry(&stored.bytes, Some(stored.id)).as_ref().map(Entry::id).unwrap()
            })
            .collect();
        for (seq, id) in entries {
            let there = ids.get(usize::try_from(*seq).unwrap());
            assert_eq!(
                there,
                Some(id),
                "entry {seq} of {trajectory} was acknowledged and is gone after kill {kill}"
            );
        }
    }
}
