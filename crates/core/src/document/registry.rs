//! What is registered, and by whom.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::amounts::{Amounts, Budget, Span};
use crate::content::some;
use crate::digest::{Digest, EntryId, WritId};
use crate::ids::{Principal, Tenant, ToolName, TrajectoryId};
use crate::keys::KeyId;
use crate::signed::Tag;
use crate::time::UnixMs;
use crate::trust::{Role, TrustedKey};

/// What a freeze stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FreezeTarget {
    /// One tool.
    Tool(ToolName),
    /// One principal.
    Principal(Principal),
    /// One tenant.
    Tenant(Tenant),
    /// One trajectory.
    Trajectory(TrajectoryId),
    /// Everything.
    All,
}

impl fmt::Display for FreezeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(tool) => write!(f, "tool {tool}"),
            Self::Principal(principal) => write!(f, "principal {principal}"),
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
            Self::Trajectory(trajectory) => write!(f, "job {trajectory}"),
            Self::All => f.write_str("everything"),
        }
    }
}

/// What is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistryItem {
    /// A key with its roles and validity.
    Key(TrustedKey),
    /// A key is compromised.
    RevokeKey(KeyRevocation),
    /// A writ, and with it all that were narrowed from it, counts no more.
    RevokeWrit(WritId),
    /// The policy set in force, by digest; its content is a blob.
    Policy(Digest),
    /// The tool catalogue in force, by digest; its content is a blob.
    Catalogue(Digest),
    /// A tenant's budget.
    Limit(TenantLimit),
    /// Stop.
    Freeze(FreezeTarget),
    /// Go on.
    Unfreeze(FreezeTarget),
    /// A Guardian stops a trajectory, a principal, or everything of a tenant, because of how it behaves.
    Quarantine(FreezeTarget),
    /// A person lifts a quarantine.
    Lift(FreezeTarget),
    /// So much of a budget is used that people are to be warned.
    Reached(Threshold),
}

impl RegistryItem {
    /// Who may sign it: in an emergency an operator too.
    pub fn roles(&self) -> &'static [Role] {
        match self {
            Self::Freeze(_) | Self::Unfreeze(_) | Self::Lift(_) => &[Role::Owner, Role::Operator],
            Self::Quarantine(_) | Self::Reached(_) => {
                &[Role::Owner, Role::Operator, Role::Guardian]
            }
            _ => &[Role::Owner],
        }
    }
}

/// That a key is compromised, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRevocation {
    /// Since when others may have it; never later than the registration.
    pub at: UnixMs,
    /// The key.
    pub key: KeyId,
}

/// What a tenant may use a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantLimit {
    /// How much.
    pub daily: Budget,
    /// Whose.
    pub tenant: Tenant,
}

/// That a part of a budget is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// How much may be used.
    pub limit: Budget,
    /// Of what.
    pub of: Span,
    /// The threshold, in percent.
    pub percent: u8,
    /// Whose.
    pub tenant: Tenant,
    /// How much was used, as far as was known.
    pub used: Amounts,
}

/// A change of the registry. It names the entry that it follows, so it cannot be played again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistrationStatement {
    /// When.
    pub at: UnixMs,
    /// What.
    pub item: RegistryItem,
    /// Who signs.
    pub key: KeyId,
    /// Why, for people.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The entry that it follows.
    pub parent: EntryId,
    /// The registry.
    pub registry: TrajectoryId,
    /// Always `gesta.registration.v1`.
    #[serde(rename = "type")]
    pub type_: Tag<Self>,
}
