//! Where a branch may begin: the commits of a trajectory, and what became of them since.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::body::End;
use gesta_core::digest::EntryId;
use gesta_core::document::ResolutionVerdict;
use gesta_core::entry::{Body, Entry, Head};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_store::{Store, StoreError};

use crate::error::RunError;

/// How many entries are read at a time.
const PAGE: usize = 512;
/// How many commits are offered instead of what is none.
const OFFERED: usize = 5;

/// How the commit is named that a branch begins at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// By its number.
    Seq(u64),
    /// By its id.
    Entry(EntryId),
    /// By the step that it commits.
    Step(StepId),
}

/// A commit.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) head: Head,
    pub(super) step: StepId,
}

/// A trajectory's commits, and those that were undone in it or above it.
pub(super) struct Surveyed {
    trajectory: TrajectoryId,
    pub(super) head: Head,
    spots: Vec<Spot>,
    /// What it has inherited, with where each is.
    inherited: Vec<(TrajectoryId, Spot)>,
    /// The commits that are undone or being undone, with the entry that began it.
    undone: BTreeMap<EntryId, (TrajectoryId, u64)>,
}

/// Reads a trajectory and those above it.
pub(super) async fn survey(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
) -> Result<Surveyed, RunError> {
    let (mut inherited, mut undone) = (Vec::new(), BTreeMap::new());
    let mut own = read(store, trajectory, &mut undone).await?;
    let mut source = own.source.take();
    while let Some((above, commit)) = source {
        let mut read = read(store, above, &mut undone).await?;
        let upto = read.spots.iter().position(|spot| spot.head.id == commit);
        let taken = upto.map_or(0, |at| at + 1);
        inherited.extend(read.spots.into_iter().take(taken).map(|spot| (above, spot)));
        source = read.source.take();
    }
    let Read { head, spots, .. } = own;
    let head = head.ok_or(StoreError::NoTrajectory(trajectory))?;
    Ok(Surveyed { trajectory, head, spots, inherited, undone })
}

/// What reading one trajectory yields.
#[derive(Default)]
struct Read {
    head: Option<Head>,
    spots: Vec<Spot>,
    source: Option<(TrajectoryId, EntryId)>,
}

async fn read(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    undone: &mut BTreeMap<EntryId, (TrajectoryId, u64)>,
) -> Result<Read, RunError> {
    let mut read = Read::default();
    loop {
        let from = read.head.map_or(0, |head| head.seq + 1);
        let page = store.entries(trajectory, from, PAGE).await?;
        for stored in &page {
            let entry = Entry::from_bytes(&stored.bytes).map_err(|why| {
                let what = format!("entry {} of {trajectory}: {why}", stored.seq);
                StoreError::Damaged { what }
            })?;
            let head = entry.head();
            read.head = Some(head);
            let done = match &entry.payload().body {
                Body::Branch(branch) => {
                    read.source = Some((branch.source, branch.source_commit));
                    None
                }
                Body::Started(started) => {
                    if let Some(commit) = started.compensates {
                        undone.entry(commit).or_insert((trajectory, head.seq));
                    }
                    None
                }
                Body::Commit(commit) => Some(&commit.step),
                Body::Resolution(resolution) => {
                    let verdict = &resolution.statement.doc().verdict;
                    matches!(verdict, ResolutionVerdict::Happened(_)).then_some(&resolution.step)
                }
                Body::DelegationResult(result) if result.end == End::Completed => {
                    Some(&result.step)
                }
                _ => None,
            };
            read.spots.extend(done.map(|step| Spot { head, step: step.clone() }));
        }
        if page.len() < PAGE {
            return Ok(read);
        }
    }
}

impl Surveyed {
    /// The commit that is meant.
    pub(super) fn spot(&self, at: &At) -> Result<&Spot, RunError> {
        let meant = |spot: &&Spot| match at {
            At::Seq(seq) => spot.head.seq == *seq,
            At::Entry(id) => spot.head.id == *id,
            At::Step(step) => spot.step == *step,
        };
        self.spots.iter().rev().find(meant).ok_or_else(|| self.none(at))
    }

    fn none(&self, at: &At) -> RunError {
        let Self { trajectory, head, .. } = self;
        let above = self.inherited.iter().find(|(_, spot)| match at {
            At::Seq(_) => false,
            At::Entry(id) => spot.head.id == *id,
            At::Step(step) => spot.step == *step,
        });
        let what = match (at, above) {
            (_, Some((source, Spot { head, step }))) => format!(
                "`{step}` was committed by entry {} of {source}, from which {trajectory} branched: branch from there",
                head.seq
            ),
            (At::Seq(seq), _) if *seq <= head.seq => {
                format!("entry {seq} of {trajectory} is not a commit")
            }
            (At::Seq(seq), _) => format!("{trajectory} has no entry {seq}"),
            (At::Entry(id), _) => format!("{trajectory} has no commit `{id}`"),
            (At::Step(step), _) => format!("{trajectory} has no commit of step `{step}`"),
        };
        RunError::NoPoint { what, nearest: self.nearest(at) }
    }

    /// Commits to choose from: those around a number, else the newest.
    fn nearest(&self, at: &At) -> String {
        let mut near: Vec<&Spot> = self.spots.iter().collect();
        near.sort_by_key(|spot| match at {
            At::Seq(seq) => spot.head.seq.abs_diff(*seq),
            At::Entry(_) | At::Step(_) => self.head.seq - spot.head.seq,
        });
        near.truncate(OFFERED);
        near.sort_by_key(|spot| spot.head.seq);
        if near.is_empty() {
            return format!(", and {} has none yet", self.trajectory);
        }
        let near = near.iter().map(|Spot { head, step }| format!("{} (`{step}`)", head.seq));
        format!("; the nearest are {}", near.collect::<Vec<_>>().join(", "))
    }

    /// Refuses a point at which something counts as done that has been undone since.
    pub(super) fn refuse_undone(&self, at: &Spot) -> Result<(), RunError> {
        let own = self.spots.iter().filter(|spot| spot.head.seq <= at.head.seq);
        for Spot { head, step } in own.chain(self.inherited.iter().map(|(_, spot)| spot)) {
            if let Some((trajectory, seq)) = self.undone.get(&head.id) {
                let (step, trajectory, seq) = (step.clone(), *trajectory, *seq);
                return Err(RunError::Undone { step, trajectory, seq });
            }
        }
        Ok(())
    }
}
