//! Servers that are programs: what they are given, what they may do, and how they end.

use serde_json::{Value, json};

use crate::world::{LONG, World, answer, ask, call_within, hearing, is_alive, output, tool, until};

#[tokio::test]
async fn what_is_sent_and_what_is_recorded_is_raw_json() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    // Written otherwise by most libraries: an exponent, an order by UTF-16, a slash.
    let args = json!({"\u{ff61}": 1e21, "\u{10002}": 0.1, "a/b": [1e-7, -0.0], "z": null});
    let result = output(ask(&catalogue, "odd.pay", &args).await);
    let wanted = r#"{"content":[],"x-extra":{"kept" : 1e2},"structuredContent":{"paid":true}}"#;
    assert_eq!(result, wanted);
    let sent = world.journal("tools/call").pop().unwrap();
    let canonical = gesta_core::json::Canon::of(&args).unwrap();
    let message: Value = serde_json::from_str(&sent).unwrap();
    assert!(sent.contains(&format!("\"arguments\":{canonical},")), "{sent}");
    assert_eq!(message["params"]["_meta"]["gesta/idempotencyKey"], "gesta-0123");
    assert_eq!(message["params"]["_meta"]["gesta/attempt"], 3);
    assert!(!message["params"]["_meta"]["progressToken"].is_null());
}

#[tokio::test]
async fn calls_share_one_server_and_their_replies_are_not_mixed_up() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let args: Vec<Value> = (1..=40).map(|n| json!({"bytes": n * 100})).collect();
    let calls = args.iter().map(|args| ask(&catalogue, "odd.huge", args));
    let mut lengths = Vec::new();
    for reply in join_all(calls).await {
        lengths.push(answer(reply)["content"][0]["text"].as_str().unwrap().len());
    }
    assert_eq!(lengths, (1..=40).map(|n| n * 100).collect::<Vec<usize>>());
    assert_eq!(world.read("starts").lines().count(), 2, "one to be pinned, one for all calls");
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut waits = false;
        for (future, done) in &mut running {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(reply) => *done = Some(reply),
                    std::task::Poll::Pending => waits = true,
                }
            }
        }
        if waits { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    running.into_iter().map(|(_, done)| done.unwrap()).collect()
}

#[tokio::test]
async fn a_server_has_no_environment_but_what_is_declared_and_its_secrets_are_masked() {
    let world = World::new();
    world.write("token", "swordfish-9000\n");
    let more = "set = { COLOUR = \"red\" }\nsecrets = { TOKEN = { file = \"token\" } }\n";
    let catalogue = world.pinned(&world.stdio("odd", more)).await;
    let told = output(ask(&catalogue, "odd.env", &json!({})).await);
    assert!(!told.contains("swordfish"), "{told}");
    let told: Value = serde_json::from_str(&told).unwrap();
    let seen = json!({"COLOUR": "red", "TOKEN": "[secret TOKEN]"});
    assert_eq!(told["structuredContent"]["env"], seen);
    let died = crate::world::failure(ask(&catalogue, "odd.die", &json!({})).await);
    assert!(died.message.ends_with("dying with [secret TOKEN]"), "{died:?}");

    // A new value reaches a server that was started with it, and is masked as the old one was.
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    world.write("token", "tigershark-1\n");
    let told = output(ask(&catalogue, "odd.env", &json!({})).await);
    assert!(told.contains("\"TOKEN\":\"[secret TOKEN]\""), "{told}");
    assert!(!told.contains("tigershark") && !told.contains("swordfish"), "{told}");
    world.write("broken", "");
    let refused = world.offers(&world.stdio("odd", more)).await.unwrap_err();
    assert!(refused.ends_with("cannot start with [secret TOKEN]"), "{refused}");
}

#[tokio::test]
async fn a_flood_of_notifications_does_not_drown_a_call() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let (call, heard) = hearing(call_within(&json!({}), LONG));
    answer(tool(&catalogue, "odd.flood").call(call).await);
    let heard = heard.lock().unwrap();
    assert!((1..100).contains(&heard.len()), "{} of 20000", heard.len());
    assert_eq!(heard[0], "progress 0");
}

#[tokio::test]
async fn a_server_that_wants_something_of_us_is_refused() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let told = answer(ask(&catalogue, "odd.asks", &json!({})).await);
    assert_eq!(told["structuredContent"]["replies"], json!([-32601, -32601, -32601]));
}

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    answer(ask(&catalogue, "odd.noise", &json!({})).await);
}

#[tokio::test]
async fn a_server_ends_with_whoever_wanted_it() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    let pids = || world.read("starts").lines().map(str::to_owned).collect::<Vec<_>>();
    let asked = pids()[0].clone();
    until(|| !is_alive(&asked)).await;
    // This one would live on when nobody talks to it, and has a child in a group of its own.
    let told = answer(ask(&catalogue, "odd.stay", &json!({})).await);
    let told = told["structuredContent"]["pids"].as_array().unwrap().clone();
    let family: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(family[0], pids()[1]);
    assert!(family.iter().all(|pid| is_alive(pid)));
    drop(catalogue);
    until(|| !family.iter().any(|pid| is_alive(pid))).await;
}
