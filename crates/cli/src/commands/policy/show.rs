//! `gesta policy show`: what is in force.

use anyhow::Result;
use clap::Args;
use gesta_policy::PolicyDocument;
use serde_json::json;

use crate::escape::visible_lines;
use crate::policies;
use crate::registry::Registry;
use crate::session::Session;
use crate::toolbox::Toolbox;

/// Show the policy in force
#[derive(Debug, Args)]
#[command(after_help = "\
It is what the registry names, not what stands in files now. Where nothing was published, reads are
allowed and everything else waits for a person.

Examples:
  gesta policy show
  gesta policy show --json | jq .roles")]
pub(super) struct Arguments {}

pub(super) fn run(session: &mut Session, _: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?.id();
    let published = session.wait(policies::published(&store, registry))?;
    let is_default = published.is_none();
    let document = match published {
        Some(document) => document,
        None => PolicyDocument::default_for(default_tools()?.shapes()?),
    };
    let digest = document.digest()?;
    if session.out.is_json() {
        session.out.document(&json!({
            "digest": digest,
            "default": is_default,
            "channels": document.channels,
            "policies": document.policies,
            "roles": document.roles,
            "tools": policies::tools_of(&document).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let out = &mut session.out;
    out.line(match is_default {
        true => format!("policy {digest}, the default: nothing was published"),
        false => format!("policy {digest}"),
    })?;
    for (role, members) in &document.roles {
        let members: Vec<&str> = members.iter().map(|member| member.as_str()).collect();
        out.line(visible_lines(&format!("  role   {role}: {}", members.join(", "))))?;
    }
    for (channel, names) in &document.channels {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        out.line(visible_lines(&format!("  channel {channel}: {}", names.join(", "))))?;
    }
    let tools: Vec<&str> = policies::tools_of(&document).map(|tool| tool.as_str()).collect();
    out.line(format!(
        "  tools  {}",
        if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }
    ))?;
    for file in &document.policies {
        out.line(visible_lines(&format!("\n{}\n{}", file.name, file.text.trim_end())))?;
    }
    Ok(0)
}

/// The tools that the default would be asked about here.
fn default_tools() -> Result<gesta_runtime::tools::Catalogue> {
    match Session::find_workspace()? {
        Some(workspace) => Ok(Toolbox::of(&workspace)?.catalogue),
        None => Ok(gesta_runtime::tools::Catalogue::builder().build()?),
    }
}
