//! Whether the writs of a trajectory count.

use gesta_core::body::Mandate;
use gesta_core::ids::Tenant;
use gesta_core::keys::KeyId;
use gesta_core::signed::Signed;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_core::trust::{Keyring, Role};
use gesta_core::verification::{Needs, needs_of_writ};
use gesta_core::writ::Writ;

use super::Desk;

/// Whose signature under a writ must be trusted, for what, and when.
pub(super) struct WritSigner {
    key: KeyId,
    roles: &'static [Role],
    tenant: Tenant,
    at: UnixMs,
}

/// Those whose signatures the chain of writs rests on: the issuer of the first, and every guardian who
/// handed one on with a key that was good when the trajectory began.
pub(super) fn writ_signers(mandate: &Mandate, (begun, at): (UnixMs, UnixMs)) -> Vec<WritSigner> {
    let mut above: Option<&Writ> = None;
    let mut signers = Vec::new();
    for writ in mandate.writs.iter().map(Signed::doc) {
        if let Needs::Role(roles) = needs_of_writ(writ, above) {
            let at = if above.is_none() { at } else { begun };
            signers.push(WritSigner { key: writ.key, roles, tenant: writ.tenant.clone(), at });
        }
        above = Some(writ);
    }
    signers
}

/// Whether every writ of the chain is signed by the key that it names.
pub(super) fn check_writs(mandate: &Mandate) -> Result<(), String> {
    if mandate.writs.is_empty() {
        return Err("there is no writ".to_owned());
    }
    match mandate.writs.iter().find(|writ| !writ.verifies()) {
        Some(writ) => Err(format!("the signature of writ `{}` does not hold", writ.digest())),
        None => Ok(()),
    }
}

impl Desk {
    /// Whether a call that was allowed may still be made under a registry that has moved since: the writ and
    /// those above it, those who approved, and this worker's own keys. If not, why.
    pub(crate) fn authorised(
        &self,
        approved_by: &[(KeyId, UnixMs)],
        state: &State,
    ) -> Result<(), String> {
        #[cfg(feature = "sabotage")]
        if self.shared.options.sabotage == Some(crate::Sabotage::IgnoreRevocation) {
            return Ok(());
        }
        let registry = state.registry();
        if let Some(revoked) = self.writ_chain.iter().find(|writ| registry.is_revoked(writ)) {
            return Err(format!("writ `{revoked}` was revoked"));
        }
        self.writ(Some(state))?;
        let tenant = self.state_at_claim.tenant();
        for (key, at) in approved_by {
            let trusted = registry.keys().check(*key, &[Role::Approver], tenant, *at);
            trusted.map_err(|distrust| format!("an approval does not count: {distrust}"))?;
        }
        self.shared.may_sign().map_err(|distrust| distrust.to_string())
    }

    /// Whether the writ counts under this registry, and if not, why.
    pub(crate) fn writ(&self, registry: Option<&State>) -> Result<(), String> {
        self.writ.clone()?;
        let none = Keyring::default();
        let keys = registry.map_or(&none, |state| state.registry().keys());
        for WritSigner { key, roles, tenant, at } in &self.signers {
            keys.check(*key, roles, Some(tenant), *at).map_err(|distrust| distrust.to_string())?;
        }
        Ok(())
    }
}
