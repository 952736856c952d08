//! Driving a trajectory together with everything that it delegates, in one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gesta_core::entry::{Body, Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::ParkedOn;
use gesta_store::{Chain, Follow, ParkedListing, Store, StoreError, TrajectoryRow};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::RunError;
use crate::runner::{self, Left};
use crate::worker::{Worker, has_work};

/// How many children of one trajectory are looked at: more than it may have at work at once.
const CHILDREN_MOST: usize = 10_000;

/// A trajectory and everything below it that works for it now, the trajectory first.
pub async fn family(
    store: &Arc<dyn Store>,
    root: TrajectoryId,
) -> Result<Vec<TrajectoryRow>, StoreError> {
    let mut members: Vec<TrajectoryRow> = Vec::new();
    let mut next = vec![root];
    while let Some(trajectory) = next.pop() {
        // A child that has not begun yet is its parent's to begin.
        let Some(row) = store.trajectory(trajectory).await? else { continue };
        if members.iter().any(|member| member.trajectory == trajectory) {
            continue;
        }
        let listing = ParkedListing {
            on: Some(ParkedOn::Child),
            trajectory: Some(trajectory),
            ..ParkedListing::default()
        };
        let parked = store.parked(&listing, CHILDREN_MOST).await?;
        let child = |key: &String| key.parse::<TrajectoryId>().ok();
        next.extend(parked.iter().filter_map(|row| row.parked.key.as_ref().and_then(child)));
        members.push(row);
    }
    Ok(members)
}

/// Everything that a trajectory has ever handed out.
#[derive(Clone, Default)]
struct Children(Vec<TrajectoryId>);

impl Follow for Children {
    fn follow(&mut self, entry: &Entry) {
        if let Body::Delegation(delegation) = &entry.payload().body {
            self.0.push(delegation.child);
        }
    }
}

/// The children of a trajectory that nobody waits for and that still have something to do: one that died
/// before it could note that its parent has its result. Workers find it by themselves.
async fn left_over(
    store: &Arc<dyn Store>,
    root: TrajectoryId,
) -> Result<Vec<TrajectoryRow>, RunError> {
    let mut rows = Vec::new();
    let mut next = vec![root];
    while let Some(trajectory) = next.pop() {
        let chain = Chain::<Children>::follow(Arc::clone(store), trajectory).await?;
        for child in &chain.view().0 {
            if let Some(row) = store.trajectory(*child).await? {
                next.push(*child);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

type Driven = JoinSet<(TrajectoryId, Result<Left, RunError>)>;

impl Worker {
    /// Drives a trajectory and everything that it delegates until it has ended or none of it can go any
    /// further for the time being.
    pub async fn run_family(
        &self,
        root: TrajectoryId,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Left, RunError> {
        let poll = Duration::from_millis(self.shared.options.poll_ms);
        let mut driven = Driven::new();
        let mut held: BTreeSet<TrajectoryId> = BTreeSet::new();
        // Where each stood when it could go no further.
        let mut left_at: BTreeMap<TrajectoryId, Option<Head>> = BTreeMap::new();
        let mut of_root = Left::Parked;
        let mut others = left_over(&self.shared.store, root).await?;
        loop {
            if !*stop.borrow() {
                let members = family(&self.shared.store, root).await?;
                for row in members.into_iter().chain(std::mem::take(&mut others)) {
                    let id = row.trajectory;
                    let first = id == root && !left_at.contains_key(&root);
                    let moved = left_at.get(&id).is_none_or(|head| *head != Some(row.head));
                    let works = has_work(&row.summary, self.now()) && moved;
                    if held.contains(&id) {
                        continue;
                    }
                    let reported = self.shared.unread.for_owners().remove(&id);
                    if !(first || works || reported) {
                        continue;
                    }
                    left_at.insert(id, None);
                    if self.shared.store.claim_one(&self.shared.worker, id).await? {
                        held.insert(id);
                        let (shared, stop) = (Arc::clone(&self.shared), stop.clone());
                        driven.spawn(async move { (id, runner::drive(shared, id, stop).await) });
                    } else if id == root {
                        of_root = Left::Lost;
                    }
                }
            }
            tokio::select! {
                biased;
                done = driven.join_next() => match done {
                    None => return Ok(of_root),
                    Some(Ok((id, left))) => {
                        self.release(id).await;
                        held.remove(&id);
                        let left = left?;
                        if id == root {
                            of_root = left;
                        }
                        let row = self.shared.store.trajectory(id).await?;
                        left_at.insert(id, row.map(|row| row.head));
                    }
                    Some(Err(error)) => {
                        return Err(RunError::Died { trajectory: root, why: error.to_string() });
                    }
                },
                _ = stop.changed() => {}
                () = tokio::time::sleep(poll) => {}
            }
        }
    }
}
