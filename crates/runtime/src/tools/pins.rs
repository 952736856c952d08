//! Pins: the digest of each tool as somebody accepted it. A tool that differs from its pin is frozen
//! until it is pinned again.

use std::collections::BTreeMap;
use std::fmt;

use gesta_core::digest::Digest;
use gesta_core::ids::ToolName;
use serde::{Deserialize, Serialize};

use super::catalogue::Catalogue;
use super::error::Place;
use super::mcp::{Offer, ServerName};

const HEADER: &str = "# Written by `gesta tools pin`: what each tool was when it was accepted.\n";

/// The content of a lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// The format's version.
    version: Version,
    /// The digest of each tool.
    #[serde(default)]
    tools: BTreeMap<ToolName, Digest>,
    /// What each MCP server offered, as it wrote it.
    #[serde(default)]
    mcp: BTreeMap<ServerName, Offer>,
}

/// The only version there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
struct Version;

impl TryFrom<u64> for Version {
    type Error = String;

    fn try_from(version: u64) -> Result<Self, String> {
        match version {
            0 => Ok(Self),
            _ => Err(format!("version `{version}` is not known; this program writes version 0")),
        }
    }
}

impl From<Version> for u64 {
    fn from(_: Version) -> Self {
        0
    }
}

/// A lock file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}; `gesta tools pin` writes it again")]
pub struct BadPins {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub message: String,
}

/// A difference between a catalogue and its pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinProblem {
    /// The tool is not what was pinned.
    Changed {
        /// Which tool.
        tool: ToolName,
        /// What was pinned.
        pinned: Digest,
        /// What it is.
        found: Digest,
    },
    /// The tool was never pinned.
    Missing {
        /// Which tool.
        tool: ToolName,
        /// What it is.
        found: Digest,
    },
    /// What was pinned is not in the catalogue.
    Gone {
        /// Which tool.
        tool: ToolName,
        /// What was pinned.
        pinned: Digest,
    },
}

impl PinProblem {
    /// Which tool.
    pub fn tool(&self) -> &ToolName {
        let (Self::Changed { tool, .. } | Self::Missing { tool, .. } | Self::Gone { tool, .. }) =
            self;
        tool
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Changed { .. } => {
                "changed since it was pinned; look at it and run `gesta tools pin`"
            }
            Self::Missing { .. } => "not pinned yet; look at it and run `gesta tools pin`",
            Self::Gone { .. } => "pinned and not declared; run `gesta tools pin` to forget it",
        }
    }
}

impl fmt::Display for PinProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool `{}`: {}", self.tool(), self.reason())
    }
}

impl Pins {
    /// The pins of a catalogue as it is.
    pub fn of(catalogue: &Catalogue) -> Self {
        let tools = catalogue.iter().map(|tool| (tool.name().clone(), tool.digest())).collect();
        Self { version: Version, tools, mcp: BTreeMap::new() }
    }

    /// The same, with what the MCP servers offered whose tools these are.
    #[must_use]
    pub fn with_offers(self, offers: BTreeMap<ServerName, Offer>) -> Self {
        Self { mcp: offers, ..self }
    }

    /// What each MCP server offered.
    pub fn offers(&self) -> &BTreeMap<ServerName, Offer> {
        &self.mcp
    }

    /// Reads a lock file. `label` is how errors call it.
    pub fn parse(label: &str, text: &str) -> Result<Self, BadPins> {
        toml::from_str(text).map_err(|error| BadPins {
            place: Place::new(label, text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })
    }

    /// The text of the lock file: the same pins are the same bytes.
    pub fn to_text(&self) -> String {
        let Self { version, tools, mcp } = self;
        let mut text = format!("{HEADER}version = {}\n\n[tools]\n", u64::from(*version));
        for (name, digest) in tools {
            // Tool names hold nothing that a quoted key would have to escape.
            text.push_str(&format!("\"{name}\" = \"{digest}\"\n"));
        }
        for (name, Offer { protocol, server, tools }) in mcp {
            text.push_str(&format!("\n[mcp.{name}]\n"));
            text.push_str(&format!("protocol = {}\n", quoted(protocol)));
            text.push_str(&format!("server = {}\n\n[mcp.{name}.tools]\n", quoted(server)));
            for (tool, raw) in tools {
                text.push_str(&format!("{} = {}\n", escaped(tool), quoted(raw)));
            }
        }
        text
    }

    /// The pin of a tool.
    pub fn get(&self, tool: &ToolName) -> Option<Digest> {
        self.tools.get(tool).copied()
    }
}

/// A text as TOML: as it is where that can be, so that a difference is easy to see.
fn quoted(text: &str) -> String {
    if text.contains('\'') || text.chars().any(char::is_control) {
        escaped(text)
    } else {
        format!("'{text}'")
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped.push('"');
    escaped
}

impl Catalogue {
    /// How this catalogue differs from its pins, by tool.
    pub fn check_pins(&self, pins: &Pins) -> Vec<PinProblem> {
        let here = self.tools.values().filter_map(|tool| {
            let (name, found) = (tool.name().clone(), tool.digest());
            match pins.get(&name) {
                None => Some(PinProblem::Missing { tool: name, found }),
                Some(pinned) if pinned != found => {
                    Some(PinProblem::Changed { tool: name, pinned, found })
                }
                Some(_) => None,
            }
        });
        let gone = pins.tools.iter().filter(|(name, _)| !self.tools.contains_key(*name));
        let gone =
            gone.map(|(name, pinned)| PinProblem::Gone { tool: name.clone(), pinned: *pinned });
        let mut problems: Vec<PinProblem> = here.chain(gone).collect();
        problems.sort_by(|a, b| a.tool().cmp(b.tool()));
        problems
    }

    /// Freezes every tool that is not as it was pinned, and no other. Without a lock file there is
    /// nothing to apply, and nothing is frozen.
    pub fn apply_pins(&mut self, pins: &Pins) -> Vec<PinProblem> {
        let problems = self.check_pins(pins);
        for tool in self.tools.values_mut() {
            let problem = problems.iter().find(|problem| problem.tool() == tool.name());
            tool.freeze(problem.map(|problem| problem.reason().to_owned()));
        }
        problems
    }
}
