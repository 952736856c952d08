//! What is asked of a policy set, and what it answers. Values only: how policies are written and who
//! evaluates them is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::amounts::{Amounts, Budget};
use crate::ids::{Channel, Principal, Tenant, ToolName};
use crate::json::Canon;
use crate::time::UnixMs;
use crate::writ::Effect;

/// May this principal call this tool with these arguments now; and may it do so unattended?
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// Who wants to call.
    pub principal: &'a Principal,
    /// For whom.
    pub tenant: &'a Tenant,
    /// What it wants to call.
    pub tool: &'a ToolName,
    /// What that does to the world.
    pub effect: Effect,
    /// With what: an object.
    pub args: &'a Canon,
    /// When.
    pub now: UnixMs,
    /// How often the step was tried before.
    pub tries: u64,
    /// What the trajectory has used, reservations included.
    pub spent: Amounts,
    /// What its writ leaves, where the writ sets a limit.
    pub left: Budget,
    /// Who has approved exactly this.
    pub approvals: Vec<Principal>,
    /// What the trajectory has committed that may count as evidence.
    pub evidence: &'a [Evidence],
}

/// Something committed: the type of a resource, and who signed for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The tool whose receipt says so.
    pub by: ToolName,
    /// The type of the resource.
    #[serde(rename = "type")]
    pub type_: String,
}

/// What a policy demands to be committed before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Only what this tool has signed for counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ToolName>,
    /// The type of the resource.
    #[serde(rename = "type")]
    pub type_: String,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Some(by) => write!(f, "a `{}` by `{by}`", self.type_),
            None => write!(f, "a `{}`", self.type_),
        }
    }
}

/// A policy that decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deciding {
    /// What it is annotated with, but for its id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What it is called.
    pub id: String,
}

/// The answer to one of the two questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ruling {
    /// Whether it may.
    pub allowed: bool,
    /// Because of these, by id; none when nothing applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Deciding>,
    /// What could not be evaluated. Then it may not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// How people are asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asking {
    /// Where.
    pub channels: Vec<Channel>,
    /// How many distinct people must agree.
    pub quorum: u64,
    /// Why.
    pub reason: String,
    /// For how long, in milliseconds.
    pub within_ms: u64,
}

impl Default for Asking {
    /// When nothing says how.
    fn default() -> Self {
        Self {
            channels: vec![Channel::operators()],
            quorum: 1,
            reason: "no policy lets it happen unattended".to_owned(),
            within_ms: 24 * 60 * 60 * 1000,
        }
    }
}

/// Whose word counts on a channel. On one that is not here, everybody's who may approve.
pub type Channels = BTreeMap<Channel, BTreeSet<Principal>>;

/// Whether somebody's word counts where people are asked on these channels: it does if it counts on one.
pub fn heard<'a>(
    mut asked: impl Iterator<Item = &'a str>,
    channels: &Channels,
    name: &str,
) -> bool {
    let of = |asked: &str| channels.iter().find(|(channel, _)| channel.as_str() == asked);
    asked.any(|asked| {
        of(asked).is_none_or(|(_, names)| names.iter().any(|known| known.as_str() == name))
    })
}

/// What a policy set answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Whether it may be called.
    pub call: Ruling,
    /// What must be committed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Requirement>,
    /// Whether it may be called without asking anybody.
    pub unattended: Ruling,
    /// How people are asked, if they must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<Asking>,
}
