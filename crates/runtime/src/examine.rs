//! Step 8 of the path of a call: from what the tool returned to what may be recorded of it. What is
//! sensitive is committed to here, before anything else sees it.

use gesta_core::amounts::Amounts;
use gesta_core::body::Proposal;
use gesta_core::content::BlobRef;
use gesta_core::document::{Certainty, Failing};
use gesta_core::json::Canon;
use gesta_core::sensitive::reserved;
use serde_json::Value;

use crate::closing::GATE_FROZEN;
use crate::desk::{Desk, OUTPUT_LIMITS, failing};
use crate::pipeline::How;
use crate::tools::{Reply, Tool, code};
use crate::veil::{Veil, withheld};

/// Examines the reply to a proposal. `veil` covers the sensitive values that the call was made with.
pub(crate) async fn examine(
    desk: &Desk,
    (proposal, tool): (&Proposal, Option<&Tool>),
    reply: Reply,
    veil: &Veil,
    wall_ms: u64,
) -> How {
    let cost_of = |stated: Option<Amounts>| {
        let declared = tool.map_or(Amounts::ONE_CALL, |tool| tool.manifest().cost);
        let cost = stated.unwrap_or(declared);
        Amounts { calls: cost.calls.max(1), wall_ms, ..cost }
    };
    let (output, stated) = match reply {
        Reply::Answered { output, cost } => (output, cost),
        // Only when the server was asked did it show that the tool is not what was pinned: as if the gate
        // had known.
        Reply::Failed { certainty: Certainty::DidNotHappen, error, .. }
            if error.code == code::TOOL_FROZEN && tool.is_some_and(|it| it.frozen().is_some()) =>
        {
            return How::TurnedAway(failing(GATE_FROZEN, &error.message));
        }
        Reply::Failed { certainty, retryable, retry_after_ms, error, output } => {
            let cost = match certainty {
                Certainty::Happened => cost_of(None),
                Certainty::DidNotHappen | Certainty::Unknown => Amounts::default(),
            };
            let (error, output) = kept(desk, tool, error, veil, output).await;
            let retry_after_ms = retry_after_ms.unwrap_or(0);
            return How::Failed { certainty, retryable, cost, error, retry_after_ms, output };
        }
    };
    let cost = cost_of(stated);
    let error = match on_contract(tool, &output) {
        Ok(value) => {
            let value = recorded(desk, tool, value, veil).await;
            match desk.tells(proposal, &value) {
                Ok(()) => {
                    let observation = desk.content(&value).await;
                    return How::Succeeded { value, observation, cost };
                }
                Err(error) => error,
            }
        }
        Err(why) => failing("connector_contract_drift", &why),
    };
    // The effect happened. Its raw bytes are all there is to look at afterwards.
    let output = Some(keep(desk, tool, &output).await);
    let certainty = Certainty::Happened;
    How::Failed { certainty, retryable: false, cost, error, retry_after_ms: 0, output }
}

fn on_contract(tool: Option<&Tool>, output: &[u8]) -> Result<Canon, String> {
    let value = Canon::parse_within(output, OUTPUT_LIMITS)
        .map_err(|error| format!("the output is not strict JSON: {error}"))?;
    if value.as_str().contains("$commit") {
        let tree: Value = serde_json::from_str(value.as_str()).unwrap_or_default();
        if let Some(pointer) = reserved(&tree) {
            return Err(format!("at `{pointer}`: `$commit` stands for sensitive values only"));
        }
    }
    match tool.and_then(|tool| tool.check_output(&value).into_iter().next()) {
        None => Ok(value),
        Some(mismatch) => Err(format!("the output does not fit the tool's schema: {mismatch}")),
    }
}

/// A result as it may be recorded: what is marked committed to, what is echoed masked.
pub(crate) async fn recorded(desk: &Desk, tool: Option<&Tool>, value: Canon, veil: &Veil) -> Canon {
    let Some(tool) = tool.filter(|tool| tool.is_sensitive()) else { return value };
    let committed = desk.protect(&value, &tool.sensitive().1).await;
    let Ok(mut tree) = serde_json::from_str::<Value>(committed.as_str()) else { return committed };
    veil.value(&mut tree);
    crate::vault::canon(&tree).unwrap_or(committed)
}

/// What may be recorded of a failure, and what was received, sealed if it may be sensitive.
async fn kept(
    desk: &Desk,
    tool: Option<&Tool>,
    error: Failing,
    veil: &Veil,
    output: Vec<u8>,
) -> (Failing, Option<BlobRef>) {
    if !tool.is_some_and(Tool::is_sensitive) {
        let output = if output.is_empty() { None } else { Some(desk.keep(&output).await) };
        return (error, output);
    }
    // What a tool says when it fails is free text. What it was given is known, and masked; what it would
    // have returned is not.
    let returns = tool.is_some_and(|tool| !tool.sensitive().1.is_empty());
    let message = if returns { withheld() } else { veil.text(&error.message) };
    let mut said = error.message.into_bytes();
    said.extend_from_slice(b"\n\n");
    said.extend_from_slice(&output);
    (Failing { message, ..error }, Some(keep(desk, tool, &said).await))
}

/// Keeps what was received, sealed if it may be sensitive.
async fn keep(desk: &Desk, tool: Option<&Tool>, output: &[u8]) -> BlobRef {
    match desk.safe() {
        Some(safe) if tool.is_some_and(Tool::is_sensitive) => match safe.seal_output(output) {
            Ok(sealed) => desk.keep(&sealed).await,
            // Without random bytes nothing can be sealed: that it is lost is better than that it leaks.
            Err(error) => {
                tracing::error!(trajectory = %desk.trajectory, %error, "an output is not kept");
                desk.keep(b"").await
            }
        },
        _ => desk.keep(output).await,
    }
}
