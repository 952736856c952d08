//! Version 2026-07-28 of the protocol, spoken by a server on the official SDK that speaks nothing older.

use std::time::Duration;

use gesta_core::document::Certainty::Unknown;
use gesta_runtime::tools::code;
use serde_json::{Value, json};

use crate::world::{World, answer, ask, call_within, eventually, failure, tool, until};

/// Everything that either transport must be able to do.
async fn works(world: &World, toml: &str) {
    let offers = world.offers(toml).await.unwrap();
    let offer = offers.values().next().unwrap();
    assert_eq!(offer.protocol, "2026-07-28");
    assert_eq!(offer.server, r#"{"name":"modern","version":"1"}"#);
    let catalogue = world.pinned(toml).await;
    let sum = answer(ask(&catalogue, "modern.add", &json!({"a": 2, "b": 40})).await);
    assert_eq!(sum["structuredContent"]["sum"], 42);
    assert_eq!(sum["resultType"], "complete", "what the SDK's types would have dropped");
    let seen: Value = serde_json::from_str(world.read("journal").lines().next().unwrap()).unwrap();
    assert_eq!(seen["meta"]["gesta/idempotencyKey"], "gesta-0123");

    let call = call_within(&json!({}), Duration::from_millis(500));
    let late = failure(tool(&catalogue, "modern.wait").call(call).await);
    assert_eq!((late.certainty, late.code.as_str()), (Unknown, code::DEADLINE_PASSED));
    let journal = || world.read("journal");
    eventually(|| journal().contains("{\"cancelled\":\"wait\"}").then_some(())).await;

    answer(ask(&catalogue, "modern.change", &json!({})).await);
    until(|| tool(&catalogue, "modern.add").frozen().is_some()).await;
    assert!(tool(&catalogue, "modern.wait").frozen().is_none());
}

#[tokio::test]
async fn over_stdio() {
    let world = World::new();
    works(&world, &world.stdio("modern", "")).await;
}

#[tokio::test]
async fn over_streamable_http() {
    let world = World::new();
    let (_web, toml) = world.http("modern", "").await;
    works(&world, &toml).await;
}

#[tokio::test]
async fn a_version_that_is_insisted_on_is_spoken_or_nothing_is() {
    let world = World::new();
    let wanted = world.stdio("modern", "protocol = \"2026-07-28\"\n");
    assert_eq!(world.offers(&wanted).await.unwrap().len(), 1);
    let older = world.stdio("modern", "protocol = \"2025-11-25\"\n");
    let refused = world.offers(&older).await.unwrap_err();
    assert!(refused.contains("it refuses the handshake"), "{refused}");
    let newer = world.stdio("odd", "protocol = \"2026-07-28\"\n");
    let refused = world.offers(&newer).await.unwrap_err();
    assert!(refused.contains("it refuses the handshake"), "{refused}");
    let odd = world.stdio("odd", "protocol = \"2025-06-18\"\n");
    assert_eq!(world.offers(&odd).await.unwrap().values().next().unwrap().protocol, "2025-06-18");
}
