//! A workspace opened for work: its store, its tools, its settings; submitting jobs to it, and
//! starting a worker in this process.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use gesta_core::document::Reason;
use gesta_core::ids::{Principal, TrajectoryId};
use gesta_core::keys::PrivateKey;
use gesta_core::signed::Signed;
use gesta_core::writ::Writ;
use gesta_runtime::authority::{OWNER, WORKER};
use gesta_runtime::jobs::Submitted;
use gesta_runtime::tools::Catalogue;
use gesta_runtime::{Belongings, Home, Listener, Order, Sealer, Spool, Worker};

use crate::job_file::Job;
use crate::key_file;
use crate::pinning::Pinned;
use crate::place::Place;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::sealing;
use crate::session::Session;
use crate::workspace::{Config, Workspace};
use crate::writs;

/// A workspace, opened.
pub(crate) struct Workshop {
    pub(crate) workspace: Workspace,
    pub(crate) place: Place,
    /// What was pinned when its tools were read.
    pub(crate) pinned: Pinned,
    home: Home,
}

/// What a worker signs with.
pub(crate) struct Hands {
    key: PrivateKey,
    /// The key for decisions and permits, if it is another.
    guardian: Option<PrivateKey>,
    sealer: Option<Sealer>,
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
        let Config { worker, limits, temporal, registry, .. } = &workspace.config;
        let mut options = worker.options(place.lease_ms());
        options.tenant_calls = limits.tenant_calls();
        options.temporal = temporal.temporal();
        options.warn_at = limits.warn_at(options.warn_at);
        options.webhooks = workspace.webhooks()?;
        let keys = workspace.data_keys(&place)?;
        let home = Home::new(store, Arc::new(tools), *registry, options)?.with_data_keys(keys);
        let pinned = Pinned::of(&workspace);
        Ok(Self { workspace, place, pinned, home })
    }

    /// The key that narrows writs and speaks for operators.
    pub(crate) fn owner(&self) -> Result<PrivateKey> {
        key_file::read(&key_file::path(&self.workspace.keys(), OWNER))
    }

    /// The writs that a job is narrowed from, and the key that holds the last of them.
    pub(crate) fn authority(
        &self,
        session: &Session,
        file: Option<&Path>,
    ) -> Result<(Vec<Signed<Writ>>, PrivateKey)> {
        let Some(file) = file else {
            return Ok((vec![writs::root(&self.workspace)?], self.owner()?));
        };
        let chain = writs::read(file)?;
        let holder = writs::holder_of(&self.workspace, writs::leaf(file, &chain)?)?;
        let registry = Registry::open(session, &self.home.store)?;
        writs::counts(&chain, &registry, Session::now()).map_err(|why| {
            let (file, code) = (file.display(), Reason::InvalidAuthority.as_str());
            Problem::new(format!("the writ `{file}` does not count: {why} ({code})"))
                .hint(format!("`gesta writ inspect {file}` shows who signed it and until when"))
        })?;
        Ok((chain, holder))
    }

    /// Submits a job, with authority for exactly what it does. The same key and content is the same
    /// job.
    pub(crate) async fn submit(
        &self,
        job: &Job,
        key: Option<&str>,
        under: (Vec<Signed<Writ>>, &PrivateKey),
    ) -> Result<(TrajectoryId, Submitted)> {
        let Job { compiled, input, budget, .. } = job;
        let order = Order { job: compiled, input: input.clone(), budget: *budget, key };
        let submitted = self.home.submit(&order, under, Session::now()).await;
        submitted.map_err(writs::hinted)
    }

    /// What a worker of this process signs with. Asked for before a job is submitted: without it nobody here
    /// could drive it, and others would find it.
    pub(crate) fn hands(&self) -> Result<Hands> {
        let named = &self.workspace.config.worker.keys;
        let read = |name: &str| key_file::read(&key_file::path(&self.workspace.keys(), name));
        let key = read(named.executor.as_deref().unwrap_or(WORKER))?;
        let guardian = read(named.guardian.as_deref().unwrap_or(WORKER))?;
        let guardian = Some(guardian).filter(|guardian| guardian.id() != key.id());
        Ok(Hands { key, guardian, sealer: sealing::of(&self.workspace)? })
    }

    /// Hands over what workers of this machine could not tell the store.
    pub(crate) async fn deliver_spooled(&self) -> Result<()> {
        let (_, spool) = self.place.of_workers(&self.workspace.directory);
        match spool {
            Some(spool) => Ok(Spool::new(spool).deliver(&*self.store).await?),
            None => Ok(()),
        }
    }

    /// Starts a worker in this process.
    pub(crate) async fn start(
        &self,
        Hands { key, guardian, sealer }: Hands,
        name: Option<&str>,
        listener: Option<Listener>,
    ) -> Result<Worker> {
        let (presence, spool) = self.place.of_workers(&self.workspace.directory);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = name.map_or_else(|| host.clone(), str::to_owned);
        let spool = spool.map(Spool::new);
        let anchor = Some(self.place.anchor(&self.workspace.directory));
        let with = Belongings { name, host, listener, spool, presence, anchor, guardian, sealer };
        Ok(self.home.start(key, with).await?)
    }
}

/// Whoever is at the terminal acts as the owner of the workspace.
pub(crate) fn operator() -> Result<Principal> {
    Ok(OWNER.parse()?)
}
