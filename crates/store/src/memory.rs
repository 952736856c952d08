//! The memory store: the port's semantics and nothing else. The others are compared with it, and
//! the simulator runs on it.

mod archive;
mod epochs;
mod log;
mod mending;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::{StepId, Tenant, TrajectoryId, WorkerId};
use gesta_core::projection::{Admitted, Fence, Parked, Projection, Summary};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};

use crate::accounts::{Account, AccountRow, Book, Draw, Drawn};
use crate::archive::{Archived, Archives};
use crate::claims::{self, Candidate, Standing};
use crate::clock::Clock;
use crate::epoch::{Epochs, HeldRow};
use crate::error::{AppendError, StoreError};
use crate::log::LogStore;
use crate::mending::Mending;
use crate::news::{self, Bell, Listening, News};
use crate::outbox::{NoticeRow, Outbox, Tried};
use crate::port::{
    Listing, ParkedListing, ParkedRow, Profile, Reach, Store, StoredEntry, TrajectoryRow, WorkerRow,
};
use crate::rations::{self, Ration, Share};

/// A store that lives as long as the process.
pub struct MemoryStore {
    clock: Clock,
    tables: Mutex<Tables>,
    bell: Bell,
}

#[derive(Default)]
struct Tables {
    trajectories: BTreeMap<TrajectoryId, Chain>,
    workers: BTreeMap<WorkerId, Lease>,
    shares: BTreeMap<String, BTreeMap<WorkerId, Share>>,
    /// When each tenant was last chosen while others waited.
    turns: BTreeMap<String, u64>,
    accounts: BTreeMap<Account, Book>,
    outbox: Outbox,
    effects: BTreeMap<(TrajectoryId, UnixMs, Digest), Signed<EffectReport>>,
    /// With when each was last put.
    blobs: BTreeMap<Digest, (Vec<u8>, UnixMs)>,
    log: log::Log,
    /// The number, once it is not the first, and when it was opened.
    epoch: (u64, UnixMs),
    held: BTreeMap<TrajectoryId, HeldRow>,
}

struct Lease {
    profile: Profile,
    since: UnixMs,
    beat_at: UnixMs,
    until: UnixMs,
}

struct Chain {
    head: Head,
    entries: Vec<StoredEntry>,
    summary: Summary,
    parked: BTreeMap<StepId, Parked>,
    owner: Option<WorkerId>,
    held: bool,
    archived: Option<Archived>,
}

impl MemoryStore {
    /// An empty store whose leases are counted by `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, tables: Mutex::default(), bell: Bell::new(true) }
    }

    /// Nothing in here panics half-way through a change, so a poisoned lock guards whole tables.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError> {
        let appended = self.tables().append(&admitted)?;
        if news::concerns_others(&admitted) {
            self.bell.ring(News::Changed(admitted.trajectory()));
        }
        Ok(appended)
    }

    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let tables = self.tables();
        let Some(chain) = tables.trajectories.get(&trajectory) else { return Ok(Vec::new()) };
        match &chain.archived {
            Some(archived) if from <= chain.head.seq => {
                Err(StoreError::archived(trajectory, archived.bundle.clone()))
            }
            _ => Ok(chain.entries.iter().skip(index(from)).take(max).cloned().collect()),
        }
    }

    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError> {
        Ok(self.tables().trajectories.iter().find_map(|(trajectory, chain)| {
            let entry = chain.entries.iter().find(|entry| entry.id == id)?;
            Some((*trajectory, entry.seq))
        }))
    }

    async fn trajectory(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Option<TrajectoryRow>, StoreError> {
        Ok(self.tables().trajectories.get(&trajectory).map(|chain| chain.row(trajectory)))
    }

    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError> {
        let after = listing.after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self
            .tables()
            .trajectories
            .range((after, Bound::Unbounded))
            .filter(|(_, chain)| listing.status.is_none_or(|status| chain.summary.status == status))
            .take(max)
            .map(|(trajectory, chain)| chain.row(*trajectory))
            .collect())
    }

    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        let matches = |row: &ParkedRow| {
            let here = (row.trajectory, &row.parked.step);
            listing.after.as_ref().is_none_or(|(trajectory, step)| here > (*trajectory, step))
                && listing.on.is_none_or(|on| row.parked.on == on)
                && listing.trajectory.is_none_or(|trajectory| row.trajectory == trajectory)
        };
        Ok(self
            .tables()
            .trajectories
            .iter()
            .flat_map(|(&trajectory, chain)| {
                chain.parked.values().map(move |parked| (trajectory, parked))
            })
            .map(|(trajectory, parked)| ParkedRow { trajectory, parked: parked.clone() })
            .filter(matches)
            .take(max)
            .collect())
    }

    async fn reproject(
        &self,
        trajectory: TrajectoryId,
        head: Head,
        projection: &Projection,
    ) -> Result<(), AppendError> {
        match self.tables().trajectories.get_mut(&trajectory) {
            Some(chain) if chain.head == head && chain.archived.is_none() => {
                chain.parked.clear();
                chain.project(projection);
                Ok(())
            }
            other => Err(AppendError::Conflict { head: other.map(|chain| chain.head) }),
        }
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        tables.end_leases(now);
        let since = tables.workers.get(worker).map_or(now, |lease| lease.since);
        let (profile, until) = (profile.clone(), now.plus(lease_ms));
        tables.workers.insert(worker.clone(), Lease { profile, since, beat_at: now, until });
        Ok(now)
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        tables.end_leases(now);
        let claimed = |worker: &WorkerId| {
            let owners = tables.trajectories.values().filter_map(|chain| chain.owner.as_ref());
            owners.filter(|owner| *owner == worker).count() as u64
        };
        Ok(tables
            .workers
            .iter()
            .map(|(worker, lease)| WorkerRow {
                worker: worker.clone(),
                profile: lease.profile.clone(),
                since: lease.since,
                beat_at: lease.beat_at,
                lease_until: lease.until,
                claimed: claimed(worker),
            })
            .collect())
    }

    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        tables.end_leases(now);
        let Some(Lease { profile, .. }) = tables.workers.get(worker) else { return Ok(Vec::new()) };
        let mut standing: BTreeMap<String, Standing> = BTreeMap::new();
        let mut candidates = Vec::new();
        for (trajectory, chain) in &tables.trajectories {
            let summary = &chain.summary;
            let tenant = summary.tenant.as_ref().map(ToString::to_string).unwrap_or_default();
            if chain.owner.is_some() {
                let goes_on = !summary.status.ended();
                standing.entry(tenant).or_default().in_hand += u64::from(goes_on);
            } else if chain.has_work(now) && claims::fits(&summary.tools, &profile.tools) {
                let (rank, changed_at) = (claims::rank(summary.priority), summary.changed_at);
                candidates.push(Candidate { rank, changed_at, trajectory: *trajectory, tenant });
            }
        }
        for (tenant, given) in &tables.turns {
            standing.entry(tenant.clone()).or_default().given = *given;
        }
        let contested = claims::contested(&candidates);
        let next_given = tables.turns.values().max().map_or(1, |given| given + 1);
        let chosen = claims::next(candidates, standing, max);
        for Candidate { trajectory, tenant, .. } in &chosen {
            if let Some(chain) = tables.trajectories.get_mut(trajectory) {
                chain.owner = Some(worker.clone());
            }
            if contested {
                tables.turns.insert(tenant.clone(), next_given);
            }
        }
        Ok(chosen.into_iter().map(|candidate| candidate.trajectory).collect())
    }

    async fn claim_one(
        &self,
        worker: &WorkerId,
        trajectory: TrajectoryId,
    ) -> Result<bool, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        tables.end_leases(now);
        if !tables.workers.contains_key(worker) {
            return Ok(false);
        }
        let Some(chain) = tables.trajectories.get_mut(&trajectory) else { return Ok(false) };
        if chain.owner.is_none() && !chain.held && !chain.summary.status.ended() {
            chain.owner = Some(worker.clone());
        }
        Ok(chain.owner.as_ref() == Some(worker))
    }

    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError> {
        let now = (self.clock)();
        if let Some(chain) = self.tables().trajectories.get_mut(&trajectory)
            && chain.owner.take_if(|owner| owner == worker).is_some()
            && chain.has_work(now)
        {
            self.bell.ring(News::Changed(trajectory));
        }
        Ok(())
    }

    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError> {
        for (trajectory, chain) in &mut self.tables().trajectories {
            if !keep.contains(trajectory) {
                chain.owner.take_if(|owner| owner == worker);
            }
        }
        Ok(())
    }

    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let mut tables = self.tables();
        tables.workers.remove(worker);
        tables.give_back(|owner| owner == worker);
        self.bell.ring(News::Missed);
        Ok(())
    }

    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
        let mut tables = self.tables();
        tables.end_leases((self.clock)());
        Ok(tables.limits())
    }

    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        tables.end_leases(now);
        let ask = ask.within(tables.limits().get(scope).copied());
        let shares = tables.shares.entry(scope.to_owned()).or_default();
        Ok(rations::share(shares, worker, ask, now))
    }

    async fn draw(
        &self,
        account: &Account,
        holder: &str,
        draw: &Draw,
    ) -> Result<Drawn, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        let book = tables.accounts.entry(account.clone()).or_default();
        let drawn = book.draw(holder, draw, now);
        if let Some(notice) = book.notice(account, draw, &drawn, now) {
            tables.outbox.put(&notice);
        }
        Ok(drawn)
    }

    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let tables = self.tables();
        let listed = tables.accounts.iter().filter(|(account, _)| {
            account.day().is_some_and(|day| day >= since)
                && tenant.is_none_or(|tenant| account.tenant == *tenant)
        });
        let mut rows: Vec<_> = listed.map(|(account, book)| book.row(account.clone())).collect();
        rows.sort_by(|a, b| {
            let (a, b) = (&a.account, &b.account);
            a.tenant.cmp(&b.tenant).then(b.span.cmp(&a.span))
        });
        Ok(rows)
    }

    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError> {
        Ok(self.tables().accounts.get(account).map(|book| book.row(account.clone())))
    }

    async fn notices(&self, max: usize) -> Result<Vec<NoticeRow>, StoreError> {
        Ok(self.tables().outbox.list(max))
    }

    async fn claim_notices(
        &self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
    ) -> Result<Vec<NoticeRow>, StoreError> {
        let now = (self.clock)();
        Ok(self.tables().outbox.claim(worker, max, lease_ms, now))
    }

    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError> {
        let now = (self.clock)();
        self.tables().outbox.settle(worker, id, tried, now);
        Ok(())
    }

    async fn retry_notices(&self) -> Result<u64, StoreError> {
        Ok(self.tables().outbox.retry())
    }

    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.tables().effects.insert(effect_key(report), report.clone());
        self.bell.ring(News::Changed(report.doc().trajectory));
        Ok(())
    }

    async fn effects(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Vec<Signed<EffectReport>>, StoreError> {
        let tables = self.tables();
        let of_this = tables.effects.iter().filter(|((of, ..), _)| *of == trajectory);
        Ok(of_this.map(|(_, report)| report.clone()).collect())
    }

    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError> {
        let now = (self.clock)();
        let mut tables = self.tables();
        tables.end_leases(now);
        let unread = |id: &TrajectoryId| {
            tables.trajectories.get(id).is_some_and(|chain| {
                !chain.held && (chain.owner.is_none() || chain.summary.status.ended())
            })
        };
        let ids: BTreeSet<_> = tables.effects.keys().map(|(id, ..)| *id).collect();
        let after = |id: &TrajectoryId| after.is_none_or(|after| *id > after);
        Ok(ids.into_iter().filter(|id| after(id) && unread(id)).take(max).collect())
    }

    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError> {
        self.tables().effects.remove(&effect_key(report));
        Ok(())
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError> {
        let blob = BlobRef::of(bytes);
        let now = (self.clock)();
        self.tables().blobs.insert(blob.sha256, (bytes.to_vec(), now));
        Ok(blob)
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        match self.tables().blobs.get(&digest) {
            Some((bytes, _)) if Digest::of(bytes) != digest => Err(StoreError::DamagedBlob(digest)),
            other => Ok(other.map(|(bytes, _)| bytes.clone())),
        }
    }

    fn log(&self) -> &dyn LogStore {
        self
    }

    fn epochs(&self) -> &dyn Epochs {
        self
    }

    fn archives(&self) -> &dyn Archives {
        self
    }

    fn mending(&self) -> &dyn Mending {
        self
    }

    fn reach(&self) -> Reach {
        Reach::Process
    }

    fn listen(&self) -> Listening {
        self.bell.listen()
    }
}

impl Tables {
    /// What live workers have declared.
    fn limits(&self) -> BTreeMap<String, NonZeroU32> {
        let declared = self.workers.values().flat_map(|lease| &lease.profile.limits);
        rations::smallest(declared.map(|(name, limit)| (name.as_str(), *limit)))
    }

    fn append(&mut self, admitted: &Admitted) -> Result<Head, AppendError> {
        let stands = admitted.under().is_none_or(|(other, head)| {
            self.trajectories.get(&other).is_some_and(|other| other.head == head)
        });
        let unread = admitted.read().is_some_and(|read| {
            let mut there = self.effects.keys();
            there.any(|(of, _, report)| *of == admitted.trajectory() && !read.contains(report))
        });
        let Some(chain) = self.trajectories.get_mut(&admitted.trajectory()) else {
            if admitted.expected().is_some() || !stands || unread {
                return Err(AppendError::lost(admitted, None, unread));
            }
            self.trajectories.insert(admitted.trajectory(), Chain::begin(admitted));
            admitted.notices().iter().for_each(|notice| self.outbox.put(notice));
            return Ok(admitted.head());
        };
        let fenced = match admitted.fence() {
            Fence::Attempt(attempt) => attempt == chain.summary.attempt && !chain.held,
            Fence::Open => true,
        };
        if let Some(archived) = &chain.archived
            && let Some(answer) = AppendError::to_archived(admitted, chain.head, &archived.bundle)
        {
            return answer;
        }
        if stands && !unread && fenced && admitted.expected() == Some(chain.head) {
            chain.extend(admitted);
            admitted.notices().iter().for_each(|notice| self.outbox.put(notice));
            return Ok(admitted.head());
        }
        if admitted.entries().iter().all(|entry| chain.holds(entry)) {
            return Ok(admitted.head());
        }
        match admitted.fence() {
            Fence::Attempt(mine) if chain.summary.attempt > mine => {
                Err(AppendError::FenceLost { attempt: chain.summary.attempt })
            }
            _ => Err(AppendError::lost(admitted, Some(chain.head), unread)),
        }
    }

    /// A lease that has ended is over, and so are the claims made under it.
    fn end_leases(&mut self, now: UnixMs) {
        self.workers.retain(|_, lease| lease.until >= now);
        let live: Vec<WorkerId> = self.workers.keys().cloned().collect();
        self.give_back(|owner| !live.contains(owner));
    }

    fn give_back(&mut self, from: impl Fn(&WorkerId) -> bool) {
        for chain in self.trajectories.values_mut() {
            chain.owner.take_if(|owner| from(owner));
        }
    }
}

impl Chain {
    fn begin(admitted: &Admitted) -> Self {
        let mut chain = Self {
            head: admitted.head(),
            entries: Vec::new(),
            summary: admitted.projection().summary.clone(),
            parked: BTreeMap::new(),
            owner: None,
            held: false,
            archived: None,
        };
        chain.extend(admitted);
        chain
    }

    fn extend(&mut self, admitted: &Admitted) {
        self.entries.extend(admitted.entries().iter().map(|entry| StoredEntry {
            id: entry.id(),
            seq: entry.seq(),
            bytes: entry.bytes().to_vec(),
        }));
        self.head = admitted.head();
        self.project(admitted.projection());
    }

    fn project(&mut self, projection: &Projection) {
        self.summary = projection.summary.clone();
        for step in &projection.unparked {
            self.parked.remove(step);
        }
        for parked in &projection.parked {
            self.parked.insert(parked.step.clone(), parked.clone());
        }
    }

    fn holds(&self, entry: &Entry) -> bool {
        self.entries.get(index(entry.seq())).is_some_and(|stored| stored.id == entry.id())
    }

    fn has_work(&self, now: UnixMs) -> bool {
        let Summary { runnable, status, wake_at, .. } = &self.summary;
        !self.held && !status.ended() && (*runnable || wake_at.is_some_and(|at| at <= now))
    }

    fn row(&self, trajectory: TrajectoryId) -> TrajectoryRow {
        let (summary, archived) = (self.summary.clone(), self.archived.clone());
        TrajectoryRow { trajectory, head: self.head, summary, archived }
    }
}

/// Entries are numbered from 0 without gaps.
fn index(seq: u64) -> usize {
    usize::try_from(seq).unwrap_or(usize::MAX)
}

/// Oldest first; the digest makes the order whole.
fn effect_key(report: &Signed<EffectReport>) -> (TrajectoryId, UnixMs, Digest) {
    (report.doc().trajectory, report.doc().at, report.digest())
}
