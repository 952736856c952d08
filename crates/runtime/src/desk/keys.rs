//! Whether what this worker signs counts.

use gesta_core::keys::Sign as _;
use gesta_core::trust::{Distrust, Role};

use super::Shared;

impl Shared {
    /// Whether this worker's signatures count, now and for as long as a call may take to be recorded: else
    /// it begins nothing new. Without a registry nobody says otherwise.
    pub(crate) fn may_sign(&self) -> Result<(), Distrust> {
        let Some(state) = self.registry() else { return Ok(()) };
        let (now, keys) = (self.pulse.now(), state.registry().keys());
        for (key, role) in [(&self.guardian, Role::Guardian), (&self.key, Role::Executor)] {
            for at in [now, now.plus(self.options.lease_ms)] {
                keys.check(key.id(), &[role], None, at)?;
            }
        }
        Ok(())
    }

    /// Why nothing counts that this worker would record now, if nothing does: its key was revoked, or has run
    /// out. What it has sent is then left to others, who recover it as the tool declares.
    pub(crate) fn disowned(&self) -> Option<Distrust> {
        let (state, now) = (self.registry()?, self.pulse.now());
        let keys = state.registry().keys();
        keys.check_seen(self.key.id(), &[Role::Executor], None, now, Some(now)).err()
    }
}
