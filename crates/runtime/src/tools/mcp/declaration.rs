//! How an MCP server is declared, what of its tools an operator says otherwise, and what is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use gesta_core::document::Recovery;
use gesta_core::ids::ToolName;
use gesta_core::writ::Effect;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::session::versions;
use crate::duration::DurationMs;
use crate::tools::declaration::{Cost, SchemaSource};
use crate::tools::http::BadHttp;
use crate::tools::manifest::{Change, Compensate, Retry, Verify};
use crate::tools::process::{BadProcess, Command, ProcessDeclaration};
use crate::tools::secrets::{SecretName, SecretSource};
use crate::tools::size::SizeBytes;
use crate::tools::verdict::Verdict;

/// The name of a server: lower-case letters, digits, `_` and `-`, at most 32 characters. It stands
/// before the names of its tools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ServerName(Arc<str>);

/// A name that no server can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a server; use lower-case letters, digits, `_` and `-`, at most 32 characters"
)]
pub struct BadServerName(String);

impl ServerName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What one of its tools is called in the catalogue: `SERVER.TOOL`.
    pub fn tool(&self, tool: &str) -> Option<ToolName> {
        format!("{self}.{tool}").parse().ok()
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServerName {
    type Err = BadServerName;

    fn from_str(text: &str) -> Result<Self, BadServerName> {
        let spelled =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if text.bytes().all(spelled) && (1..=32).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(BadServerName(text.to_owned()))
        }
    }
}

impl<'de> Deserialize<'de> for ServerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// An MCP server: a program (`command`) or a place (`url`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpDeclaration {
    /// The program and its arguments.
    command: Option<Vec<String>>,
    /// Where it is run: by default, and for relative paths, the directory of the declaring file.
    cwd: Option<PathBuf>,
    /// Variables that are passed on from the worker's environment if they are set there.
    #[serde(default)]
    env: Vec<String>,
    /// Variables with their values.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// Where it is reached, over streamable HTTP.
    url: Option<String>,
    /// Headers with their values. `{secret:NAME}` stands for a secret of the server.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Whether addresses that are not public may be reached.
    #[serde(default)]
    allow_private: bool,
    /// A PEM file with certificate authorities that are believed beside those of the system.
    ca: Option<PathBuf>,
    /// The secrets that it needs: variables for a program, parts of headers for a place.
    #[serde(default)]
    pub(in crate::tools) secrets: BTreeMap<SecretName, SecretSource>,
    /// The version of the protocol, if it must be this one.
    pub(in crate::tools) protocol: Option<String>,
    /// The tools that are taken; all of them without it.
    include: Option<Vec<String>>,
    /// The tools that are left out.
    #[serde(default)]
    exclude: Vec<String>,
    /// How large one message of the server may be.
    #[serde(default = "four_mib")]
    pub(in crate::tools) max_output: SizeBytes,
    /// What is declared of its tools in place of what the server says.
    #[serde(default)]
    pub(in crate::tools) tools: BTreeMap<String, Override>,
}

fn four_mib() -> SizeBytes {
    SizeBytes::MIB.times(4)
}

/// How a server is reached: what the digest of its tools covers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::tools) enum Way {
    /// As a program.
    Stdio(ProcessDeclaration),
    /// At a place.
    Http {
        allow_private: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        ca: Option<PathBuf>,
        headers: BTreeMap<String, String>,
        url: String,
    },
}

/// What an operator declares of one tool. It wins over whatever the server says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::tools) struct Override {
    pub(super) description: Option<String>,
    pub(super) effect: Option<Effect>,
    pub(super) risk: Option<u8>,
    pub(super) recovery: Option<Recovery>,
    pub(super) probe: Option<ToolName>,
    pub(super) key_ttl: Option<DurationMs>,
    pub(super) settle: Option<DurationMs>,
    pub(super) timeout: Option<DurationMs>,
    pub(super) retry: Option<Retry>,
    pub(super) cost: Option<Cost>,
    pub(super) concurrency: Option<NonZeroU32>,
    pub(in crate::tools) input: Option<SchemaSource>,
    pub(in crate::tools) output: Option<SchemaSource>,
    pub(super) changes: Vec<Change>,
    pub(super) preconditions: Vec<String>,
    pub(super) compensate: Option<Compensate>,
    pub(super) verify: Vec<Verify>,
    /// What a result that the tool calls an error means for the effect.
    pub(super) errors: Option<Verdict>,
    /// What JSON-RPC errors mean for it, by their codes.
    pub(super) codes: BTreeMap<String, Verdict>,
}

/// What is wrong with the declaration of a server, or with what it offers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadServer {
    /// Neither a program nor a place, or both.
    #[error("write `command` for a program or `url` for a place, and not both")]
    Way,
    /// A setting that means nothing here.
    #[error("`{0}` belongs to a server with `{1}`")]
    Misplaced(&'static str, &'static str),
    /// The program is wrong.
    #[error("{0}")]
    Process(#[from] BadProcess),
    /// The place is wrong.
    #[error("{0}")]
    Http(#[from] BadHttp),
    /// A version that nobody speaks.
    #[error("`protocol` is `{0}`; the versions are {known}", known = known())]
    Protocol(String),
    /// Two servers of one name.
    #[error("declared twice; rename one of them")]
    Twice,
    /// A tool that is both taken and left out.
    #[error("`{0}` is in `include` and in `exclude`")]
    Both(String),
    /// A tool is spoken of that the server does not offer.
    #[error("`{0}` is declared, and the server did not offer it when it was pinned")]
    NotOffered(String),
    /// A tool whose name cannot stand in a catalogue.
    #[error(
        "its tool `{0}` cannot be called by this name (letters, digits, `_ . : / -`, at most 128 characters with the server's); add it to `exclude`"
    )]
    Name(String),
    /// A tool that cannot be read.
    #[error("its tool `{tool}` cannot be read: {why}; add it to `exclude`")]
    Tool {
        /// Which.
        tool: String,
        /// Why not.
        why: String,
    },
    /// Not the code of an error.
    #[error("`codes` has `{0}`, which is not the code of a JSON-RPC error")]
    Code(String),
}

fn known() -> String {
    versions().collect::<Vec<_>>().join(", ")
}

impl McpDeclaration {
    /// How it is reached, once everything that can be checked without it is.
    pub(in crate::tools) fn way(&self) -> Result<Way, BadServer> {
        if let Some(odd) = self.protocol.as_deref().filter(|text| !versions().any(|v| v == *text)) {
            return Err(BadServer::Protocol(odd.to_owned()));
        }
        let both = |name: &&String| self.exclude.contains(name);
        if let Some(name) = self.include.iter().flatten().find(both) {
            return Err(BadServer::Both(name.clone()));
        }
        for rule in self.tools.values() {
            let canonical =
                |code: &&String| code.parse::<i64>().is_ok_and(|n| n.to_string() == **code);
            if let Some(odd) = rule.codes.keys().find(|code| !canonical(code)) {
                return Err(BadServer::Code(odd.clone()));
            }
        }
        match (&self.command, &self.url) {
            (Some(command), None) => self.program(command),
            (None, Some(url)) => self.place(url),
            (Some(_), Some(_)) | (None, None) => Err(BadServer::Way),
        }
    }

    fn program(&self, command: &[String]) -> Result<Way, BadServer> {
        let misplaced = [
            ("headers", !self.headers.is_empty()),
            ("allow_private", self.allow_private),
            ("ca", self.ca.is_some()),
        ];
        if let Some((name, _)) = misplaced.into_iter().find(|(_, there)| *there) {
            return Err(BadServer::Misplaced(name, "url"));
        }
        Ok(Way::Stdio(ProcessDeclaration {
            command: Command::Program(command.to_vec()),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            exit: BTreeMap::new(),
            max_output: self.max_output,
            set: self.set.clone(),
            shell: false,
        }))
    }

    fn place(&self, url: &str) -> Result<Way, BadServer> {
        let misplaced = [
            ("cwd", self.cwd.is_some()),
            ("env", !self.env.is_empty()),
            ("set", !self.set.is_empty()),
        ];
        if let Some((name, _)) = misplaced.into_iter().find(|(_, there)| *there) {
            return Err(BadServer::Misplaced(name, "command"));
        }
        let (headers, ca) = (self.headers.clone(), self.ca.clone());
        Ok(Way::Http { allow_private: self.allow_private, ca, headers, url: url.to_owned() })
    }

    /// Whether this tool is taken.
    pub(in crate::tools) fn takes(&self, tool: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == tool);
        self.include.as_deref().is_none_or(named) && !named(&self.exclude)
    }

    /// The tools that are spoken of by name.
    pub(in crate::tools) fn named(&self) -> impl Iterator<Item = &String> {
        self.include.iter().flatten().chain(self.tools.keys())
    }
}
