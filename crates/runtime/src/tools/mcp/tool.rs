//! One tool of a server: what follows from its description, and what became of a call of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::ids::ToolName;
use gesta_core::writ::Effect;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::declaration::Override;
use super::exchange::{Answer, Progressed};
use super::offer::Offered;
use super::server::{Server, Unreached};
use crate::tools::code;
use crate::tools::driver::{Call, Reply};
use crate::tools::http::refusal;
use crate::tools::manifest::{self, Manifest};
use crate::tools::secrets::{Mask, SecretName, SecretSource, Secrets, Transport};
use crate::tools::verdict::{Verdict, Verdicts, failing};

/// The request was not understood, so nothing was done: parse error, invalid request, method not found,
/// invalid params.
const NOT_UNDERSTOOD: [i64; 4] = [-32700, -32600, -32601, -32602];
/// How often progress is told, and how much of what a server says.
const TELL_EVERY: Duration = Duration::from_millis(500);
const MAX_SAID_CHARS: usize = 500;

/// What errors mean for the effect, where that differs from the rule.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::tools) struct ErrorRules {
    codes: Verdicts,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Verdict>,
}

impl ErrorRules {
    pub(in crate::tools) fn of(declared: Option<&Override>) -> Self {
        declared.map_or_else(Self::default, |Override { codes, errors, .. }| Self {
            codes: codes.clone(),
            errors: *errors,
        })
    }
}

/// The manifest of a tool: what the server says of it, and what an operator says otherwise. Without
/// schemas that an operator keeps in files.
pub(in crate::tools) fn manifest(
    name: ToolName,
    raw: &str,
    declared: Option<&Override>,
    secrets: &BTreeMap<SecretName, SecretSource>,
) -> Result<Manifest, String> {
    let offered = Offered::read(raw)?;
    let none = Override::default();
    let declared = declared.unwrap_or(&none);
    let effect = declared.effect.unwrap_or_else(|| offered.effect());
    let default = Manifest::new(name, effect);
    Ok(Manifest {
        description: declared.description.clone().unwrap_or_else(|| offered.description.clone()),
        risk: declared.risk,
        recovery: declared.recovery.unwrap_or(manifest::default_recovery(effect)),
        probe: declared.probe.clone(),
        key_ttl: declared.key_ttl.unwrap_or(default.key_ttl),
        settle: declared.settle.unwrap_or(default.settle),
        timeout: declared.timeout.unwrap_or(default.timeout),
        retry: declared.retry.unwrap_or(default.retry),
        cost: declared.cost.as_ref().map_or(default.cost, |cost| cost.amounts()),
        concurrency: declared.concurrency,
        output: offered.result_schema(),
        input: Some(offered.input_schema),
        changes: declared.changes.clone(),
        preconditions: declared.preconditions.clone(),
        compensate: declared.compensate.clone(),
        verify: declared.verify.clone(),
        secrets: secrets.clone(),
        ..default
    })
}

/// See the module.
pub(in crate::tools) struct McpTool {
    pub(in crate::tools) server: Arc<Server>,
    /// What the server calls it.
    pub(in crate::tools) tool: String,
    pub(in crate::tools) effect: Effect,
    pub(in crate::tools) rules: ErrorRules,
}

#[async_trait]
impl Transport for McpTool {
    async fn send(&self, call: Call, secrets: Arc<Secrets>, mask: &Mask) -> Reply {
        let (server, tool) = (self.server.name(), &self.tool);
        let session = match timeout_at(call.deadline, self.server.session(&secrets)).await {
            Ok(Ok(session)) => session,
            Ok(Err(Unreached { code, why })) => {
                let message = format!("nothing was sent to MCP server `{server}`: {why}");
                return Verdict::Retry.failed(code, message);
            }
            Err(_) => {
                let message = format!(
                    "MCP server `{server}` was not ready before the deadline; nothing was sent"
                );
                return Verdict::Retry.failed(code::DEADLINE_PASSED, message);
            }
        };
        if let Some(why) = self.frozen() {
            // Decided again, the step is held by the Guardian, for the record.
            let message = format!("`{tool}` of MCP server `{server}` was not called: {why}");
            return Verdict::Retry.failed(code::TOOL_FROZEN, message);
        }
        let mut told = None;
        let tell = |report: Progressed| {
            let due = told.is_none_or(|at: Instant| at.elapsed() >= TELL_EVERY);
            if let Some(progress) = call.progress.as_ref().filter(|_| due) {
                told = Some(Instant::now());
                (progress.0)(shortened(&mask.apply_text(&progress_line(&report))));
            }
        };
        let (answer, late) = session.call(tool, &call, tell).await;
        self.judge(answer, late)
    }

    fn frozen(&self) -> Option<&str> {
        self.server.frozen(&self.tool)
    }
}

fn progress_line(report: &Progressed) -> String {
    let Progressed { progress, total, message } = report;
    let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("progress {progress}{total}{message}")
}

impl McpTool {
    fn judge(&self, answer: Answer, late: bool) -> Reply {
        let (server, tool) = (self.server.name(), &self.tool);
        match answer {
            Answer::Result(raw) => self.judge_result(raw),
            Answer::Error { code, message, raw } => {
                let declared = self.rules.codes.get(&code.to_string()).copied();
                let verdict = declared.unwrap_or_else(|| {
                    let done = !NOT_UNDERSTOOD.contains(&code);
                    if done { self.unless_read() } else { Verdict::DidNotHappen }
                });
                let said = shortened(&message);
                let message = format!("MCP server `{server}` answered error {code}: {said}");
                verdict.reply(raw.into_bytes(), failing(code::MCP_ERROR, message))
            }
            Answer::Status { status, message, retry_after_ms } => {
                let verdict = match status {
                    // The session has ended; the next call begins another.
                    404 => Verdict::Retry,
                    _ => refusal(status, self.effect),
                };
                let mut reply = verdict.failed(code::HTTP_STATUS, shortened(&message));
                if let Reply::Failed { retryable: true, retry_after_ms: after, .. } = &mut reply {
                    *after = retry_after_ms;
                }
                reply
            }
            Answer::NotSent { why, refused } => {
                let message = format!("nothing was sent to MCP server `{server}`: {why}");
                let code = if late { code::DEADLINE_PASSED } else { code::NOT_CONNECTED };
                match refused {
                    true => Verdict::DidNotHappen.failed(code::ADDRESS_REFUSED, message),
                    false => Verdict::Retry.failed(code, message),
                }
            }
            Answer::Lost(why) => {
                let code = if late { code::DEADLINE_PASSED } else { code::REPLY_LOST };
                let message = format!(
                    "the call of `{tool}` was sent to MCP server `{server}`, and there is no reply: {why}"
                );
                Verdict::Unknown.failed(code, message)
            }
            Answer::TooLarge(why) => self.unless_read().failed(code::OUTPUT_TOO_LARGE, why),
        }
    }

    fn judge_result(&self, raw: String) -> Reply {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome {
            #[serde(default)]
            is_error: bool,
            #[serde(default)]
            result_type: Option<String>,
            #[serde(default)]
            content: serde_json::Value,
        }
        let (server, tool) = (self.server.name(), &self.tool);
        let odd = |why: &str, raw: String| {
            let message = format!("MCP server `{server}` answered the call of `{tool}` with {why}");
            self.unless_read().reply(raw.into_bytes(), failing(code::MCP_ERROR, message))
        };
        let outcome = match serde_json::from_str::<Outcome>(&raw) {
            Ok(outcome) => outcome,
            Err(_) => return odd("what is no result of a tool", raw),
        };
        match outcome.result_type.as_deref() {
            None | Some("complete") => {}
            Some("input_required") => return odd("a question, which nobody answers", raw),
            Some(_) => return odd("something else than a result", raw),
        }
        if !outcome.is_error {
            return Reply::Answered { output: raw.into_bytes(), cost: None };
        }
        // That a tool failed says nothing about what it had done by then.
        let verdict = self.rules.errors.unwrap_or_else(|| self.unless_read());
        let said = outcome.content.pointer("/0/text").and_then(serde_json::Value::as_str);
        let said = shortened(said.unwrap_or("it says no more"));
        let message = format!("`{tool}` of MCP server `{server}` failed: {said}");
        verdict.reply(raw.into_bytes(), failing(code::TOOL_FAILED, message))
    }

    /// What changes nothing has not happened unless it answers; of anything else nobody knows.
    fn unless_read(&self) -> Verdict {
        if self.effect == Effect::Read { Verdict::DidNotHappen } else { Verdict::Unknown }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SAID_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
