//! `gesta budget`: setting, spending, showing.

use crate::world::{World, filters};

const JOB: &str = "job: calls\nsteps:\n  - { id: a, tool: say }\n  - { id: b, tool: say, needs: [a] }\n  - { id: c, tool: say, needs: [b] }\nanswer: 1\n";
const TOOLS: &str = "\n[limits]\nwarn_at = [50]\n\n[tools.say]\neffect = \"external\"\ncost = { calls = 1, money_micros = 250000 }\ndriver.process = { command = [\"/bin/echo\", \"{}\"] }\n";

fn world() -> World {
    let world = World::with_free_workspace();
    let config = world.read("gesta.toml");
    std::fs::write(world.path("gesta.toml"), format!("{config}{TOOLS}")).unwrap();
    std::fs::write(world.path("job.yaml"), JOB).unwrap();
    world
}

#[test]
fn a_budget_is_set_spent_and_shown() {
    let world = world();
    let whole = |arguments: &[&str]| world.gesta(arguments).whole();
    let told = [
        whole(&["budget"]),
        whole(&["budget", "set", "main", "--calls", "2", "--money", "1.50"]),
        whole(&["budget"]),
        world.gesta(&["run", "job.yaml"]).expect(10).out,
        whole(&["budget", "main"]),
        whole(&["budget", "set", "main", "--calls", "none", "--wall", "1h"]),
        whole(&["budget", "set", "main"]),
        whole(&["budget", "set", "main", "--money", "1,5"]),
    ];
    insta::with_settings!({ filters => timed() }, {
        insta::assert_snapshot!(told.join("\n==========\n"));
    });
}

#[test]
fn a_budget_is_shown_as_json() {
    let world = world();
    world.gesta(&["budget", "set", "main", "--calls", "2", "--json"]).json();
    world.gesta(&["run", "job.yaml"]).expect(10);
    let rows = world.gesta(&["budget", "--json"]).json_lines();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((&row["tenant"], &row["limit"]["calls"]), (&"main".into(), &2.into()));
    assert_eq!((&row["used"]["calls"], &row["left"]["calls"]), (&2.into(), &0.into()));
    assert_eq!((&row["used"]["money_micros"], &row["reached"]), (&500_000.into(), &50.into()));
    assert_eq!(world.gesta(&["budget", "other", "--json"]).json_lines().len(), 0);
}

/// How long calls take changes from run to run.
fn timed() -> Vec<(&'static str, &'static str)> {
    let mut filters = filters();
    filters.extend([
        (r"\d+\.\d{3}s", "[SPAN]"),
        (r"\d+ ms", "[SPAN]"),
        (r"run-[0-9a-f-]+", "[RUN]"),
    ]);
    filters
}
