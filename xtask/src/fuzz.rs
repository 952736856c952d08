//! `cargo xtask fuzz`: libFuzzer on the targets of `fuzz/`, from the corpus and the vectors on. What it finds
//! worth keeping goes into the corpus, made as small as it can be; what fails is left in `fuzz/artifacts`.
//!
//! Needs a nightly compiler and cargo-fuzz; the test command needs neither and replays the corpus.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tool;

/// Every target, and the vectors that it begins with.
const TARGETS: [(&str, Option<&str>); 10] = [
    ("json", Some("json")),
    ("entry", Some("entries")),
    ("document", Some("documents")),
    ("writ", None),
    ("bundle", Some("bundles")),
    ("log", Some("log")),
    ("job", None),
    ("expression", None),
    ("policy", None),
    ("mcp", None),
];
/// Those that do without the runtime, and compile the sooner.
const RECORD: [&str; 6] = ["json", "entry", "document", "writ", "bundle", "log"];
/// How long each is run unless told otherwise.
const SECONDS: u64 = 60;
/// The largest input that is kept, in bytes: a whole bundle is larger and comes from the vectors.
const KEPT_MOST: u64 = 4096;
/// How many inputs are kept of a target.
const KEPT: usize = 150;

struct Asked {
    only: Option<String>,
    seconds: u64,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let Asked { only, seconds } = asked(args)?;
    check_tools()?;
    for (name, vectors) in TARGETS {
        if only.as_ref().is_none_or(|only| only == name) {
            fuzz(name, vectors, seconds).with_context(|| format!("target `{name}`"))?;
        }
    }
    Ok(())
}

fn asked(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { only: None, seconds: SECONDS };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--seconds" => {
                let number = rest.next().context("`--seconds` needs a number")?;
                asked.seconds =
                    number.parse().with_context(|| format!("`{number}` is not a number"))?;
            }
            name if TARGETS.iter().any(|(known, _)| *known == name) => {
                asked.only = Some(name.to_owned());
            }
            other => {
                let known = TARGETS.map(|(name, _)| name).join(", ");
                bail!("no target `{other}`; there are {known}, and `--seconds N`")
            }
        }
    }
    Ok(asked)
}

fn check_tools() -> Result<()> {
    let mut nightly = tool::command("cargo");
    tool::output(nightly.args(["+nightly", "--version"]))
        .context("fuzzing needs a nightly compiler: `rustup toolchain install nightly`")?;
    tool::output(tool::command("cargo").args(["fuzz", "--version"]))
        .context("fuzzing needs cargo-fuzz: `cargo install cargo-fuzz`")?;
    Ok(())
}

/// Runs one target, and keeps what is new.
fn fuzz(name: &str, vectors: Option<&str>, seconds: u64) -> Result<()> {
    let root = tool::root();
    let (kept, found) = (root.join("fuzz/corpus").join(name), root.join("fuzz/found").join(name));
    for directory in [&kept, &found] {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make `{}`", directory.display()))?;
    }
    let vectors = vectors.map(|part| root.join("vectors").join(part));
    let begin: Vec<&Path> =
        [&found, &kept].into_iter().chain(&vectors).map(PathBuf::as_path).collect();
    eprintln!("== fuzzing `{name}` for {seconds} s");
    let limits = ["-max_len=65536", "-timeout=20", "-rss_limit_mb=3072", "-print_final_stats=1"];
    let mut run = target(&["run"], name);
    run.args(&begin).arg("--").arg(format!("-max_total_time={seconds}")).args(limits);
    tool::run(&mut run)?;
    keep(name, &kept, &found)
}

/// Merges what was found into the corpus: only what reaches something new, the smallest of each.
fn keep(name: &str, kept: &Path, found: &Path) -> Result<()> {
    let merged = found.with_extension("merged");
    fs::create_dir_all(&merged)?;
    let mut merge = target(&["run"], name);
    merge.args([&merged, kept, found]).args(["--", "-merge=1", "-max_len=65536"]);
    tool::run(&mut merge)?;
    let mut inputs = Vec::new();
    for file in fs::read_dir(&merged)? {
        let file = file?;
        inputs.push((file.metadata()?.len(), file.path()));
    }
    inputs.sort();
    let small = inputs.iter().filter(|(size, _)| *size <= KEPT_MOST).take(KEPT);
    let mut size_bytes = 0;
    for (size, path) in small {
        let file = path.file_name().context("a file without a name")?;
        fs::copy(path, kept.join(file))?;
        size_bytes += size;
    }
    fs::remove_dir_all(&merged)?;
    eprintln!(
        "== `{name}`: {} inputs reach something new, the corpus has {size_bytes} bytes of them",
        inputs.len()
    );
    Ok(())
}

fn target(command: &[&str], name: &str) -> Command {
    let mut cargo = tool::command("cargo");
    cargo.args(["+nightly", "fuzz"]).args(command).args(["--sanitizer", "none"]);
    if RECORD.contains(&name) {
        cargo.arg("--no-default-features");
    }
    cargo.arg("target");
    cargo.current_dir(tool::root()).env("GESTA_FUZZ_TARGET", name);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_target_and_a_time_are_understood() {
        let asked = asked(&words("json --seconds 5")).unwrap();
        assert_eq!((asked.only.as_deref(), asked.seconds), (Some("json"), 5));
        let error = super::asked(&words("jsn")).err().unwrap().to_string();
        assert!(error.contains("no target `jsn`") && error.contains("expression"), "{error}");
        assert!(super::asked(&words("--seconds many")).is_err());
    }

    /// The targets themselves are in a crate that xtask does not wait for.
    #[test]
    fn the_targets_are_those_of_the_crate() {
        let source = fs::read_to_string(tool::root().join("fuzz/src/lib.rs")).unwrap();
        for (name, _) in TARGETS {
            assert!(source.contains(&format!("(\"{name}\", ")), "{name}");
        }
        let listed = source.lines().filter(|line| line.starts_with("    (\"")).count();
        assert_eq!(listed, TARGETS.len());
    }
}
