//! Waits: for a signal, for a time, or for whichever comes first.

use gesta_core::body::{Origin, Timer, Waiting};
use gesta_core::content::Content;
use gesta_core::entry::Body;
use gesta_core::ids::{SignalKey, StepId};
use gesta_core::json::Canon;
use gesta_core::state::Status;
use gesta_core::time::UnixMs;
use gesta_store::Draft;

use super::{Made, Turn, expression};
use crate::desk::failing;
use crate::error::RunError;
use crate::facts::Facts;
use crate::job::Work;

impl Turn<'_> {
    pub(super) fn fire(&self, draft: &mut Draft<Facts>, step: &StepId) -> Result<(), RunError> {
        if let Some(Status::Waiting { entry, .. }) = draft.state().step(step).map(|s| &s.status) {
            let body = Timer { step: step.clone(), waiting: *entry };
            draft.push(self.now, self.desk.author(), Body::Timer(Box::new(body)))?;
        }
        Ok(())
    }

    /// A wait is over: its result is what the signal carried, or null when its time has come.
    pub(super) fn woken(&self, draft: &mut Draft<Facts>, step: &StepId) -> Result<(), RunError> {
        let Some(by) = draft.state().woken_by(step) else { return Ok(()) };
        let carried = draft.view().signal(&by).cloned();
        let content = carried.unwrap_or_else(|| Content::Inline(Canon::null()));
        self.commit(draft, step, Origin::Woken { by }, content)
    }

    pub(super) fn wait(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        work: &Work,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let Work::Wait { signal, until, for_ms } = work else { return Ok(()) };
        let now = self.now.max(draft.state().at());
        let read = self.evaluate(draft, step, None, made, |scope| {
            let signal = signal.as_ref().map(|signal| signal.resolve(scope)).transpose()?;
            let until = until.as_ref().map(|until| until.resolve(scope)).transpose()?;
            Ok((signal, until))
        });
        let (signal, until) = match read {
            None => return Ok(()),
            Some(Err(error)) => return self.fail(draft, step, expression(&error)),
            Some(Ok(read)) => read,
        };
        let key = match signal.map(|signal| signal.read::<SignalKey>()).transpose() {
            Ok(key) => key,
            Err(error) => {
                let error = failing("signal_key", &format!("not the key of a signal: {error}"));
                return self.fail(draft, step, error);
            }
        };
        let until = match until.map(|until| until.read::<UnixMs>()).transpose() {
            Ok(until) => until.or_else(|| for_ms.map(|for_ms| now.plus(for_ms))),
            Err(error) => {
                let error = failing("wait_until", &format!("not a time in milliseconds: {error}"));
                return self.fail(draft, step, error);
            }
        };
        let body = Waiting { key, step: step.clone(), until };
        draft.push(self.now, self.desk.author(), Body::Waiting(Box::new(body)))?;
        Ok(())
    }
}
