//! `gesta keys`: making, listing, showing, revoking and exporting keys. Private halves stay in their
//! files; what a key may do is in the registry.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use gesta_core::document::RegistryItem;
use gesta_core::ids::Tenant;
use gesta_core::trust::{Role, TrustRoot, TrustedKey};
use serde_json::{Value, json};

use crate::durable;
use crate::escape::visible;
use crate::key_file;
use crate::moment;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::table;
use gesta_runtime::authority::{OWNER, window};

/// Make, list, show, revoke and export keys
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta keys new ci --role guardian --role executor --valid-days 90
  gesta keys list
  gesta keys revoke ci")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(NewArguments),
    /// List the keys of the registry
    #[command(after_help = "Examples:\n  gesta keys list\n  gesta keys list --json")]
    List,
    /// Show one key
    #[command(
        after_help = "Examples:\n  gesta keys show worker\n  gesta keys show keys/worker.pem"
    )]
    Show {
        /// Its name, or its file
        #[arg(value_name = "NAME|FILE")]
        key: String,
    },
    /// Revoke a key that others may have
    #[command(after_help = "\
Nothing that the key signed counts any more, whenever it was signed: without a witness nobody can
tell what was signed before. A key that is merely replaced needs no revocation: it expires.

Examples:
  gesta keys revoke ci")]
    Revoke {
        /// Its name
        name: String,
    },
    /// Print the public part of a key as a trust root
    #[command(after_help = "Examples:\n  gesta keys export owner > trust.json")]
    Export {
        /// Its name
        name: String,
    },
}

/// Make a key and register it
#[derive(Debug, Args)]
#[command(after_help = "\
The private key is written to keys/NAME.pem, readable by you only. The owner key signs.

Examples:
  gesta keys new ci --role guardian --role executor --valid-days 90
  gesta keys new ada --role approver --tenant acme")]
struct NewArguments {
    /// What to call it: lower-case letters, digits, `_` and `-`
    name: String,
    /// What it may sign; give it again for more
    #[arg(long = "role", required = true, value_name = "ROLE", value_parser = role_parser())]
    roles: Vec<Role>,
    /// The only tenant it may sign for
    #[arg(long)]
    tenant: Option<Tenant>,
    /// For how many days
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    valid_days: u64,
}

fn role_parser() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|name| {
        Role::ALL.into_iter().find(|role| role.as_str() == name).ok_or("no such role")
    })
}

pub(crate) fn run(session: &mut Session, arguments: Arguments) -> Result<u8> {
    match arguments.command {
        Command::New(arguments) => new(session, &arguments),
        Command::List => list(session),
        Command::Show { key } => show(session, &key),
        Command::Revoke { name } => revoke(session, &name),
        Command::Export { name } => export(session, &name),
    }?;
    Ok(0)
}

/// The roles of a key, for people.
pub(super) fn roles(key: &TrustedKey) -> String {
    key.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

/// The file comes first: a registered key that nobody holds could never be used. One that was made
/// by a run that then failed is registered by the next.
fn new(session: &mut Session, arguments: &NewArguments) -> Result<()> {
    let NewArguments { name, roles, tenant, valid_days } = arguments;
    key_file::check_name(name)?;
    let keys = Session::workspace()?.keys();
    let owner = key_file::read(&key_file::path(&keys, OWNER))?;
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    if registry.named(name).is_some() {
        return Err(Problem::new(format!("there is a key `{name}` already"))
            .hint("`gesta keys list` shows it; choose another name")
            .into());
    }
    let path = key_file::path(&keys, name);
    let key = if path.exists() {
        let key = key_file::read(&path)?;
        if registry.keys().get(&key.id()).is_some() {
            return Err(Problem::new(format!(
                "`{}` holds a key that is registered under another name",
                path.display()
            ))
            .into());
        }
        key
    } else {
        let key = key_file::draw()?;
        durable::private_directory(&keys)?;
        key_file::create(&path, &key)?;
        key
    };
    let trusted = TrustedKey {
        key: key.id(),
        name: name.clone(),
        revoked_at: None,
        roles: roles.iter().copied().collect(),
        tenant: tenant.clone(),
        valid: window(Session::now(), *valid_days),
    };
    registry.register(session, &RegistryItem::Key(trusted.clone()), &owner)?;
    if session.out.is_json() {
        return session.out.document(&as_json(&trusted, Some(&path)));
    }
    session.out.line(format!("made the key `{name}` in `{}`", path.display()))?;
    details(session, &trusted)
}

fn list(session: &mut Session) -> Result<()> {
    let store = session.store()?;
    let registry = Registry::open(session, &store)?;
    let mut keys: Vec<&TrustedKey> = registry.keys().iter().collect();
    keys.sort_by(|a, b| (&a.name, a.key).cmp(&(&b.name, b.key)));
    if session.out.is_json() {
        let keys: Vec<Value> = keys.into_iter().map(|key| as_json(key, None)).collect();
        return session.out.document(&json!({ "registry": registry.id(), "keys": keys }));
    }
    let row = |key: &&TrustedKey| {
        [
            visible(&key.name),
            key.key.to_string(),
            roles(key),
            key.tenant.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string),
            format!("{} – {}", day(key.valid.not_before), day(key.valid.not_after)),
            key.revoked_at.map(moment::utc).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    for line in table::lines(["name", "id", "roles", "tenant", "valid", "revoked"], &rows) {
        session.out.line(line)?;
    }
    Ok(())
}

fn day(at: gesta_core::time::UnixMs) -> String {
    if at.0 == 0 { "ever".to_owned() } else { moment::date(at) }
}

fn show(session: &mut Session, which: &str) -> Result<()> {
    let store = session.store()?;
    let registry = Registry::open(session, &store)?;
    let is_file = which.contains('/') || Path::new(which).extension().is_some();
    let (id, path) = if is_file {
        let path = PathBuf::from(which);
        (Some(key_file::read(&path)?.id()), Some(path))
    } else {
        let file = Session::find_workspace()?.map(|it| key_file::path(&it.keys(), which));
        (None, file.filter(|file| file.exists()))
    };
    let known = match id {
        Some(id) => registry.keys().get(&id),
        None => registry.named(which),
    };
    match (known, id) {
        (Some(key), _) if session.out.is_json() => {
            let document = as_json(key, path.as_deref());
            session.out.document(&document)
        }
        (Some(key), _) => {
            session.out.line(visible(&key.name))?;
            details(session, key)?;
            if let Some(path) = path {
                session.out.line(format!("  file     {}", path.display()))?;
            }
            Ok(())
        }
        (None, Some(id)) => {
            Err(Problem::new(format!("the key `{id}` of `{which}` is not in the registry"))
                .hint("`gesta keys new NAME` registers `keys/NAME.pem` if it is there")
                .into())
        }
        (None, None) => Err(no_key(which)),
    }
}

fn details(session: &mut Session, key: &TrustedKey) -> Result<()> {
    let out = &mut session.out;
    out.line(format!("  id       {}", key.key))?;
    out.line(format!("  roles    {}", roles(key)))?;
    let tenant = key.tenant.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string);
    out.line(format!("  tenant   {tenant}"))?;
    let (from, until) = (moment::utc(key.valid.not_before), moment::utc(key.valid.not_after));
    out.line(format!("  valid    {from} – {until}"))?;
    if let Some(at) = key.revoked_at {
        out.line(format!("  revoked  {}", moment::utc(at)))?;
    }
    Ok(())
}

fn revoke(session: &mut Session, name: &str) -> Result<()> {
    let keys = Session::workspace()?.keys();
    let owner = key_file::read(&key_file::path(&keys, OWNER))?;
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let key = registry.named(name).cloned().ok_or_else(|| no_key(name))?;
    if key.key == owner.id() {
        return Err(Problem::new("the owner key cannot revoke itself")
            .hint(
                "nothing would count any more: take it out of the trust roots of those who verify",
            )
            .into());
    }
    if let Some(at) = key.revoked_at {
        return Err(Problem::new(format!("`{name}` was revoked at {}", moment::utc(at))).into());
    }
    registry.register(session, &RegistryItem::RevokeKey(key.key), &owner)?;
    let key = registry.keys().get(&key.key).cloned().unwrap_or(key);
    if session.out.is_json() {
        return session.out.document(&as_json(&key, None));
    }
    Ok(session
        .out
        .line(format!("revoked `{name}` ({}); what it signed counts no more", key.key))?)
}

fn export(session: &mut Session, name: &str) -> Result<()> {
    let store = session.store()?;
    let registry = Registry::open(session, &store)?;
    let key = registry.named(name).cloned().ok_or_else(|| no_key(name))?;
    session.out.document(&TrustRoot::new(vec![key]))
}

fn no_key(name: &str) -> anyhow::Error {
    Problem::new(format!("there is no key `{name}` in the registry"))
        .hint("`gesta keys list` shows the keys")
        .into()
}

fn as_json(key: &TrustedKey, file: Option<&Path>) -> Value {
    let mut value = json!(key);
    if let (Value::Object(fields), Some(file)) = (&mut value, file) {
        fields.insert("file".to_owned(), json!(file));
    }
    value
}
