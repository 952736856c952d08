//! Jobs that others drive: `submit`, `worker`, `jobs`, `signal`, `cancel`, `resume`.

use rustix::process::Signal;

use crate::world::World;

const EXAMPLE: &str = "examples/refund/job.yaml";
const APPROVED: &str = "\
job: ask
input:
  who: string
steps:
  - id: ask
    wait: { signal: \"approved-${input.who}\" }
answer: ${steps.ask.result}
";

#[test]
fn a_key_stands_for_one_job() {
    let world = World::with_examples();
    let submit =
        |order: &str, key: &str| world.gesta(&["submit", EXAMPLE, "--input", order, "--key", key]);
    let first = submit("order=1042", "k").ok();
    let again = submit("order=1042", "k").expect(0);
    assert_eq!(first, again.out);
    assert!(again.err.contains("submitted before"), "{}", again.err);
    let other = submit("order=1043", "k").expect(2);
    assert!(other.err.contains("the key `k` already stands for job t_"), "{}", other.err);
    assert_ne!(submit("order=1043", "l").ok(), first);
    assert_eq!(world.jobs().len(), 2);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.files("examples/refund/outside/ledger"), 2);
    let ran =
        world.gesta(&["run", EXAMPLE, "--input", "order=1042", "--key", "k", "--json"]).json();
    assert_eq!(ran["trajectory"], first.trim());
    assert_eq!(world.files("examples/refund/outside/ledger"), 2);
}

#[test]
fn a_worker_drives_what_there_is_and_ends() {
    let world = World::with_examples();
    for order in ["order=1042", "order=1043", "order=1042"] {
        world.gesta(&["submit", EXAMPLE, "--input", order]).ok();
    }
    let queued = world.gesta(&["jobs", "--status", "queued"]).ok();
    assert_eq!(queued.matches("0 of 6").count(), 3, "{queued}");
    let worker = world.gesta(&["worker", "--once", "--jobs", "2", "--name", "night"]).expect(0);
    assert_eq!(worker.err.matches(": completed").count(), 3, "{}", worker.err);
    assert!(world.gesta(&["log", &world.jobs()[0]]).ok().contains("night-"));
    assert_eq!(world.files("examples/refund/outside/outbox"), 3);
    let rows = world.gesta(&["jobs", "--json"]).json_lines();
    assert!(rows.iter().all(|row| row["status"] == "completed" && row["job"] == "refund"));
    world.gesta(&["verify"]).ok();
}

#[test]
fn signals_wait_for_jobs_and_jobs_for_signals() {
    let world = World::with_free_workspace();
    world.write("job.yaml", APPROVED);
    let id = world.gesta(&["submit", "job.yaml", "--input", "who=ada"]).ok().trim().to_owned();
    world.gesta(&["worker", "--once"]).ok();
    let listed = world.gesta(&["jobs"]).ok();
    assert!(
        listed.contains("parked") && listed.contains("ask for the signal `approved-ada`"),
        "{listed}"
    );

    let signal = ["signal", &id, "approved-ada", "--payload", "{\"by\":\"bo\"}", "--id", "mail-7"];
    assert!(world.gesta(&signal).ok().contains("sent `approved-ada`"));
    assert!(world.gesta(&signal).ok().contains("has the signal mail-7 already"));
    world.gesta(&["worker", "--once"]).ok();
    let told = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!(told["answer"]["by"], "bo");
    let ended = world.gesta(&["signal", &id, "more"]).expect(1);
    assert!(ended.err.contains("has ended already"), "{}", ended.err);
    let bad = world.gesta(&["signal", &id, "approved-ada", "--payload", "{"]).expect(2);
    assert!(bad.err.contains("the payload is not JSON"), "{}", bad.err);
}

#[test]
fn a_run_waits_for_its_signal_and_says_how_to_send_it() {
    let world = World::with_free_workspace();
    world.write("job.yaml", APPROVED);
    let mut run = world.start(&["run", "job.yaml", "--input", "who=ada"]);
    run.says("` sends it");
    let id = world.job();
    assert!(
        run.told.contains(&format!("`gesta signal {id} approved-ada` sends it")),
        "{}",
        run.told
    );
    world.gesta(&["signal", &id, "approved-ada", "--payload", "42"]).ok();
    let (status, told) = run.ends();
    assert_eq!(status.code(), Some(0), "{told}");
    assert!(told.contains("\n  42\n"), "{told}");

    let mut left = world.start(&["run", "job.yaml", "--input", "who=bo"]);
    left.says("` sends it");
    left.signal(Signal::INT);
    let (status, told) = left.ends();
    assert_eq!(status.code(), Some(13), "{told}");
}

#[test]
fn a_time_passes_by_itself() {
    let world = World::with_free_workspace();
    world.write("job.yaml", "job: nap\nsteps:\n  - { id: nap, wait: { for: 300ms } }\n  - { id: two, wait: { signal: never, timeout: 200ms } }\n");
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    assert_eq!(ran["status"], "completed");
    assert_eq!(world.bodies(ran["trajectory"].as_str().unwrap(), "timer").len(), 2);
}

#[test]
fn a_cancelled_job_ends_as_cancelled() {
    let world = World::with_free_workspace();
    world.write("job.yaml", APPROVED);
    let id = world.gesta(&["submit", "job.yaml", "--input", "who=ada"]).ok().trim().to_owned();
    world.gesta(&["worker", "--once"]).ok();
    assert!(world.gesta(&["cancel", &id, "--reason", "she left"]).ok().contains("is to stop"));
    assert!(world.gesta(&["cancel", &id]).ok().contains("was to stop already"));
    let ran = world.gesta(&["resume", &id]).expect(11);
    assert!(ran.out.contains("cancelled  ask") && ran.out.contains("she left"), "{}", ran.out);
    world.gesta(&["verify", &id]).ok();

    let mut run = world.start(&["run", "job.yaml", "--input", "who=bo"]);
    run.says("` sends it");
    world.gesta(&["cancel", &world.jobs()[1]]).ok();
    assert_eq!(run.ends().0.code(), Some(11));
}

/// One worker is killed, another one is there: it takes over without waiting for the lease.
#[test]
fn the_next_worker_takes_over_from_a_dead_one() {
    let world = World::with_tools(
        "[tools.slow]\neffect = \"read\"\ntimeout = \"50s\"\ndriver.process = { command = \"echo reached > reached; cat pause\", shell = true, env = [\"PATH\"] }\n",
    );
    world.write("job.yaml", "job: slow\nsteps:\n  - { id: a, tool: slow }\n");
    world.fifo("reached");
    world.fifo("pause");
    world.gesta(&["submit", "job.yaml"]).ok();
    let first = world.start(&["worker"]);
    world.hear("reached");
    let mut second = world.start(&["worker"]);
    second.says("serves");
    first.kill();
    world.hear("reached");
    std::fs::write(world.path("pause"), "7\n").unwrap();
    second.says(": completed");
    second.signal(Signal::TERM);
    assert_eq!(second.ends().0.code(), Some(0));
    let id = world.job();
    assert_eq!(world.bodies(&id, "attempt").len(), 2);
    assert_eq!(world.gesta(&["resume", &id, "--json"]).json()["answer"]["a"], 7);
}

#[test]
fn what_is_no_job_is_not_driven() {
    let world = World::with_free_workspace();
    let registry =
        world.gesta(&["log", "--json"]).json_lines()[0]["trajectory"].as_str().unwrap().to_owned();
    for arguments in
        [&["resume", &registry][..], &["cancel", &registry], &["signal", &registry, "x"]]
    {
        let refused = world.gesta(arguments).expect(1);
        assert!(refused.err.contains("is a registry, not a job"), "{}", refused.err);
    }
}

/// Whoever did not hear the answer asks again, and the job may have ended meanwhile.
#[test]
fn asking_again_is_answered_again_once_the_job_has_ended() {
    let world = World::with_free_workspace();
    world.write("job.yaml", "job: ask\nsteps:\n  - { id: it, wait: { signal: go } }\n");
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let signal = |key: &str, payload: &str, name: &str| {
        world.gesta(&["signal", &id, key, "--payload", payload, "--id", name])
    };
    let by = "{\"by\":\"bo\"}";
    signal("go", by, "mail-7").ok();
    for ended in [false, true] {
        let before = world.kinds(&id).len();
        let known = signal("go", by, "mail-7").ok();
        assert!(known.contains("has the signal mail-7 already"), "{known}");
        for (key, payload) in [("go", "1"), ("stop", by)] {
            let other = signal(key, payload, "mail-7").expect(2);
            assert!(other.err.contains("with another key or payload"), "{}", other.err);
        }
        assert_eq!(world.kinds(&id).len(), before, "nothing is added");
        world.gesta(&["worker", "--once"]).ok();
        assert_eq!(world.kinds(&id).len() > before, !ended);
    }
    assert!(signal("go", "1", "mail-8").expect(1).err.contains("has ended already"));
    assert!(world.gesta(&["cancel", &id]).expect(1).err.contains("has ended already"));

    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    world.gesta(&["cancel", &id]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let kinds = world.kinds(&id);
    assert_eq!(kinds.last().unwrap(), "cancelled");
    assert!(world.gesta(&["cancel", &id]).ok().contains("was to stop already"));
    assert_eq!(world.gesta(&["cancel", &id, "--json"]).json()["new"], false);
    let undo = world.gesta(&["cancel", &id, "--compensate"]).expect(1);
    assert!(undo.err.contains("what it did is not undone"), "{}", undo.err);
    assert_eq!(world.kinds(&id), kinds, "nothing is added");
}

/// No two commitments to one value are alike, and still it is the same signal.
#[test]
fn a_sensitive_signal_is_known_again() {
    let world = World::with_free_workspace();
    world.write("job.yaml", "job: ask\nsteps:\n  - { id: it, wait: { signal: go } }\n");
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let send = |payload: &str| {
        let signal = ["signal", &id, "go", "--sensitive", "--id", "s-1", "--payload", payload];
        world.gesta(&signal)
    };
    assert!(send("\"a pin\"").ok().contains("sent `go`"));
    for _ in 0..2 {
        assert!(send("\"a pin\"").ok().contains("has the signal s-1 already"));
        send("\"another\"").expect(2);
        world.gesta(&["signal", &id, "go", "--id", "s-1", "--payload", "\"a pin\""]).expect(2);
        world.gesta(&["worker", "--once"]).ok();
    }
    assert_eq!(world.bodies(&id, "signal").len(), 1);
    assert_eq!(world.kinds(&id).last().unwrap(), "completed");
}

#[test]
fn whoever_resumes_what_another_has_is_told_who() {
    let world = World::with_tools(
        "[tools.slow]\neffect = \"external\"\ntimeout = \"50s\"\ndriver.process = { command = \"echo reached > reached; cat pause\", shell = true, env = [\"PATH\"] }\n",
    );
    world.write("job.yaml", "job: slow\nsteps:\n  - { id: a, tool: slow, args: {} }\n");
    world.fifo("reached");
    world.fifo("pause");
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let mut worker = world.start(&["worker", "--name", "night"]);
    world.hear("reached");
    let mut resumed = world.start(&["resume", &id]);
    resumed.says("has it, waiting");
    assert!(resumed.told.contains("worker night-"), "{}", resumed.told);
    std::fs::write(world.path("pause"), "7\n").unwrap();
    let (status, told) = resumed.ends();
    assert!(status.success() && told.contains("completed"), "{told}");
    assert_eq!(told.matches("has it, waiting").count(), 1, "{told}");
    worker.says(": completed");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ends().0.code(), Some(0));
    assert_eq!(world.bodies(&id, "attempt").len(), 1);
}

/// Who drives a job, for whom, how urgent it is, and why nobody takes another.
#[test]
fn jobs_say_who_drives_them_and_why_nobody_does() {
    let slow = "[tools.slow]\neffect = \"external\"\ntimeout = \"50s\"\ndriver.process = { command = \"echo reached > reached; cat pause; echo {}\", shell = true, env = [\"PATH\"] }\n";
    let other = "[tools.other]\neffect = \"read\"\ndriver.process = { command = [\"true\"], env = [\"PATH\"] }\n";
    let world = World::with_tools(&format!("{slow}{other}"));
    world.write("slow.yaml", "job: slow\nsteps:\n  - { id: a, tool: slow }\n");
    world.write("other.yaml", "job: other\nsteps:\n  - { id: a, tool: other }\n");
    world.fifo("reached");
    world.fifo("pause");
    world.gesta(&["submit", "other.yaml", "--priority", "9"]).ok();
    let id = world.gesta(&["submit", "slow.yaml"]).ok().trim().to_owned();
    let config = world.read("gesta.toml");
    world.write("gesta.toml", &config.replace(other, ""));
    let worker = world.start(&["worker", "--name", "night"]);
    world.hear("reached");
    let row = |job: &str| {
        let rows = world.gesta(&["jobs", "--json"]).json_lines();
        rows.into_iter().find(|row| row["job"] == job).unwrap()
    };
    let (slow, other) = (row("slow"), row("other"));
    assert!(slow["worker"].as_str().unwrap().starts_with("night-"), "{slow}");
    assert_eq!((&slow["tenant"], &slow["priority"]), (&"main".into(), &0.into()));
    assert_eq!((&other["worker"], &other["priority"]), (&serde_json::Value::Null, &9.into()));
    assert_eq!(other["lacking"], serde_json::json!(["other"]));
    let told = world.gesta(&["jobs"]).ok();
    for what in ["PRIORITY  WORKER", "no worker has `other`", "night-"] {
        assert!(told.contains(what), "{what}:\n{told}");
    }
    world.gesta(&["cancel", &id]).ok();
    assert_eq!(row("slow")["cancelling"], true);
    assert!(world.gesta(&["jobs"]).ok().contains("slow   cancelling"));
    worker.kill();
}

/// A worker that ends by itself takes jobs as any other does: the most urgent first.
#[test]
fn a_worker_that_runs_once_begins_with_the_most_urgent() {
    let world = World::with_free_workspace();
    world.write("job.yaml", "job: plain\nsteps:\n  - { id: a, set: 1 }\n");
    let submit = |more: &[&str]| {
        world.gesta(&[&["submit", "job.yaml"], more].concat()).ok().trim().to_owned()
    };
    let plain: Vec<String> = (0..3).map(|_| submit(&[])).collect();
    let urgent = submit(&["--priority", "50"]);
    let worker = world.gesta(&["worker", "--once", "--jobs", "1"]).expect(0);
    let ends = worker.err.lines().filter_map(|line| line.strip_suffix(": completed"));
    let ends: Vec<&str> = ends.collect();
    assert_eq!(ends.len(), 4, "{}", worker.err);
    assert!(urgent.starts_with(ends[0]), "{urgent} of {plain:?}: {ends:?}");
}
