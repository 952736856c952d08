//! `gesta policy`: checking, testing, publishing and explaining policies.

mod cases;
mod check;
mod explain;
mod publish;
mod schema;
mod show;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use gesta_policy::PolicyDocument;

use crate::policies;
use crate::problem::Problem;
use crate::session::Session;
use crate::toolbox::Toolbox;

/// Check, test, publish and explain policies
#[derive(Debug, Args)]
#[command(after_help = "\
Policies are written in Cedar. gesta.toml names them: `files` under [policy], and who has which
role under [policy.roles], whose word counts on which channel under [policy.channels]. They are
in force once they are published. Tools are the workspace's; where it has none, those of
`tools.toml` beside gesta.toml.

Examples:
  gesta policy check
  gesta policy test cases.yaml
  gesta policy publish
  gesta policy explain t_4f2a:7")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Arguments),
    Test(cases::Arguments),
    Schema(schema::Arguments),
    Show(show::Arguments),
    Publish(publish::Arguments),
    Explain(explain::Arguments),
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        Command::Check(arguments) => check::run(session, arguments),
        Command::Test(arguments) => cases::run(session, arguments),
        Command::Schema(arguments) => schema::run(session, arguments),
        Command::Show(arguments) => show::run(session, arguments),
        Command::Publish(arguments) => publish::run(session, arguments),
        Command::Explain(arguments) => explain::run(session, arguments),
    }
}

/// What is written: in these files, or in those that the workspace names. Tools are the workspace's;
/// where it has none, those beside the first file.
fn written(files: &[PathBuf]) -> Result<PolicyDocument> {
    let found = Session::find_workspace()?;
    if let Some(first) = files.first() {
        let tools = Toolbox::for_job(found.as_ref(), first)?;
        let settings = found.map(|workspace| workspace.config.policy).unwrap_or_default();
        let texts = policies::read(Path::new(""), files)?;
        let document = PolicyDocument::new(texts, settings.roles, tools.catalogue.shapes()?);
        return Ok(document.with_channels(settings.channels));
    }
    let workspace = found.map_or_else(Session::workspace, Ok)?;
    let tools = Toolbox::of_or_beside(&workspace)?;
    policies::configured(&workspace, &tools.catalogue)?.ok_or_else(|| {
        Problem::new("the workspace names no policy")
            .hint("write `files = [\"policy.cedar\"]` under [policy] in gesta.toml")
            .bad_input()
            .into()
    })
}
