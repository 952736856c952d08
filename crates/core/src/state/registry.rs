//! The registry: `registration`, and what folding them yields.

use rpds::RedBlackTreeMapSync;

use super::{State, Why};
use crate::amounts::{Budget, Span};
use crate::body::Registration;
use crate::digest::{Digest, WritId};
use crate::document::{FreezeTarget, RegistryItem};
use crate::entry::Entry;
use crate::ids::Tenant;
use crate::keys::KeyId;
use crate::projection::TrajectoryKind;
use crate::time::{UnixMs, Window};
use crate::trust::{Keyring, Role, TrustedKey};

/// What the registry says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registry {
    keys: Keyring,
    revoked_writs: RedBlackTreeMapSync<WritId, Registered>,
    policy: Option<Digest>,
    catalogue: Option<Digest>,
    limits: RedBlackTreeMapSync<Tenant, Budget>,
    frozen: RedBlackTreeMapSync<FreezeTarget, Registered>,
    quarantined: RedBlackTreeMapSync<FreezeTarget, Registered>,
    /// The thresholds that tenants have reached on their newest day, and below standing writs.
    reached: RedBlackTreeMapSync<(Tenant, Option<WritId>), (Span, u8)>,
}

/// When something was registered, by whom and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// When.
    pub at: UnixMs,
    /// Who signed.
    pub key: KeyId,
    /// Why, for people.
    pub note: Option<String>,
    /// The number of the entry.
    pub seq: u64,
}

impl Registry {
    pub(super) fn owned_by(owner: KeyId) -> Result<Self, Why> {
        KeyId::parse(&owner.to_string())?;
        let mut registry = Self::default();
        registry.keys.enrol(TrustedKey {
            key: owner,
            name: "owner".to_owned(),
            revoked_at: None,
            roles: [Role::Owner].into(),
            tenant: None,
            valid: Window { not_before: UnixMs(0), not_after: UnixMs::LAST },
        });
        Ok(registry)
    }

    /// The keys, with their roles.
    pub fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// Whether a writ was revoked.
    pub fn is_revoked(&self, writ: &WritId) -> bool {
        self.revoked_writs.contains_key(writ)
    }

    /// How a writ was revoked, if it was.
    pub fn revocation(&self, writ: &WritId) -> Option<&Registered> {
        self.revoked_writs.get(writ)
    }

    /// The policy set in force.
    pub fn policy(&self) -> Option<Digest> {
        self.policy
    }

    /// The tool catalogue in force.
    pub fn catalogue(&self) -> Option<Digest> {
        self.catalogue
    }

    /// A tenant's daily limit.
    pub fn limit(&self, tenant: &Tenant) -> Option<&Budget> {
        self.limits.get(tenant)
    }

    /// The tenants whose use is limited, with their daily limits.
    pub fn limits(&self) -> impl Iterator<Item = (&Tenant, &Budget)> {
        self.limits.iter()
    }

    /// Whether something is frozen by name; a freeze of everything is asked for by itself.
    pub fn is_frozen(&self, target: &FreezeTarget) -> bool {
        self.frozen.contains_key(target)
    }

    /// What is frozen, and since when.
    pub fn frozen(&self) -> impl Iterator<Item = (&FreezeTarget, &Registered)> {
        self.frozen.iter()
    }

    /// Whether a Guardian has put something into quarantine, and nobody has lifted it.
    pub fn is_quarantined(&self, target: &FreezeTarget) -> bool {
        self.quarantined.contains_key(target)
    }

    /// What is in quarantine, and since when.
    pub fn quarantined(&self) -> impl Iterator<Item = (&FreezeTarget, &Registered)> {
        self.quarantined.iter()
    }

    /// The highest threshold of an account that was registered, in percent; 0 when none was. Of days only
    /// the newest is known.
    pub fn reached(&self, tenant: &Tenant, of: Span) -> u8 {
        let known = self.reached.get(&(tenant.clone(), writ_of(of)));
        known.filter(|(span, _)| *span == of).map_or(0, |(_, percent)| *percent)
    }

    fn register(&mut self, item: &RegistryItem, registered: Registered) {
        match item {
            RegistryItem::Key(key) => self.keys.enrol(key.clone()),
            RegistryItem::RevokeKey(revocation) => {
                self.keys.revoke(&revocation.key, revocation.at.min(registered.at));
            }
            RegistryItem::RevokeWrit(writ) => {
                if !self.is_revoked(writ) {
                    self.revoked_writs.insert_mut(*writ, registered);
                }
            }
            RegistryItem::Policy(digest) => self.policy = Some(*digest),
            RegistryItem::Catalogue(digest) => self.catalogue = Some(*digest),
            RegistryItem::Limit(limit) => {
                self.limits.insert_mut(limit.tenant.clone(), limit.daily);
            }
            RegistryItem::Freeze(target) => {
                self.frozen.insert_mut(target.clone(), registered);
            }
            RegistryItem::Unfreeze(target) => {
                self.frozen.remove_mut(target);
            }
            RegistryItem::Quarantine(target) => {
                self.quarantined.insert_mut(target.clone(), registered);
            }
            RegistryItem::Lift(target) => {
                self.quarantined.remove_mut(target);
            }
            RegistryItem::Reached(threshold) => {
                let of = threshold.of;
                let account = (threshold.tenant.clone(), writ_of(of));
                let new = (of, threshold.percent);
                // A day after, or more of the same.
                if self.reached.get(&account).is_none_or(|known| *known < new) {
                    self.reached.insert_mut(account, new);
                }
            }
        }
    }
}

fn writ_of(of: Span) -> Option<WritId> {
    match of {
        Span::Day(_) => None,
        Span::Writ(writ) => Some(writ),
    }
}

impl State {
    pub(super) fn registration(&mut self, body: &Registration, entry: &Entry) -> Result<(), Why> {
        let at = entry.payload().at;
        if self.kind() != Some(TrajectoryKind::Registry) {
            return Err(Why::WrongKindOfTrajectory);
        }
        let statement = body.statement.doc();
        if statement.registry != self.trajectory {
            return Err(Why::OtherTrajectory);
        }
        if Some(statement.parent) != self.head.map(|head| head.id) {
            return Err(Why::Parent);
        }
        self.registry
            .keys
            .check(statement.key, statement.item.roles(), None, at)
            .map_err(Why::Signer)?;
        if let RegistryItem::Key(key) = &statement.item {
            KeyId::parse(&key.key.to_string())?;
        }
        let (key, note) = (statement.key, statement.note.clone());
        let registered = Registered { at, key, note, seq: entry.seq() };
        self.registry.register(&statement.item, registered);
        Ok(())
    }
}
