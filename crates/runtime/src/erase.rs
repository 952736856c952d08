//! Erasing: the data key of a family is destroyed, and every chain whose values it held says so.
//!
//! The key goes first, and leaves its digest behind. A crash in between leaves values that cannot be read
//! and chains that do not say so yet; asking again finishes it. The other way round, a chain could claim
//! what is not so.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::body::Erased;
use gesta_core::digest::Digest;
use gesta_core::entry::{Author, Body, Entry};
use gesta_core::ids::{Principal, TrajectoryId};
use gesta_core::sensitive::may_hold;
use gesta_core::time::UnixMs;
use gesta_store::{Chain, Follow, Listing, Store};

use crate::error::RunError;
use crate::vault::{Held, Vault, above};

/// How many rows are read at a time.
const PAGE: usize = 512;

/// What was erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// The digest of the key that was destroyed.
    pub key: Digest,
    /// The trajectories that say so now, with the number of the entry.
    pub entries: Vec<(TrajectoryId, u64)>,
}

/// What a store that was put back had forgotten of erasing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// The trajectories that say so again, with the number of the entry.
    pub said: Vec<(TrajectoryId, u64)>,
    /// Those that cannot: as the copy has them, they have not ended. Their values are gone all the same.
    pub open: Vec<TrajectoryId>,
}

/// Trajectories by what they are a child or a branch of.
type Below = BTreeMap<TrajectoryId, Vec<TrajectoryId>>;

/// What matters of a chain.
#[derive(Clone, Default)]
struct Seen {
    children: Vec<TrajectoryId>,
    sensitive: bool,
    erased: Option<(Digest, u64)>,
}

impl Follow for Seen {
    fn follow(&mut self, entry: &Entry) {
        self.sensitive = self.sensitive || may_hold(entry.bytes());
        match &entry.payload().body {
            Body::Delegation(delegation) => self.children.push(delegation.child),
            Body::Erased(erased) => self.erased = Some((erased.what, entry.seq())),
            _ => {}
        }
    }
}

/// Erases the sensitive values of a trajectory that has ended, and with `tree` of everything below it that
/// shares them. Asking again finishes what was begun, and changes nothing else.
pub async fn erase(
    store: &Arc<dyn Store>,
    vault: &Vault,
    (trajectory, tree): (TrajectoryId, bool),
    (by, reason): (&Principal, &str),
    now: UnixMs,
) -> Result<Erasure, RunError> {
    let family = vault.family(trajectory).await?;
    if family != trajectory {
        return Err(RunError::OfFamily { trajectory, family });
    }
    let members = members(store, &below(store).await?, trajectory).await?;
    let others = members.keys().copied().filter(|member| *member != trajectory);
    let others: Vec<TrajectoryId> = others.collect();
    if !tree && !others.is_empty() {
        return Err(RunError::Relatives { trajectory, others });
    }
    let open = members.iter().filter(|(_, chain)| chain.state().ended().is_none());
    let open: Vec<TrajectoryId> = open.map(|(member, _)| *member).collect();
    if !open.is_empty() {
        return Err(RunError::NotEnded(open));
    }
    if let Held::Nothing = vault.held(family).await? {
        let place = vault.place();
        return Err(match members.is_empty() {
            true => RunError::NothingToErase(trajectory),
            false => RunError::NoDataKey { trajectory, place },
        });
    }
    let key = vault.destroy(family).await?.ok_or(RunError::NothingToErase(trajectory))?;
    let mut entries = Vec::with_capacity(members.len());
    for (member, mut chain) in members {
        entries.push((member, say(&mut chain, key, (by, reason), now).await?));
    }
    Ok(Erasure { key, entries })
}

/// Has the chains of a copy say what was erased after it was made: the keys know. Asking again changes nothing.
pub async fn recall(
    store: &Arc<dyn Store>,
    vault: &Vault,
    (by, reason): (&Principal, &str),
    now: UnixMs,
) -> Result<Recalled, RunError> {
    let mut recalled = Recalled::default();
    let destroyed = vault.destroyed().await?;
    if destroyed.is_empty() {
        return Ok(recalled);
    }
    let below = below(store).await?;
    for (family, key) in destroyed {
        for (member, mut chain) in members(store, &below, family).await? {
            if chain.view().erased.is_some_and(|(what, _)| what == key) {
                continue;
            }
            if chain.state().ended().is_none() {
                recalled.open.push(member);
                continue;
            }
            recalled.said.push((member, say(&mut chain, key, (by, reason), now).await?));
        }
    }
    Ok(recalled)
}

/// Appends that the key is destroyed, unless the chain says so already.
async fn say(
    chain: &mut Chain<Seen>,
    key: Digest,
    (by, reason): (&Principal, &str),
    now: UnixMs,
) -> Result<u64, RunError> {
    let written = chain
        .write(|draft| {
            if let Some((_, seq)) = draft.view().erased.filter(|(what, _)| *what == key) {
                return Ok(seq);
            }
            let body = Erased { reason: reason.to_owned(), what: key };
            let by = Author::Principal(by.clone());
            let now = now.max(draft.state().at());
            draft.push(now, by, Body::Erased(Box::new(body)))?;
            Ok::<_, RunError>(draft.state().head().map_or(0, |head| head.seq))
        })
        .await?;
    Ok(written.made)
}

/// A trajectory and everything below it, children and branches, as far as it holds sensitive values.
async fn members(
    store: &Arc<dyn Store>,
    below: &Below,
    trajectory: TrajectoryId,
) -> Result<BTreeMap<TrajectoryId, Chain<Seen>>, RunError> {
    let mut found = BTreeMap::new();
    let mut next = vec![trajectory];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(member) = next.pop() {
        // A child that was never begun has no chain.
        if !seen.insert(member) || store.trajectory(member).await?.is_none() {
            continue;
        }
        let chain = Chain::<Seen>::follow(Arc::clone(store), member).await?;
        next.extend(&chain.view().children);
        next.extend(below.get(&member).into_iter().flatten());
        if chain.view().sensitive {
            found.insert(member, chain);
        }
    }
    Ok(found)
}

/// The trajectories of a store by what they are a child or a branch of. Branches are found nowhere else.
async fn below(store: &Arc<dyn Store>) -> Result<Below, RunError> {
    let mut below = Below::new();
    let mut listing = Listing::default();
    loop {
        let page = store.list(&listing, PAGE).await?;
        for row in &page {
            if let Some(above) = above(store, row.trajectory).await? {
                below.entry(above).or_default().push(row.trajectory);
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => listing.after = Some(last.trajectory),
            _ => return Ok(below),
        }
    }
}
