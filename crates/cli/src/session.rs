//! What one run of the command has at hand: its options, its output, the workspace, the store.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use gesta_core::time::UnixMs;
use gesta_core::trust::TrustRoot;
use gesta_runtime::Vault;
use gesta_store::{DataKeys, Store};
use tokio::runtime::Runtime;

use crate::args::Global;
use crate::output::Output;
use crate::place::Place;
use crate::problem::Problem;
use crate::workspace::Workspace;

/// One run of the command.
pub(crate) struct Session {
    pub(crate) global: Global,
    pub(crate) out: Output,
    runtime: Runtime,
}

impl Session {
    pub(crate) fn new(global: Global) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start threads")?;
        let out = Output::new(global.json, global.color);
        Ok(Self { global, out, runtime })
    }

    /// Waits for a store. Commands are plain functions: the engine that verifies brings threads of
    /// its own, which wait here too.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// For threads that wait on their own.
    pub(crate) fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// The time.
    pub(crate) fn now() -> UnixMs {
        gesta_store::clock::system()()
    }

    /// The workspace of the current directory, if it is in one.
    pub(crate) fn find_workspace() -> Result<Option<Workspace>> {
        Workspace::find(&std::env::current_dir().context("cannot tell the current directory")?)
    }

    /// The workspace of the current directory.
    pub(crate) fn workspace() -> Result<Workspace> {
        Self::find_workspace()?.ok_or_else(|| {
            Problem::new("there is no `gesta.toml` here or above")
                .hint("`gesta init` makes a workspace")
                .into()
        })
    }

    /// Where the store is.
    pub(crate) fn place(&self) -> Result<Place> {
        let authority = self.global.store_ca.as_deref();
        if let Some(store) = &self.global.store {
            let place = Place::parse(store, Path::new(""))?;
            // The workspace says how; a store by itself needs none.
            let place = match (place.file(), Self::find_workspace()) {
                (None, Ok(Some(Workspace { config, directory, .. }))) => {
                    place.reached(config.postgres.within(&directory))
                }
                _ => place,
            };
            return Ok(place.verified_by(authority));
        }
        match Self::find_workspace()? {
            Some(Workspace { config, directory, .. }) => {
                let place = Place::parse(&config.store, &directory)?;
                let place = place.reached(config.postgres.within(&directory));
                Ok(place.verified_by(authority))
            }
            None => Err(Problem::new("no store: there is no `gesta.toml` here or above")
                .hint("`gesta init` makes a workspace; `--store` names a store by itself")
                .into()),
        }
    }

    /// The store, opened.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>> {
        let place = self.place()?;
        let store = self.wait(place.open())?;
        tracing::debug!(%place, "opened the store");
        Ok(store)
    }

    /// The store, opened for a command that changes nothing.
    pub(crate) fn store_to_read(&self) -> Result<Arc<dyn Store>> {
        let place = self.place()?;
        let store = self.wait(place.open_to_read())?;
        tracing::debug!(%place, "opened the store");
        Ok(store)
    }

    /// Where the data keys of a store's sensitive values are.
    pub(crate) fn data_keys(&self) -> Result<Arc<dyn DataKeys>> {
        let place = self.place()?;
        match Self::find_workspace() {
            Ok(Some(workspace)) => workspace.data_keys(&place),
            _ => place.data_keys_at().as_data_keys(),
        }
    }

    /// The sensitive values of a store.
    pub(crate) fn vault(&self, store: &Arc<dyn Store>) -> Result<Vault> {
        Ok(Vault::new(Arc::clone(store), self.data_keys()?))
    }

    /// The trust root: the one given, or the workspace's.
    pub(crate) fn trust(given: Option<&Path>) -> Result<TrustRoot> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => match Self::find_workspace()? {
                Some(workspace) => workspace.trust(),
                None => {
                    return Err(Problem::new(
                        "no trust root: there is no `gesta.toml` here or above",
                    )
                    .hint("`--trust FILE` names one; `gesta keys export NAME` prints one")
                    .into());
                }
            },
        };
        let text = std::fs::read(&path)
            .with_context(|| format!("cannot read the trust root `{}`", path.display()))?;
        TrustRoot::parse(&text).with_context(|| format!("cannot use `{}`", path.display()))
    }

    /// Tells people what to do next, after everything that was printed; programs are not told.
    pub(crate) fn hint(&mut self, text: &str) -> Result<()> {
        self.out.flush()?;
        if !self.out.is_json() {
            Self::note(&format!("hint: {text}"));
        }
        Ok(())
    }

    /// Tells people, not programs: a line on stderr.
    pub(crate) fn note(text: &str) {
        use std::io::Write as _;
        // Nobody is left to be told when stderr is gone.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.out.flush();
    }
}
