//! Writs: signed capabilities that only ever narrow.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::amounts::{Budget, Dimension};
use crate::content::some;
use crate::digest::WritId;
use crate::ids::{BadName, Principal, Tenant, ToolName, TrajectoryId};
use crate::keys::KeyId;
use crate::signed::{Document, Signed, Tag};
use crate::time::Window;
use crate::trust::Role;

/// What a tool does to the outside world, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Changes something of ours.
    Write,
    /// Changes something of someone else's.
    External,
    /// Changes something that cannot be undone.
    Irreversible,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::External => "external",
            Self::Irreversible => "irreversible",
        })
    }
}

/// Which tools: one by name, all that share a prefix (`mail.*`), or all (`*`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ToolPattern {
    /// Every tool.
    Any,
    /// Tools whose name begins so.
    Prefix(String),
    /// Exactly this tool.
    Exact(ToolName),
}

impl ToolPattern {
    /// Whether the tool is meant.
    pub fn matches(&self, tool: &ToolName) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => tool.as_str().starts_with(prefix.as_str()),
            Self::Exact(name) => name == tool,
        }
    }

    /// Whether every tool that `other` means is meant here too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (_, Self::Any) => false,
            (Self::Prefix(prefix), Self::Prefix(other)) => other.starts_with(prefix.as_str()),
            (Self::Exact(_), Self::Prefix(_)) => false,
            (_, Self::Exact(tool)) => self.matches(tool),
        }
    }
}

impl FromStr for ToolPattern {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_suffix('*') {
            Some(prefix) => ToolName::from_str(prefix).map(|_| Self::Prefix(prefix.to_owned())),
            None => text.parse().map(Self::Exact),
        }
    }
}

impl TryFrom<String> for ToolPattern {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Exact(tool) => f.write_str(tool.as_str()),
        }
    }
}

impl From<ToolPattern> for String {
    fn from(pattern: ToolPattern) -> Self {
        pattern.to_string()
    }
}

/// A capability. Signed by `key`; whoever has the `holder` key may narrow it further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writ {
    /// How much may be used, in all.
    pub budget: Budget,
    /// How many more times it may be narrowed.
    pub depth: u64,
    /// The most that a tool may do to the world.
    pub effect: Effect,
    /// Whether guardians may narrow it too, each with its own key, for children of the one trajectory that
    /// it roots. They decide every call there anyway, so handing on a part of it gives them nothing.
    #[serde(default, deserialize_with = "only_true", skip_serializing_if = "is_false")]
    pub guardians: bool,
    /// Who may narrow it.
    pub holder: KeyId,
    /// Who signs it.
    pub key: KeyId,
    /// The writ that it was narrowed from; absent on a root writ.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub parent: Option<WritId>,
    /// Who acts under it.
    pub principal: Principal,
    /// Whose it is.
    pub tenant: Tenant,
    /// The tools that may be called.
    pub tools: Vec<ToolPattern>,
    /// The one trajectory that it roots. A standing writ has none, and can only be narrowed.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub trajectory: Option<TrajectoryId>,
    /// Always `gesta.writ.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
    /// When it may be used.
    pub window: Window,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// One value, one form: no is said by leaving it out.
fn only_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match bool::deserialize(deserializer)? {
        true => Ok(true),
        false => Err(D::Error::invalid_value(Unexpected::Bool(false), &"no field for `false`")),
    }
}

impl Document for Writ {
    const TYPE: &'static str = "gesta.writ.v1";
    const ROLES: &'static [Role] = &[Role::Issuer];

    fn key(&self) -> KeyId {
        self.key
    }
}

/// A dimension in which a writ is wider than the one it claims to narrow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Widening {
    /// A tool that the parent does not have.
    #[error("tool `{0}` is not in the parent writ")]
    Tool(ToolPattern),
    /// A stronger effect.
    #[error("effect `{child}` is above the parent's ceiling `{parent}`")]
    Effect {
        /// The child's ceiling.
        child: Effect,
        /// The parent's ceiling.
        parent: Effect,
    },
    /// A larger budget.
    #[error("budget `{0}` exceeds the parent's")]
    Budget(Dimension),
    /// A longer window.
    #[error("the window reaches outside the parent's")]
    Window,
    /// Another tenant.
    #[error("tenant `{child}` is not the parent's `{parent}`")]
    Tenant {
        /// The child's tenant.
        child: Tenant,
        /// The parent's tenant.
        parent: Tenant,
    },
    /// Too deep.
    #[error("depth {child} is not below the parent's {parent}")]
    Depth {
        /// The child's depth.
        child: u64,
        /// The parent's depth.
        parent: u64,
    },
    /// Names another parent.
    #[error("it names another parent writ")]
    Parent,
    /// Signed by someone who does not hold the parent.
    #[error("it is signed by `{signer}`, but `{holder}` holds the parent writ")]
    Signer {
        /// Who signed it.
        signer: KeyId,
        /// Who may.
        holder: KeyId,
    },
}

impl Writ {
    /// Whether this writ narrows `parent` (whose id is `parent_id`) in every dimension. Returns the
    /// first that it widens. Both are destructured whole: a new dimension does not compile unchecked.
    pub fn narrows(&self, parent: &Self, parent_id: WritId) -> Result<(), Widening> {
        let Self {
            budget,
            depth,
            effect,
            guardians: _, // as with the holder
            holder: _,    // the child's holder is whoever the signer trusts with less
            key,
            parent: named,
            principal: _, // may be another agent: what it may do is what is narrowed
            tenant,
            tools,
            trajectory: _, // a binding, not a power: each trajectory needs a writ of its own
            type_: _,
            window,
        } = self;
        if *named != Some(parent_id) {
            return Err(Widening::Parent);
        }
        // Whether another signer is a guardian is for whoever knows the keys to say.
        let by_guardian = parent.guardians && parent.trajectory.is_some();
        if *key != parent.holder && !by_guardian {
            return Err(Widening::Signer { signer: *key, holder: parent.holder });
        }
        if let Some(tool) = tools.iter().find(|tool| !parent.tools.iter().any(|p| p.covers(tool))) {
            return Err(Widening::Tool(tool.clone()));
        }
        if *effect > parent.effect {
            return Err(Widening::Effect { child: *effect, parent: parent.effect });
        }
        if let Some(dimension) = parent.budget.widened_by(budget) {
            return Err(Widening::Budget(dimension));
        }
        if !parent.window.covers(window) {
            return Err(Widening::Window);
        }
        if *tenant != parent.tenant {
            return Err(Widening::Tenant { child: tenant.clone(), parent: parent.tenant.clone() });
        }
        if depth.checked_add(1).is_none_or(|depth| depth > parent.depth) {
            return Err(Widening::Depth { child: *depth, parent: parent.depth });
        }
        Ok(())
    }

    /// Whether the writ allows this tool.
    pub fn allows(&self, tool: &ToolName) -> bool {
        self.tools.iter().any(|pattern| pattern.matches(tool))
    }
}

impl Signed<Writ> {
    /// The writ's id.
    pub fn id(&self) -> WritId {
        WritId::new(self.digest())
    }
}

/// What is wrong with a chain of writs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WritChainError {
    /// No writ at all.
    #[error("there is no writ")]
    Empty,
    /// The first writ names a parent that is not there.
    #[error("the first writ of the chain names a parent")]
    Rootless,
    /// A link that widens.
    #[error("writ {index} of the chain does not narrow the one before it: {widening}")]
    Widens {
        /// Which writ, from 0.
        index: usize,
        /// In what.
        widening: Widening,
    },
}

/// The last writ of a chain in which each narrows the one before it and the first stands alone.
pub fn leaf(chain: &[Signed<Writ>]) -> Result<&Signed<Writ>, WritChainError> {
    let (first, rest) = chain.split_first().ok_or(WritChainError::Empty)?;
    if first.doc().parent.is_some() {
        return Err(WritChainError::Rootless);
    }
    let mut above = first;
    for (i, writ) in rest.iter().enumerate() {
        writ.doc()
            .narrows(above.doc(), above.id())
            .map_err(|widening| WritChainError::Widens { index: i + 1, widening })?;
        above = writ;
    }
    Ok(above)
}
