//! `[temporal]`: too many calls, and what follows; `gesta quarantine`.

use rustix::process::Signal;
use serde_json::json;

use crate::freeze::IN_VAIN;
use crate::shop::Running;
use crate::world::World;

const PAY: &str = "[tools.pay]\neffect = \"external\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo paid >> paid; echo 1\", shell = true, env = [\"PATH\"] }\n";

/// A job of so many calls, one after the other.
fn job(calls: usize) -> String {
    format!(
        "job: burst\nparallel: 1\nsteps:\n  - {{ id: all, each: '${{[{}]}}', tool: pay }}\n",
        (0..calls).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    )
}

fn scene(windows: &str, calls: usize) -> World {
    let world = World::with_tools(&format!("[temporal]\n{windows}\n{PAY}"));
    world.write("job.yaml", &job(calls));
    world
}

fn paid(world: &World) -> usize {
    std::fs::read_to_string(world.path("paid")).map_or(0, |text| text.lines().count())
}

/// Runs a job, and has it tell when it was looked at in vain.
fn run(world: &World, job: &str) -> Running {
    world.start(&["-v", "run", job])
}

/// Waits until a window of a second is over: whoever is let go on before that is too fast again. A step that is held
/// is asked about again after half a second, and looked at a second after that.
fn outlast(run: &mut Running) {
    run.says(IN_VAIN);
}

/// The times between starts, as recorded, keep to the window, and the job completes.
#[test]
fn a_throttled_job_waits_and_completes() {
    let world = scene("trajectory = [{ calls = 2, per = \"1s\", then = \"throttle\" }]", 5);
    world.gesta(&["run", "job.yaml"]).ok();
    assert_eq!(paid(&world), 5);
    let id = world.job();
    let lines = world.gesta(&["log", &id, "--json"]).json_lines();
    let starts: Vec<u64> = lines
        .iter()
        .filter(|line| line["entry"]["kind"] == "started")
        .map(|line| line["entry"]["at"].as_u64().unwrap())
        .collect();
    assert!(starts.windows(3).all(|three| three[2] >= three[0] + 1000), "{starts:?}");
    let held = world.bodies(&id, "rejection");
    assert!(held.iter().all(|held| held["retry_at"].is_u64()), "{held:?}");
    let trace = held[0]["decision"]["doc"]["trace"].as_array().unwrap().clone();
    let found = &trace.last().unwrap()["found"][0];
    assert_eq!((&found["in_window"], &found["whose"]), (&json!(2), &json!("trajectory")));
    world.gesta(&["verify"]).ok();
}

#[test]
fn an_interrupted_job_waits_for_a_person() {
    let world = scene("trajectory = [{ calls = 2, per = \"1h\", then = \"interrupt\" }]", 3);
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("Ctrl-C leaves it waiting");
    run.kill();
    assert_eq!(paid(&world), 2);
    let job = world.job();
    world.gesta(&["approve", &job]).ok();
    world.gesta(&["resume", &job]).ok();
    assert_eq!(paid(&world), 3);
    world.gesta(&["verify"]).ok();
}

/// A burst of one job stops everything of its principal, durably, until a person lifts it.
#[test]
fn a_runaway_principal_is_put_into_quarantine_until_lifted() {
    let world = scene("principal = [{ calls = 3, per = \"2s\", then = \"quarantine\" }]", 4);
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let mut worker = world.start(&["worker"]);
    worker.says("is in quarantine");
    assert_eq!(paid(&world), 3);
    let rows = world.gesta(&["quarantine", "--json"]).json_lines();
    assert_eq!(rows[0]["target"], json!({ "principal": "agent:main" }));
    let guardian = world.gesta(&["keys", "show", "worker", "--json"]).json()["key"].clone();
    assert_eq!(rows[0]["key"], guardian);
    worker.signal(Signal::TERM);
    worker.ends();

    // Another job, another process: the registry says no, whatever the window says.
    world.write("one.yaml", "job: one\nsteps:\n  - { id: it, tool: pay }\n");
    let mut run = run(&world, "one.yaml");
    outlast(&mut run);
    assert_eq!(paid(&world), 3);
    let not = world.gesta(&["quarantine", "lift", "agent:other"]).expect(1);
    assert!(not.err.contains("is not in quarantine"), "{}", not.err);
    world.gesta(&["quarantine", "lift", "agent:main", "--reason", "fixed"]).ok();
    assert_eq!(run.ends().0.code(), Some(0));
    assert_eq!(world.gesta(&["quarantine", "--json"]).ok(), "");
    world.gesta(&["resume", &id]).ok();
    assert_eq!(paid(&world), 5);
    world.gesta(&["verify"]).ok();
}

/// One job that is too fast by itself is stopped alone: others of its principal go on.
#[test]
fn a_runaway_job_is_put_into_quarantine_alone() {
    let world = scene("trajectory = [{ calls = 2, per = \"1s\", then = \"quarantine\" }]", 3);
    let mut run = run(&world, "job.yaml");
    run.says("is in quarantine: too many calls");
    outlast(&mut run);
    let id = world.job();
    assert_eq!(paid(&world), 2);
    let rows = world.gesta(&["quarantine", "--json"]).json_lines();
    assert_eq!(rows[0]["target"], json!({ "trajectory": id }));
    let listed = world.gesta(&["quarantine"]).ok();
    assert!(listed.contains(&format!("job {id}")), "{listed}");
    world.write("one.yaml", "job: one\nsteps:\n  - { id: it, tool: pay }\n");
    world.gesta(&["run", "one.yaml"]).ok();
    assert_eq!(paid(&world), 3);
    let not = world.gesta(&["quarantine", "lift", "agent:main"]).expect(1);
    assert!(not.err.contains("is not in quarantine"), "{}", not.err);
    world.gesta(&["quarantine", "lift", "--job", &id[..10], "--reason", "fixed"]).ok();
    assert_eq!(run.ends().0.code(), Some(0));
    assert_eq!(paid(&world), 4);
    assert_eq!(world.gesta(&["quarantine", "--json"]).ok(), "");
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_tenant_can_be_closed() {
    let world = scene("principal = [{ calls = 1, per = \"1s\", then = \"close\" }]", 2);
    let mut run = run(&world, "job.yaml");
    run.says("tenant main is in quarantine");
    outlast(&mut run);
    let listed = world.gesta(&["quarantine"]).ok();
    assert!(listed.contains("tenant main"), "{listed}");
    world.gesta(&["quarantine", "lift", "--tenant", "main"]).ok();
    assert_eq!(run.ends().0.code(), Some(0));
    assert_eq!(paid(&world), 2);
}

#[test]
fn a_window_that_cannot_be_counted_is_refused() {
    let world = scene("trajectory = [{ calls = 5000, per = \"1h\", then = \"throttle\" }]", 1);
    let refused = world.gesta(&["run", "job.yaml"]).expect(2);
    assert!(refused.err.contains("at most 4096 calls"), "{}", refused.err);
}
