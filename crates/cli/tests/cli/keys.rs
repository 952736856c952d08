//! `gesta keys`.

use std::os::unix::fs::PermissionsExt as _;

use gesta_core::trust::TrustRoot;
use rustix::process::Signal;

use crate::world::World;

#[test]
fn a_new_key_is_registered_with_its_roles() {
    let world = World::with_workspace();
    let made = world
        .gesta(&[
            "keys", "add", "ci", "--roles", "guardian", "--roles", "executor", "--tenant", "acme",
            "--days", "2", "--json",
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
    assert_eq!(names, ["ci", "owner", "sealer", "worker"]);
    world.gesta(&["verify"]).ok();

    let again = world.gesta(&["keys", "add", "ci", "--roles", "guardian"]).expect(1);
    assert!(again.err.contains("there is a key `ci` already"), "{}", again.err);
    world.gesta(&["keys", "add", "../ci", "--roles", "guardian"]).expect(1);
    world.gesta(&["keys", "add", "x", "--roles", "king"]).expect(2);
}

/// A run that failed between file and registration is taken up by the next.
#[test]
fn a_key_that_was_not_registered_yet_is() {
    let world = World::with_workspace();
    let other = World::with_workspace();
    std::fs::copy(other.path("keys/worker.pem"), world.path("keys/late.pem")).unwrap();
    let refused = world.gesta(&["keys", "show", "keys/late.pem"]).expect(1);
    assert!(refused.err.contains("is not in the registry"), "{}", refused.err);
    let made = world.gesta(&["keys", "add", "late", "--roles", "executor", "--json"]).json();
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
    let refused = world.gesta(&["keys", "add", "ci", "--roles", "guardian"]).expect(1);
    assert!(refused.err.contains("is open to others (mode 0644)"), "{}", refused.err);
    assert!(refused.err.contains("hint: run `chmod 600 "), "{}", refused.err);
    assert!(!world.path("keys/ci.pem").exists());
    let doctor = world.gesta(&["doctor"]).expect(1);
    assert!(doctor.out.contains("mode 0644"), "{}", doctor.out);
}

/// A worker that has the old key goes on; the next one has the new key; both signatures count.
#[test]
fn a_rotated_key_overlaps_with_the_old_one() {
    let world = World::with_tools(SLOW);
    world.write("job.yaml", TWO);
    world.fifo("reached");
    world.fifo("pause");
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start(&["worker"]);
    world.hear("reached");
    let rotated = world.gesta(&["keys", "rotate", "worker", "--json"]).json();
    assert_ne!(rotated["old"]["key"], rotated["new"]["key"]);
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says(": completed");
    worker.signal(Signal::TERM);
    worker.ends();
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: quick }\n");
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    let started = &world.bodies(ran["trajectory"].as_str().unwrap(), "started")[0];
    assert_eq!(started["decision"]["doc"]["key"], rotated["new"]["key"]);
    let listed = world.gesta(&["keys", "list", "--json"]).json();
    let workers: Vec<_> =
        listed["keys"].as_array().unwrap().iter().filter(|key| key["name"] == "worker").collect();
    assert_eq!(workers.len(), 2);
    assert_eq!(workers[0]["key"], rotated["new"]["key"], "the newest first");
    world.gesta(&["verify"]).ok();

    // Once the old one's time is over it may sign no more.
    let over = world.gesta(&["keys", "rotate", "worker", "--overlap-hours", "0", "--json"]).json();
    assert_eq!(over["old"]["key"], rotated["new"]["key"]);
    world.gesta(&["run", "job.yaml"]).ok();
    world.gesta(&["verify"]).ok();
}

/// The owner is rotated while a job runs: the job goes on, and so does everything else, with the new key.
/// Trust roots of before and after both verify all of it; one that lacks the old key says what it lacks.
#[test]
fn the_owner_is_rotated() {
    let world = World::with_tools(SLOW);
    world.write("job.yaml", TWO);
    world.fifo("reached");
    world.fifo("pause");
    let before = world.read("trust.json");
    std::fs::write(world.path("before.json"), &before).unwrap();
    world.gesta(&["submit", "job.yaml"]).ok();
    let mut worker = world.start(&["worker"]);
    world.hear("reached");
    let rotated = world.gesta(&["keys", "rotate", "owner", "--json"]).json();
    let (old, new) = (rotated["old"]["key"].clone(), rotated["new"]["key"].clone());
    assert_ne!(old, new);
    std::fs::write(world.path("pause"), "7\n").unwrap();
    worker.says(": completed");
    worker.signal(Signal::TERM);
    worker.ends();

    // Jobs, freezes and keys are the new one's.
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: quick }\n");
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    let root = &world.bodies(ran["trajectory"].as_str().unwrap(), "root")[0];
    assert_eq!(root["purpose"]["job"]["writs"][0]["doc"]["key"], new);
    world.gesta(&["freeze", "tool", "quick", "--reason", "try"]).ok();
    world.gesta(&["unfreeze", "tool", "quick"]).ok();
    world.gesta(&["keys", "add", "ci", "--roles", "approver"]).ok();

    let verify = |trust: &str| world.gesta(&["verify", "--trust", trust]);
    verify("before.json").ok();
    verify("trust.json").ok();
    let exported = world.gesta(&["keys", "export", "owner"]).ok();
    std::fs::write(world.path("after.json"), &exported).unwrap();
    verify("after.json").ok();
    let mut only: serde_json::Value = serde_json::from_str(&exported).unwrap();
    only["keys"].as_array_mut().unwrap().retain(|key| key["key"] == new);
    std::fs::write(world.path("only.json"), only.to_string()).unwrap();
    let lacks = verify("only.json").expect(4);
    let told = format!("{}{}", lacks.out, lacks.err);
    assert!(told.contains(old.as_str().unwrap()) && told.contains("unknown_key"), "{told}");

    // Once its time is over, the old one's word counts no more.
    let kept = format!("owner.{}", &new.as_str().unwrap()[..8]);
    world.gesta(&["keys", "rotate", "owner", "--overlap-hours", "0"]).ok();
    let late = world.gesta(&["freeze", "all", "--key", &kept]).expect(1);
    assert!(late.err.contains("was not valid at"), "{}", late.err);
    world.gesta(&["freeze", "all"]).ok();
    verify("before.json").ok();
}

/// A rotation that was cut off after the new file was made and before it was registered goes on.
#[test]
fn a_rotation_of_the_owner_that_was_cut_off_goes_on() {
    let world = World::with_tools(SLOW);
    let old = world.gesta(&["keys", "show", "owner", "--json"]).json()["key"].clone();
    let kept = format!("keys/owner.{}.pem", &old.as_str().unwrap()[..8]);
    std::fs::rename(world.path("keys/owner.pem"), world.path(&kept)).unwrap();
    let rotated = world.gesta(&["keys", "rotate", "owner", "--json"]).json();
    assert_eq!(rotated["old"]["key"], old);
    world.gesta(&["freeze", "all"]).ok();
    world.gesta(&["verify"]).ok();
}

const SLOW: &str = "[tools.slow]\neffect = \"read\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo reached > reached; cat pause\", shell = true, env = [\"PATH\"] }\n\
[tools.quick]\neffect = \"read\"\ntimeout = \"50s\"\n\
driver.process = { command = \"echo 1\", shell = true, env = [\"PATH\"] }\n";
const TWO: &str =
    "job: two\nsteps:\n  - { id: a, tool: slow }\n  - { id: b, tool: quick, needs: [a] }\n";

#[test]
fn guardian_and_executor_can_have_keys_of_their_own() {
    let world = World::with_tools(SLOW);
    let config = world.read("gesta.toml");
    let keys = "[worker]\nkeys = { guardian = \"judge\", executor = \"hand\" }\n";
    world.write("gesta.toml", &config.replace("[worker]\n", keys));
    world.write("job.yaml", "job: one\nsteps:\n  - { id: it, tool: quick }\n");
    let add = |name: &str, role: &str| {
        world.gesta(&["keys", "add", name, "--roles", role, "--json"]).json()["key"].clone()
    };
    let (judge, hand) = (add("judge", "guardian"), add("hand", "executor"));
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    let id = ran["trajectory"].as_str().unwrap();
    let started = &world.bodies(id, "started")[0];
    assert_eq!(started["decision"]["doc"]["key"], judge);
    assert_eq!(started["permit"]["doc"]["key"], judge);
    let commit = &world.bodies(id, "commit")[0];
    assert_eq!(commit["origin"]["effect"]["receipt"]["doc"]["key"], hand);
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_revocation_has_a_date() {
    let world = World::with_workspace();
    let made = world.gesta(&["keys", "add", "ci", "--roles", "executor", "--json"]).json();
    let id = made["key"].as_str().unwrap();
    let future = world.gesta(&["keys", "revoke", id, "--at", "2999-01-01T00:00:00Z"]).expect(2);
    assert!(future.err.contains("is in the future"), "{}", future.err);
    world.gesta(&["keys", "revoke", id, "--at", "yesterday"]).expect(2);
    let revoke = ["keys", "revoke", id, "--at", "2026-01-02T03:04:05Z", "--reason", "stolen"];
    let revoked = world.gesta(&[&revoke[..], &["--json"]].concat()).json();
    assert_eq!(revoked["revoked_at"], 1_767_323_045_000_u64);
    let listed = world.gesta(&["keys", "list"]).ok();
    assert!(listed.contains("revoked 2026-01-02 03:04:05Z"), "{listed}");
}

/// Under a passphrase, as OpenSSL reads it; without the passphrase nothing is signed.
#[test]
fn a_key_file_can_be_encrypted() {
    let world = World::with_workspace();
    let with =
        |arguments: &[&str], variables: &[(&str, &str)]| world.gesta_with(arguments, variables);
    let secret = [("GESTA_PASSPHRASE", "correct horse")];
    let short = with(
        &["keys", "add", "ci", "--roles", "operator", "--encrypt"],
        &[("GESTA_PASSPHRASE", "short")],
    );
    assert!(short.expect(2).err.contains("at least 8 characters"));
    with(&["keys", "add", "ci", "--roles", "operator", "--encrypt"], &secret).ok();
    assert!(world.read("keys/ci.pem").starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
    let openssl = std::process::Command::new("openssl")
        .args(["pkey", "-noout", "-in", "keys/ci.pem", "-passin", "pass:correct horse"])
        .current_dir(world.path(""))
        .status()
        .unwrap();
    assert!(openssl.success());

    let wrong =
        with(&["freeze", "all", "--key", "ci"], &[("GESTA_PASSPHRASE", "wrong horse")]).expect(1);
    assert!(wrong.err.contains("the passphrase does not open"), "{}", wrong.err);
    world.write("passphrase", "correct horse\n");
    with(&["freeze", "all", "--key", "ci"], &[("GESTA_PASSPHRASE_FILE", "passphrase")]).ok();

    let change = [("GESTA_PASSPHRASE", "correct horse"), ("GESTA_NEW_PASSPHRASE", "another horse")];
    with(&["keys", "passphrase", "ci"], &change).ok();
    with(&["unfreeze", "all", "--key", "ci"], &secret).expect(1);
    let other = [("GESTA_PASSPHRASE", "another horse")];
    with(&["keys", "passphrase", "ci", "--remove"], &other).ok();
    let mode = std::fs::metadata(world.path("keys/ci.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    with(&["unfreeze", "all", "--key", "ci"], &[]).ok();
}
