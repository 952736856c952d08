//! `cargo xtask coverage`: which lines the tests run, per crate, with a floor under the parts that everything
//! rests on. Compiles the workspace's own crates once more, counting, beside those that do not count; what they
//! stand on is compiled once for both. An optional command.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::postgres::Cluster;
use crate::tool;

/// The least that the tests must run of each part, in percent.
const FLOOR: f64 = 95.0;
/// How many histories are simulated: programs that count are slow.
const SEEDS: &str = "100";

/// What is held to the floor: a name, where its sources are, and the test programs that count for it: all of these
/// crates, and these besides.
struct Part {
    name: &'static str,
    places: &'static [&'static str],
    crates: &'static [&'static str],
    programs: &'static [&'static str],
}

const PARTS: [Part; 2] = [
    Part {
        name: "core",
        places: &["crates/core/src/"],
        crates: &["core", "verify"],
        programs: &[],
    },
    Part {
        name: "replay",
        places: &["crates/runtime/src/replay/", "crates/runtime/src/turn/rehearse.rs"],
        crates: &[],
        programs: &["runs", "simulation"],
    },
];

impl Part {
    /// The names of the test programs.
    fn tests(&self) -> Result<Vec<String>> {
        let mut tests: Vec<String> = self.programs.iter().map(|name| name.to_string()).collect();
        for name in self.crates {
            let place = tool::root().join("crates").join(name).join("tests");
            for file in fs::read_dir(&place).with_context(|| format!("no tests of `{name}`"))? {
                let path = file?.path();
                let is_program = match path.is_dir() {
                    true => path.join("main.rs").is_file(),
                    false => path.extension().is_some_and(|ending| ending == "rs"),
                };
                let name = path.file_stem().filter(|_| is_program);
                tests.extend(name.map(|name| name.to_string_lossy().into_owned()));
            }
        }
        Ok(tests)
    }
}

/// What cargo is asked for: of the whole workspace, so that what it stands on has the features that it has when
/// everything is tested, and is not compiled once more.
fn asked_for(parts: &[&Part]) -> Result<Vec<String>> {
    let mut args: Vec<String> =
        ["--workspace", "--all-features", "--lib"].map(str::to_owned).into();
    for part in parts {
        args.extend(part.tests()?.into_iter().flat_map(|name| ["--test".to_owned(), name]));
    }
    Ok(args)
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, Vec<&String>) =
        args.iter().partition(|arg| arg.starts_with("--"));
    let unknown = names.iter().find(|name| !PARTS.iter().any(|part| part.name == name.as_str()));
    if let Some(unknown) = unknown.or(flags.iter().find(|flag| flag.as_str() != "--missing")) {
        bail!("`coverage` does not know `{unknown}`; there are `core`, `replay` and `--missing`");
    }
    let asked =
        |part: &&Part| names.is_empty() || names.iter().any(|name| name.as_str() == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(asked).collect();
    let place = tool::root().join("target/coverage");
    let profiles = place.join("profiles");
    if profiles.exists() {
        fs::remove_dir_all(&profiles)?;
    }
    fs::create_dir_all(&place)?;
    let llvm = Llvm::find()?;
    let counting = Counting::at(&place)?;
    let cluster = Cluster::start()?;
    let tests = asked_for(&parts)?;
    let programs = compile(&tests, &counting)?;
    let mut test = counting.cargo(&["test", "--no-fail-fast"]);
    tool::run(test.args(&tests).env("GESTA_SIM_SEEDS", SEEDS).envs(cluster.variables()))?;
    cluster.stop()?;
    let lines = llvm.lines(&programs, &profiles, &place)?;
    report(&lines, &parts, !flags.is_empty())
}

/// What this program is called where it stands for the compiler.
const COMPILER: &str = "counting";

/// Stands for the compiler, if it was started as that: compiles so that the program counts. Does not return then.
pub(crate) fn count() -> Result<()> {
    let mut words = std::env::args_os();
    let name = words.next().map(PathBuf::from);
    if name.as_deref().and_then(Path::file_name).is_none_or(|name| name != COMPILER) {
        return Ok(());
    }
    let compiler = words.next().context("no compiler is named")?;
    let mut compile = Command::new(&compiler);
    Err(compile.args(words).args(["-C", "instrument-coverage"]).exec())
        .with_context(|| format!("cannot start `{}`", compiler.display()))
}

/// Cargo, told to count.
struct Counting {
    compiler: PathBuf,
    profile: PathBuf,
}

impl Counting {
    /// Says how the workspace's crates are compiled: by this program, under a name of its own. Cargo keeps what such a
    /// compiler makes apart from the rest, and asks it for no others. A script would not do: shells drop variables
    /// whose names they cannot spell, those that name programs to tests among them.
    fn at(place: &Path) -> Result<Self> {
        let compiler = place.join(COMPILER);
        if compiler.symlink_metadata().is_ok() {
            fs::remove_file(&compiler)?;
        }
        symlink(std::env::current_exe()?, &compiler)?;
        Ok(Self { compiler, profile: place.join("profiles/%p-%m.profraw") })
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut cargo = tool::cargo(args);
        cargo
            .env("CARGO_INCREMENTAL", "0")
            .env("RUSTC_WORKSPACE_WRAPPER", &self.compiler)
            .env("LLVM_PROFILE_FILE", &self.profile);
        cargo
    }
}

/// Compiles tests, and says which programs they are.
fn compile(tests: &[String], counting: &Counting) -> Result<Vec<PathBuf>> {
    let mut build =
        counting.cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
    build.stderr(std::process::Stdio::inherit());
    let said = tool::output(build.args(tests))?;
    Ok(said.lines().filter_map(executable).collect())
}

/// The program that one of cargo's messages names. Our paths need no escapes.
fn executable(message: &str) -> Option<PathBuf> {
    let (_, named) = message.split_once("\"executable\":\"")?;
    named.split_once('"').map(|(path, _)| PathBuf::from(path))
}

/// The tools that read what was counted: those of the compiler itself, since the format is its own.
struct Llvm {
    profdata: PathBuf,
    cov: PathBuf,
}

impl Llvm {
    fn find() -> Result<Self> {
        let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
        if let (Some(profdata), Some(cov)) = (given("LLVM_PROFDATA"), given("LLVM_COV")) {
            return Ok(Self { profdata, cov });
        }
        let sysroot = tool::output(tool::command("rustc").args(["--print", "sysroot"]))?;
        let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
        for host in fs::read_dir(&libraries).context("rustc has no libraries")? {
            let tools = host?.path().join("bin");
            let (profdata, cov) = (tools.join("llvm-profdata"), tools.join("llvm-cov"));
            if profdata.is_file() && cov.is_file() {
                return Ok(Self { profdata, cov });
            }
        }
        bail!(
            "llvm-profdata and llvm-cov of the compiler are not there: `rustup component add llvm-tools`, or name others with LLVM_PROFDATA and LLVM_COV"
        )
    }

    /// How often each line was run, by file.
    fn lines(&self, programs: &[PathBuf], profiles: &Path, place: &Path) -> Result<Lines> {
        let merged = place.join("merged.profdata");
        let mut merge = tool::command(&self.profdata);
        tool::run(merge.args(["merge", "--sparse", "-o"]).arg(&merged).arg(profiles))?;
        let mut export = tool::command(&self.cov);
        export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged);
        for (number, program) in programs.iter().enumerate() {
            if number > 0 {
                export.arg("--object");
            }
            export.arg(program);
        }
        Ok(parse(&tool::output(&mut export)?, &tool::root()))
    }
}

/// How often each line was run, by file and line.
type Lines = BTreeMap<String, BTreeMap<u32, u64>>;

/// Reads lcov's format, as far as it is about lines of this repository.
fn parse(lcov: &str, root: &Path) -> Lines {
    let mut lines = Lines::new();
    let mut file: Option<String> = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let inside = Path::new(path).strip_prefix(root).ok();
            file = inside.map(|path| path.to_string_lossy().into_owned());
        } else if let (Some(file), Some((number, count))) =
            (&file, line.strip_prefix("DA:").and_then(|row| row.split_once(',')))
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>())
        {
            let known = lines.entry(file.clone()).or_default().entry(number).or_default();
            *known = (*known).max(count);
        }
    }
    lines
}

/// How many lines there are, and how many of them were run.
fn share<'a>(lines: impl IntoIterator<Item = &'a BTreeMap<u32, u64>>) -> (usize, usize) {
    lines.into_iter().fold((0, 0), |(all, run), file| {
        (all + file.len(), run + file.values().filter(|count| **count > 0).count())
    })
}

fn percent((all, run): (usize, usize)) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * run as f64 / all as f64 }
}

fn report(lines: &Lines, parts: &[&Part], missing: bool) -> Result<()> {
    let mut crates: BTreeMap<String, Vec<&BTreeMap<u32, u64>>> = BTreeMap::new();
    for (file, counts) in lines {
        if let Some((name, _)) = file.split_once("/src/") {
            crates.entry(name.to_owned()).or_default().push(counts);
        }
    }
    println!("| where | lines | run by these tests |\n| --- | --- | --- |");
    for (name, files) in &crates {
        let share = share(files.iter().copied());
        println!("| `{name}` | {} | {:.1} % |", share.0, percent(share));
    }
    let mut below = Vec::new();
    for Part { name, places, .. } in parts {
        let of =
            lines.iter().filter(|(file, _)| places.iter().any(|place| file.starts_with(place)));
        let of: Vec<_> = of.collect();
        let share = share(of.iter().map(|(_, counts)| *counts));
        println!("| **{name}** | {} | {:.1} % |", share.0, percent(share));
        if percent(share) < FLOOR {
            below.push(format!("{name} ({:.1} %)", percent(share)));
        }
        if missing {
            list_missing(&of);
        }
    }
    match below.is_empty() {
        true => Ok(()),
        false => bail!("below {FLOOR} %: {}; `--missing` lists the lines", below.join(", ")),
    }
}

fn list_missing(files: &[(&String, &BTreeMap<u32, u64>)]) {
    for (file, counts) in files {
        let not_run: Vec<String> = counts
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(line, _)| line.to_string())
            .collect();
        if !not_run.is_empty() {
            eprintln!("{file}: {}", not_run.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_once_and_only_those_of_the_repository() {
        let lcov = "SF:/r/crates/core/src/a.rs\nDA:1,0\nDA:2,3\nend_of_record\n\
                    SF:/elsewhere/b.rs\nDA:1,1\nend_of_record\n\
                    SF:/r/crates/core/src/a.rs\nDA:1,2\nDA:9,0\nend_of_record\n";
        let lines = parse(lcov, Path::new("/r"));
        assert_eq!(lines.len(), 1);
        assert_eq!(share(lines.values()), (3, 2));
    }

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let message = r#"{"reason":"compiler-artifact","executable":"/r/target/x-1","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/r/target/x-1")));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }

    #[test]
    fn all_tests_of_a_crate_count_for_it() {
        let parts: Vec<&Part> = PARTS.iter().collect();
        let asked = asked_for(&parts).unwrap();
        let programs = ["state_rules", "log", "verify", "runs", "simulation"];
        assert!(programs.iter().all(|name| asked.iter().any(|arg| arg == name)), "{asked:?}");
        assert!(!asked.iter().any(|arg| arg == "cli"), "{asked:?}");
    }

    #[test]
    fn less_than_the_floor_is_an_error_that_names_the_part() {
        let counted = |run: u32| (0..100).map(|line| (line, u64::from(line < run))).collect();
        let lines = |core| {
            Lines::from([
                ("crates/core/src/entry.rs".to_owned(), counted(core)),
                ("crates/runtime/src/replay/mod.rs".to_owned(), counted(100)),
            ])
        };
        let parts: Vec<&Part> = PARTS.iter().collect();
        assert!(report(&lines(95), &parts, false).is_ok());
        let error = report(&lines(94), &parts, false).unwrap_err().to_string();
        assert!(error.contains("core (94.0 %)") && !error.contains("replay"), "{error}");
    }
}
