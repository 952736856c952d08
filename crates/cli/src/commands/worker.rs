//! `gesta worker`: drives whatever jobs the store has.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_runtime::{Left, RunError, Worker, has_work};
use gesta_store::Store;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::driving::Ending;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::output::counted;
use crate::session::Session;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::{chains, policies};

/// Run jobs that were submitted, until told to stop
#[derive(Debug, Args)]
#[command(after_help = "\
Any number of workers may serve one store. SIGTERM and Ctrl-C end it in order: running calls are
waited for (`grace` under [worker] in gesta.toml), the rest is handed over. A worker that dies is
replaced by any other, at once on the same machine, and no effect happens twice.

Examples:
  gesta worker
  gesta worker --jobs 8 --name batch
  gesta worker --once")]
pub(crate) struct Arguments {
    /// How many jobs at once [default: from gesta.toml, else 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// What to call it, in place of the machine's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Drive what there is to do now, then end
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?;
    for problem in &tools.unpinned {
        Session::note(&format!("warning: frozen: {problem}"));
    }
    let mut workshop = Workshop::open(session, workspace, tools.catalogue)?;
    policies::compare(session, &workshop.workspace, (&workshop.store, &workshop.catalogue))?;
    if let Some(jobs) = arguments.jobs {
        workshop.options.jobs = usize::from(jobs);
    }
    let live = Live::new(session, true);
    session.wait(Box::pin(work(&workshop, arguments, &live)))
}

async fn work(workshop: &Workshop, arguments: &Arguments, live: &Arc<Live>) -> Result<u8> {
    let interrupt = Interrupt::watch(workshop.options.grace_ms)?;
    let worker =
        workshop.start(workshop.hands()?, arguments.name.as_deref(), Some(live.listener())).await?;
    let worker = Arc::new(worker);
    let count = counted(workshop.catalogue.iter().count() as u64, "tool", "tools");
    live.say(&format!("a worker with {count} serves `{}`", workshop.place));
    let (jobs, stop) = (workshop.options.jobs, interrupt.stop());
    let done = async {
        if arguments.once {
            once(&worker, &workshop.store, jobs, stop).await
        } else {
            Ok(worker.run(stop).await?)
        }
    };
    tokio::select! {
        done = done => done?,
        () = interrupt.out_of_patience() => live.say("calls are still running; handing over"),
    }
    worker.retire().await?;
    let told_to = *interrupt.stop().borrow();
    Ok(if arguments.once && told_to { Ending::Interrupted.exit_code() } else { 0 })
}

type Driven = (TrajectoryId, Result<Left, RunError>);

/// Drives whatever there is to do until nothing more can be done. A trajectory that was driven as far
/// as it goes is taken again only when something has been added to it.
async fn once(
    worker: &Arc<Worker>,
    store: &Arc<dyn Store>,
    jobs: usize,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let mut left: BTreeMap<TrajectoryId, Head> = BTreeMap::new();
    let mut driven: JoinSet<Driven> = JoinSet::new();
    let mut running = std::collections::BTreeSet::new();
    loop {
        let now = worker.now();
        for row in chains::all(store).await? {
            let id = row.trajectory;
            let fresh = left.get(&id) != Some(&row.head) && !running.contains(&id);
            if *stop.borrow() || running.len() >= jobs || !fresh || !has_work(&row.summary, now) {
                continue;
            }
            running.insert(id);
            let (worker, stop) = (Arc::clone(worker), stop.clone());
            driven.spawn(async move { (id, worker.run_one(id, stop).await) });
        }
        let Some(done) = driven.join_next().await else { return Ok(()) };
        let (id, outcome) = done?;
        running.remove(&id);
        if let Err(error) = outcome {
            tracing::error!(trajectory = %id, %error, "a job cannot be driven");
        }
        if let Some(row) = store.trajectory(id).await? {
            left.insert(id, row.head);
        }
    }
}
