//! `gesta worker`: drives whatever jobs the store has.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use crate::catalogues;
use crate::driving::Ending;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::output::counted;
use crate::policies;
use crate::session::Session;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;

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
    catalogues::compare(session, &workshop.workspace, (&workshop.store, &workshop.catalogue))?;
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
    let count = counted(workshop.catalogue.iter().count() as u64, "tool", "tools");
    live.say(&format!("a worker with {count} serves `{}`", workshop.place));
    let stop = interrupt.stop();
    let done =
        async { if arguments.once { worker.run_once(stop).await } else { worker.run(stop).await } };
    tokio::select! {
        done = done => done?,
        () = interrupt.out_of_patience() => live.say("calls are still running; handing over"),
    }
    worker.retire().await?;
    let told_to = *interrupt.stop().borrow();
    Ok(if arguments.once && told_to { Ending::Interrupted.exit_code() } else { 0 })
}
