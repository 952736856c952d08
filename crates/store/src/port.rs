//! The port: all that the rest of Gesta knows of a store. Each method says what a crash around it
//! means. Stores hold bytes and rows; what an entry means is the state machine's business.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use async_trait::async_trait;
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{StepId, Tenant, ToolName, TrajectoryId, WorkerId};
use gesta_core::projection::{Admitted, Parked, ParkedOn, Projection, Status, Summary};
use gesta_core::signed::Signed;
use gesta_core::time::{Day, UnixMs};

use crate::accounts::{Account, AccountRow, Draw, Drawn};
use crate::archive::{Archived, Archives};
use crate::epoch::Epochs;
use crate::error::{AppendError, StoreError};
use crate::log::LogStore;
use crate::mending::Mending;
use crate::news::Listening;
use crate::outbox::{NoticeRow, Tried};
use crate::rations::Ration;

/// An entry as it is stored. The bytes are as they were found: nothing about them has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The id under which it is stored.
    pub id: EntryId,
    /// The number under which it is stored.
    pub seq: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A trajectory's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrajectoryRow {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// Its head.
    pub head: Head,
    /// The rest.
    pub summary: Summary,
    /// Where its entries are, if they are not here.
    pub archived: Option<Archived>,
}

/// A parked step's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRow {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The rest.
    pub parked: Parked,
}

/// Which trajectories to list. Pages run by trajectory id.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Only those after this one.
    pub after: Option<TrajectoryId>,
    /// Only those that stand so.
    pub status: Option<Status>,
}

/// Which parked steps to list. Pages run by trajectory and step.
#[derive(Clone, Debug, Default)]
pub struct ParkedListing {
    /// Only those after this one.
    pub after: Option<(TrajectoryId, StepId)>,
    /// Only those that wait for this.
    pub on: Option<ParkedOn>,
    /// Only those of this trajectory.
    pub trajectory: Option<TrajectoryId>,
}

/// What a worker says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The tools that it has, in order.
    pub tools: Vec<ToolName>,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// What it is a build of.
    pub version: String,
    /// How many calls may be under way at once, of all workers together, as its settings say: by the
    /// name under which shares of it are asked for.
    pub limits: BTreeMap<String, NonZeroU32>,
}

/// A worker with a live lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Who it is.
    pub worker: WorkerId,
    /// What it says of itself.
    pub profile: Profile,
    /// When its lease began.
    pub since: UnixMs,
    /// When it was last extended.
    pub beat_at: UnixMs,
    /// When it ends, unless it is extended.
    pub lease_until: UnixMs,
    /// How many trajectories it holds.
    pub claimed: u64,
}

/// From where a store can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From this process alone.
    Process,
    /// From this machine, by this file.
    Machine(PathBuf),
    /// From other machines too.
    Network,
}

impl Reach {
    /// How long a lease lasts unless somebody says so. On one machine the death of a worker is seen at
    /// once; on several only its lease tells.
    pub fn lease_ms(&self) -> u64 {
        match self {
            Self::Process | Self::Machine(_) => 10_000,
            Self::Network => 2_000,
        }
    }
}

/// A store of chains.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Appends entries and their projections: all of it or none.
    ///
    /// `Ok` means durable: it survives the death of the process and of the machine. After a crash
    /// without an answer it is unknown; sending the same again settles it, since entries that are
    /// already there under the same ids count as appended. To an archived trajectory nothing is appended:
    /// it is refused, and the error says where the entries are.
    async fn append(&self, admitted: Admitted) -> Result<Head, AppendError>;

    /// The entries of a trajectory with `seq >= from`, in order, at most `max` of them. Sees
    /// everything that was acknowledged before the call. Those of an archived trajectory are elsewhere:
    /// asking for any of them is an error that says where.
    async fn entries(
        &self,
        trajectory: TrajectoryId,
        from: u64,
        max: usize,
    ) -> Result<Vec<StoredEntry>, StoreError>;

    /// Where an entry is. Slow on large stores: ids are not indexed, since the index would cost every
    /// append and people name entries by trajectory and number.
    async fn locate(&self, id: EntryId) -> Result<Option<(TrajectoryId, u64)>, StoreError>;

    /// A trajectory's row.
    async fn trajectory(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Option<TrajectoryRow>, StoreError>;

    /// Rows of trajectories, by id, at most `max` of them.
    async fn list(&self, listing: &Listing, max: usize) -> Result<Vec<TrajectoryRow>, StoreError>;

    /// Rows of parked steps, by trajectory and step, at most `max` of them.
    async fn parked(
        &self,
        listing: &ParkedListing,
        max: usize,
    ) -> Result<Vec<ParkedRow>, StoreError>;

    /// Replaces a trajectory's projections by these, if its head is still `head`. A crash leaves the
    /// old ones or the new ones. All parked rows of the trajectory are replaced, not only those named.
    async fn reproject(
        &self,
        trajectory: TrajectoryId,
        head: Head,
        projection: &Projection,
    ) -> Result<(), AppendError>;

    /// Extends the lease of a worker, or begins it, and says what time it is for the store. A worker
    /// whose heartbeat fails counts its lease from before the last one that succeeded. A lease holds
    /// up to and including its last millisecond; once it has ended, so have the claims made under it,
    /// and a late heartbeat begins a new one under which nothing is held.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        profile: &Profile,
        lease_ms: u64,
    ) -> Result<UnixMs, StoreError>;

    /// The workers with a live lease, by id.
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    /// Takes up to `max` trajectories that have something to do now, that no live worker holds, and
    /// whose tools the worker has, as its last heartbeat told: the greatest priority first, then
    /// whose tenant has the fewest in hand, then whose tenant was chosen longest ago, then longest
    /// unchanged. A claim is a reservation and
    /// grants nothing: the `attempt` entry does. A crash leaves trajectories claimed until the lease
    /// ends. A worker without a live lease gets none.
    async fn claim(&self, worker: &WorkerId, max: usize) -> Result<Vec<TrajectoryId>, StoreError>;

    /// Takes this one trajectory, whatever there is to do, unless it has ended or another live worker
    /// holds it. True when the worker holds it now. A crash is as with `claim`.
    async fn claim_one(
        &self,
        worker: &WorkerId,
        trajectory: TrajectoryId,
    ) -> Result<bool, StoreError>;

    /// Gives a trajectory back. A crash before it only delays the next claim.
    async fn release(&self, worker: &WorkerId, trajectory: TrajectoryId) -> Result<(), StoreError>;

    /// Gives back everything that a worker holds but these. For a worker whose claim went unanswered:
    /// it may hold what it does not know of, and would for as long as it lives.
    async fn release_others(
        &self,
        worker: &WorkerId,
        keep: &[TrajectoryId],
    ) -> Result<(), StoreError>;

    /// Ends a worker's lease and gives everything back.
    async fn retire(&self, worker: &WorkerId) -> Result<(), StoreError>;

    /// The limits that workers with a live lease have declared; of each the smallest, which binds all.
    async fn limits(&self) -> Result<BTreeMap<String, NonZeroU32>, StoreError>;

    /// Asks for a share of a limit that all workers keep together, and says how many calls the worker
    /// may have under way at once. What a live worker has declared binds it, if that is less than it
    /// asks by. A crash leaves the share as it was or as it is now; either way it ends by itself.
    async fn ration(&self, worker: &WorkerId, scope: &str, ask: Ration) -> Result<u32, StoreError>;

    /// Tells what the holder of a slice has used of an account, and draws more or gives back.
    /// `Ok` means durable. After a crash without an answer it is unknown whether it was done; sending
    /// the same again settles it, and whichever it was, the holder may rely on what it keeps. A holder
    /// that dies leaves its slice as it last was: what it held stays drawn until the day is over, or
    /// until somebody tells more of it under a later number.
    async fn draw(&self, account: &Account, holder: &str, draw: &Draw)
    -> Result<Drawn, StoreError>;

    /// The daily accounts of a tenant, or of all, from this day on: by tenant, the newest day first.
    async fn accounts(
        &self,
        tenant: Option<&Tenant>,
        since: Day,
    ) -> Result<Vec<AccountRow>, StoreError>;

    /// One account, if anybody has drawn on it.
    async fn account(&self, account: &Account) -> Result<Option<AccountRow>, StoreError>;

    /// The notices in the outbox, oldest first, at most `max` of them.
    async fn notices(&self, max: usize) -> Result<Vec<NoticeRow>, StoreError>;

    /// Takes up to `max` notices that are due and in nobody's hands, oldest first, for `lease_ms`; and
    /// forgets those that nobody has tried to deliver for a week. A crash leaves them taken until the
    /// time is over; then they are delivered again.
    async fn claim_notices(
        &self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
    ) -> Result<Vec<NoticeRow>, StoreError>;

    /// Says what became of a notice that the worker has in hand. A crash before it means that the
    /// notice is delivered again.
    async fn settle_notice(
        &self,
        worker: &WorkerId,
        id: Digest,
        tried: &Tried,
    ) -> Result<(), StoreError>;

    /// Has notices that were given up tried again, and says how many there are.
    async fn retry_notices(&self) -> Result<u64, StoreError>;

    /// Stores what an executor saw, fenced by nothing. The same report twice is one. `Ok` means durable.
    async fn put_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError>;

    /// The reports for a trajectory, oldest first: by their own time, then by digest.
    async fn effects(
        &self,
        trajectory: TrajectoryId,
    ) -> Result<Vec<Signed<EffectReport>>, StoreError>;

    /// Trajectories after `after` that have reports which no owner reads: nobody with a live lease holds
    /// them, or they have ended. By id, at most `max` of them; none that a restored copy holds back.
    async fn reported(
        &self,
        after: Option<TrajectoryId>,
        max: usize,
    ) -> Result<Vec<TrajectoryId>, StoreError>;

    /// Removes a report that the chain has taken up. A crash before it leaves a report that is found
    /// to be taken up again.
    async fn drop_effect(&self, report: &Signed<EffectReport>) -> Result<(), StoreError>;

    /// Stores a blob under its digest. `Ok` means durable. The same bytes twice are one blob.
    async fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, StoreError>;

    /// A blob, checked against its digest.
    async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError>;

    /// The transparency log of these chains.
    fn log(&self) -> &dyn LogStore;

    /// What it knows of being a copy.
    fn epochs(&self) -> &dyn Epochs;

    /// What it knows of trajectories whose entries are elsewhere.
    fn archives(&self) -> &dyn Archives;

    /// What it can tell of trajectories whose rows nobody believes.
    fn mending(&self) -> &dyn Mending;

    /// From where it can be reached.
    fn reach(&self) -> Reach;

    /// Hears of what is added by others than the owner, reported to the inbox, or given back with
    /// something left to do. News may be missed; whoever listens also looks from time to time.
    fn listen(&self) -> Listening;
}
