//! Calls that are over without anyone knowing how: stopped with their job, or with a driver that died.

use gesta_core::body::Proposal;
use gesta_core::digest::EntryId;
use gesta_core::document::Certainty;

use super::{Runner, Running};
use crate::desk::failing;
use crate::job::{OnCancel, Spec};
use crate::pipeline::{Ended, How};

impl Runner {
    /// Whether the step's call is to be given up at once when the job is cancelled.
    pub(super) fn stops(&self, proposal: &Proposal) -> bool {
        if self.chain.view().undo(&proposal.step).is_some() {
            return false;
        }
        let spec = self.chain.view().spec(&proposal.step.node()).and_then(Result::ok);
        let call = spec.as_deref().and_then(Spec::call);
        call.is_some_and(|call| call.on_cancel == OnCancel::Stop)
    }

    /// Gives up what a cancelled job does not wait for.
    pub(super) fn stop_cancelled(&mut self) {
        if self.chain.view().cancelled().is_none() {
            return;
        }
        let stopping: Vec<EntryId> =
            self.running.iter().filter(|(_, call)| call.stops).map(|(id, _)| *id).collect();
        for started in stopping {
            if let Some(running) = self.running.remove(&started) {
                running.task.abort();
                self.give_up(started, running.proposal, "stopped", "the job was cancelled");
            }
        }
    }

    /// A driver panicked: what it did is unknown.
    pub(super) fn died(&mut self, task: tokio::task::Id) {
        self.probing.clear();
        self.looking.clear();
        let started = self.running.iter().find(|(_, running)| running.task.id() == task);
        let Some(started) = started.map(|(started, _)| *started) else { return };
        if let Some(Running { proposal, .. }) = self.running.remove(&started) {
            self.driver_died(started, proposal);
        }
    }

    pub(super) fn driver_died(&mut self, started: EntryId, proposal: Proposal) {
        self.give_up(started, proposal, "driver_died", "the tool's driver died in the call");
    }

    /// A call is over without anyone knowing how.
    fn give_up(&mut self, started: EntryId, proposal: Proposal, code: &str, why: &str) {
        let how = How::failed(Certainty::Unknown, failing(code, why));
        let (step, at) = (proposal.step.clone(), self.desk.shared.pulse.now());
        self.ended.push(Ended { step, started, proposal, at, how });
    }
}
