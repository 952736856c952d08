//! The stand-alone program: what it asks for, what it writes where, how it exits.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn bundles(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/bundles").join(name)
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gesta-verify")).args(words).output().unwrap()
}

fn verify(bundle: &str, more: &[&str]) -> Output {
    let (trust, bundle) = (bundles("trust.json"), bundles(bundle));
    let words = ["--trust", trust.to_str().unwrap(), bundle.to_str().unwrap()];
    run(&[&words[..], more].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_exit_code_tells() {
    for (bundle, code) in [
        ("valid.tar", 0),
        ("flipped-byte.tar", 3),
        ("other-key.tar", 4),
        ("blob-missing.tar", 5),
        ("future-version.tar", 6),
        ("no-such-file.tar", 6),
    ] {
        let output = verify(bundle, &["--quiet"]);
        assert_eq!(output.status.code(), Some(code), "{bundle}");
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""), "{bundle}");
    }
}

#[test]
fn the_report_names_the_entry() {
    let output = verify("flipped-byte.tar", &[]);
    let first = text(&output.stdout).lines().nth(1).unwrap();
    assert!(first.starts_with("tampered (parent) in t_1a1a"), "{first}");
    assert!(first.contains(" at entry 3: "), "{first}");
    assert_eq!(text(&output.stderr), "");
}

/// A chain by itself cannot show that its end was cut off.
#[test]
fn a_bundle_without_a_checkpoint_is_not_called_whole() {
    let bare = verify("valid.tar", &[]);
    assert!(text(&bare.stdout).contains("that a tail was cut"), "{}", text(&bare.stdout));
    let (trust, bundle) = (bundles("sealed.trust.json"), bundles("sealed.tar"));
    let sealed = run(&["--trust", trust.to_str().unwrap(), bundle.to_str().unwrap()]);
    assert_eq!(sealed.status.code(), Some(0));
    assert!(!text(&sealed.stdout).contains("not excluded"), "{}", text(&sealed.stdout));
}

/// Names that a forger chose are told, and do nothing to whoever reads them.
#[test]
fn what_cannot_be_seen_is_spelled_out() {
    for (bundle, hidden) in
        [("name-turned-around.tar", '\u{202e}'), ("name-with-a-delimiter.tar", '\0')]
    {
        let output = verify(bundle, &[]);
        assert_eq!(output.status.code(), Some(3), "{bundle}");
        let said = text(&output.stdout);
        assert!(!said.contains(hidden), "{said:?}");
        let spelled: String = hidden.escape_default().collect();
        assert!(said.contains(&spelled), "{said:?}");
    }
}

#[test]
fn json_is_the_report_of_the_vectors() {
    let output = verify("edited-expiry.tar", &["--json", "--threads", "2"]);
    let expected = std::fs::read(bundles("edited-expiry.report.json")).unwrap();
    assert_eq!(text(&output.stdout), text(&expected));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"], "tampered");
}

#[test]
fn hints_are_told_and_not_believed() {
    let (trust, bundle) = (bundles("other-trust.trust.json"), bundles("other-trust.tar"));
    let output = run(&["--trust", trust.to_str().unwrap(), bundle.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stdout).contains("hint: the bundle itself calls"), "{output:?}");
}

#[test]
fn bad_usage_says_what_to_do() {
    let bundle = bundles("valid.tar");
    let output = run(&[bundle.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`--trust FILE`"), "{output:?}");
    let output = run(&["--trust", "no-such-file.json", bundle.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("`no-such-file.json` cannot be read"), "{output:?}");
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("exit codes:"));
}

fn log(name: &str) -> String {
    bundles("../log").join(name).display().to_string()
}

#[test]
fn demands_on_the_log_are_met_or_named() {
    let trust = bundles("sealed.trust.json").display().to_string();
    let demand = |bundle: &str, more: &[&str]| {
        let bundle = bundles(bundle).display().to_string();
        let output = run(&[&["--trust", &trust, &bundle][..], more].concat());
        (output.status.code(), text(&output.stdout).to_owned())
    };
    let whole = ["--sealed", "--all", "--witnesses", "1", "--checkpoint-after", "2026-11-16"];
    let (code, told) = demand("sealed.tar", &whole);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("log gesta.example/log: ") && told.contains(", 1 witnesses"), "{told}");
    let seen = log("checkpoint");
    assert_eq!(demand("sealed.tar", &["--seen", &seen]).0, Some(0));
    for (bundle, more, expected, code) in [
        ("sealed-cut-tail.tar", &[][..], 3, "cut_tail"),
        ("sealed-dropped.tar", &[], 3, "dropped"),
        ("sealed.tar", &["--witnesses", "2"], 4, "too_few_witnesses"),
        ("sealed.tar", &["--checkpoint-after", "2027-01-01T00:00:00Z"], 5, "stale_checkpoint"),
        ("sealed.tar", &["--log", "other"], 4, "log_origin"),
        ("valid.tar", &["--sealed"], 5, "no_checkpoint"),
    ] {
        let (found, told) = demand(bundle, more);
        assert_eq!(found, Some(expected), "{told}");
        assert!(told.contains(&format!("({code})")), "{told}");
    }
}

#[test]
fn the_proof_of_an_entry_is_checked() {
    let proof = log("proof.json");
    let (trust, other) = (log("trust.json"), bundles("trust.json").display().to_string());
    let output = run(&["--trust", &trust, "--witnesses", "1", "--proof", &proof]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("sealed"), "{output:?}");
    assert_eq!(run(&["--trust", &other, "--proof", &proof]).status.code(), Some(4));
    let home = tempfile::tempdir().unwrap();
    let forged = home.path().join("forged.json");
    let changed = std::fs::read_to_string(&proof).unwrap().replace("\"seq\": 2", "\"seq\": 3");
    std::fs::write(&forged, changed).unwrap();
    let output = run(&["--trust", &trust, "--proof", forged.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stdout).contains("(log_proof)"), "{output:?}");
}
