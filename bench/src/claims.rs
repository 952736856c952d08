//! What a claim costs in a store that holds few and many ended jobs, as the stores run it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use gesta_core::ids::WorkerId;
use gesta_store::postgres::{self, PostgresStore};
use gesta_store::{Profile, Store};
use tokio::runtime::Runtime;

use crate::jobs::{Scene, open};
use crate::peers::Ground;
use crate::postgres::psql;
use crate::steps::{self, submit};
use crate::table::{Table, median};

const FEW: usize = 100;
const MANY: usize = 1_000_000;
/// Jobs that wait.
const WAITING: usize = 64;
const CLAIMS: usize = 500;
const LEASE_MS: u64 = 600_000;

pub(crate) fn run(place: &Path, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let ground = Ground::new(place)?;
    let on_sqlite = |ended: usize| -> Result<f64> {
        let file = place.join(format!("claims-{ended}.db"));
        let store = open(&file)?;
        fill_sqlite(&file, ended)?;
        runtime.block_on(claims(store))
    };
    let (few, many) = (on_sqlite(FEW)?, on_sqlite(MANY)?);
    rows(table, "SQLite", few, many);

    let on_postgres = |ended: usize| -> Result<f64> {
        let spot = ground.spot()?;
        let options = postgres::Options::default();
        let store = runtime.block_on(PostgresStore::connect(&spot.url(), &options))?;
        fill_postgres(&spot.url(), ended)?;
        let took = runtime.block_on(claims(Arc::new(store)))?;
        Ok(took)
    };
    let (few, many) = (on_postgres(FEW)?, on_postgres(MANY)?);
    rows(table, "PostgreSQL", few, many);
    Ok(())
}

fn rows(table: &mut Table, store: &str, few: f64, many: f64) {
    table.limit(&format!("a claim, {store}, 100 ended jobs"), format!("{few:.0} µs"));
    let what = format!("a claim, {store}, 1,000,000 ended jobs");
    table.ratio(&what, format!("{many:.0} µs"), many / few, "≤ 1.2");
}

/// Microseconds of a claim, the middle of many. Each is given back.
async fn claims(store: Arc<dyn Store>) -> Result<f64> {
    let scene = Scene::with(Arc::clone(&store), steps::external()?).await?;
    submit(&scene, WAITING, 1).await?;
    let worker: WorkerId = "claims".parse()?;
    let profile =
        Profile { tools: vec!["noop".parse()?].into_iter().collect(), ..Profile::default() };
    store.heartbeat(&worker, &profile, LEASE_MS).await?;
    let mut took = Vec::new();
    for _ in 0..CLAIMS {
        let begun = Instant::now();
        let claimed = store.claim(&worker, 1).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
        ensure!(claimed.len() == 1, "a claim came back with {} jobs", claimed.len());
        for id in claimed {
            store.release(&worker, id).await?;
        }
    }
    Ok(median(took))
}

fn fill_sqlite(file: &Path, ended: usize) -> Result<()> {
    let db = rusqlite::Connection::open(file)?;
    db.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO trajectories (trajectory, head_seq, head_id, attempt, kind, status, tenant,
             principal, runnable, begun_at, changed_at, tools)
         SELECT randomblob(16), 9, randomblob(32), 1, 'job', 'completed', 'main', 'somebody', 0, n, n,
             'noop'
         FROM n",
        [ended],
    )?;
    let there: usize = db.query_row("SELECT count(*) FROM trajectories", [], |row| row.get(0))?;
    ensure!(there == ended, "{there} ended jobs, not {ended}");
    Ok(())
}

fn fill_postgres(url: &str, ended: usize) -> Result<()> {
    psql(
        url,
        &format!(
            "INSERT INTO trajectories (trajectory, head_seq, head_id, attempt, kind, status, tenant,
                 principal, runnable, begun_at, changed_at, tools)
             SELECT decode(md5(n::text), 'hex'), 9, sha256(n::text::bytea), 1, 'job', 'completed', 'main',
                 'somebody', false, n, n, 'noop'
             FROM generate_series(1, {ended}) AS n"
        ),
    )?;
    // As autovacuum does by and by.
    psql(url, "VACUUM ANALYZE trajectories")?;
    let there: usize = psql(url, "SELECT count(*) FROM trajectories")?.trim().parse()?;
    ensure!(there == ended, "{there} ended jobs, not {ended}");
    Ok(())
}
