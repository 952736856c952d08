//! Verifying many trajectories, from anything that can list their entries, with all that spans them.
//!
//! 1. The first entry of each is looked at: is it a registry, a job, a branch, a child?
//! 2. Registries are verified under the trust root. What a sound one says extends the keyring.
//! 3. All others are verified in parallel, a branch on top of the fold of its source.
//! 4. What entries say of other trajectories is compared with what those turned out to be.
//!
//! After the first bad entry of a trajectory the rest of it is not examined; every other trajectory
//! is. What leads to a trajectory that is not here is reported as *not checked*: an auditor who was
//! given a part should know that it is one. Unless told that a part is what they expect
//! ([`Options::partial`]), that makes the whole incomplete.
//!
//! Memory follows the number of trajectories, delegations and findings and the length of
//! registries, and for each result that a branch may have taken over it holds some hundred bytes. Of other trajectories no
//! entry is kept. That a settled step may never run again has to be known to the end: what there is to know of
//! more than some 20,000 of them is in a temporary file.

mod across;
mod beginning;
mod blobs;
mod examine;
mod sealed;
mod sensitive;
mod shelf;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::state::{self, Registry};
use gesta_core::trust::Keyring;
use gesta_core::verification::Finding;

use crate::report::{Counts, Line, NotChecked, Report, Verdict};
use beginning::{Beginning, Begins};
use blobs::Named;
use examine::Examined;
use sealed::Log;
pub use sealed::{Demand, Sealing, Seen, verify_proof};
use shelf::Shelf;
use spread::spread;

/// What takes entries one by one: the bytes, and the id that they are stored under.
pub type Each<'a> = dyn FnMut(&[u8], Option<EntryId>) -> ControlFlow<()> + 'a;

/// Where trajectories come from: a bundle, a store.
pub trait Chains: Sync {
    /// Every trajectory that is to be verified.
    fn trajectories(&self) -> Result<Vec<TrajectoryId>, Finding>;

    /// Hands out the entries of a trajectory in order, each with the id that it is stored under if
    /// there is one, until there are none left or `each` breaks off.
    fn entries(&self, trajectory: TrajectoryId, each: &mut Each<'_>) -> Result<(), Finding>;

    /// The digest and size of what is kept as this blob, computed from its bytes; none if it is not
    /// there. May be asked for the same one again.
    fn blob(&self, digest: Digest) -> Result<Option<BlobRef>, Finding>;

    /// Where the trajectory is said to end.
    fn expected_head(&self, _: TrajectoryId) -> Option<Head> {
        None
    }

    /// What is wrong with how the trajectory is kept, beside its entries. Asked once these were handed out.
    fn misfiled(&self, _: TrajectoryId) -> Option<Finding> {
        None
    }

    /// How large the trajectory is, so that large ones are begun first.
    fn size(&self, _: TrajectoryId) -> Option<u64> {
        None
    }

    /// The checkpoint of a transparency log that came along, with proofs.
    fn sealing(&self) -> Option<&Sealing> {
        None
    }

    /// The commitments of sensitive values that are disclosed, each by what opens it.
    fn disclosed(&self) -> Vec<Digest> {
        Vec::new()
    }

    /// All blobs there are, each only there because some entry names it; none if nobody has listed them, and
    /// each that is named has to be asked for.
    fn listed_blobs(&self) -> Option<Vec<Digest>> {
        None
    }
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries examined.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How to verify.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// How many threads.
    pub threads: NonZeroUsize,
    /// Whether signatures are checked. Without them the report says so.
    pub signatures: bool,
    /// Whether a part of a whole is what is expected: what leads out of it is then listed, and does
    /// not stand against it. Blobs and the sources of branches are needed all the same.
    pub partial: bool,
    /// What is demanded of the transparency log.
    pub demand: &'a Demand,
    /// Told now and then how far it is, from any thread.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
}

/// What is demanded of the log unless somebody demands more.
const NOTHING: &Demand =
    &Demand { sealed: false, all: false, after: None, witnesses: 0, origin: None, seen: None };

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            threads: NonZeroUsize::MIN,
            signatures: true,
            partial: false,
            demand: NOTHING,
            progress: None,
        }
    }
}

/// Verifies all trajectories, trusting nothing but `trust`.
pub fn verify(chains: &dyn Chains, trust: &Keyring, options: &Options<'_>) -> Report {
    let trajectories = match chains.trajectories() {
        Ok(trajectories) => trajectories,
        Err(finding) => return Report::of_finding(finding),
    };
    let log = Log::read(chains.sealing(), trust, options.demand);
    let audit = Audit::new(chains, options, &log, &trajectories);
    let (registries, mut others): (Vec<_>, Vec<_>) =
        trajectories.into_iter().partition(|trajectory| audit.is_registry(*trajectory));

    let standing = spread(options.threads, &registries, |registry| {
        audit.examine(*registry, trust, &BTreeMap::new())
    });
    let mut keyring = trust.clone();
    let mut heads = BTreeMap::new();
    for registry in &standing {
        if let Some((says, ids)) = registry.registry.as_ref().filter(|_| registry.is_sound()) {
            keyring.extend(says.keys());
            heads.insert(registry.trajectory, Standing { ids, says });
        }
    }

    others.sort_by_key(|trajectory| std::cmp::Reverse(chains.size(*trajectory)));
    let mut examined =
        spread(options.threads, &others, |other| audit.examine(*other, &keyring, &heads));
    drop(heads);
    if !standing.iter().all(Examined::is_sound) {
        examined.iter_mut().for_each(Examined::lack_registry);
    }
    audit.conclude(standing.into_iter().chain(examined).collect(), &keyring)
}

/// Everything above the branches that may take over what was recorded there.
fn lenders(beginnings: &BTreeMap<TrajectoryId, Beginning>) -> BTreeSet<TrajectoryId> {
    let mut lenders = BTreeSet::new();
    for beginning in beginnings.values() {
        if matches!(beginning.as_, Begins::Branch { recorded: true, .. }) {
            lenders.extend(beginning::above(beginnings, beginning));
        }
    }
    lenders
}

/// What is known before and while trajectories are examined.
struct Audit<'a> {
    chains: &'a dyn Chains,
    options: &'a Options<'a>,
    log: &'a Log<'a>,
    beginnings: BTreeMap<TrajectoryId, Beginning>,
    /// Entries that the beginnings of other trajectories name.
    wanted: BTreeMap<TrajectoryId, BTreeSet<EntryId>>,
    /// Trajectories that branches may have taken results over from.
    lenders: BTreeSet<TrajectoryId>,
    named: Named,
    shelf: Arc<dyn state::Shelf>,
    entries: AtomicU64,
    bytes: AtomicU64,
}

/// A sound registry: the ids of its entries, by number, and what it says in the end.
#[derive(Clone, Copy)]
struct Standing<'a> {
    ids: &'a [EntryId],
    says: &'a Registry,
}

/// The sound registries.
type Registries<'a> = BTreeMap<TrajectoryId, Standing<'a>>;

impl<'a> Audit<'a> {
    fn new(
        chains: &'a dyn Chains,
        options: &'a Options<'a>,
        log: &'a Log<'a>,
        all: &[TrajectoryId],
    ) -> Self {
        let peeked = spread(options.threads, all, |id| (*id, Beginning::peek(chains, *id)));
        let beginnings: BTreeMap<_, _> = peeked.into_iter().collect();
        let mut wanted: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (trajectory, entry) in beginnings.values().flat_map(Beginning::names) {
            wanted.entry(trajectory).or_default().insert(entry);
        }
        let lenders = lenders(&beginnings);
        Self {
            chains,
            options,
            log,
            beginnings,
            wanted,
            lenders,
            named: Named::new(chains.listed_blobs()),
            shelf: Arc::new(Shelf::default()),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn is_registry(&self, trajectory: TrajectoryId) -> bool {
        self.beginnings.get(&trajectory).is_some_and(|beginning| beginning.as_ == Begins::Registry)
    }

    fn advance(&self, entries: u64, bytes: u64) {
        if let Some(progress) = self.options.progress {
            let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
            let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress(Progress { entries, bytes });
        }
    }

    /// Compares what trajectories say of each other, and sums up.
    fn conclude(&self, examined: Vec<Examined>, keyring: &Keyring) -> Report {
        let across = across::compare(&self.beginnings, &examined);
        let whole = examined.iter().all(Examined::is_sound);
        let mut counts = Counts { links: across.links, ..Counts::default() };
        let mut findings = across.findings;
        let mut not_checked = across.not_checked;
        let (unsealed, log) = self.log.conclude(&examined, keyring);
        findings.extend(unsealed);
        if !self.options.signatures {
            let (trajectory, seq, of, blob) = (None, None, None, None);
            not_checked.push(NotChecked { trajectory, seq, what: "signatures", of, blob });
        }
        not_checked.extend(self.named.absent());
        let disclosed: BTreeSet<Digest> = self.chains.disclosed().into_iter().collect();
        let sensitive = sensitive::told(&examined, &disclosed);
        if whole {
            findings.extend(self.named.strays());
            findings.extend(sensitive::strays(&examined, disclosed));
        }
        let mut lines = Vec::with_capacity(examined.len());
        for one in examined {
            counts.trajectories += 1;
            counts.entries += one.entries;
            counts.bytes += one.bytes;
            counts.signatures += one.signatures;
            counts.blobs += one.blobs;
            counts.links += one.links;
            lines.push(Line {
                trajectory: one.trajectory,
                entries: one.entries,
                signatures: one.signatures,
                head: one.head,
                sealed: self.log.head(one.trajectory).map(|head| head.seq),
                verdict: Verdict::Sound,
            });
            findings.extend(one.bad);
            findings.extend(one.beside);
            not_checked.extend(one.not_checked);
        }
        let report = Report::new(lines, findings, not_checked, counts, self.options.partial);
        Report { sensitive, ..report }.with_log(log)
    }
}
