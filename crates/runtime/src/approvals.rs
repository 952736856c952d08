//! People's word on what an agent wants done: signed over the very entry that asks, so that it fits
//! nothing else, and taken up by whoever drives the trajectory.

use std::sync::Arc;

use gesta_core::body::Approval;
use gesta_core::digest::EntryId;
use gesta_core::document::{ApprovalStatement, ApprovalVerdict};
use gesta_core::entry::{Author, Body, Entry};
use gesta_core::ids::{Principal, StepId, TrajectoryId};
use gesta_core::keys::{KeyId, PrivateKey};
use gesta_core::policy::heard;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{State, Status};
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_store::{Chain, ChainError, Store};

use crate::error::RunError;
use crate::in_force;

/// What an approver says.
#[derive(Clone, Debug)]
pub struct Word<'a> {
    /// The step that asks.
    pub step: &'a StepId,
    /// The `pending_approval` that the approver has seen.
    pub pending: EntryId,
    /// Yes or no.
    pub verdict: ApprovalVerdict,
    /// Until when a yes may be used.
    pub expires: UnixMs,
    /// Why, for whoever reads the record.
    pub note: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The `approval` entry.
    pub entry: Entry,
    /// How many more approvers it takes.
    pub missing: u64,
}

/// Records an approver's word. One whose key the registry does not trust to approve is turned away
/// here, and so is a yes of somebody who is not heard on the channels that are asked; were it recorded by
/// other means, no worker would count it. Whoever may approve may say no.
pub async fn speak(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    word: &Word<'_>,
    (registry, key): (&State, &PrivateKey),
    now: UnixMs,
) -> Result<Heard, RunError> {
    let mut chain = Chain::load(Arc::clone(store), trajectory).await?;
    let Word { step, pending, verdict, expires, note } = word;
    let tenant = chain.state().tenant().cloned();
    let keys = registry.registry().keys();
    let channels = &in_force::channels(&**store, registry).await?;
    keys.check(key.id(), &[Role::Approver], tenant.as_ref(), now)
        .map_err(|distrust| RunError::NoApprover(distrust.to_string()))?;
    let name = keys.get(&key.id()).map(|key| key.name.clone()).unwrap_or_default();
    let approver: Principal =
        name.parse().map_err(|_| RunError::NoApprover(format!("`{name}` is no principal")))?;
    let written = chain
        .write(|draft| {
            let asks = match draft.state().step(step).map(|step| &step.status) {
                Some(Status::Pending(asked)) => asked.clone(),
                _ => return Err(RunError::NothingAsked { trajectory, step: (*step).clone() }),
            };
            if asks.entry != *pending {
                return Err(RunError::AskedAnew { trajectory, step: (*step).clone() });
            }
            let now = now.max(draft.state().at());
            if asks.deadline < now {
                return Err(RunError::AskedInVain { trajectory, step: (*step).clone() });
            }
            let agrees = *verdict == ApprovalVerdict::Approve;
            if agrees && !heard(asks.channels.split(','), channels, &name) {
                let (name, asked) = (name.clone(), asks.channels.replace(',', ", "));
                return Err(RunError::NotAsked { name, asked });
            }
            // A quorum is of people: another key of somebody who has spoken adds nobody.
            let has_name = |key: &KeyId| keys.get(key).is_some_and(|known| known.name == name);
            if asks.approvers.iter().any(|other| *other == key.id() || agrees && has_name(other)) {
                return Err(RunError::SpokenTwice(name.clone()));
            }
            let statement = Signed::sign(
                ApprovalStatement {
                    approver: approver.clone(),
                    at: now,
                    expires: *expires,
                    key: key.id(),
                    note: note.clone(),
                    pending: *pending,
                    type_: Tag::default(),
                    verdict: *verdict,
                },
                key,
            )?;
            let body = Approval { statement, step: (*step).clone() };
            let by = Author::Principal(approver.clone());
            draft.push(now, by, Body::Approval(Box::new(body)))?;
            let spoken = asks.approvers.len() as u64 + 1;
            Ok(asks.quorum.saturating_sub(spoken))
        })
        .await?;
    let missing = if *verdict == ApprovalVerdict::Deny { 0 } else { written.made };
    let entry = written.entries.into_iter().next().ok_or(ChainError::Empty)?;
    Ok(Heard { entry, missing })
}
