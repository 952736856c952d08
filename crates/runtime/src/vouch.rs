//! Whether what others left in a chain was signed by those who may sign it. That entries follow from each
//! other is the state machine's business, and whoever can write to the store can see to it without any
//! key: a forged `started` would freeze arguments of the forger's choice, which a worker would then send
//! for it, and a forged resolution would have an effect repeated.
//!
//! A decision names the entry that it follows, and with it, by their digests, all before it; and nobody
//! here signs one before everything that it follows was checked. So a worker that takes over checks the
//! newest decision and what comes after it, however long the history is.
//!
//! Writs are not asked about here, nor whose consent counts: they are whenever something is decided. But
//! a denial ends the matter as it stands, so it has to be by somebody who may deny.

use gesta_core::document::ApprovalVerdict;
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
const PAGE: u64 = 64;

/// Checks a trajectory that somebody has driven before, and what it took over from those that it branches
/// from.
pub(crate) async fn check(shared: &Shared, chain: &Chain<Facts>) -> Result<(), RunError> {
    let (state, facts) = (chain.state(), chain.view());
    for point in facts.descent().iter().flat_map(|descent| &descent.points) {
        since_decided(shared, point.trajectory, point.seq).await?;
    }
    match state.head() {
        Some(head) if state.attempt() > 0 => {
            since_decided(shared, state.trajectory(), head.seq).await
        }
        _ => Ok(()),
    }
}

/// Checks what others have added, from one entry to another.
pub(crate) async fn added(
    shared: &Shared,
    trajectory: TrajectoryId,
    from: u64,
    to: u64,
) -> Result<(), RunError> {
    let registry = shared.registry();
    let mut end = to + 1;
    while end > from {
        let begin = end.saturating_sub(PAGE).max(from);
        for entry in page(shared, trajectory, begin, end).await? {
            genuine(&entry, registry.as_deref())?;
        }
        end = begin;
    }
    Ok(())
}

/// Checks the newest decision up to an entry, and what follows it.
async fn since_decided(shared: &Shared, trajectory: TrajectoryId, to: u64) -> Result<(), RunError> {
    let registry = shared.registry();
    let mut end = to + 1;
    while end > 0 {
        let begin = end.saturating_sub(PAGE);
        for entry in page(shared, trajectory, begin, end).await?.iter().rev() {
            genuine(entry, registry.as_deref())?;
            if decided(&entry.payload().body) {
                return Ok(());
            }
        }
        end = begin;
    }
    Ok(())
}

async fn page(
    shared: &Shared,
    trajectory: TrajectoryId,
    begin: u64,
    end: u64,
) -> Result<Vec<Entry>, RunError> {
    let most = usize::try_from(end - begin).unwrap_or(usize::MAX);
    let stored = shared.store.entries(trajectory, begin, most).await?;
    Ok(stored.iter().map(|stored| read_entry(trajectory, stored)).collect::<Result<_, _>>()?)
}

/// Whether an entry holds a decision, and so binds all before it.
fn decided(body: &Body) -> bool {
    matches!(
        body,
        Body::Started(_) | Body::Rejection(_) | Body::PendingApproval(_) | Body::Delegation(_)
    )
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
        if consents(&payload.body) {
            continue;
        }
        // A key that was revoked later signed this before, as far as the chain says.
        let keys = registry.registry().keys();
        let known = keys.check_seen(key, roles, None, payload.at, Some(payload.at));
        known.map_err(|distrust: Distrust| {
            refuse(Class::Untrusted, distrust_code(&distrust), format!("its `{type_}`: {distrust}"))
        })?;
    }
    Ok(())
}

/// Whether somebody agrees to something: a yes that does not count changes nothing.
fn consents(body: &Body) -> bool {
    matches!(body, Body::Approval(said) if said.statement.doc().verdict == ApprovalVerdict::Approve)
}

fn relied_on(body: &Body) -> bool {
    matches!(
        body,
        Body::Started(_)
            | Body::Commit(_)
            | Body::Failure(_)
            | Body::Rejection(_)
            | Body::PendingApproval(_)
            | Body::Approval(_)
            | Body::Delegation(_)
            | Body::Resolution(_)
            | Body::LateEffect(_)
    )
}
