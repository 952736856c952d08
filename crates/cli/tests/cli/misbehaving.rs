//! Tools that hang or leave others behind, and a clock that goes back: each on record, with its exit code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gesta_core::json::Canon;
use gesta_core::sample::person;
use gesta_runtime::jobs;
use gesta_store::Store;
use gesta_store::sqlite::{Options, SqliteStore};

use crate::world::World;

fn tool(name: &str, declared: &str, script: &str) -> String {
    format!(
        "[tools.{name}]\n{declared}\n[tools.{name}.driver.process]\ncommand = '''{script}'''\nshell = true\nenv = [\"PATH\"]\n"
    )
}

/// Waits until the process that a tool noted is no more.
fn is_gone(world: &World, noted: &str) {
    let process = format!("/proc/{}/stat", world.read(noted).trim());
    let started = Instant::now();
    // One that nobody has waited for yet is gone too.
    while std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(started.elapsed() < Duration::from_secs(20), "{noted} is still there");
        std::thread::yield_now();
    }
}

fn run(world: &World, tool: &str, code: i32) -> serde_json::Value {
    world.write("job.yaml", &format!("job: bad\nsteps:\n  - {{ id: a, tool: {tool} }}\n"));
    let ran = world.gesta(&["run", "job.yaml", "--json"]).expect(code);
    serde_json::from_str(&ran.out).unwrap()
}

/// Nobody knows what became of it: what acts is in doubt, what only looks has failed.
#[test]
fn a_tool_that_hangs_is_ended_at_its_deadline() {
    let script = "echo $$ > process; sleep 1000";
    let quick = "timeout = \"300ms\"\nretry = { attempts = 1 }";
    let acts = tool("acts", &format!("effect = \"external\"\n{quick}"), script);
    let looks = tool("looks", &format!("effect = \"read\"\n{quick}"), script);
    let world = World::with_tools(&format!("{acts}{looks}"));
    run(&world, "acts", 12);
    is_gone(&world, "process");
    let id = world.job();
    assert!(world.kinds(&id).contains(&"in_doubt".to_owned()));
    let told = run(&world, "looks", 10);
    assert_eq!(told["error"]["code"], "deadline_passed", "{told}");
    is_gone(&world, "process");
    world.gesta(&["verify"]).ok();
}

/// The call is over when the program is; what it has started does not outlive it.
#[test]
fn what_a_tool_leaves_behind_is_ended_with_its_call() {
    let quiet = "sleep 1000 > /dev/null 2>&1 & echo $! > left; echo '{\"n\":1}'";
    let apart = "setsid sleep 1000 > /dev/null 2>&1 & echo $! > left; echo '{\"n\":1}'";
    let effect = "effect = \"external\"";
    let tools = [tool("quiet", effect, quiet), tool("apart", effect, apart)].concat();
    let world = World::with_tools(&tools);
    for tool in ["quiet", "apart"] {
        let told = run(&world, tool, 0);
        assert_eq!(told["status"], "completed", "{told}");
        is_gone(&world, "left");
    }
    world.gesta(&["verify"]).ok();
}

/// What was written last lies in the future, as it does when the clock was put back between two runs: time
/// goes on from there, and nothing is lost.
#[test]
fn a_clock_that_was_put_back_loses_nothing() {
    let one = "echo paid >> paid; echo '{\"n\":1}'";
    let world = World::with_tools(&tool("pay", "effect = \"external\"", one));
    world.write(
        "job.yaml",
        "job: later\nsteps:\n  - { id: wait, wait: { signal: go } }\n  - { id: pay, tool: pay, needs: [wait] }\n",
    );
    let id = world.gesta(&["submit", "job.yaml", "--json"]).json();
    let id = id["trajectory"].as_str().unwrap().to_owned();
    let future = gesta_store::clock::system()().plus(3_600_000);
    {
        let store = SqliteStore::open(world.path("gesta.db"), Options::default()).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let signal = ("early".parse().unwrap(), "go".parse().unwrap());
        let (of, by) = (id.parse().unwrap(), person().unwrap());
        let nothing = Canon::null();
        let sent = jobs::signal(&store, of, &by, signal, &nothing, future);
        tokio::runtime::Runtime::new().unwrap().block_on(sent).unwrap();
    }
    world.gesta(&["resume", &id]).expect(0);
    assert_eq!(world.read("paid"), "paid\n");
    let rows = world.gesta(&["log", &id, "--json"]).json_lines();
    let times: Vec<u64> = rows.iter().map(|row| row["entry"]["at"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times.last() >= Some(&future.0), "{times:?}");
    world.gesta(&["verify", &id]).ok();
    world.gesta(&["replay", &id]).ok();
    // Another job is not held up by it.
    world.write("job.yaml", "job: now\nsteps:\n  - { id: pay, tool: pay }\n");
    world.gesta(&["run", "job.yaml"]).expect(0);
}
