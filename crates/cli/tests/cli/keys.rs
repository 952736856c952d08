//! `gesta keys`.

use std::os::unix::fs::PermissionsExt as _;

use gesta_core::trust::TrustRoot;

use crate::world::World;

#[test]
fn a_new_key_is_registered_with_its_roles() {
    let world = World::with_workspace();
    let made = world
        .gesta(&[
            "keys",
            "new",
            "ci",
            "--role",
            "guardian",
            "--role",
            "executor",
            "--tenant",
            "acme",
            "--valid-days",
            "2",
            "--json",
        ])
        .json();
    assert_eq!(made["roles"], serde_json::json!(["guardian", "executor"]));
    assert_eq!(made["tenant"], "acme");
    let shown = world.gesta(&["keys", "show", "keys/ci.pem", "--json"]).json();
    assert_eq!(shown["key"], made["key"]);
    let listed = world.gesta(&["keys", "list", "--json"]).json();
    let names: Vec<&str> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["ci", "owner", "worker"]);
    world.gesta(&["verify"]).ok();

    let again = world.gesta(&["keys", "new", "ci", "--role", "guardian"]).expect(1);
    assert!(again.err.contains("there is a key `ci` already"), "{}", again.err);
    world.gesta(&["keys", "new", "../ci", "--role", "guardian"]).expect(1);
    world.gesta(&["keys", "new", "x", "--role", "king"]).expect(2);
}

/// A run that failed between file and registration is taken up by the next.
#[test]
fn a_key_that_was_not_registered_yet_is() {
    let world = World::with_workspace();
    let other = World::with_workspace();
    std::fs::copy(other.path("keys/worker.pem"), world.path("keys/late.pem")).unwrap();
    let refused = world.gesta(&["keys", "show", "keys/late.pem"]).expect(1);
    assert!(refused.err.contains("is not in the registry"), "{}", refused.err);
    let made = world.gesta(&["keys", "new", "late", "--role", "executor", "--json"]).json();
    let known = other.gesta(&["keys", "show", "worker", "--json"]).json();
    assert_eq!(made["key"], known["key"]);
}

#[test]
fn a_revoked_key_is_said_to_be() {
    let world = World::with_workspace();
    world.gesta(&["keys", "revoke", "worker"]).ok();
    let shown = world.gesta(&["keys", "show", "worker", "--json"]).json();
    assert!(shown["revoked_at"].is_u64());
    world.gesta(&["verify"]).ok();
    world.gesta(&["keys", "revoke", "worker"]).expect(1);
    world.gesta(&["keys", "revoke", "nobody"]).expect(1);
    let owner = world.gesta(&["keys", "revoke", "owner"]).expect(1);
    assert!(owner.err.contains("cannot revoke itself"), "{}", owner.err);
}

#[test]
fn an_exported_key_is_a_trust_root() {
    let world = World::with_workspace();
    let exported = world.gesta(&["keys", "export", "owner"]).ok();
    let root = TrustRoot::parse(exported.as_bytes()).unwrap();
    assert_eq!(root.keys.len(), 1);
    std::fs::write(world.path("mine.json"), exported).unwrap();
    world.gesta(&["verify", "--trust", "mine.json"]).ok();
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let world = World::with_workspace();
    let owner = world.path("keys/owner.pem");
    std::fs::set_permissions(&owner, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = world.gesta(&["keys", "new", "ci", "--role", "guardian"]).expect(1);
    assert!(refused.err.contains("is open to others (mode 0644)"), "{}", refused.err);
    assert!(refused.err.contains("hint: run `chmod 600 "), "{}", refused.err);
    assert!(!world.path("keys/ci.pem").exists());
    let doctor = world.gesta(&["doctor"]).expect(1);
    assert!(doctor.out.contains("mode 0644"), "{}", doctor.out);
}
