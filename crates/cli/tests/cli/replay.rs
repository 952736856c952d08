//! `gesta replay`: what a job did is derived again, and other rules are tried on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gesta_verify::report::Verdict;
use serde_json::Value;

use crate::export::audit;
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
    let of = |times: &[&str]| {
        let all = ["replay", "--all", "--policy", "asks.cedar"];
        world.gesta(&[&all, times].concat()).ok()
    };
    assert!(of(&["--since", "7d"]).contains("2 of 6 decisions"));
    assert!(of(&["--since", "7d", "--before", "1d"]).contains("0 of 0 decisions"));
    let refused = world.gesta(&["replay", "--all", "--since", "tuesday"]).expect(2);
    assert!(refused.err.contains("or as how long ago it was: `7d`"), "{}", refused.err);
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

/// The bundles of a part of the vectors.
fn vectors(part: &str) -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(part);
    let files = std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path());
    let mut bundles: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "tar")).collect();
    bundles.sort();
    bundles
}

/// Whoever has a newer program can still tell that what an older one wrote follows.
#[test]
fn what_every_version_has_written_is_derived_again_byte_for_byte() {
    let runs = vectors("runs");
    assert!(!runs.is_empty());
    for bundle in runs {
        let world = World::new();
        let (file, trust) = (bundle.display().to_string(), bundle.with_extension("trust.json"));
        let report = audit(&bundle, &trust);
        assert_eq!(report.verdict, Verdict::Sound, "{file}: {report}");
        let replays = world.gesta(&["replay", "--all", "--bundle", &file, "--json"]).json();
        let replays = replays["replays"].as_array().unwrap().clone();
        assert_eq!(replays.len(), 4, "{file}");
        for replay in replays {
            assert_eq!(replay["session"], "complete", "{file}: {replay:#}");
            assert_eq!(replay["run_hash"], replay["replay_hash"], "{file}");
            let sum = |counts: &Value| {
                counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
            };
            let (derived, given): (u64, u64) = (sum(&replay["derived"]), sum(&replay["given"]));
            assert_eq!(Some(derived + given), replay["entries"].as_u64(), "{file}");
        }
        // What goes into a store comes out of it as it was written elsewhere.
        let trust = trust.display().to_string();
        world.gesta(&["--store", "s.db", "import", &file, "--trust", &trust]).ok();
        world.gesta(&["--store", "s.db", "export", "--all", "--unsealed", "-o", "out.tar"]).ok();
        assert!(std::fs::read(world.path("out.tar")).unwrap() == std::fs::read(bundle).unwrap());
    }
}

/// The others were made by hand, without tools and policies: a replay says what it lacks or what is wrong, and
/// takes none of them for one that follows.
#[test]
fn a_bundle_that_cannot_be_derived_says_why() {
    let world = World::new();
    let mut said = BTreeMap::new();
    for bundle in vectors("bundles") {
        let file = bundle.display().to_string();
        let told = world.gesta(&["replay", "--all", "--bundle", &file]);
        let whole = format!("{file}: {:?}\n{}{}", told.code, told.out, told.err);
        if verdict(&bundle) == "sound" {
            assert!(told.code == Some(5) && told.out.contains(" is not at hand"), "{whole}");
        }
        // Who signed it is not asked, and a root derives from nothing.
        let derived = told.out.contains("complete: ") && !told.out.contains(" 0 derived again");
        assert!(matches!(told.code, Some(0 | 3..=6)) && !derived, "{whole}");
        said.insert(bundle.file_stem().unwrap().to_string_lossy().into_owned(), told);
    }
    let says = |name: &str, code, what: &str| {
        let told = &said[name];
        assert_eq!(told.code, Some(code), "{name}: {}", told.err);
        assert!(told.err.contains(what), "{name}: {}", told.err);
    };
    says("branch-of-itself", 3, "branches from itself");
    says("missing-source", 5, "which is not here");
    says("future-version", 6, "format version 2 is not known");
    says("unknown-kind", 3, "`foresight`");
    says("reordered", 3, "the bundle was altered");
}

/// The verdict that is expected of a bundle.
fn verdict(bundle: &Path) -> String {
    let report = std::fs::read(bundle.with_extension("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    report["verdict"].as_str().unwrap_or_default().to_owned()
}
