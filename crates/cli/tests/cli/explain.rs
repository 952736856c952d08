//! `gesta policy explain` on every refusal that somebody can meet, and what a run says of it at its end.

use rustix::process::Signal;

use crate::world::World;

const TOOLS: &str = r#"
[tools.look]
effect = "read"
driver.process = { command = "echo '{\"cents\":\"many\"}'", shell = true, env = ["PATH"] }
[tools.pay]
effect = "external"
input = { type = "object", required = ["cents"], properties = { cents = { type = "integer" } } }
preconditions = ["args.cents < 5000"]
driver.process = { command = "echo paid >> paid; echo 1", shell = true, env = ["PATH"] }
"#;

const ALL: &str = "@id(\"all\") permit (principal, action, resource);\n";
const ASK: &str = "@id(\"ask\") @channel(\"finance\") @expires(\"1h\") @reason(\"money\")\nforbid (principal, action == Action::\"call_unattended:pay\", resource);\n";

fn pay(cents: &str) -> String {
    format!("job: one\nsteps:\n  - {{ id: it, tool: pay, args: {{ cents: {cents} }} }}\n")
}

/// With these policies beside the one that allows everything, and this job.
fn world(policies: &str, job: &str) -> World {
    let world = World::with_tools(TOOLS);
    world.write("policy.cedar", &format!("{ALL}{policies}"));
    world.gesta(&["policy", "publish"]).ok();
    world.write("job.yaml", job);
    world
}

/// The last refusal in the only job.
#[track_caller]
fn refusal(world: &World) -> String {
    let id = world.job();
    let lines = world.gesta(&["log", &id, "--json"]).json_lines();
    let last = lines.iter().rfind(|line| line["entry"]["kind"] == "rejection").unwrap();
    format!("{id}:{}", last["seq"])
}

/// The refusal is told like this: its code, and why. No JSON is left in it.
#[track_caller]
fn check(world: &World, code: &str, why: &str) {
    let told = world.gesta(&["policy", "explain", &refusal(world)]).ok();
    assert!(told.contains(&format!(" was refused ({code})\n")), "{told}");
    assert!(told.contains(why), "{told}");
    assert!(!told.contains('{') && !told.contains("\":"), "{told}");
    let json = world.gesta(&["policy", "explain", &refusal(world), "--json"]).json();
    assert_eq!(json["reason"], code);
}

/// The job is run, fails, and its end names the refusal.
#[track_caller]
fn fails(world: &World, code: &str, why: &str) {
    let ran = world.gesta(&["run", "job.yaml"]).expect(10);
    let (id, seq) = refusal(world)
        .split_once(':')
        .map(|(id, seq)| (id[..10].to_owned(), seq.to_owned()))
        .unwrap();
    let hint = format!("`gesta policy explain {id}:{seq}` tells why it was refused");
    assert!(ran.err.contains(&hint), "{}", ran.err);
    check(world, code, why);
}

#[test]
fn what_a_policy_forbids() {
    let never = "@id(\"never\") @reason(\"not here\") forbid (principal, action in Action::\"tool:pay\", resource);\n";
    fails(
        &world(never, &pay("1")),
        "policy_denied",
        "it may not be called: `never` (not here) forbids it",
    );
}

#[test]
fn evidence_that_is_missing() {
    let order = "@id(\"order\") @requires(\"order by look\")\npermit (principal, action in Action::\"tool:pay\", resource);\n";
    let world = world(order, &pay("1"));
    fails(
        &world,
        "missing_requirement",
        "it must be committed first, and is not: a `order` by `look`",
    );
    let told = world.gesta(&["policy", "explain", &refusal(&world)]).ok();
    assert!(told.contains("it may be called: "), "{told}");
}

#[test]
fn a_precondition_that_does_not_hold() {
    let why = "the world is not as the tool demands: `args.cents < 5000` does not hold";
    fails(&world("", &pay("5000")), "precondition_failed", why);
}

#[test]
fn arguments_that_do_not_fit() {
    let job = "job: one\nsteps:\n  - { id: first, tool: look }\n  - { id: it, tool: pay, args: { cents: '${steps.first.result.cents}' } }\n";
    fails(&world("", job), "type_mismatch", "the arguments do not fit the tool's schema: ");
}

#[test]
fn a_budget_that_does_not_reach() {
    let job = pay("1")
        .replace("steps:", "budget: { calls: 1 }\nsteps:\n  - { id: first, tool: look }")
        .replace("args: {", "needs: [first], args: {");
    fails(
        &world("", &job),
        "budget_exhausted",
        "it was refused: the budget `calls` does not reach",
    );
}

#[test]
fn calls_that_come_too_fast() {
    let job = pay("1")
        .replace("steps:", "steps:\n  - { id: first, tool: look }")
        .replace("args: {", "needs: [first], args: {");
    let world = world("", &job);
    let config = world.read("gesta.toml");
    let temporal = "[temporal]\ntrajectory = [{ calls = 1, per = \"10m\", then = \"quarantine\" }]\n\n[worker]";
    world.write("gesta.toml", &config.replace("[worker]", temporal));
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("`gesta quarantine lift` lets it go on");
    run.signal(Signal::INT);
    run.ends();
    let first = refusal(&world);
    let seq = world.gesta(&["log", &world.job(), "--json"]).json_lines();
    let seq = seq.iter().find(|line| line["entry"]["kind"] == "rejection").unwrap()["seq"].clone();
    let told = world.gesta(&["policy", "explain", &format!("{}:{seq}", world.job())]).ok();
    let why = "it was refused: the job may make 1 calls in 10m, and has made 1";
    assert!(told.contains("(temporal_intervention)") && told.contains(why), "{told}");
    assert!(!told.contains('{'), "{first}: {told}");
}

#[test]
fn what_is_frozen_says_what_lets_it_go_on() {
    let world = world("", &pay("1"));
    world.gesta(&["freeze", "tool", "pay"]).ok();
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("`gesta unfreeze` lets it go on");
    run.signal(Signal::INT);
    run.ends();
    check(&world, "tool_frozen", "it was refused: the tool is frozen");
}

#[test]
fn what_an_approver_denies() {
    let world = world(ASK, &pay("1"));
    world.gesta(&["keys", "add", "alice", "--roles", "approver"]).ok();
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("Ctrl-C leaves it waiting");
    world.gesta(&["deny", &world.job(), "--as", "alice", "--note", "not this one"]).ok();
    let (status, said) = run.ends();
    assert_eq!(status.code(), Some(10));
    assert!(said.contains("it: `alice` said no: not this one; `gesta policy explain"), "{said}");
    check(&world, "approval_denied", "it was refused: `alice` said no: not this one");
}

#[test]
fn what_nobody_approves_in_time() {
    let world = world(&ASK.replace("1h", "1s"), &pay("1"));
    fails(&world, "approval_expired", "it was refused: it took 1 of finance until ");
}
