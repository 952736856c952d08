//! How fast what was done is derived again, on one core: calls, each with its decision under a policy, and
//! computations, which nobody decides.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Result, ensure};
use gesta_runtime::Left;
use gesta_runtime::replay::{Asked, Library, Session, replay};
use gesta_store::memory::MemoryStore;
use tokio::runtime::Runtime;

use crate::jobs::{Calls, Scene, cpu_time};
use crate::table::{Table, rate};

const FANS: usize = 10;
const ITEMS: usize = 1_000;
/// As many as one plan holds.
const SETS: usize = 5_000;

pub(crate) fn run(runtime: &Runtime, table: &mut Table) -> Result<()> {
    let items: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
    let items = items.join(",");
    let mut calls = String::from("job: calls\nparallel: 1\nsteps:\n");
    for fan in 0..FANS {
        let each = format!("each: '${{[{items}]}}', tool: noop, args: {{}}");
        let _infallible = writeln!(calls, "  - {{ id: f{fan}, {each} }}");
    }
    calls += "answer: done\n";
    one(runtime, table, "replay of calls, entries a second of CPU", &calls, 20_000.0)?;
    let mut sets = String::from("job: sets\nsteps:\n");
    for step in 0..SETS {
        let _infallible = writeln!(sets, "  - {{ id: s{step}, set: '${{ {step} * 2 + 1 }}' }}");
    }
    sets += "answer: done\n";
    one(runtime, table, "replay of computations, entries a second of CPU", &sets, 60_000.0)
}

fn one(runtime: &Runtime, table: &mut Table, what: &str, job: &str, goal: f64) -> Result<()> {
    let store = Arc::new(MemoryStore::new(gesta_store::clock::system()));
    let (entries, took) = runtime.block_on(async {
        let scene = Scene::new(store, &Calls::default()).await?;
        let id = scene.submit(1, job).await?;
        ensure!(scene.drive_to(id).await? == Left::Ended, "the job has not ended");
        let mut library = Library::new(Arc::clone(&scene.store));
        let cpu = cpu_time()?;
        let (report, _) = replay(&mut library, id, &Asked::default(), &mut |_| ()).await?;
        let took = cpu_time()? - cpu;
        ensure!(report.session == Session::Complete, "{:?}", report.session);
        anyhow::Ok((report.entries, took))
    })?;
    let speed = entries as f64 / took.as_secs_f64();
    table.ratio(what, rate(speed), speed / goal, "≥ 1 of the goal");
    Ok(())
}
