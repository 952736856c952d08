//! `examples/payments`, command by command, as its README tells.

use crate::shop::Running;
use crate::world::World;

fn world() -> World {
    let world = World::with_example("payments");
    world.gesta(&["init"]).ok();
    let settings = world.read("gesta.toml") + &world.read("settings.toml");
    world.write("gesta.toml", &settings);
    for name in ["alice", "bob", "intern"] {
        world.gesta(&["keys", "add", name, "--roles", "approver"]).ok();
    }
    world
}

/// Right after the setup, before any job has taken up the tools that lie there.
#[test]
fn the_policy_can_be_checked_before_anything_has_run() {
    let world = world();
    let checked = world.gesta(&["policy", "check"]).ok();
    assert!(checked.starts_with("sound: 5 policies for 1 tool, "), "{checked}");
    let schema = world.gesta(&["policy", "schema"]).ok();
    assert!(schema.contains("payments.pay"), "{schema}");
    world.gesta(&["policy", "publish"]).ok();
    world.gesta(&["run", "pay.yaml", "--input", "to=ada", "--input", "cents=4000"]).ok();
    assert_eq!(world.files("outside"), 1);
}

/// Runs a payment until it waits for somebody, and leaves it waiting.
fn waiting(world: &World, cents: &str) -> String {
    let cents = format!("cents={cents}");
    let mut run = world.start(&["run", "pay.yaml", "--input", "to=ada", "--input", &cents]);
    run.says("Ctrl-C leaves it waiting");
    stop(run);
    let jobs = world.gesta(&["approvals", "--json"]).json_lines();
    jobs[0]["trajectory"].as_str().unwrap().to_owned()
}

fn stop(run: Running) {
    run.signal(rustix::process::Signal::INT);
    run.ends();
}

#[test]
fn a_small_payment_runs_by_itself_and_too_large_a_one_is_refused() {
    let world = world();
    world.gesta(&["run", "pay.yaml", "--input", "to=ada", "--input", "cents=4000"]).ok();
    assert_eq!(world.files("outside"), 1);
    let refused =
        world.gesta(&["run", "pay.yaml", "--input", "to=ada", "--input", "cents=2000000"]);
    assert_eq!(refused.code, Some(10), "{}", refused.err);
    assert!(refused.out.contains("no payment is that large"), "{}", refused.out);
    assert_eq!(world.files("outside"), 1);
    world.gesta(&["verify"]).ok();
}

#[test]
fn larger_ones_wait_for_one_or_two_of_finance() {
    let world = world();
    let job = waiting(&world, "30000");
    let intern = world.gesta(&["approve", &job, "--as", "intern"]).expect(1);
    assert!(intern.err.contains("`intern` is not asked"), "{}", intern.err);
    world.gesta(&["approve", &job, "--as", "alice"]).ok();
    world.gesta(&["resume", &job]).ok();
    assert_eq!(world.files("outside"), 1);

    let job = waiting(&world, "90000");
    world.gesta(&["approve", &job, "--as", "alice"]).ok();
    let mut run = world.start(&["resume", &job]);
    run.says("Ctrl-C leaves it waiting");
    assert_eq!(world.files("outside"), 1);
    world.gesta(&["approve", &job, "--as", "bob"]).ok();
    assert!(run.ends().0.success());
    assert_eq!(world.files("outside"), 2);
}

#[test]
fn a_child_cannot_exceed_what_was_carved_out_for_it() {
    let world = world();
    let ran = world.gesta(&["run", "payday.yaml"]).ok();
    assert!(ran.contains("did nothing to the outside by itself\n"), "{ran}");
    assert!(ran.contains("its children made 2 calls to the outside"), "{ran}");
    assert_eq!(world.files("outside"), 2);
    let parent =
        world.jobs().into_iter().find(|id| world.kinds(id).contains(&"delegation".to_owned()));
    let tree = world.gesta(&["tree", &parent.unwrap()]).ok();
    assert!(tree.contains("staff") && tree.contains("agent:payroll"), "{tree}");
    let rejected: Vec<_> =
        world.jobs().iter().flat_map(|id| world.bodies(id, "rejection")).collect();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0]["decision"]["doc"]["reason"], "budget_exhausted");
}

#[test]
fn a_frozen_tool_stops_at_once_and_goes_on_when_it_is_unfrozen() {
    let world = world();
    world.gesta(&["run", "pay.yaml", "--input", "to=ada", "--input", "cents=100"]).ok();
    world.gesta(&["freeze", "tool", "payments.pay", "--reason", "something is wrong"]).ok();
    let mut run = world.start(&["run", "pay.yaml", "--input", "to=ada", "--input", "cents=100"]);
    run.says("held");
    assert_eq!(world.files("outside"), 1);
    world.gesta(&["unfreeze", "tool", "payments.pay"]).ok();
    assert!(run.ends().0.success());
    assert_eq!(world.files("outside"), 2);
}

#[test]
fn a_runaway_is_put_into_quarantine() {
    let world = world();
    let mut run = world.start(&["run", "runaway.yaml"]);
    run.says("held");
    let listed = world.gesta(&["quarantine"]).ok();
    assert!(listed.contains("agent:main"), "{listed}");
    stop(run);
    assert_eq!(world.files("outside"), 10);
    world.gesta(&["quarantine", "lift", "agent:main"]).ok();
    assert!(!world.gesta(&["quarantine"]).ok().contains("agent:main"));
}
