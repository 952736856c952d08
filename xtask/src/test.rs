//! `cargo xtask test`: everything that must hold before a commit, cheapest first.
//!
//! Needs nothing prepared: what a test stands on (PostgreSQL, its certificate, MCP servers) is set up here.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::postgres::Cluster;
use crate::{deps, servers, tidy, tool};

const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let for_runner = match args.split_first() {
        None => &[],
        Some((dashes, rest)) if dashes == "--" => rest,
        Some((arg, _)) => bail!(
            "unknown argument `{arg}`; arguments for the test runner follow `--`, as in `cargo xtask test -- chain`"
        ),
    };
    let started = Instant::now();

    step("format", || {
        tool::run(&mut tool::cargo(&["fmt", "--all", "--check"]))
            .context("run `cargo fmt --all` to repair it")
    })?;
    step("tidy", || tidy::run(&[]))?;
    step("dependencies", || deps::run(&[]))?;
    step("clippy", || {
        let mut clippy = tool::cargo(&["clippy", "--all-targets"]);
        tool::run(clippy.args(EVERYTHING).args(["--", "-D", "warnings"]))
    })?;
    let servers = step("MCP servers", servers::prepare)?;
    let cluster = step("start PostgreSQL", Cluster::start)?;
    step("tests", || {
        let mut runner = runner(for_runner);
        runner.args(for_runner).envs(cluster.variables()).envs([servers.variable()]);
        tool::run(&mut runner)
    })?;
    if for_runner.is_empty() {
        step("doc tests", || {
            let mut doc_tests = tool::cargo(&["test", "--doc", "--quiet"]);
            tool::run(doc_tests.args(EVERYTHING).envs(cluster.variables()))
        })?;
    }
    step("stop PostgreSQL", || cluster.stop())?;

    let total = show(started.elapsed());
    if for_runner.is_empty() {
        eprintln!("all checks and tests passed in {total}");
    } else {
        let narrowed = for_runner.join(" ");
        eprintln!("checks passed, and the tests selected by `{narrowed}`, in {total}");
    }
    Ok(())
}

/// How many tests run at once on each core, unless somebody says how many there are to be: most of the time tests
/// wait for disks, processes and leases.
const AT_ONCE: usize = 2;

/// nextest where it is installed (it runs tests in parallel across crates); it leaves doc tests to us.
fn runner(args: &[String]) -> Command {
    let quiet =
        |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let nextest = quiet(&mut tool::cargo(&["nextest", "--version"]));
    let mut command = if nextest.is_ok_and(|status| status.success()) {
        let mut nextest = tool::cargo(&["nextest", "run", "--no-fail-fast"]);
        nextest.args(at_once(args));
        nextest
    } else {
        tool::cargo(&["test", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"])
    };
    command.args(EVERYTHING);
    command
}

fn at_once(args: &[String]) -> Option<String> {
    let said = ["-j", "--jobs", "--test-threads", "--no-capture"];
    if args.iter().any(|arg| said.iter().any(|said| arg.starts_with(said))) {
        return None;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Some(format!("--test-threads={}", cores.saturating_mul(AT_ONCE)))
}

fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("== {name}");
    let started = Instant::now();
    let result = work().with_context(|| format!("step `{name}` failed"))?;
    eprintln!("== {name}: passed in {}", show(started.elapsed()));
    Ok(result)
}

fn show(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds if seconds >= 60 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{:.1} s", elapsed.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_for_the_runner_need_the_dashes() {
        let error = run(&["chain".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("cargo xtask test -- chain"), "{error}");
    }

    #[test]
    fn whoever_says_how_many_tests_run_at_once_is_heard() {
        assert!(at_once(&[]).is_some_and(|arg| arg.starts_with("--test-threads=")));
        for said in ["-j1", "--jobs=1", "--test-threads", "--no-capture"] {
            assert_eq!(at_once(&["chain".to_owned(), said.to_owned()]), None, "{said}");
        }
    }

    #[test]
    fn a_failing_step_is_named() {
        let error = step::<()>("clippy", || bail!("two warnings")).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `clippy` failed: two warnings");
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(show(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(show(Duration::from_secs(135)), "2 min 15 s");
    }
}
