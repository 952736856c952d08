//! Waits, signals and timers.

use gesta_core::body::{Origin, Signal, Timer, Waiting};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::document::Outcome;
use gesta_core::entry::Body;
use gesta_core::json::Canon;
use gesta_core::state::{Act, Why};

use crate::edit;
use crate::scene::{COST, Scene, nowhere, stands, step};

fn waiting(scene: &Scene, on: &str, key: Option<&str>, until_ms: Option<u64>) -> Body {
    Body::Waiting(Box::new(Waiting {
        key: key.map(|key| key.parse().unwrap()),
        step: step(on),
        until: until_ms.map(|ms| scene.now.plus(ms)),
    }))
}

fn signal(id: &str, key: &str) -> Body {
    Body::Signal(Box::new(Signal {
        id: id.parse().unwrap(),
        key: key.parse().unwrap(),
        payload: Content::Inline(Canon::null()),
    }))
}

fn timer(on: &str, waiting: EntryId) -> Body {
    Body::Timer(Box::new(Timer { step: step(on), waiting }))
}

fn woken(scene: &Scene, on: &str, by: EntryId) -> Body {
    edit::commit(&scene.cast, scene.body(Act::CommitComputed, on), |commit| {
        commit.origin = Origin::Woken { by };
    })
}

/// `pause` waits on `go`.
fn on_go() -> Scene {
    let mut scene = Scene::session();
    let body = waiting(&scene, "pause", Some("go"), None);
    scene.adds(body);
    scene
}

#[test]
fn a_wait_is_for_something() {
    let scene = Scene::session();
    scene.refuses(waiting(&scene, "pause", None, None), Why::EmptyWait);
    scene.accepts(waiting(&scene, "pause", Some("go"), None));
    scene.accepts(waiting(&scene, "pause", None, Some(1)));
    let twice = on_go();
    twice.refuses(waiting(&twice, "pause", Some("go"), None), stands("pause", "waiting"));
}

#[test]
fn a_signal_counts_once_whatever_its_key() {
    let mut scene = Scene::session();
    scene.adds(signal("one", "go"));
    scene.refuses(signal("one", "go"), Why::SignalTwice);
    scene.refuses(signal("one", "stop"), Why::SignalTwice);
    scene.adds(signal("two", "go"));
    // Not even after it was taken.
    let body = waiting(&scene, "pause", Some("go"), None);
    scene.adds(body);
    let taken = scene.state().woken_by(&step("pause")).unwrap();
    scene.adds(woken(&scene, "pause", taken));
    scene.refuses(signal("one", "go"), Why::SignalTwice);
}

#[test]
fn a_signal_before_the_wait_waits_for_it() {
    let mut scene = Scene::session();
    let sent = scene.adds(signal("one", "go"));
    scene.later(1_000_000);
    scene.claims();
    let body = waiting(&scene, "pause", Some("go"), None);
    scene.adds(body);
    scene.adds(woken(&scene, "pause", sent));
    assert_eq!(scene.status("pause"), "done");
}

#[test]
fn the_oldest_signal_is_taken_first_and_only_once() {
    let mut scene = on_go();
    let body = waiting(&scene, "again", Some("go"), None);
    scene.adds(body);
    let first = scene.adds(signal("one", "go"));
    let second = scene.adds(signal("two", "go"));
    scene.refuses(woken(&scene, "pause", second), Why::NotWoken);
    scene.adds(woken(&scene, "pause", first));
    scene.refuses(woken(&scene, "again", first), Why::NotWoken);
    scene.adds(woken(&scene, "again", second));
    let body = waiting(&scene, "third", Some("go"), None);
    scene.adds(body);
    scene.refuses(woken(&scene, "third", second), Why::NotWoken);
    assert_eq!(scene.state().woken_by(&step("third")), None);
}

#[test]
fn a_wait_ends_by_what_it_waited_for() {
    let mut scene = on_go();
    let parked = scene.state().head().unwrap().id;
    let other = scene.adds(signal("other", "stop"));
    for by in [nowhere(), other, parked] {
        scene.refuses(woken(&scene, "pause", by), Why::NotWoken);
    }
    let sent = scene.adds(signal("one", "go"));
    scene.refuses(woken(&scene, "idle", sent), Why::NotWoken);
    for act in [Act::CommitComputed, Act::CommitSkipped, Act::FailUnstarted] {
        scene.refuses(scene.body(act, "pause"), stands("pause", "waiting"));
    }
    let check = |edit: fn(&mut gesta_core::body::Commit), why: Why| {
        scene.refuses(edit::commit(&scene.cast, woken(&scene, "pause", sent), edit), why);
    };
    check(|commit| commit.cost = COST, Why::Cost);
    check(|commit| commit.outcome = Outcome::SideEffectCommitted, Why::Outcome);
    scene.accepts(woken(&scene, "pause", sent));
}

#[test]
fn a_timer_fires_when_its_time_has_come() {
    let mut scene = Scene::session();
    let body = waiting(&scene, "pause", Some("go"), Some(500));
    let parked = scene.adds(body);
    scene.later(499);
    scene.refuses(timer("pause", parked), Why::NotYet);
    scene.later(1);
    scene.refuses(timer("pause", nowhere()), Why::NotWoken);
    scene.refuses(timer("idle", parked), stands("idle", "idle"));
    let fired = scene.adds(timer("pause", parked));
    scene.refuses(timer("pause", parked), stands("pause", "woken by its timer"));
    // The timer came first: a signal after it waits for another step.
    let sent = scene.adds(signal("one", "go"));
    scene.refuses(woken(&scene, "pause", sent), Why::NotWoken);
    scene.adds(woken(&scene, "pause", fired));
    assert_eq!(scene.status("pause"), "done");
    let body = waiting(&scene, "again", Some("go"), None);
    scene.adds(body);
    scene.adds(woken(&scene, "again", sent));
}

#[test]
fn a_wait_without_a_time_has_no_timer() {
    let mut scene = on_go();
    let parked = scene.state().head().unwrap().id;
    scene.later(1 << 40);
    scene.refuses(timer("pause", parked), Why::NotYet);
}
