//! A workspace opened for work: its store, its tools, its settings; submitting jobs to it, and
//! starting a worker in this process.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use anyhow::Result;
use gesta_core::ids::{Principal, TrajectoryId};
use gesta_core::keys::PrivateKey;
use gesta_runtime::authority::{OWNER, WORKER};
use gesta_runtime::jobs::Submitted;
use gesta_runtime::tools::Catalogue;
use gesta_runtime::{Belongings, Home, Listener, Order, Spool, Worker};

use crate::job_file::Job;
use crate::key_file;
use crate::place::Place;
use crate::session::Session;
use crate::workspace::{Config, Workspace};
use crate::writs;

/// A workspace, opened.
pub(crate) struct Workshop {
    pub(crate) workspace: Workspace,
    pub(crate) place: Place,
    home: Home,
}

impl Deref for Workshop {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl DerefMut for Workshop {
    fn deref_mut(&mut self) -> &mut Home {
        &mut self.home
    }
}

impl Workshop {
    /// Opens a workspace with these tools.
    pub(crate) fn open(session: &Session, workspace: Workspace, tools: Catalogue) -> Result<Self> {
        let place = session.place()?;
        Self::at(session, workspace, place, tools)
    }

    /// Opens a workspace whose store is here, with these tools.
    pub(crate) fn at(
        session: &Session,
        workspace: Workspace,
        place: Place,
        tools: Catalogue,
    ) -> Result<Self> {
        let store = session.wait(place.open())?;
        tracing::debug!(%place, "opened the store");
        let Config { worker, limits, registry, .. } = &workspace.config;
        let mut options = worker.options(place.lease_ms());
        options.tenant_calls = limits.tenant_calls();
        options.warn_at = limits.warn_at(options.warn_at);
        options.webhooks = workspace.webhooks()?;
        let home = Home::new(store, Arc::new(tools), *registry, options)?;
        Ok(Self { workspace, place, home })
    }

    /// The key that narrows writs and speaks for operators.
    pub(crate) fn owner(&self) -> Result<PrivateKey> {
        key_file::read(&key_file::path(&self.workspace.keys(), OWNER))
    }

    /// Submits a job, with authority for exactly what it does. The same key and content is the same
    /// job.
    pub(crate) async fn submit(
        &self,
        job: &Job,
        key: Option<&str>,
    ) -> Result<(TrajectoryId, Submitted)> {
        let root = writs::root(&self.workspace)?;
        let Job { compiled, input, budget, .. } = job;
        let order = Order { job: compiled, input: input.clone(), budget: *budget, key };
        let submitted = self.home.submit(&order, (root, &self.owner()?), Session::now()).await;
        submitted.map_err(writs::hinted)
    }

    /// Starts a worker in this process.
    pub(crate) async fn start(
        &self,
        name: Option<&str>,
        listener: Option<Listener>,
    ) -> Result<Worker> {
        let (presence, spool) = self.place.of_workers(&self.workspace.directory);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = name.map_or_else(|| host.clone(), str::to_owned);
        let key = key_file::read(&key_file::path(&self.workspace.keys(), WORKER))?;
        let spool = Some(Spool::new(spool));
        let with = Belongings { name, host, listener, spool, presence };
        Ok(self.home.start(key, with).await?)
    }
}

/// Whoever is at the terminal acts as the owner of the workspace.
pub(crate) fn operator() -> Result<Principal> {
    Ok(OWNER.parse()?)
}
