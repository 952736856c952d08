//! Gesta's benchmarks. Run by `cargo xtask bench`, which starts PostgreSQL and builds for release.
//!
//! Everything is a ratio to a limit of the machine that was measured in the same run, round about
//! with the figure itself, because the machine is noisy and only such ratios mean anything.

mod claims;
mod growth;
mod history;
mod jobs;
mod limits;
mod peers;
mod policy;
mod postgres;
mod postgres_jobs;
mod replay;
mod sqlite;
mod steps;
mod table;
mod verify;

use std::path::Path;

use anyhow::{Result, bail};
use table::Table;
use tokio::runtime::Runtime;

/// What can be measured by itself.
const PARTS: [&str; 11] = [
    "sqlite",
    "postgres",
    "verify",
    "growth",
    "jobs",
    "governance",
    "long",
    "postgres-jobs",
    "claims",
    "policy",
    "replay",
];

/// As in the `gesta` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, file] = args.as_slice()
        && mode == "peak-memory"
    {
        return verify::peak_memory(Path::new(file));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some((mode, rest)) = args.split_first()
        && mode == "steps"
    {
        return steps::drive(rest, &runtime);
    }
    // Beside the build, not in the temporary directory: that may be memory, and memory has no fsync.
    std::fs::create_dir_all("target")?;
    let place = tempfile::Builder::new().prefix("gesta-bench-").tempdir_in("target")?;
    if let Some((mode, rest)) = args.split_first()
        && mode == "peers"
    {
        return peers::run(rest, place.path());
    }
    if let Some(unknown) = args.iter().find(|arg| !PARTS.contains(&arg.as_str())) {
        bail!("unknown part `{unknown}`; there are {}, and peers", PARTS.join(", "));
    }
    let mut table = Table::default();
    let wanted = |part: &str| args.is_empty() || args.iter().any(|arg| arg == part);
    measure(wanted, place.path(), &runtime, &mut table)?;
    print!("{table}");
    Ok(())
}

/// Measures the parts that are wanted, one after the other.
fn measure(
    wanted: impl Fn(&str) -> bool,
    place: &Path,
    runtime: &Runtime,
    table: &mut Table,
) -> Result<()> {
    limits::sync(place, table)?;
    if wanted("sqlite") {
        sqlite::append(place, runtime, table)?;
    }
    if wanted("postgres") {
        postgres::append(runtime, table)?;
    }
    if wanted("verify") {
        verify::rates(place, table)?;
    }
    if wanted("growth") {
        growth::append(place, runtime, table)?;
    }
    if wanted("jobs") {
        jobs::run(place, runtime, table)?;
    }
    if wanted("governance") {
        jobs::governance(runtime, table)?;
    }
    if wanted("long") {
        jobs::long(place, runtime, table)?;
    }
    if wanted("postgres-jobs") {
        postgres_jobs::run(place, runtime, table)?;
    }
    if wanted("claims") {
        claims::run(place, runtime, table)?;
    }
    if wanted("policy") {
        policy::answers(table)?;
    }
    if wanted("replay") {
        replay::run(runtime, table)?;
    }
    Ok(())
}
