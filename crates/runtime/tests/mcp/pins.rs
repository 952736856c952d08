//! What was accepted of a server, and what becomes of a tool that is not that any more.

use gesta_core::document::Certainty::DidNotHappen;
use gesta_runtime::job;
use gesta_runtime::tools::{Offer, Pins, code};
use serde_json::json;

use crate::world::{Offers, World, answer, ask, failure, tool, until};

#[tokio::test]
async fn a_tool_that_is_described_otherwise_is_frozen_and_the_others_are_not() {
    let world = World::new();
    let toml = world.stdio("odd", "");
    let catalogue = world.pinned(&toml).await;
    world.write("description", "Pays twice");
    let frozen = failure(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!((frozen.certainty, frozen.code.as_str()), (DidNotHappen, code::TOOL_FROZEN));
    assert!(frozen.message.contains("run `gesta tools pin`"), "{frozen:?}");
    assert!(tool(&catalogue, "odd.pay").frozen().is_some());
    assert_eq!(world.deliveries(), 0);
    answer(ask(&catalogue, "odd.noise", &json!({})).await);
    assert!(tool(&catalogue, "odd.noise").frozen().is_none());

    // Pinned again, it is another tool and may be called.
    let again = world.pinned(&toml).await;
    assert_ne!(tool(&again, "odd.pay").digest(), tool(&catalogue, "odd.pay").digest());
    assert_eq!(tool(&again, "odd.noise").digest(), tool(&catalogue, "odd.noise").digest());
    answer(ask(&again, "odd.pay", &json!({})).await);
}

#[tokio::test]
async fn a_server_that_says_its_tools_have_changed_is_looked_at_once() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    answer(ask(&catalogue, "odd.change", &json!({})).await);
    until(|| tool(&catalogue, "odd.pay").frozen().is_some()).await;
    assert!(tool(&catalogue, "odd.change").frozen().is_none());
}

#[tokio::test]
async fn another_server_freezes_all_its_tools() {
    let world = World::new();
    let catalogue = world.pinned(&world.stdio("odd", "")).await;
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
    failure(ask(&catalogue, "odd.die", &json!({})).await);
    world.write("version", "2");
    let frozen = failure(ask(&catalogue, "odd.pay", &json!({})).await);
    assert_eq!((frozen.certainty, frozen.code.as_str()), (DidNotHappen, code::TOOL_FROZEN));
    assert!(catalogue.iter().all(|tool| tool.frozen().is_some()));
    assert_eq!(world.deliveries(), 2);
}

#[tokio::test]
async fn a_tool_that_is_gone_or_a_protocol_that_changed_freezes_too() {
    let world = World::new();
    let toml = world.stdio("odd", "");
    let mut offers = world.offers(&toml).await.unwrap();
    let offer = offers.values_mut().next().unwrap();
    let raw = offer.tools["pay"].replace("pay", "gone");
    offer.tools.insert("gone".to_owned(), raw);
    let catalogue = world.builder(&toml).unwrap().offers(offers).build().unwrap();
    let gone = failure(ask(&catalogue, "odd.gone", &json!({})).await);
    assert_eq!((gone.certainty, gone.code.as_str()), (DidNotHappen, code::TOOL_FROZEN));
    assert!(gone.message.contains("does not offer it any more"), "{gone:?}");
    answer(ask(&catalogue, "odd.pay", &json!({})).await);
}

#[tokio::test]
async fn an_operator_overrides_what_a_server_claims_and_that_is_pinned_too() {
    let world = World::new();
    let plain = world.stdio("odd", "");
    let offers = world.offers(&plain).await.unwrap();
    let build = |toml: &str| world.builder(toml).unwrap().offers(offers.clone()).build().unwrap();
    let more = "[mcp.odd.tools.look]\neffect = \"external\"\ntimeout = \"5s\"\n[mcp.odd.tools.pay]\nrecovery = \"keyed\"\nsettle = \"2s\"\ncost = { money_micros = 7 }\n";
    let mut catalogue = build(&world.stdio("odd", more));
    let look = tool(&catalogue, "odd.look").manifest();
    assert_eq!((look.effect.to_string(), look.timeout.ms()), ("external".to_owned(), 5_000));
    assert_eq!(look.recovery, gesta_core::document::Recovery::Never);
    let pay = tool(&catalogue, "odd.pay").manifest();
    assert_eq!(pay.recovery, gesta_core::document::Recovery::Keyed);
    assert_eq!((pay.settle.ms(), pay.cost.money_micros, pay.cost.calls), (2_000, 7, 1));
    let pins = Pins::of(&build(&plain)).with_offers(offers.clone());
    let problems = catalogue.apply_pins(&pins);
    let changed: Vec<&str> = problems.iter().map(|problem| problem.tool().as_str()).collect();
    assert_eq!(changed, ["odd.look", "odd.pay"]);
    assert!(tool(&catalogue, "odd.pay").frozen().is_some());
}

#[tokio::test]
async fn a_server_that_is_not_pinned_has_no_tools_and_a_job_is_told_why() {
    let world = World::new();
    let catalogue = world.builder(&world.stdio("odd", "")).unwrap().build().unwrap();
    assert_eq!(catalogue.iter().count(), 0);
    let unpinned: Vec<&str> =
        catalogue.unpinned_servers().iter().map(|name| name.as_str()).collect();
    assert_eq!(unpinned, ["odd"]);
    let text = "job: x\nsteps:\n  - id: a\n    tool: odd.pay\n";
    let problems = job::load("job.yaml", text, &catalogue).unwrap_err().to_string();
    assert!(problems.contains("MCP server `odd` is not pinned yet"), "{problems}");
    assert!(!crate::world::exists(&world.path("starts")), "nothing was started");
}

#[tokio::test]
async fn a_lock_file_holds_what_servers_said_byte_for_byte() {
    let world = World::new();
    let toml = world.stdio("odd", "");
    let offers = world.offers(&toml).await.unwrap();
    let catalogue = world.builder(&toml).unwrap().offers(offers.clone()).build().unwrap();
    let pins = Pins::of(&catalogue).with_offers(offers);
    let text = pins.to_text();
    assert_eq!(Pins::parse("gesta.lock", &text).unwrap(), pins);
    assert!(text.contains("server = '{\"name\":\"odd\",\"version\":\"1\"}'"), "{text}");

    let raw = "{\"name\":\"a'b\\\"\",\n\t\"\u{7f}\u{85}\":\"'''\\\\\"}\r\n".to_owned();
    let tools = [("we \"ird\"\n".to_owned(), raw.clone())].into();
    let offer = Offer { protocol: "2025-11-25".into(), server: raw, tools };
    let odd = Offers::from([("x".parse().unwrap(), offer)]);
    let pins = Pins::default().with_offers(odd);
    assert_eq!(Pins::parse("gesta.lock", &pins.to_text()).unwrap(), pins);
}
