//! Gesta in a program of one's own: a store, two keys and tools, and jobs run with them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gesta_core::digest::Digest;
use gesta_core::document::ApprovalVerdict;
use gesta_core::entry::Entry;
use gesta_core::ids::{Principal, SignalKey, StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::{ParkedOn, Status};
use gesta_core::signed::Signed;
use gesta_core::state;
use gesta_core::time::UnixMs;
use gesta_core::trust::TrustRoot;
use gesta_core::writ::Writ;
use gesta_policy::{PolicyDocument, PolicyFile};
use gesta_store::{Chain, DataKeys, ParkedListing, Store, clock};
use tokio::sync::watch;

use crate::approvals::{self, Heard, Word};
use crate::authority::{self, Keys, OWNER, WORKER};
use crate::branches::BranchOrder;
use crate::desk::Listener;
use crate::error::RunError;
use crate::home::{Belongings, Home, Order, Outcome, random};
use crate::job::Compiled;
use crate::jobs::{self, Cancelled, Finding};
use crate::options::Options;
use crate::spool::Spool;
use crate::tools::Catalogue;
use crate::tree::family;
use crate::worker::Worker;

/// Whose the jobs are and who acts in them.
const TENANT: &str = "main";
const PRINCIPAL: &str = "agent:main";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Gesta, embedded: everything it takes to submit jobs, drive them and wait for what comes of them.
/// Whatever kills the process, opening the same store again and running the job goes on where it
/// stopped, and no effect happens twice.
///
/// ```
/// use std::sync::Arc;
///
/// use gesta_core::writ::Effect;
/// use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
/// use gesta_runtime::{Gesta, Keys, job};
/// use gesta_store::sqlite::{Options, SqliteStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let store = Arc::new(SqliteStore::open(directory.join("gesta.db"), Options::default())?);
/// let double = Manifest::new("double".parse()?, Effect::Read);
/// let tools = Catalogue::builder()
///     .function(double, async |call: FunctionCall| {
///         let args: serde_json::Value = serde_json::from_str(call.args.as_str())
///             .map_err(|error| FunctionError::did_not_happen(error.to_string()))?;
///         Ok::<_, FunctionError>(serde_json::json!(args["n"].as_i64().unwrap_or(0) * 2))
///     })
///     .build()?;
/// let gesta = Gesta::open(store, Keys::kept_in(&directory.join("keys"))?, tools).await?;
/// let policies = r#"@id("double") permit (principal, action in Action::"tool:double", resource);"#;
/// let gesta = gesta.governed_by(policies).await?;
///
/// let text = "job: twice\nsteps:\n  - { id: d, tool: double, args: { n: 21 } }\nanswer: ${steps.d.result}\n";
/// let compiled = job::load("twice.yaml", text, gesta.tools())?;
/// let id = gesta.submit(&compiled, &[], None).await?;
/// let outcome = gesta.run(id).await?;
/// assert_eq!(outcome.answer.map(|answer| answer.to_string()), Some("42".to_owned()));
/// # Ok(())
/// # })
/// # }
/// ```
pub struct Gesta {
    home: Home,
    keys: Keys,
    root: Signed<Writ>,
    listener: Option<Listener>,
    directory: Option<PathBuf>,
    trust: TrustRoot,
}

impl Keys {
    /// The keys `owner.pem` and `worker.pem` of a directory; those that are not there are drawn.
    pub fn kept_in(directory: &Path) -> Result<Self, RunError> {
        let file =
            |path: &Path, why: String| RunError::File { path: path.display().to_string(), why };
        fs::create_dir_all(directory).map_err(|error| file(directory, error.to_string()))?;
        let key = |name: &str| {
            let path = directory.join(format!("{name}.pem"));
            if !path.exists() {
                let key = PrivateKey::from_seed(&random()?);
                let pem = key.to_pem().map_err(|error| file(&path, error.to_string()))?;
                keep_private(directory, &path, &pem)
                    .map_err(|error| file(&path, error.to_string()))?;
            }
            let pem = read_private(&path).map_err(|error| file(&path, error.to_string()))?;
            PrivateKey::from_pem(&pem).map_err(|error| file(&path, error.to_string()))
        };
        Ok(Self { owner: key(OWNER)?, worker: key(WORKER)?, sealer: None })
    }
}

/// A new file that only its owner reads: whole, and durable on return. One that somebody else has made
/// in the meantime stays as it is.
fn keep_private(directory: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let linked = fs::hard_link(&partial, path);
    fs::remove_file(&partial)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => fs::File::open(directory)?.sync_all(),
    }
}

/// Reads a private key, unless others could have read it too.
fn read_private(path: &Path) -> std::io::Result<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(path)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let why = format!("it is open to others (mode {mode:04o}); run `chmod 600` on it");
            return Err(std::io::Error::new(ErrorKind::PermissionDenied, why));
        }
    }
    fs::read_to_string(path)
}

impl Gesta {
    /// Opens a store with these keys and tools. One that is new gets a registry that knows the keys.
    pub async fn open(
        store: Arc<dyn Store>,
        keys: Keys,
        tools: Catalogue,
    ) -> Result<Self, RunError> {
        let options = Options::of(&*store);
        Self::open_with(store, keys, tools, options).await
    }

    /// As [`Self::open`], with workers that behave otherwise; [`Options::of`] the store is what they do by
    /// default.
    pub async fn open_with(
        store: Arc<dyn Store>,
        keys: Keys,
        tools: Catalogue,
        options: Options,
    ) -> Result<Self, RunError> {
        let now = now();
        let registry = registry_of(&keys);
        let known = authority::found_registry(&store, registry, &keys, now).await?;
        let owner = known.into_iter().filter(|key| key.key == keys.owner.id()).collect();
        let (tenant, principal) = (TENANT.parse(), PRINCIPAL.parse());
        let (Ok(tenant), Ok(principal)) = (tenant, principal) else {
            return Err(RunError::WorkerName(PRINCIPAL.to_owned()));
        };
        let root = authority::root_writ(&tenant, &principal, &keys.owner, now)?;
        let home = Home::new(store, Arc::new(tools), registry, options)?;
        let trust = TrustRoot::new(owner);
        Ok(Self { home, keys, root, listener: None, directory: None, trust })
    }

    /// Keeps in this directory what workers see while the store cannot be reached, until it can. A store
    /// that is a file needs none: that is kept beside it, as is who of this machine is alive.
    #[must_use]
    pub fn with_directory(mut self, directory: PathBuf) -> Self {
        self.directory = Some(directory);
        self
    }

    /// Puts policies in force, written in Cedar; what is in force already stays. Without any, reads run
    /// by themselves and everything else waits until [`Self::answer`] says yes.
    pub async fn governed_by(self, text: &str) -> Result<Self, RunError> {
        let file = PolicyFile { name: "policy.cedar".to_owned(), text: text.to_owned() };
        let tools = self.home.catalogue.shapes()?;
        let document = PolicyDocument::new(vec![file], BTreeMap::new(), tools);
        if document.digest()? != self.home.environment().await?.policy {
            self.home.publish(&document, &self.keys.owner, now()).await?;
        }
        Ok(self)
    }

    /// Keeps the keys of sensitive values here. Without a place for them, jobs with sensitive inputs and
    /// tools with sensitive arguments or results are refused.
    #[must_use]
    pub fn with_data_keys(mut self, keys: Arc<dyn DataKeys>) -> Self {
        self.home = self.home.with_data_keys(keys);
        self
    }

    /// A value with the sensitive values of a job opened, as its answer: for whoever may see them.
    pub async fn reveal(&self, job: TrajectoryId, value: &Canon) -> Result<Canon, RunError> {
        match &self.home.vault {
            Some(vault) => Ok(vault.safe(vault.family(job).await?).await?.open(value).await?.0),
            None => Ok(value.clone()),
        }
    }

    /// Answers for the owner a step that waits for approval. A yes is good for a day; the next
    /// [`Self::run`], or a worker, goes on.
    ///
    /// ```
    #[doc = include_str!("gesta/opened.txt")]
    /// use gesta_core::document::ApprovalVerdict;
    /// use gesta_core::projection::Status;
    ///
    /// let text = "job: pay\nsteps:\n  - { id: pay, tool: pay }\nanswer: ${steps.pay.result}\n";
    /// let id = gesta.submit(&job::load("pay.yaml", text, gesta.tools())?, &[], None).await?;
    /// // Without a policy, whatever does more than read waits for somebody's word.
    /// assert_eq!(gesta.run(id).await?.status, Status::Parked);
    /// gesta.answer(id, &"pay".parse()?, ApprovalVerdict::Approve).await?;
    /// assert_eq!(gesta.run(id).await?.status, Status::Completed);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn answer(
        &self,
        job: TrajectoryId,
        step: &StepId,
        verdict: ApprovalVerdict,
    ) -> Result<Heard, RunError> {
        let chain = Chain::load(Arc::clone(&self.home.store), job).await?;
        let pending = match chain.state().step(step).map(|step| &step.status) {
            Some(state::Status::Pending(pending)) => pending.entry,
            _ => return Err(RunError::NothingAsked { trajectory: job, step: step.clone() }),
        };
        let registry = Chain::load(Arc::clone(&self.home.store), self.home.registry).await?;
        let (now, note) = (now(), None);
        let word = Word { step, pending, verdict, expires: now.plus(DAY_MS), note };
        approvals::speak(&self.home.store, job, &word, (registry.state(), &self.keys.owner), now)
            .await
    }

    /// Sends a signal to a job that waits for `key`, or will. The same `id` twice is the same signal; false
    /// when it was there already. The next [`Self::run`], or a worker, goes on.
    ///
    /// ```
    #[doc = include_str!("gesta/opened.txt")]
    /// use gesta_core::json::Canon;
    /// use gesta_core::projection::Status;
    ///
    /// let text = "job: ask\nsteps:\n  - { id: go, wait: { signal: go } }\nanswer: ${steps.go.result.name}\n";
    /// let id = gesta.submit(&job::load("ask.yaml", text, gesta.tools())?, &[], None).await?;
    /// assert_eq!(gesta.run(id).await?.status, Status::Parked);
    /// let payload = Canon::of(&serde_json::json!({ "name": "Ada" }))?;
    /// assert!(gesta.signal(id, ("mail-1".parse()?, "go".parse()?), &payload).await?);
    /// assert!(!gesta.signal(id, ("mail-1".parse()?, "go".parse()?), &payload).await?);
    /// let outcome = gesta.run(id).await?;
    /// assert_eq!(outcome.answer.map(|answer| answer.to_string()), Some("\"Ada\"".to_owned()));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn signal(
        &self,
        job: TrajectoryId,
        (id, key): (SignalKey, SignalKey),
        payload: &Canon,
    ) -> Result<bool, RunError> {
        jobs::signal(&self.home.store, job, &owner()?, (id, key), payload, now()).await
    }

    /// Asks for a job to stop, and with `compensate` for what it did to be undone. The first to ask has
    /// decided that; [`Self::run`], or a worker, stops it.
    ///
    /// ```
    #[doc = include_str!("gesta/opened.txt")]
    /// use gesta_core::projection::Status;
    ///
    /// let text = "job: ask\nsteps:\n  - { id: go, wait: { signal: go } }\n";
    /// let id = gesta.submit(&job::load("ask.yaml", text, gesta.tools())?, &[], None).await?;
    /// gesta.cancel(id, "nobody needs it any more", false).await?;
    /// assert_eq!(gesta.run(id).await?.status, Status::Cancelled);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn cancel(
        &self,
        job: TrajectoryId,
        reason: &str,
        compensate: bool,
    ) -> Result<Cancelled, RunError> {
        let asked = (reason, compensate);
        jobs::cancel(&self.home.store, job, &owner()?, asked, now()).await
    }

    /// Says for the owner what became of a step in doubt, or of an undo that is stuck. A step whose
    /// executor has reported it by now is refused: [`Self::run`], or a worker, goes on from that.
    ///
    /// ```
    #[doc = include_str!("gesta/opened.txt")]
    /// let policies = r#"@id("all") permit (principal, action, resource);"#;
    /// let gesta = gesta.governed_by(policies).await?;
    /// use gesta_core::document::ResolutionVerdict;
    /// use gesta_core::json::Canon;
    /// use gesta_core::projection::Status;
    /// use gesta_runtime::jobs::Finding;
    ///
    /// let text = "job: pay\nsteps:\n  - { id: pay, tool: vanish }\n";
    /// let id = gesta.submit(&job::load("pay.yaml", text, gesta.tools())?, &[], None).await?;
    /// // Nobody knows whether it happened, and it may not be tried again.
    /// assert_eq!(gesta.run(id).await?.status, Status::Parked);
    /// let finding = Finding {
    ///     step: "pay".parse()?,
    ///     verdict: ResolutionVerdict::GiveUp,
    ///     evidence: Canon::of(&"the bank does not answer")?,
    ///     forced: false,
    /// };
    /// gesta.resolve(id, &finding).await?;
    /// assert_eq!(gesta.run(id).await?.status, Status::Failed);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn resolve(&self, job: TrajectoryId, finding: &Finding) -> Result<Entry, RunError> {
        let store = &self.home.store;
        if let (_, Some(spool)) = self.places() {
            Spool::new(spool).deliver(&**store).await?;
        }
        jobs::resolve(store, job, &owner()?, &self.keys.owner, finding, now()).await
    }

    /// Lets a step go on although the world differs from what was recorded, or could not be checked;
    /// every step of the job that waits for that, if none is named.
    ///
    /// ```
    #[doc = include_str!("gesta/opened.txt")]
    /// use gesta_runtime::RunError;
    ///
    /// let text = "job: ask\nsteps:\n  - { id: go, wait: { signal: go } }\n";
    /// let id = gesta.submit(&job::load("ask.yaml", text, gesta.tools())?, &[], None).await?;
    /// // It waits for a signal: nothing that it uses is found to differ.
    /// assert!(matches!(gesta.confirm(id, None).await, Err(RunError::NothingToConfirm(_))));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn confirm(
        &self,
        job: TrajectoryId,
        step: Option<&StepId>,
    ) -> Result<Vec<Entry>, RunError> {
        jobs::confirm(&self.home.store, job, &owner()?, step, now()).await
    }

    /// Tells somebody of every entry, once it is durable.
    #[must_use]
    pub fn listening(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The tools, to compile jobs against.
    pub fn tools(&self) -> &Catalogue {
        &self.home.catalogue
    }

    /// What an outsider needs to verify this store: the owner's public key, as `trust.json` holds it.
    pub fn trust_root(&self) -> &TrustRoot {
        &self.trust
    }

    /// Submits a job with its input as named texts; the same key and content is the same job.
    pub async fn submit(
        &self,
        job: &Compiled,
        input: &[(&str, &str)],
        key: Option<&str>,
    ) -> Result<TrajectoryId, RunError> {
        let input = input.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let input =
            job.input(&input.collect()).map_err(|error| RunError::Input(error.to_string()))?;
        self.submit_with(job, input, key).await
    }

    /// Submits a job with its input as one JSON object that fits the job.
    pub async fn submit_with(
        &self,
        job: &Compiled,
        input: Canon,
        key: Option<&str>,
    ) -> Result<TrajectoryId, RunError> {
        let order = Order { job, input, budget: job.budget, key };
        let authority = (vec![self.root.clone()], &self.keys.owner);
        Ok(self.home.submit(&order, authority, now()).await?.0)
    }

    /// Makes a branch of a job; [`Self::run`] or a worker drives it.
    pub async fn branch(&self, order: &BranchOrder<'_>) -> Result<TrajectoryId, RunError> {
        let authority = (vec![self.root.clone()], &self.keys.owner);
        Ok(self.home.branch(order, authority, now()).await?.0)
    }

    /// Starts a worker: [`Worker::run`] drives whatever the store has to do until it is told to stop. What
    /// it sees is told to whoever is [listening](Self::listening); [`Self::wait`] waits for one job.
    ///
    /// ```
    #[doc = include_str!("gesta/opened.txt")]
    /// let policies = r#"@id("all") permit (principal, action, resource);"#;
    /// let gesta = gesta.governed_by(policies).await?;
    /// let (tell, heard) = std::sync::mpsc::channel();
    /// let gesta = gesta.listening(Arc::new(move |event| {
    ///     if let gesta_runtime::Event::Entry(entry) = event {
    ///         tell.send(entry.kind().to_string()).ok();
    ///     }
    /// }));
    /// let text = "job: pay\nsteps:\n  - { id: pay, tool: pay }\nanswer: ${steps.pay.result}\n";
    /// let id = gesta.submit(&job::load("pay.yaml", text, gesta.tools())?, &[], None).await?;
    /// let worker = gesta.worker().await?;
    /// let (stop, stopped) = tokio::sync::watch::channel(false);
    /// let (ran, outcome) = tokio::join!(worker.run(stopped), async {
    ///     let outcome = gesta.wait(id).await;
    ///     stop.send(true).ok();
    ///     outcome
    /// });
    /// ran?;
    /// assert_eq!(outcome?.answer.map(|answer| answer.to_string()), Some("7".to_owned()));
    /// let heard: Vec<String> = heard.try_iter().collect();
    /// // The second commit is that of the answer.
    /// assert_eq!(heard, ["attempt", "started", "commit", "commit", "completed"]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn worker(&self) -> Result<Worker, RunError> {
        let name = "embedded".to_owned();
        let (presence, spool) = self.places();
        let (listener, spool) = (self.listener.clone(), spool.map(Spool::new));
        let with = Belongings { name, listener, presence, spool, ..Belongings::default() };
        self.home.start(self.keys.worker.clone(), with).await
    }

    fn places(&self) -> (Option<PathBuf>, Option<PathBuf>) {
        Belongings::places(&self.home.store.reach(), self.directory.as_deref())
    }

    /// Drives a job and its children here until it has ended, or waits for a signal or a person.
    pub async fn run(&self, job: TrajectoryId) -> Result<Outcome, RunError> {
        let worker = self.worker().await?;
        let (_stop, stopped) = watch::channel(false);
        let outcome = loop {
            worker.run_family(job, stopped.clone()).await?;
            let mut waits = true;
            for row in family(&self.home.store, job).await? {
                waits &= row.summary.status == Status::Parked
                    && (row.summary.wake_at.is_none() || self.asks(row.trajectory).await?);
            }
            let outcome = self.home.outcome(job).await?;
            if outcome.status.ended() || waits {
                break outcome;
            }
            tokio::time::sleep(Duration::from_millis(self.home.options.poll_ms)).await;
        };
        worker.retire().await?;
        Ok(outcome)
    }

    /// Whether a trajectory waits for somebody's approval, however long that may take.
    async fn asks(&self, trajectory: TrajectoryId) -> Result<bool, RunError> {
        let (on, trajectory) = (Some(ParkedOn::Approval), Some(trajectory));
        let asked = ParkedListing { after: None, on, trajectory };
        Ok(!self.home.store.parked(&asked, 1).await?.is_empty())
    }

    /// Waits until a job has ended that a worker drives, here or elsewhere.
    pub async fn wait(&self, job: TrajectoryId) -> Result<Outcome, RunError> {
        loop {
            let outcome = self.home.outcome(job).await?;
            if outcome.status.ended() {
                return Ok(outcome);
            }
            tokio::time::sleep(Duration::from_millis(self.home.options.poll_ms)).await;
        }
    }
}

/// The registry of whoever holds the owner's key.
fn registry_of(keys: &Keys) -> TrajectoryId {
    let digest = Digest::of_parts(&[b"gesta.registry", keys.owner.id().as_bytes()]);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
    TrajectoryId::from_bytes(bytes)
}

/// Whoever holds the owner's key speaks for the owner.
fn owner() -> Result<Principal, RunError> {
    OWNER.parse().map_err(|_| RunError::WorkerName(OWNER.to_owned()))
}

fn now() -> UnixMs {
    clock::system()()
}
