//! `gesta check` and `gesta graph`.

use crate::world::{World, filters};

const BROKEN: &str = "\
job: broken
input:
  order: integr
steps:
  - id: a
    tool: orders.raed
    args: { order: \"${input.ordr}\" }
  - id: b
    tool: orders.read
    args: { order: \"x\", extra: 1 }
    when: ${steps.c.result}
  - id: c
    needs: [b]
    set: ${1 +}
    retyr: 3
";

#[test]
fn every_problem_is_told_with_its_place() {
    let world = World::with_examples();
    world.write("examples/refund/broken.yaml", BROKEN);
    let ran = world.gesta(&["check", "examples/refund/broken.yaml"]);
    assert_eq!(ran.code, Some(2));
    insta::assert_snapshot!("check-broken", ran.whole());
    let told = world.gesta(&["check", "examples/refund/broken.yaml", "--json"]).expect(2);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let problems = told["problems"].as_array().unwrap();
    assert_eq!(problems.len(), ran.out.lines().filter(|line| !line.starts_with("  hint")).count());
    assert!(
        problems.iter().all(|it| it["line"].as_u64() > Some(0) && it["column"].as_u64() > Some(0))
    );
    assert!(!world.path("gesta.toml").exists());
}

/// Advice about tools is for those who miss one.
#[test]
fn what_is_no_job_is_not_blamed_on_tools() {
    let world = World::new();
    let advice = "no tools are declared";
    for (text, advised) in [("", false), ("job: [\n", false), (BROKEN, true)] {
        world.write("job.yaml", text);
        for command in ["check", "run"] {
            let told = world.gesta(&[command, "job.yaml"]).expect(2);
            assert_eq!(told.err.contains(advice), advised, "{command} {text:?}: {}", told.err);
        }
    }
    assert!(!world.path("gesta.toml").exists());
}

#[test]
fn a_sound_job_is_summed_up_and_drawn() {
    let world = World::with_examples();
    let sound = world.gesta(&["check", "examples/refund/job.yaml"]);
    insta::with_settings!({ filters => filters() }, {
        insta::assert_snapshot!("check-sound", sound.whole());
    });
    let told = world.gesta(&["check", "examples/refund/job.yaml", "--json"]).json();
    assert_eq!((&told["ok"], &told["writ"]["effect"]), (&true.into(), &"irreversible".into()));
    let graph = world.gesta(&["graph", "examples/refund/job.yaml"]).ok();
    assert!(graph.starts_with("graph") && graph.contains("payments.refund"), "{graph}");
    world.write("bad.yaml", "job: [\n");
    assert!(world.gesta(&["graph", "bad.yaml"]).expect(2).err.contains("bad.yaml:"));
}

#[test]
fn the_schema_of_job_files_is_published() {
    let schema = World::new().gesta(&["check", "--schema"]).json();
    assert_eq!(schema["type"], "object");
}
