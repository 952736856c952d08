//! The signed documents of an entry, and whether their signatures are genuine and count.

use gesta_core::entry::Body;
use gesta_core::ids::Tenant;
use gesta_core::keys::KeyId;
use gesta_core::time::UnixMs;
use gesta_core::trust::{Keyring, Role};
use gesta_core::verification::{Needs, SignedRef, signed};
use serde::Serialize;

/// What is known of one signature.
#[derive(Debug, Serialize)]
pub(crate) struct SignatureStatus {
    /// The type of what is signed.
    #[serde(rename = "type")]
    pub(crate) type_: &'static str,
    /// The key.
    pub(crate) key: KeyId,
    /// What the key is called, if it is known.
    pub(crate) name: Option<String>,
    /// Whether the signature is this key's.
    pub(crate) genuine: bool,
    /// Whether the key may sign this; why not, if not; absent when no keys are known.
    pub(crate) trusted: Option<bool>,
    /// Why it may, or may not.
    pub(crate) why: String,
}

/// Looks at signatures with the keys that are known.
pub(crate) struct Looking<'a> {
    pub(crate) keyring: Option<&'a Keyring>,
    pub(crate) tenant: Option<&'a Tenant>,
    pub(crate) at: UnixMs,
}

impl Looking<'_> {
    /// Every signature of a body.
    pub(crate) fn at(&self, body: &Body) -> Vec<SignatureStatus> {
        signed(body).iter().map(|document| self.status(document)).collect()
    }

    fn status(&self, document: &SignedRef<'_>) -> SignatureStatus {
        let known = self.keyring.and_then(|keys| keys.get(&document.key));
        let (trusted, why) = match document.needs {
            Needs::Role(roles) | Needs::Registry(roles) => self.by_role(document.key, roles),
            Needs::Holder | Needs::Narrower
                if known.is_some_and(|key| key.revoked_at.is_some()) =>
            {
                (Some(false), "the key was revoked".to_owned())
            }
            Needs::Holder => (Some(true), "as holder of the writ above".to_owned()),
            Needs::Narrower => match self.by_role(document.key, &[Role::Guardian]) {
                (Some(false), _) => (Some(true), "as holder of the writ above".to_owned()),
                guardian => guardian,
            },
        };
        SignatureStatus {
            type_: document.type_,
            key: document.key,
            name: known.map(|key| key.name.clone()),
            genuine: document.genuine(),
            trusted,
            why,
        }
    }

    fn by_role(&self, key: KeyId, roles: &[Role]) -> (Option<bool>, String) {
        let named: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        let named = named.join(" or ");
        match self.keyring.map(|keys| keys.check(key, roles, self.tenant, self.at)) {
            None => (None, format!("needs {named}; no keys to compare with")),
            Some(Ok(())) => (Some(true), format!("as {named}")),
            Some(Err(distrust)) => (Some(false), distrust.to_string()),
        }
    }
}
