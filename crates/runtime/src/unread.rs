//! Reports in the inbox that no owner reads: their trajectory has ended, or waits for something else. A worker
//! that lost its trajectory takes up what it reports itself; what it could only spool is delivered from here once
//! the store is back, and that, or what one left that died before it was done, is taken up by whoever looks next. What
//! answers a call that is open is for an owner: the trajectory is claimed by name and driven.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::desk::Shared;
use crate::effects;
use crate::error::RunError;

/// How often to look for what was not heard of,
const LOOK: Duration = Duration::from_secs(1);
/// and how soon again at the earliest.
const APART: Duration = Duration::from_millis(100);
/// How many trajectories are asked for at once.
const PAGE: usize = 64;

/// What is known of reports that no owner reads.
#[derive(Default)]
pub(crate) struct Unread {
    /// There may be one.
    pub(crate) rung: Notify,
    /// What has one that only an owner takes up.
    for_owners: Mutex<BTreeSet<TrajectoryId>>,
}

impl Unread {
    /// What has a report that only an owner takes up.
    pub(crate) fn for_owners(&self) -> MutexGuard<'_, BTreeSet<TrajectoryId>> {
        self.for_owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports that are left where they are: no executor signed them, and that was told.
type Distrusted = BTreeSet<Digest>;

/// Looks at once, and from then on from time to time, for as long as the worker lives.
pub(crate) async fn begin(shared: &Arc<Shared>) -> JoinHandle<()> {
    let mut distrusted = Distrusted::new();
    Box::pin(look(shared, &mut distrusted)).await;
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(APART).await;
            let _whichever = tokio::time::timeout(LOOK, shared.unread.rung.notified()).await;
            look(&shared, &mut distrusted).await;
        }
    })
}

async fn look(shared: &Arc<Shared>, distrusted: &mut Distrusted) {
    effects::deliver_spooled(shared).await;
    if let Err(error) = take_up(shared, distrusted).await {
        tracing::warn!(%error, "the inbox cannot be read");
    }
}

/// Takes up every report that no owner reads.
async fn take_up(shared: &Arc<Shared>, distrusted: &mut Distrusted) -> Result<(), RunError> {
    if shared.may_sign().is_err() || shared.unfit.get().is_some() {
        return Ok(());
    }
    let mut after = None;
    loop {
        let page = shared.store.reported(after, PAGE).await?;
        for trajectory in &page {
            of_one(shared, *trajectory, distrusted).await?;
        }
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().copied();
    }
}

async fn of_one(
    shared: &Arc<Shared>,
    trajectory: TrajectoryId,
    distrusted: &mut Distrusted,
) -> Result<(), RunError> {
    let for_owner = shared.unread.for_owners().contains(&trajectory);
    if for_owner || shared.drivers().contains_key(&trajectory) {
        return Ok(());
    }
    let registry = shared.registry();
    for report in shared.store.effects(trajectory).await? {
        let digest = report.digest();
        if distrusted.contains(&digest) {
            continue;
        }
        if !effects::trusted(&report, registry.as_deref()) {
            distrusted.insert(digest);
            continue;
        }
        match effects::take_up_unread(shared, &report).await {
            Ok(true) => {}
            Ok(false) => {
                shared.unread.for_owners().insert(trajectory);
                shared.work.notify_one();
            }
            Err(error) => {
                tracing::warn!(%trajectory, step = %report.doc().step, %error, "a report stays in the inbox");
            }
        }
    }
    Ok(())
}
