//! `gesta tools publish`: makes the tools of the workspace the only ones that any worker may call.

use anyhow::Result;
use clap::Args;
use gesta_runtime::authority::{self, OWNER};
use gesta_runtime::tools::PinProblem;
use serde_json::{Value, json};

use super::pin;
use crate::catalogues::{self, Standing};
use crate::escape::visible;
use crate::key_file;
use crate::output::counted;
use crate::policies::brief;
use crate::problem::Problem;
use crate::session::Session;
use crate::timeline;
use crate::toolbox::Toolbox;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Show what would change, and publish nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of_or_beside(&workspace)?;
    if let Some(problem) = tools.unpinned.first() {
        return Err(Problem::new(format!("nothing was published: {problem}"))
            .hint("what is published is what was accepted here: `gesta tools pin` first")
            .bad_input()
            .into());
    }
    let store = session.store()?;
    let registry = workspace.config.registry;
    let standing = session.wait(catalogues::published(&store, registry))?;
    let digest = tools.catalogue.digest();
    let new = standing.as_ref().is_none_or(|standing| standing.digest != digest);
    let before = standing.and_then(|Standing { definitions, .. }| definitions.ok());
    let changes = tools.catalogue.check_published(&before.unwrap_or_default());
    let published = new && !arguments.dry_run;
    if published {
        let owner = key_file::read(&key_file::path(&workspace.keys(), OWNER))?;
        let now = Session::now();
        session.wait(authority::publish_tools(&store, registry, &tools.catalogue, &owner, now))?;
    }
    let count = tools.catalogue.iter().count() as u64;
    if session.out.is_json() {
        let changes: Vec<Value> = changes.iter().map(pin::document).collect();
        session.out.document(&json!({
            "digest": digest,
            "new": new,
            "published": published,
            "tools": count,
            "changes": changes,
        }))?;
        return Ok(0);
    }
    for change in &changes {
        session.out.line(visible(&line(change)))?;
    }
    let count = counted(count, "tool", "tools");
    let digest = brief(digest);
    session.out.line(match (new, published) {
        (false, _) => format!("{count} published already, {digest}"),
        (true, true) => format!("{count} published, {digest}"),
        (true, false) => format!("nothing was written; this would publish {count}, {digest}"),
    })?;
    Ok(0)
}

fn line(change: &PinProblem) -> String {
    let brief = timeline::brief;
    match change {
        PinProblem::Missing { tool, found } => format!("new      {tool}  {}", brief(found)),
        PinProblem::Gone { tool, pinned } => format!("gone     {tool}  {}", brief(pinned)),
        PinProblem::Changed { tool, pinned, found } => {
            format!("changed  {tool}  {} → {}", brief(pinned), brief(found))
        }
    }
}
