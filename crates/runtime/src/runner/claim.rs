//! Taking a trajectory: whether this worker has what it needs, and the entry that makes it the owner.

use std::sync::Arc;

use gesta_core::body::{Attempt, Restored};
use gesta_core::document::Environment;
use gesta_core::entry::{Author, Body};
use gesta_core::ids::ToolName;
use gesta_store::{Chain, Draft};

use crate::cut;
use crate::desk::{Event, Shared};
use crate::error::RunError;
use crate::facts::Facts;
use crate::restored;

/// A tool that some step or undo still needs and that this worker does not have. Another may have it.
pub(crate) fn lacking(shared: &Shared, chain: &Chain<Facts>) -> Option<ToolName> {
    #[cfg(feature = "sabotage")]
    if shared.options.sabotage == Some(crate::Sabotage::IgnoreTools) {
        return None;
    }
    let (state, facts) = (chain.state(), chain.view());
    let missing = |tool: &ToolName| shared.catalogue.get(tool).is_none();
    let undo = match state.to_undo() {
        Some(undo) => facts.undo_spec(&undo.step),
        None if state.wants_rollback(facts.compensates_failure()) => {
            let undos = facts.undoable().filter_map(|undoable| facts.undo_spec(&undoable.step));
            undos.into_iter().find(|undo| missing(&undo.tool))
        }
        None => None,
    };
    if let Some(undo) = undo.filter(|undo| missing(&undo.tool)) {
        return Some(undo.tool);
    }
    facts.plan().find_map(|node| {
        if state.step(&node.id).is_some_and(|step| step.status.settled()) {
            return None;
        }
        let spec = facts.spec(&node.id)?.ok()?;
        let tool = &spec.call()?.tool;
        missing(tool).then(|| tool.clone())
    })
}

/// Appends the `attempt` that makes this worker the owner.
pub(super) async fn claim(
    shared: &Shared,
    chain: &mut Chain<Facts>,
    environment: Environment,
) -> Result<u64, RunError> {
    let restored = restored::mark(shared, chain).await?;
    cut::here("before_claim");
    let written = chain.write(|draft| add(shared, draft, environment, restored.as_ref())).await?;
    cut::here("after_claim");
    shared.acknowledged(written.entries.last());
    for entry in written.entries {
        shared.tell(|| Event::Entry(Arc::new(entry)));
    }
    Ok(written.made)
}

/// Adds the `attempt`, and says which it is.
pub(super) fn add(
    shared: &Shared,
    draft: &mut Draft<Facts>,
    environment: Environment,
    restored: Option<&Restored>,
) -> Result<u64, RunError> {
    let attempt = draft.state().attempt() + 1;
    let note = restored::note(restored, attempt);
    let by = Author::Worker { attempt, worker: shared.worker.clone() };
    let now = shared.pulse.now().max(draft.state().at());
    let died = draft.state().owner().and_then(|owner| shared.died(owner));
    let died = died.map(|died| died.min(now));
    let body = Attempt { died, environment, note, restored: restored.cloned() };
    draft.push(now, by, Body::Attempt(Box::new(body)))?;
    Ok(attempt)
}
