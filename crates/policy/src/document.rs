//! The policy document: texts, roles, who is heard on which channel, and the shapes of the tools that the texts were checked against.
//! Its digest is what decisions name, so everything that bears on an answer is inside.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::digest::Digest;
use gesta_core::ids::{Principal, ToolName};
use gesta_core::json::{self, Canon, JsonError, Limits};
use gesta_core::policy::Channels;
use gesta_core::writ::Effect;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::PolicyError;
use crate::schema;

/// Some thousand tools with their schemas, each of which may be as deep as a document of the chain.
const LIMITS: Limits = Limits { max_bytes: 64 << 20, max_depth: Limits::DEFAULT.max_depth + 8 };

/// What holds where nothing was published: reads run, whatever is more is put before a person.
const DEFAULT: &str = r#"@id("default-reads")
permit (principal, action, resource)
when { resource.effect == Effect::"read" };

@id("default-others")
@reason("no policy is published: whatever does more than read needs somebody's consent")
permit (principal, action in Action::"call", resource)
when { resource.effect != Effect::"read" };
"#;

/// A policy document: what is published, hashed and kept as a blob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDocument {
    /// Whose word counts on which channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: Channels,
    /// The texts.
    pub policies: Vec<PolicyFile>,
    /// Who has which role.
    pub roles: BTreeMap<String, BTreeSet<Principal>>,
    /// The tools that the texts may speak of.
    pub tools: BTreeMap<ToolName, ToolShape>,
    /// Always `gesta.policy.v1`.
    #[serde(rename = "type")]
    pub type_: PolicyType,
}

/// The type of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyType {
    /// The only one there is.
    #[default]
    #[serde(rename = "gesta.policy.v1")]
    V0,
}

/// One text in the Cedar language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// What errors call it.
    pub name: String,
    /// The policies.
    pub text: String,
}

/// What a policy can know of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolShape {
    /// What it does to the world.
    pub effect: Effect,
    /// The JSON Schema of its arguments, as it is enforced.
    pub input: Value,
    /// How much is at stake, from 0 to 100, if its manifest says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<u8>,
}

impl PolicyDocument {
    /// A document of these texts, for these tools.
    pub fn new(
        policies: Vec<PolicyFile>,
        roles: BTreeMap<String, BTreeSet<Principal>>,
        tools: BTreeMap<ToolName, ToolShape>,
    ) -> Self {
        Self { channels: Channels::new(), policies, roles, tools, type_: PolicyType::V0 }
    }

    /// The same, with names for channels.
    pub fn with_channels(self, channels: Channels) -> Self {
        Self { channels, ..self }
    }

    /// What holds where nothing was published: reads are allowed unattended, everything else may be
    /// called once a person agrees.
    pub fn default_for(tools: BTreeMap<ToolName, ToolShape>) -> Self {
        let file = PolicyFile { name: "default".to_owned(), text: DEFAULT.to_owned() };
        Self::new(vec![file], BTreeMap::new(), tools)
    }

    /// The document as it is hashed and kept.
    pub fn canonical(&self) -> Result<Canon, JsonError> {
        let bytes = json::to_canonical_within(self, LIMITS)?;
        Canon::parse_within(&bytes, LIMITS)
    }

    /// What decisions name it by.
    pub fn digest(&self) -> Result<Digest, JsonError> {
        self.canonical().map(|canon| Digest::of(canon.as_bytes()))
    }

    /// Reads a document from its canonical bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        json::read_strict(json::check_canonical(bytes, LIMITS)?)
    }

    /// The schema that the texts are checked against, in Cedar's own language.
    pub fn schema(&self) -> Result<String, PolicyError> {
        schema::text(self)
    }
}
