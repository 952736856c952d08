//! The example runs, and running it again does nothing again.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

fn run(directory: &Path) -> String {
    let program = env!("CARGO_BIN_EXE_gesta-example-embedded");
    let output = Command::new(program).arg(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_pays_once() {
    let home = tempfile::tempdir().unwrap();
    let first = run(home.path());
    assert!(first.contains("completed: \"gesta-"), "{first}");
    assert_eq!(first.lines().filter(|line| line.ends_with("started")).count(), 2, "{first}");
    let bank = home.path().join("bank");
    let booked = std::fs::read_dir(&bank).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(&booked).unwrap(), "{\"cents\":4200}");
    std::fs::remove_file(&booked).unwrap();
    let second = run(home.path());
    assert_eq!(second.lines().last(), first.lines().last(), "the recorded answer");
    assert_eq!(second.lines().count(), 1, "nothing was done: {second}");
    assert!(std::fs::read_dir(&bank).unwrap().next().is_none());
}
