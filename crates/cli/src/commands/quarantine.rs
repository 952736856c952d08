//! `gesta quarantine`: what Guardians have stopped because of how it behaves, and lifting it.

use anyhow::Result;
use clap::{Args, Subcommand};
use gesta_core::document::{FreezeTarget, RegistryItem};
use gesta_runtime::authority::OWNER;
use serde_json::json;

use super::freeze;
use crate::problem::Problem;
use crate::reference;
use crate::registry::Registry;
use crate::session::Session;

/// List what is in quarantine, or lift a quarantine
#[derive(Debug, Args)]
#[command(after_help = "\
A worker puts a job or a principal into quarantine, or closes a tenant, when `[temporal]` in gesta.toml says so.
Its calls are refused until a person lifts it; its steps wait, and go on then.

Examples:
  gesta quarantine
  gesta quarantine lift agent:main --reason \"a loop, fixed\"
  gesta quarantine lift --job t_4f2a
  gesta quarantine lift --tenant acme")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let a principal, a job or a tenant go on
    #[command(
        after_help = "Examples:\n  gesta quarantine lift agent:main\n  gesta quarantine lift --job t_4f2a\n  gesta quarantine lift --tenant acme"
    )]
    Lift {
        /// The principal
        #[arg(required_unless_present_any = ["job", "tenant"], conflicts_with_all = ["job", "tenant"])]
        principal: Option<String>,
        /// The job, if one alone was put there
        #[arg(long, value_name = "ID", conflicts_with = "tenant")]
        job: Option<String>,
        /// The tenant, if that was closed
        #[arg(long)]
        tenant: Option<String>,
        /// Why, for people
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// The key that signs: one of role owner or operator
        #[arg(long, value_name = "NAME", default_value = OWNER)]
        key: String,
    },
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Some(Command::Lift { principal, job, tenant, reason, key }) = &arguments.command else {
        let registry = Registry::open(session, &session.store_to_read()?)?;
        freeze::list(session, registry.state().quarantined())?;
        return Ok(0);
    };
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let bad = |error: &dyn std::fmt::Display| Problem::new(error.to_string()).bad_input();
    let target = match (principal, job, tenant) {
        (Some(principal), ..) => {
            FreezeTarget::Principal(principal.parse().map_err(|error| bad(&error))?)
        }
        (_, Some(job), _) => {
            FreezeTarget::Trajectory(session.wait(reference::trajectory(&store, job))?)
        }
        (.., Some(tenant)) => FreezeTarget::Tenant(tenant.parse().map_err(|error| bad(&error))?),
        (None, None, None) => return Err(Problem::new("whose quarantine?").bad_input().into()),
    };
    if !registry.state().is_quarantined(&target) {
        return Err(Problem::new(format!("{target} is not in quarantine"))
            .hint("`gesta quarantine` lists what is")
            .into());
    }
    let item = RegistryItem::Lift(target.clone());
    let signer = registry.signer(key, &item)?;
    registry.register(session, (&item, reason.as_deref()), &signer)?;
    if session.out.is_json() {
        session.out.document(&json!({ "lifted": target }))?;
    } else {
        session.out.line(format!("{target} is no longer in quarantine"))?;
    }
    Ok(0)
}
