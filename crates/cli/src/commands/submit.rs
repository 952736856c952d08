//! `gesta submit`: a job for whichever worker is free.

use anyhow::Result;
use clap::Args;
use gesta_runtime::jobs::Submitted;
use serde_json::json;

use super::run::prepare;
use crate::job_file::JobArguments;
use crate::session::Session;

/// Submit a job for a worker to run, and print its id
#[derive(Debug, Args)]
#[command(after_help = "\
With `--key`, the same key and content is the same job, however often it is submitted; the same key
with another plan or input is refused (exit code 2). Without, every submission is a job of its own.

Examples:
  gesta submit job.yaml --input order=1042
  gesta submit job.yaml --input order=1042 --key order-1042
  gesta submit job.yaml --priority 50")]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// Whose turn it is when workers are few: the greater first, up to 100 [default: from the file,
    /// else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    priority: Option<u8>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let (workshop, mut job) = prepare(session, &arguments.job)?;
    if let Some(priority) = arguments.priority {
        job.compiled.plan.priority = priority;
    }
    let (writs, holder) = workshop.authority(session, arguments.job.writ.as_deref())?;
    let submitting = workshop.submit(&job, arguments.job.key.as_deref(), (writs, &holder));
    let (trajectory, submitted) = session.wait(submitting)?;
    let known = submitted == Submitted::Known;
    if session.out.is_json() {
        let document = json!({ "trajectory": trajectory, "job": job.compiled.name, "new": !known });
        session.out.document(&document)?;
        return Ok(0);
    }
    session.out.line(trajectory.to_string())?;
    session.hint(match known {
        true => "the same job was submitted before; nothing was changed",
        false => "`gesta worker` runs it, `gesta jobs` lists it",
    })?;
    Ok(0)
}
