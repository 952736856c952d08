//! Undoing what was done: when a job fails and says so, when it is cancelled with it, and what happens
//! when the undoing itself goes wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gesta_core::document::{Outcome, Recovery, ResolutionVerdict};
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::projection::ParkedOn;
use gesta_core::sample::person;
use gesta_core::temporal::{Grade, Rule};
use gesta_core::writ::Effect;
use gesta_runtime::jobs::{self, Cancelled, Finding};
use gesta_runtime::tools::{
    Catalogue, CatalogueBuilder, Change, Compensate, FunctionCall, FunctionError, Manifest,
};
use gesta_runtime::{Left, RunError, authority};
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::{Chain, ParkedListing, Store};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::scene::{REGISTRY, Scene, policies};
use crate::stage::{Ran, manifest};
use crate::stores::on_postgres;

/// What tools did, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn args(call: &FunctionCall) -> Value {
    serde_json::from_str(call.args.as_str()).unwrap()
}

fn undone_by(name: &str, tool: &str, args: Value) -> Manifest {
    let mut manifest = manifest(name, Effect::External);
    manifest.compensate = Some(Compensate { args, tool: tool.parse().unwrap() });
    manifest
}

fn room(retract: bool) -> Vec<Change> {
    vec![Change {
        type_: "room".parse().unwrap(),
        id: "string(args.room)".to_owned(),
        value: None,
        retract,
    }]
}

/// `book` is undone by `unbook`, `charge` is undone by nothing, `fail` fails, `look` reads.
fn tools(diary: &Diary, unbook: Manifest) -> CatalogueBuilder {
    let given = json!({ "room": "${args.room}", "booking": "${result.booking}", "key": "${key}" });
    let mut book = undone_by("book", "unbook", given);
    book.changes = room(false);
    let (booked, unbooked, charged) = (diary.clone(), diary.clone(), diary.clone());
    Catalogue::builder()
        .function(book, move |call: FunctionCall| {
            let room = args(&call)["room"].clone();
            booked.note(format!("book {room}"));
            // Large enough to be a blob for room 9.
            let fill = if room == 9 { "x".repeat(100_000) } else { String::new() };
            async move {
                Ok::<_, FunctionError>(
                    json!({ "booking": format!("b{room}"), "key": call.key, "fill": fill }),
                )
            }
        })
        .function(unbook, move |call: FunctionCall| {
            let given = args(&call);
            assert!(given["key"].as_str().unwrap().starts_with("gesta-"));
            unbooked.note(format!("unbook {} {}", given["room"], given["booking"]));
            async { Ok::<_, FunctionError>(json!("gone")) }
        })
        .function(manifest("charge", Effect::External), move |_: FunctionCall| {
            charged.note("charge".to_owned());
            async { Ok::<_, FunctionError>(json!(1)) }
        })
        .function(manifest("fail", Effect::External), async |_: FunctionCall| {
            Err::<Value, _>(FunctionError::did_not_happen("no"))
        })
        .function(manifest("look", Effect::Read), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!(1))
        })
}

/// The tools, for whoever does not look at what they did.
pub(crate) fn trip_tools() -> Catalogue {
    tools(&Diary::default(), unbook()).build().unwrap()
}

fn unbook() -> Manifest {
    let mut unbook = manifest("unbook", Effect::External);
    unbook.changes = room(true);
    unbook
}

/// Three bookings, one of them in a fan-out of two, then a failure.
pub(crate) const TRIP: &str = r#"
job: trip
on_failure: compensate
parallel: 1
steps:
  - { id: look, tool: look, args: {} }
  - { id: first, tool: book, args: { room: 1 }, needs: [look] }
  - { id: paid, tool: charge, args: {}, needs: [first] }
  - { id: rest, each: "${[2, 9]}", tool: book, args: { room: "${item}" }, needs: [paid] }
  - { id: kept, tool: book, args: { room: 4 }, compensate: none, needs: [rest] }
  - { id: other, tool: book, args: { room: 5 }, needs: [kept], compensate: { tool: unbook, args: { room: 5, booking: "own", key: "${key}" } } }
  - { id: broken, tool: fail, args: {}, needs: [other] }
"#;

const BOOKED: [&str; 6] = ["book 1", "charge", "book 2", "book 9", "book 4", "book 5"];
const UNBOOKED: [&str; 4] =
    ["unbook 5 \"own\"", "unbook 9 \"b9\"", "unbook 2 \"b2\"", "unbook 1 \"b1\""];

fn whole() -> Vec<String> {
    BOOKED.iter().chain(&UNBOOKED).map(ToString::to_string).collect()
}

/// What was undone, in the order of the chain.
fn compensated(ran: &Ran) -> Vec<String> {
    let entries = ran.entries.iter().filter_map(|entry| match &entry.payload().body {
        Body::Commit(commit) if commit.outcome == Outcome::Compensated => {
            Some(commit.step.to_string())
        }
        _ => None,
    });
    entries.collect()
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_that_says_so_is_undone_newest_first() {
    let diary = Diary::default();
    let scene = Scene::new(tools(&diary, unbook()).build().unwrap()).await;
    let (left, ran) = scene.run(TRIP, &[]).await;
    assert_eq!(left, Left::Ended, "{:?}", ran.kinds());
    assert_eq!(diary.read(), whole());
    assert_eq!(compensated(&ran), ["other/undo", "rest/1/undo", "rest/0/undo", "first/undo"]);
    assert_eq!(ran.error().1, "step `broken` failed: no");
    assert_eq!(ran.kinds().last().unwrap(), "failed");
    let chain = Chain::load(Arc::clone(&scene.store), TrajectoryId::from_bytes([1; 16])).await;
    let left: Vec<String> =
        chain.unwrap().state().world().iter().map(|(r, _)| r.to_string()).collect();
    assert_eq!(left, ["room/4"], "an undo changes the world too");
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_that_says_nothing_is_left_as_it_is() {
    let diary = Diary::default();
    let scene = Scene::new(tools(&diary, unbook()).build().unwrap()).await;
    let (left, ran) = scene.run(&TRIP.replace("on_failure: compensate\n", ""), &[]).await;
    assert_eq!(left, Left::Ended);
    assert_eq!(diary.read(), BOOKED);
    assert_eq!(ran.count("compensation"), 0);
}

const WAITING: &str = r"
job: waiting
steps:
  - { id: first, tool: book, args: { room: 1 } }
  - { id: second, tool: book, args: { room: 2 }, needs: [first] }
  - { id: wait, wait: { signal: go }, needs: [second] }
";

async fn cancel(scene: &Scene, trajectory: TrajectoryId, compensate: bool) -> Cancelled {
    let person = person().unwrap();
    let asked = ("the guest called", compensate);
    jobs::cancel(&scene.store, trajectory, &person, asked, scene.now()).await.unwrap()
}

/// A job that waits after two bookings, and is then cancelled.
async fn cancelled(scene: &Scene, compensate: bool) -> TrajectoryId {
    let trajectory = scene.submit(1, WAITING, &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(cancel(scene, trajectory, compensate).await, Cancelled::New);
    trajectory
}

#[tokio::test(start_paused = true)]
async fn a_job_is_cancelled_with_or_without_undoing() {
    for (compensate, undone) in [(true, 2), (false, 0)] {
        let diary = Diary::default();
        let scene = Scene::new(tools(&diary, unbook()).build().unwrap()).await;
        let trajectory = cancelled(&scene, compensate).await;
        let again = cancel(&scene, trajectory, !compensate).await;
        assert_eq!(again, Cancelled::Known { compensate }, "the first to ask has decided");
        assert_eq!(scene.drive(trajectory).await, Left::Ended);
        let ran = scene.ran(trajectory).await;
        assert_eq!(ran.error(), ("cancelled".to_owned(), "the guest called".to_owned()));
        assert_eq!(compensated(&ran).len(), undone);
        assert_eq!(diary.read().len(), 2 + undone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_did_nothing_is_cancelled_with_nothing_to_undo() {
    let scene = Scene::new(tools(&Diary::default(), unbook()).build().unwrap()).await;
    let job = "job: idle\nsteps:\n  - { id: wait, wait: { signal: go } }\n";
    let trajectory = scene.submit(1, job, &[]).await;
    scene.drive(trajectory).await;
    cancel(&scene, trajectory, true).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(scene.ran(trajectory).await.kinds().last().unwrap(), "cancelled");
}

async fn parked_on(scene: &Scene, on: ParkedOn) -> Vec<String> {
    let listing = ParkedListing { on: Some(on), ..ParkedListing::default() };
    let rows = scene.store.parked(&listing, 10).await.unwrap();
    rows.into_iter().map(|row| row.parked.step.to_string()).collect()
}

async fn resolve(
    scene: &Scene,
    trajectory: TrajectoryId,
    step: &str,
    verdict: ResolutionVerdict,
) -> Result<(), RunError> {
    let finding =
        Finding { step: step.parse().unwrap(), verdict, evidence: Canon::null(), forced: false };
    let (person, key) = (person().unwrap(), &scene.cast.operator);
    jobs::resolve(&scene.store, trajectory, &person, key, &finding, scene.now()).await.map(|_| ())
}

/// A tool that undoes, and fails for room 2 for as many times as it is told to.
fn stubborn(diary: &Diary, times: u64) -> Catalogue {
    let (unbooked, refused) = (diary.clone(), Arc::new(AtomicU64::new(0)));
    let given = json!({ "room": "${args.room}" });
    let booked = diary.clone();
    Catalogue::builder()
        .function(undone_by("book", "unbook", given), move |call: FunctionCall| {
            booked.note(format!("book {}", args(&call)["room"]));
            async { Ok::<_, FunctionError>(json!(1)) }
        })
        .function(manifest("unbook", Effect::External), move |call: FunctionCall| {
            let room = args(&call)["room"].clone();
            let refuses = room == 2 && refused.fetch_add(1, Ordering::Relaxed) < times;
            if !refuses {
                unbooked.note(format!("unbook {room}"));
            }
            async move {
                if refuses { Err(FunctionError::did_not_happen("not now")) } else { Ok(json!(1)) }
            }
        })
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_waits_for_a_person_who_tries_again_or_gives_up() {
    for give_up in [false, true] {
        let diary = Diary::default();
        let scene = Scene::new(stubborn(&diary, 2)).await;
        let trajectory = cancelled(&scene, true).await;
        assert_eq!(scene.drive(trajectory).await, Left::Parked);
        assert_eq!(parked_on(&scene, ParkedOn::Undo).await, ["second/undo"]);
        let row = scene.store.trajectory(trajectory).await.unwrap().unwrap();
        assert!(!row.summary.runnable, "nobody turns in circles");
        assert_eq!(diary.read(), ["book 1", "book 2"], "an older undo does not overtake it");

        let again = ResolutionVerdict::DidNotHappen;
        resolve(&scene, trajectory, "second/undo", again.clone()).await.unwrap();
        assert_eq!(scene.drive(trajectory).await, Left::Parked, "it fails once more");
        let verdict = if give_up { ResolutionVerdict::GiveUp } else { again };
        resolve(&scene, trajectory, "second/undo", verdict).await.unwrap();
        assert_eq!(scene.drive(trajectory).await, Left::Ended);
        let undone: Vec<String> = diary.read().split_off(2);
        match give_up {
            true => assert_eq!(undone, ["unbook 1"], "the rest goes on"),
            false => assert_eq!(undone, ["unbook 2", "unbook 1"]),
        }
        assert_eq!(scene.ran(trajectory).await.kinds().last().unwrap(), "cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_the_guardian_refuses_waits_for_a_person() {
    let diary = Diary::default();
    let scene = Scene::new(tools(&diary, unbook()).build().unwrap()).await;
    let trajectory = cancelled(&scene, true).await;
    let all = r#"@id("all") permit (principal, action, resource);"#;
    let no = r#"@id("no") forbid (principal, action in Action::"tool:unbook", resource);"#;
    let publish = async |text: &str| {
        let (document, owner) = (policies(&scene.catalogue, text), &scene.cast.owner);
        let publishing =
            authority::publish(&scene.store, REGISTRY, &document, owner, scene.now()).await;
        publishing.unwrap();
    };
    publish(&format!("{all}\n{no}")).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    let parked = parked_on(&scene, ParkedOn::Undo).await;
    assert_eq!(parked.len(), 1, "one after the other");
    assert_eq!(scene.ran(trajectory).await.count("rejection"), 1);
    publish(all).await;
    let again = ResolutionVerdict::DidNotHappen;
    resolve(&scene, trajectory, &parked[0], again).await.unwrap();
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(diary.read().split_off(2), ["unbook 2 \"b2\"", "unbook 1 \"b1\""]);
}

#[tokio::test(start_paused = true)]
async fn an_undo_whose_arguments_cannot_be_computed_waits_for_a_person() {
    let diary = Diary::default();
    let scene = Scene::new(tools(&diary, unbook()).build().unwrap()).await;
    let args = "compensate: { tool: unbook, args: { room: '${result.nothing}' } }";
    let job = WAITING.replace("args: { room: 2 },", &format!("args: {{ room: 2 }}, {args},"));
    let trajectory = scene.submit(1, &job, &[]).await;
    scene.drive(trajectory).await;
    cancel(&scene, trajectory, true).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(parked_on(&scene, ParkedOn::Undo).await, ["second/undo"]);
    resolve(&scene, trajectory, "second/undo", ResolutionVerdict::GiveUp).await.unwrap();
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(diary.read().split_off(2), ["unbook 1 \"b1\""]);
}

/// An undo of which nobody hears the first time.
fn unheard(diary: &Diary, recovery: Recovery) -> Catalogue {
    let mut unbook = manifest("unbook", Effect::External);
    unbook.recovery = recovery;
    let (unbooked, keys) = (diary.clone(), Arc::new(Mutex::new(Vec::<String>::new())));
    let given = json!({ "room": "${args.room}" });
    Catalogue::builder()
        .function(undone_by("book", "unbook", given), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!(1))
        })
        .function(unbook, move |call: FunctionCall| {
            let mut keys = keys.lock().unwrap();
            let known = keys.contains(&call.key);
            if !known {
                keys.push(call.key.clone());
                unbooked.note(format!("unbook {}", args(&call)["room"]));
            }
            async move {
                if known { Ok(json!(1)) } else { Err(FunctionError::unknown("the line went dead")) }
            }
        })
        .build()
        .unwrap()
}

async fn wake(scene: &Scene, trajectory: TrajectoryId) {
    let row = scene.store.trajectory(trajectory).await.unwrap().unwrap();
    let wake = row.summary.wake_at.unwrap();
    tokio::time::advance(Duration::from_millis(wake.0.saturating_sub(scene.now().0))).await;
}

#[tokio::test(start_paused = true)]
async fn an_undo_of_unknown_outcome_is_recovered_as_its_tool_says() {
    let diary = Diary::default();
    let scene = Scene::new(unheard(&diary, Recovery::Keyed)).await;
    let trajectory = cancelled(&scene, true).await;
    for _ in 0..2 {
        assert_eq!(scene.drive(trajectory).await, Left::Parked, "until it cannot land any more");
        wake(&scene, trajectory).await;
    }
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(diary.read(), ["unbook 2", "unbook 1"], "each once, under one key");

    let diary = Diary::default();
    let scene = Scene::new(unheard(&diary, Recovery::Never)).await;
    let trajectory = cancelled(&scene, true).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(parked_on(&scene, ParkedOn::Doubt).await, ["second/undo"]);
    assert_eq!(diary.read(), ["unbook 2"]);
    resolve(&scene, trajectory, "second/undo", ResolutionVerdict::GiveUp).await.unwrap();
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(parked_on(&scene, ParkedOn::Doubt).await, ["first/undo"]);
    resolve(&scene, trajectory, "first/undo", ResolutionVerdict::GiveUp).await.unwrap();
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(diary.read(), ["unbook 2", "unbook 1"]);
}

/// Runs the trip with one worker whose writes fail as told, and then with others until it has ended.
async fn with_failing_writes(
    scene: &Scene,
    number: u8,
    (fault, first, burst): (Fault, u64, u64),
) -> u64 {
    let diary = Diary::default();
    let scene = scene.with_tools(keyed_tools(&diary));
    let trajectory = scene.submit(number, TRIP, &[]).await;
    let faulty = Arc::new(FaultyStore::new(
        Arc::clone(&scene.store),
        Box::new(move |write| (write >= first && write < first + burst).then_some(fault)),
    ));
    let store: Arc<dyn Store> = Arc::<FaultyStore>::clone(&faulty);
    let mut ended = drive_on(&scene, store, trajectory).await;
    for _ in 0..20 {
        if ended {
            break;
        }
        // Whoever comes next waits for the lease of the one who gave up, or is told of its death.
        tokio::time::advance(Duration::from_millis(scene.options.lease_ms + 1)).await;
        for row in scene.store.workers().await.unwrap() {
            scene.store.retire(&row.worker).await.unwrap();
        }
        ended = drive_on(&scene, Arc::clone(&scene.store), trajectory).await;
    }
    let ran = scene.ran(trajectory).await;
    let what = format!("{fault:?} from write {first}, {burst} of them: {:?}", ran.kinds());
    assert!(ended, "{what}");
    assert_eq!(diary.read(), whole(), "{what}");
    assert_eq!(compensated(&ran).len(), UNBOOKED.len(), "{what}");
    assert_eq!(ran.count("compensation"), 1, "{what}");
    faulty.writes()
}

async fn drive_on(scene: &Scene, store: Arc<dyn Store>, trajectory: TrajectoryId) -> bool {
    let Ok(worker) = scene.worker_on(store).await else { return false };
    let (_stop, stopped) = watch::channel(false);
    matches!(worker.run_one(trajectory, stopped).await, Ok(Left::Ended))
}

fn keyed_tools(diary: &Diary) -> Catalogue {
    let mut keyed = unbook();
    keyed.recovery = Recovery::KeyedConcurrent;
    tools(diary, keyed).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_write_of_a_rollback_may_fail_in_both_ways() {
    let scene = async || Scene::new(keyed_tools(&Diary::default())).await;
    let writes = with_failing_writes(&scene().await, 1, (Fault::Lost, u64::MAX, 0)).await;
    assert!(writes > 12, "{writes}");
    for fault in [Fault::Lost, Fault::Unanswered] {
        for first in 0..writes {
            with_failing_writes(&scene().await, 1, (fault, first, 1)).await;
            with_failing_writes(&scene().await, 1, (fault, first, 12)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_write_of_a_rollback_may_fail_in_both_ways_on_postgres() {
    let started = Instant::now();
    let scene =
        Scene::on(on_postgres(started).await, keyed_tools(&Diary::default()), started).await;
    let mut number = 0;
    let mut run = async |how| {
        number += 1;
        with_failing_writes(&scene, number, how).await
    };
    let writes = run((Fault::Lost, u64::MAX, 0)).await;
    assert!(writes > 12, "{writes}");
    for fault in [Fault::Lost, Fault::Unanswered] {
        for first in 0..writes {
            // More than an append is sent again, now and then: a server takes its time.
            run((fault, first, if first % 3 == 0 { 12 } else { 1 })).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_the_tool_that_undoes_leaves_the_job_alone() {
    let diary = Diary::default();
    let mut scene = Scene::new(tools(&diary, unbook()).build().unwrap()).await;
    let trajectory = cancelled(&scene, true).await;
    let all = Arc::clone(&scene.catalogue);
    let others = Catalogue::builder()
        .function(manifest("book", Effect::External), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!(1))
        })
        .build();
    scene.catalogue = Arc::new(others.unwrap());
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(scene.ran(trajectory).await.count("compensation"), 0);
    scene.catalogue = all;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(diary.read().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_unknown_outcome_that_may_not_be_sent_again_is_in_doubt() {
    let mut pay = manifest("pay", Effect::External);
    pay.recovery = Recovery::KeyedConcurrent;
    let tools = Catalogue::builder().function(pay, async |_: FunctionCall| {
        Err::<Value, _>(FunctionError::unknown("the line went dead"))
    });
    let mut scene = Scene::new(tools.build().unwrap()).await;
    let then = Grade::Interrupt;
    scene.options.temporal.trajectory = vec![Rule { calls: 1, per_ms: 600_000, then }];
    let job = "job: pay\nsteps:\n  - { id: it, tool: pay, args: {} }\n";
    let (left, ran) = scene.run(job, &[]).await;
    assert_eq!(left, Left::Parked, "{:?}", ran.kinds());
    assert_eq!(ran.kinds().split_off(3), ["started", "failure", "rejection", "in_doubt"]);
}

#[tokio::test(start_paused = true)]
async fn more_than_one_entry_holds_is_undone_in_several_rollbacks() {
    let diary = Diary::default();
    let scene = Scene::new(stubborn(&diary, 0)).await;
    let rooms: Vec<String> = (0..4_010).map(|room| room.to_string()).collect();
    let list = rooms.join(", ");
    let job = format!(
        "job: many\nparallel: 1000\nsteps:\n  - {{ id: all, each: [{list}], tool: book, args: {{ room: '${{item}}' }} }}\n  - {{ id: wait, wait: {{ signal: go }}, needs: [all] }}\n"
    );
    let trajectory = scene.submit(1, &job, &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    cancel(&scene, trajectory, true).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(ran.count("compensation"), 2);
    let did = diary.read();
    let (booked, unbooked) = did.split_at(rooms.len());
    let newest_first: Vec<String> = booked.iter().rev().map(|book| format!("un{book}")).collect();
    assert_eq!(unbooked, newest_first);
}
