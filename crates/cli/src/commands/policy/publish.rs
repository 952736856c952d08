//! `gesta policy publish`: puts what is written in force, if it holds.

use anyhow::Result;
use clap::Args;
use gesta_policy::PolicySet;
use gesta_runtime::authority::OWNER;
use serde_json::json;

use crate::key_file;
use crate::output::counted;
use crate::policies::{self, brief};
use crate::problem::Problem;
use crate::session::Session;

/// Put the policy of the workspace in force
#[derive(Debug, Args)]
#[command(after_help = "\
It is checked first: one that does not hold is refused, and the old one stays. The registry then
names the new one, signed with the owner's key, and every worker decides by it from then on.
The exit code is 2 if it was refused.

Examples:
  gesta policy publish
  gesta policy publish --json | jq -r .digest")]
pub(super) struct Arguments {}

pub(super) fn run(session: &mut Session, _: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let document = super::written(&[])?;
    let set = PolicySet::compile(&document)
        .map_err(|error| Problem::new(format!("not published\n{error}")).bad_input())?;
    let store = session.store()?;
    let registry = workspace.config.registry;
    let known = session.wait(policies::published(&store, registry))?;
    let new = known.as_ref() != Some(&document);
    if new {
        let owner = key_file::read(&key_file::path(&workspace.keys(), OWNER))?;
        session.wait(policies::publish(&store, registry, &document, &owner))?;
    }
    if session.out.is_json() {
        session.out.document(&json!({ "digest": set.digest(), "new": new }))?;
        return Ok(0);
    }
    let count = counted(set.policies() as u64, "policy", "policies");
    let digest = brief(set.digest());
    session.out.line(match new {
        true => format!("{count} in force, {digest}"),
        false => format!("{count} in force already, {digest}"),
    })?;
    Ok(0)
}
