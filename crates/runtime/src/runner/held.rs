//! Trajectories in which a step is held, by a freeze, a quarantine or a tool that has changed: whether there is anything
//! to do is found out before the `attempt` that would make this worker the owner. A chain in which nothing changes does
//! not grow.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_store::{Chain, Draft};
use tokio::sync::{Notify, watch};

use super::{Runner, claim};
use crate::desk::{Desk, Shared};
use crate::error::RunError;
use crate::facts::Facts;
use crate::restored;
use crate::turn::Turn;
use crate::vault::Safe;

/// How often what a turn lacks is fetched before an attempt is made all the same.
const FETCHES_MOST: usize = 8;

/// Whether an attempt could add nothing but itself; and the chain again.
pub(super) async fn look(
    shared: &Arc<Shared>,
    chain: Chain<Facts>,
    (lease, vouched): (u64, u64),
    safe: &Option<Arc<Safe>>,
) -> Result<(bool, Chain<Facts>), RunError> {
    let attempt = chain.state().attempt() + 1;
    let mandate = chain.view().mandate().ok_or(RunError::NotBegun)?;
    let claimed = (lease, attempt, shared.in_force());
    let desk = Desk::new(Arc::clone(shared), claimed, chain.state(), mandate);
    safe.iter().cloned().for_each(|safe| desk.take_safe(safe));
    let (_going_on, stop) = watch::channel(false);
    let unheard = (vouched, Arc::new(Notify::new()));
    let mut runner = Runner::new(Arc::new(desk), chain, stop, unheard);
    let held = runner.finds_nothing().await?;
    if held {
        let trajectory = runner.desk.trajectory;
        tracing::debug!(%trajectory, "a step is held, and nothing else is to be done");
    }
    Ok((held, runner.chain))
}

impl Runner {
    /// Takes the turn that would follow the attempt, and appends none of it.
    async fn finds_nothing(&mut self) -> Result<bool, RunError> {
        let desk = Arc::clone(&self.desk);
        let shared = &desk.shared;
        if self.chain.state().owed().next().is_some() {
            return Ok(false);
        }
        let restored = restored::mark(shared, &self.chain).await?;
        self.read_inbox().await?;
        desk.lineage.look(self.chain.view(), &*shared.store).await?;
        let (running, probed) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..FETCHES_MOST {
            let mut draft = Draft::trial(self.chain.state(), self.chain.view().clone());
            let environment = desk.in_force.environment;
            claim::add(shared, &mut draft, environment, restored.as_ref())?;
            let head = draft.state().head();
            let turn = Turn {
                desk: &desk,
                now: shared.pulse.now(),
                ended: &[],
                answers: &[],
                reports: &self.reports,
                delivered: &[],
                running: &running,
                probed: &probed,
                findings: &self.findings,
                looking: &self.looking,
                may_open: true,
                may_rest: false,
                trial: true,
                recorded: None,
                blobs: &self.blobs,
                sealed: &self.sealed,
                lists: &self.lists,
            };
            let made = turn.build(&mut draft)?;
            if draft.state().head() != head {
                return Ok(false);
            }
            if !self.fetch(&made).await? {
                return Ok(made.is_nothing());
            }
        }
        Ok(false)
    }
}
