//! `gesta policy`, and when a policy is put in force by itself.

use crate::world::World;

const TOOLS: &str = r#"
[tools."payments.refund"]
effect = "external"
risk = 70
input = { type = "object", required = ["cents"], properties = { cents = { type = "integer" }, note = { type = "string" } } }
[tools."payments.refund".driver.process]
command = ["true"]

[tools."orders.read"]
effect = "read"
[tools."orders.read".driver.process]
command = ["true"]
"#;

const POLICY: &str = r#"@id("reads")
permit (principal, action, resource)
when { resource.effect == Effect::"read" };

@id("refunds")
permit (principal in Role::"support", action in Action::"tool:payments.refund", resource)
when { resource has risk && resource.risk == 70 };

@id("large")
@channel("finance") @quorum("2") @expires("4h") @reason("more than 50.00")
forbid (principal, action == Action::"call_unattended:payments.refund", resource)
when { context.args.cents > 5000 };
"#;

/// A workspace with tools, and a policy that nobody has published.
fn world() -> World {
    let world = World::with_workspace();
    let config = world.read("gesta.toml");
    world.write(
        "gesta.toml",
        &format!("{config}\n[policy.roles]\nsupport = [\"agent:main\"]\n{TOOLS}"),
    );
    world.write("policy.cedar", POLICY);
    world
}

fn in_force(world: &World) -> serde_json::Value {
    world.gesta(&["policy", "show", "--json"]).json()
}

#[test]
fn a_new_workspace_has_a_policy_in_force() {
    let world = World::with_workspace();
    assert!(world.read("gesta.toml").contains("[policy]\nfiles = [\"policy.cedar\"]\n"));
    let shown = in_force(&world);
    assert_eq!(shown["default"], false);
    assert_eq!(shown["policies"][0]["name"], "policy.cedar");
    assert_eq!(shown["policies"][0]["text"], world.read("policy.cedar"));
    let text = world.gesta(&["policy", "show"]).ok();
    assert!(
        text.starts_with(&format!(
            "policy {}\n  tools  none\n\npolicy.cedar\n",
            shown["digest"].as_str().unwrap()
        )),
        "{text}"
    );
    assert_eq!(
        world.gesta(&["policy", "check"]).ok().split(',').next(),
        Some("sound: 2 policies for 0 tools")
    );
}

#[test]
fn a_policy_that_is_there_before_is_kept() {
    let world = World::new();
    world.write("policy.cedar", POLICY);
    world.gesta(&["init"]).ok();
    assert_eq!(world.read("policy.cedar"), POLICY);
    // It is about tools that nobody has declared yet.
    let shown = world.gesta(&["policy", "show"]).ok();
    assert!(shown.contains("the default: nothing was published"), "{shown}");
}

#[test]
fn mistakes_are_told_with_their_places() {
    let world = world();
    assert!(world.gesta(&["policy", "check"]).ok().starts_with("sound: 3 policies for 2 tools, "));
    world.write(
        "policy.cedar",
        &POLICY.replace("args.cents", "args.cnets").replace("@quorum(\"2\")", ""),
    );
    let expected = "policy.cedar:12:8: policy `large`: attribute `args.cnets` in context for Action::\"call_unattended:payments.refund\" not found\n  hint: did you mean `cents`?\n";
    assert_eq!(world.gesta(&["policy", "check"]).expect(2).out, expected);
    let json = world.gesta(&["policy", "check", "--json"]).expect(2).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["ok"], &json["problems"][0]["policy"]), (&false.into(), &"large".into()));
    assert_eq!(json["problems"][0]["line"], 12);
}

#[test]
fn files_are_checked_against_the_tools_beside_them() {
    let world = World::with_examples();
    for example in ["refund", "trip"] {
        let file = format!("examples/{example}/policy.cedar");
        assert!(world.gesta(&["policy", "check", &file]).ok().starts_with("sound: "));
    }
    assert!(!world.path("gesta.toml").exists());
}

#[test]
fn a_bad_policy_is_refused_and_the_old_one_stays() {
    let world = world();
    let before = in_force(&world);
    world.write("policy.cedar", &POLICY.replace("Role::\"support\"", "Role::\"suport\""));
    let refused = world.gesta(&["policy", "publish"]).expect(2);
    assert!(refused.err.starts_with("error: not published\npolicy.cedar:6:22: policy `refunds`: there is no `Role::\"suport\"`"), "{}", refused.err);
    assert_eq!(in_force(&world), before);

    world.write("policy.cedar", POLICY);
    let published = world.gesta(&["policy", "publish", "--json"]).json();
    assert_eq!(published["new"], true);
    let after = in_force(&world);
    assert_eq!(after["digest"], published["digest"]);
    assert_ne!(after["digest"], before["digest"]);
    assert_eq!(after["roles"]["support"][0], "agent:main");
    assert_eq!(after["tools"], serde_json::json!(["orders.read", "payments.refund"]));
    assert_eq!(world.gesta(&["policy", "publish", "--json"]).json()["new"], false);
    // The registry names it, signed, and its content is there.
    world.gesta(&["verify"]).ok();
    world.gesta(&["doctor"]).ok();
}

#[test]
fn publishing_needs_the_owners_key() {
    let world = world();
    std::fs::remove_file(world.path("keys/owner.pem")).unwrap();
    let refused = world.gesta(&["policy", "publish"]).expect(1);
    assert!(refused.err.contains("there is no key file"), "{}", refused.err);
}

#[test]
fn cases_are_compared() {
    let world = world();
    world.write(
        "cases.yaml",
        r"
cases:
  - name: small
    request: { tool: payments.refund, args: { cents: 5000 } }
    expect: allow
    policies: [refunds]
  - name: large
    request: { tool: payments.refund, args: { cents: 5001 }, at: 2026-11-16T09:30:00Z, spent: { calls: 2 } }
    expect: escalate
    policies: [large]
  - name: a stranger
    request: { tool: payments.refund, args: { cents: 1 }, principal: agent:other }
    expect: deny
    policies: []
  - request: { tool: orders.read }
    expect: allow
",
    );
    let ran = world.gesta(&["policy", "test", "cases.yaml"]);
    assert_eq!(
        ran.ok(),
        "ok      small: allow\nok      large: escalate\nok      a stranger: deny\nok      case 4: allow\n4 cases, all as expected\n"
    );

    world.write(
        "cases.yaml",
        "cases:\n  - name: wrong\n    request: { tool: payments.refund, args: { cents: 9000 } }\n    expect: allow\n    policies: [refunds]\n",
    );
    let failed = world.gesta(&["policy", "test", "cases.yaml"]).expect(1);
    let expected = "FAILED  wrong: escalate\n        expected allow, is escalate\n        `refunds` did not decide\n        `large` decided\n        because it may be called: `refunds` allows it\n        because it may not be called unattended: `large` (more than 50.00) forbids it\n        because so 2 people of `finance` must agree within 4h: more than 50.00\n1 case, 1 not as expected\n";
    assert_eq!(failed.out, expected);
    let json = world.gesta(&["policy", "test", "cases.yaml", "--json"]).expect(1).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["ok"], &json["cases"][0]["verdict"]), (&false.into(), &"escalate".into()));

    for (bad, why) in [
        (
            "cases: [{ request: { tool: nobody }, expect: allow }]",
            "case 1: there is no tool `nobody`",
        ),
        ("cases: [{ request: { tool: orders.read }, expect: maybe }]", "unknown variant `maybe`"),
        (
            "cases: [{ request: { tool: orders.read, at: noon }, expect: allow }]",
            "`noon` is not a time",
        ),
        ("cases: [", "cases.yaml:1:"),
    ] {
        world.write("cases.yaml", bad);
        let refused = world.gesta(&["policy", "test", "cases.yaml"]).expect(2);
        assert!(refused.err.contains(why), "{bad}: {}", refused.err);
    }
}

#[test]
fn the_examples_cases_hold() {
    let world = World::with_examples();
    let arguments = [
        "policy",
        "test",
        "examples/refund/cases.yaml",
        "--policy",
        "examples/refund/policy.cedar",
    ];
    assert!(world.gesta(&arguments).ok().ends_with("4 cases, all as expected\n"));
}

#[test]
fn what_policies_can_see_is_printed() {
    let schema = world().gesta(&["policy", "schema"]).ok();
    for part in [
        "action \"call:payments.refund\" in [Action::\"call\", Action::\"tool:payments.refund\"]",
        "cents: Long",
        "note?: String",
    ] {
        assert!(schema.contains(part), "{part}: {schema}");
    }
}

#[test]
fn a_job_brings_its_policy_and_changed_tools_are_published_again() {
    let world = World::with_examples();
    let run = ["run", "examples/refund/job.yaml", "--input", "order=1042"];
    let first = world.gesta(&run).expect(0);
    assert!(
        first.err.contains("added `examples/refund/policy.cedar` to the policy of the workspace\n"),
        "{}",
        first.err
    );
    assert!(
        first.err.contains("published the policy with that of the job's tools, "),
        "{}",
        first.err
    );
    let before = in_force(&world);
    let names: Vec<_> = before["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["policy.cedar", "examples/refund/policy.cedar"]);
    assert_eq!(before["tools"].as_array().unwrap().len(), 6);

    let again = world.gesta(&run).expect(0);
    assert!(!again.err.contains("policy"), "{}", again.err);

    let tools = world.read("examples/refund/tools.toml");
    world.write(
        "examples/refund/tools.toml",
        &tools.replace("effect = \"external\"", "effect = \"external\"\nrisk = 9"),
    );
    let changed = world.gesta(&run).expect(0);
    assert!(
        changed.err.contains("the tools have changed: published the policy again for them, "),
        "{}",
        changed.err
    );
    let after = in_force(&world);
    assert_ne!(after["digest"], before["digest"]);
    assert_eq!(after["policies"], before["policies"]);
}

#[test]
fn other_texts_are_told_and_not_put_in_force() {
    let world = world();
    let before = in_force(&world);
    world.write(
        "job.yaml",
        "job: nothing\nsteps:\n  - { id: a, set: 1 }\nanswer: ${steps.a.result}\n",
    );
    let warning = "warning: the policy of the workspace is not what is published; `gesta policy publish` puts it in force\n";
    for arguments in [&["run", "job.yaml"][..], &["submit", "job.yaml"], &["worker", "--once"]] {
        let ran = world.gesta(arguments).expect(0);
        assert!(ran.err.contains(warning), "{arguments:?}: {}", ran.err);
        assert_eq!(in_force(&world), before);
    }
    world.gesta(&["policy", "publish"]).ok();
    for arguments in [&["run", "job.yaml"][..], &["worker", "--once"]] {
        let ran = world.gesta(arguments).expect(0);
        assert!(!ran.err.contains("policy"), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn only_decisions_are_explained() {
    let world = World::with_examples();
    world.gesta(&["run", "examples/refund/job.yaml", "--input", "order=1042"]).ok();
    let job = world.jobs().pop().unwrap();
    let log = world.gesta(&["log", &job, "--json"]).json_lines();
    let started = log.iter().find(|entry| entry["entry"]["kind"] == "started").unwrap();
    let explained = world.gesta(&["policy", "explain", &format!("{job}:{}", started["seq"])]).ok();
    assert!(explained.starts_with("order: `orders.read` was allowed\n"), "{explained}");
    let refused = world.gesta(&["policy", "explain", &format!("{job}:0")]).expect(2);
    assert!(refused.err.contains("is a root: nothing was decided in it"), "{}", refused.err);
}

/// Submitting puts the policy in force for tools that it does not know yet, and a worker that has not heard of that
/// by then may be there first: what it would refuse by what was in force before is decided again.
#[test]
fn a_job_is_not_refused_by_what_was_in_force_before_it() {
    let world = World::with_free_workspace();
    let process = "{ command = [\"echo\", \"1\"], env = [\"PATH\"] }";
    let tool = format!("[tools.one]\neffect = \"external\"\ndriver.process = {process}\n");
    world.write("gesta.toml", &format!("{}\n{tool}", world.read("gesta.toml")));
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: one }\n");
    let mut worker = world.start(&["worker"]);
    worker.says("a worker with 1 tool serves");
    world.gesta(&["submit", "job.yaml"]).ok();
    worker.says(": completed");
    worker.kill();
    assert!(world.bodies(&world.job(), "rejection").is_empty());
}
