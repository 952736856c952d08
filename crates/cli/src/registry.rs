//! The registry in a store: the keys it knows, and registering more.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::amounts::Budget;
use gesta_core::document::{RegistryItem, TenantLimit};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{Tenant, TrajectoryId};
use gesta_core::keys::PrivateKey;
use gesta_core::projection::TrajectoryKind;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_core::trust::{Keyring, TrustedKey};
use gesta_runtime::authority;
use gesta_store::{Chain, Listing, Store};

use crate::key_file;
use crate::problem::Problem;
use crate::session::Session;

/// How many rows are read at a time.
const PAGE: usize = 512;
/// A registry in hand.
pub(crate) struct Registry {
    chain: Chain,
}

impl Registry {
    /// The registry of the workspace, or the only one of the store.
    pub(crate) fn open(session: &Session, store: &Arc<dyn Store>) -> Result<Self> {
        let id = match Self::find(session, store)? {
            Some(id) => id,
            None if session.wait(all(store))?.is_empty() => {
                return Err(Problem::new("this store has no registry").into());
            }
            None => {
                return Err(Problem::new("this store has several registries")
                    .hint("run it in the workspace of the one you mean, without `--store`")
                    .into());
            }
        };
        let chain = session.wait(Chain::load(Arc::clone(store), id))?;
        Ok(Self { chain })
    }

    /// The registry that the workspace names, if this store has it (`--store` may name another), or
    /// the only one of the store.
    pub(crate) fn find(session: &Session, store: &Arc<dyn Store>) -> Result<Option<TrajectoryId>> {
        if let Some(workspace) = Session::find_workspace()? {
            let id = workspace.config.registry;
            if session.wait(store.mending().trace(id))?.is_there() {
                return Ok(Some(id));
            }
        }
        match session.wait(all(store))?.as_slice() {
            [only] => Ok(Some(*only)),
            _ => Ok(None),
        }
    }

    /// The registry's own id.
    pub(crate) fn id(&self) -> TrajectoryId {
        self.chain.state().trajectory()
    }

    /// What it has folded to.
    pub(crate) fn whole(&self) -> &State {
        self.chain.state()
    }

    /// What it says.
    pub(crate) fn state(&self) -> &gesta_core::state::Registry {
        self.chain.state().registry()
    }

    /// The private key of this name, if it may sign this item now.
    pub(crate) fn signer(&self, name: &str, item: &RegistryItem) -> Result<PrivateKey> {
        let signer = key_file::read(&key_file::path(&Session::workspace()?.keys(), name))?;
        self.keys().check(signer.id(), item.roles(), None, Session::now()).map_err(|distrust| {
            Problem::new(format!("the key `{name}` may not sign this: {distrust}"))
                .hint("`gesta keys list` shows what each key may sign; `--key NAME` names another")
        })?;
        Ok(signer)
    }

    /// The keys.
    pub(crate) fn keys(&self) -> &Keyring {
        self.chain.state().registry().keys()
    }

    /// The key of a name; of several, the one that is valid for longest and was not revoked.
    pub(crate) fn named(&self, name: &str) -> Option<&TrustedKey> {
        let named = self.keys().iter().filter(|key| key.name == name);
        named.max_by_key(|key| (key.revoked_at.is_none(), key.valid.not_after))
    }

    /// The daily limits of tenants.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&Tenant, &Budget)> {
        self.chain.state().registry().limits()
    }

    /// Every daily limit that was ever set, in order, with when.
    pub(crate) fn limits_set(
        &self,
        session: &Session,
        store: &Arc<dyn Store>,
    ) -> Result<Vec<(UnixMs, TenantLimit)>> {
        let mut set = Vec::new();
        for stored in session.wait(store.entries(self.id(), 0, usize::MAX))? {
            let entry = Entry::from_bytes(&stored.bytes)?;
            if let Body::Registration(registration) = &entry.payload().body
                && let RegistryItem::Limit(limit) = &registration.statement.doc().item
            {
                set.push((entry.payload().at, limit.clone()));
            }
        }
        Ok(set)
    }

    /// Registers several things at once, each signed by a key of its own, or none of them.
    pub(crate) fn register_all(
        &mut self,
        session: &Session,
        items: &[(&RegistryItem, &PrivateKey)],
        note: &str,
    ) -> Result<()> {
        let now = Session::now();
        let append = self.chain.append(|admission| {
            let mut items = items.iter();
            items.try_for_each(|(item, signer)| {
                authority::register(admission, (item, Some(note)), *signer, now)
            })
        });
        session.wait(append)?;
        Ok(())
    }

    /// Registers something, signed, with a note for people.
    pub(crate) fn register(
        &mut self,
        session: &Session,
        item: (&RegistryItem, Option<&str>),
        signer: &PrivateKey,
    ) -> Result<()> {
        let now = Session::now();
        let append =
            self.chain.append(|admission| authority::register(admission, item, signer, now));
        let head = session.wait(append)?;
        tracing::info!(registry = %self.id(), seq = head.seq, "registered");
        Ok(())
    }
}

/// Every registry of a store.
async fn all(store: &Arc<dyn Store>) -> Result<Vec<TrajectoryId>> {
    let mut found = Vec::new();
    let standing = Some(gesta_core::projection::Status::Standing);
    let mut listing = Listing { after: None, status: standing };
    loop {
        let page = store.list(&listing, PAGE).await?;
        let registries = page.iter().filter(|row| row.summary.kind == TrajectoryKind::Registry);
        found.extend(registries.map(|row| row.trajectory));
        match page.last() {
            Some(last) if page.len() == PAGE => listing.after = Some(last.trajectory),
            _ => return Ok(found),
        }
    }
}
