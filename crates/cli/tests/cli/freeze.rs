//! `gesta freeze` and `gesta unfreeze`, with workers that are at it.

use rustix::process::Signal;
use serde_json::json;

use crate::world::World;

/// Two steps: one that waits at a named pipe, and one that leaves a line in a file.
const TOOLS: &str = "\
[tools.slow]\neffect = \"read\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo reached > reached; cat pause\", shell = true, env = [\"PATH\"] }\n\
[tools.pay]\neffect = \"external\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo paid >> paid; echo 1\", shell = true, env = [\"PATH\"] }\n";
const JOB: &str = "\
job: two
steps:
  - { id: first, tool: slow }
  - { id: second, tool: pay, needs: [first] }
";

/// What a process says with `-v` when it has looked at a job that is held, in vain.
pub(crate) const IN_VAIN: &str = "nothing else is to be done";

fn scene() -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", JOB);
    world.fifo("reached");
    world.fifo("pause");
    world
}

fn paid(world: &World) -> usize {
    std::fs::read_to_string(world.path("paid")).map_or(0, |text| text.lines().count())
}

/// A tool is frozen while the step before it runs: the next step waits, and goes on once it is thawed.
pub(crate) fn stops_between_two_steps(world: &World, variables: &[(&str, &str)]) {
    let gesta = |arguments: &[&str]| world.gesta_with(arguments, variables);
    gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start_with(&["worker"], variables);
    world.hear("reached");
    let frozen = gesta(&["freeze", "tool", "pay", "--reason", "paid twice"]).ok();
    assert!(frozen.contains("tool pay is frozen"), "{frozen}");
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says("held");
    assert_eq!(paid(world), 0);
    let listed = gesta(&["freeze"]).ok();
    assert!(listed.contains("tool pay") && listed.contains("paid twice"), "{listed}");
    let rows = gesta(&["freeze", "--json"]).json_lines();
    assert_eq!(rows[0]["target"], json!({ "tool": "pay" }));

    gesta(&["unfreeze", "tool", "pay"]).ok();
    worker.says(": completed");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ends().0.code(), Some(0));
    assert_eq!(paid(world), 1);
    assert_eq!(gesta(&["freeze", "--json"]).ok(), "");
    gesta(&["verify"]).ok();
}

/// One job is frozen while it runs: it waits, another of the same principal does not.
#[test]
fn a_frozen_job_waits_alone() {
    let world = scene();
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let mut worker = world.start(&["worker"]);
    world.hear("reached");
    let frozen = world.gesta(&["freeze", "job", &id[..10]]).ok();
    assert!(frozen.contains(&format!("job {id} is frozen")), "{frozen}");
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says("held");
    world.write("other.yaml", "job: other\nsteps:\n  - { id: it, tool: pay }\n");
    world.gesta(&["run", "other.yaml"]).ok();
    assert_eq!(paid(&world), 1);
    world.gesta(&["unfreeze", "job", &id]).ok();
    worker.says(&format!("{}: completed", &id[..10]));
    worker.kill();
    assert_eq!(paid(&world), 2);
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_frozen_tool_stops_between_two_steps_and_goes_on_when_thawed() {
    let world = scene();
    stops_between_two_steps(&world, &[]);
    let id = world.job();
    let held = &world.bodies(&id, "rejection")[0];
    assert_eq!(held["decision"]["doc"]["reason"], "tool_frozen");
    assert!(held["retry_at"].is_u64(), "{held}");
    let last = world.bodies(&id, "started");
    assert_eq!(last.len(), 2);
}

/// A job that is held is looked at from time to time, by `run` and by workers, and its chain does not grow meanwhile. It
/// goes on as soon as it is let, and is cancelled as soon as that is asked for.
#[test]
fn what_is_held_adds_nothing_to_its_chain() {
    let one = "job: one\nsteps:\n  - { id: it, tool: pay }\n";
    let fan = "job: fan\nparallel: 1\nsteps:\n  - { id: all, each: '${[1, 2]}', tool: pay }\n";
    for (job, calls, command) in
        [(one, 1, "run"), (fan, 2, "run"), (one, 1, "worker"), (fan, 2, "worker")]
    {
        let world = World::with_tools(TOOLS);
        world.write("job.yaml", job);
        world.gesta(&["freeze", "tool", "pay"]).ok();
        let mut holding = match command {
            "run" => world.start(&["-v", "run", "job.yaml"]),
            _ => {
                world.gesta(&["submit", "job.yaml"]).ok();
                world.start(&["-v", "worker"])
            }
        };
        holding.says(IN_VAIN);
        let id = world.job();
        let before = world.kinds(&id);
        holding.says_times(IN_VAIN, 3);
        assert_eq!(world.kinds(&id), before, "{command}");
        assert_eq!(world.bodies(&id, "rejection").len(), calls, "{before:?}");
        assert_eq!(world.bodies(&id, "attempt").len(), 1, "{before:?}");
        world.gesta(&["unfreeze", "tool", "pay"]).ok();
        let done = |world: &World| world.kinds(&id).last().is_some_and(|kind| kind == "completed");
        holding.says(if command == "run" { "completed" } else { ": completed" });
        assert!(done(&world) && paid(&world) == calls, "{:?}", world.kinds(&id));
        assert_eq!(world.bodies(&id, "attempt").len(), 2, "{:?}", world.kinds(&id));
        world.gesta(&["verify"]).ok();
        world.gesta(&["replay", &id]).ok();
    }
}

#[test]
fn what_is_held_can_be_cancelled() {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: pay }\n");
    world.gesta(&["freeze", "tool", "pay"]).ok();
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let mut worker = world.start(&["-v", "worker"]);
    worker.says_times(IN_VAIN, 4);
    let asked = std::time::Instant::now();
    world.gesta(&["cancel", &id]).ok();
    worker.says(": cancelled");
    // The next look would have been eight seconds after the last.
    assert!(asked.elapsed() < std::time::Duration::from_secs(6), "{:?}", asked.elapsed());
}

#[cfg(feature = "postgres")]
#[test]
fn a_frozen_tool_stops_on_postgres_too() {
    let database = crate::postgres::Database::new("freeze");
    let url = database.url();
    let world = World::new();
    world.free();
    world.gesta(&["init", "--store", &url]).ok();
    world.set_tools(TOOLS);
    world.write("job.yaml", JOB);
    world.fifo("reached");
    world.fifo("pause");
    stops_between_two_steps(&world, &[("GESTA_STORE", &url)]);
}

/// Everything is frozen while a worker stands still between the append of `started` and the gate: it
/// looks at the registry once more and sends nothing.
#[cfg(feature = "cuts")]
#[test]
fn a_freeze_is_seen_at_the_gate() {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: pay }\n");
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start_with(&["worker"], &[("GESTA_CUT", "after_start:stop")]);
    worker.stands_still();
    world.gesta(&["freeze", "all"]).ok();
    worker.signal(Signal::CONT);
    worker.says("held");
    assert_eq!(paid(&world), 0);
    let failed = &world.bodies(&world.job(), "failure")[0];
    assert_eq!(
        (&failed["error"]["code"], &failed["dispatched"]),
        (&json!("gate_frozen"), &json!(false))
    );
    world.gesta(&["unfreeze", "all"]).ok();
    worker.says(": completed");
    assert_eq!(paid(&world), 1);
    world.gesta(&["verify"]).ok();
}

#[test]
fn only_those_who_may_freeze() {
    let world = World::with_workspace();
    world.gesta(&["keys", "add", "oncall", "--roles", "operator"]).ok();
    world.gesta(&["freeze", "principal", "agent:main", "--key", "oncall"]).ok();
    let refused = world.gesta(&["freeze", "all", "--key", "worker"]).expect(1);
    assert!(refused.err.contains("the key `worker` may not sign this"), "{}", refused.err);
    let again = world.gesta(&["freeze", "principal", "agent:main"]).ok();
    assert!(again.contains("was frozen already"), "{again}");
    let not = world.gesta(&["unfreeze", "tenant", "main"]).expect(1);
    assert!(not.err.contains("tenant main is not frozen"), "{}", not.err);
    world.gesta(&["freeze", "tool"]).expect(2);
    world.gesta(&["freeze", "all", "pay"]).expect(2);
    world.gesta(&["unfreeze", "principal", "agent:main", "--key", "oncall"]).ok();
    world.gesta(&["verify"]).ok();
}

/// What is held can still be cancelled.
#[test]
fn a_held_job_can_be_cancelled() {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: pay }\n");
    world.gesta(&["freeze", "tenant", "main"]).ok();
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("held");
    world.gesta(&["cancel", &world.job()]).ok();
    assert_eq!(run.ends().0.code(), Some(11));
    assert_eq!(paid(&world), 0);
}
