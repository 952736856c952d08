//! The tool catalogue that the registry names. Once there is one, it binds every worker: a tool that is not
//! in it, or that a worker has otherwise, is not called.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gesta_core::digest::Digest;
use gesta_core::guardian::Unpublished;
use gesta_core::ids::ToolName;
use gesta_core::state::State;
use gesta_store::Store;

use crate::desk::Desk;
use crate::error::RunError;
use crate::tools::{Catalogue, Definitions};

/// The catalogues that registries have named so far, by digest, so that whoever still holds an older state of
/// the registry finds what that one names.
#[derive(Default)]
pub(crate) struct Published(Mutex<BTreeMap<Digest, Arc<Definitions>>>);

impl Published {
    /// Reads what a registry names, unless it is known. What cannot be had or understood stays unknown, and
    /// lets nothing be called.
    pub(crate) async fn learn(
        &self,
        store: &dyn Store,
        registry: Option<&State>,
    ) -> Result<(), RunError> {
        let Some(digest) = digest(registry).filter(|digest| !self.knows(digest)) else {
            return Ok(());
        };
        match read(store, digest).await? {
            Ok(definitions) => self.insert(digest, Arc::new(definitions)),
            Err(why) => tracing::error!("{why}; every call is refused"),
        }
        Ok(())
    }

    /// What a digest stands for.
    pub(crate) fn insert(&self, digest: Digest, definitions: Arc<Definitions>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, definitions);
    }

    /// Whether a worker has a tool as it is published, if anything is.
    pub(crate) fn check(
        &self,
        registry: Option<&State>,
        own: &Catalogue,
        tool: &ToolName,
    ) -> Result<(), Unpublished> {
        let Some(digest) = digest(registry) else { return Ok(()) };
        if digest == own.digest() || own.get(tool).is_none() {
            return Ok(());
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned();
        let published = known.ok_or(Unpublished::Unreadable)?;
        own.as_published(&published, tool)
    }

    fn knows(&self, digest: &Digest) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(digest)
    }
}

impl Desk {
    /// Whether the published catalogue, if there is one, has the tool as this worker has it.
    pub(crate) fn published(
        &self,
        tool: &ToolName,
        registry: Option<&State>,
    ) -> Result<(), Unpublished> {
        self.shared.published.check(registry, &self.shared.catalogue, tool)
    }
}

/// What a digest stands for, or why it cannot be told.
pub(crate) async fn read(
    store: &dyn Store,
    digest: Digest,
) -> Result<Result<Definitions, String>, RunError> {
    let Some(bytes) = store.blob(digest).await? else {
        return Ok(Err(format!("the published tool catalogue {digest} is not at hand")));
    };
    Ok(Definitions::read(&bytes)
        .map_err(|why| format!("the published tool catalogue {digest} cannot be read: {why}")))
}

/// The catalogue that a registry names.
pub(crate) fn digest(registry: Option<&State>) -> Option<Digest> {
    registry.and_then(|registry| registry.registry().catalogue())
}
