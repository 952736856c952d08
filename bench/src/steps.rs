//! Gesta as one of those that are compared: it speaks what `bench/peers/steps.py` describes, in a process of
//! its own. Its calls are external effects that must not happen twice (`never`); only those of a job that is
//! to be killed inside one are `safe`, for nothing else may be sent again unasked.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gesta_core::ids::TrajectoryId;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{Left, Options};
use gesta_store::postgres::{self, PostgresStore};
use gesta_store::{Chain, Store};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};

use crate::jobs::{Scene, chain_of, open};

/// How often it is looked whether the jobs are over. Nobody looks before all calls were made.
const LOOK: Duration = Duration::from_millis(1);

/// The calls that are made, and the bell for the last of them: to look now and then would take time from
/// what is measured.
#[derive(Default)]
struct Calls {
    made: AtomicUsize,
    all: usize,
    rung: Notify,
}

impl Calls {
    fn count(&self) {
        if self.made.fetch_add(1, Ordering::Relaxed) + 1 == self.all {
            self.rung.notify_one();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Times jobs that are submitted and driven.
    Run,
    /// Enters the last step of a job and stays there.
    Hang,
    /// Takes up what another process has left.
    Resume,
    /// Drives what there is from the first byte of standard input on, until that ends.
    Work,
}

pub(crate) fn drive(args: &[String], runtime: &Runtime) -> Result<()> {
    let [mode, jobs, steps] = args else { bail!("as in `steps run JOBS STEPS`") };
    let mode = match mode.as_str() {
        "run" => Mode::Run,
        "hang" => Mode::Hang,
        "resume" => Mode::Resume,
        "work" => Mode::Work,
        _ => bail!("`{mode}` is not run, hang, resume or work"),
    };
    let (jobs, steps) = (jobs.parse()?, steps.parse()?);
    say("ready")?;
    runtime.block_on(async {
        let place = PathBuf::from(std::env::var_os("STEPS_PLACE").context("no STEPS_PLACE")?);
        let (store, presence) = store_at(&place).await?;
        let calls = Arc::new(Calls { all: jobs * steps, ..Calls::default() });
        let scene = Scene::with(store, tools(mode, steps, &calls)?).await?;
        let options = Options { lease_ms: lease_ms(mode), ..Options::default() };
        let worker = scene.worker_called(&name(), options, presence).await?;
        let (stop, stopped) = watch::channel(false);
        match mode {
            Mode::Run => {
                end_with_standard_input();
                let ids = submit(&scene, jobs, steps).await?;
                let begun = Instant::now();
                let over = async {
                    calls.rung.notified().await;
                    all_over(&scene, &ids).await?;
                    let took = begun.elapsed();
                    stop.send(true)?;
                    anyhow::Ok(took)
                };
                let (ran, took) = tokio::join!(worker.run(stopped), over);
                ran?;
                say(&format!("done {} {}", took?.as_secs_f64(), shown(&scene, &ids).await?))
            }
            Mode::Hang => {
                end_with_standard_input();
                let ids = submit(&scene, 1, steps).await?;
                let id = *ids.first().context("a job")?;
                ensure!(worker.run_one(id, stopped).await? == Left::Ended, "the job has not ended");
                Ok(())
            }
            Mode::Resume => {
                end_with_standard_input();
                Ok(worker.run(stopped).await?)
            }
            Mode::Work => {
                say("step")?;
                let mut byte = [0];
                std::io::stdin().read_exact(&mut byte)?;
                end_with_standard_input();
                Ok(worker.run(stopped).await?)
            }
        }
    })
}

/// A store of this process's own, and where workers of this machine show that they are alive, if the store is a file.
async fn store_at(place: &Path) -> Result<(Arc<dyn Store>, Option<PathBuf>)> {
    let kind = std::env::var("STEPS_STORE").context("no STEPS_STORE")?;
    if kind == "sqlite" {
        return Ok((open(&place.join("gesta.db"))?, Some(place.join("workers"))));
    }
    let url = std::env::var("STEPS_POSTGRES").context("no STEPS_POSTGRES")?;
    let store = PostgresStore::connect(&url, &postgres::Options::default()).await?;
    Ok((Arc::new(store), None))
}

/// A lease that is killed is waited for, so it is short.
fn lease_ms(mode: Mode) -> u64 {
    if mode == Mode::Hang { 2_000 } else { Options::default().lease_ms }
}

fn name() -> String {
    format!("steps-{}", std::process::id())
}

fn tools(mode: Mode, steps: usize, calls: &Arc<Calls>) -> Result<Catalogue> {
    let crash = matches!(mode, Mode::Hang | Mode::Resume);
    let effect = if crash { Effect::Read } else { Effect::External };
    let calls = Arc::clone(calls);
    let last = format!("s{}", steps.saturating_sub(1));
    let noop = move |call: FunctionCall| {
        calls.count();
        let reached = crash && call.step.as_str() == last;
        async move {
            if reached {
                say("step").map_err(|error| FunctionError::did_not_happen(error.to_string()))?;
                if mode == Mode::Hang {
                    std::future::pending::<()>().await;
                }
            }
            Ok::<_, FunctionError>(serde_json::json!({ "ok": true }))
        }
    };
    Ok(Catalogue::builder().function(Manifest::new("noop".parse()?, effect), noop).build()?)
}

/// The tools of whoever only submits.
pub(crate) fn external() -> Result<Catalogue> {
    tools(Mode::Work, 0, &Arc::default())
}

/// Submits so many jobs of so many steps in a row.
pub(crate) async fn submit(scene: &Scene, jobs: usize, steps: usize) -> Result<Vec<TrajectoryId>> {
    let file = chain_of(steps);
    let mut ids = Vec::new();
    for number in 1..=jobs {
        ids.push(scene.submit(u8::try_from(number)?, &file).await?);
    }
    Ok(ids)
}

/// Waits until every job has ended.
async fn all_over(scene: &Scene, ids: &[TrajectoryId]) -> Result<()> {
    for id in ids {
        while !scene.ended(*id).await? {
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

/// How many calls the chains show, each of a job that has completed.
async fn shown(scene: &Scene, ids: &[TrajectoryId]) -> Result<u64> {
    let mut shown = 0;
    for id in ids {
        let chain = Chain::load(Arc::clone(&scene.store), *id).await?;
        let calls = chain.state().spent().calls;
        scene.check(*id, usize::try_from(calls)?).await?;
        shown += calls;
    }
    Ok(shown)
}

/// Whoever started this holds the other end.
fn end_with_standard_input() {
    std::thread::spawn(|| {
        let _closed = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
