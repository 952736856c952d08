//! `gesta diff` and `gesta tree` of jobs, their branches and their children.

use serde_json::{Value, json};

use crate::branch::{JOB, branch, shop, world};
use crate::world::World;

fn diff(world: &World, one: &str, other: &str, code: i32) -> Value {
    let ran = world.gesta(&["diff", one, other, "--json"]).expect(code);
    serde_json::from_str(&ran.out).unwrap()
}

/// The verdict on each step.
fn verdicts(difference: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = difference["steps"].as_array().unwrap();
    rows.iter().map(|row| (text(&row["step"]), text(&row["verdict"]))).collect()
}

fn expected(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(step, verdict)| ((*step).to_owned(), (*verdict).to_owned())).collect()
}

#[test]
fn two_trajectories_are_compared_step_by_step() {
    let (world, source) = shop();
    let run = |more: &[&str]| {
        let ran = world.gesta(&[&["branch", &source, "--json", "--at", "charge"], more].concat());
        ran.json()["trajectory"].as_str().unwrap().to_owned()
    };
    let same = run(&["--mode", "recorded"]);
    let told = diff(&world, &source, &same, 0);
    assert_eq!(told["same"], true);
    assert_eq!(told["steps"][0]["b"]["inherited"], true);
    assert!(told["steps"][3]["b"]["recorded_from"].is_string(), "{told}");

    let set = run(&["--mode", "live", "--set", "ship.args.n=2"]);
    let told = diff(&world, &source, &set, 1);
    let rows = [("read", "same"), ("charge", "same"), ("again", "same"), ("ship", "changed")];
    assert_eq!(verdicts(&told), expected(&[&rows[..], &[("answer", "same")]].concat()));
    assert_eq!(told["steps"][3]["changed"], json!(["args"]));
    assert_eq!(told["b"]["source"], json!(source));
    let text = world.gesta(&["diff", &source, &set]).expect(1).out;
    for line in [
        "= charge  side effect committed (inherited)",
        "~ ship    args changed",
        r#"args: {"n":1,"to":"ada"} → {"n":2,"to":"ada"}"#,
        "the worlds are the same",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }

    world.write(
        "other.yaml",
        &JOB.replace("id: ship", "id: send").replace("steps.ship", "steps.send"),
    );
    let other = run(&["--mode", "live", "--plan", "other.yaml"]);
    let told = verdicts(&diff(&world, &source, &other, 1));
    assert!(told.contains(&("ship".to_owned(), "only_a".to_owned())), "{told:?}");
    assert!(told.contains(&("send".to_owned(), "only_b".to_owned())), "{told:?}");
    let text = world.gesta(&["diff", &source, &other]).expect(1).out;
    assert!(text.contains("- ship    only in A") && text.contains("+ send    only in B"), "{text}");
}

#[test]
fn worlds_are_compared_too() {
    let tools = r#"
[tools.put]
effect = "write"
recovery = "safe"
changes = [{ type = "order", id = "args.id", value = "args.value" }]
driver.process = { command = ["echo", "{}"], env = ["PATH"] }
"#;
    let world = World::with_tools(tools);
    world.write(
        "job.yaml",
        "job: orders\nsteps:\n  - { id: one, tool: put, args: { id: '1', value: a } }\n  - { id: two, tool: put, args: { id: '2', value: b }, needs: [one] }\n",
    );
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    let source = ran["trajectory"].as_str().unwrap();
    let branch = |set: &str| {
        let ran = ["branch", source, "--at", "one", "--mode", "live", "--set", set, "--json"];
        world.gesta(&ran).json()["trajectory"].as_str().unwrap().to_owned()
    };
    let told = diff(&world, source, &branch("two.args.value=c"), 1);
    assert_eq!(told["world"], json!([{ "resource": "order/2", "a": "b", "b": "c" }]));
    let moved = branch("two.args.id=\"3\"");
    let text = world.gesta(&["diff", source, &moved]).expect(1).out;
    for line in ["the worlds differ in 2 resources", "- order/2 \"b\"", "+ order/3 \"b\""] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn the_tree_shows_branches_and_children_together() {
    let world = world(
        "job: shop\nsteps:\n  - { id: charge, tool: act }\n  - { id: ask, delegate: { job: child.yaml }, needs: [charge] }\n",
    );
    world.write("child.yaml", "job: child\nsteps:\n  - { id: act, tool: act, args: { n: 1 } }\n");
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    let source = ran["trajectory"].as_str().unwrap();
    let first = branch(&world, source, &["--at", "charge", "--note", "what if", "--mode", "live"]);
    world.gesta(&["resume", &first]).ok();
    let second = branch(&world, &first, &["--at", "ask"]);
    let tree = world.gesta(&["tree", source, "--json"]).json();
    assert_eq!(tree["children"].as_array().unwrap().len(), 1);
    let below = &tree["branches"][0];
    assert_eq!(
        (&below["trajectory"], &below["branched"]["step"]),
        (&json!(first), &json!("charge"))
    );
    assert_eq!(below["children"].as_array().unwrap().len(), 1);
    assert_eq!(below["branches"][0]["trajectory"], json!(second));
    let text = world.gesta(&["tree", source]).ok();
    for line in ["├─ ask: t_", "└─ branch at charge (live): t_", "what if", "   ├─ ask: t_"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let up = world.gesta(&["tree", &first]).ok();
    assert!(up.contains(&format!("it branched from {source} (live): what if")), "{up}");
    let drawn = world.gesta(&["tree", source, "--mermaid"]).ok();
    assert!(drawn.starts_with("flowchart TD\n"), "{drawn}");
    assert!(drawn.contains(&format!("{source} -.->|charge| {first}")), "{drawn}");
    assert!(drawn.contains(&format!("{source} -->|ask| t_")), "{drawn}");
}
