//! `gesta keys`: making, listing, showing, rotating, revoking and exporting keys. Private halves stay in their
//! files; what a key may do is in the registry.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use gesta_core::document::{KeyRevocation, RegistryItem};
use gesta_core::ids::Tenant;
use gesta_core::keys::{KeyId, PrivateKey};
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::trust::{Role, TrustRoot, TrustedKey};
use gesta_core::writ::Writ;
use serde_json::{Value, json};

use crate::durable::{self, Beside, Readers};
use crate::escape::visible;
use crate::key_file;
use crate::moment;
use crate::passphrase;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::sealing;
use crate::session::Session;
use crate::table;
use crate::workspace::{ROOT_WRIT, Workspace};
use crate::writs;
use gesta_runtime::authority::{OWNER, window};
use gesta_store::Store;

/// Make, list, show, rotate, revoke and export keys
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta keys add ci --roles guardian,executor --days 90
  gesta keys list
  gesta keys rotate worker
  gesta keys revoke ci")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(AddArguments),
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
    Rotate(RotateArguments),
    /// Revoke a key that others may have
    #[command(after_help = "\
Nothing that the key signed counts any more, whenever it was signed, but for what witnesses of the
transparency log had seen before. A key that is merely replaced needs no revocation: see `gesta keys rotate`.

Examples:
  gesta keys revoke ci
  gesta keys revoke ci --at 2026-11-16T09:30:00Z --reason \"a laptop was stolen\"")]
    Revoke {
        /// Its name or its id
        #[arg(value_name = "NAME|ID")]
        key: String,
        /// Since when others may have it [default: now]
        #[arg(long, value_name = "TIME", value_parser = moment::parse)]
        at: Option<UnixMs>,
        /// Why, for people
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Put a private key under a passphrase, change it, or take it off
    #[command(after_help = "\
The passphrase is asked for at the terminal, or taken from GESTA_PASSPHRASE, or from the file that
GESTA_PASSPHRASE_FILE names; the new one from GESTA_NEW_PASSPHRASE or GESTA_NEW_PASSPHRASE_FILE. The file is
PKCS#8 (scrypt, AES-256), as OpenSSL reads it.

Examples:
  gesta keys passphrase owner
  gesta keys passphrase owner --remove")]
    Passphrase {
        /// Its name
        name: String,
        /// Take it off
        #[arg(long)]
        remove: bool,
    },
    /// Print the public part of a key as a trust root, or as PEM for other tools
    #[command(after_help = "\
With `--pem`, the key is printed as OpenSSL and other tools take it (SubjectPublicKeyInfo): of a
name that was rotated, all of its keys that are not revoked, the newest first. A DSSE envelope names
its key by id.

Examples:
  gesta keys export owner > trust.json
  gesta keys export worker --pem > worker.pub.pem
  gesta keys export ID --pem")]
    Export {
        /// Its name, or with `--pem` its id
        #[arg(value_name = "NAME|ID")]
        name: String,
        /// Print it as PEM
        #[arg(long)]
        pem: bool,
    },
}

/// Make a key and register it
#[derive(Debug, Args)]
#[command(after_help = "\
The private key is written to keys/NAME.pem, readable by you only. The owner key signs.

Examples:
  gesta keys add ci --roles guardian,executor --days 90
  gesta keys add ada --roles approver --tenant acme --encrypt")]
struct AddArguments {
    /// What to call it: lower-case letters, digits, `_` and `-`
    name: String,
    /// What it may sign, separated by commas
    #[arg(long, required = true, value_name = "ROLES", value_delimiter = ',', value_parser = role_parser())]
    roles: Vec<Role>,
    /// The only tenant it may sign for
    #[arg(long)]
    tenant: Option<Tenant>,
    /// For how many days
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
    /// Keep it under a passphrase
    #[arg(long)]
    encrypt: bool,
}

/// Replace a key by a new one of the same name
#[derive(Debug, Args)]
#[command(after_help = "\
The new key takes the old one's file, name, roles and tenant. The old one stays valid for the overlap, so that
workers that have it go on until they are restarted; its file is kept as keys/NAME.ID.pem, and what it has
signed stays valid. With the owner, writs/root.json and the trust root are made anew; other writs that
the old owner issued end with it.

Examples:
  gesta keys rotate worker
  gesta keys rotate owner
  gesta keys rotate ci --overlap-hours 1 --days 90")]
struct RotateArguments {
    /// Its name
    name: String,
    /// For how long the old key may still sign [default: 24, of the owner 192]
    #[arg(long, value_name = "N")]
    overlap_hours: Option<u64>,
    /// For how many days the new key is valid [default: 365, of the owner 3650]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: Option<u64>,
}

const OVERLAP_HOURS: u64 = 24;
const DAYS: u64 = 365;
/// Longer than a job may act: those that began under a writ of the old owner come to their end.
const OWNER_OVERLAP_HOURS: u64 = 192;
const OWNER_DAYS: u64 = 3650;

fn role_parser() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|name| {
        Role::ALL.into_iter().find(|role| role.as_str() == name).ok_or("no such role")
    })
}

pub(crate) fn run(session: &mut Session, arguments: Arguments) -> Result<u8> {
    match arguments.command {
        Command::Add(arguments) => add(session, &arguments),
        Command::List => list(session),
        Command::Show { key } => show(session, &key),
        Command::Rotate(arguments) => rotate(session, &arguments),
        Command::Revoke { key, at, reason } => revoke(session, &key, at, reason.as_deref()),
        Command::Passphrase { name, remove } => change_passphrase(session, &name, remove),
        Command::Export { name, pem } => export(session, &name, pem),
    }?;
    Ok(0)
}

/// The roles of a key, for people.
pub(super) fn roles(key: &TrustedKey) -> String {
    key.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

/// The file comes first: a registered key that nobody holds could never be used. One that was made
/// by a run that then failed is registered by the next.
fn add(session: &mut Session, arguments: &AddArguments) -> Result<()> {
    let AddArguments { name, roles, tenant, days, encrypt } = arguments;
    key_file::check_name(name)?;
    let keys = Session::workspace()?.keys();
    let owner = key_file::read(&key_file::path(&keys, OWNER))?;
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    if registry.named(name).is_some() {
        return Err(Problem::new(format!("there is a key `{name}` already"))
            .hint("`gesta keys rotate` replaces it; `gesta keys list` shows it")
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
        let passphrase =
            encrypt.then(|| passphrase::new(&format!("the key `{name}`"), false)).transpose()?;
        key_file::create(&path, &key, passphrase.as_ref().map(|it| it.as_str()))?;
        key
    };
    let trusted = TrustedKey {
        key: key.id(),
        name: name.clone(),
        revoked_at: None,
        roles: roles.iter().copied().collect(),
        tenant: tenant.clone(),
        valid: window(Session::now(), *days),
    };
    registry.register(session, (&RegistryItem::Key(trusted.clone()), None), &owner)?;
    if session.out.is_json() {
        return session.out.document(&as_json(&trusted, Some(&path)));
    }
    session.out.line(format!("made the key `{name}` in `{}`", path.display()))?;
    details(session, &trusted)
}

fn list(session: &mut Session) -> Result<()> {
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?;
    let mut keys: Vec<&TrustedKey> = registry.keys().iter().collect();
    // The newest of each name first.
    let order = |key: &TrustedKey| (key.name.clone(), Reverse(key.valid.not_after), key.key);
    keys.sort_by_key(|key| order(key));
    let now = Session::now();
    if session.out.is_json() {
        let keys: Vec<Value> = keys
            .into_iter()
            .map(|key| {
                let mut value = as_json(key, None);
                if let Value::Object(fields) = &mut value {
                    fields.insert("state".to_owned(), json!(state(key, now)));
                }
                value
            })
            .collect();
        return session.out.document(&json!({ "registry": registry.id(), "keys": keys }));
    }
    let row = |key: &&TrustedKey| {
        [
            visible(&key.name),
            key.key.to_string(),
            roles(key),
            key.tenant.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string),
            format!("{} – {}", day(key.valid.not_before), day(key.valid.not_after)),
            state(key, now),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    for line in table::lines(["name", "id", "roles", "tenant", "valid", "state"], &rows) {
        session.out.line(line)?;
    }
    Ok(())
}

/// Whether a key may sign now, for people.
fn state(key: &TrustedKey, now: UnixMs) -> String {
    match key.revoked_at {
        Some(at) => format!("revoked {}", moment::utc(at)),
        None if now < key.valid.not_before => "not yet valid".to_owned(),
        None if now > key.valid.not_after => "expired".to_owned(),
        None => "valid".to_owned(),
    }
}

fn day(at: gesta_core::time::UnixMs) -> String {
    if at.0 == 0 { "ever".to_owned() } else { moment::date(at) }
}

fn show(session: &mut Session, which: &str) -> Result<()> {
    let store = session.store_to_read()?;
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
                .hint("`gesta keys add NAME` registers `keys/NAME.pem` if it is there")
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

/// One append registers the new key and ends the old one's time: whatever dies in between, one of them may
/// sign, and doing it again goes on.
fn rotate(session: &mut Session, arguments: &RotateArguments) -> Result<()> {
    let RotateArguments { name, overlap_hours, days } = arguments;
    let workspace = Session::workspace()?;
    let keys = workspace.keys();
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let old = registry.named(name).cloned().ok_or_else(|| no_key(name))?;
    let path = key_file::path(&keys, name);
    let kept = keys.join(format!("{name}.{}.pem", brief(old.key)));
    let encrypted = key_file::is_encrypted(&path);
    if path.exists() && key_file::read(&path)?.id() == old.key {
        durable::rename(&path, &kept)?;
    }
    let key = if path.exists() {
        key_file::read(&path)?
    } else {
        let key = key_file::draw()?;
        let passphrase = encrypted.then(|| passphrase::of(&format!("`{}`", path.display())));
        let passphrase = passphrase.transpose()?;
        key_file::create(&path, &key, passphrase.as_ref().map(|it| it.as_str()))?;
        key
    };
    // The old owner vouches for the new one, and the new one for the whole registry so far.
    let is_owner = name == OWNER;
    let owner = key_file::read(&if is_owner { kept } else { key_file::path(&keys, OWNER) })?;
    let last = if is_owner { &key } else { &owner };
    let now = Session::now();
    let (overlap, days) = if is_owner {
        (overlap_hours.unwrap_or(OWNER_OVERLAP_HOURS), days.unwrap_or(OWNER_DAYS))
    } else {
        (overlap_hours.unwrap_or(OVERLAP_HOURS), days.unwrap_or(DAYS))
    };
    let new =
        TrustedKey { key: key.id(), revoked_at: None, valid: window(now, days), ..old.clone() };
    let mut ending = old;
    ending.valid.not_after =
        ending.valid.not_after.min(now.plus(overlap.saturating_mul(60 * 60 * 1000)));
    let items = [new.clone(), ending.clone()].map(RegistryItem::Key);
    let [begins, ends] = &items;
    registry.register_all(session, &[(begins, &owner), (ends, last)], "rotation")?;
    let reissued = is_owner && take_over(&workspace, &key, &new, now)?;
    trust_anew(&workspace, (&new, &ending), is_owner)?;
    if session.out.is_json() {
        return session.out.document(&json!({ "old": ending, "new": as_json(&new, Some(&path)) }));
    }
    session.out.line(format!("`{name}` is now {}", new.key))?;
    let until = moment::utc(ending.valid.not_after);
    session.out.line(format!("  {} may sign until {until}", ending.key))?;
    if new.roles.contains(&Role::Sealer) {
        return sealer_rotated(session, &workspace, &new, &*store);
    }
    if !is_owner {
        return session.hint("restart whatever signs with it before then");
    }
    if reissued {
        session.out.line(format!("  `{ROOT_WRIT}` is issued anew"))?;
    }
    session.hint(
        "writs that the old key issued end with it: issue them anew before then; \
         `gesta keys export owner` is what verifiers need",
    )
}

/// Witnesses know the log by its key, and whoever checks a proof without a bundle has no registry: both are
/// to be told.
fn sealer_rotated(
    session: &mut Session,
    workspace: &Workspace,
    new: &TrustedKey,
    store: &dyn Store,
) -> Result<()> {
    let sealer = sealing::of(workspace)?.filter(|sealer| sealer.id() == new.key);
    if let Some(sealer) = sealer {
        let key = session.wait(sealing::note_key(&sealer, store))?;
        session.out.line(format!("  log    {key}"))?;
    }
    session.out.line(format!("  trust  {}", serde_json::to_string(new)?))?;
    session.hint(
        "restart whatever seals with it before then; witnesses take the first with \
         `gesta witness add DIR --log KEY`, and those who check proofs by themselves add the second to \
         the keys of their trust root",
    )
}

/// The workspace's root writ names the new owner. One with a budget of its own is left as it is: what was
/// used below it would be forgotten.
fn take_over(
    workspace: &Workspace,
    key: &PrivateKey,
    new: &TrustedKey,
    now: UnixMs,
) -> Result<bool> {
    let root = writs::root(workspace)?;
    let above = root.doc();
    let reissues = above.key != new.key && !above.budget.limits();
    if reissues {
        let holder = if above.holder == above.key { new.key } else { above.holder };
        let window = window(now, OWNER_DAYS);
        let writ = Writ { holder, key: new.key, window, ..above.clone() };
        let text = writs::text(&[Signed::sign(writ, key)?])?;
        replace(&workspace.directory.join(ROOT_WRIT), text.as_bytes(), Readers::Owner)?;
    }
    Ok(reissues)
}

/// The workspace's trust root names the new key: that of the owner always, another if it named the old one.
fn trust_anew(
    workspace: &Workspace,
    (new, old): (&TrustedKey, &TrustedKey),
    is_owner: bool,
) -> Result<()> {
    let path = workspace.trust();
    if !path.exists() {
        return Ok(());
    }
    let bytes =
        std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut trust = TrustRoot::parse(&bytes)
        .with_context(|| format!("`{}` is not a trust root", path.display()))?;
    if !is_owner && !trust.keys.iter().any(|known| known.key == old.key) {
        return Ok(());
    }
    trust.keys.retain(|known| known.key != new.key);
    for known in trust.keys.iter_mut().filter(|known| known.key == old.key) {
        known.valid.not_after = known.valid.not_after.min(old.valid.not_after);
    }
    trust.keys.push(new.clone());
    let text = serde_json::to_string_pretty(&trust)? + "\n";
    replace(&path, text.as_bytes(), Readers::Everyone)
}

fn replace(path: &Path, bytes: &[u8], readers: Readers) -> Result<()> {
    let mut beside = Beside::new(path, readers)?;
    std::io::Write::write_all(beside.file(), bytes)?;
    beside.replace()
}

fn brief(key: KeyId) -> String {
    key.to_string().chars().take(8).collect()
}

fn change_passphrase(session: &mut Session, name: &str, remove: bool) -> Result<()> {
    let path = key_file::path(&Session::workspace()?.keys(), name);
    let was = key_file::is_encrypted(&path);
    let key = key_file::read(&path)?;
    let what = format!("`{}`", path.display());
    if remove {
        key_file::replace(&path, &key, None)?;
    } else {
        let new = passphrase::new(&what, was)?;
        key_file::replace(&path, &key, Some(&new))?;
    }
    if session.out.is_json() {
        return session.out.document(&json!({ "file": path, "encrypted": !remove }));
    }
    Ok(session.out.line(match remove {
        true => format!("{what} is no longer encrypted"),
        false => format!("{what} is encrypted"),
    })?)
}

fn revoke(
    session: &mut Session,
    which: &str,
    at: Option<UnixMs>,
    reason: Option<&str>,
) -> Result<()> {
    let keys = Session::workspace()?.keys();
    let owner = key_file::read(&key_file::path(&keys, OWNER))?;
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let by_id = registry.keys().iter().find(|key| key.key.to_string() == which);
    let key = by_id.or_else(|| registry.named(which)).cloned().ok_or_else(|| no_key(which))?;
    let now = Session::now();
    let at = at.unwrap_or(now);
    if at > now {
        return Err(Problem::new(format!("{} is in the future", moment::utc(at)))
            .hint("what a revoked key has signed counts no more at once; `gesta keys rotate` ends a key later")
            .bad_input()
            .into());
    }
    if key.key == owner.id() {
        return Err(Problem::new("the owner key cannot revoke itself")
            .hint(
                "nothing would count any more: take it out of the trust roots of those who verify",
            )
            .into());
    }
    if let Some(at) = key.revoked_at {
        return Err(Problem::new(format!("`{which}` was revoked at {}", moment::utc(at))).into());
    }
    let revocation = KeyRevocation { at, key: key.key };
    registry.register(session, (&RegistryItem::RevokeKey(revocation), reason), &owner)?;
    let key = registry.keys().get(&key.key).cloned().unwrap_or(key);
    if session.out.is_json() {
        return session.out.document(&as_json(&key, None));
    }
    Ok(session
        .out
        .line(format!("revoked `{which}` ({}); what it signed counts no more", key.key))?)
}

fn export(session: &mut Session, name: &str, pem: bool) -> Result<()> {
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?;
    if pem && let Some(key) = registry.keys().iter().find(|key| key.key.to_string() == name) {
        let text = public_pem(key.key);
        return Ok(session.out.line(text.trim_end())?);
    }
    let newest = registry.named(name).map(|key| key.key).ok_or_else(|| no_key(name))?;
    // Whoever has only the newest cannot tell whose what came before is.
    let named = registry.keys().iter().filter(|key| key.name == name && key.revoked_at.is_none());
    let mut keys: Vec<TrustedKey> = named.cloned().collect();
    keys.sort_by_key(|key| (key.key != newest, Reverse(key.valid.not_after)));
    if keys.is_empty() {
        keys.extend(registry.named(name).cloned());
    }
    if pem {
        let text: String = keys.iter().map(|key| public_pem(key.key)).collect();
        return Ok(session.out.line(text.trim_end())?);
    }
    session.out.document(&TrustRoot::new(keys))
}

/// What comes before the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410).
const ED25519_INFO: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];

/// A public key as other tools read it.
fn public_pem(key: KeyId) -> String {
    let info = STANDARD.encode([ED25519_INFO.as_slice(), key.as_bytes()].concat());
    format!("-----BEGIN PUBLIC KEY-----\n{info}\n-----END PUBLIC KEY-----\n")
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
