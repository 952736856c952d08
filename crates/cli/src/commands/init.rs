//! `gesta init`: a workspace from nothing.
//!
//! The order is what makes a crash harmless. `gesta.toml.partial` comes first and fixes the registry's
//! id; then the key files, because a registered key that nobody holds could never be used or
//! withdrawn; then the registry, in one append; then what is derived from both. Moving the partial
//! file to `gesta.toml` comes last and makes it a workspace. Until then `gesta init` goes on where it
//! stopped, with the keys that are there.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::amounts::Budget;
use gesta_core::body::{Purpose, Root};
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::RegistryItem;
use gesta_core::entry::{Author, Body};
use gesta_core::ids::{Principal, Tenant, TrajectoryId};
use gesta_core::json;
use gesta_core::keys::PrivateKey;
use gesta_core::signed::{Signed, Tag};
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Role, TrustRoot, TrustedKey};
use gesta_core::writ::{Effect, ToolPattern, Writ};
use gesta_store::{Chain, ChainError, Store};
use serde_json::json;

use crate::durable::{self, Beside, Readers};
use crate::key_file::{self, OWNER};
use crate::place::{Place, without_password};
use crate::problem::Problem;
use crate::registry;
use crate::session::Session;
use crate::workspace::{self, Config};

const WORKER: &str = "worker";
const OWNER_ROLES: [Role; 4] = [Role::Owner, Role::Issuer, Role::Operator, Role::Approver];
const WORKER_ROLES: [Role; 2] = [Role::Guardian, Role::Executor];
const WRIT: &str = "writs/root.json";

/// A machine whose clock is a little behind can use a new key at once.
const SKEW_MS: u64 = 5 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const OWNER_DAYS: u64 = 3650;
const WORKER_DAYS: u64 = 365;
/// How often the root writ may be narrowed: jobs, their children, theirs.
const WRIT_DEPTH: u64 = 8;

/// Make a workspace: store, keys, registry, root writ, trust root
#[derive(Debug, Args)]
#[command(after_help = "\
It makes gesta.toml, the store, keys/owner.pem, keys/worker.pem, writs/root.json and trust.json.
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
    #[arg(long, default_value = "main")]
    tenant: Tenant,
    /// Who acts under the root writ
    #[arg(long, default_value = "agent:main")]
    principal: Principal,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make `{}`", directory.display()))?;
    let (config, place, _lock) = begin(directory, session.global.store.as_deref())?;

    let keys = directory.join(&config.keys);
    durable::private_directory(&keys)?;
    let owner = key(&keys, OWNER)?;
    let worker = key(&keys, WORKER)?;

    let place = place.verified_by(session.global.store_ca.as_deref());
    let store = session.wait(place.make())?;
    let now = Session::now();
    let registered = session.wait(found_registry(&store, config.registry, &owner, &worker, now))?;

    let writ = directory.join(WRIT);
    if !writ.exists() {
        if let Some(parent) = writ.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make `{}`", parent.display()))?;
        }
        let signed = root_writ(arguments, &owner, now)?;
        durable::create(&writ, &json::to_canonical(&signed)?, Readers::Owner)?;
    }
    let trust = directory.join(&config.trust);
    if !trust.exists() {
        let root =
            TrustRoot::new(registered.iter().filter(|key| key.name == OWNER).cloned().collect());
        let text = serde_json::to_string_pretty(&root)? + "\n";
        durable::create(&trust, text.as_bytes(), Readers::Everyone)?;
    }
    durable::rename(&partial(directory), &directory.join(workspace::FILE))?;
    report(session, directory, &config, &place, &registered)?;
    Ok(0)
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
        let config = Config {
            store: store.as_deref().map_or_else(|| "gesta.db".to_owned(), without_password),
            trust: "trust.json".into(),
            keys: "keys".into(),
            registry: draw_id()?,
        };
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
        directory.join(WRIT),
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

fn draw_id() -> Result<TrajectoryId> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(format!("the system gives no random bytes: {error}")))?;
    Ok(TrajectoryId::from_bytes(bytes))
}

fn key(keys: &Path, name: &str) -> Result<PrivateKey> {
    let path = key_file::path(keys, name);
    if path.exists() {
        return key_file::read(&path);
    }
    let key = key_file::draw()?;
    key_file::create(&path, &key)?;
    Ok(key)
}

/// Begins the registry with both keys, in one append, unless it is there.
async fn found_registry(
    store: &Arc<dyn Store>,
    id: TrajectoryId,
    owner: &PrivateKey,
    worker: &PrivateKey,
    now: UnixMs,
) -> Result<Vec<TrustedKey>> {
    let row = store.trajectory(id).await?;
    let chain = match row {
        Some(_) => Chain::load(Arc::clone(store), id).await?,
        None => {
            let mut chain = Chain::unbegun(Arc::clone(store), id);
            let seed = Seed::new(Digest::of(id.to_string().as_bytes()));
            let principal: Principal = OWNER.parse()?;
            let root = Root {
                compiler: concat!("gesta ", env!("CARGO_PKG_VERSION")).to_owned(),
                principal: principal.clone(),
                purpose: Purpose::Registry { owner: owner.id() },
                seed,
            };
            let items = [
                trusted(owner, OWNER, &OWNER_ROLES, OWNER_DAYS, now),
                trusted(worker, WORKER, &WORKER_ROLES, WORKER_DAYS, now),
            ]
            .map(RegistryItem::Key);
            chain
                .append(|admission| {
                    let by = Author::Principal(principal.clone());
                    let body = Body::Root(Box::new(root.clone()));
                    admission.push(now, by, body).map_err(ChainError::from)?;
                    items
                        .iter()
                        .try_for_each(|item| registry::register(admission, item, owner, now))
                })
                .await?;
            chain
        }
    };
    let mut keys: Vec<_> = chain.state().registry().keys().iter().cloned().collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(keys)
}

fn trusted(key: &PrivateKey, name: &str, roles: &[Role], days: u64, now: UnixMs) -> TrustedKey {
    TrustedKey {
        key: key.id(),
        name: name.to_owned(),
        revoked_at: None,
        roles: roles.iter().copied().collect(),
        tenant: None,
        valid: window(now, days),
    }
}

/// From now on, for so many days.
pub(super) fn window(now: UnixMs, days: u64) -> Window {
    Window {
        not_before: UnixMs(now.0.saturating_sub(SKEW_MS)),
        not_after: now.plus(days.saturating_mul(DAY_MS)),
    }
}

/// Everything, for the owner to narrow: a standing writ roots nothing by itself.
fn root_writ(arguments: &Arguments, owner: &PrivateKey, now: UnixMs) -> Result<Signed<Writ>> {
    let writ = Writ {
        budget: Budget::default(),
        depth: WRIT_DEPTH,
        effect: Effect::Irreversible,
        holder: owner.id(),
        key: owner.id(),
        parent: None,
        principal: arguments.principal.clone(),
        tenant: arguments.tenant.clone(),
        tools: vec![ToolPattern::Any],
        trajectory: None,
        type_: Tag::default(),
        window: window(now, OWNER_DAYS),
    };
    Ok(Signed::sign(writ, owner)?)
}

fn report(
    session: &mut Session,
    directory: &Path,
    config: &Config,
    place: &Place,
    keys: &[TrustedKey],
) -> Result<()> {
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
            "trust": directory.join(&config.trust),
            "writ": directory.join(WRIT),
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
        out.line(format!("  writ      {}", directory.join(WRIT).display()))?;
        out.line(format!("  trust     {}", directory.join(&config.trust).display()))?;
        out.line("next: `gesta verify` checks it, `gesta keys list` shows the keys")?;
    }
    if let Place::Postgres { url, .. } = place
        && *url != config.store
    {
        Session::note("hint: gesta.toml does not hold the password; give the URL by GESTA_STORE");
    }
    Ok(())
}
