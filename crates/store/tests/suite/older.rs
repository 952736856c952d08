//! Stores of older versions: what they held is there once they are opened, and work goes on. How the tables
//! of an older version are made is each store's own; what is in them was written by the present one.

use std::collections::BTreeSet;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::content::BlobRef;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::{ParkedOn, Projection};
use gesta_core::sample::{Dice, History};
use gesta_core::state::State;
use gesta_core::time::{Day, UnixMs};
use gesta_store::{Account, Draw, Listing, ParkedListing, Profile, Span, Store, TrajectoryRow};

use super::{Job, report, worker};

const HISTORIES: u8 = 24;

/// What a store holds, as its writers know it.
#[derive(Clone)]
pub(crate) struct Past {
    histories: Vec<(State, History)>,
    jobs: Vec<Job>,
    blob: BlobRef,
}

/// Which of the tables that came later an older version has already.
#[derive(Clone, Copy)]
pub(crate) struct Has {
    /// Priorities and tools in the rows of trajectories.
    pub(crate) queues: bool,
    pub(crate) accounts: bool,
    pub(crate) notices: bool,
}

/// Fills a store with trajectories of every kind, and with everything else that lasts.
pub(crate) async fn fill(store: &dyn Store) -> Past {
    let mut histories = Vec::new();
    for number in 0..HISTORIES {
        let id = TrajectoryId::from_bytes([100 + number; 16]);
        let mut history = History::begin(id, Dice::new(u64::from(number))).unwrap();
        let base = history.base.clone();
        if let Some(source) = history.source.take() {
            store.append(source).await.unwrap();
        }
        for _ in 0..12 {
            history.wander(3).unwrap();
            store.append(history.take().unwrap()).await.unwrap();
        }
        histories.push((base, history));
    }
    let mut jobs = Vec::new();
    for (number, tools) in [(1, &["mail"][..]), (2, &["mail", "pay"]), (3, &[])] {
        let mut job = Job::new(number, UnixMs(1_000)).needing(tools).urgent(number);
        store.append(job.begin()).await.unwrap();
        store.put_effect(&report(job.id(), UnixMs(1_000))).await.unwrap();
        jobs.push(job);
    }
    let account = Account { tenant: "acme".parse().unwrap(), span: Span::Day(Day(1)) };
    let amounts = |calls| Amounts { calls, ..Amounts::default() };
    let draw = Draw {
        seq: 1,
        limit: Budget { calls: Some(100), ..Budget::default() },
        keep: Amounts::default(),
        used: amounts(7),
        idle: Amounts::default(),
        need: amounts(1),
        want: amounts(5),
        warn_at: vec![50],
    };
    store.draw(&account, "ada", &draw).await.unwrap();
    Past { histories, jobs, blob: store.put_blob(b"a large result").await.unwrap() }
}

/// Everything that `original` holds is in `opened`, which was made from an older version's tables.
pub(crate) async fn holds(opened: &dyn Store, original: &dyn Store, past: &Past, has: Has) {
    let Past { histories, jobs, blob } = past;
    let whole = Listing::default();
    let rows = original.list(&whole, usize::MAX).await.unwrap();
    let branches = rows.len() - histories.len() - jobs.len();
    assert!(branches > 3, "{branches} branches");
    let known = |row: &TrajectoryRow| {
        let mut row = row.clone();
        if !has.queues {
            (row.summary.priority, row.summary.tools) = (0, Vec::new());
        }
        row
    };
    let expected: Vec<_> = rows.iter().map(known).collect();
    assert_eq!(opened.list(&whole, usize::MAX).await.unwrap(), expected);
    for row in &rows {
        let id = row.trajectory;
        let entries = original.entries(id, 0, usize::MAX).await.unwrap();
        assert_eq!(opened.entries(id, 0, usize::MAX).await.unwrap(), entries);
        assert_eq!(opened.effects(id).await.unwrap(), original.effects(id).await.unwrap());
    }
    assert_eq!(opened.blob(blob.sha256).await.unwrap(), Some(b"a large result".to_vec()));
    let accounts = original.accounts(None, Day(0)).await.unwrap();
    assert_eq!(accounts.len(), 1);
    let expected = if has.accounts { accounts } else { Vec::new() };
    assert_eq!(opened.accounts(None, Day(0)).await.unwrap(), expected);
    let notices = original.notices(usize::MAX).await.unwrap();
    assert!(notices.len() > 3);
    let expected = if has.notices { notices } else { Vec::new() };
    assert_eq!(opened.notices(usize::MAX).await.unwrap(), expected);
}

/// The same, and work goes on.
pub(crate) async fn goes_on(opened: &dyn Store, original: &dyn Store, past: Past, has: Has) {
    holds(opened, original, &past, has).await;
    let Past { histories, jobs, .. } = past;
    let states = histories.iter().map(|(_, it)| &it.base).chain(jobs.iter().map(|job| &job.state));
    for state in states {
        let projection = Projection {
            summary: state.summary().unwrap(),
            unparked: Vec::new(),
            parked: state.parked().collect(),
        };
        let head = state.head().unwrap();
        opened.reproject(state.trajectory(), head, &projection).await.unwrap();
    }
    same_rows(opened, original).await;
    same_claims(opened, original).await;
    for (base, mut history) in histories {
        history.wander(3).unwrap();
        opened.append(history.take().unwrap()).await.unwrap();
        let mut state = base;
        for entry in opened.entries(state.trajectory(), 0, usize::MAX).await.unwrap() {
            state.apply(&Entry::from_bytes(&entry.bytes).unwrap()).unwrap();
        }
        assert!(state == history.base, "another chain");
    }
    for mut job in jobs {
        opened.append(job.signal("more")).await.unwrap();
        assert_eq!(super::fold(opened, job.id()).await, job.state);
    }
}

async fn same_rows(opened: &dyn Store, original: &dyn Store) {
    // Sources of branches have nothing but a row, which had no tools and no priority in the first place.
    let whole = Listing::default();
    let rows = original.list(&whole, usize::MAX).await.unwrap();
    assert_eq!(opened.list(&whole, usize::MAX).await.unwrap(), rows);
    let parked = original.parked(&ParkedListing::default(), usize::MAX).await.unwrap();
    let kinds: BTreeSet<_> = parked.iter().map(|row| row.parked.on).collect();
    assert!(kinds.len() >= ParkedOn::ALL.len() - 1, "{kinds:?}");
    assert_eq!(opened.parked(&ParkedListing::default(), usize::MAX).await.unwrap(), parked);
}

/// The queues are the same.
async fn same_claims(opened: &dyn Store, original: &dyn Store) {
    let me = worker("ada");
    let tools = ["mail", "pay"].map(|tool| tool.parse().unwrap()).to_vec();
    let profile = Profile { tools, ..Profile::default() };
    let mut claimed = Vec::new();
    for store in [original, opened] {
        store.heartbeat(&me, &profile, 60_000).await.unwrap();
        let mut claims = store.claim(&me, usize::MAX).await.unwrap();
        claims.sort();
        claimed.push(claims);
        store.retire(&me).await.unwrap();
    }
    assert!(claimed[0].len() > 5, "{claimed:?}");
    assert_eq!(claimed[0], claimed[1]);
}
