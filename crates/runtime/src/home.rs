//! A place to run jobs: a store with its registry, the tools at hand, and how workers behave here. The
//! command line and programs that embed Gesta come in by this door.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gesta_core::amounts::Budget;
use gesta_core::body::{Mandate, Purpose, RegistryHead};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::{Environment, Failing};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::Status;
use gesta_core::sensitive::Marks;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::writ::Writ;
use gesta_policy::PolicyDocument;
use gesta_store::{Chain, DataKeys, Reach, Store, StoreError};

use crate::authority;
use crate::desk::{Listener, OUTPUT_LIMITS};
use crate::error::RunError;
use crate::facts::Facts;
use crate::in_force;
use crate::job::Compiled;
use crate::jobs::{self, Submission, Submitted};
use crate::options::Options;
use crate::sealing::Sealer;
use crate::spool::Spool;
use crate::tools::Catalogue;
use crate::vault::{Entropy, Vault};
use crate::worker::{Setup, Worker};

/// How many entries are read at a time, from the end.
const PAGE: u64 = 64;

/// A place to run jobs.
pub struct Home {
    /// Where the chains are.
    pub store: Arc<dyn Store>,
    /// The tools.
    pub catalogue: Arc<Catalogue>,
    /// The registry that says whose signature counts.
    pub registry: TrajectoryId,
    /// How workers behave.
    pub options: Options,
    /// Where sensitive values are kept, if anywhere.
    pub vault: Option<Vault>,
    config: Digest,
    entropy: Entropy,
}

/// A job and what it works on.
pub struct Order<'a> {
    /// The job, compiled against the tools of the place.
    pub job: &'a Compiled,
    /// Its input.
    pub input: Canon,
    /// What it may use at most.
    pub budget: Budget,
    /// The caller's key: the same key and content is the same job.
    pub key: Option<&'a str>,
}

/// What a worker has beside the place it works in.
#[derive(Default)]
pub struct Belongings {
    /// What it is called, before a number and digits that make it unlike any other.
    pub name: String,
    /// What this machine is called, for people.
    pub host: String,
    /// Who hears what happens.
    pub listener: Option<Listener>,
    /// Where reports go while the store cannot be reached.
    pub spool: Option<Spool>,
    /// Where workers of this machine show that they are alive.
    pub presence: Option<PathBuf>,
    /// The file in which heads are kept that the store has acknowledged.
    pub anchor: Option<PathBuf>,
    /// The key that signs decisions and permits, if it is another than the worker's.
    pub guardian: Option<PrivateKey>,
    /// Who seals what is new, if the worker does.
    pub sealer: Option<Sealer>,
}

impl Belongings {
    /// Where workers show that they are alive, if one machine is all there is, and where they keep what
    /// the store could not be told: beside the store's file, or in this directory.
    pub fn places(reach: &Reach, directory: Option<&Path>) -> (Option<PathBuf>, Option<PathBuf>) {
        match reach {
            Reach::Machine(file) => (Some(beside(file, ".workers")), Some(beside(file, ".spool"))),
            Reach::Process | Reach::Network => (None, directory.map(|it| it.join("gesta.spool"))),
        }
    }
}

/// The path with something added to its name.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(what);
    PathBuf::from(name)
}

/// How a job stands, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it stands.
    pub status: Status,
    /// Its answer, once it has completed.
    pub answer: Option<Canon>,
    /// Why it failed or was cancelled, if it was.
    pub error: Option<Failing>,
}

impl Home {
    /// A store whose registry is there, with these tools.
    pub fn new(
        store: Arc<dyn Store>,
        catalogue: Arc<Catalogue>,
        registry: TrajectoryId,
        options: Options,
    ) -> Result<Self, RunError> {
        let config = options.digest()?;
        let entropy: Entropy = Arc::new(fill);
        Ok(Self { store, catalogue, registry, options, vault: None, config, entropy })
    }

    /// The same place, with its data keys kept here.
    #[must_use]
    pub fn with_data_keys(mut self, keys: Arc<dyn DataKeys>) -> Self {
        let vault = Vault::new(Arc::clone(&self.store), keys);
        self.vault = Some(vault.drawing_from(Arc::clone(&self.entropy)));
        self
    }

    /// The same place, with random bytes from elsewhere: ids, seeds, and what sensitive values are sealed with.
    #[must_use]
    pub fn drawing_from(mut self, entropy: Entropy) -> Self {
        self.vault = self.vault.map(|vault| vault.drawing_from(Arc::clone(&entropy)));
        self.entropy = entropy;
        self
    }

    /// Random bytes.
    pub(crate) fn draw<const N: usize>(&self) -> Result<[u8; N], RunError> {
        let mut bytes = [0; N];
        (self.entropy)(&mut bytes).map_err(RunError::Entropy)?;
        Ok(bytes)
    }

    /// What is in force here.
    pub async fn environment(&self) -> Result<Environment, RunError> {
        let Self { config, catalogue, .. } = self;
        let chain = Chain::load(Arc::clone(&self.store), self.registry).await?;
        let policy = in_force::policy_digest(&*self.store, Some(chain.state()), catalogue).await?;
        Ok(Environment { config: *config, policy, tools: catalogue.digest() })
    }

    /// Puts a policy set in force, signed by the registry's owner. One that does not hold together is
    /// refused, and what was in force stays.
    pub async fn publish(
        &self,
        policies: &PolicyDocument,
        owner: &PrivateKey,
        now: UnixMs,
    ) -> Result<Digest, RunError> {
        authority::publish(&self.store, self.registry, policies, owner, now).await
    }

    /// Submits a job with authority for exactly what it does, narrowed from the last of these writs by
    /// whoever holds it. A crash leaves all of it or nothing.
    pub async fn submit(
        &self,
        order: &Order<'_>,
        (above, holder): (Vec<Signed<Writ>>, &PrivateKey),
        now: UnixMs,
    ) -> Result<(TrajectoryId, Submitted), RunError> {
        let parent = above.last().ok_or(authority::Unauthorised::None)?.doc();
        let principal = parent.principal.clone();
        let trajectory = match order.key {
            Some(key) => self.keyed(parent.tenant.as_str(), key).await?,
            None => TrajectoryId::from_bytes(self.draw()?),
        };
        let narrowed = (trajectory, &order.job.grants, &order.budget);
        let row = self.store.trajectory(self.registry).await?;
        let mut submission = Submission {
            trajectory,
            key: order.key.map(str::to_owned),
            principal,
            seed: Seed::new(Digest::from_bytes(self.draw()?)),
            input: order.input.clone(),
            plan: order.job.plan.clone(),
            writs: authority::narrow(above, holder, narrowed, &self.catalogue, now)?,
            environment: self.environment().await?,
            registry: row.map(|row| RegistryHead { head: row.head, trajectory: self.registry }),
        };
        // Attempts and the job's beginning name the catalogue by its digest: its content is kept.
        self.store.put_blob(self.catalogue.canonical().as_bytes()).await?;
        self.store.put_blob(self.options.canonical()?.as_bytes()).await?;
        // A worker that begins a child has nothing but the store.
        for plan in &order.job.blobs {
            self.store.put_blob(plan.as_bytes()).await?;
        }
        let marks = order.job.sensitive();
        let clear = order.input.clone();
        submission.input = self.protect(trajectory, &clear, &marks).await?;
        let submitted = match jobs::submit(&self.store, &submission, now).await {
            // Somebody else was first with the same key: what they committed to may be the same.
            Err(RunError::OtherJob { .. }) if !marks.is_empty() => {
                submission.input = self.protect(trajectory, &clear, &marks).await?;
                jobs::submit(&self.store, &submission, now).await?
            }
            submitted => submitted?,
        };
        Ok((trajectory, submitted))
    }

    /// The input of a job with what is sensitive committed to. What the job was submitted with before is
    /// committed to as it was then.
    async fn protect(
        &self,
        trajectory: TrajectoryId,
        input: &Canon,
        marks: &Marks,
    ) -> Result<Canon, RunError> {
        if marks.is_empty() {
            return Ok(input.clone());
        }
        let Some(vault) = &self.vault else {
            let what = "an input of this job".to_owned();
            let remedy = "open the place with data keys";
            return Err(RunError::NoVault { what, remedy });
        };
        let safe = vault.ensure(trajectory).await?;
        let before = self.input_of(trajectory).await?;
        let (opened, _) = match &before {
            Some(before) => safe.open(before).await?,
            None => return safe.protect(input, marks).await,
        };
        match (opened == *input, before) {
            (true, Some(before)) => Ok(before),
            _ => safe.protect(input, marks).await,
        }
    }

    /// Refuses a job that has not ended and whose sensitive values cannot be opened here, unless it is to stop:
    /// nothing could be done about it.
    pub async fn openable(&self, trajectory: TrajectoryId) -> Result<(), RunError> {
        let chain = Chain::<Facts>::follow(Arc::clone(&self.store), trajectory).await?;
        let (state, facts) = (chain.state(), chain.view());
        if !facts.sensitive() || state.ended().is_some() || facts.cancelled().is_some() {
            return Ok(());
        }
        match &self.vault {
            Some(vault) => vault.safe(vault.family(trajectory).await?).await.map(|_| ()),
            None => Err(RunError::NoVault {
                what: format!("something of {trajectory}"),
                remedy: "open the place with data keys",
            }),
        }
    }

    /// The id of the job that a caller's key stands for here.
    pub(crate) async fn keyed(&self, tenant: &str, key: &str) -> Result<TrajectoryId, RunError> {
        let before = jobs::keyed_before(tenant, key);
        let mandate = self.mandate_of(before).await?;
        let ours = mandate.is_some_and(|mandate| {
            mandate.registry.is_none_or(|registry| registry.trajectory == self.registry)
        });
        Ok(if ours { before } else { jobs::keyed(self.registry, tenant, key) })
    }

    /// The input that a job began with, if it has begun.
    async fn input_of(&self, trajectory: TrajectoryId) -> Result<Option<Canon>, RunError> {
        match self.mandate_of(trajectory).await? {
            Some(mandate) => self.content(&mandate.input).await.map(Some),
            None => Ok(None),
        }
    }

    /// What a job began with, if it has begun.
    async fn mandate_of(&self, trajectory: TrajectoryId) -> Result<Option<Mandate>, RunError> {
        let Some(first) = self.store.entries(trajectory, 0, 1).await?.into_iter().next() else {
            return Ok(None);
        };
        let entry = Entry::from_bytes(&first.bytes).map_err(|why| StoreError::Damaged {
            what: format!("entry 0 of {trajectory}: {why}"),
        })?;
        match &entry.payload().body {
            Body::Branch(branch) => Ok(Some(branch.mandate.clone())),
            Body::Root(root) => match &root.purpose {
                Purpose::Job(mandate) => Ok(Some(mandate.clone())),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Starts a worker in this process.
    pub async fn start(&self, key: PrivateKey, with: Belongings) -> Result<Worker, RunError> {
        let Belongings { name, host, listener, spool, presence, anchor, guardian, sealer } = with;
        let setup = Setup {
            store: Arc::clone(&self.store),
            worker: worker_id(&name)?,
            key,
            guardian,
            catalogue: Arc::clone(&self.catalogue),
            registry: Some(self.registry),
            options: self.options.clone(),
            sealer,
            listener,
            spool,
            vault: self.vault.clone(),
            presence,
            anchor,
            host,
        };
        Worker::start(setup).await
    }

    /// How a job stands.
    pub async fn outcome(&self, trajectory: TrajectoryId) -> Result<Outcome, RunError> {
        let row = self.store.trajectory(trajectory).await?;
        let row = row.ok_or(StoreError::NoTrajectory(trajectory))?;
        let status = row.summary.status;
        let mut outcome = Outcome { status, answer: None, error: None };
        let mut after = row.head.seq + 1;
        // What ended it is last, but for effects that arrived later.
        while status.ended() && after > 0 {
            let from = after.saturating_sub(PAGE);
            let page = self.store.entries(trajectory, from, (after - from) as usize).await?;
            for stored in page.iter().rev() {
                let entry = Entry::from_bytes(&stored.bytes).map_err(|why| {
                    let what = format!("entry {} of {trajectory}: {why}", stored.seq);
                    StoreError::Damaged { what }
                })?;
                match &entry.payload().body {
                    Body::Completed(completed) => {
                        outcome.answer = Some(self.content(&completed.answer).await?);
                        return Ok(outcome);
                    }
                    Body::Failed(stopped) | Body::Cancelled(stopped) => {
                        outcome.error = Some(stopped.error.clone());
                        return Ok(outcome);
                    }
                    _ => {}
                }
            }
            after = from;
        }
        Ok(outcome)
    }

    pub(crate) async fn content(&self, content: &Content) -> Result<Canon, RunError> {
        match content {
            Content::Inline(value) => Ok(value.clone()),
            Content::Blob(blob) => {
                let what = || format!("blob {} is missing", blob.sha256);
                let bytes = self.store.blob(blob.sha256).await?;
                let bytes = bytes.ok_or_else(|| StoreError::Damaged { what: what() })?;
                Ok(Canon::parse_within(&bytes, OUTPUT_LIMITS)?)
            }
        }
    }
}

/// Bytes that nobody can guess: ids, seeds and keys.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], RunError> {
    let mut bytes = [0; N];
    fill(&mut bytes).map_err(RunError::Entropy)?;
    Ok(bytes)
}

/// Fills bytes from the operating system.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), String> {
    getrandom::fill(bytes).map_err(|error| error.to_string())
}

/// `NAME-PID-RANDOM`: nobody else's, not even after the process number is used again.
fn worker_id(name: &str) -> Result<WorkerId, RunError> {
    let name: String = name.chars().filter(char::is_ascii_graphic).take(64).collect();
    let name = if name.is_empty() { "worker" } else { &name };
    let suffix = u32::from_be_bytes(random()?);
    let id = format!("{name}-{}-{suffix:08x}", std::process::id());
    id.parse().map_err(|_| RunError::WorkerName(name.to_owned()))
}
