//! The signed documents of an entry, and whether their signatures are genuine and count.

use gesta_core::body::{Mandate, Origin, Purpose};
use gesta_core::entry::Body;
use gesta_core::ids::Tenant;
use gesta_core::keys::KeyId;
use gesta_core::signed::{Document, Signed};
use gesta_core::time::UnixMs;
use gesta_core::trust::{Keyring, Role};
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
        match body {
            Body::Root(root) => match &root.purpose {
                Purpose::Job(mandate) | Purpose::Session(mandate) => self.writs(mandate),
                Purpose::Registry { .. } => Vec::new(),
            },
            Body::Branch(branch) => self.writs(&branch.mandate),
            Body::Started(started) => {
                vec![self.by_role(&started.decision), self.by_role(&started.permit)]
            }
            Body::Commit(commit) => match &commit.origin {
                Origin::Effect { evidence, receipt, .. } => evidence
                    .iter()
                    .map(|report| self.by_role(report))
                    .chain([self.by_role(receipt)])
                    .collect(),
                _ => Vec::new(),
            },
            Body::Failure(failure) => failure
                .evidence
                .iter()
                .map(|report| self.by_role(report))
                .chain([self.by_role(&failure.receipt)])
                .collect(),
            Body::Rejection(rejection) => {
                vec![self.by_role(&rejection.decision), self.by_role(&rejection.receipt)]
            }
            Body::PendingApproval(pending) => vec![self.by_role(&pending.decision)],
            Body::Approval(approval) => vec![self.by_role(&approval.statement)],
            Body::Resolution(resolution) => vec![self.by_role(&resolution.statement)],
            Body::LateEffect(late) => vec![self.by_role(&late.report)],
            Body::Delegation(delegation) => vec![self.by_holder(&delegation.writ)],
            Body::Registration(registration) => {
                let roles = registration.statement.doc().item.roles();
                vec![self.needing(&registration.statement, roles)]
            }
            _ => Vec::new(),
        }
    }

    /// The first writ needs an issuer; those below it the holder of the one above.
    fn writs(&self, mandate: &Mandate) -> Vec<SignatureStatus> {
        let (first, rest) = match mandate.writs.split_first() {
            Some((first, rest)) => (Some(first), rest),
            None => (None, &[][..]),
        };
        let first = first.map(|writ| self.needing(writ, &[Role::Issuer]));
        first.into_iter().chain(rest.iter().map(|writ| self.by_holder(writ))).collect()
    }

    fn by_role<D: Document>(&self, document: &Signed<D>) -> SignatureStatus {
        self.needing(document, D::ROLES)
    }

    fn needing<D: Document>(&self, document: &Signed<D>, roles: &[Role]) -> SignatureStatus {
        let key = document.doc().key();
        let named: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        let named = named.join(" or ");
        let (trusted, why) =
            match self.keyring.map(|keys| keys.check(key, roles, self.tenant, self.at)) {
                None => (None, format!("needs {named}; no keys to compare with")),
                Some(Ok(())) => (Some(true), format!("as {named}")),
                Some(Err(distrust)) => (Some(false), distrust.to_string()),
            };
        self.status(document, trusted, why)
    }

    fn by_holder<D: Document>(&self, document: &Signed<D>) -> SignatureStatus {
        let known = self.keyring.and_then(|keys| keys.get(&document.doc().key()));
        let trusted = known.and_then(|key| key.revoked_at).is_none();
        let why = if trusted { "as holder of the writ above" } else { "the key was revoked" };
        self.status(document, Some(trusted), why.to_owned())
    }

    fn status<D: Document>(
        &self,
        document: &Signed<D>,
        trusted: Option<bool>,
        why: String,
    ) -> SignatureStatus {
        let key = document.doc().key();
        let known = self.keyring.and_then(|keys| keys.get(&key));
        SignatureStatus {
            type_: D::TYPE,
            key,
            name: known.map(|key| key.name.clone()),
            genuine: document.verifies(),
            trusted,
            why,
        }
    }
}
