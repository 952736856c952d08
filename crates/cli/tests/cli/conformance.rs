//! `gesta conformance`: the binary finds out every attack that is known.

use crate::world::World;

#[test]
fn every_attack_is_found_out() {
    let report = World::new().gesta(&["conformance", "--mutations", "400", "--json"]).json();
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.len() > 80, "{}", cases.len());
    let tried = |name: &str| cases.iter().find(|case| case["name"] == name).unwrap();
    assert!(cases.iter().all(|case| case["ok"] == true), "{report:#}");
    assert_eq!(tried("valid")["said"], "sound");
    for attack in
        ["spliced", "edited-permit", "swapped-signature", "revoked-key", "path-up", "reordered"]
    {
        assert_ne!(tried(attack)["said"], "sound", "{attack}");
    }
    assert_eq!(report["mutations"]["passed"], serde_json::json!([]));
}

#[test]
fn the_same_seed_tries_the_same() {
    let told =
        |seed: &str| World::new().gesta(&["conformance", "--mutations", "20", "--seed", seed]).ok();
    assert_eq!(told("3"), told("3"));
    assert!(told("3").ends_with("and 20 random changes: all found out\n"));
}
