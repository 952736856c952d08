//! `gesta init`: a workspace from nothing.
//!
//! The order is what makes a crash harmless. `gesta.toml.partial` comes first and fixes the registry's
//! id; then the key files, because a registered key that nobody holds could never be used or
//! withdrawn; then the registry, in one append; then what is derived from both. Moving the partial
//! file to `gesta.toml` comes last and makes it a workspace. Until then `gesta init` goes on where it
//! stopped, with the keys that are there.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::ids::{Principal, Tenant};
use gesta_core::json;
use gesta_core::keys::PrivateKey;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::trust::{TrustRoot, TrustedKey};
use gesta_core::writ::Writ;
use gesta_policy::{PolicyDocument, PolicySet};
use gesta_runtime::Keys;
use gesta_runtime::authority::{self, OWNER, SEALER, WORKER};
use gesta_store::Store;
use serde_json::json;

use crate::durable::{self, Beside, Readers};
use crate::entropy;
use crate::key_file;
use crate::place::{Place, without_password};
use crate::policies;
use crate::problem::Problem;
use crate::session::Session;
use crate::settings::PolicySettings;
use crate::workspace::{self, Config, ROOT_WRIT};

/// Whose a workspace's root writ is and who acts under it, unless something else is said.
const TENANT: &str = "main";
const PRINCIPAL: &str = "agent:main";
/// Make a workspace: store, keys, registry, root writ, trust root
#[derive(Debug, Args)]
#[command(after_help = "\
It makes gesta.toml, the store, keys/owner.pem, keys/worker.pem, keys/sealer.pem, writs/root.json,
trust.json and policy.cedar, and publishes the policy.
Nothing that exists is touched. If it is interrupted, run it again.

Examples:
  gesta init
  gesta init ledger --tenant acme
  gesta init --store postgres://gesta@db.example/gesta")]
pub(crate) struct Arguments {
    /// Where; made if it is not there
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// Whose the root writ is
    #[arg(long, default_value = TENANT)]
    tenant: Tenant,
    /// Who acts under the root writ
    #[arg(long, default_value = PRINCIPAL)]
    principal: Principal,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Arguments { directory, tenant, principal } = arguments;
    let store = session.global.store.as_deref();
    let founded = found(session, directory, store, tenant, principal)?;
    report(session, directory, &founded)?;
    Ok(0)
}

/// A workspace that has just been made.
pub(crate) struct Founded {
    config: Config,
    pub(crate) place: Place,
    keys: Vec<TrustedKey>,
}

/// Makes the current directory a workspace, as `gesta init` does without options.
pub(crate) fn found_here(session: &Session) -> Result<Founded> {
    let store = session.global.store.as_deref();
    found(session, Path::new("."), store, &TENANT.parse()?, &PRINCIPAL.parse()?)
}

/// Makes a workspace for a moment, with a store of its own.
pub(crate) fn found_throw_away(session: &Session, directory: &Path) -> Result<Founded> {
    found(session, directory, None, &TENANT.parse()?, &PRINCIPAL.parse()?)
}

/// The root writ that such a workspace would have.
pub(crate) fn first_writ(owner: &PrivateKey, now: UnixMs) -> Result<Signed<Writ>> {
    Ok(authority::root_writ(&TENANT.parse()?, &PRINCIPAL.parse()?, owner, now)?)
}

/// Makes a workspace.
fn found(
    session: &Session,
    directory: &Path,
    store: Option<&str>,
    tenant: &Tenant,
    principal: &Principal,
) -> Result<Founded> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make `{}`", directory.display()))?;
    let (config, place, _lock) = begin(directory, store)?;

    let keys = directory.join(&config.keys);
    durable::private_directory(&keys)?;
    let both = Keys {
        owner: key(&keys, OWNER)?,
        worker: key(&keys, WORKER)?,
        sealer: Some(key(&keys, SEALER)?),
    };

    let place = place.verified_by(session.global.store_ca.as_deref());
    let store = session.wait(place.make())?;
    let now = Session::now();
    let registered =
        session.wait(authority::found_registry(&store, config.registry, &both, now))?;
    found_policy(session, directory, &store, (&config, &both.owner))?;

    let writ = directory.join(ROOT_WRIT);
    if !writ.exists() {
        if let Some(parent) = writ.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make `{}`", parent.display()))?;
        }
        let signed = authority::root_writ(tenant, principal, &both.owner, now)?;
        durable::create(&writ, &json::to_canonical(&signed)?, Readers::Owner)?;
    }
    let trust = directory.join(&config.trust);
    if !trust.exists() {
        // Whoever seals is named too: a bundle may come without its registry.
        let named = registered.iter().filter(|key| key.name == OWNER || key.name == SEALER);
        let root = TrustRoot::new(named.cloned().collect());
        let text = serde_json::to_string_pretty(&root)? + "\n";
        durable::create(&trust, text.as_bytes(), Readers::Everyone)?;
    }
    durable::rename(&partial(directory), &directory.join(workspace::FILE))?;
    Ok(Founded { config, place, keys: registered })
}

/// Writes a policy to begin with, unless there is one, and puts it in force. One that was there may be
/// about tools that are not declared yet: then it is published when they are.
fn found_policy(
    session: &Session,
    directory: &Path,
    store: &Arc<dyn Store>,
    (config, owner): (&Config, &PrivateKey),
) -> Result<()> {
    let path = directory.join(policies::FILE);
    if !path.exists() {
        durable::create(&path, policies::STARTER.as_bytes(), Readers::Everyone)?;
    }
    if session.wait(policies::published(store, config.registry))?.is_some() {
        return Ok(());
    }
    let PolicySettings { files, channels, roles } = &config.policy;
    let texts = policies::read(directory, files)?;
    let document =
        PolicyDocument::new(texts, roles.clone(), BTreeMap::new()).with_channels(channels.clone());
    if PolicySet::compile(&document).is_ok() {
        session.wait(policies::publish(store, config.registry, &document, owner))?;
    }
    Ok(())
}

fn partial(directory: &Path) -> PathBuf {
    directory.join(format!("{}.partial", workspace::FILE))
}

/// Begins, or takes up what was interrupted. The lock keeps a second one out.
fn begin(directory: &Path, store: Option<&str>) -> Result<(Config, Place, File)> {
    let config_file = directory.join(workspace::FILE);
    if config_file.exists() {
        return Err(Problem::new(format!(
            "`{}` exists already; nothing was changed",
            config_file.display()
        ))
        .hint(
            "this is a workspace: `gesta doctor` checks it. Choose another directory for a new one",
        )
        .into());
    }
    let partial = partial(directory);
    let store = store.map(absolute).transpose()?;
    let config = if partial.exists() {
        resume(&partial, store.as_deref())?
    } else {
        let store = store.as_deref().map_or_else(|| "gesta.db".to_owned(), without_password);
        let config = Config::new(store, entropy::trajectory()?);
        refuse_leftovers(directory, &config)?;
        durable::create(&partial, config.to_toml()?.as_bytes(), Readers::Everyone)?;
        config
    };
    let place = Place::parse(store.as_deref().unwrap_or(&config.store), directory)?;
    let lock =
        File::open(&partial).with_context(|| format!("cannot read `{}`", partial.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok((config, place, lock)),
        Err(TryLockError::WouldBlock) => {
            Err(Problem::new("another `gesta init` is at work in this directory").into())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock `{}`", partial.display()))
        }
    }
}

/// What an interrupted run had fixed. Another store may be named: the old one could not be reached.
fn resume(partial: &Path, store: Option<&str>) -> Result<Config> {
    let text = std::fs::read_to_string(partial)
        .with_context(|| format!("cannot read `{}`", partial.display()))?;
    let mut config = workspace::read(partial, &text)?;
    if let Some(store) = store.map(without_password).filter(|store| *store != config.store) {
        config.store = store;
        let mut beside = Beside::new(partial, Readers::Everyone)?;
        std::io::Write::write_all(beside.file(), config.to_toml()?.as_bytes())?;
        beside.replace()?;
    }
    Session::note("going on with a workspace that was begun before");
    Ok(config)
}

fn refuse_leftovers(directory: &Path, config: &Config) -> Result<()> {
    let keys = directory.join(&config.keys);
    let place = Place::parse(&config.store, directory)?;
    let store = place.file().map(Path::to_owned);
    let ours = [
        key_file::path(&keys, OWNER),
        key_file::path(&keys, WORKER),
        key_file::path(&keys, SEALER),
        directory.join(ROOT_WRIT),
        directory.join(&config.trust),
    ];
    let there: Vec<String> = ours
        .into_iter()
        .chain(store)
        .filter(|path| path.exists())
        .map(|path| format!("`{}`", path.display()))
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    let verb = if there.len() == 1 { "exists" } else { "exist" };
    Err(Problem::new(format!("{} {verb} already; nothing was changed", there.join(", ")))
        .hint("move it away, or choose another directory")
        .into())
}

/// A path as it will be found from elsewhere.
fn absolute(store: &str) -> Result<String> {
    match Place::parse(store, Path::new(""))? {
        Place::Postgres { url, .. } => Ok(url),
        Place::Sqlite(path) => {
            let path = std::path::absolute(&path)
                .with_context(|| format!("cannot tell where `{store}` is"))?;
            Ok(path.display().to_string())
        }
    }
}

fn key(keys: &Path, name: &str) -> Result<PrivateKey> {
    let path = key_file::path(keys, name);
    if path.exists() {
        return key_file::read(&path);
    }
    let key = key_file::draw()?;
    key_file::create(&path, &key, None)?;
    Ok(key)
}

fn report(session: &mut Session, directory: &Path, founded: &Founded) -> Result<()> {
    let Founded { config, place, keys } = founded;
    let file = |name: &str| key_file::path(&directory.join(&config.keys), name);
    if session.out.is_json() {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| json!({ "name": key.name, "key": key.key, "roles": key.roles, "file": file(&key.name) }))
            .collect();
        session.out.document(&json!({
            "directory": directory,
            "store": place.to_string(),
            "registry": config.registry,
            "keys": keys,
            "policy": directory.join(policies::FILE),
            "trust": directory.join(&config.trust),
            "writ": directory.join(ROOT_WRIT),
        }))?;
    } else {
        let out = &mut session.out;
        out.line(format!("made a workspace in `{}`", directory.display()))?;
        out.line(format!("  store     {place}"))?;
        out.line(format!("  registry  {}", config.registry))?;
        for key in keys {
            out.line(format!(
                "  key       {}  {}",
                file(&key.name).display(),
                super::keys::roles(key)
            ))?;
        }
        out.line(format!("  writ      {}", directory.join(ROOT_WRIT).display()))?;
        out.line(format!("  policy    {}", directory.join(policies::FILE).display()))?;
        out.line(format!("  trust     {}", directory.join(&config.trust).display()))?;
        out.line("next: `gesta verify` checks it, `gesta keys list` shows the keys")?;
    }
    if let Place::Postgres { url, .. } = place
        && *url != config.store
    {
        Session::note("hint: gesta.toml does not hold the password; give the URL by GESTA_STORE");
    }
    // Later is too late: what is sealed under a key stays under it.
    if matches!(place, Place::Postgres { .. }) && config.data_keys.is_none() {
        Session::note(
            "hint: data keys of sensitive values will be in the same database; `data_keys` in gesta.toml keeps them in a file or another database, which no copy of this one takes along (docs/erasure.md)",
        );
    }
    Ok(())
}
