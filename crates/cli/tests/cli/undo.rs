//! Undoing through the door: a job that fails and says so, a cancel that asks for it, an undo that does
//! not succeed, and real processes that are killed in the middle of a rollback.

use crate::world::World;

/// Rooms are booked and given back. The other side knows a key once: `given_back` is in order.
const TOOLS: &str = r#"
[tools.book]
effect = "external"
recovery = "keyed_concurrent"
input = { type = "object", required = ["room"], properties = { room = { type = "integer" } } }
changes = [{ type = "room", id = "string(args.room)" }]
compensate = { tool = "give_back", args = { room = "${args.room}", booking = "${result.booking}" } }
[tools.book.driver.process]
command = '''
read -r args; mkdir -p booked; mkdir "booked/$GESTA_KEY" 2>/dev/null
echo "{\"booking\":\"b-$GESTA_STEP\"}"
'''
shell = true
env = ["PATH"]

[tools.give_back]
effect = "external"
recovery = "keyed_concurrent"
input = { type = "object", required = ["room", "booking"], properties = { room = { type = "integer" }, booking = { type = "string" } } }
changes = [{ type = "room", id = "string(args.room)", retract = true }]
[tools.give_back.driver.process]
command = '''
read -r args; [ -e full ] && { echo 'the house is closed' >&2; exit 10; }
mkdir -p returned; mkdir "returned/$GESTA_KEY" 2>/dev/null && echo "$args" >> given_back
echo '{"ok":true}'
'''
shell = true
env = ["PATH"]
exit = { 10 = "did_not_happen" }

[tools.mail]
effect = "irreversible"
recovery = "keyed"
driver.process = { command = ["echo", "{}"], env = ["PATH"] }

[tools.broken]
effect = "read"
driver.process = { command = ["sh", "-c", "exit 10"], env = ["PATH"], exit = { 10 = "did_not_happen" } }
"#;

const TRIP: &str = "job: trip
on_failure: compensate
steps:
  - { id: first, tool: book, args: { room: 1 } }
  - { id: second, tool: book, args: { room: 2 }, needs: [first] }
  - { id: told, tool: mail, needs: [second] }
  - { id: third, tool: book, args: { room: 3 }, needs: [told] }
  - { id: last, tool: broken, needs: [third] }
";

const WAITING: &str = "job: waiting
steps:
  - { id: first, tool: book, args: { room: 1 } }
  - { id: second, tool: book, args: { room: 2 }, needs: [first] }
  - { id: wait, wait: { signal: go }, needs: [second] }
";

fn given_back(rooms: &[u64]) -> String {
    let names = ["", "first", "second", "third"];
    let line = |room: &u64| {
        let name = names[usize::try_from(*room).unwrap()];
        format!("{{\"booking\":\"b-{name}\",\"room\":{room}}}\n")
    };
    rooms.iter().map(line).collect()
}

fn world() -> World {
    let world = World::with_tools(TOOLS);
    world.write("trip.yaml", TRIP);
    world.write("waiting.yaml", WAITING);
    world
}

/// A job that waits after two bookings.
fn waiting() -> (World, String) {
    let world = world();
    let mut run = world.start(&["run", "waiting.yaml"]);
    run.says("leaves it waiting");
    run.kill();
    let id = world.job();
    (world, id)
}

#[test]
fn a_failed_job_is_undone_newest_first_and_says_what_cannot_be() {
    let world = world();
    let checked = world.gesta(&["check", "trip.yaml"]).ok();
    assert!(
        checked.contains("undo    when it fails, or by `cancel --compensate`: first, second, third; cannot be undone: told"),
        "{checked}"
    );
    let graph = world.gesta(&["graph", "trip.yaml"]).ok();
    assert!(graph.contains("first<br/>book<br/>undo: give_back"), "{graph}");
    let ran = world.gesta(&["run", "trip.yaml"]).expect(10);
    assert_eq!(world.read("given_back"), given_back(&[3, 2, 1]));
    assert!(ran.err.contains("undoing 3 effects: step `last` failed"), "{}", ran.err);
    for what in [
        "external, undone, entry",
        "irreversible, cannot be undone: nothing says how, entry",
        "external, undoes third, entry",
    ] {
        assert!(ran.out.contains(what), "{what}: {}", ran.out);
    }
    let id = world.job();
    let again = world.gesta(&["resume", &id, "--json"]).expect(10).out;
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    let undone: Vec<&str> = again["effects"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["undone"].as_str())
        .collect();
    assert_eq!(undone, ["done", "done", "cannot_be", "done"]);
    let log = world.gesta(&["log", &id]).ok();
    assert!(log.contains("undo third, second, first: step `last` failed"), "{log}");
    assert!(log.contains("compensated: "), "{log}");
    world.gesta(&["verify", &id]).ok();
}

#[test]
fn a_cancelled_job_is_undone_if_whoever_asks_says_so() {
    let (world, id) = waiting();
    let told = world.gesta(&["cancel", &id, "--compensate", "--reason", "ill"]).ok();
    assert!(told.contains("is to stop, and what it did is undone"), "{told}");
    let again = world.gesta(&["cancel", &id, "--json"]).json();
    assert_eq!((&again["new"], &again["compensate"]), (&false.into(), &true.into()));
    let ended = world.gesta(&["resume", &id]).expect(11);
    assert!(ended.out.contains("cancelled  waiting"), "{}", ended.out);
    assert_eq!(world.read("given_back"), given_back(&[2, 1]));

    let (world, id) = waiting();
    world.gesta(&["cancel", &id]).ok();
    let late = world.gesta(&["cancel", &id, "--compensate"]).expect(1);
    assert!(late.err.contains("what it did is not undone"), "{}", late.err);
    world.gesta(&["resume", &id]).expect(11);
    assert_eq!(world.files("returned"), 0, "what was done stays done");
}

#[test]
fn an_undo_that_does_not_succeed_is_listed_tried_again_and_given_up() {
    let (world, id) = waiting();
    world.write("full", "");
    world.gesta(&["cancel", &id, "--compensate"]).ok();
    let stuck = world.gesta(&["resume", &id]).expect(12);
    assert!(stuck.err.contains("second/undo waits for a person to decide"), "{}", stuck.err);
    assert!(stuck.out.contains("not undone yet"), "{}", stuck.out);
    assert!(world.gesta(&["jobs"]).ok().contains("second/undo is stuck"));
    let told = world.gesta(&["doubts"]).ok();
    for what in [
        "undoes     second, which stands as it was done",
        "call       give_back {\"booking\":\"b-second\",\"room\":2}",
        "the house is closed",
        "--give-up   # it stays as it is; the rest is undone",
    ] {
        assert!(told.contains(what), "{what}:\n{told}");
    }
    let listed = world.gesta(&["doubts", "--json"]).json_lines();
    assert_eq!((&listed[0]["on"], &listed[0]["undoes"]), (&"undo".into(), &"second".into()));
    let wrong = world.gesta(&["resolve", &id, "--happened", "{}"]).expect(2);
    assert!(wrong.err.contains("`--did-not-happen` tries it again"), "{}", wrong.err);

    world.gesta(&["resolve", &id, "--did-not-happen"]).ok();
    world.gesta(&["resume", &id]).expect(12);
    assert_eq!(world.files("returned"), 0);
    world.gesta(&["resolve", &format!("{id}/second/undo"), "--give-up"]).ok();
    std::fs::remove_file(world.path("full")).unwrap();
    let ended = world.gesta(&["resume", &id]).expect(11);
    assert!(ended.out.contains("not undone: given up"), "{}", ended.out);
    assert_eq!(world.read("given_back"), given_back(&[1]), "the rest is undone");
    world.gesta(&["verify", &id]).ok();
}

/// Real processes that are killed at each point of a rollback, and others that go on.
#[cfg(feature = "cuts")]
mod cut {
    use super::*;

    /// Five calls, then three undos; an append before each call, and one after the last.
    fn cuts() -> Vec<String> {
        let calls = (6..=8).flat_map(|n| {
            ["after_gate", "after_dispatch", "after_examine"].map(|point| format!("{point}:{n}"))
        });
        let appends = (6..=9)
            .flat_map(|n| ["before_append", "after_append"].map(|point| format!("{point}:{n}")));
        calls.chain(appends).collect()
    }

    fn play(world: &World, store: &[(&str, &str)], cut: &str) {
        let run = |arguments: &[&str]| world.gesta_with(arguments, store);
        let variables = [store, &[("GESTA_CUT", cut)]].concat();
        let killed = world.gesta_with(&["run", "trip.yaml", "--key", "trip"], &variables);
        assert_eq!(killed.code, None, "{cut}: it was not killed:\n{}", killed.err);
        let ended = run(&["run", "trip.yaml", "--key", "trip", "--json"]).expect(10).out;
        let ended: serde_json::Value = serde_json::from_str(&ended).unwrap();
        let id = ended["trajectory"].as_str().unwrap();
        assert_eq!(world.read("given_back"), given_back(&[3, 2, 1]), "{cut}");
        let lines = run(&["log", id, "--json"]).json_lines();
        let rollbacks = lines.iter().filter(|line| line["entry"]["kind"] == "compensation");
        assert_eq!(rollbacks.count(), 1, "{cut}: {lines:?}");
        run(&["verify", id]).ok();
    }

    #[test]
    fn a_rollback_that_is_killed_anywhere_goes_on_and_undoes_everything_once() {
        for cut in cuts() {
            play(&world(), &[], &cut);
        }
    }

    /// Where a dead owner is known by its lease alone; all at once, for what they do is wait.
    #[cfg(feature = "postgres")]
    #[test]
    fn a_rollback_that_is_killed_anywhere_on_postgres_goes_on_and_undoes_everything_once() {
        std::thread::scope(|scope| {
            for (number, cut) in cuts().into_iter().enumerate() {
                scope.spawn(move || {
                    let database = crate::postgres::Database::new(&format!("rollback_{number}"));
                    let url = database.url();
                    let world = World::new();
                    world.free();
                    world.gesta(&["init", "--store", &url]).ok();
                    world.set_tools(TOOLS);
                    world.write("trip.yaml", TRIP);
                    play(&world, &[("GESTA_STORE", &url)], &cut);
                });
            }
        });
    }
}

/// What `docs/recovery.md` tells.
#[test]
fn the_example_is_undone_and_confirmed_as_its_page_says() {
    let run = |world: &World| {
        let mut run = world.start(&["run", "examples/trip/job.yaml", "--input", "city=Rome"]);
        run.says("leaves it waiting");
        run.kill();
        let id = world.job();
        assert_eq!(world.files("examples/trip/outside/hotel"), 1);
        world.gesta(&["signal", &id, "paid"]).ok();
        id
    };
    let world = World::with_examples();
    let id = run(&world);
    world.write("examples/trip/outside/full", "");
    let failed = world.gesta(&["resume", &id]).expect(10);
    assert!(failed.err.contains("undoing 1 effect: step `train` failed"), "{}", failed.err);
    assert_eq!(world.files("examples/trip/outside/hotel"), 0);

    let world = World::with_examples();
    let id = run(&world);
    std::fs::remove_dir_all(world.path("examples/trip/outside/hotel")).unwrap();
    world.gesta(&["resume", &id]).expect(12);
    let told = world.gesta(&["doubts"]).ok();
    assert!(told.contains("is not as it was left"), "{told}");
    world.gesta(&["confirm", &id, "train"]).ok();
    let done = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!(done["answer"]["seat"], "12a");
}
