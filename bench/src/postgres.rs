//! Appending to PostgreSQL with 64 trajectories at once, against `pgbench` with a plain INSERT.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use gesta_store::Store;
use gesta_store::postgres::{Options, PostgresStore};
use tokio::runtime::Runtime;

use crate::history::session;
use crate::sqlite::{concurrently, size};
use crate::table::{Table, median, rate};

const ROUNDS: u64 = 3;
const TOGETHER: u64 = 64;
const EACH: usize = 300;

pub(crate) fn append(runtime: &Runtime, table: &mut Table) -> Result<()> {
    let url = std::env::var("GESTA_TEST_POSTGRES")
        .context("no PostgreSQL: run this with `cargo xtask bench`, which starts one")?;
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for round in 0..ROUNDS {
        let lists = (0..TOGETHER)
            .map(|n| session(1000 * (round + 1) + n, EACH))
            .collect::<Result<Vec<_>>>()?;
        bytes = lists.first().map_or(0, |list| size(list));
        plain.push(pgbench(&url, bytes, 64)?);
        let rate = runtime.block_on(async {
            let store: Arc<dyn Store> =
                Arc::new(PostgresStore::connect(&url, &Options::default()).await?);
            concurrently(&store, lists).await
        })?;
        ours.push(rate);
    }
    let (plain, ours) = (median(plain), median(ours));
    table.limit(&format!("pgbench, plain INSERT of a {bytes}-byte row, 64 clients"), rate(plain));
    table.ratio("append, PostgreSQL, 64 trajectories", rate(ours), ours / plain, "> 1");
    Ok(())
}

/// Runs one statement.
pub(crate) fn psql(url: &str, sql: &str) -> Result<String> {
    let done = Command::new(tool("psql")?).args([url, "-q", "-A", "-t", "-c", sql]).output()?;
    ensure!(done.status.success(), "psql: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

/// Transactions a second of a one-row INSERT with so many clients.
pub(crate) fn pgbench(url: &str, bytes: usize, clients: u32) -> Result<f64> {
    psql(url, "CREATE TABLE IF NOT EXISTS plain (client bigint, payload bytea)")?;
    let mut script = tempfile::NamedTempFile::new()?;
    use std::io::Write as _;
    writeln!(
        script,
        "INSERT INTO plain VALUES (:client_id, decode(repeat('ab', {bytes}), 'hex'));"
    )?;
    let output = Command::new(tool("pgbench")?)
        .args(["-n", "-M", "prepared", "-T", "4", "-c"])
        .args([&clients.to_string(), "-j", &clients.min(2).to_string(), "-f"])
        .arg(script.path())
        .arg(url)
        .output()?;
    ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
        .with_context(|| format!("no rate in what pgbench printed: {text}"))
}

/// A PostgreSQL program, from the PATH or from where Debian's packages put it.
fn tool(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = std::env::split_paths(&path)
        .chain(debian.map(|version| version.path().join("bin")))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file());
    match found {
        Some(program) => Ok(program),
        None => bail!("`{name}` is not installed; it comes with PostgreSQL"),
    }
}
