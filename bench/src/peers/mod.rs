//! `cargo xtask bench peers`: durable steps of Gesta and of others, turn by turn with what the machine itself
//! can do.
//!
//! A step does nothing and returns a small JSON; its result is durable before the next begins. Who runs steps is a
//! process of its own, so that it can be killed. There is no figure for steps that the store behind them
//! does not show afterwards.

pub(crate) mod driver;
mod install;
mod report;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::driver::Driver;
use self::install::Installed;
use self::report::{Figures, Limits, Report};
use crate::history::session;
use crate::limits::{bare_sqlite, sync_rate};
use crate::postgres::{pgbench, psql};
use crate::postgres_jobs::own;
use crate::sqlite::size;

/// Jobs at once, and steps of each.
const LOADS: [(usize, usize); 3] = [(1, 1_000), (16, 100), (64, 100)];
/// A job that is killed inside its last step has so many.
const KILLED_IN: usize = 1_000;
const BARE_ROWS: usize = 2_000;

/// What a contender keeps its steps in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    Sqlite,
    Postgres,
    /// A store of its own.
    Own,
}

/// How its driver is started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Runs {
    /// By this program.
    Gesta,
    Python(&'static str),
    Node(&'static str),
    /// A package of its own, by the name of its directory.
    Rust(&'static str),
}

/// Who runs steps.
#[derive(Clone, Copy)]
pub(crate) struct Contender {
    name: &'static str,
    keeps: Keeps,
    runs: Runs,
    /// How long a job stays claimed by a worker that was killed. It is waited for before anybody resumes it.
    claimed: Duration,
}

const NOT_CLAIMED: Duration = Duration::ZERO;
/// All drivers that have a claim ask for two seconds.
const CLAIMED: Duration = Duration::from_millis(2_200);

#[rustfmt::skip]
const CONTENDERS: [Contender; 11] = [
    Contender { name: "Gesta, SQLite", keeps: Keeps::Sqlite, runs: Runs::Gesta, claimed: NOT_CLAIMED },
    Contender { name: "LangGraph, SQLite", keeps: Keeps::Sqlite, runs: Runs::Python("langgraph_steps.py"), claimed: NOT_CLAIMED },
    Contender { name: "DBOS, SQLite", keeps: Keeps::Sqlite, runs: Runs::Python("dbos_steps.py"), claimed: NOT_CLAIMED },
    Contender { name: "duroxide, SQLite", keeps: Keeps::Sqlite, runs: Runs::Rust("duroxide"), claimed: CLAIMED },
    Contender { name: "Gesta, PostgreSQL", keeps: Keeps::Postgres, runs: Runs::Gesta, claimed: CLAIMED },
    Contender { name: "absurd, PostgreSQL", keeps: Keeps::Postgres, runs: Runs::Python("absurd_steps.py"), claimed: CLAIMED },
    Contender { name: "LangGraph, PostgreSQL", keeps: Keeps::Postgres, runs: Runs::Python("langgraph_steps.py"), claimed: NOT_CLAIMED },
    Contender { name: "DBOS, PostgreSQL", keeps: Keeps::Postgres, runs: Runs::Python("dbos_steps.py"), claimed: NOT_CLAIMED },
    Contender { name: "agentplane, PostgreSQL", keeps: Keeps::Postgres, runs: Runs::Rust("agentplane"), claimed: CLAIMED },
    Contender { name: "agentplane, redb", keeps: Keeps::Own, runs: Runs::Rust("agentplane"), claimed: CLAIMED },
    Contender { name: "Restate, its own store", keeps: Keeps::Own, runs: Runs::Node("restate_steps.mjs"), claimed: NOT_CLAIMED },
];

/// Who is not measured at all, and why.
const ABSENT: [(&str, &str); 2] = [
    ("chio", "it signs and keeps receipts of calls, but has no job whose steps it runs or resumes"),
    ("Temporal, Inngest, Golem", "their servers are in no package registry"),
];

impl Runs {
    /// What must be installed for it: scripts of one language need the same.
    fn kind(self) -> Self {
        match self {
            Self::Python(_) => Self::Python(""),
            Self::Node(_) => Self::Node(""),
            Self::Gesta | Self::Rust(_) => self,
        }
    }
}

impl Contender {
    fn is_gesta(&self) -> bool {
        matches!(self.runs, Runs::Gesta)
    }

    fn command(&self, installed: &Installed) -> Result<Command> {
        let scripted = |script: &str| {
            let mut command = Command::new(installed.program(self.runs)?);
            command.arg(installed.scratch.join(script));
            Ok(command)
        };
        match self.runs {
            Runs::Gesta => own(),
            Runs::Python(script) | Runs::Node(script) => scripted(script),
            Runs::Rust(_) => Ok(Command::new(installed.program(self.runs)?)),
        }
    }
}

pub(crate) fn run(args: &[String], place: &Path) -> Result<()> {
    let Wanted { rounds, only } = read(args)?;
    let ground = Ground::new(place)?;
    let wanted: Vec<Contender> = CONTENDERS
        .into_iter()
        .filter(|it| it.name.to_lowercase().contains(&only.to_lowercase()))
        .collect();
    ensure!(!wanted.is_empty(), "nobody is called `{only}`");
    let installed = install::install(wanted.iter().map(|it| it.runs))?;
    let mut report = Report::new(&wanted);
    for round in 1..=rounds {
        report.limits.add(&limits(&ground, round)?);
        for (contender, figures) in &mut report.figures {
            if figures.failed.is_some() {
                continue;
            }
            eprintln!("round {round}: {}", contender.name);
            if let Err(error) = measure(contender, figures, &installed, &ground) {
                eprintln!("  {error:#}");
                figures.failed = Some(format!("{error:#}"));
            }
        }
    }
    print!("{report}");
    Ok(())
}

struct Wanted {
    rounds: u32,
    only: String,
}

fn read(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted { rounds: 3, only: String::new() };
    for pair in args.chunks(2) {
        match pair {
            [flag, rounds] if flag == "--rounds" => {
                wanted.rounds =
                    rounds.parse().with_context(|| format!("`{rounds}` is not a number"))?;
            }
            [flag, only] if flag == "--only" => wanted.only.clone_from(only),
            _ => bail!(
                "unknown arguments `{}`; as in `cargo xtask bench peers --rounds 3 --only sqlite`",
                pair.join(" ")
            ),
        }
    }
    Ok(wanted)
}

/// Where the measurements take place.
pub(crate) struct Ground<'a> {
    pub(crate) place: &'a Path,
    pub(crate) url: String,
}

/// A directory and a database for one measurement. Dropped, both are gone.
pub(crate) struct Spot<'a> {
    ground: &'a Ground<'a>,
    pub(crate) directory: tempfile::TempDir,
    database: String,
}

impl<'a> Ground<'a> {
    pub(crate) fn new(place: &'a Path) -> Result<Self> {
        let url = std::env::var("GESTA_TEST_POSTGRES")
            .context("no PostgreSQL: run this with `cargo xtask bench`, which starts one")?;
        // Encryption would be the same for all, and some ask for it by default.
        Ok(Self { place, url: format!("{url}?sslmode=disable") })
    }

    pub(crate) fn spot(&self) -> Result<Spot<'_>> {
        let directory = tempfile::Builder::new().prefix("steps-").tempdir_in(self.place)?;
        // Absolute, because drivers have libraries that make URLs of it.
        let path = std::path::absolute(directory.path())?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a directory's name")?;
        let database = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let database = format!("{database}_{}", std::process::id());
        psql(&self.url, &format!("CREATE DATABASE {database}"))?;
        Ok(Spot { ground: self, directory, database })
    }
}

impl Spot<'_> {
    pub(crate) fn url(&self) -> String {
        let url = self.ground.url.replacen("postgres://", "postgresql://", 1);
        url.replacen("/postgres?", &format!("/{}?", self.database), 1)
    }

    /// Starts a driver here.
    pub(crate) fn start(
        &self,
        mut command: Command,
        keeps: Keeps,
        arguments: (&str, usize, usize),
    ) -> Result<Driver> {
        let (mode, jobs, steps) = arguments;
        command.args([mode, &jobs.to_string(), &steps.to_string()]);
        let store = match keeps {
            Keeps::Sqlite => "sqlite",
            Keeps::Postgres => "postgres",
            Keeps::Own => "own",
        };
        command.env("STEPS_STORE", store);
        command.env("STEPS_PLACE", std::path::absolute(self.directory.path())?);
        command.env("STEPS_POSTGRES", self.url());
        Driver::start(command, self.directory.path())
    }
}

impl Drop for Spot<'_> {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.database);
        if let Err(error) = psql(&self.ground.url, &drop) {
            eprintln!("warning: {error:#}");
        }
    }
}

/// What the machine itself can do.
fn limits(ground: &Ground<'_>, round: u32) -> Result<Limits<f64>> {
    let rows = session(u64::from(round), BARE_ROWS)?;
    let bytes = size(&rows);
    Ok(Limits {
        sync: sync_rate(ground.place)?,
        sqlite: bare_sqlite(&ground.place.join(format!("bare-peers-{round}.db")), &rows)?,
        postgres: pgbench(&ground.url, bytes, 1)?,
        postgres_many: pgbench(&ground.url, bytes, 64)?,
    })
}

fn measure(
    contender: &Contender,
    figures: &mut Figures,
    installed: &Installed,
    ground: &Ground<'_>,
) -> Result<()> {
    for (of, (jobs, steps)) in figures.rates.iter_mut().zip(LOADS) {
        let spot = ground.spot()?;
        let command = contender.command(installed)?;
        let rate = throughput(&spot, command, contender.keeps, (jobs, steps));
        let rate = rate.with_context(|| format!("{jobs} jobs of {steps} steps"))?;
        eprintln!("  {jobs} x {steps}: {rate:.0}/s");
        of.push(rate);
    }
    let resumed = resumed(contender, installed, ground).context("resuming")?;
    eprintln!("  resumed after {:.0} ms, {:.0} ms of them loaded", resumed.0, resumed.1);
    figures.resumed.push(resumed.0);
    figures.resumed_loaded.push(resumed.1);
    Ok(())
}

/// Steps a second.
pub(crate) fn throughput(
    spot: &Spot<'_>,
    command: Command,
    keeps: Keeps,
    (jobs, steps): (usize, usize),
) -> Result<f64> {
    let driver = spot.start(command, keeps, ("run", jobs, steps))?;
    let (_, said) = driver.wait_for("done")?;
    figure(&said, jobs * steps)
}

/// Steps a second, as a driver tells it; none unless its store shows what was asked for.
fn figure(said: &str, asked: usize) -> Result<f64> {
    let (seconds, durable) = said.split_once(' ').context("`done` without two numbers")?;
    let (seconds, durable): (f64, usize) = (seconds.parse()?, durable.parse()?);
    ensure!(durable == asked, "its store shows {durable} steps, not {asked}");
    Ok(durable as f64 / seconds)
}

/// Milliseconds from the start of a process to the body of the step that another was killed in; then without
/// the time that its libraries took to load.
fn resumed(
    contender: &Contender,
    installed: &Installed,
    ground: &Ground<'_>,
) -> Result<(f64, f64)> {
    let spot = ground.spot()?;
    let start =
        |mode| spot.start(contender.command(installed)?, contender.keeps, (mode, 1, KILLED_IN));
    let first = start("hang")?;
    first.wait_for("step")?;
    first.kill();
    std::thread::sleep(contender.claimed);
    let second = start("resume")?;
    let (ready, _) = second.wait_for("ready")?;
    let (step, _) = second.wait_for("step")?;
    let ms = |since| step.duration_since(since).as_secs_f64() * 1e3;
    Ok((ms(second.begun), ms(ready)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_figure_for_what_a_store_does_not_show() {
        assert!((figure("2.0 1000", 1_000).unwrap() - 500.0).abs() < 1e-9);
        let error = figure("2.0 999", 1_000).unwrap_err().to_string();
        assert_eq!(error, "its store shows 999 steps, not 1000");
        assert!(figure("2.0", 1_000).is_err());
    }

    #[test]
    fn a_driver_that_ends_too_early_is_quoted() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo noise; echo ready; echo no such module >&2"]);
        let driver = Driver::start(command, place.path()).unwrap();
        driver.wait_for("ready").unwrap();
        let error = driver.wait_for("done").unwrap_err().to_string();
        assert_eq!(error, "it ended before `done`: no such module");
    }

    #[test]
    fn whatever_a_driver_has_started_dies_with_it() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo step $!; wait"]);
        let driver = Driver::start(command, place.path()).unwrap();
        let (_, pid) = driver.wait_for("step").unwrap();
        driver.kill();
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().unwrap_or_default().to_owned();
            !state.is_empty() && !state.starts_with('Z')
        };
        // It was told to die, which takes the system a moment.
        let begun = std::time::Instant::now();
        while lives() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it lives");
            std::thread::yield_now();
        }
    }

    #[test]
    fn arguments_are_read() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let Wanted { rounds, only } = read(&words("--rounds 2 --only sqlite")).unwrap();
        assert_eq!((rounds, only.as_str()), (2, "sqlite"));
        assert!(read(&words("--rounds many")).is_err());
        assert!(read(&words("--fast")).is_err());
    }
}
