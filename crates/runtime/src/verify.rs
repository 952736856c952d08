//! Asking a verifier how a resource stands. Nothing is changed, so it needs no permit; it does need the
//! tool that left the resource to be within the writ, and nothing that it takes to be frozen.

use std::sync::Arc;
use std::time::Duration;

use gesta_core::body::{Check, CheckVerdict, external_key};
use gesta_core::digest::Digest;
use gesta_core::json::Canon;
use gesta_core::sensitive::may_hold;
use gesta_core::world::ResourceRef;
use gesta_core::writ::Effect;
use serde_json::json;
use tokio::time::Instant;

use crate::desk::{Desk, OUTPUT_LIMITS};
use crate::facts::Changed;
use crate::job::{evaluate_with, test_with};
use crate::rules::VerifyRule;
use crate::tools::{Call, Reply, Tool, Verifier};

/// How often what could not be checked is tried before a person is asked, and the first pause between;
/// each is twice as long as the one before.
const LOOKS_MOST: u32 = 4;
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// How much of what was found is kept as it is; of more, its hash.
const FOUND_MOST: usize = 2048;

/// A resource to look at.
pub(crate) struct Question {
    pub(crate) resource: ResourceRef,
    pub(crate) changed: Arc<Changed>,
    pub(crate) rule: VerifyRule,
    /// What the call that changed it returned.
    pub(crate) result: Canon,
    /// Whether to look again when it could not be checked.
    pub(crate) patient: bool,
}

/// Looks, and looks again if it could not be checked.
pub(crate) async fn look(desk: Arc<Desk>, question: Question, generation: u64) -> Check {
    let mut pause = PAUSE_FIRST;
    let looks = if question.patient { LOOKS_MOST } else { 1 };
    let tool = desk.shared.catalogue.get(&question.changed.proposal.tool);
    let sensitive = tool.is_some_and(Tool::is_sensitive);
    let withheld =
        || Canon::of(&json!({ "withheld": "sensitive" })).unwrap_or_else(|_| Canon::null());
    for left in (0..looks).rev() {
        let (verdict, found) = match once(&desk, &question, generation).await {
            // What is outside may be sensitive wherever the call was.
            Ok((agrees, _)) if sensitive => {
                (if agrees { CheckVerdict::Ok } else { CheckVerdict::Mismatch }, withheld())
            }
            Err(_) if sensitive && left == 0 => (CheckVerdict::Unknown, withheld()),
            Ok((true, found)) => (CheckVerdict::Ok, found),
            Ok((false, found)) => (CheckVerdict::Mismatch, found),
            Err(_) if left > 0 => {
                tokio::time::sleep(pause).await;
                pause *= 2;
                continue;
            }
            Err(why) => {
                return check(
                    &question,
                    CheckVerdict::Unknown,
                    &Canon::of(&json!({ "error": why })).unwrap_or_else(|_| Canon::null()),
                );
            }
        };
        return check(&question, verdict, &found);
    }
    check(&question, CheckVerdict::Unknown, &Canon::null())
}

fn check(question: &Question, verdict: CheckVerdict, found: &Canon) -> Check {
    let bytes = found.as_bytes();
    let found = if bytes.len() <= FOUND_MOST {
        found.clone()
    } else {
        let brief = json!({ "bytes": bytes.len(), "sha256": Digest::of(bytes) });
        Canon::of(&brief).unwrap_or_else(|_| Canon::null())
    };
    let Question { resource, rule, .. } = question;
    Check { found, resource: resource.clone(), verdict, verifier: rule.verifier.to_string() }
}

/// One look: whether it agrees, and what was found; or why that cannot be told.
async fn once(desk: &Desk, question: &Question, generation: u64) -> Result<(bool, Canon), String> {
    let Question { resource, changed, rule, result, .. } = question;
    let verifier = desk.shared.catalogue.verifier(&rule.verifier);
    let verifier = verifier.ok_or("this worker has no such verifier")?;
    may_look(desk, changed, verifier)?;
    let key = external_key(desk.trajectory, &changed.step, generation);
    let named = Canon::of(&key).map_err(|error| error.to_string())?;
    let id = Canon::of(&resource.id).map_err(|error| error.to_string())?;
    let value = changed.value.clone().unwrap_or_else(Canon::null);
    let (args, result, value) = (
        opened(desk, &changed.proposal.args).await?,
        opened(desk, result).await?,
        opened(desk, &value).await?,
    );
    let vars =
        [("args", &args), ("result", &result), ("key", &named), ("id", &id), ("value", &value)];
    let asked = evaluate_with(&rule.args, &vars).map_err(|error| error.to_string())?;
    let call = Call {
        trajectory: desk.trajectory,
        step: changed.step.clone(),
        attempt: desk.attempt,
        key,
        args: asked,
        deadline: Instant::now() + verifier.timeout(),
        progress: None,
    };
    let output = match ask(desk, verifier, call).await? {
        Reply::Answered { output, .. } => output,
        Reply::Failed { error, .. } => return Err(format!("{}: {}", error.code, error.message)),
    };
    let found = Canon::parse_within(&output, OUTPUT_LIMITS)
        .map_err(|error| format!("what was found is not strict JSON: {error}"))?;
    let mut seen = vars.to_vec();
    seen.push(("found", &found));
    let agrees = test_with(&rule.holds, &seen, None).map_err(|error| error.to_string())?;
    Ok((agrees, found))
}

/// What a verifier compares with is what was sent and returned: nothing of it is recorded.
async fn opened(desk: &Desk, value: &Canon) -> Result<Canon, String> {
    match desk.safe() {
        Some(safe) => safe.open(value).await.map(|(value, _)| value).map_err(|e| e.to_string()),
        None if may_hold(value.as_bytes()) => Err("the data key is not at hand".to_owned()),
        None => Ok(value.clone()),
    }
}

async fn ask(desk: &Desk, verifier: &Verifier, call: Call) -> Result<Reply, String> {
    let Some(name) = verifier.tool() else {
        return verifier.look(call).await.ok_or_else(|| "it asks nothing".to_owned());
    };
    let tool = desk.shared.catalogue.get(name).ok_or("this worker does not have its tool")?;
    if tool.manifest().effect != Effect::Read || tool.frozen().is_some() {
        return Err(format!("the tool `{name}` is frozen, or not read-only"));
    }
    if let Some(mismatch) = tool.check_input(&call.args).first() {
        return Err(format!("what `{name}` would be asked does not fit its schema: {mismatch}"));
    }
    Ok(tool.call(call).await)
}

fn may_look(desk: &Desk, changed: &Changed, verifier: &Verifier) -> Result<(), String> {
    let tool = &changed.proposal.tool;
    let registry = desk.shared.registry();
    let writ = desk.state_at_claim.writ();
    if desk.writ(registry.as_deref()).is_err() || !writ.is_some_and(|(_, writ)| writ.allows(tool)) {
        return Err(format!("the writ does not allow `{tool}` any more"));
    }
    let takes = std::iter::once(tool).chain(verifier.tool());
    for tool in takes {
        if let Some(frozen) = desk.frozen(tool, registry.as_deref()) {
            return Err(frozen.to_owned());
        }
    }
    Ok(())
}
