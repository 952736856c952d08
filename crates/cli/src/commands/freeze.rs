//! `gesta freeze` and `gesta unfreeze`: stopping a tool, a principal, a tenant, a job or everything, on every
//! worker at once.

use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueEnum};
use gesta_core::document::{FreezeTarget, RegistryItem};
use gesta_core::state::Registered;
use gesta_runtime::authority::OWNER;
use gesta_store::Store;
use serde_json::{Value, json};

use crate::escape::visible;
use crate::moment;
use crate::problem::Problem;
use crate::reference;
use crate::registry::Registry;
use crate::session::Session;
use crate::table;

/// Stop a tool, a principal, a tenant, a job or everything, at once; without arguments, list what is frozen
#[derive(Debug, Args)]
#[command(after_help = "\
No call begins whose permission is asked for after this command has returned, on any worker. Steps that need
what is frozen wait, and go on by themselves within half a minute once it is unfrozen.

Examples:
  gesta freeze tool pay.refund --reason \"paid twice\"
  gesta freeze principal agent:main
  gesta freeze all --key oncall
  gesta freeze")]
pub(crate) struct Arguments {
    /// What to freeze
    #[arg(value_name = "WHAT")]
    what: Option<What>,
    /// Which one, unless it is everything
    name: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", requires = "what")]
    reason: Option<String>,
    /// The key that signs: one of role owner or operator
    #[arg(long, value_name = "NAME", default_value = OWNER)]
    key: String,
}

/// Let a tool, a principal, a tenant, a job or everything go on
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta unfreeze tool pay.refund --reason \"fixed\"
  gesta unfreeze all")]
pub(crate) struct UnfreezeArguments {
    /// What to unfreeze
    #[arg(value_name = "WHAT")]
    what: What,
    /// Which one, unless it is everything
    name: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The key that signs: one of role owner or operator
    #[arg(long, value_name = "NAME", default_value = OWNER)]
    key: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// One tool
    Tool,
    /// Everyone who acts under this name
    Principal,
    /// Everything of one tenant
    Tenant,
    /// One job
    Job,
    /// Everything
    All,
}

impl What {
    fn target(
        self,
        session: &Session,
        store: &Arc<dyn Store>,
        name: Option<&str>,
    ) -> Result<FreezeTarget> {
        let bad = |error: &dyn std::fmt::Display| Problem::new(error.to_string()).bad_input();
        let named = || {
            name.ok_or_else(|| {
                Problem::new("which one?").hint("give its name after the word").bad_input()
            })
        };
        Ok(match self {
            Self::Tool => FreezeTarget::Tool(named()?.parse().map_err(|error| bad(&error))?),
            Self::Principal => {
                FreezeTarget::Principal(named()?.parse().map_err(|error| bad(&error))?)
            }
            Self::Tenant => FreezeTarget::Tenant(named()?.parse().map_err(|error| bad(&error))?),
            Self::Job => {
                FreezeTarget::Trajectory(session.wait(reference::trajectory(store, named()?))?)
            }
            Self::All if name.is_some() => {
                return Err(Problem::new("`all` takes no name").bad_input().into());
            }
            Self::All => FreezeTarget::All,
        })
    }
}

pub(crate) fn freeze(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Arguments { what, name, reason, key } = arguments;
    let Some(what) = what else {
        let registry = Registry::open(session, &session.store_to_read()?)?;
        list(session, registry.state().frozen())?;
        return Ok(0);
    };
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let target = what.target(session, &store, name.as_deref())?;
    let known = registry.state().is_frozen(&target);
    if !known {
        let item = RegistryItem::Freeze(target.clone());
        let signer = registry.signer(key, &item)?;
        registry.register(session, (&item, reason.as_deref()), &signer)?;
    }
    if session.out.is_json() {
        session.out.document(&json!({ "frozen": target, "new": !known }))?;
    } else if known {
        session.out.line(format!("{target} was frozen already"))?;
    } else {
        session.out.line(format!("{target} is frozen"))?;
        session.hint("steps that need it wait; `gesta unfreeze` lets them go on")?;
    }
    Ok(0)
}

pub(crate) fn unfreeze(session: &mut Session, arguments: &UnfreezeArguments) -> Result<u8> {
    let UnfreezeArguments { what, name, reason, key } = arguments;
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let target = what.target(session, &store, name.as_deref())?;
    if !registry.state().is_frozen(&target) {
        return Err(Problem::new(format!("{target} is not frozen"))
            .hint("`gesta freeze` lists what is")
            .into());
    }
    let item = RegistryItem::Unfreeze(target.clone());
    let signer = registry.signer(key, &item)?;
    registry.register(session, (&item, reason.as_deref()), &signer)?;
    if session.out.is_json() {
        session.out.document(&json!({ "unfrozen": target }))?;
    } else {
        session.out.line(format!("{target} is no longer frozen"))?;
    }
    Ok(0)
}

/// What is stopped, since when, by which key and why.
pub(super) fn list<'a>(
    session: &mut Session,
    stopped: impl Iterator<Item = (&'a FreezeTarget, &'a Registered)>,
) -> Result<()> {
    let stopped: Vec<_> = stopped.collect();
    if session.out.is_json() {
        for (target, Registered { at, key, note, .. }) in stopped {
            let line: Value = json!({ "target": target, "at": at, "key": key, "reason": note });
            session.out.json_line(&line)?;
        }
        return Ok(());
    }
    if stopped.is_empty() {
        return Ok(session.out.line("nothing")?);
    }
    let row = |(target, registered): &(&FreezeTarget, &Registered)| {
        [
            target.to_string(),
            moment::utc(registered.at),
            registered.key.to_string().chars().take(8).collect(),
            visible(registered.note.as_deref().unwrap_or_default()),
        ]
    };
    let rows: Vec<_> = stopped.iter().map(row).collect();
    for line in table::lines(["what", "since", "key", "reason"], &rows) {
        session.out.line(line)?;
    }
    Ok(())
}
