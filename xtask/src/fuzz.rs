//! `cargo xtask fuzz`: libFuzzer on the targets of `fuzz/`, from the corpus and the vectors on. What it finds
//! that reaches code which nothing else here reaches goes into the corpus; what fails is left in
//! `fuzz/artifacts`.
//!
//! Needs a nightly compiler and cargo-fuzz; the test command needs neither and replays the corpus.

mod cover;

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
/// How many inputs are kept of a target, beside those that people have named.
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
    keep(name, &kept, &found, vectors.as_deref())
}

/// Chooses the corpus anew out of what it has and what was found: the fewest inputs that reach everything
/// which the vectors and the inputs that people have named do not reach.
fn keep(name: &str, kept: &Path, found: &Path, vectors: Option<&Path>) -> Result<()> {
    let scratch = found.with_extension("merging");
    let (had, offered, merged) =
        (scratch.join("had"), scratch.join("offered"), scratch.join("merged"));
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    for directory in [&had, &offered, &merged] {
        fs::create_dir_all(directory)?;
    }
    for path in files(vectors)?.into_iter().chain(files(Some(kept))?) {
        if vectors.is_some_and(|vectors| path.starts_with(vectors)) || !found_by_machine(&path) {
            copy_into(&path, &had)?;
        }
    }
    for path in files(Some(kept))?.into_iter().chain(files(Some(found))?) {
        if found_by_machine(&path) && path.metadata()?.len() <= KEPT_MOST {
            copy_into(&path, &offered)?;
        }
    }
    let told = scratch.join("control");
    let mut merge = target(&["run"], name);
    merge.args([&merged, &had, &offered]).args(["--", "-set_cover_merge=1", "-use_counters=0"]);
    merge.arg(format!("-merge_control_file={}", told.display())).arg("-max_len=65536");
    tool::run(&mut merge)?;
    let reached = cover::read(&fs::read_to_string(&told)?).context("libFuzzer's merge")?;
    let offers = reached.iter().filter(|input| input.path.starts_with(&offered)).count();
    let chosen = cover::choose(reached, &had, KEPT);
    for path in files(Some(kept))?.iter().filter(|path| found_by_machine(path)) {
        fs::remove_file(path)?;
    }
    for path in &chosen {
        copy_into(path, kept)?;
    }
    fs::remove_dir_all(&scratch)?;
    eprintln!(
        "== `{name}`: {} of {offers} inputs reach what nothing else here reaches, and are kept",
        chosen.len()
    );
    Ok(())
}

/// Whether libFuzzer has named it, by its SHA-1: what people have named stays whatever it reaches.
fn found_by_machine(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn files(directory: Option<&Path>) -> Result<Vec<PathBuf>> {
    let Some(directory) = directory else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn copy_into(path: &Path, directory: &Path) -> Result<()> {
    let name = path.file_name().context("a file without a name")?;
    fs::copy(path, directory.join(name))
        .with_context(|| format!("cannot copy `{}`", path.display()))?;
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

    #[test]
    fn inputs_that_people_have_named_are_not_the_machines() {
        let machine = "fuzz/corpus/json/da39a3ee5e6b4b0d3255bfef95601890afd80709";
        assert!(found_by_machine(Path::new(machine)));
        assert!(!found_by_machine(Path::new("fuzz/corpus/json/too-deep")));
        assert!(!found_by_machine(Path::new("fuzz/corpus/mcp/58e24bfd9f70c8f7")));
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
