//! The example is killed wherever that can matter, and started again: it goes on, and pays once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

const SIGKILL: i32 = 9;
/// The job has two calls: the second pays.
const POINTS: [&str; 10] = [
    "before_claim",
    "after_claim",
    "before_start:1",
    "after_start:2",
    "after_gate:2",
    "after_dispatch:2",
    "after_examine:2",
    "before_settle:1",
    "before_settle:2",
    "after_settle:2",
];

fn run(directory: &Path, cut: Option<&str>) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_gesta-example-embedded"));
    program.arg(directory).env_remove("GESTA_CUT").envs(cut.map(|cut| ("GESTA_CUT", cut)));
    program.output().unwrap()
}

#[test]
fn it_pays_once_wherever_it_is_killed() {
    for point in POINTS {
        let home = tempfile::tempdir().unwrap();
        let killed = run(home.path(), Some(point));
        assert_eq!(killed.status.signal(), Some(SIGKILL), "{point} was not reached: {killed:?}");
        let again = run(home.path(), None);
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(
            again.status.success() && said.contains("completed: \"gesta-"),
            "{point}: {again:?}"
        );
        let booked = std::fs::read_dir(home.path().join("bank")).unwrap().count();
        assert_eq!(booked, 1, "{point}: {said}");
    }
}
