//! Appending to SQLite: alone, and with 64 trajectories at once.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use gesta_core::projection::Admitted;
use gesta_store::Store;
use gesta_store::sqlite::{Options, SqliteStore};
use tokio::runtime::Runtime;

use crate::history::session;
use crate::limits::bare_sqlite;
use crate::table::{Table, median, per_second, rate};

const ROUNDS: u64 = 3;
const ALONE: usize = 3000;
const TOGETHER: u64 = 64;
const EACH: usize = 200;

pub(crate) fn append(place: &Path, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let (mut bare, mut alone, mut together) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for round in 0..ROUNDS {
        let one = session(1, ALONE)?;
        let many = (0..TOGETHER).map(|n| session(100 + n, EACH)).collect::<Result<Vec<_>>>()?;
        bytes = size(&one);
        bare.push(bare_sqlite(&place.join(format!("bare-{round}.db")), &one)?);

        let store = SqliteStore::open(place.join(format!("store-{round}.db")), Options::default())?;
        let store: Arc<dyn Store> = Arc::new(store);
        alone.push(runtime.block_on(concurrently(&store, vec![one]))?);
        together.push(runtime.block_on(concurrently(&store, many))?);
    }
    let (bare, alone, together) = (median(bare), median(alone), median(together));
    table.limit(&format!("bare SQLite, one {bytes}-byte row a commit"), rate(bare));
    table.ratio(
        "append, SQLite, one writer, one entry a commit",
        rate(alone),
        alone / bare,
        "≥ 0.8 of bare",
    );
    table.ratio(
        "append, SQLite, 64 trajectories",
        rate(together),
        together / alone,
        "≥ 6 times one writer",
    );
    Ok(())
}

/// The mean size of the entries, the first append left out.
pub(crate) fn size(appends: &[Admitted]) -> usize {
    let sizes: Vec<usize> = appends
        .iter()
        .skip(1)
        .flat_map(|append| append.entries())
        .map(|entry| entry.bytes().len())
        .collect();
    sizes.iter().sum::<usize>() / sizes.len().max(1)
}

/// Appends each list in order, all lists at once; entries a second. Beginnings are not timed, and
/// what was acknowledged is counted in the store before a figure is given.
pub(crate) async fn concurrently(store: &Arc<dyn Store>, lists: Vec<Vec<Admitted>>) -> Result<f64> {
    let mut ready = Vec::new();
    let mut heads = Vec::new();
    for list in lists {
        let mut list = list.into_iter();
        store.append(list.next().context("a list begins a trajectory")?).await?;
        let rest: Vec<Admitted> = list.collect();
        heads.extend(rest.last().map(|last| (last.trajectory(), last.head())));
        ready.push(rest);
    }
    let count = ready.iter().map(Vec::len).sum();
    let begun = std::time::Instant::now();
    let tasks: Vec<_> = ready
        .into_iter()
        .map(|list| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for admitted in list {
                    store.append(admitted).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let took = begun.elapsed();
    for (trajectory, head) in heads {
        let row = store.trajectory(trajectory).await?.context("the trajectory is there")?;
        ensure!(row.head == head, "the store does not show the work as done");
    }
    Ok(per_second(count, took))
}
