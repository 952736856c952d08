//! Servers behind a URL that misbehave. Nothing is sent a second time.

use std::time::Duration;

use gesta_core::document::Certainty::{DidNotHappen, Unknown};
use gesta_runtime::tools::code;
use serde_json::{Value, json};

use crate::world::{World, answer, ask, call_within, eventually, failure, output, tool, until};

#[tokio::test]
async fn calls_are_raw_and_secrets_travel_in_headers_and_nowhere_else() {
    let world = World::new();
    world.write("token", "swordfish-9000\n");
    let more = "headers = { Authorization = \"Bearer {secret:TOKEN}\" }\nsecrets = { TOKEN = { file = \"token\" } }\n";
    let (_web, toml) = world.http("odd", more).await;
    let catalogue = world.pinned(&toml).await;
    let result = output(ask(&catalogue, "odd.pay", &json!({"n": 1e21})).await);
    let wanted = r#"{"content":[],"x-extra":{"kept" : 1e2},"structuredContent":{"paid":true}}"#;
    assert_eq!(result, wanted);
    assert!(world.journal("tools/call")[0].contains("\"arguments\":{\"n\":1e+21},"));
    let headers: Vec<Value> =
        world.read("headers").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(headers.iter().all(|sent| sent["authorization"] == "Bearer swordfish-9000"));
    let last = headers.last().unwrap();
    assert_eq!(last["mcp-session-id"], "s-1");
    assert_eq!(last["mcp-protocol-version"], "2025-11-25");
    assert!(!world.read("journal").contains("swordfish"));
    assert!(!catalogue.canonical().as_str().contains("swordfish"));
    let told = answer(ask(&catalogue, "odd.asks", &json!({})).await);
    assert_eq!(told["structuredContent"]["replies"], json!([-32601, -32601, -32601]));
}

#[tokio::test]
async fn a_reply_that_is_lost_leaves_an_unknown_and_is_not_asked_for_again() {
    let world = World::new();
    let (_web, toml) = world.http("odd", "").await;
    let catalogue = world.pinned(&toml).await;
    for (sent, name) in [(1, "odd.die"), (2, "odd.cut")] {
        let lost = failure(ask(&catalogue, name, &json!({})).await);
        assert_eq!((lost.certainty, lost.code.as_str()), (Unknown, code::REPLY_LOST), "{lost:?}");
        assert_eq!(world.deliveries(), sent);
    }
    let huge = failure(ask(&catalogue, "odd.huge", &json!({"bytes": 5 << 20})).await);
    assert_eq!((huge.certainty, huge.code.as_str()), (Unknown, code::OUTPUT_TOO_LARGE));
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_says_what_is_known() {
    let world = World::new();
    let (_web, toml) = world.http("odd", "").await;
    let catalogue = world.pinned(&toml).await;
    let expected = [
        (500, Unknown, true),
        (502, Unknown, true),
        (503, Unknown, true),
        (504, Unknown, true),
        (408, Unknown, true),
        (302, Unknown, true),
        (307, Unknown, true),
        (400, DidNotHappen, false),
        (401, DidNotHappen, false),
        (425, DidNotHappen, true),
        (429, DidNotHappen, true),
    ];
    let mut number = 0;
    for (status, certainty, retryable) in expected {
        let failed = failure(ask(&catalogue, "odd.status", &json!({"status": status})).await);
        assert_eq!((failed.certainty, failed.retryable), (certainty, retryable), "{failed:?}");
        number += 1;
        assert_eq!(world.deliveries(), number, "no redirect is followed, nothing is repeated");
    }
    // What changes nothing did not happen unless it answers.
    let read = format!("{toml}[mcp.odd.tools.status]\neffect = \"read\"\n");
    let catalogue = world.pinned(&read).await;
    for (status, retryable) in [(500, true), (503, true), (408, true), (302, false), (400, false)] {
        let failed = failure(ask(&catalogue, "odd.status", &json!({"status": status})).await);
        assert_eq!((failed.certainty, failed.retryable), (DidNotHappen, retryable), "{failed:?}");
        number += 1;
        assert_eq!(world.deliveries(), number, "no redirect is followed, nothing is repeated");
    }
}

#[tokio::test]
async fn a_session_that_has_ended_is_begun_again_by_the_next_call_and_not_by_this_one() {
    let world = World::new();
    let (_web, toml) = world.http("odd", "").await;
    let catalogue = world.pinned(&toml).await;
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    let begun = world.journal("initialize").len();
    world.write("expired", "");
    let ended = failure(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!((ended.certainty, ended.retryable), (DidNotHappen, true), "{ended:?}");
    assert_eq!(world.journal("initialize").len(), begun);
    std::fs::remove_file(world.path("expired")).unwrap();
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!(world.journal("initialize").len(), begun + 1);
    assert_eq!(world.deliveries(), 2);
}

#[tokio::test]
async fn the_deadline_calls_a_call_off() {
    let world = World::new();
    let (_web, toml) = world.http("odd", "").await;
    let catalogue = world.pinned(&toml).await;
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    let call = call_within(&json!({}), Duration::from_millis(500));
    let late = failure(tool(&catalogue, "odd.hang").call(call).await);
    assert_eq!((late.certainty, late.code.as_str()), (Unknown, code::DEADLINE_PASSED));
    eventually(|| world.journal("notifications/cancelled").pop()).await;
    assert_eq!(world.deliveries(), 2);
}

#[tokio::test]
async fn a_server_that_is_gone_was_sent_nothing() {
    let world = World::new();
    let (web, toml) = world.http("odd", "").await;
    let catalogue = world.pinned(&toml).await;
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    drop(web);
    let gone = failure(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!((gone.certainty, gone.code.as_str()), (DidNotHappen, code::NOT_CONNECTED));
    assert_eq!(world.deliveries(), 1);
}

#[tokio::test]
async fn a_private_address_needs_to_be_allowed() {
    let world = World::new();
    let (_web, toml) = world.http("odd", "").await;
    let refused = world.offers(&toml.replace("allow_private = true\n", "")).await.unwrap_err();
    assert!(refused.contains("which is loopback; `allow_private = true`"), "{refused}");
    assert!(world.journal("initialize").is_empty());
}

#[tokio::test]
async fn a_description_that_changed_meanwhile_is_noticed_on_the_next_connection() {
    let world = World::new();
    let (_web, toml) = world.http("odd", "").await;
    let catalogue = world.pinned(&toml).await;
    answer(ask(&catalogue, "odd.change", &json!({})).await);
    until(|| tool(&catalogue, "odd.pay").frozen().is_some()).await;
    let frozen = failure(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!((frozen.certainty, frozen.code.as_str()), (DidNotHappen, code::TOOL_FROZEN));
    assert_eq!(world.deliveries(), 1);
}
