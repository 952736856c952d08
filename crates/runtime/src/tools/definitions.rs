//! What each tool and each verifier of a catalogue is, by digest: enough to tell whether two catalogues
//! have a tool in common.

use std::collections::BTreeMap;

use gesta_core::digest::Digest;
use gesta_core::guardian::Unpublished;
use gesta_core::ids::ToolName;
use gesta_core::json::Canon;
use serde::Deserialize;
use serde_json::Value;

use super::catalogue::{Catalogue, LIMITS, TYPE};
use super::pins::PinProblem;
use super::tool::Tool;
use super::verifier::Verifier;

/// What the tools of a catalogue are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    tools: BTreeMap<ToolName, Digest>,
    verifiers: BTreeMap<ToolName, Digest>,
}

/// The document that a catalogue's digest is of. What stands in a tool is not looked into: another version
/// may have published it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) tools: BTreeMap<ToolName, Value>,
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    verifiers: BTreeMap<ToolName, Value>,
}

impl Document {
    pub(super) fn read(canonical: &Canon) -> Result<Self, String> {
        let document: Self =
            serde_json::from_str(canonical.as_str()).map_err(|error| error.to_string())?;
        match document.type_.as_str() {
            TYPE => Ok(document),
            other => Err(format!("its type is `{other}`")),
        }
    }
}

impl Definitions {
    /// Reads them from [`Catalogue::canonical`].
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let canonical = Canon::parse_within(bytes, LIMITS).map_err(|error| error.to_string())?;
        Self::of_document(&canonical)
    }

    /// The same, of what was read before.
    pub(super) fn of_document(canonical: &Canon) -> Result<Self, String> {
        let Document { tools, verifiers, .. } = Document::read(canonical)?;
        let digests = |declared: BTreeMap<ToolName, Value>| {
            let digest = |(name, declared): (ToolName, Value)| {
                let written = Canon::of(&declared).map_err(|error| error.to_string())?;
                Ok((name, Digest::of(written.as_bytes())))
            };
            declared.into_iter().map(digest).collect::<Result<_, String>>()
        };
        Ok(Self { tools: digests(tools)?, verifiers: digests(verifiers)? })
    }

    /// What these come to.
    pub(super) fn of(
        tools: &BTreeMap<ToolName, Tool>,
        verifiers: &BTreeMap<ToolName, Verifier>,
    ) -> Self {
        let tools = tools.iter().map(|(name, tool)| (name.clone(), tool.digest())).collect();
        let looks = |(name, verifier): (&ToolName, &Verifier)| {
            (name.clone(), Digest::of(verifier.canonical().as_bytes()))
        };
        Self { tools, verifiers: verifiers.iter().map(looks).collect() }
    }
}

impl Catalogue {
    /// Whether a tool of this catalogue is as it was published. What is not in this catalogue cannot differ.
    pub fn as_published(
        &self,
        published: &Definitions,
        tool: &ToolName,
    ) -> Result<(), Unpublished> {
        let Some(here) = self.get(tool) else { return Ok(()) };
        let there = published.tools.get(tool).ok_or(Unpublished::Absent)?;
        // What looks at the world for a tool is as much a part of it as what it says itself.
        let mut looks = here.manifest().verify.iter().map(|verify| &verify.verifier);
        let own = &self.definitions().verifiers;
        let same = *there == here.digest()
            && looks.all(|name| own.get(name) == published.verifiers.get(name));
        if same { Ok(()) } else { Err(Unpublished::Differs) }
    }

    /// How this catalogue differs from a published one, by tool: what is missing there, what is otherwise,
    /// and what is not here.
    pub fn check_published(&self, published: &Definitions) -> Vec<PinProblem> {
        let here = self.iter().filter_map(|tool| {
            let (name, found) = (tool.name().clone(), tool.digest());
            match self.as_published(published, &name).err()? {
                Unpublished::Absent => Some(PinProblem::Missing { tool: name, found }),
                Unpublished::Differs | Unpublished::Unreadable => {
                    let pinned = published.tools.get(&name).copied()?;
                    Some(PinProblem::Changed { tool: name, pinned, found })
                }
            }
        });
        let gone = published.tools.iter().filter(|(name, _)| self.get(name).is_none());
        let gone =
            gone.map(|(name, pinned)| PinProblem::Gone { tool: name.clone(), pinned: *pinned });
        let mut found: Vec<PinProblem> = here.chain(gone).collect();
        found.sort_by(|a, b| a.tool().cmp(b.tool()));
        found
    }
}
