//! Real processes killed with SIGKILL while several of them append to one file. After each kill
//! everything that was acknowledged is there, and every chain folds and verifies.
#![cfg(feature = "sqlite")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use gesta_core::digest::EntryId;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::{Act, State};
use gesta_core::verification::Verifier;
use gesta_store::sqlite::{Options, SqliteStore};
use gesta_store::{Chain, Store, StoreError};

const KILLS: u64 = 200;
const WRITERS: u64 = 2;
/// Trajectories are left behind after so many kills, so that folding them stays cheap.
const KILLS_A_TRAJECTORY: u64 = 10;
/// Set in the processes that write: the file, the trajectory, a seed.
const ORDERS: &str = "GESTA_TEST_KILL_ORDERS";

/// In a process that was started to write, writes for ever; otherwise there is nothing to do here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let mut orders = orders.split('|');
    let mut order = || orders.next().expect("three orders");
    let (file, number, seed) = (order(), order().parse().unwrap(), order().parse().unwrap());
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(Path::new(file), Options::default()).unwrap());
    // One trajectory of its own, and one that all writers fight for.
    let own = tokio::spawn(write(Arc::clone(&store), trajectory(number), seed));
    let shared = tokio::spawn(write(store, trajectory(shared_number(number)), seed));
    own.await.unwrap();
    shared.await.unwrap();
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

fn trajectory(number: u64) -> TrajectoryId {
    TrajectoryId::from_bytes((1000 + u128::from(number)).to_be_bytes())
}

fn shared_number(number: u64) -> u64 {
    1_000_000 + number / WRITERS
}

struct Writer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(file: &Path, number: u64, seed: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writing_process", "--nocapture"])
            .env(ORDERS, format!("{}|{number}|{seed}", file.display()))
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
        self.process.wait().unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("gesta.db");
    let mut dice = Dice::new(2026);
    let mut acknowledged: BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>> = BTreeMap::new();
    let mut writers: Vec<Option<Writer>> = (0..WRITERS).map(|_| None).collect();
    for kill in 0..KILLS {
        let era = kill / KILLS_A_TRAJECTORY * WRITERS;
        for (slot, writer) in writers.iter_mut().enumerate() {
            writer.get_or_insert_with(|| Writer::start(&file, era + slot as u64, kill));
        }
        // One dies, the others go on: they hold the lock, or wait for it, or are in the middle of a commit.
        let slot = usize::try_from(kill % WRITERS).unwrap();
        let dying = writers.get_mut(slot).unwrap().take().unwrap();
        for (trajectory, seq, id) in dying.kill_after(1 + dice.below(12)) {
            let before = acknowledged.entry(trajectory).or_default().insert(seq, id);
            assert!(
                before.is_none_or(|before| before == id),
                "two entries were acknowledged for one place"
            );
        }
        check(&file, &acknowledged, kill).await;
        acknowledged.retain(|trajectory, _| {
            [era, era + 1]
                .map(|n| [self::trajectory(n), self::trajectory(shared_number(n))])
                .concat()
                .contains(trajectory)
        });
    }
    for writer in writers.into_iter().flatten() {
        writer.kill_after(0);
    }
}

/// Every chain folds, its signatures hold, and everything acknowledged is in it.
async fn check(
    file: &Path,
    acknowledged: &BTreeMap<TrajectoryId, BTreeMap<u64, EntryId>>,
    kill: u64,
) {
    let store = SqliteStore::open(file, Options::default()).unwrap();
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
