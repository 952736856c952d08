//! `gesta writ`, and jobs under writs of their own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::World;

const TOOLS: &str = "\
[tools.slow]\neffect = \"read\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo reached > reached; cat pause\", shell = true, env = [\"PATH\"] }\n\
[tools.\"pay.refund\"]\neffect = \"external\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo paid >> paid; echo 1\", shell = true, env = [\"PATH\"] }\n";
const PAY: &str = "job: pay\nsteps:\n  - { id: it, tool: pay.refund }\n";
const TWO: &str = "\
job: two
steps:
  - { id: first, tool: slow }
  - { id: second, tool: pay.refund, needs: [first] }
";

fn scene(job: &str) -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", job);
    world.fifo("reached");
    world.fifo("pause");
    world
}

fn paid(world: &World) -> usize {
    std::fs::read_to_string(world.path("paid")).map_or(0, |text| text.lines().count())
}

#[track_caller]
fn issue(world: &World, more: &[&str]) {
    let issue = ["writ", "issue", "--effect", "external", "-o", "w.json"];
    world.gesta(&[&issue[..], more].concat()).ok();
}

fn refusal(world: &World) -> Value {
    let rejections = world.bodies(&world.job(), "rejection");
    let trace = rejections[0]["decision"]["doc"]["trace"].as_array().unwrap().clone();
    trace.last().unwrap().clone()
}

#[test]
fn a_job_runs_under_a_writ_that_roots_only_it() {
    let world = scene(PAY);
    issue(&world, &["--tools", "pay.*", "--budget", "calls=3", "--depth", "2"]);
    let narrow = ["writ", "attenuate", "w.json", "--tools", "pay.refund", "--budget", "calls=1"];
    world.gesta(&[&narrow[..], &["--principal", "agent:ada", "-o", "n.json"]].concat()).ok();
    let ran = world.gesta(&["run", "job.yaml", "--writ", "n.json", "--json"]).json();
    let id = ran["trajectory"].as_str().unwrap();
    let root = &world.bodies(id, "root")[0];
    assert_eq!(root["principal"], "agent:ada");
    let writs = root["purpose"]["job"]["writs"].as_array().unwrap();
    assert_eq!(writs.len(), 3);
    assert_eq!(writs[2]["doc"]["trajectory"], id);
    assert_eq!(writs[2]["doc"]["budget"]["calls"], 1);
    world.gesta(&["verify"]).ok();

    // The depth is used up: no third writ below the second.
    let deeper = world.gesta(&["writ", "attenuate", "n.json", "-o", "d.json"]);
    deeper.expect(0);
    let refused = world.gesta(&["run", "job.yaml", "--writ", "d.json"]).expect(1);
    assert!(refused.err.contains("may not be narrowed any further"), "{}", refused.err);
}

/// What a job may is the job's to hand on: nobody begins another below its writ, whatever they hold.
#[test]
fn the_writ_of_a_job_is_not_for_others() {
    let world = scene(PAY);
    issue(&world, &["--tools", "pay.*", "--budget", "calls=3"]);
    let ran = world.gesta(&["run", "job.yaml", "--writ", "w.json", "--json"]).json();
    let id = ran["trajectory"].as_str().unwrap();
    world.write("own.json", &world.bodies(id, "root")[0]["purpose"]["job"]["writs"].to_string());
    world.gesta(&["writ", "attenuate", "own.json", "-o", "below.json"]).ok();
    let asked = [
        &["run", "job.yaml", "--writ", "own.json"][..],
        &["submit", "job.yaml", "--writ", "own.json"],
        &["submit", "job.yaml", "--writ", "below.json"],
        &["branch", id, "--at", "4", "--writ", "own.json"],
    ];
    for arguments in asked {
        let refused = world.gesta(arguments).expect(1);
        let why = format!("the writ roots {id}, which alone may hand on a part of it");
        assert!(refused.err.contains(&why), "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains("hint: use the standing writ"), "{}", refused.err);
    }
    assert_eq!(paid(&world), 1);
    assert_eq!(world.gesta(&["jobs", "--json"]).json_lines().len(), 1);
}

/// What all jobs below a standing writ use together is counted, also for one that was narrowed from it,
/// and shown; what does not fit is refused.
#[test]
fn jobs_use_up_the_writ_above_them() {
    let world = scene(PAY);
    issue(&world, &["--tools", "pay.*", "--budget", "calls=3"]);
    let narrow = ["writ", "attenuate", "w.json", "--budget", "calls=2", "-o", "n.json"];
    world.gesta(&narrow).ok();
    let run =
        |writ: &str, code: i32| world.gesta(&["run", "job.yaml", "--writ", writ]).expect(code);
    for (writ, code) in [("n.json", 0), ("n.json", 0), ("n.json", 10), ("w.json", 0)] {
        run(writ, code);
    }
    let refused = run("w.json", 10);
    let told = format!("{}{}", refused.out, refused.err);
    assert!(told.contains("has 0 of its 3 calls left, and the call needs 1"), "{told}");
    assert_eq!(paid(&world), 3);
    let shown = world.gesta(&["writ", "inspect", "n.json"]).ok();
    for line in ["calls 3 used, 0 reserved, 0 left", "calls 2 used, 0 reserved, 0 left"] {
        assert!(shown.contains(line), "{line}:\n{shown}");
    }
    let shown = world.gesta(&["writ", "inspect", "w.json", "--json"]).json();
    assert_eq!(shown["chain"][0]["account"]["used"]["calls"], 3, "{shown}");
    world.gesta(&["verify"]).ok();
    // Four fifths were reached, and the registry says so.
    let rows = world.gesta(&["log", "--json"]).json_lines();
    let registry =
        &rows.iter().find(|row| row["summary"]["kind"] == "registry").unwrap()["trajectory"];
    let log = world.gesta(&["log", registry.as_str().unwrap()]).ok();
    assert!(log.contains("has reached 80 % of what writ"), "{log}");
}

#[test]
fn what_a_writ_does_not_allow_is_not_done() {
    let world = scene(PAY);
    issue(&world, &["--tools", "mail.*"]);
    let refused = world.gesta(&["run", "job.yaml", "--writ", "w.json"]).expect(1);
    assert!(refused.err.contains("tool `pay.refund` is not in the parent writ"), "{}", refused.err);
    assert_eq!(paid(&world), 0);
}

#[test]
fn a_writ_only_narrows_and_says_what_would_widen() {
    let world = scene(PAY);
    issue(&world, &["--tools", "pay.*", "--budget", "calls=3", "--days", "2", "--depth", "3"]);
    let widens = |more: &[&str], what: &str| {
        let refused = world.gesta(&[&["writ", "attenuate", "w.json"], more].concat());
        assert_ne!(refused.code, Some(0), "{more:?}");
        assert!(refused.err.contains(what), "{more:?}: {}", refused.err);
    };
    widens(&["--tools", "mail.send"], "tool `mail.send` is not in the parent writ");
    widens(&["--effect", "irreversible"], "effect `irreversible` is above the parent's ceiling");
    widens(&["--budget", "calls=4"], "budget `calls` exceeds the parent's");
    widens(&["--days", "3"], "the window reaches outside the parent's");
    widens(&["--depth", "3"], "depth 3 is not below the parent's 3");
}

#[test]
fn a_writ_is_readable() {
    let world = scene(PAY);
    issue(&world, &["--tools", "pay.*", "--budget", "calls=3", "--principal", "agent:ada"]);
    let shown = world.gesta(&["writ", "inspect", "w.json"]).ok();
    for line in [
        "principal  agent:ada",
        "tools      pay.*",
        "effect     up to external",
        "budget     calls 3",
        "holder     owner",
        "counts     yes",
    ] {
        assert!(shown.contains(line), "{line}:\n{shown}");
    }
    world.gesta(&["writ", "revoke", "w.json", "--reason", "over"]).ok();
    let shown = world.gesta(&["writ", "inspect", "w.json", "--json"]).json();
    assert_eq!(shown["counts"], false);
    assert!(shown["chain"][0]["revoked_at"].is_u64(), "{shown}");
    let refused = world.gesta(&["run", "job.yaml", "--writ", "w.json"]).expect(1);
    assert!(refused.err.contains("was revoked"), "{}", refused.err);
    world.gesta(&["writ", "revoke", "w.json"]).expect(1);
}

/// Only whom the registry trusts with it issues writs.
#[test]
fn a_strangers_writ_does_not_count() {
    let (world, other) = (scene(PAY), scene(PAY));
    issue(&other, &["--tools", "*"]);
    std::fs::copy(other.path("w.json"), world.path("w.json")).unwrap();
    std::fs::copy(other.path("keys/owner.pem"), world.path("keys/other.pem")).unwrap();
    let refused = world.gesta(&["run", "job.yaml", "--writ", "w.json"]).expect(1);
    assert!(refused.err.contains("is not in the trust root"), "{}", refused.err);
    assert!(refused.err.contains("(invalid_authority)"), "{}", refused.err);
    let worker = ["writ", "issue", "--tools", "*", "--key", "worker"];
    assert!(world.gesta(&worker).expect(1).err.contains("may not issue writs"));
}

/// The writ above is revoked while the job is at its first step: the next call is refused, the first is
/// recorded, and whoever verifies agrees.
#[test]
fn revoking_a_writ_reaches_what_was_narrowed_from_it() {
    let world = scene(TWO);
    issue(&world, &["--tools", "*"]);
    world.gesta(&["writ", "attenuate", "w.json", "-o", "n.json"]).ok();
    world.gesta(&["submit", "job.yaml", "--writ", "n.json"]).ok();
    let mut worker = world.start(&["worker"]);
    world.hear("reached");
    world.gesta(&["writ", "revoke", "w.json"]).ok();
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says(": failed");
    worker.signal(Signal::TERM);
    worker.ends();
    assert_eq!(paid(&world), 0);
    let last = refusal(&world);
    assert_eq!(last["stage"], "authority");
    assert!(last["found"]["refused"].as_str().unwrap().contains("was revoked"), "{last}");
    let commits = world.bodies(&world.job(), "commit");
    assert_eq!(commits[0]["step"], "first");
    world.gesta(&["verify"]).ok();
}

/// A writ that ends in the middle of a job stops the next call, and not the record of the one under way.
#[test]
fn expiry_stops_the_next_call_and_not_the_record() {
    let world = scene(TWO);
    issue(&world, &["--tools", "*", "--seconds", "2"]);
    world.gesta(&["submit", "job.yaml", "--writ", "w.json"]).ok();
    let mut worker = world.start(&["worker"]);
    world.hear("reached");
    let shown = world.gesta(&["writ", "inspect", "w.json", "--json"]).json();
    let ends = shown["chain"][0]["writ"]["window"]["not_after"].as_u64().unwrap();
    // The worker's clock is the store's at its last heartbeat: wait for one after the end.
    let beat =
        || world.gesta(&["workers", "--json"]).json_lines()[0]["heartbeat_at"].as_u64().unwrap();
    let begun = std::time::Instant::now();
    while beat() <= ends {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says(": failed");
    worker.signal(Signal::TERM);
    worker.ends();
    assert_eq!(paid(&world), 0);
    assert_eq!(refusal(&world)["found"]["refused"], "the writ is not valid now");
    assert_eq!(world.bodies(&world.job(), "commit")[0]["step"], "first");
    world.gesta(&["verify"]).ok();
}

/// A call of unknown outcome stays in doubt when its writ is gone, since it may not be sent again.
#[track_caller]
fn stays_a_doubt(issued: &[&str], goes: impl FnOnce(&World)) {
    let tools = TOOLS.replace(
        "[tools.slow]\neffect = \"read\"",
        "[tools.slow]\neffect = \"external\"\nrecovery = \"keyed_concurrent\"",
    );
    let world = World::with_tools(&tools);
    world.write("job.yaml", TWO);
    world.fifo("reached");
    world.fifo("pause");
    issue(&world, &[&["--tools", "*"], issued].concat());
    world.gesta(&["submit", "job.yaml", "--writ", "w.json"]).ok();
    let first = world.start(&["worker"]);
    world.hear("reached");
    first.kill();
    goes(&world);
    let mut second = world.start(&["worker"]);
    second.says("in doubt");
    let listed = world.gesta(&["doubts"]).ok();
    assert!(listed.contains("first"), "{listed}");
    second.signal(Signal::TERM);
    second.ends();
    assert_eq!(paid(&world), 0);
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_doubt_stays_a_doubt_when_the_writ_is_revoked() {
    stays_a_doubt(&[], |world| {
        world.gesta(&["writ", "revoke", "w.json"]).ok();
    });
}

#[test]
fn a_doubt_stays_a_doubt_when_the_writ_has_expired() {
    stays_a_doubt(&["--seconds", "5"], |world| {
        let shown = world.gesta(&["writ", "inspect", "w.json", "--json"]).json();
        let ends = shown["chain"][0]["writ"]["window"]["not_after"].as_u64().unwrap();
        let ends = UNIX_EPOCH + Duration::from_millis(ends);
        while SystemTime::now() <= ends {
            std::thread::yield_now();
        }
    });
}

/// A worker stands still between the append of `started` and the gate, something is revoked, and the worker
/// goes on: it sends nothing, and its record says why. What it says next.
#[cfg(feature = "cuts")]
#[track_caller]
fn seen_at_the_gate(world: &World, revoke: &[&str], says: &str) -> Value {
    let mut worker = world.start_with(&["worker"], &[("GESTA_CUT", "after_start:stop")]);
    worker.stands_still();
    world.gesta(revoke).ok();
    worker.signal(Signal::CONT);
    worker.says(says);
    worker.signal(Signal::TERM);
    worker.ends();
    assert_eq!(paid(world), 0);
    let failed = world.bodies(&world.job(), "failure").remove(0);
    let told = (&failed["error"]["code"], &failed["dispatched"], &failed["certainty"]);
    let expected = (&json!("gate_authority"), &json!(false), &json!("did_not_happen"));
    assert_eq!(told, expected, "{failed}");
    failed
}

/// The writ above the job's own is revoked.
#[cfg(feature = "cuts")]
#[test]
fn a_revoked_writ_is_seen_at_the_gate() {
    let world = scene(PAY);
    issue(&world, &["--tools", "*"]);
    world.gesta(&["writ", "attenuate", "w.json", "-o", "n.json"]).ok();
    world.gesta(&["submit", "job.yaml", "--writ", "n.json"]).ok();
    let failed = seen_at_the_gate(&world, &["writ", "revoke", "w.json"], ": failed");
    assert!(failed["error"]["message"].as_str().unwrap().contains("was revoked"), "{failed}");
    // It was decided again, and the Guardian knows it as well.
    assert_eq!(refusal(&world)["stage"], "authority");
    world.gesta(&["verify"]).ok();
}

/// One of the worker's own keys is revoked: it sends nothing and takes no more work. Another one does.
#[cfg(feature = "cuts")]
#[test]
fn a_revoked_key_of_the_worker_is_seen_at_the_gate() {
    let world = scene(PAY);
    let config = world.read("gesta.toml");
    let keys = "[worker]\nkeys = { guardian = \"judge\" }\n";
    world.write("gesta.toml", &config.replace("[worker]\n", keys));
    world.gesta(&["keys", "add", "judge", "--roles", "guardian"]).ok();
    world.gesta(&["submit", "job.yaml"]).ok();
    let failed = seen_at_the_gate(&world, &["keys", "revoke", "judge"], "takes no work");
    assert!(failed["error"]["message"].as_str().unwrap().contains("was revoked"), "{failed}");
    world.write("gesta.toml", &config);
    let mut other = world.start(&["worker"]);
    other.says(": completed");
    assert_eq!(paid(&world), 1);
}

/// Somebody approved, and the key that did is revoked: the call is asked for again.
#[cfg(feature = "cuts")]
#[test]
fn a_revoked_approver_is_seen_at_the_gate() {
    let world = scene(PAY);
    world.write(
        "policy.cedar",
        "@id(\"ask\") permit (principal, action in Action::\"call\", resource);\n",
    );
    world.gesta(&["policy", "publish"]).ok();
    world.gesta(&["keys", "add", "alice", "--roles", "approver"]).ok();
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut first = world.start(&["worker"]);
    first.says("asks operators");
    first.signal(Signal::TERM);
    first.ends();
    world.gesta(&["approve", &world.job(), "--as", "alice"]).ok();
    let failed = seen_at_the_gate(&world, &["keys", "revoke", "alice"], "asks operators");
    assert!(failed["error"]["message"].as_str().unwrap().contains("an approval"), "{failed}");
    assert_eq!(world.bodies(&world.job(), "pending_approval").len(), 2);
}
