//! What is known of the effect when a call does not simply succeed. Every call is delivered at most
//! once.

use std::time::Duration;

use gesta_core::document::Certainty::{DidNotHappen, Happened, Unknown};
use gesta_runtime::tools::code;
use serde_json::{Value, json};

use crate::world::{World, answer, ask, call_within, eventually, failure, is_alive, tool, until};

const SHORT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_an_unknown_and_starts_again_for_the_next() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let died = failure(ask(&catalogue, "odd.die", &json!({})).await);
    assert_eq!((died.certainty, died.code.as_str()), (Unknown, code::REPLY_LOST), "{died:?}");
    assert!(died.message.contains("exited with code 7"), "{died:?}");
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!(world.deliveries(), 2, "each call once");
    // Asked once to be pinned, then for each of the two calls.
    assert_eq!(world.read("starts").lines().count(), 3);
}

#[tokio::test]
async fn a_server_that_is_killed_in_a_call_leaves_an_unknown() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let kill = async {
        until(|| world.deliveries() == 1).await;
        let starts = world.read("starts");
        let pid = starts.lines().next_back().unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let args = json!({});
    let (reply, ()) = tokio::join!(ask(&catalogue, "odd.hang", &args), kill);
    let killed = failure(reply);
    assert_eq!(killed.certainty, Unknown);
    assert!(killed.message.contains("was ended by signal 9"), "{killed:?}");
    assert_eq!(world.deliveries(), 1);
}

#[tokio::test]
async fn a_server_that_cannot_be_started_was_sent_nothing() {
    let world = World::new();
    let toml = world.stdio("odd", "");
    let offers = world.offers(&toml).await.unwrap();
    let catalogue =
        |toml: &str| world.builder(toml).unwrap().offers(offers.clone()).build().unwrap();
    world.write("broken", "");
    let broken = failure(ask(&catalogue(&toml), "odd.pay", &json!({})).await);
    assert_eq!((broken.certainty, broken.retryable), (DidNotHappen, true), "{broken:?}");
    assert!(broken.message.contains("exited with code 3: cannot start"), "{broken:?}");

    let gone = "[mcp.odd]\ncommand = [\"./no-such-program\"]\n";
    let missing = failure(ask(&catalogue(gone), "odd.pay", &json!({})).await);
    assert_eq!((missing.certainty, missing.code.as_str()), (DidNotHappen, code::TOOL_NOT_STARTED));
    let silent = "[mcp.odd]\ncommand = [\"cat\"]\n";
    let asked = tool(&catalogue(silent), "odd.pay").call(call_within(&json!({}), SHORT)).await;
    let silent = failure(asked);
    assert_eq!(silent.certainty, DidNotHappen, "{silent:?}");
    assert_eq!(world.deliveries(), 0);
}

#[tokio::test]
async fn the_deadline_calls_a_call_off() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    let late = tool(&catalogue, "odd.hang").call(call_within(&json!({}), SHORT)).await;
    let late = failure(late);
    assert_eq!((late.certainty, late.code.as_str()), (Unknown, code::DEADLINE_PASSED));
    let cancelled = eventually(|| world.journal("notifications/cancelled").pop()).await;
    let cancelled: Value = serde_json::from_str(&cancelled).unwrap();
    let hung: Value = serde_json::from_str(&world.journal("tools/call")[1]).unwrap();
    assert_eq!(cancelled["params"]["requestId"], hung["id"]);
    // The server goes on for the others.
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!(world.read("starts").lines().count(), 2);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_called_off() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let args = json!({});
    tokio::select! {
        _ = ask(&catalogue, "odd.hang", &args) => panic!("it never answers"),
        () = until(|| world.deliveries() == 1) => {}
    }
    eventually(|| world.journal("notifications/cancelled").pop()).await;
}

#[tokio::test]
async fn a_deadline_before_anything_was_sent_is_no_unknown() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let soon = call_within(&json!({}), Duration::from_millis(1));
    let late = failure(tool(&catalogue, "odd.pay").call(soon).await);
    assert_eq!(late.certainty, DidNotHappen, "{late:?}");
    assert_eq!(world.deliveries(), 0);
}

#[tokio::test]
async fn an_error_of_a_tool_says_nothing_of_its_effect_unless_somebody_says_so() {
    let world = World::new();
    let rules =
        "[mcp.odd.tools.refuse]\ncodes = { \"-7\" = \"did_not_happen\", \"-8\" = \"happened\" }\n";
    let catalogue = world.pinned(&world.stdio("odd", rules)).await;
    let failed = failure(ask(&catalogue, "odd.fail", &json!({})).await);
    assert_eq!((failed.certainty, failed.code.as_str()), (Unknown, code::TOOL_FAILED));
    assert!(failed.message.ends_with("failed: out of paper"), "{failed:?}");
    assert!(failed.output.contains("\"isError\":true"), "what it said is kept: {failed:?}");
    // What only reads has changed nothing.
    let looked = failure(ask(&catalogue, "odd.look", &json!({})).await);
    assert_eq!(looked.certainty, DidNotHappen);

    let declared = "[mcp.odd.tools.fail]\nerrors = \"did_not_happen\"\n";
    let catalogue_by_rule = world.pinned(&world.stdio("odd", declared)).await;
    let failed = failure(ask(&catalogue_by_rule, "odd.fail", &json!({})).await);
    assert_eq!((failed.certainty, failed.retryable), (DidNotHappen, false));

    for (number, expected) in [
        (-32602, DidNotHappen),
        (-32601, DidNotHappen),
        (-32603, Unknown),
        (-32000, Unknown),
        (-7, DidNotHappen),
        (-8, Happened),
    ] {
        let refused = failure(ask(&catalogue, "odd.refuse", &json!({"code": number})).await);
        assert_eq!(refused.certainty, expected, "{number}");
        assert_eq!(refused.code, code::MCP_ERROR);
        assert!(refused.output.contains("\"data\":{\"more\":1}"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_question_in_place_of_a_result_is_no_result() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let asked = failure(ask(&catalogue, "odd.ask", &json!({})).await);
    assert_eq!((asked.certainty, asked.code.as_str()), (Unknown, code::MCP_ERROR), "{asked:?}");
    let nothing = failure(ask(&catalogue, "odd.nothing", &json!({})).await);
    assert_eq!((nothing.certainty, nothing.code.as_str()), (Unknown, code::REPLY_LOST));
}

#[tokio::test]
async fn a_server_that_says_too_much_at_once_is_ended() {
    let world = World::new();
    let toml = world.stdio("odd", "max_output = \"64KiB\"\n");
    let catalogue = world.pinned(&toml).await;
    let huge = failure(ask(&catalogue, "odd.huge", &json!({"bytes": 70_000})).await);
    assert_eq!((huge.certainty, huge.code.as_str()), (Unknown, code::OUTPUT_TOO_LARGE), "{huge:?}");
    let starts = world.read("starts");
    let pid = starts.lines().next_back().unwrap().to_owned();
    until(|| !is_alive(&pid)).await;
    answer(ask(&catalogue, "odd.huge", &json!({"bytes": 60_000})).await);
}
