//! Whose turn it is: tools, priorities, tenants; who is alive; limits; news.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_store::{Profile, Ration, Store};

use super::{Job, Subject, worker};

const LONG_MS: u64 = 600_000;

fn tools(names: &[&str]) -> Vec<ToolName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn with_tools(names: &[&str]) -> Profile {
    let limits = BTreeMap::from([("tool pay".to_owned(), NonZeroU32::MIN)]);
    Profile { tools: tools(names), host: "here".into(), pid: 7, version: "test".into(), limits }
}

async fn begin(store: &dyn Store, mut job: Job) -> TrajectoryId {
    store.append(job.begin()).await.unwrap();
    job.id()
}

/// A worker is given only what it has the tools for, as it last said.
pub(crate) async fn a_worker_claims_what_it_can_run(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let (a, b) = (worker("a"), worker("b"));
    store.heartbeat(&a, &with_tools(&["mail", "pay"]), LONG_MS).await.unwrap();
    store.heartbeat(&b, &with_tools(&["mail"]), LONG_MS).await.unwrap();
    let both = begin(store, Job::new(1, now).needing(&["mail", "pay"])).await;
    let mail = begin(store, Job::new(2, now).needing(&["mail"])).await;
    let other = begin(store, Job::new(3, now).needing(&["mail", "ship"])).await;
    let nothing = begin(store, Job::new(4, now)).await;
    assert_eq!(store.claim(&b, 9).await.unwrap(), [mail, nothing]);
    assert_eq!(store.claim(&a, 9).await.unwrap(), [both]);
    store.heartbeat(&b, &with_tools(&["mail", "ship"]), LONG_MS).await.unwrap();
    assert_eq!(store.claim(&b, 9).await.unwrap(), [other]);
    assert!(store.claim_one(&a, other).await.is_ok_and(|claimed| !claimed));
}

/// What waits for a tool that a worker lacks does not stand in the way of what it can run, however
/// much of it there is.
pub(crate) async fn nothing_stands_in_the_way(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    store.heartbeat(&worker("w"), &with_tools(&["mail"]), LONG_MS).await.unwrap();
    for number in 1..=200 {
        begin(store, Job::new(number, now).needing(&["pay"])).await;
    }
    let mine = begin(store, Job::new(201, now.plus(9)).needing(&["mail"])).await;
    assert_eq!(store.claim(&worker("w"), 1).await.unwrap(), [mine]);
}

/// The greater priority goes first; within one, tenants take turns, counting what is in hand.
pub(crate) async fn priorities_come_before_tenants(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let w = worker("w");
    store.heartbeat(&w, &with_tools(&[]), LONG_MS).await.unwrap();
    let mut big = Vec::new();
    for number in 1..=4 {
        big.push(begin(store, Job::new(number, now.plus(number.into())).of("big")).await);
    }
    let mut small = Vec::new();
    for number in 11..=12 {
        small.push(begin(store, Job::new(number, now.plus(number.into())).of("small")).await);
    }
    let urgent = begin(store, Job::new(21, now.plus(99)).of("big").urgent(5)).await;
    assert_eq!(store.claim(&w, 4).await.unwrap(), [urgent, small[0], big[0], small[1]]);
    store.release(&w, small[0]).await.unwrap();
    assert_eq!(store.claim(&w, 1).await.unwrap(), [small[0]], "the other tenant has more in hand");
    assert_eq!(store.claim(&w, 9).await.unwrap(), big[1..]);
}

/// However long one tenant's backlog is, others come to their turn, with fewer slots than tenants too.
pub(crate) async fn tenants_take_turns_at_one_slot(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let w = worker("w");
    store.heartbeat(&w, &with_tools(&[]), LONG_MS).await.unwrap();
    let mut jobs = Vec::new();
    for (number, tenant) in (1..).zip(["big", "big", "big", "big", "small", "small", "tiny"]) {
        let mut job = Job::new(number, now.plus(number.into())).of(tenant);
        store.append(job.begin()).await.unwrap();
        jobs.push(job);
    }
    let mut served = Vec::new();
    while let Some(id) = store.claim(&w, 1).await.unwrap().pop() {
        let job = jobs.iter_mut().find(|job| job.id() == id).unwrap();
        served.push(job.tenant);
        store.append(job.attempt("w")).await.unwrap();
        store.append(job.cancel("w")).await.unwrap();
        store.release(&w, id).await.unwrap();
    }
    assert_eq!(served, ["big", "small", "tiny", "big", "small", "big", "big"]);
}

/// Who is alive, with what, since when.
pub(crate) async fn workers_are_listed(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let (a, b) = (worker("a"), worker("b"));
    let since = store.heartbeat(&a, &with_tools(&["mail", "pay"]), LONG_MS).await.unwrap();
    store.heartbeat(&b, &with_tools(&[]), 200).await.unwrap();
    begin(store, Job::new(1, now)).await;
    store.claim(&a, 9).await.unwrap();
    let beat_at = store.heartbeat(&a, &with_tools(&["pay"]), LONG_MS).await.unwrap();
    let live = async || {
        let listed = store.workers().await.unwrap();
        listed.into_iter().filter(|row| row.worker.as_str() != "clock").collect::<Vec<_>>()
    };
    let listed = subject
        .eventually("the lease ends", async || Some(live().await).filter(|live| live.len() == 1))
        .await;
    let row = &listed[0];
    assert_eq!((&row.worker, &row.profile), (&a, &with_tools(&["pay"])));
    assert_eq!((row.since, row.beat_at), (since, beat_at));
    assert_eq!((row.lease_until, row.claimed), (beat_at.plus(LONG_MS), 1));
    store.retire(&a).await.unwrap();
    assert_eq!(live().await, []);
}

/// Where workers differ about a limit the smallest holds, from the heartbeat that tells of it until the lease
/// of whoever told it ends; for those too whose own settings have none.
pub(crate) async fn the_smallest_limit_that_is_declared_binds_all(subject: Subject) {
    let store = &*subject.store;
    let (a, b, c) = (worker("a"), worker("b"), worker("c"));
    let declaring = |limits: &[(&str, u32)]| Profile {
        limits: limits
            .iter()
            .map(|(name, limit)| ((*name).to_owned(), NonZeroU32::new(*limit).unwrap()))
            .collect(),
        ..Profile::default()
    };
    let ask = async |who, limit, using| {
        let ask = Ration { limit, using, wanted: 9, ttl_ms: LONG_MS };
        store.ration(who, "tool pay", ask).await.unwrap()
    };
    store.heartbeat(&a, &declaring(&[("tool pay", 5), ("tenant main", 7)]), LONG_MS).await.unwrap();
    assert_eq!(ask(&a, 5, 0).await, 5);
    store.heartbeat(&b, &declaring(&[("tool pay", 2)]), LONG_MS).await.unwrap();
    store.heartbeat(&c, &declaring(&[("tool ship", 1)]), LONG_MS).await.unwrap();
    let told = store.limits().await.unwrap();
    let told: Vec<_> = told.iter().map(|(name, limit)| (name.as_str(), limit.get())).collect();
    assert_eq!(told, [("tenant main", 7), ("tool pay", 2), ("tool ship", 1)]);
    assert_eq!(ask(&b, 2, 0).await, 0, "five are under way");
    assert_eq!(
        ask(&a, 5, 5).await,
        1,
        "it must not begin another, and one of the two is due to the other"
    );
    assert_eq!(ask(&a, 5, 1).await, 1);
    assert_eq!(ask(&b, 2, 0).await, 1);
    assert_eq!(ask(&c, u32::MAX, 0).await, 0, "whatever it takes the limit to be");
    store.retire(&b).await.unwrap();
    let told = store.limits().await.unwrap();
    assert_eq!(told.get("tool pay").map(|limit| limit.get()), Some(5));
    store.heartbeat(&b, &declaring(&[("tool pay", 1)]), 200).await.unwrap();
    subject
        .eventually("the lease ends", async || {
            let told = store.limits().await.unwrap();
            told.get("tool pay").filter(|limit| limit.get() == 5).copied()
        })
        .await;
}

/// Shares of a limit add up to no more than it, are taken back from the dead, and go round.
pub(crate) async fn limits_hold_across_workers(subject: Subject) {
    let store = &*subject.store;
    let (a, b) = (worker("a"), worker("b"));
    let ask = async |who, using, wanted, ttl_ms| {
        store.ration(who, "tool pay", Ration { limit: 2, using, wanted, ttl_ms }).await.unwrap()
    };
    assert_eq!(ask(&a, 0, 9, LONG_MS).await, 2);
    assert_eq!(ask(&b, 0, 1, LONG_MS).await, 0, "none is left");
    let other = Ration { limit: 1, using: 0, wanted: 1, ttl_ms: LONG_MS };
    assert_eq!(store.ration(&b, "tool mail", other).await.unwrap(), 1, "another limit");
    assert_eq!(ask(&a, 2, 9, LONG_MS).await, 1, "another waits");
    assert_eq!(ask(&b, 0, 1, LONG_MS).await, 0, "it is still in use");
    assert_eq!(ask(&a, 1, 9, LONG_MS).await, 1);
    assert_eq!(ask(&b, 0, 1, 200).await, 1);
    let alone = async || (ask(&a, 1, 9, LONG_MS).await == 2).then_some(());
    subject.eventually("the share of the dead comes back", alone).await;
    assert_eq!(ask(&a, 0, 0, LONG_MS).await, 0);
    assert_eq!(ask(&b, 0, 2, LONG_MS).await, 2);
}

/// Whoever listens hears of what others add, report and give back.
pub(crate) async fn news_are_heard(subject: Subject) {
    let store = &*subject.store;
    let now = subject.now().await;
    let mut listening = store.listen();
    let mut job = Job::new(1, now);
    let w = worker("w");
    store.heartbeat(&w, &with_tools(&[]), LONG_MS).await.unwrap();
    store.append(job.begin()).await.unwrap();
    let id = job.id();
    let mut hears = async |what: &str| {
        let heard = async { while listening.next().await != gesta_store::News::Changed(id) {} };
        tokio::time::timeout(Duration::from_secs(20), heard).await.expect(what);
    };
    hears("a job").await;
    store.claim(&w, 1).await.unwrap();
    store.release(&w, id).await.unwrap();
    hears("it was given back").await;
    store.put_effect(&super::report(id, now)).await.unwrap();
    hears("a report").await;
    store.append(job.signal("s")).await.unwrap();
    hears("a signal").await;
}
