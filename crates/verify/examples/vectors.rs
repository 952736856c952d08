//! Writes `vectors/` anew from fixed keys, clock and seeds, or checks that nothing would change:
//! `cargo run -p gesta-verify --example vectors -- [--check] vectors`. What is frozen it leaves as it is, and says
//! so.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program that cannot make its vectors has nothing else to do"
)]

#[path = "../tests/verify/golden.rs"]
mod golden;
#[path = "../tests/verify/scene/mod.rs"]
mod scene;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (options, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let check = match options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => return usage(),
    };
    let [place] = &paths[..] else { return usage() };
    let place = Path::new(place);
    let files = golden::files();
    let made: BTreeSet<PathBuf> = files.keys().map(|path| place.join(path)).collect();
    let frozen = golden::frozen(place);
    let frozen: BTreeSet<PathBuf> = frozen.keys().map(|path| place.join(path)).collect();
    let mut changed: Vec<PathBuf> = stored(place)
        .into_iter()
        .filter(|path| !made.contains(path) && !frozen.contains(path))
        .collect();
    if !check {
        changed.iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    for (path, bytes) in &files {
        let path = place.join(path);
        if fs::read(&path).ok().as_ref() != Some(bytes) {
            if frozen.contains(&path) {
                eprintln!("{} is frozen: the code makes something else", path.display());
                return ExitCode::FAILURE;
            }
            if !check {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, bytes).unwrap();
            }
            changed.push(path);
        }
    }
    for path in &changed {
        println!("{}", path.display());
    }
    eprintln!("{} vectors, {} changed", files.len(), changed.len());
    if check && !changed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The vectors that are there, in the directories that this program writes.
fn stored(place: &Path) -> Vec<PathBuf> {
    let lists =
        ["bundles", "documents", "entries", "json"].map(|part| fs::read_dir(place.join(part)));
    lists.into_iter().flatten().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn usage() -> ExitCode {
    eprintln!("usage: vectors [--check] DIRECTORY");
    ExitCode::from(2)
}
