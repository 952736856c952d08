//! Putting the trajectories of a verified bundle into a store, byte for byte, through the state machine.
//!
//! Each trajectory is one append: a store never holds the first half of a job that has ended, which a
//! worker would take for one that it can go on with. Killed anywhere, the same import goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Result;
use gesta_core::digest::EntryId;
use gesta_core::entry::{Body, Entry, EntryError, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::TrajectoryKind;
use gesta_core::state::{AdmitError, State};
use gesta_core::verification::{Class, Finding};
use gesta_store::{Chain, ChainError, Store, Whole};
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::Chains as _;

use crate::problem::Problem;

/// How many entries are read at a time.
const PAGE: usize = 512;

const CHANGED: &str = "it is not what was verified a moment ago";

/// What is to be done about a trajectory of the bundle.
pub(crate) struct Planned {
    pub(crate) trajectory: TrajectoryId,
    /// What the store has of it.
    pub(crate) there: Option<Head>,
    /// How many entries are to be added.
    pub(crate) missing: u64,
    /// Whether it is archived, and comes back whole.
    pub(crate) archived: bool,
    source: Option<(TrajectoryId, EntryId)>,
    /// Whether somebody has something to do with it here.
    goes_on: bool,
}

/// Compares every trajectory of a bundle with the store. Nothing is written. Refused is what differs
/// from what is there, and, unless it is asked for, what has not ended: two stores would drive it.
pub(crate) async fn plan(
    store: &Arc<dyn Store>,
    bundle: &Bundle,
    open: bool,
) -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for trajectory in bundle.trajectories().map_err(|finding| unreadable(&finding))? {
        planned.push(compare(store, bundle, trajectory).await?);
    }
    for one in planned.iter_mut().filter(|one| one.missing > 0) {
        one.goes_on = may_go_on(&fold(bundle, one.trajectory)?);
    }
    let unended: Vec<TrajectoryId> =
        planned.iter().filter(|one| one.goes_on).map(|one| one.trajectory).collect();
    if let (Some(first), false) = (unended.first(), open) {
        let others = match unended.len() {
            1 => String::new(),
            many => format!(" and {} more", many - 1),
        };
        return Err(Problem::new(format!(
            "{first}{others} had not ended when the bundle was made; nothing was imported"
        ))
        .hint("workers of this store would go on with it, beside those of the store that it comes from; `--open` imports it all the same, for when that one is gone")
        .bad_input()
        .into());
    }
    Ok(sources_first(planned))
}

/// Whether somebody has something to do with it, now or later.
fn may_go_on(state: &State) -> bool {
    let summary = state.summary();
    summary.is_some_and(|row| row.kind != TrajectoryKind::Registry && !row.status.ended())
}

/// Adds what is missing of the blobs and the trajectories. Returns how many entries were added.
pub(crate) async fn carry_out(
    store: &Arc<dyn Store>,
    bundle: &Bundle,
    planned: &[Planned],
) -> Result<u64> {
    for digest in bundle.listed_blobs().unwrap_or_default() {
        let bytes = bundle.blob_bytes(digest).map_err(|finding| unreadable(&finding))?;
        if store.put_blob(&bytes).await?.sha256 != digest {
            return Err(changed(CHANGED).into());
        }
    }
    let mut added = 0;
    for one in planned.iter().filter(|one| one.missing > 0) {
        if one.archived {
            bring_back(store, bundle, one.trajectory).await?;
        } else {
            append(store, bundle, one).await?;
        }
        added += one.missing;
    }
    Ok(added)
}

/// Puts the entries of an archived trajectory back.
async fn bring_back(
    store: &Arc<dyn Store>,
    bundle: &Bundle,
    trajectory: TrajectoryId,
) -> Result<()> {
    let mut entries = Vec::new();
    read(bundle, trajectory, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    })?;
    let whole = Whole::of(trajectory, entries).ok_or_else(|| changed(CHANGED))?;
    match store.archives().bring_back(&whole).await? {
        true => Ok(()),
        false => Err(ChainError::Contended(trajectory).into()),
    }
}

/// Adds the rest of one trajectory.
async fn append(store: &Arc<dyn Store>, bundle: &Bundle, one: &Planned) -> Result<()> {
    let trajectory = one.trajectory;
    let from = one.there.map_or(0, |head| head.seq + 1);
    let mut rest = Vec::new();
    read(bundle, trajectory, |entry| {
        if entry.seq() >= from {
            rest.push(entry);
        }
        ControlFlow::Continue(())
    })?;
    if rest.last().map(Entry::head) != bundle.expected_head(trajectory) {
        return Err(changed(CHANGED).into());
    }
    let mut chain = match (one.there, one.source) {
        (Some(_), _) => Chain::load(Arc::clone(store), trajectory).await?,
        (None, Some(source)) => Chain::branching(Arc::clone(store), trajectory, source).await?,
        (None, None) => Chain::unbegun(Arc::clone(store), trajectory),
    };
    chain
        .append(|admission| {
            if admission.state().head() != one.there {
                return Err(ChainError::Contended(trajectory));
            }
            if !one.goes_on {
                admission.say_nothing();
            }
            for entry in &rest {
                let payload = entry.payload();
                let added = admission.push(payload.at, payload.by.clone(), payload.body.clone())?;
                if added.id() != entry.id() {
                    return Err(ChainError::Altered { trajectory, seq: entry.seq() });
                }
            }
            Ok(())
        })
        .await
        .map_err(|error| match error {
            ChainError::Admit(why) if matches!(*why, AdmitError::Uncarved(_)) => {
                altered(&why.to_string()).into()
            }
            other => anyhow::Error::from(other),
        })?;
    Ok(())
}

/// What the store has of a trajectory, which must be the beginning of what the bundle has, or the
/// other way round.
async fn compare(
    store: &Arc<dyn Store>,
    bundle: &Bundle,
    trajectory: TrajectoryId,
) -> Result<Planned> {
    let (mut ids, mut source) = (Vec::new(), None);
    read(bundle, trajectory, |entry| {
        if let Body::Branch(branch) = &entry.payload().body {
            source = Some((branch.source, branch.source_commit));
        }
        ids.push(entry.id());
        ControlFlow::Continue(())
    })?;
    let row = store.trajectory(trajectory).await?;
    let there = row.as_ref().map(|row| row.head);
    if row.is_some_and(|row| row.archived.is_some())
        && there == bundle.expected_head(trajectory)
        && ids.last().copied() == there.map(|head| head.id)
    {
        // The bundle that it was archived in, or another that has all of it: wherever the first one is.
        let missing = ids.len() as u64;
        return Ok(Planned { trajectory, there, missing, archived: true, source, goes_on: false });
    }
    let both = there.map_or(0, |head| head.seq + 1).min(ids.len() as u64);
    let mut seq = 0;
    while seq < both {
        let page = store.entries(trajectory, seq, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for stored in page.iter().filter(|stored| stored.seq < both) {
            let own = usize::try_from(stored.seq).ok().and_then(|at| ids.get(at));
            if own != Some(&stored.id) {
                let here = stored.id;
                return Err(Problem::new(format!(
                    "entry {} of {trajectory} is another one here (`{here}`) than in the bundle; nothing was imported",
                    stored.seq
                ))
                .hint("two stores have gone on with the same trajectory: one of them was restored, or forged")
                .class(Class::Tampered)
                .into());
            }
            seq = stored.seq + 1;
        }
    }
    let missing = (ids.len() as u64).saturating_sub(there.map_or(0, |head| head.seq + 1));
    Ok(Planned { trajectory, there, missing, archived: false, source, goes_on: false })
}

/// A branch is appended on top of its source, so its source comes first.
fn sources_first(planned: Vec<Planned>) -> Vec<Planned> {
    let source: BTreeMap<TrajectoryId, TrajectoryId> =
        planned.iter().filter_map(|one| Some((one.trajectory, one.source?.0))).collect();
    let depth = |one: &Planned| {
        // Whatever is missing was folded before: none of it descends from itself.
        let above = std::iter::successors(Some(one.trajectory), |id| source.get(id).copied());
        above.count()
    };
    let mut planned = planned;
    planned.sort_by_cached_key(|one| (depth(one), one.trajectory));
    planned
}

/// Folds a trajectory of the bundle, a branch on top of its source.
fn fold(bundle: &Bundle, trajectory: TrajectoryId) -> Result<State> {
    let mut state = None::<State>;
    for (above, until) in lineage(bundle, trajectory)?.into_iter().rev() {
        let mut next = match state.take() {
            Some(source) => source.branching(above),
            None => State::new(above),
        };
        let mut illegal = None;
        read(bundle, above, |entry| {
            illegal = next.apply(&entry).err();
            match illegal.is_some() || until == Some(entry.id()) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if let Some(why) = illegal {
            return Err(altered(&why.to_string()).into());
        }
        state = Some(next);
    }
    Ok(state.unwrap_or_else(|| State::new(trajectory)))
}

/// A trajectory and what it branches from, up to where nothing is above, each with the commit that the one
/// before it begins at. Nobody has to have verified the bundle: it may go round in circles.
fn lineage(
    bundle: &Bundle,
    trajectory: TrajectoryId,
) -> Result<Vec<(TrajectoryId, Option<EntryId>)>> {
    let mut lineage: Vec<(TrajectoryId, Option<EntryId>)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = Some((trajectory, None));
    while let Some((above, until)) = next.take() {
        if !seen.insert(above) {
            return Err(altered(&format!("{above} branches from itself")).into());
        }
        if bundle.expected_head(above).is_none() {
            let below = lineage.last().map_or(trajectory, |(below, _)| *below);
            return Err(Problem::new(format!("{below} branches from {above}, which is not here"))
                .class(Class::Incomplete)
                .into());
        }
        lineage.push((above, until));
        read(bundle, above, |entry| {
            if let Body::Branch(branch) = &entry.payload().body {
                next = Some((branch.source, Some(branch.source_commit)));
            }
            ControlFlow::Break(())
        })?;
    }
    Ok(lineage)
}

fn read(
    bundle: &Bundle,
    trajectory: TrajectoryId,
    mut each: impl FnMut(Entry) -> ControlFlow<()>,
) -> Result<()> {
    let mut damaged = None;
    bundle
        .entries(trajectory, &mut |bytes, _| match Entry::from_bytes(bytes) {
            Ok(entry) => each(entry),
            Err(why) => {
                damaged = Some(why);
                ControlFlow::Break(())
            }
        })
        .map_err(|finding| unreadable(&finding))?;
    match damaged {
        // Nobody has altered what a newer program wrote.
        Some(why @ EntryError::Version(_)) => {
            Err(Problem::new(why.to_string()).class(Class::Unreadable).into())
        }
        Some(why) => Err(altered(&why.to_string()).into()),
        None => Ok(()),
    }
}

fn altered(why: &str) -> Problem {
    Problem::new(format!("the bundle was altered: {why}"))
        .hint("`gesta-verify FILE --trust TRUST` gives a full report")
        .class(Class::Tampered)
}

/// The file is another one than it was when it was verified.
fn changed(why: &str) -> Problem {
    Problem::new(format!("the bundle was changed while it was read: {why}")).class(Class::Tampered)
}

fn unreadable(finding: &Finding) -> anyhow::Error {
    let class = finding.class;
    Problem::new(finding.to_string()).class(class).into()
}
