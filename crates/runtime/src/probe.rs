//! Asking a read-only tool, by key, whether an effect in doubt has happened. What it answers is an
//! executor's finding, recorded with what was asked and answered as evidence.

use std::sync::Arc;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Proposal, external_key};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::document::{ResolutionVerdict, ResolvedBy, Settlement};
use gesta_core::ids::ToolName;
use gesta_core::json::Canon;
use gesta_core::state::Status;
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::Draft;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::desk::Desk;
use crate::effects;
use crate::error::RunError;
use crate::examine::recorded;
use crate::facts::Facts;
use crate::tools::{Call, Reply, Tool};

/// A doubt to look into.
pub(crate) struct Inquiry {
    pub(crate) doubt: EntryId,
    pub(crate) generation: u64,
    pub(crate) proposal: Proposal,
}

/// What looking into a doubt has brought.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) doubt: EntryId,
    pub(crate) proposal: Proposal,
    /// None when the probe could not tell.
    pub(crate) found: Option<Found>,
}

/// A probe's finding.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    happened: bool,
    value: Canon,
    observation: Content,
    evidence: Content,
}

/// What a probe is asked.
#[derive(Serialize)]
struct Question<'a> {
    args: &'a Canon,
    key: &'a str,
}

/// What a probe answers.
#[derive(Deserialize)]
struct Spoken {
    happened: bool,
    #[serde(default)]
    result: serde_json::Value,
}

#[derive(Serialize)]
struct Evidence<'a> {
    answer: &'a Canon,
    key: &'a str,
    probe: &'a ToolName,
}

/// Asks. Read-only, so it needs no permit; it does need to be known, read-only, within the writ and
/// not frozen.
pub(crate) async fn ask(desk: Arc<Desk>, inquiry: Inquiry) -> Answer {
    let Inquiry { doubt, generation, proposal } = inquiry;
    let found = match probe_of(&desk, &proposal) {
        Some(tool) => put(&desk, tool, &proposal, generation).await,
        None => None,
    };
    Answer { doubt, proposal, found }
}

fn probe_of<'a>(desk: &'a Desk, proposal: &Proposal) -> Option<&'a Tool> {
    let name = desk.shared.catalogue.get(&proposal.tool)?.manifest().probe.clone()?;
    let tool = desk.shared.catalogue.get(&name)?;
    let registry = desk.shared.registry();
    let writ_allows =
        desk.state_at_claim.writ().is_some_and(|(_, writ)| writ.allows(&proposal.tool));
    let allowed = tool.manifest().effect == Effect::Read
        && tool.frozen().is_none()
        && desk.writ(registry.as_deref()).is_ok()
        && writ_allows
        && desk.frozen(&name, registry.as_deref()).is_none();
    allowed.then_some(tool)
}

async fn put(desk: &Desk, tool: &Tool, proposal: &Proposal, generation: u64) -> Option<Found> {
    let key = external_key(desk.trajectory, &proposal.step, generation);
    let opened = desk.open_sensitive(proposal).await.ok()?;
    let args = Canon::of(&Question { args: &opened.args, key: &key }).ok()?;
    let timeout = tool.manifest().timeout.duration();
    let call = Call {
        trajectory: desk.trajectory,
        step: proposal.step.clone(),
        attempt: desk.attempt,
        key: key.clone(),
        args,
        deadline: Instant::now() + timeout,
        progress: None,
    };
    let Reply::Answered { output, .. } = tool.call(call).await else { return None };
    let answer = Canon::parse_within(&output, crate::desk::OUTPUT_LIMITS).ok()?;
    let Spoken { happened, result } = spoken(&answer)?;
    let value = Canon::of(&result).ok()?;
    let probed = desk.shared.catalogue.get(&proposal.tool);
    let value = recorded(desk, probed, value, &opened.veil).await;
    let observation = desk.content(&value).await;
    let probe = &tool.manifest().name;
    // What else a probe of a tool with sensitive values answers is anybody's guess.
    let answer = match probed.is_some_and(Tool::is_sensitive) || tool.is_sensitive() {
        true => Canon::of(&serde_json::json!({ "happened": happened })).ok()?,
        false => answer,
    };
    let evidence = Canon::of(&Evidence { answer: &answer, key: &key, probe }).ok()?;
    let evidence = desk.content(&evidence).await;
    Some(Found { happened, value, observation, evidence })
}

/// What a probe says, which a tool of an MCP server says in its structured content.
fn spoken(answer: &Canon) -> Option<Spoken> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Structured {
        structured_content: Spoken,
    }
    let plain = serde_json::from_str(answer.as_str()).ok();
    plain.or_else(|| {
        let structured: Structured = serde_json::from_str(answer.as_str()).ok()?;
        Some(structured.structured_content)
    })
}

/// Adds what a probe found to the append.
pub(crate) fn conclude(
    desk: &Desk,
    draft: &mut Draft<Facts>,
    answer: &Answer,
    now: UnixMs,
) -> Result<(), RunError> {
    let step = &answer.proposal.step;
    let Some(found) = &answer.found else { return Ok(()) };
    match draft.state().step(step).map(|step| &step.status) {
        Some(Status::InDoubt { entry, .. }) if *entry == answer.doubt => {}
        _ => return Ok(()),
    }
    let verdict = if found.happened {
        let world = draft.state().world();
        let delta = desk.delta(&answer.proposal, &found.value, world).unwrap_or_default();
        let tool = desk.shared.catalogue.get(&answer.proposal.tool);
        let cost = tool.map_or(Amounts::ONE_CALL, |tool| tool.manifest().cost);
        let observation = found.observation.clone();
        ResolutionVerdict::Happened(Settlement { cost, delta, observation })
    } else {
        ResolutionVerdict::DidNotHappen
    };
    #[cfg(feature = "sabotage")]
    let forced = desk.shared.options.sabotage == Some(crate::Sabotage::BelieveTooEarly);
    #[cfg(not(feature = "sabotage"))]
    let forced = false;
    let because = (found.evidence.clone(), forced, ResolvedBy::Probe);
    effects::push_resolution(desk, draft, step.clone(), (answer.doubt, verdict), because, now)
}
