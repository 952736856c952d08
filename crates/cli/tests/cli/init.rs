//! `gesta init`.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::world::{World, filters};

#[test]
fn a_workspace_is_made_and_holds() {
    let world = World::new();
    let init = world.gesta(&["init"]);
    let verify = world.gesta(&["verify"]);
    let keys = world.gesta(&["keys", "list"]);
    let log = world.gesta(&["log"]);
    let doctor = world.gesta(&["doctor"]);
    insta::with_settings!({ filters => filters() }, {
        insta::assert_snapshot!("init", init.whole());
        insta::assert_snapshot!("init-verify", verify.whole());
        insta::assert_snapshot!("init-keys", keys.whole());
        insta::assert_snapshot!("init-log", log.whole());
        insta::assert_snapshot!("init-doctor", doctor.whole());
    });
}

#[test]
fn commands_work_from_below_the_workspace() {
    let world = World::with_workspace();
    std::fs::create_dir_all(world.path("a/b")).unwrap();
    let ran = world.command().arg("verify").current_dir(world.path("a/b")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn private_keys_are_private_and_openssl_reads_them() {
    let world = World::with_workspace();
    let mode = |name: &str| std::fs::metadata(world.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("keys"), 0o700);
    let listed = world.gesta(&["keys", "list", "--json"]).json();
    for key in listed["keys"].as_array().unwrap() {
        let name = key["name"].as_str().unwrap();
        let file = format!("keys/{name}.pem");
        assert_eq!(mode(&file), 0o600);
        let openssl = Command::new("openssl")
            .args(["pkey", "-pubout", "-outform", "DER", "-in"])
            .arg(world.path(&file))
            .output()
            .expect("`openssl` is missing; `cargo xtask test` says how to install it");
        assert!(openssl.status.success(), "{}", String::from_utf8_lossy(&openssl.stderr));
        // The public key is the last 32 bytes of its DER form.
        let raw = &openssl.stdout[openssl.stdout.len() - 32..];
        let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(key["key"], hex);
    }
}

#[test]
fn what_exists_is_left_alone() {
    let world = World::with_workspace();
    let before = [world.read("gesta.toml"), world.read("keys/owner.pem"), world.read("trust.json")];
    let again = world.gesta(&["init"]).expect(1);
    assert!(
        again.err.contains("`./gesta.toml` exists already; nothing was changed"),
        "{}",
        again.err
    );
    let after = [world.read("gesta.toml"), world.read("keys/owner.pem"), world.read("trust.json")];
    assert_eq!(before, after);

    for leftover in ["gesta.db", "trust.json", "keys/owner.pem", "writs/root.json"] {
        let world = World::new();
        std::fs::create_dir_all(world.path("keys")).unwrap();
        std::fs::create_dir_all(world.path("writs")).unwrap();
        std::fs::write(world.path(leftover), "mine").unwrap();
        let refused = world.gesta(&["init"]).expect(1);
        assert!(refused.err.contains(leftover), "{}", refused.err);
        assert!(refused.err.contains("nothing was changed"), "{}", refused.err);
        assert_eq!(world.read(leftover), "mine");
        assert!(!world.path("gesta.toml").exists() && !world.path("gesta.toml.partial").exists());
    }
}

/// Each obstacle stops `init` at another point; once it is gone, `init` goes on with the keys that
/// it had made.
#[test]
fn an_interrupted_init_is_taken_up() {
    for (obstacle, keys_are_made) in [("keys", false), ("gesta.db-wal", true), ("writs", true)] {
        let world = World::new();
        match obstacle {
            "gesta.db-wal" => std::fs::create_dir(world.path(obstacle)).unwrap(),
            _ => std::fs::write(world.path(obstacle), "in the way").unwrap(),
        }
        let stopped = world.gesta(&["init"]);
        assert_eq!(stopped.code, Some(1), "{obstacle}: {}", stopped.err);
        assert!(!world.path("gesta.toml").exists());
        let owner = keys_are_made.then(|| world.read("keys/owner.pem"));
        let refused = world.gesta(&["log"]).expect(1);
        assert!(refused.err.contains("no `gesta.toml` here"), "{}", refused.err);

        match obstacle {
            "gesta.db-wal" => std::fs::remove_dir(world.path(obstacle)).unwrap(),
            _ => std::fs::remove_file(world.path(obstacle)).unwrap(),
        }
        world.gesta(&["init"]).ok();
        if let Some(owner) = owner {
            assert_eq!(world.read("keys/owner.pem"), owner, "{obstacle}");
        }
        assert!(!world.path("gesta.toml.partial").exists());
        world.gesta(&["verify"]).ok();
        assert_eq!(world.gesta(&["log", "--json"]).json_lines().len(), 1, "{obstacle}");
    }
}

#[test]
fn the_root_writ_is_signed_by_the_owner() {
    use gesta_core::signed::Signed;
    use gesta_core::writ::Writ;
    let world = World::new();
    world.gesta(&["init", "--tenant", "acme", "--principal", "agent:seven"]).ok();
    let writ: Signed<Writ> = serde_json::from_str(&world.read("writs/root.json")).unwrap();
    assert!(writ.verifies());
    let owner = world.gesta(&["keys", "show", "owner", "--json"]).json();
    assert_eq!(owner["key"], writ.doc().key.to_string());
    assert_eq!(writ.doc().tenant.as_str(), "acme");
    assert_eq!(writ.doc().principal.as_str(), "agent:seven");
    assert_eq!(writ.doc().trajectory, None);
}

#[test]
fn a_named_store_and_directory_are_used() {
    let world = World::new();
    let made = world.gesta(&["init", "ledger", "--store", "elsewhere.db", "--json"]).json();
    assert!(world.path("elsewhere.db").exists() && !world.path("ledger/gesta.db").exists());
    let registry = made["registry"].as_str().unwrap();
    let log = world.command().args(["log", "--json"]).current_dir(world.path("ledger")).output();
    assert!(String::from_utf8(log.unwrap().stdout).unwrap().contains(registry));
}

#[test]
fn the_configuration_is_checked() {
    let world = World::with_workspace();
    std::fs::write(world.path("gesta.toml"), "stoer = \"x\"\n").unwrap();
    let refused = world.gesta(&["log"]).expect(2);
    assert!(refused.err.contains("gesta.toml:1:1: unknown field `stoer`"), "{}", refused.err);
}
