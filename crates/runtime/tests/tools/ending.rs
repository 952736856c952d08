//! Nothing that a tool starts outlives its call, whoever dies first and however it hides.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use gesta_core::document::Certainty::Unknown;
use gesta_runtime::tools::{Catalogue, code};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::world::{World, answer, ask, call_within, check_failure, send};

/// Set in the process that is started to be killed: the directory of its tools.
const ORDERS: &str = "GESTA_TEST_TOOLS_WORKER";

/// Tells over the pipe that it runs, and under whom.
const HERE: &str = "exec 9>alive; echo \"$PPID $$\" >&9";
/// Ways to stay alive.
const HIDING: [(&str, &str); 6] = [
    ("hangs", "sleep 1000"),
    ("ignores requests to end", "trap '' TERM INT HUP; while :; do sleep 1000; done"),
    ("forks", "sleep 1000 & sleep 1000 & wait"),
    ("leaves its group", "setsid sleep 1000 & wait"),
    ("forks twice and leaves its session", "setsid sh -c 'setsid sleep 1000 & exit' & sleep 1000"),
    (
        "leaves, ignores and forks",
        "setsid sh -c \"trap '' TERM; (setsid sleep 1000 &) ; sleep 1000\" & wait",
    ),
];

fn tool(world: &World, script: &str) -> Catalogue {
    world.script("tool", script);
    world.catalogue(
        "[tools.t]\neffect = \"write\"\n[tools.t.driver.process]\ncommand = [\"./tool\"]\nenv = [\"PATH\"]\n",
    )
}

#[tokio::test]
async fn at_the_deadline_everything_is_ended() {
    for (what, hide) in HIDING {
        let world = World::new();
        let catalogue = tool(&world, &format!("{HERE}\n{hide}"));
        let pipe = world.pipe();
        let time = Duration::from_millis(1_500);
        let (reply, (_, alive)) =
            tokio::join!(send(&catalogue, "t", call_within(&json!({}), time)), pipe.line());
        check_failure(reply, Unknown, true, code::DEADLINE_PASSED);
        assert_eq!(alive.ended().await, "", "{what}");
    }
}

#[tokio::test]
async fn dropping_the_call_ends_everything() {
    for (what, hide) in HIDING {
        let world = World::new();
        let catalogue = tool(&world, &format!("{HERE}\n{hide}"));
        let pipe = world.pipe();
        let alive = tokio::select! {
            reply = ask(&catalogue, "t", &json!({})) => panic!("{what}: {reply:?}"),
            (_, alive) = pipe.line() => alive,
        };
        assert_eq!(alive.ended().await, "", "{what}");
    }
}

#[tokio::test]
async fn what_a_tool_leaves_behind_ends_with_it() {
    for leave in [
        "sleep 1000 &",
        "setsid sleep 1000 &",
        "setsid sh -c 'setsid sleep 1000 &'",
        "(setsid sh -c \"trap '' TERM HUP; while :; do sleep 1000; done\" &)",
    ] {
        let world = World::new();
        let catalogue = tool(&world, &format!("{HERE}\n{leave}\necho done"));
        let pipe = world.pipe();
        let (reply, (_, alive)) = tokio::join!(ask(&catalogue, "t", &json!({})), pipe.line());
        assert_eq!(answer(reply), "done\n", "{leave}");
        assert_eq!(alive.ended().await, "", "{leave}");
    }
}

#[tokio::test]
async fn a_flood_from_a_grandchild_is_ended_too() {
    let world = World::new();
    let catalogue = tool(&world, &format!("{HERE}\nsetsid yes & wait"));
    let pipe = world.pipe();
    let (reply, (_, alive)) = tokio::join!(ask(&catalogue, "t", &json!({})), pipe.line());
    check_failure(reply, Unknown, true, code::OUTPUT_TOO_LARGE);
    assert_eq!(alive.ended().await, "");
}

/// In a process that was started as a worker, makes a call that never ends; otherwise there is
/// nothing to do here.
#[tokio::test]
async fn worker_process() {
    let Some(dir) = std::env::var_os(ORDERS) else { return };
    let toml = std::fs::read_to_string(std::path::Path::new(&dir).join("tools.toml")).unwrap();
    let catalogue = Catalogue::builder().process(crate::world::options());
    let catalogue =
        catalogue.file("f", &toml, std::path::Path::new(&dir)).unwrap().build().unwrap();
    ask(&catalogue, "t", &json!({})).await;
}

#[tokio::test]
async fn a_killed_worker_takes_everything_with_it() {
    for (what, hide) in HIDING {
        let world = World::new();
        world.script("tool", &format!("{HERE}\n{hide}"));
        world.write(
            "tools.toml",
            "[tools.t]\neffect = \"write\"\n[tools.t.driver.process]\ncommand = [\"./tool\"]\nenv = [\"PATH\"]\n",
        );
        let pipe = world.pipe();
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ending::worker_process", "--nocapture"])
            .env(ORDERS, world.dir.path())
            .spawn()
            .unwrap();
        let (_, alive) = pipe.line().await;
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert_eq!(alive.ended().await, "", "{what}");
    }
}

/// The kernel kills the program with its supervisor; the pipe is not inherited by anything else here.
#[tokio::test]
async fn a_killed_supervisor_takes_the_program_with_it_and_leaves_the_effect_unknown() {
    let world = World::new();
    // A shell that waits by itself, without a child.
    let catalogue = tool(&world, &format!("{HERE}\nmkfifo never; read x <never"));
    let pipe = world.pipe();
    let killing = async {
        let (line, alive) = pipe.line().await;
        let supervisor = line.split(' ').next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
        alive
    };
    let (reply, alive) = tokio::join!(ask(&catalogue, "t", &json!({})), killing);
    check_failure(reply, Unknown, true, code::REPLY_LOST);
    assert_eq!(alive.ended().await, "");
}

/// The supervisor itself is held to the deadline by the worker.
#[tokio::test]
async fn a_stopped_supervisor_does_not_hold_up_the_worker() {
    let world = World::new();
    let catalogue = tool(&world, &format!("{HERE}\nmkfifo never; read x <never"));
    let pipe = world.pipe();
    let stopping = async {
        let (line, alive) = pipe.line().await;
        let supervisor = Pid::from_raw(line.split(' ').next().unwrap().parse().unwrap()).unwrap();
        kill_process(supervisor, Signal::STOP).unwrap();
        (supervisor, alive)
    };
    let time = Duration::from_secs(2);
    let calling = send(&catalogue, "t", call_within(&json!({}), time));
    let (reply, (supervisor, alive)) = tokio::join!(calling, stopping);
    check_failure(reply, Unknown, true, code::DEADLINE_PASSED);
    kill_process(supervisor, Signal::CONT).unwrap();
    assert_eq!(alive.ended().await, "");
}

#[tokio::test]
async fn many_calls_run_at_once_and_keep_apart() {
    let world = World::new();
    let catalogue = Arc::new(tool(&world, "read line; echo \"$line\""));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..16 {
        let catalogue = Arc::clone(&catalogue);
        calls.spawn(async move { (n, ask(&catalogue, "t", &json!({ "n": n })).await) });
    }
    for (n, reply) in calls.join_all().await {
        assert_eq!(answer(reply), format!("{{\"n\":{n}}}\n"));
    }
}
