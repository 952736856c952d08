//! `gesta worker`: drives whatever jobs the store has.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use crate::catalogues;
use crate::driving::{Ending, PINNED_AGAIN};
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::output::counted;
use crate::pinning;
use crate::policies;
use crate::session::Session;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::workspace::Workspace;

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
    let mut workshop = open(session, arguments, (workspace, tools))?;
    let live = Live::new(session, true);
    let interrupt = session.wait(async { Interrupt::watch(workshop.options.grace_ms) })?;
    loop {
        let pinned = session.wait(Box::pin(work(&workshop, arguments, &interrupt, &live)))?;
        let told_to = *interrupt.stop().borrow();
        let Some(anew) = pinned.filter(|_| !told_to) else {
            let stopped = arguments.once && told_to;
            return Ok(if stopped { Ending::Interrupted.exit_code() } else { 0 });
        };
        live.say(PINNED_AGAIN);
        workshop = open(session, arguments, anew)?;
    }
}

fn open(
    session: &Session,
    arguments: &Arguments,
    (workspace, tools): (Workspace, Toolbox),
) -> Result<Workshop> {
    for problem in &tools.unpinned {
        Session::note(&format!("warning: frozen: {problem}"));
    }
    let mut workshop = Workshop::open(session, workspace, tools.catalogue)?;
    policies::compare(session, &workshop.workspace, (&workshop.store, &workshop.catalogue))?;
    catalogues::compare(session, &workshop.workspace, (&workshop.store, &workshop.catalogue))?;
    if let Some(jobs) = arguments.jobs {
        workshop.options.jobs = usize::from(jobs);
    }
    Ok(workshop)
}

/// Works with one set of tools, until it is told to stop or they are another.
async fn work(
    workshop: &Workshop,
    arguments: &Arguments,
    interrupt: &Interrupt,
    live: &Arc<Live>,
) -> Result<Option<(Workspace, Toolbox)>> {
    let worker =
        workshop.start(workshop.hands()?, arguments.name.as_deref(), Some(live.listener())).await?;
    let count = counted(workshop.catalogue.iter().count() as u64, "tool", "tools");
    live.say(&format!("a worker with {count} serves `{}`", workshop.place));
    let done = pinning::unless_pinned(workshop, interrupt.stop(), async |stop| {
        let done =
            if arguments.once { worker.run_once(stop).await } else { worker.run(stop).await };
        Ok(done?)
    });
    let pinned = tokio::select! {
        done = done => done?.1,
        () = interrupt.out_of_patience() => {
            live.say("calls are still running; handing over");
            None
        }
    };
    worker.retire().await?;
    Ok(pinned)
}
