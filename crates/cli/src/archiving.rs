//! Which trajectories may be archived, and why others are left. What is open needs what it rests on at
//! hand, so nothing that an open trajectory is tied to leaves the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::TrajectoryKind;
use gesta_core::time::UnixMs;
use gesta_core::verification::{blobs, links};
use gesta_store::{Store, StoreError, TrajectoryRow};

use crate::chains;

/// How many rows are read at a time.
const PAGE: usize = 512;

/// What is asked for.
pub(crate) struct Wish {
    /// These; all that have ended, if none is named.
    pub(crate) named: Vec<TrajectoryId>,
    /// Only what has ended before.
    pub(crate) before: Option<UnixMs>,
    /// Whether entries must be sealed first.
    pub(crate) sealed: bool,
}

/// A trajectory that may go.
pub(crate) struct Pick {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) head: Head,
    /// The blobs that it names.
    pub(crate) names: BTreeSet<Digest>,
    /// Those of them that may go with it: nothing that stays names them, and nothing that goes later.
    pub(crate) blobs: Vec<Digest>,
}

/// One that stays.
pub(crate) struct Left {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) why: String,
    /// Whether there is nothing to be done: it is archived already.
    pub(crate) done: bool,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Chosen {
    pub(crate) picked: Vec<Pick>,
    pub(crate) left: Vec<Left>,
}

/// Looks at every trajectory that is meant.
pub(crate) async fn choose(store: &Arc<dyn Store>, wish: &Wish) -> Result<Chosen> {
    let rows = chains::all(store).await?;
    let rows: BTreeMap<_, _> = rows.into_iter().map(|row| (row.trajectory, row)).collect();
    let unsealed = if wish.sealed { unsealed(store).await? } else { BTreeMap::new() };
    let mut search = Search { store, rows: &rows, looked: BTreeMap::new(), tied: BTreeMap::new() };
    search.tie().await?;
    let mut chosen = Chosen::default();
    for row in rows.values().filter(|row| meant(row, wish)) {
        let why = match search.against(row, wish, &unsealed).await? {
            None => {
                let names = search.look(row.trajectory).await?.blobs.clone();
                let (trajectory, head) = (row.trajectory, row.head);
                chosen.picked.push(Pick { trajectory, head, names, blobs: Vec::new() });
                continue;
            }
            Some(why) => why,
        };
        let done = row.archived.is_some();
        chosen.left.push(Left { trajectory: row.trajectory, why, done });
    }
    search.share_blobs(&mut chosen.picked).await?;
    Ok(chosen)
}

/// Whether anything is to be said of a trajectory: it is named, or it is old enough and here.
fn meant(row: &TrajectoryRow, wish: &Wish) -> bool {
    if !wish.named.is_empty() {
        return wish.named.contains(&row.trajectory);
    }
    let old = wish.before.is_none_or(|before| row.summary.changed_at < before);
    old && row.archived.is_none() && row.summary.kind != TrajectoryKind::Registry
}

/// From which entry on trajectories are not sealed.
async fn unsealed(store: &Arc<dyn Store>) -> Result<BTreeMap<TrajectoryId, u64>> {
    let (mut found, mut after) = (BTreeMap::new(), None);
    loop {
        let page = store.log().unsealed(after, PAGE).await?;
        after = page.last().map(|row| row.trajectory);
        found.extend(page.iter().map(|row| (row.trajectory, row.from)));
        if page.len() < PAGE {
            return Ok(found);
        }
    }
}

/// What matters of a chain.
#[derive(Default)]
struct Looked {
    /// Parents, children, sources: whatever it names.
    ties: BTreeSet<TrajectoryId>,
    /// What it branched from.
    source: Option<TrajectoryId>,
    blobs: BTreeSet<Digest>,
}

struct Search<'a> {
    store: &'a Arc<dyn Store>,
    rows: &'a BTreeMap<TrajectoryId, TrajectoryRow>,
    looked: BTreeMap<TrajectoryId, Looked>,
    /// What open trajectories are tied to, and one of those.
    tied: BTreeMap<TrajectoryId, TrajectoryId>,
}

impl Search<'_> {
    /// Reads a trajectory, once.
    async fn look(&mut self, trajectory: TrajectoryId) -> Result<&Looked> {
        if !self.looked.contains_key(&trajectory) {
            let mut looked = Looked::default();
            chains::walk(self.store, &[trajectory], false, |visited| {
                let Some(entry) = visited.entry else { return Ok(()) };
                let body = &entry.payload().body;
                looked.ties.extend(links(body).iter().map(|link| link.trajectory));
                match body {
                    Body::Branch(branch) => looked.source = Some(branch.source),
                    Body::Delegation(delegation) => {
                        looked.ties.insert(delegation.child);
                    }
                    _ => {}
                }
                looked.blobs.extend(blobs(body).iter().map(|blob| blob.sha256));
                Ok(())
            })
            .await?;
            looked.ties.remove(&trajectory);
            self.looked.insert(trajectory, looked);
        }
        Ok(self.looked.entry(trajectory).or_default())
    }

    fn is_open(&self, trajectory: TrajectoryId) -> bool {
        let row = self.rows.get(&trajectory).map(|row| &row.summary);
        row.is_some_and(|row| row.kind != TrajectoryKind::Registry && !row.status.ended())
    }

    /// Finds what open trajectories name, and everything that open branches descend from.
    async fn tie(&mut self) -> Result<()> {
        let rows = self.rows;
        for open in rows.keys().copied().filter(|id| self.is_open(*id)).collect::<Vec<_>>() {
            let looked = self.look(open).await?;
            let (ties, mut above) = (looked.ties.clone(), looked.source);
            self.tied.extend(ties.into_iter().map(|tied| (tied, open)));
            while let Some(source) = above.filter(|source| rows.contains_key(source)) {
                self.tied.insert(source, open);
                above = self.look(source).await?.source;
            }
        }
        Ok(())
    }

    /// Why a trajectory stays, if it does.
    async fn against(
        &mut self,
        row: &TrajectoryRow,
        wish: &Wish,
        unsealed: &BTreeMap<TrajectoryId, u64>,
    ) -> Result<Option<String>> {
        let (id, summary) = (row.trajectory, &row.summary);
        if summary.kind == TrajectoryKind::Registry {
            return Ok(Some("it is the registry, which everything else is decided under".into()));
        }
        if let Some(archived) = &row.archived {
            return Ok(Some(format!("it is archived already, in `{}`", archived.bundle)));
        }
        if !summary.status.ended() {
            return Ok(Some(format!("it has not ended: it is {}", summary.status)));
        }
        if wish.before.is_some_and(|before| summary.changed_at >= before) {
            return Ok(Some("it has changed since then".into()));
        }
        if let Some(open) = self.tied.get(&id) {
            return Ok(Some(format!("{open} is tied to it, and has not ended")));
        }
        if !self.store.effects(id).await?.is_empty() {
            return Ok(Some("a report about it waits in the effects inbox".into()));
        }
        if let Some(from) = unsealed.get(&id) {
            return Ok(Some(format!(
                "it is not sealed from entry {from} on; `gesta seal` seals it"
            )));
        }
        self.around(id).await
    }

    /// Looks at everything that a trajectory is tied to, however far. Only what is tied at once must have
    /// ended; all of it goes into the bundle, and so it must be at hand.
    async fn around(&mut self, trajectory: TrajectoryId) -> Result<Option<String>> {
        let (mut next, mut seen) = (vec![trajectory], BTreeSet::new());
        while let Some(id) = next.pop() {
            let known =
                self.rows.get(&id).is_some_and(|row| row.summary.kind != TrajectoryKind::Registry);
            if !known || !seen.insert(id) {
                continue;
            }
            let looked = match self.look(id).await {
                Ok(looked) => looked.ties.clone(),
                Err(error) => match error.downcast_ref::<StoreError>() {
                    Some(StoreError::Archived { .. }) if id != trajectory => {
                        return Ok(Some(format!("it rests on another: {error}")));
                    }
                    _ => return Err(error),
                },
            };
            if id == trajectory
                && let Some(open) = looked.iter().copied().find(|tied| self.is_open(*tied))
            {
                return Ok(Some(format!("it is tied to {open}, which has not ended")));
            }
            next.extend(looked);
        }
        Ok(None)
    }

    /// Says which blobs go with which of the trajectories that go, in their order: with the last that names
    /// them, if nothing that stays does. That is known only once everything that stays was read.
    async fn share_blobs(&mut self, picked: &mut [Pick]) -> Result<()> {
        let mut free: BTreeSet<Digest> =
            picked.iter().flat_map(|one| &one.names).copied().collect();
        if free.is_empty() {
            return Ok(());
        }
        let going: BTreeSet<TrajectoryId> = picked.iter().map(|one| one.trajectory).collect();
        for row in self.rows.values().filter(|row| row.archived.is_none()) {
            if !going.contains(&row.trajectory) {
                free = &free - &self.look(row.trajectory).await?.blobs;
            }
        }
        for one in picked.iter_mut().rev() {
            one.blobs = one.names.intersection(&free).copied().collect();
            free = &free - &one.names;
        }
        Ok(())
    }
}
