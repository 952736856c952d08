//! `gesta conformance`: the binary finds out every attack that is known, and the document lists them.

use std::path::Path;

use crate::world::World;

const BEGIN: &str =
    "<!-- catalogue: `gesta conformance --catalogue`; GESTA_BLESS=1 writes it again -->";
const END: &str = "<!-- end of the catalogue -->";

#[test]
fn every_attack_is_found_out() {
    let report = World::new().gesta(&["conformance", "--mutations", "300", "--json"]).json();
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.len() > 155, "{}", cases.len());
    let tried = |name: &str| cases.iter().find(|case| case["name"] == name).unwrap();
    for case in cases {
        assert_eq!(case["ok"], true, "{case:#}");
        assert!(case["attack"].is_string(), "{case:#} belongs to no attack");
    }
    assert_eq!(tried("valid")["said"], "sound");
    assert_eq!(tried("key-revoked-after-it-was-seen")["said"], "sound");
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

#[test]
fn the_document_lists_every_case_with_what_is_said_of_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = document.split_once(BEGIN).unwrap();
    let (known, tail) = rest.split_once(END).unwrap();
    let wanted = format!("\n\n{}\n", World::new().gesta(&["conformance", "--catalogue"]).ok());
    if std::env::var_os("GESTA_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{wanted}{END}{tail}")).unwrap();
    } else {
        assert_eq!(known, wanted, "docs/conformance.md differs; GESTA_BLESS=1 writes it again");
    }
}
