//! Whether what others left in a chain was signed by those who may sign it. That entries follow from each
//! other is the state machine's business, and whoever can write to the store can see to it without any
//! key: a forged `started` would freeze arguments of the forger's choice, which a worker would then send
//! for it, and a forged resolution would have an effect repeated.
//!
//! Writs and approvals are not asked about here: they are whenever something is decided.

use gesta_core::entry::{Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::state::State;
use gesta_core::trust::Distrust;
use gesta_core::verification::{Class, Needs, SignedRef, distrust_code, signed};
use gesta_store::{Chain, read_entry};

use crate::desk::Shared;
use crate::error::RunError;
use crate::facts::Facts;

/// How many entries are read at a time.
const PAGE: usize = 256;

/// Checks what was signed in a trajectory that somebody has driven before, and in what it took over from
/// those that it branches from. What comes before `from` was checked before.
pub(crate) async fn check(
    shared: &Shared,
    chain: &Chain<Facts>,
    from: u64,
) -> Result<(), RunError> {
    let (state, facts) = (chain.state(), chain.view());
    if from == 0
        && let Some(descent) = facts.descent()
    {
        for point in &descent.points {
            check_part(shared, point.trajectory, 0, point.seq).await?;
        }
    }
    match state.head() {
        Some(head) if state.attempt() > 0 => {
            check_part(shared, state.trajectory(), from, head.seq).await
        }
        _ => Ok(()),
    }
}

/// Checks the entries of a trajectory from one number to another.
async fn check_part(
    shared: &Shared,
    trajectory: TrajectoryId,
    mut from: u64,
    to: u64,
) -> Result<(), RunError> {
    let registry = shared.registry();
    while from <= to {
        let page = shared.store.entries(trajectory, from, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.seq + 1;
        for stored in page.iter().filter(|stored| stored.seq <= to) {
            genuine(&read_entry(trajectory, stored)?, registry.as_deref())?;
        }
        // Others who share this thread have their turn too.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Whether the documents of an entry that a worker relies on are by whom they have to be.
fn genuine(entry: &Entry, registry: Option<&State>) -> Result<(), RunError> {
    let payload = entry.payload();
    if !relied_on(&payload.body) {
        return Ok(());
    }
    let refuse = |class, code, why: String| RunError::Forged {
        trajectory: payload.trajectory,
        seq: payload.seq,
        class,
        code,
        why,
    };
    for document in signed(&payload.body) {
        let SignedRef { type_, key, needs, .. } = document;
        if !document.genuine() {
            let why = format!("the signature on its `{type_}` is not by key `{key}`");
            return Err(refuse(Class::Tampered, "signature", why));
        }
        let (Needs::Role(roles), Some(registry)) = (needs, registry) else { continue };
        // A key that was revoked later signed this before, as far as the chain says.
        let keys = registry.registry().keys();
        let known = keys.check_seen(key, roles, None, payload.at, Some(payload.at));
        known.map_err(|distrust: Distrust| {
            refuse(Class::Untrusted, distrust_code(&distrust), format!("its `{type_}`: {distrust}"))
        })?;
    }
    Ok(())
}

fn relied_on(body: &Body) -> bool {
    matches!(
        body,
        Body::Started(_)
            | Body::Commit(_)
            | Body::Failure(_)
            | Body::Rejection(_)
            | Body::PendingApproval(_)
            | Body::Resolution(_)
            | Body::LateEffect(_)
    )
}
