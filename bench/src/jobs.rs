//! Whole jobs on SQLite: no-op effects, each decided, permitted, signed, durable and receipted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gesta_core::body::RegistryHead;
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::{Environment, RegistryItem};
use gesta_core::entry::Author;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::Status;
use gesta_core::sample::{Cast, EPOCH, person};
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Role, TrustedKey};
use gesta_core::writ::Effect;
use gesta_policy::{PolicyDocument, PolicyFile};
use gesta_runtime::jobs::{self, Submission};
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{Left, Options, Setup, Worker, authority, job};
use gesta_store::faulty::FaultyStore;
use gesta_store::memory::MemoryStore;
use gesta_store::sqlite::{self, SqliteStore};
use gesta_store::{Chain, Profile, Store};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::history::session;
use crate::limits::{bare_sqlite, bare_sqlite_again};
use crate::table::{Table, median, per_second, rate};

const ROUNDS: u64 = 3;
const STEPS: usize = 1_000;
/// For what is counted in hundredths of a second of CPU.
const PLENTY: usize = 5_000;
const JOBS: u8 = 64;
const EACH: usize = 100;
/// The long job: so many fan-outs, each of so many items, one call at a time.
const FANS: usize = 10;
const ITEMS: usize = 1_000;
const LONG: usize = FANS * ITEMS;
const REGISTRY: TrajectoryId = TrajectoryId::from_bytes([0xee; 16]);

/// When each call was made.
pub(crate) type Calls = Arc<Mutex<Vec<Instant>>>;

/// One job alone and 64 together, beside SQLite's own commits.
pub(crate) fn run(place: &Path, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let (mut bare, mut alone, mut together) = (Vec::new(), Vec::new(), Vec::new());
    let mut bare_again = Vec::new();
    let (mut commits, mut cores) = (Vec::new(), Vec::new());
    let (mut stored, mut written) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        bare.push(bare_sqlite(&place.join(format!("bare-jobs-{round}.db")), &session(1, 2_000)?)?);

        let file = place.join(format!("job-{round}.db"));
        let (before, disk) = (Instant::now(), written_bytes()?);
        let (took, writes) = runtime.block_on(one(&file))?;
        ensure!(took <= before.elapsed(), "the clock runs back");
        alone.push(per_second(STEPS, took));
        commits.push(writes as f64 / STEPS as f64);
        stored.push(std::fs::metadata(&file)?.len() as f64 / STEPS as f64);
        written.push((written_bytes()? - disk) as f64 / STEPS as f64);
        bare_again.push(bare_sqlite_again(&place.join(format!("again-{round}.db")), &file)?);

        let calls = usize::from(JOBS) * EACH;
        let cpu = cpu_time()?;
        let took = runtime.block_on(many(&place.join(format!("jobs-{round}.db"))))?;
        let each = (cpu_time()? - cpu).as_secs_f64() / calls as f64;
        together.push(per_second(calls, took));
        let possible = std::thread::available_parallelism()?.get() as f64 / each;
        cores.push(per_second(calls, took) / possible);
    }
    let (bare, alone, together) = (median(bare), median(alone), median(together));
    let bare_again = median(bare_again);
    table.limit("bare SQLite, one row a commit", rate(bare));
    table.limit("bare SQLite, the rows of the job below, one a commit", rate(bare_again));
    table.ratio("one job, 1,000 effects in a row", rate(alone), alone / bare, "≥ 0.6 of bare");
    table.ratio("the same, of bare SQLite with its rows", "", alone / bare_again, "≥ 0.6 of bare");
    table.ratio("durable commits a step", "", median(commits), "≤ 1.1");
    table.ratio("64 jobs of 100 effects", rate(together), together / alone, "≥ 2.5 times one job");
    table.ratio("the same, of what the cores could do", "", median(cores), "≥ 0.7");
    let kilobytes = |bytes: Vec<f64>| median(bytes) / 1_000.0;
    table.ratio("stored a step, in KB", "", kilobytes(stored), "≤ 4");
    table.ratio("written to disk a step, in KB", "", kilobytes(written), "≤ 20");
    Ok(())
}

/// What a call costs beside the store: all of it, not only decide, sign, gate and receipt.
pub(crate) fn governance(runtime: &Runtime, table: &mut Table) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(gesta_store::clock::system()));
    let calls = Calls::default();
    let scene = runtime.block_on(Scene::new(store, &calls))?;
    let id = runtime.block_on(scene.submit(1, &chain_of(PLENTY)))?;
    let worker = runtime.block_on(scene.worker())?;
    let cpu = cpu_time()?;
    let left = runtime.block_on(scene.drive_by(worker, id))?;
    ensure!(left == Left::Ended, "the job has not ended");
    let each = (cpu_time()? - cpu).as_secs_f64() * 1e6 / PLENTY as f64;
    runtime.block_on(scene.check(id, PLENTY))?;
    table.ratio("CPU a call without the disk, in µs", "", each, "≤ 200");
    Ok(())
}

/// A long job: what its last steps cost against its first, and how fast it is taken up again.
pub(crate) fn long(place: &Path, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let file = place.join("long.db");
    let calls = Calls::default();
    let id = runtime.block_on(async {
        let scene = Scene::new(open(&file)?, &calls).await?;
        let id = scene.submit(1, &long_job()).await?;
        ensure!(scene.drive_to(id).await? == Left::Parked, "the job waits for its signal");
        let key = || "go".parse();
        let now = scene.now().await?;
        jobs::signal(&scene.store, id, &person()?, (key()?, key()?), &Canon::null(), now).await?;
        anyhow::Ok(id)
    })?;
    let times = calls.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.clone();
    let span = |from: usize, to: usize| -> Result<f64> {
        let (from, to) = (times.get(from).context("a call")?, times.get(to).context("a call")?);
        Ok((*to - *from).as_secs_f64())
    };
    let ratio = span(LONG - 1_000, LONG - 1)? / span(100, 1_099)?;
    table.ratio("step 10,000 against step 100", "", ratio, "≤ 1.2");

    let begun = Instant::now();
    runtime.block_on(async {
        let scene = Scene::new(open(&file)?, &calls).await?;
        ensure!(scene.drive_to(id).await? == Left::Ended, "the job ends");
        anyhow::Ok(())
    })?;
    let times = calls.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
    let next = times.get(LONG).context("the next step ran")?;
    let ms = (*next - begun).as_secs_f64() * 1e3;
    table.ratio("resuming after 10,000 steps, ms to the next", "", ms, "≤ 150");
    Ok(())
}

/// A job of [`LONG`] calls in a row, then a wait, then one more.
fn long_job() -> String {
    let items: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
    let items = items.join(",");
    let mut file = String::from("job: long\nparallel: 1\nsteps:\n");
    for fan in 0..FANS {
        let needs = match fan.checked_sub(1) {
            Some(before) => format!(", needs: [f{before}]"),
            None => String::new(),
        };
        let each = format!("each: '${{[{items}]}}', tool: noop, args: {{}}");
        let _infallible = writeln!(file, "  - {{ id: f{fan}, {each}{needs} }}");
    }
    let _infallible =
        writeln!(file, "  - {{ id: wait, wait: {{ signal: go }}, needs: [f{}] }}", FANS - 1);
    file + "  - { id: last, tool: noop, args: {}, needs: [wait] }\nanswer: done\n"
}

/// A job of so many steps, each needing the one before it.
pub(crate) fn chain_of(steps: usize) -> String {
    let mut file = String::from("job: chain\nsteps:\n");
    for step in 0..steps {
        let needs = match step.checked_sub(1) {
            Some(before) => format!(", needs: [s{before}]"),
            None => String::new(),
        };
        let _infallible = writeln!(file, "  - {{ id: s{step}, tool: noop, args: {{}}{needs} }}");
    }
    file + "answer: done\n"
}

pub(crate) fn open(file: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(file, sqlite::Options::default())?))
}

/// One job of many steps: how long it took, and how many writes it asked the store for.
async fn one(file: &Path) -> Result<(Duration, u64)> {
    let counted = Arc::new(FaultyStore::new(open(file)?, Box::new(|_| None)));
    let store: Arc<dyn Store> = Arc::<FaultyStore>::clone(&counted);
    let scene = Scene::new(store, &Calls::default()).await?;
    let id = scene.submit(1, &chain_of(STEPS)).await?;
    let worker = scene.worker().await?;
    let (writes, begun) = (counted.writes(), Instant::now());
    ensure!(scene.drive_by(worker, id).await? == Left::Ended, "the job has not ended");
    let (took, writes) = (begun.elapsed(), counted.writes() - writes);
    scene.check(id, STEPS).await?;
    Ok((took, writes))
}

/// Many jobs at once, by one worker.
async fn many(file: &Path) -> Result<Duration> {
    let scene = Scene::new(open(file)?, &Calls::default()).await?;
    let mut ids = Vec::new();
    for number in 1..=JOBS {
        ids.push(scene.submit(number, &chain_of(EACH)).await?);
    }
    let begun = Instant::now();
    let worker = scene.worker().await?;
    let (stop, stopped) = watch::channel(false);
    let running = worker.run(stopped);
    let ended = async {
        for id in &ids {
            while !scene.ended(*id).await? {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let took = begun.elapsed();
        stop.send(true)?;
        anyhow::Ok(took)
    };
    let (ran, took) = tokio::join!(running, ended);
    ran?;
    for id in ids {
        scene.check(id, EACH).await?;
    }
    took
}

/// A policy set that lets everything happen.
fn everything(catalogue: &Catalogue) -> Result<PolicyDocument> {
    let text = r#"@id("everything") permit (principal, action, resource);"#.to_owned();
    let file = PolicyFile { name: "policy.cedar".to_owned(), text };
    Ok(PolicyDocument::new(vec![file], std::collections::BTreeMap::new(), catalogue.shapes()?))
}

/// A store with a registry, and what it takes to run jobs on it.
pub(crate) struct Scene {
    pub(crate) store: Arc<dyn Store>,
    cast: Cast,
    catalogue: Arc<Catalogue>,
}

impl Scene {
    pub(crate) async fn new(store: Arc<dyn Store>, calls: &Calls) -> Result<Self> {
        let calls = Arc::clone(calls);
        let noop = Manifest::new("noop".parse()?, Effect::External);
        let catalogue = Catalogue::builder()
            .function(noop, move |_: FunctionCall| {
                if let Ok(mut calls) = calls.lock() {
                    calls.push(Instant::now());
                }
                async { Ok::<_, FunctionError>(serde_json::json!({ "ok": true })) }
            })
            .build()?;
        Self::with(store, catalogue).await
    }

    /// With tools of one's own.
    pub(crate) async fn with(store: Arc<dyn Store>, catalogue: Catalogue) -> Result<Self> {
        let cast = Cast::new(1);
        if store.trajectory(REGISTRY).await?.is_none() {
            found_registry(&store, &cast).await?;
            let policies = everything(&catalogue)?;
            authority::publish(&store, REGISTRY, &policies, &cast.owner, EPOCH).await?;
        }
        Ok(Self { store, cast, catalogue: Arc::new(catalogue) })
    }

    async fn worker(&self) -> Result<Worker> {
        self.worker_called("bench", Options::default(), None).await
    }

    pub(crate) async fn worker_called(
        &self,
        name: &str,
        options: Options,
        presence: Option<PathBuf>,
    ) -> Result<Worker> {
        let setup = Setup {
            store: Arc::clone(&self.store),
            worker: name.parse()?,
            key: worker_key(),
            guardian: None,
            sealer: None,
            catalogue: Arc::clone(&self.catalogue),
            registry: Some(REGISTRY),
            options,
            listener: None,
            spool: None,
            vault: None,
            presence,
            anchor: None,
            host: "bench".to_owned(),
        };
        Ok(Worker::start(setup).await?)
    }

    async fn now(&self) -> Result<UnixMs> {
        Ok(self.store.heartbeat(&"asks".parse()?, &Profile::default(), 1).await?)
    }

    pub(crate) async fn submit(&self, number: u8, file: &str) -> Result<TrajectoryId> {
        let compiled = job::load("job.yaml", file, &*self.catalogue)?;
        let trajectory = TrajectoryId::from_bytes([number; 16]);
        let standing = self.cast.standing_writ()?;
        let writ = self.cast.narrow(&standing, trajectory)?;
        let row = self.store.trajectory(REGISTRY).await?.context("the registry")?;
        let submission = Submission {
            trajectory,
            key: None,
            principal: person()?,
            seed: Seed::new(Digest::of(&[number])),
            input: compiled.input(&std::collections::BTreeMap::new())?,
            plan: compiled.plan,
            writs: vec![standing, writ],
            environment: Environment {
                config: Digest::of(b"bench"),
                policy: everything(&self.catalogue)?.digest()?,
                tools: self.catalogue.digest(),
            },
            registry: Some(RegistryHead { head: row.head, trajectory: REGISTRY }),
        };
        jobs::submit(&self.store, &submission, self.now().await?).await?;
        Ok(trajectory)
    }

    /// Drives a job as far as it goes, by a worker that starts for it.
    pub(crate) async fn drive_to(&self, id: TrajectoryId) -> Result<Left> {
        self.drive_by(self.worker().await?, id).await
    }

    async fn drive_by(&self, worker: Worker, id: TrajectoryId) -> Result<Left> {
        let (_stop, stopped) = watch::channel(false);
        let left = worker.run_one(id, stopped).await?;
        worker.retire().await?;
        Ok(left)
    }

    pub(crate) async fn ended(&self, id: TrajectoryId) -> Result<bool> {
        Ok(self.store.trajectory(id).await?.context("the job")?.summary.status.ended())
    }

    /// No figure for work that the ledger does not show as done.
    pub(crate) async fn check(&self, id: TrajectoryId, steps: usize) -> Result<()> {
        let row = self.store.trajectory(id).await?.context("the job")?;
        ensure!(row.summary.status == Status::Completed, "the ledger shows no completed job");
        let chain = Chain::load(Arc::clone(&self.store), id).await?;
        let calls = usize::try_from(chain.state().spent().calls)?;
        ensure!(calls == steps, "the ledger shows {calls} calls, not {steps}");
        Ok(())
    }
}

fn worker_key() -> PrivateKey {
    PrivateKey::from_seed(&[0x77; 32])
}

async fn found_registry(store: &Arc<dyn Store>, cast: &Cast) -> Result<()> {
    let worker = TrustedKey {
        key: worker_key().id(),
        name: "worker".to_owned(),
        revoked_at: None,
        roles: [Role::Guardian, Role::Executor].into(),
        tenant: None,
        valid: Window { not_before: UnixMs(0), not_after: UnixMs::LAST },
    };
    let issuer = cast.trust_root().keys.into_iter().find(|key| key.name == "issuer");
    let mut chain = Chain::unbegun(Arc::clone(store), REGISTRY);
    for item in [None, Some(worker), issuer] {
        let body = match item {
            None => cast.registry_root()?,
            Some(key) => cast.registration(chain.state(), RegistryItem::Key(key), EPOCH)?,
        };
        let by = Author::Principal(person()?);
        chain
            .append(|admission| {
                admission.push(EPOCH, by.clone(), body.clone())?;
                Ok(())
            })
            .await?;
    }
    Ok(())
}

/// What this process has used of the processors.
pub(crate) fn cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(')').context("no name in /proc/self/stat")?.1;
    let mut fields = after.split_whitespace().skip(11);
    let mut ticks = || -> Result<u64> { Ok(fields.next().context("too few fields")?.parse()?) };
    // Linux counts in hundredths of a second for everyone who asks here.
    Ok(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// What this process has caused to be written to disk.
fn written_bytes() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("no write_bytes in /proc/self/io")?.parse()?)
}
