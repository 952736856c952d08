//! A catalogue as it was recorded: what its tools declared, and no way to reach any of them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use gesta_core::amounts::Amounts;
use gesta_core::digest::Digest;
use gesta_core::document::{Certainty, Recovery};
use gesta_core::ids::ToolName;
use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use serde::Deserialize;
use serde_json::Value;

use super::catalogue::{Catalogue, LIMITS};
use super::definitions::Document;
use super::driver::{Call, Driver, Reply};
use super::manifest::{Change, Compensate, Manifest, Retry, Verify};
use super::secrets::{SecretName, SecretSource};
use super::tool::Tool;
use crate::desk::failing;
use crate::duration::DurationMs;
use crate::job::retry;

/// A tool in the document that a catalogue's digest is of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    changes: Vec<Change>,
    compensate: Option<Compensate>,
    concurrency: Option<NonZeroU32>,
    cost: Amounts,
    description: String,
    driver: Value,
    effect: Effect,
    input: Value,
    key_ttl_ms: u64,
    name: ToolName,
    output: Option<Value>,
    preconditions: Vec<String>,
    probe: Option<ToolName>,
    recovery: Recovery,
    #[serde(with = "retry")]
    retry: Option<Retry>,
    risk: Option<u8>,
    secrets: BTreeMap<SecretName, SecretSource>,
    settle_ms: u64,
    timeout_ms: u64,
    #[serde(default)]
    verify: Vec<Verify>,
}

impl Catalogue {
    /// Reads a catalogue from [`Catalogue::canonical`]. Its tools can be asked what they declare and
    /// never be called.
    pub fn recorded(bytes: &[u8]) -> Result<Self, String> {
        let canonical = Canon::parse_within(bytes, LIMITS).map_err(|error| error.to_string())?;
        let Document { tools, .. } = Document::read(&canonical)?;
        let tool = |(name, declared): (ToolName, Value)| {
            let tool = tool(&declared).map_err(|why| format!("tool `{name}`: {why}"))?;
            Ok((name, tool))
        };
        let tools = tools.into_iter().map(tool).collect::<Result<_, String>>()?;
        Self::unreachable(tools, canonical)
    }
}

fn tool(recorded: &Value) -> Result<Tool, String> {
    let declared = Declared::deserialize(recorded).map_err(|error| error.to_string())?;
    let driver = Canon::of(&declared.driver).map_err(|error| error.to_string())?;
    let manifest = Manifest {
        name: declared.name,
        description: declared.description,
        effect: declared.effect,
        risk: declared.risk,
        recovery: declared.recovery,
        probe: declared.probe,
        key_ttl: DurationMs::from_ms(declared.key_ttl_ms),
        settle: DurationMs::from_ms(declared.settle_ms),
        timeout: DurationMs::from_ms(declared.timeout_ms),
        retry: declared.retry.unwrap_or_default(),
        cost: declared.cost,
        concurrency: declared.concurrency,
        input: Some(declared.input),
        output: declared.output,
        changes: declared.changes,
        preconditions: declared.preconditions,
        compensate: declared.compensate,
        verify: declared.verify,
        secrets: declared.secrets,
    };
    let tool = Tool::new(manifest, &driver, Arc::new(Absent)).map_err(|why| why.to_string())?;
    // What is read must be what was written, or decisions would be derived from something else.
    let written = Canon::of(recorded).map_err(|error| error.to_string())?;
    if tool.digest() == Digest::of(written.as_bytes()) {
        Ok(tool)
    } else {
        Err("it was declared in a way that this version does not know".to_owned())
    }
}

/// The way to a tool that is only on record.
struct Absent;

#[async_trait]
impl Driver for Absent {
    async fn call(&self, call: Call) -> Reply {
        let message = format!("step `{}` is replayed: no tool is called", call.step);
        Reply::Failed {
            certainty: Certainty::DidNotHappen,
            retryable: false,
            retry_after_ms: None,
            error: failing("replayed", &message),
            output: Vec::new(),
        }
    }
}
