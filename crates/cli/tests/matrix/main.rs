//! The crash matrix: for each step kind, recovery class and cut point, a real worker process is killed
//! or frozen, another takes over, and a witness outside of both counts the effects.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod case;
mod database;
#[path = "../shared/http.rs"]
mod http;
mod scene;
mod table;
mod tools;
mod witness;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use case::{Case, Class, Cut, Kind, Mode, On, cases};
use scene::{Played, Template, again, play};
use table::Document;

/// Cases at a time. Most of what they do is waiting for leases to end: so many keep two cores busy.
const AT_A_TIME: usize = 32;
/// How often a case is played at most, until it comes to what the document tells: on a busy machine leases
/// and deadlines pass that are not the case's own. What is promised must hold in every take.
const TAKES: usize = 8;

#[test]
fn no_effect_happens_twice_wherever_a_worker_is_cut_off() {
    play_all(On::Sqlite);
}

#[test]
fn no_effect_happens_twice_wherever_a_worker_is_cut_off_on_postgres() {
    play_all(On::Postgres);
}

/// Whoever takes over may die as well: around each of its appends, the call that it sends again and the
/// question that it asks.
#[test]
fn no_effect_happens_twice_when_whoever_takes_over_is_killed_too() {
    let points = ["before_append", "after_append"]
        .into_iter()
        .flat_map(|point| (1..=3).map(move |times| format!("{point}:{times}:kill")));
    let once = ["after_claim:kill", "after_gate:kill", "after_dispatch:kill"].map(str::to_owned);
    let orders: Vec<String> = points.chain(once).collect();
    let cases: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.mode == Mode::Kill && case.kind == Kind::Http)
        .filter(|case| matches!(case.cut, Cut::Reached | Cut::Acted))
        .collect();
    let templates = in_parallel(cases.clone(), |case| (*case, Template::new(case, On::Sqlite)));
    let deaths = cases.iter().flat_map(|case| orders.iter().map(move |order| (*case, order)));
    let played = in_parallel(deaths.collect(), |(case, order)| {
        let again = (0..TAKES).find_map(|_| again::play(case, &templates[case], order));
        let (played, was_killed) = again.expect("the machine is too busy for this");
        judge(case, &played);
        ((*case, *order), was_killed)
    });
    let mut killed: BTreeMap<Case, usize> = BTreeMap::new();
    for ((case, _), was_killed) in played {
        *killed.entry(case).or_default() += usize::from(was_killed);
    }
    // It claims, and appends at least once, before and after which it is killed.
    assert!(killed.values().all(|killed| *killed >= 3), "{killed:?}");
    println!("{killed:?}");
}

/// Plays every case. What is seen is the same on every store, and the document has it.
fn play_all(on: On) {
    let document = Document::read();
    let tables = table::write(&played(cases(), on, &document));
    println!("{tables}");
    if only().is_empty() {
        document.check(&tables);
    }
}

/// A part of a case's name, to play only those.
fn only() -> String {
    std::env::var("GESTA_CASE").unwrap_or_default()
}

fn played(cases: Vec<Case>, on: On, document: &Document) -> BTreeMap<Case, Played> {
    let begun = Instant::now();
    let mut cases: Vec<Case> =
        cases.into_iter().filter(|case| case.name().contains(&only())).collect();
    // Taken from the end: those that wait longest go first.
    cases.sort_by_key(|case| (case.cut == Cut::Landing, case.mode != Mode::Kill));
    let mut kinds: Vec<Case> = cases.clone();
    kinds.sort_by_key(|case| (case.kind, case.class));
    kinds.dedup_by_key(|case| (case.kind, case.class));
    let templates: BTreeMap<(Kind, Class), Template> =
        in_parallel(kinds, |case| ((case.kind, case.class), Template::new(case, on)));
    eprintln!("{} workspaces in {:.1} s", templates.len(), begun.elapsed().as_secs_f64());

    let count = cases.len();
    let takes_played = AtomicU32::new(0);
    let results: BTreeMap<Case, Result<Played, String>> = in_parallel(cases, |case| {
        let template = &templates[&(case.kind, case.class)];
        let played = catch_unwind(AssertUnwindSafe(|| {
            let mut last = None;
            for _ in 0..TAKES {
                takes_played.fetch_add(1, Ordering::Relaxed);
                let Some(played) = play(case, template) else { continue };
                judge(case, &played);
                let told = document.tells(case, &played);
                last = Some(played);
                if told {
                    break;
                }
            }
            last.expect("the machine is too busy for this")
        }));
        (*case, played.map_err(|panic| said(&*panic)))
    });
    database::clear();
    let mut failures = Vec::new();
    let mut played = BTreeMap::new();
    for (case, result) in results {
        match result {
            Ok(well) => drop(played.insert(case, well)),
            Err(why) => failures.push(format!("{}: {why}", case.name())),
        }
    }
    let takes = takes_played.into_inner();
    eprintln!("{count} cases in {takes} takes and {:.1} s", begun.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    played
}

/// What every case promises, and what its class does.
fn judge(case: &Case, played: &Played) {
    let Played { entries, at_cut, at_end } = played;
    assert!(entries.iter().any(|entry| entry["kind"] == "completed"), "it did not complete");
    let items = case.kind.items();
    assert_eq!(at_end.len(), items, "an item without an effect: {at_end:?}");
    for (item, effects) in at_end {
        assert!(*effects == 1 || case.class == Class::Safe, "item {item}: {effects} effects");
    }
    assert!(at_cut.values().all(|effects| *effects <= 1), "{at_cut:?}");
    let asked = entries.iter().any(|entry| {
        entry["kind"] == "resolution" && entry["body"]["statement"]["doc"]["source"] == "operator"
    });
    assert!(!asked || case.class == Class::Never, "an operator was needed");
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// Does this with each, a few at a time.
fn in_parallel<C: Send, K: Ord + Send, V: Send>(
    cases: Vec<C>,
    work: impl Fn(&C) -> (K, V) + Sync,
) -> BTreeMap<K, V> {
    let left = Mutex::new(cases);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(case) = left.lock().unwrap().pop() else { return };
                    let (key, value) = work(&case);
                    done.lock().unwrap().insert(key, value);
                }
            });
        }
    });
    done.into_inner().unwrap()
}
