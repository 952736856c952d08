//! `gesta help CODE`, and that the list of codes is the list of codes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gesta_core::codes;

use crate::world::World;

/// What stands before a code where one is used; the code follows, in quotes.
const USES: [&str; 8] = [
    "failing(",
    "code: ",
    "let code = ",
    "give_up(started, running.proposal, ",
    "driver_died(started, proposal, ",
    "give_up(started, proposal, ",
    "tampered(",
    "GATE_FROZEN: &str = ",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            // Histories that are made up, and a driver that refuses whatever it is asked.
            true if name == "sample" => {}
            true => sources(&path, found),
            false if name == "codes.rs" || name == "under_test.rs" => {}
            false if name.ends_with(".rs") => found.push(path),
            false => {}
        }
    }
}

/// The text in quotes that `text` begins with, if it looks like a code.
fn quoted(text: &str) -> Option<&str> {
    let (code, _) = text.trim_start().strip_prefix('"')?.split_once('"')?;
    let spelled = |b: u8| b.is_ascii_lowercase() || b == b'_';
    (!code.is_empty() && code.bytes().all(spelled)).then_some(code)
}

fn after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(mark).filter_map(move |(at, _)| text.get(at + mark.len()..))
}

fn used() -> BTreeMap<String, PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["core", "policy", "store", "runtime", "verify", "cli"] {
        let directory = crates.join(name).join("src");
        if directory.exists() {
            sources(&directory, &mut files);
        }
    }
    let mut used = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut note = |code: &str| drop(used.insert(code.to_owned(), file.clone()));
        for mark in USES {
            after(&text, mark).filter_map(quoted).for_each(&mut note);
        }
        for class in ["Tampered", "Untrusted", "Incomplete", "Unreadable"] {
            after(&text, &format!("Class::{class},")).filter_map(quoted).for_each(&mut note);
        }
        // Lists of nothing but codes.
        let arms = |from: &str, to: &str| {
            let (_, rest) = text.split_once(from)?;
            Some(rest.split_once(to)?.0)
        };
        let list = if file.ends_with("core/src/document.rs") {
            arms("impl Reason {", "/// One stage")
        } else if file.ends_with("core/src/verification.rs") {
            arms("fn code_of", "/// What makes a signature count")
        } else {
            None
        };
        list.iter().for_each(|list| after(list, "=>").filter_map(quoted).for_each(&mut note));
        if file.ends_with("tools/code.rs") {
            after(&text, ": &str =").filter_map(quoted).for_each(&mut note);
        }
    }
    used
}

#[test]
fn every_code_that_is_used_is_explained_and_none_else() {
    let used = used();
    let listed: BTreeSet<&str> = codes::ALL.iter().map(|code| code.code).collect();
    assert_eq!(listed.len(), codes::ALL.len(), "a code is listed twice");
    let unexplained: Vec<_> =
        used.iter().filter(|(code, _)| !listed.contains(code.as_str())).collect();
    assert!(unexplained.is_empty(), "not in crates/core/src/codes.rs: {unexplained:#?}");
    let unused: Vec<_> = listed.iter().filter(|code| !used.contains_key(**code)).collect();
    assert!(unused.is_empty(), "used nowhere: {unused:?}");
}

#[test]
fn a_code_is_explained_and_so_is_a_command() {
    let world = World::new();
    let told = world.gesta(&["help", "tool_frozen"]).ok();
    assert!(told.contains("`gesta unfreeze`"), "{told}");
    assert_eq!(world.gesta(&["help", "poison", "--json"]).json()["code"], "poison");
    let all = world.gesta(&["help", "codes"]).ok();
    assert!(codes::ALL.iter().all(|code| all.contains(code.code)), "{all}");
    let keys = world.gesta(&["help", "keys", "add"]).ok();
    assert!(keys.contains("--roles"), "{keys}");
    let unknown = world.gesta(&["help", "nonsense"]).expect(2);
    assert!(unknown.err.contains("no command and no code `nonsense`"), "{}", unknown.err);
}
