//! Who may do what in a store of one's own: the registry with its first keys, the root writ, and
//! the writ of one job, narrowed to exactly what the job does.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_core::amounts::Budget;
use gesta_core::body::{Purpose, Registration, Root};
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::{RegistrationStatement, RegistryItem};
use gesta_core::entry::{Author, Body, EntryError};
use gesta_core::ids::{Principal, Tenant, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::{PrivateKey, Sign};
use gesta_core::signed::{SignError, Signed, Tag};
use gesta_core::state::{Admission, AdmitError, State};
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Role, TrustedKey};
use gesta_core::writ::{Effect, ToolPattern, Widening, Writ};
use gesta_policy::PolicyDocument;
use gesta_store::{Chain, ChainError, Store};

use crate::desk::COMPILER;
use crate::error::RunError;
use crate::in_force;
use crate::published;
use crate::tools::{Catalogue, Definitions};

/// The name of the key that registers all others.
pub const OWNER: &str = "owner";
/// The name of the key that workers sign with.
pub const WORKER: &str = "worker";
/// The name of the key that checkpoints of the transparency log are signed with.
pub const SEALER: &str = "sealer";

const OWNER_ROLES: [Role; 4] = [Role::Owner, Role::Issuer, Role::Operator, Role::Approver];
const WORKER_ROLES: [Role; 2] = [Role::Guardian, Role::Executor];
const SEALER_ROLES: [Role; 1] = [Role::Sealer];
/// A machine whose clock is a little behind can use a new key or writ at once.
const SKEW_MS: u64 = 5 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const OWNER_DAYS: u64 = 3650;
const WORKER_DAYS: u64 = 365;
const SEALER_DAYS: u64 = 3650;
/// For how long a job may act.
const JOB_DAYS: u64 = 7;
/// How often the root writ may be narrowed: jobs, their children, theirs.
const WRIT_DEPTH: u64 = 8;

/// The keys that a store begins with.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Registers keys, issues writs, speaks for operators.
    pub owner: PrivateKey,
    /// Signs decisions, permits and receipts.
    pub worker: PrivateKey,
    /// Signs checkpoints of the transparency log, if there is to be one.
    pub sealer: Option<PrivateKey>,
}

/// Why a job cannot be given authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthorised {
    /// There is nothing to narrow.
    #[error("there is no writ")]
    None,
    /// The writ is at the end of its depth.
    #[error("the writ may not be narrowed any further")]
    Depth,
    /// The writ is another trajectory's.
    #[error("the writ roots {0}, which alone may hand on a part of it, by delegating")]
    Bound(TrajectoryId),
    /// The writ's time has not come, or is over.
    #[error("the writ is not valid now")]
    NotNow,
    /// The job wants more than there is.
    #[error("the writ does not allow this job: {0}")]
    Widens(#[from] Widening),
}

/// Begins the registry with these keys, in one append, unless it is there. Returns the keys that it
/// knows, by name.
pub async fn found_registry(
    store: &Arc<dyn Store>,
    id: TrajectoryId,
    keys: &Keys,
    now: UnixMs,
) -> Result<Vec<TrustedKey>, RunError> {
    let mut chain = match store.trajectory(id).await? {
        Some(_) => Chain::load(Arc::clone(store), id).await?,
        None => Chain::unbegun(Arc::clone(store), id),
    };
    if chain.state().head().is_none() {
        let by = owner()?;
        let root = Root {
            compiler: COMPILER.to_owned(),
            principal: by.clone(),
            purpose: Purpose::Registry { owner: keys.owner.id() },
            seed: Seed::new(Digest::of(id.to_string().as_bytes())),
        };
        let sealer = keys.sealer.iter();
        let sealer = sealer.map(|key| trusted(key, SEALER, &SEALER_ROLES, SEALER_DAYS, now));
        let items: Vec<_> = [
            trusted(&keys.owner, OWNER, &OWNER_ROLES, OWNER_DAYS, now),
            trusted(&keys.worker, WORKER, &WORKER_ROLES, WORKER_DAYS, now),
        ]
        .into_iter()
        .chain(sealer)
        .map(RegistryItem::Key)
        .collect();
        chain
            .append(|admission| {
                let body = Body::Root(Box::new(root.clone()));
                admission.push(now, Author::Principal(by.clone()), body)?;
                items
                    .iter()
                    .try_for_each(|item| register(admission, (item, None), &keys.owner, now))
            })
            .await?;
    }
    let mut known: Vec<_> = chain.state().registry().keys().iter().cloned().collect();
    known.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(known)
}

/// Puts a policy set in force. One that does not hold together is refused, and what was in force stays.
/// A crash leaves the one or the other in force.
pub async fn publish(
    store: &Arc<dyn Store>,
    registry: TrajectoryId,
    policies: &PolicyDocument,
    owner: &PrivateKey,
    now: UnixMs,
) -> Result<Digest, RunError> {
    in_force::compiled(policies)?;
    let content = policies.canonical()?;
    put_in_force(store, registry, (&content, RegistryItem::Policy), owner, now).await
}

/// Puts a tool catalogue in force: from then on no worker calls a tool that is not in it, or that it has
/// otherwise. Signed by the owner.
pub async fn publish_tools(
    store: &Arc<dyn Store>,
    registry: TrajectoryId,
    catalogue: &Catalogue,
    owner: &PrivateKey,
    now: UnixMs,
) -> Result<Digest, RunError> {
    put_in_force(store, registry, (catalogue.canonical(), RegistryItem::Catalogue), owner, now)
        .await
}

/// Keeps content, and registers its digest.
async fn put_in_force(
    store: &Arc<dyn Store>,
    registry: TrajectoryId,
    (content, item): (&Canon, fn(Digest) -> RegistryItem),
    owner: &PrivateKey,
    now: UnixMs,
) -> Result<Digest, RunError> {
    let digest = store.put_blob(content.as_bytes()).await?.sha256;
    let mut chain = Chain::load(Arc::clone(store), registry).await?;
    chain.append(|admission| register(admission, (&item(digest), None), owner, now)).await?;
    Ok(digest)
}

/// The tool catalogue that is published, with its digest; none if there is none. An error for people if it
/// cannot be had or understood.
pub async fn published_tools(
    store: &dyn Store,
    registry: &State,
) -> Result<Option<(Digest, Result<Definitions, String>)>, RunError> {
    let Some(digest) = registry.registry().catalogue() else { return Ok(None) };
    Ok(Some((digest, published::read(store, digest).await?)))
}

/// Adds a registration to what is about to be appended to a registry.
pub fn register(
    admission: &mut Admission,
    (item, note): (&RegistryItem, Option<&str>),
    signer: &impl Sign,
    now: UnixMs,
) -> Result<(), ChainError> {
    let state = admission.state();
    let parent = state.head().ok_or_else(|| refused("the registry has not begun"))?.id;
    let statement = RegistrationStatement {
        at: now,
        item: item.clone(),
        key: signer.id(),
        note: note.map(str::to_owned),
        parent,
        registry: state.trajectory(),
        type_: Tag::default(),
    };
    let statement = Signed::sign(statement, signer).map_err(|error| refused(error.to_string()))?;
    let by = Author::Principal(owner()?);
    admission.push(now, by, Body::Registration(Box::new(Registration { statement })))?;
    Ok(())
}

fn owner() -> Result<Principal, ChainError> {
    OWNER.parse().map_err(|error| refused(format!("{error}")))
}

fn refused(why: impl Into<String>) -> ChainError {
    ChainError::from(AdmitError::from(EntryError::Shape(why.into())))
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
pub fn window(now: UnixMs, days: u64) -> Window {
    Window {
        not_before: UnixMs(now.0.saturating_sub(SKEW_MS)),
        not_after: now.plus(days.saturating_mul(DAY_MS)),
    }
}

/// Everything, for the owner to narrow: a standing writ roots nothing by itself.
pub fn root_writ(
    tenant: &Tenant,
    principal: &Principal,
    owner: &PrivateKey,
    now: UnixMs,
) -> Result<Signed<Writ>, SignError> {
    let writ = Writ {
        budget: Budget::default(),
        depth: WRIT_DEPTH,
        effect: Effect::Irreversible,
        guardians: false,
        holder: owner.id(),
        key: owner.id(),
        parent: None,
        principal: principal.clone(),
        tenant: tenant.clone(),
        tools: vec![ToolPattern::Any],
        trajectory: None,
        type_: Tag::default(),
        window: window(now, OWNER_DAYS),
    };
    Signed::sign(writ, owner)
}

/// The tools that a job needs: those that it calls, and those that tell whether a call happened.
pub fn needed(called: &BTreeSet<ToolName>, catalogue: &Catalogue) -> BTreeSet<ToolName> {
    let probe = |name| catalogue.get(name).and_then(|tool| tool.manifest().probe.clone());
    called.iter().filter_map(probe).chain(called.iter().cloned()).collect()
}

/// The strongest effect among tools; what is not known could do anything.
pub fn ceiling(tools: &BTreeSet<ToolName>, catalogue: &Catalogue) -> Effect {
    let effect = |name| catalogue.get(name).map(|tool| tool.manifest().effect);
    tools
        .iter()
        .map(|name| effect(name).unwrap_or(Effect::Irreversible))
        .max()
        .unwrap_or(Effect::Read)
}

/// The chain of writs for one job: those above, and one below the last of them that names the job,
/// exactly the tools it needs, no stronger effect than theirs, its budget, and a few days. Whichever
/// guardian drives the job may narrow it further for the job's children.
pub fn narrow(
    mut above: Vec<Signed<Writ>>,
    holder: &PrivateKey,
    (trajectory, tools, budget): (TrajectoryId, &BTreeSet<ToolName>, &Budget),
    catalogue: &Catalogue,
    now: UnixMs,
) -> Result<Vec<Signed<Writ>>, RunError> {
    let root = above.last().ok_or(Unauthorised::None)?;
    if let Some(bound) = above.iter().rev().find_map(|writ| writ.doc().trajectory) {
        return Err(Unauthorised::Bound(bound).into());
    }
    let parent = root.doc();
    let depth = parent.depth.checked_sub(1).ok_or(Unauthorised::Depth)?;
    let own = window(now, JOB_DAYS);
    let window = Window {
        not_before: own.not_before.max(parent.window.not_before),
        not_after: own.not_after.min(parent.window.not_after),
    };
    if !window.contains(now) {
        return Err(Unauthorised::NotNow.into());
    }
    let tools = needed(tools, catalogue);
    let writ = Writ {
        budget: least(&parent.budget, budget),
        depth,
        effect: ceiling(&tools, catalogue).min(parent.effect),
        guardians: true,
        holder: holder.id(),
        key: holder.id(),
        parent: Some(root.id()),
        principal: parent.principal.clone(),
        tenant: parent.tenant.clone(),
        tools: tools.into_iter().map(ToolPattern::Exact).collect(),
        trajectory: Some(trajectory),
        type_: Tag::default(),
        window,
    };
    let writ = Signed::sign(writ, holder)?;
    writ.doc().narrows(parent, root.id()).map_err(Unauthorised::from)?;
    above.push(writ);
    Ok(above)
}

/// The lesser of two budgets, dimension by dimension.
pub fn least(one: &Budget, other: &Budget) -> Budget {
    let least = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    Budget {
        calls: least(one.calls, other.calls),
        money_micros: least(one.money_micros, other.money_micros),
        tokens: least(one.tokens, other.tokens),
        wall_ms: least(one.wall_ms, other.wall_ms),
    }
}
