//! `gesta run`: submits a job and drives it in this process, showing its steps.

use anyhow::Result;
use clap::Args;

use super::{dry_run, init};
use crate::catalogues;
use crate::job_file::{Job, JobArguments};
use crate::live::Live;
use crate::session::Session;
use crate::sight::Reveal;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::workspace::Workspace;
use crate::{driving, outcome, policies, sealing};

/// Run a job here and now, and watch its steps
#[derive(Debug, Args)]
#[command(after_help = "\
The workspace is that of the current directory; where there is none, one is made as `gesta init`
would. Tools are the workspace's; if it has none, `tools.toml` beside the job file is added to it,
and `policy.cedar` beside that.
Whatever ends this process, `gesta resume ID` or a worker goes on, and no effect happens twice.

Exit codes:
  0 completed, 10 failed, 11 cancelled, 12 in doubt: an operator must say what happened,
  13 interrupted; 2 if the job, its tools or its input were refused

Examples:
  gesta run examples/refund/job.yaml --input order=1042
  gesta run job.yaml --input-file input.json --key order-1042
  gesta run job.yaml --input order=1042 --dry-run")]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// Show every decision that can be made beforehand; nothing happens and nothing is written
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reveal: Reveal,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    if arguments.dry_run {
        return dry_run::run(session, &arguments.job);
    }
    let (workshop, job) = prepare(session, &arguments.job)?;
    let hands = workshop.hands()?;
    let (writs, holder) = workshop.authority(session, arguments.job.writ.as_deref())?;
    let submitting = workshop.submit(&job, arguments.job.key.as_deref(), (writs, &holder));
    let (trajectory, _) = session.wait(submitting)?;
    Session::note(&format!("job {} is {trajectory}", job.compiled.name));
    let live = Live::new(session, false);
    let ending = driving::drive(session, &workshop, (trajectory, hands), &live)?;
    sealing::after_run(session, &workshop);
    outcome::tell(session, &workshop.store, trajectory, ending, arguments.reveal)
}

/// Opens the workspace, or makes one, and reads the job. The job is read first: what is refused
/// leaves nothing behind.
pub(super) fn prepare(session: &Session, arguments: &JobArguments) -> Result<(Workshop, Job)> {
    let found = Session::find_workspace()?;
    let tools = Toolbox::for_job(found.as_ref(), &arguments.file)?;
    let job = Job::read(arguments, &tools)?;
    let mut workspace = match found {
        Some(workspace) => workspace,
        None => found_here(session)?,
    };
    let came = tools.record(&mut workspace)?;
    let workshop = Workshop::open(session, workspace, tools.catalogue)?;
    let at = (&workshop.store, &*workshop.catalogue);
    policies::settle(session, &workshop.workspace, at, came)?;
    catalogues::compare(session, &workshop.workspace, at)?;
    Ok((workshop, job))
}

fn found_here(session: &Session) -> Result<Workspace> {
    let founded = init::found_here(session)?;
    let workspace = Session::workspace()?;
    Session::note(&format!(
        "made a workspace in `{}`, as `gesta init` would: store `{}`, keys, registry, writ",
        workspace.directory.display(),
        founded.place.to_string().trim_start_matches("./")
    ));
    Ok(workspace)
}
