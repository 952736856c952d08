//! `gesta policy schema`: what policies can see.

use anyhow::Result;
use clap::Args;
use gesta_policy::PolicyDocument;

use crate::problem::Problem;
use crate::session::Session;
use crate::toolbox::Toolbox;

/// Print what policies can see, as a Cedar schema
#[derive(Debug, Args)]
#[command(after_help = "\
Every tool of the workspace is in it, with the types of its arguments. Editors that know Cedar read
it.

Examples:
  gesta policy schema
  gesta policy schema > gesta.cedarschema")]
pub(super) struct Arguments {}

pub(super) fn run(session: &mut Session, _: &Arguments) -> Result<u8> {
    let tools = Toolbox::of_or_beside(&Session::workspace()?)?;
    let document = PolicyDocument::default_for(tools.catalogue.shapes()?);
    let schema = document.schema().map_err(|error| Problem::new(error.to_string()))?;
    session.out.text(&schema)?;
    Ok(0)
}
