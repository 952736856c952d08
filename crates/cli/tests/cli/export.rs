//! `gesta export`, and the bundle in the hands of whoever gets it.

use std::num::NonZeroUsize;
use std::path::Path;

use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::{Report, Verdict};

use crate::sample;
use crate::world::World;

/// What an auditor does with a bundle.
pub(crate) fn audit(bundle: &Path, trust: &Path) -> Report {
    let keyring = TrustRoot::parse(&std::fs::read(trust).unwrap()).unwrap().keyring().unwrap();
    let threads = NonZeroUsize::new(2).unwrap();
    verify(&Bundle::open(bundle).unwrap(), &keyring, &Options { threads, ..Options::default() })
}

#[test]
fn a_bundle_holds_all_that_its_trajectories_rest_on() {
    let world = World::with_demo();
    let rows = world.gesta(&["log", "--json"]).json_lines();
    for row in &rows {
        let id = row["trajectory"].as_str().unwrap();
        let file = format!("{id}.gesta");
        world.gesta(&["export", id, "-o", &file]).ok();
        let report = audit(&world.path(&file), &world.path("trust.json"));
        assert_eq!(report.verdict, Verdict::Sound, "{report}");
        assert!(report.trajectories.iter().any(|line| line.trajectory.to_string() == id));
    }
    let exported = world.gesta(&["export", "--all", "-o", "all.gesta", "--json"]).json();
    assert_eq!(exported["trajectories"].as_array().unwrap().len(), rows.len());
    assert_eq!(audit(&world.path("all.gesta"), &world.path("trust.json")).verdict, Verdict::Sound);
}

#[test]
fn the_same_trajectory_gives_the_same_bytes() {
    let (one, other) = (World::with_demo(), World::with_demo());
    for world in [&one, &other] {
        world.gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    }
    let bytes = |world: &World| std::fs::read(world.path("all.gesta")).unwrap();
    assert_eq!(bytes(&one), bytes(&other));
}

#[test]
fn a_part_says_that_it_is_one() {
    let world = World::with_demo();
    let rows = world.gesta(&["log", "--json"]).json_lines();
    let branch = rows.iter().find(|row| row["summary"]["status"] == "failed").unwrap();
    let id = branch["trajectory"].as_str().unwrap();
    world.gesta(&["export", id, "--only", "-o", "part.gesta"]).ok();
    let report = audit(&world.path("part.gesta"), &world.path("trust.json"));
    assert_ne!(report.verdict, Verdict::Sound);
}

#[test]
fn a_file_that_exists_is_kept_unless_forced() {
    let world = World::with_workspace();
    std::fs::write(world.path("b.gesta"), "mine").unwrap();
    let refused = world.gesta(&["export", "--all", "-o", "b.gesta"]).expect(1);
    assert!(refused.err.contains("hint: `--force` replaces it"), "{}", refused.err);
    assert_eq!(world.read("b.gesta"), "mine");
    world.gesta(&["export", "--all", "-o", "b.gesta", "--force"]).ok();
    let report = audit(&world.path("b.gesta"), &world.path("trust.json"));
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    let left: Vec<_> = std::fs::read_dir(world.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".gesta-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn blobs_come_along() {
    let world = World::new();
    let trust = sample::write_file(&world.path("s.db"));
    std::fs::write(world.path("t.json"), serde_json::to_vec(&trust).unwrap()).unwrap();
    let session = sample::SESSION.to_string();
    world.gesta(&["--store", "s.db", "export", &session, "-o", "b.gesta"]).ok();
    let report = audit(&world.path("b.gesta"), &world.path("t.json"));
    assert_eq!((report.verdict, report.counts.blobs), (Verdict::Sound, 1), "{report}");
}
