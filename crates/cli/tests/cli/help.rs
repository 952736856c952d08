//! Help, version and completions.

use crate::world::World;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["run"],
    &["check"],
    &["graph"],
    &["submit"],
    &["worker"],
    &["workers"],
    &["jobs"],
    &["resume"],
    &["branch"],
    &["signal"],
    &["cancel"],
    &["approvals"],
    &["approve"],
    &["deny"],
    &["doubts"],
    &["resolve"],
    &["confirm"],
    &["freeze"],
    &["unfreeze"],
    &["quarantine"],
    &["quarantine", "lift"],
    &["tools"],
    &["tools", "list"],
    &["tools", "pin"],
    &["tools", "publish"],
    &["tools", "test"],
    &["policy"],
    &["policy", "check"],
    &["policy", "test"],
    &["policy", "schema"],
    &["policy", "show"],
    &["policy", "publish"],
    &["policy", "explain"],
    &["init"],
    &["keys"],
    &["keys", "add"],
    &["keys", "list"],
    &["keys", "show"],
    &["keys", "rotate"],
    &["keys", "revoke"],
    &["keys", "passphrase"],
    &["keys", "export"],
    &["writ"],
    &["writ", "issue"],
    &["writ", "inspect"],
    &["writ", "attenuate"],
    &["writ", "revoke"],
    &["calls"],
    &["log"],
    &["show"],
    &["receipt"],
    &["tree"],
    &["diff"],
    &["replay"],
    &["verify"],
    &["export"],
    &["import"],
    &["conformance"],
    &["erase"],
    &["seal"],
    &["seal", "status"],
    &["seal", "export"],
    &["seal", "cosign"],
    &["proof"],
    &["witness"],
    &["witness", "init"],
    &["witness", "add"],
    &["witness", "sign"],
    &["archive"],
    &["backup"],
    &["restore"],
    &["release"],
    &["doctor"],
    &["demo"],
    &["demo", "ledger"],
    &["completions"],
    &["help"],
];

#[test]
fn every_command_explains_itself() {
    let world = World::new();
    for command in COMMANDS {
        let mut arguments = command.to_vec();
        arguments.push("-h");
        let name = format!("help-{}", command.join("-"));
        insta::assert_snapshot!(name.trim_end_matches('-'), world.gesta(&arguments).ok());
    }
}

#[test]
fn every_command_has_examples_and_the_front_page_has_exit_codes() {
    let world = World::new();
    for command in COMMANDS.iter().filter(|command| !command.is_empty()) {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let help = world.gesta(&arguments).ok();
        assert!(help.contains("Examples:"), "{command:?}:\n{help}");
    }
    let help = world.gesta(&["--help"]).ok();
    for word in
        ["tampered", "untrusted", "unreadable", "bad input", "failed", "in doubt", "interrupted"]
    {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let version = World::new().gesta(&["--version"]).ok();
    assert_eq!(version, concat!("gesta ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn completions_know_the_commands() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.gesta(&["completions", shell]).ok();
        for word in ["doctor", "rebuild", "did-not-happen", "worker"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("under-test") && !script.contains("supervise"), "{shell}");
    }
}
