//! What a runner reads from the inbox of effects, and what it puts there when its trajectory is, or may
//! be, another worker's.

use gesta_core::signed::Signed;

use super::{Back, Left, Runner};
use crate::desk::Event;
use crate::effects;
use crate::error::RunError;
use crate::pipeline::Ended;

impl Runner {
    /// Reads what executors have reported about this trajectory, leaving out what no executor signed.
    pub(super) async fn read_inbox(&mut self) -> Result<(), RunError> {
        let shared = &self.desk.shared;
        let registry = shared.registry();
        let reports = shared.store.effects(self.desk.trajectory).await?;
        self.read = reports.iter().map(Signed::digest).collect();
        self.reports = reports
            .into_iter()
            .filter(|report| effects::trusted(report, registry.as_deref()))
            .collect();
        Ok(())
    }

    /// The trajectory is, or may be, another worker's. What may be abandoned is; the rest runs to its
    /// deadline and is reported.
    pub(super) async fn lose(mut self) -> Result<Left, RunError> {
        tracing::warn!(trajectory = %self.desk.trajectory, attempt = self.desk.attempt, "lost");
        for ended in std::mem::take(&mut self.ended) {
            self.hand_in(&ended).await;
        }
        while !self.running.values().all(|running| running.may_abandon) {
            match self.tasks.join_next().await {
                Some(Ok(Back::Ended(ended))) => {
                    self.running.remove(&ended.started);
                    self.desk.shared.freed.notify_waiters();
                    self.hand_in(&ended).await;
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(Left::Lost)
    }

    async fn hand_in(&self, ended: &Ended) {
        if let Some(distrust) = self.desk.shared.disowned() {
            // Nobody would believe a report either.
            let (trajectory, step) = (self.desk.trajectory, &ended.step);
            let note = format!(
                "{trajectory}: what step `{step}` came to is not recorded: {distrust}; a worker with another key finds it open and recovers it as its tool declares"
            );
            tracing::error!("{note}");
            self.desk.shared.tell(|| Event::Note(note));
            return;
        }
        match self.desk.report(ended, self.chain.state()) {
            Ok(Some(report)) => effects::deliver(&self.desk, &report).await,
            Ok(None) => {}
            Err(error) => {
                tracing::error!(trajectory = %self.desk.trajectory, %error, "a result cannot be signed");
            }
        }
    }
}
