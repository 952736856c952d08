//! Whole jobs on PostgreSQL, by workers in processes of their own.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gesta_core::projection::Status;
use gesta_store::postgres::{Options, PostgresStore};
use gesta_store::{Listing, Store};
use tokio::runtime::Runtime;

use crate::history::session;
use crate::jobs::Scene;
use crate::peers::{Ground, Keeps, Spot, throughput};
use crate::postgres::pgbench;
use crate::sqlite::size;
use crate::steps::{self, submit};
use crate::table::{Table, median, per_second, rate};

const ROUNDS: u64 = 3;
const STEPS: usize = 1_000;
const JOBS: usize = 64;
const EACH: usize = 100;
/// More than one worker claims at a time.
const SHARED_JOBS: usize = 128;
const SHARED_EACH: usize = 50;
/// Those up to the first attempt, and not many more.
const FIRST_ENTRIES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);

pub(crate) fn run(place: &Path, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let ground = Ground::new(place)?;
    let bytes = size(&session(1, 100)?);
    let (mut bare, mut bare_many) = (Vec::new(), Vec::new());
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    let (mut by_one, mut by_two) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(pgbench(&ground.url, bytes, 1)?);
        bare_many.push(pgbench(&ground.url, bytes, 64)?);
        alone.push(throughput(&ground.spot()?, own()?, Keeps::Postgres, (1, STEPS))?);
        together.push(throughput(&ground.spot()?, own()?, Keeps::Postgres, (JOBS, EACH))?);
        by_one.push(shared(&ground.spot()?, 1, runtime)?);
        by_two.push(shared(&ground.spot()?, 2, runtime)?);
    }
    let (bare, alone, together) = (median(bare), median(alone), median(together));
    let (by_one, by_two) = (median(by_one), median(by_two));
    table.limit("pgbench, one row a commit, 1 client", rate(bare));
    table.limit("pgbench, one row a commit, 64 clients", rate(median(bare_many)));
    table.ratio("PostgreSQL, one job, 1,000 effects", rate(alone), alone / bare, "≥ 0.5 of bare");
    table.ratio("PostgreSQL, 64 jobs of 100 effects", rate(together), together / alone, "");
    table.limit("128 jobs of 50 effects, one worker process", rate(by_one));
    table.ratio("the same, two worker processes", rate(by_two), by_two / by_one, "≥ 1");
    Ok(())
}

/// This program, as a driver.
pub(crate) fn own() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("steps");
    Ok(command)
}

/// Effects a second of jobs that are there already when so many workers begin.
fn shared(spot: &Spot<'_>, workers: usize, runtime: &Runtime) -> Result<f64> {
    runtime.block_on(async {
        let store: Arc<dyn Store> =
            Arc::new(PostgresStore::connect(&spot.url(), &Options::default()).await?);
        let scene = Scene::with(store, steps::external()?).await?;
        let ids = submit(&scene, SHARED_JOBS, SHARED_EACH).await?;
        let mut drivers = (0..workers)
            .map(|_| spot.start(own()?, Keeps::Postgres, ("work", SHARED_JOBS, SHARED_EACH)))
            .collect::<Result<Vec<_>>>()?;
        for driver in &drivers {
            driver.wait_for("step")?;
        }
        let begun = Instant::now();
        for driver in &mut drivers {
            driver.go()?;
        }
        let completed = Listing { status: Some(Status::Completed), after: None };
        while scene.store.list(&completed, SHARED_JOBS).await?.len() < SHARED_JOBS {
            ensure!(begun.elapsed() < PATIENCE, "the jobs do not end");
            tokio::time::sleep(LOOK).await;
        }
        let took = begun.elapsed();
        for id in &ids {
            scene.check(*id, SHARED_EACH).await?;
        }
        let mut drove = BTreeSet::new();
        for id in &ids {
            let entries = scene.store.entries(*id, 0, FIRST_ENTRIES).await?;
            for entry in entries {
                let entry: serde_json::Value = serde_json::from_slice(&entry.bytes)?;
                drove.extend(
                    entry
                        .pointer("/by/worker")
                        .and_then(|worker| worker.as_str())
                        .map(str::to_owned),
                );
            }
        }
        ensure!(drove.len() == workers, "{} of {workers} workers had a part in it", drove.len());
        Ok(per_second(SHARED_JOBS * SHARED_EACH, took))
    })
}
