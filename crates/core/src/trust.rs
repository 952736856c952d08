//! Whose signature counts for what: roles, the trust root that a verifier supplies, the keyring
//! that it becomes. Keys that travel inside a bundle are hints and never get in here.

use std::collections::BTreeSet;
use std::fmt;

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::content::some;
use crate::ids::Tenant;
use crate::json::{Canon, JsonError};
use crate::keys::{KeyError, KeyId, PublicKey, Signature};
use crate::time::{UnixMs, Window};

/// What a key may sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Registrations: keys, revocations, policies, catalogues, limits.
    Owner,
    /// Writs that no other writ stands above.
    Issuer,
    /// Decisions and permits.
    Guardian,
    /// Receipts and effects.
    Executor,
    /// Approvals.
    Approver,
    /// Resolutions of doubts, freezes.
    Operator,
    /// Checkpoints of the transparency log.
    Sealer,
    /// Cosignatures on checkpoints.
    Witness,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 8] = [
        Self::Owner,
        Self::Issuer,
        Self::Guardian,
        Self::Executor,
        Self::Approver,
        Self::Operator,
        Self::Sealer,
        Self::Witness,
    ];

    /// The role's name, as in a trust root.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Issuer => "issuer",
            Self::Guardian => "guardian",
            Self::Executor => "executor",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Sealer => "sealer",
            Self::Witness => "witness",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A key with what it is trusted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKey {
    /// The key.
    pub key: KeyId,
    /// What people call it.
    pub name: String,
    /// From when it was revoked as compromised; rotation is `valid.not_after` instead.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<UnixMs>,
    /// What it may sign.
    #[serde(deserialize_with = "in_order")]
    pub roles: BTreeSet<Role>,
    /// The only tenant it may sign for; absent means every tenant.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// When it may sign.
    pub valid: Window,
}

impl TrustedKey {
    /// Whether the key was not revoked, or only after what it signed had been seen.
    pub(crate) fn unrevoked(&self, seen: Option<UnixMs>) -> Result<(), Distrust> {
        match self.revoked_at {
            Some(revoked_at) if seen.is_none_or(|seen| seen >= revoked_at) => {
                Err(Distrust::Revoked { key: self.key, revoked_at })
            }
            _ => Ok(()),
        }
    }
}

/// Reads roles in the order that they are written in, so that one set has one form.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<Role>, D::Error> {
    let listed = Vec::<Role>::deserialize(deserializer)?;
    if listed.is_sorted_by(|one, next| one < next) {
        return Ok(listed.into_iter().collect());
    }
    let order = Role::ALL.map(|role| format!("`{role}`")).join(", ");
    Err(de::Error::custom(format_args!("roles are listed once each, in the order {order}")))
}

/// Why a signature does not count, although it may be genuine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The trust root does not know the key.
    #[error("key `{0}` is not in the trust root")]
    Unknown(KeyId),
    /// The key lacks the role.
    #[error("key `{key}` lacks the role {needed} that this document needs")]
    WrongRole {
        /// The key.
        key: KeyId,
        /// The roles that would do.
        needed: String,
    },
    /// The key is another tenant's.
    #[error("key `{key}` may not sign for tenant `{tenant}`")]
    WrongTenant {
        /// The key.
        key: KeyId,
        /// The tenant it signed for.
        tenant: Tenant,
    },
    /// Outside the key's validity.
    #[error("key `{key}` was not valid at {at}")]
    OutsideValidity {
        /// The key.
        key: KeyId,
        /// When it signed.
        at: UnixMs,
    },
    /// The key was revoked. Nothing here proves that the signature is older than the revocation.
    #[error(
        "key `{key}` was revoked at {revoked_at}, and nothing proves that this was signed before"
    )]
    Revoked {
        /// The key.
        key: KeyId,
        /// From when.
        revoked_at: UnixMs,
    },
}

/// The file that a verifier supplies: the only keys that count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustRoot {
    /// The keys.
    pub keys: Vec<TrustedKey>,
    /// Always [`TrustRoot::TYPE`].
    #[serde(rename = "type")]
    pub type_: String,
}

/// Why a trust root was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// Not strict JSON of the right shape.
    #[error("the trust root cannot be read: {0}")]
    Json(JsonError),
    /// Another type of document.
    #[error("the trust root has the type `{0}`, expected `gesta.trust.v1`")]
    Type(String),
    /// A malformed or weak key.
    #[error("the trust root names a bad key: {0}")]
    Key(KeyError),
    /// The same key twice.
    #[error("the trust root names the key `{0}` twice")]
    Duplicate(KeyId),
}

// The cause is part of the message: as a source it would be told twice.
impl From<JsonError> for TrustError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<KeyError> for TrustError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl TrustRoot {
    /// The type of the document.
    pub const TYPE: &'static str = "gesta.trust.v1";

    /// A trust root of these keys.
    pub fn new(keys: Vec<TrustedKey>) -> Self {
        Self { keys, type_: Self::TYPE.to_owned() }
    }

    /// Reads a trust root from JSON text.
    pub fn parse(text: &[u8]) -> Result<Self, TrustError> {
        let root: Self = Canon::parse(text)?.read()?;
        if root.type_ != Self::TYPE {
            return Err(TrustError::Type(root.type_));
        }
        root.keyring()?;
        Ok(root)
    }

    /// The keyring of these keys. Weak and repeated keys are refused.
    pub fn keyring(&self) -> Result<Keyring, TrustError> {
        let mut keyring = Keyring::default();
        for key in &self.keys {
            KeyId::parse(&key.key.to_string())?;
            if keyring.get(&key.key).is_some() {
                return Err(TrustError::Duplicate(key.key));
            }
            keyring.enrol(key.clone());
        }
        Ok(keyring)
    }
}

/// Keys by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring(RedBlackTreeMapSync<KeyId, Enrolled>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Enrolled {
    key: TrustedKey,
    /// None if its id is not the bytes of a key.
    public: Option<PublicKey>,
}

impl Keyring {
    /// A key, if it is known.
    pub fn get(&self, key: &KeyId) -> Option<&TrustedKey> {
        self.0.get(key).map(|enrolled| &enrolled.key)
    }

    /// Whether `signature` over `message` was made with `key`, be it known or not. Says nothing of
    /// trust, and the same as [`KeyId::verifies`], which unpacks the key each time.
    pub fn verifies(&self, key: &KeyId, message: &[u8], signature: &Signature) -> bool {
        match self.0.get(key) {
            Some(Enrolled { public: Some(public), .. }) => public.verifies(message, signature),
            _ => key.verifies(message, signature),
        }
    }

    /// All keys, by id.
    pub fn iter(&self) -> impl Iterator<Item = &TrustedKey> {
        self.0.values().map(|enrolled| &enrolled.key)
    }

    /// Adds a key, or replaces what was said of it. A revocation stands for ever.
    pub fn enrol(&mut self, mut key: TrustedKey) {
        let revoked = self.get(&key.key).and_then(|known| known.revoked_at);
        key.revoked_at = [key.revoked_at, revoked].into_iter().flatten().min();
        let public = key.key.public();
        self.0.insert_mut(key.key, Enrolled { key, public });
    }

    /// Marks a key as compromised. The earlier of two revocations stands.
    pub fn revoke(&mut self, key: &KeyId, at: UnixMs) {
        if let Some(known) = self.0.get(key) {
            let mut revoked = known.clone();
            let earlier = known.key.revoked_at;
            revoked.key.revoked_at = Some(earlier.map_or(at, |earlier| earlier.min(at)));
            self.0.insert_mut(*key, revoked);
        }
    }

    /// Adds what a verified registry says. What this keyring says of a key stands, except that a
    /// revocation on either side counts, and so does the earlier end: a key that was rotated signs no
    /// longer than the registry says, whatever an older trust root allows.
    pub fn extend(&mut self, registry: &Self) {
        for key in registry.iter() {
            let Some(known) = self.0.get(&key.key) else {
                self.enrol(key.clone());
                continue;
            };
            let mut ending = known.clone();
            let valid = &mut ending.key.valid;
            valid.not_after = valid.not_after.min(key.valid.not_after);
            self.0.insert_mut(key.key, ending);
            if let Some(at) = key.revoked_at {
                self.revoke(&key.key, at);
            }
        }
    }

    /// Whether a signature by `key` counts: one of `roles`, for `tenant`, at `at`.
    pub fn check(
        &self,
        key: KeyId,
        roles: &[Role],
        tenant: Option<&Tenant>,
        at: UnixMs,
    ) -> Result<(), Distrust> {
        self.check_seen(key, roles, tenant, at, None)
    }

    /// As [`Keyring::check`], for what somebody had seen at `seen`: a revocation after that does not touch it.
    pub fn check_seen(
        &self,
        key: KeyId,
        roles: &[Role],
        tenant: Option<&Tenant>,
        at: UnixMs,
        seen: Option<UnixMs>,
    ) -> Result<(), Distrust> {
        let known = self.get(&key).ok_or(Distrust::Unknown(key))?;
        known.unrevoked(seen)?;
        if !roles.iter().any(|role| known.roles.contains(role)) {
            let needed =
                roles.iter().map(|role| format!("`{role}`")).collect::<Vec<_>>().join(" or ");
            return Err(Distrust::WrongRole { key, needed });
        }
        if let (Some(only), Some(tenant)) = (&known.tenant, tenant)
            && only != tenant
        {
            return Err(Distrust::WrongTenant { key, tenant: tenant.clone() });
        }
        if !known.valid.contains(at) {
            return Err(Distrust::OutsideValidity { key, at });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;
    use crate::keys::Sign as _;

    #[test]
    fn a_keyring_verifies_what_the_key_itself_verifies() {
        let (known, unknown) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
        let (identity, nothing) = (format!("01{}", "00".repeat(31)), "02".repeat(32));
        let id = |hex: &str| Canon::of(hex).unwrap().read::<KeyId>().unwrap();
        let mut keyring = Keyring::default();
        for key in [known.id(), id(&identity), id(&nothing)] {
            keyring.enrol(TrustedKey {
                key,
                name: "any".to_owned(),
                revoked_at: None,
                roles: BTreeSet::new(),
                tenant: None,
                valid: Window { not_before: UnixMs(0), not_after: UnixMs::LAST },
            });
        }
        let mut forged = [0; 64];
        forged[0] = 1;
        let signatures = [known.sign(b"m"), unknown.sign(b"m"), Signature::from_bytes(forged)];
        let mut verified = 0;
        for key in [known.id(), unknown.id(), id(&identity), id(&nothing)] {
            for signature in &signatures {
                for message in [b"m", b"n"] {
                    let verifies = key.verifies(message, signature);
                    assert_eq!(keyring.verifies(&key, message, signature), verifies);
                    verified += usize::from(verifies);
                }
            }
        }
        assert_eq!(verified, 2);
    }
}
