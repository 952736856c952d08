//! How a tool is written in TOML: the shapes, and what they become. Reads no file and starts nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

use gesta_core::amounts::Amounts;
use gesta_core::document::Recovery;
use gesta_core::ids::ToolName;
use gesta_core::writ::Effect;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};
use toml::Spanned;

use super::http::HttpDeclaration;
use super::manifest::{self, Change, Compensate, Manifest, Retry, Verify};
use super::mcp::{McpDeclaration, ServerName};
use super::process::ProcessDeclaration;
use super::secrets::{SecretName, SecretSource};
use super::verifier::VerifierDeclaration;
use crate::duration::DurationMs;

/// A file that holds tools and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolFile {
    #[serde(default)]
    pub(super) mcp: BTreeMap<Spanned<ServerName>, McpDeclaration>,
    #[serde(default)]
    pub(super) tools: BTreeMap<Spanned<ToolName>, Declaration>,
    #[serde(default)]
    pub(super) verifiers: BTreeMap<Spanned<ToolName>, VerifierDeclaration>,
}

/// A file whose `[tools]`, `[mcp]` and `[verifiers]` concern us and whose other sections do not.
#[derive(Deserialize)]
pub(super) struct LargerFile {
    #[serde(default)]
    pub(super) mcp: BTreeMap<Spanned<ServerName>, McpDeclaration>,
    #[serde(default)]
    pub(super) tools: BTreeMap<Spanned<ToolName>, Declaration>,
    #[serde(default)]
    pub(super) verifiers: BTreeMap<Spanned<ToolName>, VerifierDeclaration>,
}

/// One tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Declaration {
    #[serde(default)]
    description: String,
    effect: Effect,
    risk: Option<u8>,
    recovery: Option<Recovery>,
    probe: Option<ToolName>,
    key_ttl: Option<DurationMs>,
    settle: Option<DurationMs>,
    timeout: Option<DurationMs>,
    #[serde(default)]
    retry: Retry,
    #[serde(default)]
    cost: Cost,
    concurrency: Option<NonZeroU32>,
    pub(super) input: Option<SchemaSource>,
    pub(super) output: Option<SchemaSource>,
    #[serde(default)]
    changes: Vec<Change>,
    #[serde(default)]
    preconditions: Vec<String>,
    compensate: Option<Compensate>,
    #[serde(default)]
    verify: Vec<Verify>,
    #[serde(default)]
    secrets: BTreeMap<SecretName, SecretSource>,
    pub(super) driver: DriverDeclaration,
}

/// How a declared tool is reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DriverDeclaration {
    /// As a process.
    Process(ProcessDeclaration),
    /// As an HTTP request.
    Http(HttpDeclaration),
}

/// What is reserved for a call: at least the call itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cost {
    calls: u64,
    money_micros: u64,
    tokens: u64,
    wall_ms: u64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { calls: 1, money_micros: 0, tokens: 0, wall_ms: 0 }
    }
}

impl Cost {
    pub(super) fn amounts(&self) -> Amounts {
        let Self { calls, money_micros, tokens, wall_ms } = *self;
        Amounts { calls, money_micros, tokens, wall_ms }
    }
}

/// A schema, or the JSON file that holds it.
#[derive(Clone, Debug)]
pub(super) enum SchemaSource {
    Inline(Map<String, Value>),
    File(PathBuf),
}

impl<'de> Deserialize<'de> for SchemaSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SchemaSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON Schema as a table, or the path of a JSON file")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<SchemaSource, E> {
                Ok(SchemaSource::File(path.into()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<SchemaSource, A::Error> {
                let table = de::value::MapAccessDeserializer::new(table);
                Map::deserialize(table).map(SchemaSource::Inline)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Declaration {
    /// The manifest, without its schemas: those may be in files.
    pub(super) fn manifest(&self, name: ToolName) -> Manifest {
        Manifest {
            name,
            description: self.description.clone(),
            effect: self.effect,
            risk: self.risk,
            recovery: self.recovery.unwrap_or(manifest::default_recovery(self.effect)),
            probe: self.probe.clone(),
            key_ttl: self.key_ttl.unwrap_or(manifest::DEFAULT_KEY_TTL),
            settle: self.settle.unwrap_or_default(),
            timeout: self.timeout.unwrap_or(manifest::DEFAULT_TIMEOUT),
            retry: self.retry,
            cost: self.cost.amounts(),
            concurrency: self.concurrency,
            input: None,
            output: None,
            changes: self.changes.clone(),
            preconditions: self.preconditions.clone(),
            compensate: self.compensate.clone(),
            verify: self.verify.clone(),
            secrets: self.secrets.clone(),
        }
    }
}
