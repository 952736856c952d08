//! `gesta demo ledger`.

use gesta_core::entry::Kind;

use crate::world::{World, filters};

#[test]
fn the_demo_shows_every_kind_and_finds_the_changed_byte() {
    let ran = World::new().gesta(&["demo", "ledger"]);
    for kind in Kind::ALL {
        let told =
            ran.out.lines().any(|line| line.split_whitespace().any(|word| word == kind.as_str()));
        assert!(told, "`{kind}` is missing in:\n{}", ran.out);
    }
    insta::with_settings!({ filters => filters() }, {
        insta::assert_snapshot!("demo", ran.whole());
    });
}

#[test]
fn the_demo_leaves_nothing_behind_unless_told_to() {
    let world = World::new();
    world.gesta_with(&["demo", "ledger"], &[("TMPDIR", world.path("").to_str().unwrap())]).ok();
    assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
    world.gesta(&["demo", "ledger", "--keep", "kept"]).ok();
    let kept = world.gesta(&["demo", "ledger", "--keep", "kept"]).expect(1);
    assert!(kept.err.contains("`kept` is not empty"), "{}", kept.err);
    let again = world.command().arg("verify").current_dir(world.path("kept")).output().unwrap();
    assert!(again.status.success());
}

#[test]
fn the_demo_speaks_json() {
    let told = World::new().gesta(&["demo", "ledger", "--json"]).json();
    assert_eq!(told["before"]["verdict"], "sound");
    assert_eq!(told["after"]["verdict"], "tampered");
}
