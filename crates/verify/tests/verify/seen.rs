//! The stand-alone program, told of a checkpoint that was kept: what it says when the log does not go on from there,
//! and how it exits. A log that was altered is told apart from a proof that is about something else.

use std::path::Path;
use std::process::{Command, Output};

use gesta_core::digest::Digest;
use gesta_core::log::checkpoint::Checkpoint;
use gesta_core::log::evidence::ConsistencyProof;
use gesta_core::log::note::Note;
use serde_json::{Value, json};

use crate::scene::notary::{Notary, SEALED_AT, other_branch, sealer, without_last};
use crate::scene::{BRANCH, JOB, Scene};

/// How many leaves the log had when the verifier kept a checkpoint.
const BEFORE: u64 = 3;

fn vector(name: &str) -> String {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    vectors.join(name).display().to_string()
}

/// Files for the program, and the log that all of it is about.
struct Desk {
    home: tempfile::TempDir,
    log: Notary,
}

impl Desk {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), log: Notary::of(&Scene::new()) }
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn kept(&self, note: &Note) -> String {
        self.file("kept", note.to_string())
    }

    fn proof(&self, proof: &ConsistencyProof) -> String {
        self.file("consistency.json", serde_json::to_vec(proof).unwrap())
    }

    /// The checkpoint of then, as the log signed it.
    fn before(&self) -> Checkpoint {
        let (size, root) = (BEFORE, self.log.root(BEFORE));
        Checkpoint { size, root, map: Digest::of(b"the map of then"), ..self.log.checkpoint() }
    }

    fn run(&self, words: &[&str]) -> Output {
        let trust = vector("bundles/sealed.trust.json");
        let mut program = Command::new(env!("CARGO_BIN_EXE_gesta-verify"));
        program.args(["--trust", &trust]).args(words).output().unwrap()
    }

    /// The exit code, and all that is said, in words.
    fn told(&self, more: &[&str]) -> (Option<i32>, String) {
        let bundle = vector("bundles/sealed.tar");
        let told = self.run(&[&[bundle.as_str()], more].concat());
        let said = [told.stdout, told.stderr].concat();
        (told.status.code(), String::from_utf8(said).unwrap())
    }

    /// Verifies the sealed bundle of the vectors: what it comes to, all that was found, and the exit code.
    #[track_caller]
    fn says(&self, more: &[&str], code: i32, verdict: &str, findings: &Value) {
        let bundle = vector("bundles/sealed.tar");
        let proof = self.file("entry.json", serde_json::to_vec(&self.log.entry(JOB, 2)).unwrap());
        // A bundle and the proof of one entry are held to the same.
        for what in [&[bundle.as_str()][..], &["--proof", proof.as_str()]] {
            let told = self.run(&[&["--json"], what, more].concat());
            let report: Value = serde_json::from_slice(&told.stdout).unwrap();
            assert_eq!(report["verdict"], verdict, "{report:#}");
            assert_eq!(report["findings"], *findings);
            assert_eq!(told.status.code(), Some(code));
            assert_eq!(told.stderr, b"");
        }
    }

    /// One finding, about the log as a whole.
    #[track_caller]
    fn finds(&self, more: &[&str], code: i32, class: &str, of: &str, what: &str) {
        let nowhere = Value::Null;
        let finding = json!({ "class": class, "code": of, "what": what, "trajectory": nowhere, "seq": nowhere, "entry": nowhere });
        self.says(more, code, class, &json!([finding]));
    }
}

#[test]
fn a_log_that_has_grown_from_there_is_sound() {
    let desk = Desk::new();
    let kept = desk.kept(&desk.before().sign(&sealer()).unwrap());
    let proof = desk.proof(&desk.log.consistency(BEFORE));
    desk.says(&["--seen", &kept, "--consistency", &proof], 0, "sound", &json!([]));
    let kept = desk.kept(&desk.log.note());
    desk.says(&["--seen", &kept], 0, "sound", &json!([]));
    // A proof that is not needed is in nobody's way.
    desk.says(&["--seen", &kept, "--consistency", &proof], 0, "sound", &json!([]));
}

#[test]
fn two_views_of_one_size_are_a_split_view() {
    let desk = Desk::new();
    let other = Notary::of(&other_branch());
    assert_eq!(other.checkpoint().size, desk.log.checkpoint().size);
    let kept = desk.kept(&other.note());
    let what = "split view: the log with 21 leaves has another root than was seen before";
    desk.finds(&["--seen", &kept], 3, "tampered", "split_view", what);

    // The same entries, and other heads said of them.
    let heads = Checkpoint { map: Digest::of(b"other heads"), ..desk.log.checkpoint() };
    let kept = desk.kept(&heads.sign(&sealer()).unwrap());
    let what = "split view: the log with 21 leaves has another map of heads than was seen before";
    desk.finds(&["--seen", &kept], 3, "tampered", "split_view", what);
}

#[test]
fn a_log_that_does_not_begin_as_it_did_is_a_split_view() {
    let desk = Desk::new();
    let forked = Checkpoint { root: Digest::of(b"other leaves"), ..desk.before() };
    let kept = desk.kept(&forked.sign(&sealer()).unwrap());
    let proof = desk.proof(&desk.log.consistency(BEFORE));
    let what =
        "split view: the log with 21 leaves does not begin with the 3 leaves that were seen before";
    let more = ["--seen", &kept, "--consistency", &proof];
    desk.finds(&more, 3, "tampered", "split_view", what);

    // A proof that was altered shows nothing, and is no better than none.
    let kept = desk.kept(&desk.before().sign(&sealer()).unwrap());
    let sound = desk.log.consistency(BEFORE);
    let mut swapped = sound.clone();
    swapped.consistency.swap(0, 1);
    let mut short = sound.clone();
    short.consistency.pop();
    let mut long = sound;
    long.consistency.push(Digest::of(b"more"));
    for altered in [swapped, short, long] {
        let proof = desk.proof(&altered);
        let more = ["--seen", &kept, "--consistency", &proof];
        desk.finds(&more, 3, "tampered", "split_view", what);
    }
}

#[test]
fn a_log_that_has_shrunk_was_rolled_back() {
    let desk = Desk::new();
    let later = Checkpoint { size: 24, at: SEALED_AT.plus(1), ..desk.log.checkpoint() };
    let kept = desk.kept(&later.sign(&sealer()).unwrap());
    let what = "rolled back: the log had 24 leaves before, and has 21 now";
    desk.finds(&["--seen", &kept], 3, "tampered", "rolled_back", what);
    // No proof of anything changes that.
    let proof = desk.proof(&desk.log.consistency(BEFORE));
    let more = ["--seen", &kept, "--consistency", &proof];
    desk.finds(&more, 3, "tampered", "rolled_back", what);
}

#[test]
fn a_checkpoint_of_another_log_says_nothing_of_this_one() {
    let desk = Desk::new();
    let other = Checkpoint { origin: "gesta.example/log/epoch-2".to_owned(), ..desk.before() };
    let kept = desk.kept(&other.sign(&sealer()).unwrap());
    let what = "it is a checkpoint of `gesta.example/log`, and what was seen before is of `gesta.example/log/epoch-2`";
    desk.finds(&["--seen", &kept], 4, "untrusted", "log_origin", what);
    let proof = desk.proof(&desk.log.consistency(BEFORE));
    let more = ["--seen", &kept, "--consistency", &proof];
    desk.finds(&more, 4, "untrusted", "log_origin", what);
}

/// It fails against two checkpoints whether they agree or not: that accuses nobody.
#[test]
fn a_proof_about_something_else_is_no_proof_and_no_accusation() {
    let desk = Desk::new();
    let kept = desk.kept(&desk.before().sign(&sealer()).unwrap());
    let what = "nothing shows that the log with 21 leaves begins with the 3 leaves seen before";
    desk.finds(&["--seen", &kept], 5, "incomplete", "consistency", what);

    let finds = |proof: &ConsistencyProof, leads: &str| {
        let proof = desk.proof(proof);
        let what = format!(
            "the proof leads {leads}, and one from 3 to 21 leaves of `gesta.example/log` is needed"
        );
        let more = ["--seen", &kept, "--consistency", &proof];
        desk.finds(&more, 5, "incomplete", "consistency", &what);
    };
    finds(&desk.log.consistency(5), "from 5 to 21 leaves of `gesta.example/log`");
    // Made for an earlier checkpoint than the one that came along.
    let smaller = Notary::of(&without_last(&Scene::new(), BRANCH));
    finds(&smaller.consistency(BEFORE), "from 3 to 20 leaves of `gesta.example/log`");
    let other = Checkpoint { origin: "other".to_owned(), ..desk.log.checkpoint() };
    let mut elsewhere = desk.log.consistency(BEFORE);
    elsewhere.checkpoint = other.sign(&sealer()).unwrap().to_string();
    finds(&elsewhere, "from 3 to 21 leaves of `other`");

    let mut broken = desk.log.consistency(BEFORE);
    broken.checkpoint.clear();
    let proof = desk.proof(&broken);
    let told = desk.told(&["--seen", &kept, "--consistency", &proof]);
    assert_eq!(told.0, Some(5), "{}", told.1);
    assert!(told.1.contains("(consistency): the checkpoint cannot be read: "), "{}", told.1);
}

#[test]
fn what_is_no_checkpoint_or_no_proof_is_named() {
    let desk = Desk::new();
    let (kept, proof) = (desk.kept(&desk.log.note()), desk.proof(&desk.log.consistency(BEFORE)));
    for (seen, consistency, named) in [
        (desk.file("empty", ""), proof.clone(), "empty`: "),
        (proof.clone(), proof.clone(), "consistency.json`: "),
        (kept.clone(), kept.clone(), "kept`: the proofs cannot be read: "),
        (kept.clone(), "no-such-file".to_owned(), "`no-such-file` cannot be read: "),
        ("no-such-file".to_owned(), proof.clone(), "`no-such-file` cannot be read: "),
        (
            kept,
            desk.file("of-an-entry", serde_json::to_vec(&desk.log.entry(JOB, 2)).unwrap()),
            "of-an-entry`: ",
        ),
    ] {
        let (code, told) = desk.told(&["--seen", &seen, "--consistency", &consistency]);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.starts_with("error: ") && told.contains(named), "{told}");
    }
    let (code, told) = desk.told(&["--consistency", &proof]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("`--consistency` goes with `--seen`"), "{told}");
}
