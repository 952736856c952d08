//! What waits for approval, laid out from the chain for whoever is asked: exactly what would happen,
//! which policies ask, who has spoken.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::amounts::Amounts;
use gesta_core::digest::EntryId;
use gesta_core::document::{ApprovalVerdict, Decision, Reason};
use gesta_core::entry::Body;
use gesta_core::guardian::PolicyFound;
use gesta_core::ids::{Channel, Principal, StepId, Tenant, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::policy::{Channels, Deciding, heard};
use gesta_core::projection::ParkedOn;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_core::trust::{Keyring, Role};
use gesta_core::writ::Effect;
use gesta_runtime::tools::Catalogue;
use gesta_runtime::{Foreseen, channels, foreseen};
use gesta_store::{Chain, ParkedRow, Store};
use serde::Serialize;

use crate::chains;
use crate::deeds::job_name;
use crate::doubts::parked;
use crate::moment;

/// A call that waits for people.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Asked {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) job: Option<String>,
    pub(crate) step: StepId,
    /// Who wants it done,
    pub(crate) principal: Option<Principal>,
    /// and for whom.
    pub(crate) tenant: Option<Tenant>,
    pub(crate) tool: ToolName,
    /// What the tool does to the world, if the workspace has it.
    pub(crate) effect: Option<Effect>,
    pub(crate) args: Canon,
    /// What is set aside for the call, if the workspace has the tool.
    pub(crate) cost: Option<Amounts>,
    /// What it would change, as far as its arguments tell.
    pub(crate) changes: Vec<Foreseen>,
    pub(crate) reason: String,
    /// The policies that ask.
    pub(crate) policies: Vec<Deciding>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) quorum: u64,
    /// Whose approval counts so far, by the names that the registry has for their keys.
    pub(crate) approved: Vec<String>,
    pub(crate) asked_at: UnixMs,
    pub(crate) deadline: UnixMs,
    /// The entry that asks: what an approval is signed over.
    pub(crate) pending: EntryId,
    pub(crate) seq: u64,
}

/// Everything in a store, or in one job, that waits for approval.
pub(crate) async fn list(
    store: &Arc<dyn Store>,
    trajectory: Option<TrajectoryId>,
    (catalogue, registry): (Option<&Catalogue>, &State),
) -> Result<Vec<Asked>> {
    let mut asked = Vec::new();
    let keys = (registry.registry().keys(), &channels(&**store, registry).await?);
    for row in parked(store, ParkedOn::Approval, trajectory).await? {
        asked.extend(read(store, &row, (catalogue, keys)).await?);
    }
    Ok(asked)
}

async fn read(
    store: &Arc<dyn Store>,
    row: &ParkedRow,
    (catalogue, (keys, channels)): (Option<&Catalogue>, (&Keyring, &Channels)),
) -> Result<Option<Asked>> {
    let (trajectory, step) = (row.trajectory, &row.parked.step);
    let chain = Chain::load(Arc::clone(store), trajectory).await?;
    let state = chain.state();
    let writ = state.writ().map(|(_, writ)| writ);
    let (mut job, mut asked) = (None, None::<Asked>);
    chains::walk(store, &[trajectory], false, |visited| {
        let Some(entry) = visited.entry else { return Ok(()) };
        match &entry.payload().body {
            Body::Plan(plan) => job = plan.steps.iter().find_map(job_name),
            Body::PendingApproval(pending) if entry.id() == row.parked.entry => {
                let tool = catalogue.and_then(|tools| tools.get(&pending.proposal.tool));
                let manifest = tool.map(gesta_runtime::tools::Tool::manifest);
                let hands_on = pending.proposal.tool.delegates();
                let args = pending.proposal.args.clone();
                asked = Some(Asked {
                    trajectory,
                    job: None,
                    step: step.clone(),
                    principal: writ.map(|writ| writ.principal.clone()),
                    tenant: writ.map(|writ| writ.tenant.clone()),
                    tool: pending.proposal.tool.clone(),
                    effect: manifest.map(|manifest| manifest.effect).or(hands_on),
                    cost: manifest.map(|manifest| manifest.cost),
                    changes: manifest
                        .map(|manifest| foreseen(manifest, &args, state.world()))
                        .unwrap_or_default(),
                    args,
                    reason: pending.reason.clone(),
                    policies: asking(pending.decision.doc()),
                    channels: pending.channels.clone(),
                    quorum: pending.quorum,
                    approved: Vec::new(),
                    asked_at: entry.payload().at,
                    deadline: pending.deadline,
                    pending: entry.id(),
                    seq: entry.seq(),
                });
            }
            Body::Approval(approval) => {
                let said = approval.statement.doc();
                if let Some(asked) = asked.as_mut().filter(|asked| asked.pending == said.pending) {
                    let (roles, tenant, at) =
                        ([Role::Approver], state.tenant(), entry.payload().at);
                    let counts = approval.statement.verifies()
                        && keys.check(said.key, &roles, tenant, at).is_ok();
                    let name = keys.get(&said.key).filter(|_| counts).map(|key| key.name.clone());
                    let asks = || asked.channels.iter().map(Channel::as_str);
                    let name = name.filter(|name| heard(asks(), channels, name));
                    asked.approved.extend(name);
                }
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    Ok(asked.map(|asked| Asked { job, ..asked }))
}

/// The policies that do not let it happen unattended; where none forbids it, those that let it happen.
fn asking(decision: &Decision) -> Vec<Deciding> {
    let answer = PolicyFound::of(decision).and_then(|found| found.answer());
    answer.map_or_else(Vec::new, |answer| match answer.unattended.by.is_empty() {
        true => answer.call.by,
        false => answer.unattended.by,
    })
}

/// What became of a call that people were asked about and that was refused, in words; none if it was
/// refused for another reason.
pub(crate) async fn unapproved(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    decision: &Decision,
) -> Result<Option<String>> {
    #[derive(serde::Deserialize)]
    struct Found {
        pending: EntryId,
    }
    let words = match decision.reason {
        Some(Reason::ApprovalExpired) => "nobody approved it in time",
        Some(Reason::ApprovalDenied) => "an approver said no",
        _ => return Ok(None),
    };
    let found = decision.trace.last().and_then(|stage| stage.found.as_ref()?.read::<Found>().ok());
    let mut told = words.to_owned();
    let Some(Found { pending }) = found else { return Ok(Some(told)) };
    chains::walk(store, &[trajectory], false, |visited| {
        match visited.entry.map(|entry| (entry.id(), &entry.payload().body)) {
            Some((_, Body::Approval(approval))) => {
                let said = approval.statement.doc();
                if said.pending == pending && said.verdict == ApprovalVerdict::Deny {
                    let note = said.note.as_ref().map(|note| format!(": {note}"));
                    told = format!("`{}` said no{}", said.approver, note.unwrap_or_default());
                }
            }
            Some((id, Body::PendingApproval(asked)))
                if id == pending && decision.reason == Some(Reason::ApprovalExpired) =>
            {
                let (quorum, until) = (asked.quorum, moment::utc(asked.deadline));
                let of = asked.channels.iter().map(Channel::as_str).collect::<Vec<_>>().join(", ");
                told = format!("it took {quorum} of {of} until {until}, and not enough agreed");
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    Ok(Some(told))
}
