//! `gesta tools publish`: once a catalogue is published, no worker calls anything else.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::World;

fn tool(name: &str, script: &str) -> String {
    format!(
        "[tools.{name}]\neffect = \"external\"\ntimeout = \"50s\"\ndriver.process = {{ command = \"{script}\", shell = true, env = [\"PATH\"] }}\n"
    )
}

fn pay() -> String {
    tool("pay", "echo paid >> paid; echo 1")
}

fn slow() -> String {
    tool("slow", "echo reached > reached; cat pause")
}

fn one(tool: &str) -> String {
    format!("job: one\nsteps:\n  - {{ id: it, tool: {tool} }}\n")
}

fn paid(world: &World) -> usize {
    std::fs::read_to_string(world.path("paid")).map_or(0, |text| text.lines().count())
}

/// A workspace that has published one tool.
fn scene() -> World {
    let world = World::with_tools(&pay());
    world.write("job.yaml", &one("pay"));
    let published = world.gesta(&["tools", "publish"]).ok();
    assert!(published.contains("new      pay") && published.contains("1 tool published"));
    world
}

/// The entry of a rejection, as people name it.
fn rejection(world: &World, id: &str) -> String {
    let entries = world.gesta(&["log", id, "--json"]).json_lines();
    let entry = entries.iter().find(|line| line["entry"]["kind"] == "rejection").unwrap();
    format!("{id}:{}", entry["entry"]["seq"])
}

#[test]
fn a_tool_that_is_not_published_is_unknown_to_every_worker() {
    let world = scene();
    world.gesta(&["run", "job.yaml"]).ok();
    world.set_tools(&(pay() + &tool("refund", "echo back >> paid; echo 1")));
    world.write("other.yaml", &one("refund"));
    let listed = world.gesta(&["tools", "list"]).expect(0);
    assert!(
        listed.out.contains("PUBLISHED") && listed.err.contains("tool `refund` is not called"),
        "{}{}",
        listed.out,
        listed.err
    );
    let foreseen = world.gesta(&["run", "other.yaml", "--dry-run", "--json"]).json();
    assert_eq!(foreseen["steps"][0]["reason"], "unknown_tool", "{foreseen}");
    let refused = world.gesta(&["run", "other.yaml", "--json"]).expect(10);
    assert!(refused.out.contains("unknown_tool"), "{}", refused.out);
    assert_eq!(paid(&world), 1);
    // What is published goes on as before.
    world.gesta(&["run", "job.yaml"]).ok();
    assert_eq!(paid(&world), 2);

    let id = refused_job(&world);
    let why = world.gesta(&["policy", "explain", &rejection(&world, &id)]).ok();
    assert!(why.contains("(unknown_tool)") && why.contains("`gesta tools publish`"), "{why}");
    let replayed = world.gesta(&["replay", &id]).ok();
    assert!(replayed.contains("complete"), "{replayed}");

    let again = world.gesta(&["tools", "publish", "--json"]).json();
    assert_eq!((&again["new"], &again["changes"][0]["what"]), (&json!(true), &json!("new")));
    world.gesta(&["run", "other.yaml"]).ok();
    assert_eq!(paid(&world), 3);
    // What was decided under the older catalogue is still derived under that one.
    assert!(world.gesta(&["replay", &id]).ok().contains("complete"));
    world.gesta(&["verify"]).ok();
}

/// The job that was refused.
fn refused_job(world: &World) -> String {
    let jobs: Vec<Value> = world.gesta(&["jobs", "--status", "failed", "--json"]).json_lines();
    jobs[0]["trajectory"].as_str().unwrap().to_owned()
}

/// A worker that has a tool otherwise than it was published does not call it; one that has it so goes on.
#[test]
fn a_tool_that_is_otherwise_is_frozen_until_it_is_published_or_put_right() {
    let world = scene();
    world.set_tools(&pay().replace("echo 1", "echo 2"));
    let listed = world.gesta(&["tools", "list", "--json"]).json_lines();
    assert_eq!(listed[0]["published"]["tool"], "otherwise", "{listed:?}");
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start(&["worker"]);
    worker.says("the worker has it otherwise than it was published");
    worker.says("held");
    assert_eq!(paid(&world), 0);
    let id = world.job();
    let held = &world.bodies(&id, "rejection")[0];
    assert_eq!(held["decision"]["doc"]["reason"], "tool_frozen");
    let why = world.gesta(&["policy", "explain", &rejection(&world, &id)]).ok();
    assert!(why.contains("(tool_frozen)") && why.contains("otherwise than it was published"));

    worker.signal(Signal::TERM);
    assert_eq!(worker.ends().0.code(), Some(0));
    world.set_tools(&pay());
    let mut worker = world.start(&["worker"]);
    worker.says(": completed");
    assert_eq!(paid(&world), 1);
    let replayed = world.gesta(&["replay", &id]).ok();
    assert!(replayed.contains("complete"), "{replayed}");
    worker.kill();

    // What is exported can be derived by whoever has nothing else.
    world.gesta(&["export", &id, "-o", "it.gesta"]).ok();
    let (elsewhere, file) = (World::new(), world.path("it.gesta").display().to_string());
    let there = elsewhere.gesta(&["replay", "--all", "--bundle", &file]).ok();
    assert!(there.contains("complete"), "{there}");
}

/// It is published while the step before runs: the next step of a worker that was there before is bound by it.
#[test]
fn what_is_published_binds_a_worker_that_runs() {
    let world = World::with_tools(&(slow() + &pay()));
    world.write(
        "job.yaml",
        "job: two\nsteps:\n  - { id: first, tool: slow }\n  - { id: second, tool: pay, needs: [first] }\n",
    );
    world.fifo("reached");
    world.fifo("pause");
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start(&["worker"]);
    world.hear("reached");
    world.set_tools(&slow());
    world.gesta(&["tools", "publish"]).ok();
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says(": failed");
    worker.kill();
    let refused = &world.bodies(&world.job(), "rejection")[0];
    assert_eq!(refused["decision"]["doc"]["reason"], "unknown_tool");
    assert_eq!(paid(&world), 0);
    world.gesta(&["verify"]).ok();
}

/// It is published while a worker stands still between the append of `started` and the gate.
#[cfg(feature = "cuts")]
#[test]
fn what_is_published_is_seen_at_the_gate() {
    let world = World::with_tools(&pay());
    world.write("job.yaml", &one("pay"));
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start_with(&["worker"], &[("GESTA_CUT", "after_start:stop")]);
    worker.stands_still();
    world.set_tools(&pay().replace("echo 1", "echo 2"));
    world.gesta(&["tools", "publish"]).ok();
    worker.signal(Signal::CONT);
    worker.says("held");
    assert_eq!(paid(&world), 0);
    let id = world.job();
    let failed = &world.bodies(&id, "failure")[0];
    assert_eq!(
        (&failed["error"]["code"], &failed["dispatched"]),
        (&json!("gate_frozen"), &json!(false))
    );
    world.set_tools(&pay());
    world.gesta(&["tools", "publish"]).ok();
    worker.says(": completed");
    worker.kill();
    assert_eq!(paid(&world), 1);
    assert!(world.gesta(&["replay", &id]).ok().contains("complete"));
    world.gesta(&["verify"]).ok();
}

/// Other tools are tried on what happened as if they were published.
#[test]
fn other_tools_are_tried_as_if_they_were_published() {
    let world = scene();
    world.gesta(&["run", "job.yaml"]).ok();
    let id = world.job();
    world.write("other.toml", &pay().replace("echo 1", "echo 2"));
    let tried = world.gesta(&["replay", &id, "--tools", "other.toml", "--json"]).json();
    assert_eq!(tried["otherwise"], json!([]), "{tried}");
}

#[test]
fn what_is_published_is_the_owners_word_and_said_once() {
    let world = scene();
    let again = world.gesta(&["tools", "publish"]).ok();
    assert!(again.contains("1 tool published already"), "{again}");
    world.set_tools(&tool("refund", "echo 1"));
    let dry = world.gesta(&["tools", "publish", "--dry-run"]).ok();
    assert!(dry.contains("gone     pay") && dry.contains("nothing was written"), "{dry}");
    world.gesta(&["tools", "pin"]).ok();
    world.set_tools(&tool("refund", "echo 2"));
    let refused = world.gesta(&["tools", "publish"]).expect(2);
    assert!(refused.err.contains("changed since it was pinned"), "{}", refused.err);
    std::fs::remove_file(world.path("gesta.lock")).unwrap();
    std::fs::rename(world.path("keys/owner.pem"), world.path("elsewhere")).unwrap();
    world.gesta(&["tools", "publish"]).expect(1);
}
