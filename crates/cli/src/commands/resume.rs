//! `gesta resume`: drives a job that stopped, in this process.

use anyhow::Result;
use clap::Args;

use crate::live::Live;
use crate::session::Session;
use crate::sight::Reveal;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::{driving, outcome, reference, sealing};

/// Go on with a job, here and now
#[derive(Debug, Args)]
#[command(after_help = "\
What is done is not done again: results on record are used. A call that was under way when its
worker died is recovered as its tool declares: run again, sent again under the same key, asked
about, or left to an operator. The exit codes are those of `gesta run`; a job that has ended is told
again.

Examples:
  gesta resume t_4f2a")]
pub(crate) struct Arguments {
    /// The job; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
    #[command(flatten)]
    reveal: Reveal,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?;
    let workshop = Workshop::open(session, workspace, tools.catalogue)?;
    let trajectory = session.wait(reference::trajectory(&workshop.store, &arguments.trajectory))?;
    session.wait(reference::is_job(&workshop.store, trajectory))?;
    let live = Live::new(session, false);
    let ending = driving::drive(session, &workshop, (trajectory, workshop.hands()?), &live)?;
    sealing::after_run(session, &workshop);
    outcome::tell(session, &workshop.store, trajectory, ending, arguments.reveal)
}
