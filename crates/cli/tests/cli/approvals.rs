//! Calls that wait for people, through the command line: asked, shown, approved by a quorum from
//! elsewhere, denied; and what becomes of approvals that are forged, moved or too late.

use serde_json::Value;

use crate::world::World;

const TOOLS: &str = r#"
[tools.pay]
effect = "external"
recovery = "never"
cost = { calls = 1, money_micros = 250000 }
changes = [{ type = "account", id = "args.to", value = "{'paid': args.cents}" }]
input = { type = "object", required = ["to", "cents"], properties = { to = { type = "string" }, cents = { type = "integer" } } }
driver.process = { command = "echo paid >> paid; echo '{}'", shell = true, env = ["PATH"] }
"#;

const POLICY: &str = r#"
@id("small") permit (principal, action in Action::"tool:pay", resource) when { context.args.cents <= 1000 };
@id("large") @channel("finance") @quorum("2") @expires("1h") @reason("a lot of money")
permit (principal, action == Action::"call:pay", resource) when { context.args.cents > 1000 };
"#;

const JOB: &str = "job: pay\ninput: { cents: integer }\nsteps:\n  - { id: pay, tool: pay, args: { to: ada, cents: '${input.cents}' } }\n";

fn world() -> World {
    let world = World::with_tools(TOOLS);
    world.write("policy.cedar", POLICY);
    world.gesta(&["policy", "publish"]).ok();
    world.write("job.yaml", JOB);
    for name in ["alice", "bob"] {
        world.gesta(&["keys", "add", name, "--roles", "approver"]).ok();
    }
    world
}

/// Submits a payment and lets a worker drive it until it waits.
fn asked(world: &World, cents: &str) -> String {
    let job = world.gesta(&["submit", "job.yaml", "--input", &format!("cents={cents}")]).ok();
    let mut worker = world.start(&["worker"]);
    worker.says("asks finance");
    worker.signal(rustix::process::Signal::TERM);
    worker.ends();
    job.trim().to_owned()
}

fn paid(world: &World) -> usize {
    std::fs::read_to_string(world.path("paid")).map_or(0, |text| text.lines().count())
}

#[test]
fn what_a_policy_lets_happen_unattended_happens_at_once() {
    let world = world();
    world.gesta(&["run", "job.yaml", "--input", "cents=900"]).ok();
    assert_eq!(paid(&world), 1);
}

#[test]
fn two_people_approve_and_it_happens_once() {
    let world = world();
    let job = asked(&world, "5000");
    assert_eq!(paid(&world), 0);
    let shown = world.gesta(&["approvals"]).ok();
    for part in [
        "pay (external)",
        "\"cents\": 5000",
        "account",
        "0.25",
        "a lot of money",
        "`large`",
        "2 of finance",
    ] {
        assert!(shown.contains(part), "no `{part}` in:\n{shown}");
    }
    let asked: Vec<Value> = world.gesta(&["approvals", &job, "--json"]).json_lines();
    assert_eq!(
        (asked[0]["args"]["cents"].as_u64(), asked[0]["quorum"].as_u64()),
        (Some(5000), Some(2))
    );

    let first = world.gesta(&["approve", &job, "--as", "alice"]);
    assert!(first.err.contains("1 more of finance"), "{}", first.err);
    let again = world.gesta(&["approve", &job, "--as", "alice"]).expect(1);
    assert!(again.err.contains("has spoken already"), "{}", again.err);
    // From elsewhere: a key and a store, and no workspace.
    let (key, store) = (world.path("keys/bob.pem"), world.path("gesta.db"));
    let elsewhere = World::new();
    elsewhere
        .gesta(&[
            "approve",
            &job,
            "--key",
            key.to_str().unwrap(),
            "--store",
            store.to_str().unwrap(),
        ])
        .ok();
    world.gesta(&["resume", &job]).ok();
    assert_eq!(paid(&world), 1);
    world.gesta(&["verify", &job]).ok();
    let spent = world.gesta(&["approve", &job, "--as", "bob"]).expect(1);
    assert!(spent.err.contains("waits for approval"), "{}", spent.err);
}

/// What is in the world already, what would stand there instead, and what would be taken away.
#[test]
fn what_a_call_would_change_is_shown_beside_what_there_is() {
    let close = r#"
[tools.close]
effect = "external"
changes = [{ type = "account", id = "args.to", retract = true }]
input = { type = "object", required = ["to"], properties = { to = { type = "string" } } }
driver.process = { command = "echo '{}'", shell = true }
"#;
    let world = World::with_tools(&format!("{TOOLS}{close}"));
    let ask = r#"@id("close") @channel("finance") permit (principal, action == Action::"call:close", resource);"#;
    world.write("policy.cedar", &format!("{POLICY}{ask}"));
    world.gesta(&["policy", "publish"]).ok();
    let job = r"
job: accounts
steps:
  - { id: first, tool: pay, args: { to: ada, cents: 900 } }
  - { id: more, tool: pay, args: { to: ada, cents: 5000 }, needs: [first] }
  - { id: other, tool: pay, args: { to: bob, cents: 6000 }, needs: [first] }
  - { id: close, tool: close, args: { to: ada }, needs: [first] }
";
    world.write("job.yaml", job);
    world.gesta(&["submit", "job.yaml"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let shown = world.gesta(&["approvals"]).ok();
    for line in [
        r#"ada: {"paid":900} → {"paid":5000}"#,
        r#"bob: nothing → {"paid":6000}"#,
        r#"ada: {"paid":900} → nothing"#,
    ] {
        assert!(shown.contains(line), "no `{line}` in:\n{shown}");
    }
}

#[test]
fn one_no_is_enough() {
    let world = world();
    let job = asked(&world, "5000");
    world.gesta(&["approve", &job, "--as", "alice"]).ok();
    world.gesta(&["deny", &job, "--as", "bob", "--note", "not this one"]).ok();
    let failed = world.gesta(&["resume", &job]);
    assert_eq!(failed.code, Some(10), "{}", failed.err);
    assert!(failed.out.contains("an approver said no"), "{}", failed.out);
    assert_eq!(paid(&world), 0);
    assert_eq!(world.bodies(&job, "approval")[1]["statement"]["doc"]["note"], "not this one");
}

#[test]
fn whoever_may_not_approve_is_turned_away() {
    let world = world();
    let job = asked(&world, "5000");
    world.gesta(&["keys", "add", "mallory", "--roles", "operator"]).ok();
    let refused = world.gesta(&["approve", &job, "--as", "mallory"]).expect(1);
    assert!(refused.err.contains("may not approve"), "{}", refused.err);
    assert_eq!(world.kinds(&job).iter().filter(|kind| *kind == "approval").count(), 0);
}

/// An approval was given, and then something changed: everything is decided once more.
#[test]
fn an_approval_is_no_way_around_what_was_decided_since() {
    let world = world();
    let job = asked(&world, "5000");
    for name in ["alice", "bob"] {
        world.gesta(&["approve", &job, "--as", name]).ok();
    }
    world.write(
        "policy.cedar",
        "@id(\"no-more\") @reason(\"the year is over\") forbid (principal, action, resource);\n",
    );
    world.gesta(&["policy", "publish"]).ok();
    let failed = world.gesta(&["resume", &job]);
    assert_eq!(failed.code, Some(10), "{}", failed.err);
    assert!(failed.out.contains("the year is over"), "{}", failed.out);
    assert_eq!(paid(&world), 0);
}

/// Names are bound to the channel: whoever else may approve is told that they are not asked, and what they
/// put into the chain by other means does not count. They may still say no.
#[test]
fn whoever_is_not_asked_does_not_count() {
    let world = world();
    world.gesta(&["keys", "add", "intern", "--roles", "approver"]).ok();
    let config = world.read("gesta.toml");
    let bound = "files = [\"policy.cedar\"]\n[policy.channels]\nfinance = [\"alice\", \"bob\"]\n";
    world.write("gesta.toml", &config.replace("files = [\"policy.cedar\"]\n", bound));
    world.gesta(&["policy", "publish"]).ok();
    let shown = world.gesta(&["policy", "show"]).ok();
    assert!(shown.contains("  channel finance: alice, bob\n"), "{shown}");

    let id = asked(&world, "5000");
    let refused = world.gesta(&["approve", &id, "--as", "intern"]).expect(1);
    assert!(refused.err.contains("`intern` is not asked"), "{}", refused.err);
    world.gesta(&["approve", &id, "--as", "alice"]).ok();
    world.gesta(&["approve", &id, "--as", "bob"]).ok();
    world.gesta(&["resume", &id]).ok();
    assert_eq!(paid(&world), 1);
    world.gesta(&["verify"]).ok();
    world.gesta(&["replay", &id]).ok();

    let other = asked(&world, "6000");
    world.gesta(&["deny", &other, "--as", "intern"]).ok();
    world.gesta(&["resume", &other]).expect(10);
    assert_eq!(paid(&world), 1);
}

/// An approval from before the names were bound does not count any more: it is asked again.
#[test]
fn names_that_are_bound_later_count_at_the_decision() {
    let world = world();
    world.gesta(&["keys", "add", "intern", "--roles", "approver"]).ok();
    let id = asked(&world, "5000");
    world.gesta(&["approve", &id, "--as", "intern"]).ok();
    let config = world.read("gesta.toml");
    let bound = "files = [\"policy.cedar\"]\n[policy.channels]\nfinance = [\"alice\", \"bob\"]\n";
    world.write("gesta.toml", &config.replace("files = [\"policy.cedar\"]\n", bound));
    world.gesta(&["policy", "publish"]).ok();
    let approved = world.gesta(&["approvals", "--json"]).json_lines()[0]["approved"].clone();
    assert_eq!(approved, serde_json::json!([]));
    world.gesta(&["approve", &id, "--as", "alice"]).ok();
    let mut worker = world.start(&["worker"]);
    worker.says("asks finance");
    worker.signal(rustix::process::Signal::TERM);
    worker.ends();
    assert_eq!(paid(&world), 0);
    assert_eq!(world.bodies(&id, "pending_approval").len(), 2);
    // What asks again names its policy all the same, beside the one who has agreed.
    let again = world.gesta(&["approvals", "--json"]).json_lines().remove(0);
    assert_eq!(again["policies"][0]["id"], "large");
    world.gesta(&["replay", &id]).ok();
}

/// Two must agree, and one is bound: nobody could ever.
#[test]
fn a_channel_with_too_few_names_is_a_mistake() {
    let world = world();
    let config = world.read("gesta.toml");
    let bound = "files = [\"policy.cedar\"]\n[policy.channels]\nfinance = [\"alice\"]\nfinanze = [\"bob\"]\n";
    world.write("gesta.toml", &config.replace("files = [\"policy.cedar\"]\n", bound));
    let wrong = world.gesta(&["policy", "check"]).expect(2);
    assert!(wrong.out.contains("2 must agree, and 1 are bound"), "{}", wrong.out);
    let bound = bound.replace("[\"alice\"]", "[\"alice\", \"bob\"]");
    world.write("gesta.toml", &config.replace("files = [\"policy.cedar\"]\n", &bound));
    let sound = world.gesta(&["policy", "check"]).expect(0);
    assert!(sound.err.contains("no policy asks on the channel `finanze`"), "{}", sound.err);
}
