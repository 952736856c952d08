//! What fuzzing has found, and what it begins with, through the functions that are fuzzed
//! (`cargo xtask fuzz`). No compiler but the usual one is needed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[expect(unreachable_pub, reason = "it is a crate of its own for the fuzzer")]
#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn target(name: &str) -> fn(&[u8]) {
    targets::targets().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Every file of the corpus of a target. Its name is told if it does not hold.
fn replay(name: &str) {
    let target = target(name);
    let mut replayed = 0;
    for file in std::fs::read_dir(corpus().join(name)).unwrap() {
        let path = file.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let held = std::panic::catch_unwind(|| target(&data));
        assert!(held.is_ok(), "{} does not hold", path.display());
        replayed += 1;
    }
    assert!(replayed > 0, "nothing to replay for `{name}`");
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn every_target_is_replayed() {
            let replayed = BTreeSet::from([$(stringify!($name)),*]);
            let known: BTreeSet<&str> = targets::targets().iter().map(|(name, _)| *name).collect();
            assert_eq!(replayed, known);
        }
    };
}

replays! { json entry document writ bundle log job expression policy mcp }

/// The vectors are what a fuzzer begins with, beside the corpus.
#[test]
fn vectors_hold_too() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    for (part, name) in
        [("bundles", "bundle"), ("entries", "entry"), ("json", "json"), ("log", "log")]
    {
        let target = target(name);
        for file in std::fs::read_dir(vectors.join(part)).unwrap() {
            target(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
