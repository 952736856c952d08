//! Delegation through the door: a child under authority carved out for it, what it may not do, what
//! travels between it and its parent, and processes that die between the two chains.

use serde_json::{Value, json};

use crate::world::World;

/// A tool that only looks, one that acts and keeps one file an effect, one that undoes, one that fails.
const TOOLS: &str = r#"
[tools.look]
effect = "read"
recovery = "safe"
driver.process = { command = ["echo", '{"seen":1}'], env = ["PATH"] }

[tools.act]
effect = "external"
recovery = "keyed_concurrent"
compensate = { tool = "undo", args = {} }
[tools.act.driver.process]
command = '''
read -r args; mkdir -p done; echo x >> "done/$GESTA_KEY"
echo '{"ok":true}'
'''
shell = true
env = ["PATH"]

[tools.undo]
effect = "external"
recovery = "keyed_concurrent"
[tools.undo.driver.process]
command = '''
read -r args; mkdir -p undone; echo x >> "undone/$GESTA_KEY"
echo '{"ok":true}'
'''
shell = true
env = ["PATH"]

[tools.broken]
effect = "read"
driver.process = { command = ["sh", "-c", "exit 10"], env = ["PATH"], exit = { 10 = "did_not_happen" } }
"#;

const CHILD: &str = "job: child
input:
  n: integer
steps:
  - { id: act, tool: act }
answer:
  twice: ${input.n * 2}
";

const ASK: &str = "input: { n: 21 }";

fn world(parent: &str, child: &str) -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", parent);
    world.write("child.yaml", child);
    world
}

/// A job that does nothing but delegate so.
fn parent(how: &str) -> String {
    format!(
        "job: parent\nsteps:\n  - id: ask\n    delegate: {{ job: child.yaml, {how} }}\nanswer: ${{steps.ask.result}}\n"
    )
}

fn tree(world: &World, id: &str) -> Value {
    world.gesta(&["tree", id, "--json"]).json()
}

/// The job that nobody delegated to.
fn root(world: &World) -> String {
    world.jobs().into_iter().find(|id| tree(world, id)["parent"].is_null()).unwrap()
}

fn child(world: &World) -> String {
    tree(world, &root(world))["children"][0]["trajectory"].as_str().unwrap().to_owned()
}

#[test]
fn a_child_works_and_its_parent_has_the_answer() {
    let how = format!("{ASK}, principal: 'agent:helper', budget: {{ calls: 3 }}");
    let world = world(&parent(&how), CHILD);
    let checked = world.gesta(&["check", "job.yaml"]).ok();
    let carved = "child   ask: child with act, undo, effects up to `external`, at most calls 3";
    assert!(checked.contains(carved), "{checked}");
    let graph = world.gesta(&["graph", "job.yaml"]).ok();
    assert!(graph.contains("ask<br/>job: child"), "{graph}");
    let dry = world.gesta(&["run", "job.yaml", "--dry-run"]).ok();
    assert!(dry.contains("delegate"), "{dry}");
    let ran = world.gesta(&["run", "job.yaml", "--json", "--budget", "calls=10"]).json();
    assert_eq!(ran["answer"]["twice"], 42, "{ran}");
    assert_eq!(world.files("done"), 1);

    let (id, below) = (root(&world), child(&world));
    let kinds = world.kinds(&id);
    for kind in ["delegation", "delivered", "delegation_result", "completed"] {
        assert_eq!(kinds.iter().filter(|it| *it == kind).count(), 1, "{kinds:?}");
    }
    assert_eq!(world.kinds(&below).last().map(String::as_str), Some("delivered"));
    let shown = tree(&world, &id);
    assert_eq!((&shown["spent"]["calls"], &shown["reserved"]), (&json!(1), &json!({})));
    let shown = &shown["children"][0];
    assert_eq!((&shown["budget"]["calls"], &shown["spent"]["calls"]), (&json!(3), &json!(1)));
    assert_eq!(
        (&shown["principal"], &shown["status"]),
        (&json!("agent:helper"), &json!("completed"))
    );
    let told = world.gesta(&["tree", &id]).ok();
    for what in ["└─ ask: t_", "used 1 call of calls 3", "answers {\"twice\":42}"] {
        assert!(told.contains(what), "{what}: {told}");
    }
    let log = world.gesta(&["log", &id]).ok();
    for what in [
        "as agent:helper, up to external, calls 3",
        "has begun, entry 1",
        "completed: {\"twice\":42}",
    ] {
        assert!(log.contains(what), "{what}: {log}");
    }
    for id in [&id, &below] {
        let report = world.gesta(&["verify", id]).ok();
        assert!(report.contains("3 trajectories"), "{report}");
    }
    world.gesta(&["doctor"]).ok();
}

/// What a child was not given is refused when it asks for it, and its parent hears of it.
#[test]
fn a_child_cannot_exceed_what_was_carved_out() {
    let two = "job: child\ninput:\n  n: integer\nsteps:\n  - { id: one, tool: look }\n  - { id: two, tool: look, needs: [one] }\n";
    let nested = "job: child\ninput:\n  n: integer\nsteps:\n  - id: deeper\n    delegate: { job: leaf.yaml }\n";
    for (how, job, step, code) in [
        ("budget: { calls: 1 }", two, "two", "budget_exhausted"),
        ("tools: [look]", CHILD, "act", "invalid_authority"),
        ("effect: read", CHILD, "act", "invalid_authority"),
        ("depth: 0", nested, "deeper", "delegation_exceeds_authority"),
    ] {
        let world = world(&parent(&format!("{ASK}, {how}")), job);
        world.write("leaf.yaml", "job: leaf\nsteps:\n  - { id: a, tool: look }\n");
        let ran = world.gesta(&["run", "job.yaml", "--budget", "calls=10"]).expect(10);
        assert!(ran.out.contains("step `ask` failed: child t_"), "{how}: {}", ran.out);
        let refused = &world.bodies(&child(&world), "rejection")[0];
        assert_eq!(refused["decision"]["doc"]["reason"], code, "{how}");
        assert_eq!(refused["proposal"]["step"], step, "{how}");
        assert!(!world.path("done").exists(), "{how}");
        world.gesta(&["verify", &root(&world)]).ok();
    }
}

/// More than its parent has is refused before there is a child.
#[test]
fn a_job_cannot_hand_out_more_than_it_has() {
    let world = world(&parent(&format!("{ASK}, budget: {{ calls: 5 }}")), CHILD);
    world.gesta(&["run", "job.yaml", "--budget", "calls=4"]).expect(10);
    let id = world.job();
    let refused = &world.bodies(&id, "rejection")[0];
    assert_eq!(refused["decision"]["doc"]["reason"], "delegation_exceeds_authority");
    assert_eq!(tree(&world, &id)["children"], json!([]));
}

#[test]
fn a_failing_child_fails_its_step_or_is_its_result() {
    let broken = "job: child\ninput:\n  n: integer\nsteps:\n  - { id: b, tool: broken }\n";
    let failing = world(&parent(ASK), broken);
    let ran = failing.gesta(&["run", "job.yaml"]).expect(10);
    assert!(ran.out.contains("step `ask` failed: child t_"), "{}", ran.out);

    let returning = world(&parent(&format!("{ASK}, on_failure: return")), broken);
    let ran = returning.gesta(&["run", "job.yaml", "--json"]).json();
    assert_eq!(ran["answer"]["end"], "failed", "{ran}");
    let why = ran["answer"]["error"]["message"].as_str().unwrap();
    assert!(why.contains("step `b` failed"), "{why}");
}

/// A cancel travels down, with or without undoing; the parent ends when its child has.
#[test]
fn a_cancelled_job_takes_its_children_along() {
    let waiting = "job: child\ninput:\n  n: integer\nsteps:\n  - { id: act, tool: act }\n  - { id: wait, wait: { signal: go }, needs: [act] }\n";
    for compensate in [false, true] {
        let world = world(&parent(ASK), waiting);
        let mut run = world.start(&["run", "job.yaml"]);
        run.says("leaves it waiting");
        run.kill();
        let id = root(&world);
        let mut cancel = vec!["cancel", id.as_str()];
        cancel.extend(compensate.then_some("--compensate"));
        world.gesta(&cancel).ok();
        world.gesta(&["resume", &id]).expect(11);
        let child = child(&world);
        let request = &world.bodies(&child, "cancel_requested")[0];
        assert_eq!(request["compensate"], compensate);
        assert_eq!(world.path("undone").exists(), compensate);
        assert_eq!(world.bodies(&id, "delegation_result")[0]["end"], "cancelled");
        world.gesta(&["verify", &id]).ok();
    }
}

/// The whole family is checked before anything runs.
#[test]
fn a_child_that_does_not_fit_is_refused_with_its_place() {
    let unknown = "job: child\ninput:\n  n: integer\nsteps:\n  - { id: a, tool: nothing }\n";
    let world = world(&parent("input: { m: 1 }"), unknown);
    let check = |what: &str| {
        let told = world.gesta(&["check", "job.yaml"]).expect(2).out;
        assert!(told.contains(what), "{what}: {told}");
    };
    check("job.yaml:4:22: child.yaml:5:20: unknown tool `nothing`");
    world.write("child.yaml", CHILD);
    check("unknown input `m`");
    check("input `n` is missing");
    world.write("job.yaml", &parent("input: { n: many }"));
    check("input `n` is of type integer, not");
    world.write("job.yaml", &parent(ASK));
    let back =
        "job: child\ninput:\n  n: integer\nsteps:\n  - { id: a, delegate: { job: ./job.yaml } }\n";
    world.write("child.yaml", back);
    check("delegates to itself in the end");
    let nowhere = "job: parent\nsteps:\n  - { id: a, delegate: { job: nowhere.yaml } }\n";
    world.write("job.yaml", nowhere);
    check("job.yaml:3:31: the job file `nowhere.yaml` cannot be read");
}

/// Handing a task on is decided like a call: refused, put before people, or let, and by whom is told.
#[test]
fn a_policy_is_asked_about_handing_on() {
    let world = world(&parent(ASK), CHILD);
    world.gesta(&["keys", "add", "alice", "--roles", "approver"]).ok();
    let publish = |text: &str| {
        world.write("policy.cedar", text);
        world.gesta(&["policy", "publish"]).ok();
    };
    let calls = "@id(\"calls\") permit (principal, action, resource) unless { resource in ToolGroup::\"delegate.*\" };\n";
    publish(calls);
    let refused = world.gesta(&["run", "job.yaml"]).expect(10);
    let why = "the Guardian refused `delegate.external`: no policy permits it";
    assert!(refused.out.contains(why), "{}", refused.out);
    let id = world.job();
    let refusal = &world.bodies(&id, "rejection")[0];
    assert_eq!(refusal["decision"]["doc"]["reason"], "policy_denied");
    assert_eq!(refusal["proposal"]["args"]["job"], "child");
    assert_eq!(tree(&world, &id)["children"], json!([]));
    let log = world.gesta(&["log", &id]).ok();
    assert!(log.contains("rejection") && log.contains("policy_denied"), "{log}");

    let never = "@id(\"all\") permit (principal, action, resource);\n@id(\"never-act\") forbid (principal, action in Action::\"tool:delegate.external\", resource) when { context.args.tools.contains(\"act\") };\n";
    publish(never);
    let refused = world.gesta(&["run", "job.yaml", "--key", "never"]).expect(10);
    assert!(refused.out.contains("`never-act`"), "{}", refused.out);
    assert!(!world.path("done").exists());

    publish(&format!(
        "{calls}@id(\"hand-on\") @reason(\"somebody else acts\") permit (principal, action == Action::\"call:delegate.external\", resource) when {{ context.args.job == \"child\" && context.args.tools.contains(\"act\") }};\n"
    ));
    let mut run = world.start(&["run", "job.yaml", "--key", "asked"]);
    run.says("asks operators");
    run.kill();
    let shown = world.gesta(&["approvals"]).ok();
    for part in ["delegate.external (external)", "somebody else acts", "`hand-on`", "\"n\": 21"] {
        assert!(shown.contains(part), "no `{part}` in:\n{shown}");
    }
    let id = world.gesta(&["approvals", "--json"]).json_lines()[0]["trajectory"].clone();
    let id = id.as_str().unwrap();
    world.gesta(&["approve", id, "--as", "alice"]).ok();
    world.gesta(&["resume", id]).ok();
    assert_eq!(world.files("done"), 1);
    let handed = &world.bodies(id, "delegation")[0];
    assert_eq!(handed["decision"]["doc"]["verdict"], "allow");
    let seq = world.kinds(id).iter().position(|kind| kind == "delegation").unwrap();
    let told = world.gesta(&["policy", "explain", &format!("{id}:{seq}")]).ok();
    for part in ["ask: `delegate.external` was allowed", "`hand-on`", "agreed: alice"] {
        assert!(told.contains(part), "no `{part}` in:\n{told}");
    }
    world.gesta(&["verify", id]).ok();
    world.gesta(&["replay", id]).ok();
}

/// A freeze holds a delegation back, and lifting it lets it go.
#[test]
fn what_is_frozen_is_not_handed_on() {
    let world = world(&parent(ASK), CHILD);
    world.gesta(&["freeze", "tool", "delegate.external", "--reason", "not now"]).ok();
    let mut run = world.start(&["run", "job.yaml", "--key", "one"]);
    run.says("ask");
    let id = root(&world);
    while world.bodies(&id, "rejection").is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(world.bodies(&id, "delegation").len(), 0);
    world.gesta(&["unfreeze", "tool", "delegate.external"]).ok();
    run.ends();
    assert_eq!(world.files("done"), 1);
    world.gesta(&["verify", &id]).ok();
    world.gesta(&["replay", &id]).ok();
}

const FAN: &str = "job: fan
parallel: 2
steps:
  - id: all
    each: ${[1, 2, 3, 4, 5]}
    when: ${item != 3}
    delegate: { job: child.yaml, input: { n: '${item}' }, budget: { calls: 2 } }
answer: ${steps.all.result}
";

/// A child for each item, as many at once as the job allows, and their answers in the order of the list.
fn fans_out(world: &World, store: &[(&str, &str)]) {
    let run = |arguments: &[&str]| world.gesta_with(arguments, store);
    let ran = run(&["run", "job.yaml", "--json", "--budget", "calls=20"]).json();
    let answer: Vec<Value> = ran["answer"].as_array().unwrap().clone();
    let twice: Vec<Value> = answer.iter().map(|one| one["twice"].clone()).collect();
    assert_eq!(json!(twice), json!([2, 4, null, 8, 10]), "{ran}");
    assert_eq!(world.files("done"), 4);
    let id = ran["trajectory"].as_str().unwrap();
    let (mut at_once, mut most) = (0, 0);
    for line in run(&["log", id, "--json"]).json_lines() {
        match line["entry"]["kind"].as_str().unwrap() {
            "delegation" => at_once += 1,
            "delegation_result" => at_once -= 1,
            _ => {}
        }
        most = most.max(at_once);
    }
    assert_eq!((at_once, most), (0, 2));
    let shown = run(&["tree", id, "--json"]).json();
    assert_eq!(shown["children"].as_array().unwrap().len(), 4);
    assert_eq!(shown["spent"]["calls"], 4);
    run(&["verify", id]).ok();
    run(&["replay", id]).ok();
}

#[test]
fn each_item_has_a_child() {
    let world = world(FAN, CHILD);
    let checked = world.gesta(&["check", "job.yaml"]).ok();
    assert!(checked.contains("child   all: child with act, undo"), "{checked}");
    let graph = world.gesta(&["graph", "job.yaml"]).ok();
    assert!(graph.contains("each: job: child"), "{graph}");
    fans_out(&world, &[]);
}

#[cfg(feature = "postgres")]
#[test]
fn each_item_has_a_child_on_postgres() {
    let database = crate::postgres::Database::new("fan_of_children");
    let url = database.url();
    let world = World::new();
    world.free();
    world.gesta(&["init", "--store", &url]).ok();
    world.set_tools(TOOLS);
    world.write("job.yaml", FAN);
    world.write("child.yaml", CHILD);
    fans_out(&world, &[("GESTA_STORE", &url)]);
}

/// What a child has completed is not undone by itself, and not passed over: the rollback waits for an operator,
/// then undoes what came before it.
#[test]
fn a_completed_child_stops_a_rollback_until_somebody_has_seen_to_it() {
    let job = "job: parent
on_failure: compensate
steps:
  - { id: first, tool: act }
  - { id: ask, delegate: { job: child.yaml, input: { n: 1 } }, needs: [first] }
  - { id: broken, tool: broken, retry: { attempts: 1 }, needs: [ask] }
";
    let world = world(job, CHILD);
    let checked = world.gesta(&["check", "job.yaml"]).ok();
    assert!(checked.contains("ask"), "{checked}");
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("leaves it waiting");
    run.kill();
    let id = root(&world);
    let doubts = world.gesta(&["doubts"]).ok();
    assert!(doubts.contains("ask/undo"), "{doubts}");
    assert_eq!((world.files("done"), world.path("undone").exists()), (2, false));
    let undo: Vec<Value> = world.bodies(&id, "compensation")[0]["undo"].as_array().unwrap().clone();
    let steps: Vec<&Value> = undo.iter().map(|undo| &undo["step"]).collect();
    assert_eq!(json!(steps), json!(["ask", "first"]));
    world.gesta(&["resolve", &format!("{id}/ask/undo"), "--give-up"]).ok();
    world.gesta(&["resume", &id]).expect(10);
    assert_eq!(world.files("undone"), 1);
    world.gesta(&["verify", &id]).ok();
    world.gesta(&["replay", &id]).ok();
}

/// So it is when somebody cancels: what the child has completed is the operator's, the rest is undone.
#[test]
fn cancelling_with_compensation_does_not_pass_over_a_completed_child() {
    let job = "job: parent
steps:
  - { id: first, tool: act }
  - { id: ask, delegate: { job: child.yaml, input: { n: 1 } }, needs: [first] }
  - { id: wait, wait: { signal: go }, needs: [ask] }
";
    let world = world(job, CHILD);
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("leaves it waiting");
    run.kill();
    let (id, below) = (root(&world), child(&world));
    assert_eq!(tree(&world, &id)["children"][0]["status"], "completed");
    world.gesta(&["cancel", &id, "--compensate"]).ok();
    let mut run = world.start(&["resume", &id]);
    run.says("ask/undo");
    run.says("leaves it waiting");
    run.kill();
    assert!(!world.path("undone").exists());
    let doubts = world.gesta(&["doubts"]).ok();
    assert!(doubts.contains("ask/undo") && doubts.contains("a child has completed it"), "{doubts}");
    assert_eq!(world.bodies(&below, "cancel_requested").len(), 0);
    world.gesta(&["resolve", &format!("{id}/ask/undo"), "--give-up"]).ok();
    world.gesta(&["resume", &id]).expect(11);
    assert_eq!((world.files("done"), world.files("undone")), (2, 1));
    world.gesta(&["verify", &id]).ok();
    world.gesta(&["replay", &id]).ok();
}

#[test]
fn the_example_runs_as_its_page_says() {
    let world = World::with_examples();
    let run = ["run", "examples/delegation/job.yaml", "--input", "topic=lighthouses", "--json"];
    let ran = world.gesta(&run).json();
    assert!(ran["answer"]["report"].is_string(), "{ran}");
    let shown = tree(&world, &root(&world));
    assert_eq!(shown["spent"]["calls"], 3);
    let below = &shown["children"][0];
    assert_eq!((&below["spent"]["calls"], &below["effect"]), (&json!(2), &json!("read")));
}

/// A process that dies between the two chains: whoever goes on completes what was begun, and there is
/// one child and one effect.
#[cfg(feature = "cuts")]
mod cut {
    use super::*;

    const POINTS: [&str; 4] =
        ["after_delegation", "after_child_root", "after_child_end", "after_result"];

    fn plays(world: &World, store: &[(&str, &str)]) {
        let run = |arguments: &[&str]| world.gesta_with(arguments, store);
        for (number, point) in POINTS.into_iter().enumerate() {
            let (key, cut) = (format!("case-{number}"), format!("{point}:1:kill"));
            let mut variables = store.to_vec();
            variables.push(("GESTA_CUT", &cut));
            let died = world.gesta_with(&["run", "job.yaml", "--key", &key], &variables);
            assert_eq!(died.code, None, "{point}: {}", died.err);
            let again = run(&["run", "job.yaml", "--key", &key, "--json"]).json();
            assert_eq!(again["answer"]["twice"], 42, "{point}: {again}");
            let id = again["trajectory"].as_str().unwrap();
            // A claim of the dead ends with its lease; what the child still owes then is seen to.
            let shown = run(&["tree", id, "--json"]).json();
            run(&["resume", shown["children"][0]["trajectory"].as_str().unwrap()]).ok();
            let shown = run(&["tree", id, "--json"]).json();
            let children = shown["children"].as_array().unwrap();
            assert_eq!(
                (children.len(), &children[0]["status"]),
                (1, &json!("completed")),
                "{point}"
            );
            let lines = run(&["log", id, "--json"]).json_lines();
            let count =
                |kind: &str| lines.iter().filter(|line| line["entry"]["kind"] == kind).count();
            assert_eq!((count("delegation"), count("delegation_result")), (1, 1), "{point}");
            run(&["verify", id]).ok();
        }
        assert_eq!(world.files("done"), POINTS.len());
        for file in std::fs::read_dir(world.path("done")).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert_eq!(text.lines().count(), 1);
        }
    }

    #[test]
    fn a_crash_between_the_chains_is_made_good() {
        plays(&world(&parent(ASK), CHILD), &[]);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_crash_between_the_chains_is_made_good_on_postgres() {
        let database = crate::postgres::Database::new("delegation");
        let url = database.url();
        let world = World::new();
        world.free();
        world.gesta(&["init", "--store", &url]).ok();
        world.set_tools(TOOLS);
        world.write("job.yaml", &parent(ASK));
        world.write("child.yaml", CHILD);
        plays(&world, &[("GESTA_STORE", &url)]);
    }

    /// Nobody asks for the job again: a worker that serves the store finds it by its row alone.
    #[test]
    fn a_worker_finds_what_was_left_between_the_chains() {
        for point in POINTS {
            let world = world(&parent(ASK), CHILD);
            let cut = format!("{point}:1:kill");
            let died = world.gesta_with(&["run", "job.yaml"], &[("GESTA_CUT", &cut)]);
            assert_eq!(died.code, None, "{point}: {}", died.err);
            let id = root(&world);
            let mut worker = world.start(&["worker"]);
            worker.says(&format!("{}: completed", &id[..10]));
            // The parent may end before its child knows that the result has arrived.
            while tree(&world, &id)["children"][0]["status"] != "completed" {
                std::thread::yield_now();
            }
            worker.kill();
            assert_eq!(world.files("done"), 1, "{point}");
        }
    }
}
