//! A worker: one lease, one heartbeat, any number of trajectories at once.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use gesta_core::document::Environment;
use gesta_core::entry::Head;
use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::keys::PrivateKey;
use gesta_core::projection::Summary;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_store::{Chain, Listening, News, Profile, Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::alone;
use crate::anchor::{self, Anchor};
use crate::budgets::{self, Budgets};
use crate::clock::Pulse;
use crate::desk::{COMPILER, Event, Listener, Shared};
use crate::error::RunError;
use crate::in_force::InForce;
use crate::limits::{self, Rations};
use crate::notify;
use crate::options::Options;
use crate::presence::Presence;
use crate::published::Published;
use crate::rules::Rules;
use crate::runner::{self, Left};
use crate::sealing::{self, Sealer};
use crate::signer::Signer;
use crate::spool::Spool;
use crate::tools::Catalogue;
use crate::unread::{self, Unread};
use crate::vault::Vault;

/// How often to ask for work, where it is usually heard of.
const HEARD_LOOK_MS: u64 = 500;
/// How often to read the registry, where it is usually heard of.
const HEARD_REGISTRY: Duration = Duration::from_secs(2);

/// What a worker is made of.
pub struct Setup {
    /// Where the chains are.
    pub store: Arc<dyn Store>,
    /// Who it is. Never two at a time under one name.
    pub worker: WorkerId,
    /// The key that signs receipts and reports, and decisions and permits too unless there is another
    /// for them.
    pub key: PrivateKey,
    /// The key that signs decisions and permits.
    pub guardian: Option<PrivateKey>,
    /// The tools.
    pub catalogue: Arc<Catalogue>,
    /// The registry that says whose signature counts and what is frozen.
    pub registry: Option<TrajectoryId>,
    /// How it behaves.
    pub options: Options,
    /// Who seals what is new, if this worker does.
    pub sealer: Option<Sealer>,
    /// Who hears what happens.
    pub listener: Option<Listener>,
    /// Where reports go while the store cannot be reached.
    pub spool: Option<Spool>,
    /// Where sensitive values are kept; without one, tools that take or return any are not called.
    pub vault: Option<Vault>,
    /// Where workers of this machine show that they are alive.
    pub presence: Option<PathBuf>,
    /// The file in which heads are kept that the store has acknowledged.
    pub anchor: Option<PathBuf>,
    /// What this machine is called, for people.
    pub host: String,
}

/// A worker with a live lease.
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    registry: Option<TrajectoryId>,
    /// What runs beside the trajectories.
    beside: Vec<JoinHandle<()>>,
    _presence: Option<Arc<Presence>>,
}

/// What a worker has in hand.
#[derive(Default)]
struct Hands {
    driven: JoinSet<(TrajectoryId, Result<Left, RunError>)>,
    /// What is driven.
    held: BTreeSet<TrajectoryId>,
    /// What is to be given back.
    unreleased: BTreeSet<TrajectoryId>,
}

/// What a worker with these tools says of itself.
fn profile(catalogue: &Catalogue, options: &Options, host: String) -> Profile {
    let tools = catalogue.iter().map(|tool| tool.name().clone()).collect();
    let limits = limits::declared(catalogue, options);
    Profile { tools, host, pid: std::process::id(), version: COMPILER.to_owned(), limits }
}

impl Worker {
    /// Begins a lease, ends those of workers that died on this machine, reads the registry, and
    /// delivers what was spooled.
    pub async fn start(setup: Setup) -> Result<Self, RunError> {
        let Setup { store, worker, key, catalogue, options, listener, spool, .. } = setup;
        let guardian = Signer::new(setup.guardian.as_ref().unwrap_or(&key))?;
        let key = Signer::new(&key)?;
        let presence = setup.presence.as_ref().map(|directory| Presence::begin(directory, &worker));
        let presence = presence.transpose()?.map(Arc::new);
        // After the sign of life: whoever restores looks for one once the anchor says so.
        let (epoch, anchor) = anchor::weigh(setup.anchor, &*store).await?;
        let rules = Rules::of_all(&catalogue)?;
        let sent = Instant::now();
        let profile = profile(&catalogue, &options, setup.host);
        let store_now = store.heartbeat(&worker, &profile, options.lease_ms).await?;
        let listening = store.listen();
        // Decisions name the catalogue and the options by their digests; whoever checks one must find
        // the content.
        store.put_blob(catalogue.canonical().as_bytes()).await?;
        let config = store.put_blob(options.canonical()?.as_bytes()).await?.sha256;
        let state = registry_state(&store, setup.registry).await?;
        let in_force = InForce::read(&*store, state.as_deref(), &catalogue, config).await?;
        let published = Published::default();
        published.learn(&*store, state.as_deref()).await?;
        let rations = Rations::of(&worker)?;
        let shared = Arc::new(Shared {
            pulse: Pulse::new(store_now, sent, options.lease_ms),
            budgets: Budgets::of(&worker)?,
            store,
            worker,
            key,
            guardian,
            catalogue,
            verifies: rules.values().any(Rules::verifies),
            rules: Arc::new(rules),
            in_force: RwLock::new(Arc::new(in_force)),
            options,
            listener,
            freed: Notify::new(),
            limits: Arc::new(rations),
            work: Notify::new(),
            drivers: Mutex::default(),
            alone: Mutex::default(),
            unread: Unread::default(),
            hearing: listening.hearing(),
            registry: RwLock::new(state),
            published,
            suspects: Mutex::default(),
            spool,
            vault: setup.vault,
            dead: Mutex::default(),
            anchor,
            epoch,
            unfit: OnceLock::new(),
        });
        limits::learn(&shared).await;
        bury(&shared, presence.as_deref()).await;
        let read = Arc::new(Notify::new());
        let mut beside = vec![
            tokio::spawn(beat(Arc::clone(&shared), profile, presence.clone())),
            tokio::spawn(hear(Arc::clone(&shared), listening, setup.registry, Arc::clone(&read))),
            tokio::spawn(follow_registry(Arc::clone(&shared), setup.registry, read)),
            tokio::spawn(limits::keep(Arc::clone(&shared))),
            tokio::spawn(limits::follow(Arc::clone(&shared))),
            tokio::spawn(budgets::keep(Arc::clone(&shared))),
            tokio::spawn(notify::deliver(Arc::clone(&shared))),
        ];
        beside.extend(setup.sealer.map(|it| tokio::spawn(sealing::keep(Arc::clone(&shared), it))));
        let mut worker = Self { shared, registry: setup.registry, beside, _presence: presence };
        worker.deliver_spooled().await?;
        worker.beside.push(unread::begin(&worker.shared).await);
        Ok(worker)
    }

    /// Drives whatever the store has to do, until told to stop.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<(), RunError> {
        self.work(stop, false).await
    }

    /// Drives what the store has to do now, as it would be claimed, until nothing is left, or told to stop.
    pub async fn run_once(&self, stop: watch::Receiver<bool>) -> Result<(), RunError> {
        self.work(stop, true).await
    }

    async fn work(&self, mut stop: watch::Receiver<bool>, once: bool) -> Result<(), RunError> {
        let shared = &self.shared;
        let mut hands = Hands::default();
        let mut unanswered = false;
        let (mut distrusted, mut polled) = (false, false);
        loop {
            let stopping = self.is_fit().map(|()| *stop.borrow())?;
            if stopping && hands.driven.is_empty() {
                return self.retire().await;
            }
            alone::look(shared, polled && !shared.hearing.all()).await;
            let due = shared.alone().due(&hands.held);
            hands.unreleased.extend(due);
            hands.unreleased = self.release_all(std::mem::take(&mut hands.unreleased)).await;
            let free = shared.options.jobs.saturating_sub(hands.driven.len());
            if unanswered {
                let mut keep = shared.alone().all();
                keep.extend(&hands.held);
                unanswered = shared.store.release_others(&shared.worker, &keep).await.is_err();
            }
            let alive = shared.pulse.held(shared.pulse.lease());
            distrusted = self.is_distrusted(distrusted);
            let mut idle = distrusted;
            if !stopping && free > 0 && !unanswered && alive && !distrusted {
                match self.claim(free).await {
                    Ok(claimed) => {
                        idle = claimed.is_empty();
                        self.drive_all(claimed, &mut hands, &stop);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the store cannot be asked for work");
                        unanswered = true;
                    }
                }
            }
            if once && idle && hands.driven.is_empty() {
                return self.retire().await;
            }
            let poll = shared.look_after(HEARD_LOOK_MS);
            polled = false;
            tokio::select! {
                biased;
                Some(done) = hands.driven.join_next(), if !hands.driven.is_empty() => {
                    match done {
                        Ok((trajectory, left)) => {
                            hands.held.remove(&trajectory);
                            if self.done(trajectory, &left).await {
                                hands.unreleased.insert(trajectory);
                            }
                        }
                        Err(error) => tracing::error!(%error, "a trajectory's task died"),
                    }
                }
                _ = stop.changed() => {}
                () = shared.work.notified(), if free > 0 => {}
                () = tokio::time::sleep(poll) => polled = true,
            }
        }
    }

    async fn claim(&self, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        let (store, worker) = (&self.shared.store, &self.shared.worker);
        #[cfg(feature = "sabotage")]
        if self.shared.options.sabotage == Some(crate::Sabotage::IgnoreTools) {
            let mut claimed = Vec::new();
            for row in store.list(&gesta_store::Listing::default(), max).await? {
                if has_work(&row.summary, self.now())
                    && store.claim_one(worker, row.trajectory).await?
                {
                    claimed.push(row.trajectory);
                }
            }
            return Ok(claimed);
        }
        let mut claimed = self.claim_reported(max).await?;
        if claimed.len() < max {
            claimed.extend(store.claim(worker, max - claimed.len()).await?);
        }
        Ok(claimed)
    }

    /// Takes what has a report in the inbox that only an owner takes up, by name: whether there is anything else to do
    /// or not, unless another live worker has it.
    async fn claim_reported(&self, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        let reported = std::mem::take(&mut *self.shared.unread.for_owners());
        let mut claimed = Vec::new();
        for trajectory in reported.into_iter().take(max) {
            if self.shared.store.claim_one(&self.shared.worker, trajectory).await? {
                claimed.push(trajectory);
            }
        }
        Ok(claimed)
    }

    /// Begins to drive what was claimed.
    fn drive_all(
        &self,
        claimed: Vec<TrajectoryId>,
        hands: &mut Hands,
        stop: &watch::Receiver<bool>,
    ) {
        for trajectory in claimed {
            // Given back before, without an answer: it is not given back now.
            hands.unreleased.remove(&trajectory);
            if !hands.held.insert(trajectory) {
                continue;
            }
            let (shared, stop) = (Arc::clone(&self.shared), stop.clone());
            hands
                .driven
                .spawn(async move { (trajectory, runner::drive(shared, trajectory, stop).await) });
        }
    }

    /// Whether this worker's signatures do not count. Told once.
    fn is_distrusted(&self, told: bool) -> bool {
        let trusted = self.shared.may_sign();
        if let (Err(distrust), false) = (&trusted, told) {
            tracing::error!(%distrust, "this worker's key does not count: it takes no work");
            let note =
                format!("this worker takes no work: {distrust}; restart it with another key");
            self.shared.tell(|| Event::Note(note));
        }
        trusted.is_err()
    }

    /// Whether a report about a trajectory has arrived since that only whoever drives it takes up.
    pub fn is_reported(&self, trajectory: TrajectoryId) -> bool {
        self.shared.unread.for_owners().contains(&trajectory)
    }

    /// Drives one trajectory until it has ended or can go no further for the time being.
    pub async fn run_one(
        &self,
        trajectory: TrajectoryId,
        stop: watch::Receiver<bool>,
    ) -> Result<Left, RunError> {
        let shared = &self.shared;
        if !shared.store.claim_one(&shared.worker, trajectory).await? {
            return Ok(Left::Parked);
        }
        // A task of its own, so that the calls it makes run on the same thread. Dropped with this.
        let mut driven = JoinSet::new();
        driven.spawn(runner::drive(Arc::clone(shared), trajectory, stop));
        let left = match driven.join_next().await {
            Some(Ok(left)) => left,
            Some(Err(error)) => Err(RunError::Died { trajectory, why: error.to_string() }),
            None => Ok(Left::Lost),
        };
        self.release(trajectory).await;
        left
    }

    /// Ends the lease and gives everything back.
    pub async fn retire(&self) -> Result<(), RunError> {
        self.beside.iter().for_each(JoinHandle::abort);
        keep_anchor(&self.shared).await;
        limits::give_back(&self.shared).await;
        budgets::give_back(&self.shared).await;
        self.shared.store.retire(&self.shared.worker).await?;
        Ok(())
    }

    /// Whether the store is still one to work on.
    fn is_fit(&self) -> Result<(), RunError> {
        self.shared.unfit.get().map_or(Ok(()), |unfit| Err(unfit.clone()))
    }

    /// Who it is.
    pub fn id(&self) -> &WorkerId {
        &self.shared.worker
    }

    /// What time it is for the store.
    pub fn now(&self) -> UnixMs {
        self.shared.pulse.now()
    }

    /// What is in force for whatever this worker decides.
    pub fn environment(&self) -> Environment {
        self.shared.in_force().environment
    }

    /// The registry, as last read, with its id.
    pub fn registry(&self) -> Option<(TrajectoryId, Arc<State>)> {
        self.registry.zip(self.shared.registry())
    }

    /// A trajectory was driven as far as it goes. One that still looks as if there were something to
    /// do is left alone for a while, claimed, so that nobody turns in circles. True when it is to be
    /// given back now.
    async fn done(&self, trajectory: TrajectoryId, left: &Result<Left, RunError>) -> bool {
        let row = match left {
            Ok(Left::Parked | Left::Held) => self.looks_busy(trajectory).await,
            Ok(Left::Ended | Left::Stopped | Left::Lost | Left::Outdated) => None,
            Err(error) => {
                tracing::error!(%trajectory, %error, "a trajectory cannot be driven");
                self.shared.tell(|| Event::Note(format!("{trajectory} cannot be driven: {error}")));
                Some(None)
            }
        };
        let mut alone = self.shared.alone();
        match row {
            Some(head) => alone.leave(trajectory, head, *left == Ok(Left::Held)),
            None => alone.forget(trajectory),
        }
        row.is_none()
    }

    /// Where it stands, if it looks as if there were something to do.
    async fn looks_busy(&self, trajectory: TrajectoryId) -> Option<Option<Head>> {
        match self.shared.store.trajectory(trajectory).await {
            Ok(Some(row)) => {
                has_work(&row.summary, self.shared.pulse.now()).then_some(Some(row.head))
            }
            _ => None,
        }
    }

    /// Gives trajectories back, and says which could not be: a live worker keeps what it does not give
    /// back, so they must be tried again.
    async fn release_all(&self, unreleased: BTreeSet<TrajectoryId>) -> BTreeSet<TrajectoryId> {
        let mut left = BTreeSet::new();
        for trajectory in unreleased {
            if !self.release(trajectory).await {
                left.insert(trajectory);
            }
        }
        left
    }

    pub(crate) async fn release(&self, trajectory: TrajectoryId) -> bool {
        let released = self.shared.store.release(&self.shared.worker, trajectory).await;
        if let Err(error) = &released {
            tracing::warn!(%trajectory, %error, "a trajectory cannot be given back yet");
        }
        released.is_ok()
    }

    async fn deliver_spooled(&self) -> Result<(), RunError> {
        match &self.shared.spool {
            Some(spool) => spool.deliver(&*self.shared.store).await,
            None => Ok(()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.beside.iter().for_each(JoinHandle::abort);
    }
}

/// Whether a worker has something to do now.
pub fn has_work(summary: &Summary, now: UnixMs) -> bool {
    !summary.status.ended() && (summary.runnable || summary.wake_at.is_some_and(|wake| wake <= now))
}

/// The heartbeat: extends the lease, reads the clock, looks for the dead. One that is not answered in
/// time is not waited for: the next goes another way.
async fn beat(shared: Arc<Shared>, profile: Profile, presence: Option<Arc<Presence>>) {
    let lease_ms = shared.options.lease_ms;
    let every = shared.options.beat();
    loop {
        tokio::time::sleep(every).await;
        let sent = Instant::now();
        let beating = shared.store.heartbeat(&shared.worker, &profile, lease_ms);
        match tokio::time::timeout(every * 2, beating).await {
            Ok(Ok(store_now)) => shared.pulse.beat(store_now, sent, lease_ms),
            Ok(Err(error)) => tracing::warn!(%error, "a heartbeat failed"),
            Err(_) => tracing::warn!("a heartbeat was not answered in time"),
        }
        weigh_again(&shared).await;
        bury(&shared, presence.as_deref()).await;
    }
}

/// Looks whether the store is still the one that it was, and keeps what it has acknowledged since.
async fn weigh_again(shared: &Arc<Shared>) {
    let Some(anchor) = &shared.anchor else { return };
    match anchor.still_fits(&*shared.store).await {
        Ok(()) => {
            if let Some((registry, head)) = shared.registry_head() {
                anchor.note(registry, head);
            }
            keep_anchor(shared).await;
        }
        Err(error @ RunError::Unfit(_)) => shared.condemn(error),
        Err(error) => tracing::warn!(%error, "the store cannot be compared with its anchor"),
    }
}

/// Writes the anchor. What is not written now is written with the next heartbeat.
async fn keep_anchor(shared: &Arc<Shared>) {
    if shared.anchor.is_none() || shared.unfit.get().is_some() {
        return;
    }
    let sharing = Arc::clone(shared);
    let kept = tokio::task::spawn_blocking(move || sharing.anchor.as_ref().map(Anchor::keep));
    match kept.await {
        Ok(Some(Err(error @ RunError::Unfit(_)))) => shared.condemn(error),
        Ok(Some(Err(error))) => tracing::warn!(%error, "the anchor cannot be written"),
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "writing the anchor died"),
    }
}

/// Hears what others do, and wakes whom it concerns.
async fn hear(
    shared: Arc<Shared>,
    mut listening: Listening,
    registry: Option<TrajectoryId>,
    registry_read: Arc<Notify>,
) {
    loop {
        match listening.next().await {
            News::Changed(trajectory) if registry == Some(trajectory) => registry_read.notify_one(),
            News::Changed(trajectory) => match shared.drivers().get(&trajectory) {
                Some(driver) => driver.notify_one(),
                None => {
                    shared.alone().stir(&trajectory);
                    shared.unread.rung.notify_one();
                    shared.work.notify_one();
                }
            },
            News::Missed => {
                shared.drivers().values().for_each(|driver| driver.notify_one());
                shared.work.notify_one();
                registry_read.notify_one();
            }
        }
    }
}

/// Reads the registry whenever it may have changed.
async fn follow_registry(
    shared: Arc<Shared>,
    registry: Option<TrajectoryId>,
    may_have_changed: Arc<Notify>,
) {
    let every = Duration::from_millis((shared.options.lease_ms / 3).max(1));
    loop {
        let every = if shared.hearing.all() { every.max(HEARD_REGISTRY) } else { every };
        let _whichever = tokio::time::timeout(every, may_have_changed.notified()).await;
        if let Err(error) = read_registry(&shared, registry).await {
            tracing::warn!(%error, "the registry cannot be read");
        }
    }
}

/// Ends the leases of workers that died on this machine.
async fn bury(shared: &Shared, presence: Option<&Presence>) {
    let Some(presence) = presence else { return };
    for worker in presence.dead() {
        if shared.died(&worker).is_some() {
            continue;
        }
        // Found dead now, so dead before now.
        let now = shared.pulse.now();
        match shared.store.retire(&worker).await {
            Ok(()) => {
                tracing::info!(%worker, "a worker died; its trajectories are free");
                shared.dead.lock().unwrap_or_else(PoisonError::into_inner).insert(worker, now);
            }
            Err(error) => tracing::warn!(%worker, %error, "a dead worker's lease stays"),
        }
    }
}

/// Reads the registry, if it has changed.
pub(crate) async fn read_registry(
    shared: &Shared,
    registry: Option<TrajectoryId>,
) -> Result<(), RunError> {
    let Some(registry) = registry else { return Ok(()) };
    let known = shared.registry().and_then(|state| state.head());
    let row = shared.store.trajectory(registry).await?;
    if row.is_some() && row.map(|row| row.head) == known {
        return Ok(());
    }
    let state = registry_state(&shared.store, Some(registry)).await?;
    // Before the state that names it: whoever decides on that finds it.
    shared.published.learn(&*shared.store, state.as_deref()).await?;
    let before = shared.in_force();
    let policy = state.as_ref().and_then(|state| state.registry().policy());
    if policy.is_some_and(|policy| policy != before.environment.policy) {
        let config = before.environment.config;
        let now =
            InForce::read(&*shared.store, state.as_deref(), &shared.catalogue, config).await?;
        *shared.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
    }
    *shared.registry.write().unwrap_or_else(PoisonError::into_inner) = state;
    // What was held may go on.
    shared.work.notify_one();
    Ok(())
}

/// The registry as it stands.
async fn registry_state(
    store: &Arc<dyn Store>,
    registry: Option<TrajectoryId>,
) -> Result<Option<Arc<State>>, RunError> {
    let Some(registry) = registry else { return Ok(None) };
    let chain = Chain::load(Arc::clone(store), registry).await?;
    Ok(Some(Arc::new(chain.state().clone())))
}
