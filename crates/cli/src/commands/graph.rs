//! `gesta graph`: a job's steps and what each needs, as a Mermaid diagram.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::job_file;
use crate::problem::Problem;
use crate::session::Session;
use crate::toolbox::Toolbox;

/// Print a job file's steps as a Mermaid diagram
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta graph examples/refund/job.yaml
  gesta graph job.yaml > job.mmd")]
pub(crate) struct Arguments {
    /// The job file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::find_workspace()?;
    let tools = Toolbox::for_job(workspace.as_ref(), &arguments.file)?;
    let compiled = job_file::load(&arguments.file, &tools.catalogue)?
        .map_err(|problems| Problem::new(problems.to_string()).bad_input())?;
    let diagram = compiled.mermaid();
    if session.out.is_json() {
        session.out.document(&json!({ "job": compiled.name, "mermaid": diagram }))?;
    } else {
        session.out.text(&diagram)?;
    }
    Ok(0)
}
