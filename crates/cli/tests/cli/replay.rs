//! `gesta replay`: what a job did is derived again, and other rules are tried on it.

use crate::world::World;

const ASKS: &str = r#"@id("reads") permit(principal, action, resource) when { resource.effect == Effect::"read" };
@id("no-mail") @reason("mail is not for agents") forbid(principal, action, resource == Tool::"mail.send");
@id("others") permit(principal, action in Action::"call", resource);
"#;

fn refunded() -> (World, String) {
    let world = World::new();
    let job = format!("{}/../../examples/refund/job.yaml", env!("CARGO_MANIFEST_DIR"));
    let told = world.gesta(&["run", &job, "--input", "order=1042", "--json"]).ok();
    let id = told.find("t_").and_then(|at| told.get(at..at + 34)).unwrap().to_owned();
    (world, id)
}

#[test]
fn a_job_is_derived_again_without_a_call() {
    let (world, id) = refunded();
    let told = world.gesta(&["replay", &id, "--world"]).ok();
    assert!(told.starts_with(&format!("{id}  complete: ")), "{told}");
    assert!(told.contains(", recorded and derived\n"), "{told}");
    let report = world.gesta(&["replay", &id, "--json"]).json();
    let replay = &report["replays"][0];
    assert_eq!(
        (&replay["session"], &replay["run_hash"]),
        (&"complete".into(), &replay["replay_hash"])
    );
    assert_eq!(replay["derived"]["started"], 6);
    // Nothing was added by looking.
    let heads = |world: &World| world.gesta(&["log", "--json"]).ok();
    let before = heads(&world);
    world.gesta(&["replay", "--all", "--confirm"]).expect(2);
    world.gesta(&["replay", &id, "--confirm", "--until", "3"]).expect(2);
    world.gesta(&["replay", &id, "--confirm"]).ok();
    assert_eq!(heads(&world), before);
}

#[test]
fn a_bundle_is_enough() {
    let (world, id) = refunded();
    world.gesta(&["export", &id, "-o", "it.gesta"]).ok();
    let here = world.gesta(&["replay", &id, "--json"]).json();
    let elsewhere = World::new();
    let file = world.path("it.gesta").display().to_string();
    let there = elsewhere.gesta(&["replay", "--all", "--bundle", &file, "--json"]).json();
    assert_eq!(there, here);
    std::fs::write(elsewhere.path("no.gesta"), "nothing").unwrap();
    elsewhere.gesta(&["replay", "--all", "--bundle", "no.gesta"]).expect(6);
}

#[test]
fn a_policy_is_tried_on_what_happened() {
    let (world, id) = refunded();
    std::fs::write(world.path("asks.cedar"), ASKS).unwrap();
    let told = world.gesta(&["replay", "--all", "--policy", "asks.cedar"]).ok();
    assert!(told.contains("2 of 6 decisions would have come out otherwise"), "{told}");
    let report = world.gesta(&["replay", &id, "--policy", "asks.cedar", "--json"]).json();
    let changed: Vec<_> = report["otherwise"].as_array().unwrap().iter().collect();
    let of = |step: &str| *changed.iter().find(|one| one["step"] == step).unwrap();
    assert_eq!(
        (&of("pay")["was"]["verdict"], &of("pay")["would_be"]["verdict"]),
        (&"allow".into(), &"escalate".into())
    );
    assert_eq!(of("mail")["would_be"]["policies"][0], "no-mail");
    // Only what began in the time asked for.
    let none = world
        .gesta(&["replay", "--all", "--before", "2020-01-01T00:00:00Z", "--policy", "asks.cedar"])
        .ok();
    assert!(none.contains("0 of 0 decisions"), "{none}");
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let (world, id) = refunded();
    std::fs::write(
        world.path("typo.cedar"),
        "permit(principal, action, resource == Tool::\"pay.pay\");",
    )
    .unwrap();
    let refused = world.gesta(&["replay", &id, "--policy", "typo.cedar"]).expect(2);
    assert!(refused.err.contains("typo.cedar"), "{}", refused.err);
    world.gesta(&["replay", &id, "--policy", "missing.cedar"]).expect(2);
    world.gesta(&["replay", &id, "--tools", "missing.toml"]).expect(2);
    world.gesta(&["replay"]).expect(2);
    world.gesta(&["replay", "t_ffff"]).expect(1);
}
