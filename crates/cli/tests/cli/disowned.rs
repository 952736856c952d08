//! A worker's key is revoked while a tool runs: nobody would ever believe what it signs after that, so it
//! records nothing more, and a worker with another key recovers the call as its tool declares.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::shop::Running;
use crate::world::World;

/// A call that leaves a line, says so, and returns once it is let go.
fn tools(recovery: &str) -> String {
    format!(
        "[tools.pay]\neffect = \"external\"\nrecovery = \"{recovery}\"\ntimeout = \"6s\"\n\
         driver.process = {{ command = \"echo paid >> paid; echo reached > reached; cat pause\", shell = true, env = [\"PATH\"] }}\n"
    )
}

fn scene(recovery: &str) -> World {
    let world = World::with_tools(&tools(recovery));
    world.write(
        "job.yaml",
        "job: pay\nsteps:\n  - { id: it, tool: pay }\nanswer: ${steps.it.result}\n",
    );
    world.fifo("reached");
    world.fifo("pause");
    world.gesta(&["keys", "add", "second", "--roles", "guardian,executor"]).ok();
    world.gesta(&["submit", "job.yaml"]).ok();
    world
}

fn paid(world: &World) -> usize {
    world.read("paid").lines().count()
}

/// A worker that signs with the other key.
fn other(world: &World) -> Running {
    let keys = "[worker]\nkeys = { guardian = \"second\", executor = \"second\" }\n";
    let config = world.read("gesta.toml").replace("[worker]\n", keys);
    world.write("gesta.toml", &config);
    world.start(&["worker"])
}

/// Revokes the key of the worker, and waits until its clock, which is the store's at its last heartbeat, has
/// come to that: what it recorded before would count.
fn revoke(world: &World) {
    let revoked = world.gesta(&["keys", "revoke", "worker", "--json"]).json();
    let revoked = revoked["revoked_at"].as_u64().unwrap();
    let beat = || world.gesta(&["workers", "--json"]).json_lines()[0]["heartbeat_at"].as_u64();
    let begun = Instant::now();
    while beat() <= Some(revoked) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no heartbeat");
    }
}

/// It says that nothing is recorded, and nothing is.
#[track_caller]
fn leaves_it(world: &World, mut worker: Running) {
    worker.says("what step `it` came to is not recorded");
    worker.signal(Signal::TERM);
    worker.ends();
    let kinds = world.kinds(&world.job());
    assert_eq!(kinds.last().map(String::as_str), Some("started"), "{kinds:?}");
}

/// An operator says what became of it, and the job goes on.
#[track_caller]
fn resolved(world: &World) {
    let mut second = other(world);
    second.says("in doubt");
    assert_eq!(paid(world), 1);
    let doubts = world.gesta(&["doubts"]).ok();
    assert!(doubts.contains("it"), "{doubts}");
    world.gesta(&["resolve", &world.job(), "--happened", "7", "--evidence", "seen"]).ok();
    second.says(": completed");
    second.signal(Signal::TERM);
    second.ends();
    assert_eq!(paid(world), 1);
}

#[test]
fn a_call_is_in_doubt_when_the_key_of_its_worker_is_revoked_meanwhile() {
    let world = scene("never");
    let worker = world.start(&["worker"]);
    world.hear("reached");
    revoke(&world);
    std::fs::write(world.path("pause"), "7\n").unwrap();
    leaves_it(&world, worker);
    resolved(&world);
}

#[test]
fn a_call_that_may_be_sent_again_is_when_the_key_of_its_worker_is_revoked_meanwhile() {
    let world = scene("keyed_concurrent");
    let worker = world.start(&["worker"]);
    world.hear("reached");
    revoke(&world);
    std::fs::write(world.path("pause"), "7\n").unwrap();
    leaves_it(&world, worker);
    let mut second = other(&world);
    world.hear("reached");
    std::fs::write(world.path("pause"), "7\n").unwrap();
    second.says(": completed");
    second.kill();
}

/// The revocation comes between signing what the call came to and storing it.
#[cfg(feature = "cuts")]
#[test]
fn what_was_signed_and_not_stored_before_the_revocation_is_not_stored_after_it() {
    let world = scene("never");
    let mut worker = world.start_with(&["worker"], &[("GESTA_CUT", "before_settle:stop")]);
    world.hear("reached");
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.stands_still();
    world.gesta(&["keys", "revoke", "worker"]).ok();
    worker.signal(Signal::CONT);
    leaves_it(&world, worker);
    resolved(&world);
}
