//! Where calls are made from: what a worker shares between its trajectories, and what it knows of
//! the one in hand. Nothing here decides; the pipeline asks.

mod keys;
mod sensitive;
mod writ;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Mandate, Proposal, step_seed};
use gesta_core::content::{BlobRef, Content, MAX_INLINE_BYTES};
use gesta_core::digest::WritId;
use gesta_core::document::{
    ApprovalVerdict, CallResult, Certainty, EffectReport, Failing, FreezeTarget, Recovery,
    Settlement,
};
use gesta_core::entry::{Author, Entry, Head};
use gesta_core::guardian::{self, Unpublished};
use gesta_core::ids::{StepId, ToolName, TrajectoryId, WorkerId};
use gesta_core::json::{Canon, Limits};
use gesta_core::keys::{KeyId, Sign as _};
use gesta_core::signed::{Document, Signed, Tag};
use gesta_core::state::{self, State};
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_core::world::{Delta, World};
use gesta_store::{Draft, Hearing, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::sensitive::Opened;
use self::writ::{WritSigner, check_writs, writ_signers};
use crate::alone::Alone;
use crate::anchor::Anchor;
use crate::budgets::{Budgets, Current};
use crate::clock::Pulse;
use crate::error::RunError;
use crate::facts::{Facts, Spoken};
use crate::in_force::InForce;
use crate::job::Spec;
use crate::limits::Rations;
use crate::lineage::Lineage;
use crate::options::Options;
use crate::pipeline::{Ended, How};
use crate::published::Published;
use crate::rules::Rules;
use crate::signer::Signer;
use crate::standing::StandingWrits;
use crate::tools::{Catalogue, Progress, Retry};
use crate::unread::Unread;
use crate::vault::{Safe, Vault};
use crate::veil::Veil;
use crate::worker;

/// What wrote an entry.
pub const COMPILER: &str = concat!("gesta ", env!("CARGO_PKG_VERSION"));

/// How large a tool's output may be, and how deep.
pub(crate) const OUTPUT_LIMITS: Limits = Limits { max_bytes: 16 << 20, max_depth: 64 };

/// How old what is known of the registry may be at the gate.
const REGISTRY_FRESH: Duration = Duration::from_millis(250);
/// How long to wait before asking a store again that failed.
const STORE_AGAIN: Duration = Duration::from_millis(100);

/// What a worker tells whoever listens.
#[derive(Clone, Debug)]
pub enum Event {
    /// An entry is durable.
    Entry(Arc<Entry>),
    /// A call that an earlier attempt began and that has no end yet.
    UnderWay {
        /// The trajectory,
        trajectory: TrajectoryId,
        /// its step,
        step: StepId,
        /// the tool,
        tool: ToolName,
        /// and when it was sent.
        since: UnixMs,
    },
    /// How far a call says it is.
    Progress {
        /// The trajectory,
        trajectory: TrajectoryId,
        /// its step,
        step: StepId,
        /// the tool,
        tool: ToolName,
        /// and what it says.
        says: String,
    },
    /// Something that a person should know.
    Note(String),
}

/// Where events go.
pub type Listener = Arc<dyn Fn(Event) + Send + Sync>;

/// What a worker shares between its trajectories.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) worker: WorkerId,
    /// Signs receipts and reports.
    pub(crate) key: Signer,
    /// Signs decisions and permits.
    pub(crate) guardian: Signer,
    pub(crate) pulse: Pulse,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) rules: Arc<BTreeMap<ToolName, Rules>>,
    /// Whether any of them says how to verify something.
    pub(crate) verifies: bool,
    /// Replaced when the registry says so.
    pub(crate) in_force: RwLock<Arc<InForce>>,
    pub(crate) options: Options,
    pub(crate) listener: Option<Listener>,
    /// A tool or a limit that was busy may have room.
    pub(crate) freed: Notify,
    pub(crate) limits: Arc<Rations>,
    /// What of its tenants' budgets is in its hands.
    pub(crate) budgets: Budgets,
    /// There may be something to claim.
    pub(crate) work: Notify,
    /// Those who drive a trajectory, to be woken when others add to it.
    pub(crate) drivers: Mutex<BTreeMap<TrajectoryId, Arc<Notify>>>,
    /// What is not driven for the time being.
    pub(crate) alone: Mutex<Alone>,
    pub(crate) unread: Unread,
    pub(crate) hearing: Hearing,
    pub(crate) registry: RwLock<Option<Arc<State>>>,
    /// The tool catalogues that it has named.
    pub(crate) published: Published,
    /// What is to be put into quarantine, and because of what.
    pub(crate) suspects: Mutex<BTreeMap<FreezeTarget, String>>,
    pub(crate) spool: Option<crate::spool::Spool>,
    /// Where sensitive values are kept, if anywhere.
    pub(crate) vault: Option<Vault>,
    /// Workers of this machine that are dead, and when that was found.
    pub(crate) dead: Mutex<BTreeMap<WorkerId, UnixMs>>,
    /// What is remembered of the store outside of it.
    pub(crate) anchor: Option<Anchor>,
    /// The epoch that the store was in at the start.
    pub(crate) epoch: u64,
    /// Why the store is not to be worked on any more.
    pub(crate) unfit: OnceLock<RunError>,
}

impl Shared {
    /// What a worker shared whose entries are replayed: nothing in it reaches the outside.
    pub(crate) fn of_record(
        store: Arc<dyn Store>,
        worker: WorkerId,
        key: KeyId,
        (catalogue, rules): (Arc<Catalogue>, Arc<BTreeMap<ToolName, Rules>>),
        (in_force, options): (Arc<InForce>, Options),
    ) -> Self {
        Self {
            hearing: store.listen().hearing(),
            store,
            worker,
            key: Signer::of_record(key),
            guardian: Signer::of_record(key),
            pulse: Pulse::new(UnixMs(0), Instant::now(), options.lease_ms),
            catalogue,
            verifies: rules.values().any(Rules::verifies),
            rules,
            in_force: RwLock::new(in_force),
            options,
            listener: None,
            freed: Notify::new(),
            limits: Arc::default(),
            budgets: Budgets::none(),
            work: Notify::new(),
            drivers: Mutex::default(),
            alone: Mutex::default(),
            unread: Unread::default(),
            registry: RwLock::default(),
            published: Published::default(),
            suspects: Mutex::default(),
            spool: None,
            vault: None,
            dead: Mutex::default(),
            anchor: None,
            epoch: 1,
            unfit: OnceLock::new(),
        }
    }

    /// The store has acknowledged an entry.
    pub(crate) fn acknowledged(&self, entry: Option<&Entry>) {
        if let (Some(anchor), Some(entry)) = (&self.anchor, entry) {
            anchor.note(entry.payload().trajectory, entry.head());
        }
    }

    /// Whether a chain that was read reaches as far as it is known to. If not, nothing more is done here.
    pub(crate) fn reaches(
        &self,
        trajectory: TrajectoryId,
        found: Option<Head>,
    ) -> Result<(), RunError> {
        let Some(anchor) = &self.anchor else { return Ok(()) };
        anchor.reaches(trajectory, found).inspect_err(|unfit| self.condemn(unfit.clone()))
    }

    /// The store is not the one that it was: nothing more is done here.
    pub(crate) fn condemn(&self, why: RunError) {
        tracing::error!(%why, "this worker stops");
        let _first_counts = self.unfit.set(why);
        self.work.notify_one();
    }

    /// The registry as last read.
    pub(crate) fn registry(&self) -> Option<Arc<State>> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is in force now.
    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The registry and its head, as last read.
    pub(crate) fn registry_head(&self) -> Option<(TrajectoryId, Head)> {
        let state = self.registry()?;
        Some((state.trajectory(), state.head()?))
    }

    /// When a worker of this machine was found dead.
    pub(crate) fn died(&self, worker: &WorkerId) -> Option<UnixMs> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).get(worker).copied()
    }

    /// What is to be put into quarantine.
    pub(crate) fn suspects(&self) -> MutexGuard<'_, BTreeMap<FreezeTarget, String>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who drive a trajectory.
    pub(crate) fn drivers(&self) -> MutexGuard<'_, BTreeMap<TrajectoryId, Arc<Notify>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is not driven for the time being.
    pub(crate) fn alone(&self) -> MutexGuard<'_, Alone> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait before looking for what nobody has told of.
    pub(crate) fn look_after(&self, heard_ms: u64) -> Duration {
        let poll_ms = self.options.poll_ms;
        Duration::from_millis(if self.hearing.all() { poll_ms.max(heard_ms) } else { poll_ms })
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(listener) = &self.listener {
            listener(event());
        }
    }

    /// Whether any tool says how what it changes is verified.
    pub(crate) fn verifies(&self) -> bool {
        self.verifies
    }

    /// What a tool's declaration says of the world.
    pub(crate) fn rules(&self, tool: &ToolName) -> Option<&Rules> {
        self.rules.get(tool)
    }
}

/// A trajectory in hand.
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) trajectory: TrajectoryId,
    pub(crate) attempt: u64,
    /// What the attempt names, and every decision of it rests on.
    pub(crate) in_force: Arc<InForce>,
    /// The lease under which the trajectory was claimed.
    lease: u64,
    /// Whether the writ's signatures hold, asked once an attempt: they do not change.
    writ: Result<(), String>,
    /// Whose signatures those are, what each needs to count, and from when on.
    signers: Vec<WritSigner>,
    /// The writ and those above it.
    pub(crate) writ_chain: Vec<WritId>,
    /// Who acts and for whom, for freezes.
    pub(crate) state_at_claim: State,
    /// What of the tenant's budget its calls take from.
    pub(crate) slice: Current,
    /// What its calls may use of the standing writs above it.
    pub(crate) standing: StandingWrits,
    /// What was done above it, if it is a branch.
    pub(crate) lineage: Lineage,
    /// The sensitive values of its family, once they are needed.
    safe: OnceLock<Arc<Safe>>,
}

impl Desk {
    pub(crate) fn new(
        shared: Arc<Shared>,
        (lease, attempt, in_force): (u64, u64, Arc<InForce>),
        state: &State,
        mandate: &Mandate,
    ) -> Self {
        let begun = state.summary().map_or(UnixMs(0), |summary| summary.begun_at);
        let signers = writ_signers(mandate, (begun, state.at()));
        let writ = check_writs(mandate);
        let writ_chain = mandate.writs.iter().map(|writ| WritId::new(writ.digest())).collect();
        Self {
            shared,
            trajectory: state.trajectory(),
            attempt,
            in_force,
            lease,
            writ,
            signers,
            writ_chain,
            state_at_claim: state.clone(),
            slice: Current::default(),
            standing: StandingWrits::above(state.trajectory(), attempt, mandate),
            lineage: Lineage::default(),
            safe: OnceLock::new(),
        }
    }

    /// Whether the lease under which the trajectory was claimed is certainly still held.
    pub(crate) fn held(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if self.shared.options.sabotage == Some(crate::Sabotage::IgnoreFence) {
            return true;
        }
        self.shared.unfit.get().is_none() && self.shared.pulse.held(self.lease)
    }

    /// Whether something else is in force now than what the attempt names.
    pub(crate) fn outdated(&self) -> bool {
        self.shared.in_force().digest != self.in_force.digest
    }

    pub(crate) fn author(&self) -> Author {
        Author::Worker { attempt: self.attempt, worker: self.shared.worker.clone() }
    }

    /// Signs with the key for documents of this type.
    pub(crate) fn sign<D: Document>(&self, document: D) -> Result<Signed<D>, RunError> {
        // Writs for children are narrowed by whoever decides.
        let guards = D::ROLES.contains(&Role::Guardian) || D::ROLES.contains(&Role::Issuer);
        let signer = if guards { &self.shared.guardian } else { &self.shared.key };
        Ok(Signed::sign(document, signer)?)
    }

    /// What is frozen that a call of this tool would need; the tool itself, if it is not as it was published.
    pub(crate) fn frozen(&self, tool: &ToolName, registry: Option<&State>) -> Option<&'static str> {
        #[cfg(feature = "sabotage")]
        if self.shared.options.sabotage == Some(crate::Sabotage::IgnoreFreeze) {
            return None;
        }
        let unpublished = self.published(tool, registry).err();
        let (state, registry) = (&self.state_at_claim, registry.map(State::registry));
        guardian::frozen_by(tool, state, registry)
            .or_else(|| guardian::quarantined_by(state, registry))
            .or_else(|| unpublished.map(Unpublished::why))
    }

    /// Reads the registry once more when much time has passed since an append depended on it: what was
    /// frozen that long ago is known at the gate.
    pub(crate) async fn knows_registry(&self, since: Instant) -> Result<(), Failing> {
        let Some((registry, _)) = self.shared.registry_head() else { return Ok(()) };
        if since.elapsed() <= REGISTRY_FRESH {
            return Ok(());
        }
        worker::read_registry(&self.shared, Some(registry)).await.map_err(|error| {
            failing("gate_registry", &format!("the registry cannot be read: {error}"))
        })
    }

    /// Who has approved the step's proposal, by the names under which the registry trusts their keys
    /// to approve. The chain takes whatever is well formed; whose word counts is asked here, and asked
    /// again at every decision.
    pub(crate) fn approvals(
        &self,
        draft: &Draft<Facts>,
        step: &StepId,
        registry: Option<&State>,
    ) -> Vec<String> {
        let state = draft.state();
        let Some(registry) = registry else { return Vec::new() };
        let keys = registry.registry().keys();
        let name = |(at, statement): &Spoken| {
            let doc = statement.doc();
            #[cfg(feature = "sabotage")]
            if self.shared.options.sabotage == Some(crate::Sabotage::TrustAnyApprover) {
                return Some(doc.key.to_string());
            }
            let counts = statement.verifies()
                && keys.check(doc.key, &[Role::Approver], state.tenant(), *at).is_ok();
            keys.get(&doc.key).filter(|_| counts).map(|key| key.name.clone())
        };
        let names: BTreeSet<String> = agreed(draft, step).filter_map(name).collect();
        names.into_iter().collect()
    }

    /// Tells whoever listens how far a call says it is.
    pub(crate) fn progress(&self, proposal: &Proposal, veil: &Arc<Veil>) -> Option<Progress> {
        let listener = Arc::clone(self.shared.listener.as_ref()?);
        let (step, tool) = (proposal.step.clone(), proposal.tool.clone());
        let (trajectory, veil) = (self.trajectory, Arc::clone(veil));
        let tell = move |how: String| {
            let (step, tool, says) = (step.clone(), tool.clone(), veil.text(&how));
            listener(Event::Progress { trajectory, step, tool, says });
        };
        Some(Progress(Arc::new(tell)))
    }

    /// How the step is retried: as it says itself, or as its tool does.
    pub(crate) fn retry(&self, facts: &Facts, proposal: &Proposal) -> Retry {
        // An undo is a call of its own: what its step says is about the call that it undoes.
        let node = Some(proposal.step.node()).filter(|_| facts.undo(&proposal.step).is_none());
        let spec = node.and_then(|node| facts.spec(&node)).and_then(Result::ok);
        spec.as_deref()
            .and_then(Spec::call)
            .and_then(|call| call.retry)
            .or_else(|| {
                let tool = self.shared.catalogue.get(&proposal.tool)?;
                Some(tool.manifest().retry)
            })
            .unwrap_or_default()
    }

    /// Whether the call may be made once more after the one that has just ended.
    pub(crate) fn tries_left(&self, facts: &Facts, proposal: &Proposal) -> bool {
        let failures = facts.asked(&proposal.step).map_or(0, |asked| asked.failures);
        failures + 1 < u64::from(self.retry(facts, proposal).attempts.get())
    }

    /// When a call that has just failed may be made again.
    pub(crate) fn retry_at(&self, draft: &Draft<Facts>, ended: &Ended, now: UnixMs) -> UnixMs {
        let asked_for = match &ended.how {
            How::Failed { retry_after_ms, .. } => *retry_after_ms,
            How::TurnedAway(_) | How::Succeeded { .. } => 0,
        };
        let (state, facts) = (draft.state(), draft.view());
        let failures = facts.asked(&ended.step).map_or(0, |asked| asked.failures) + 1;
        let generation = state.step(&ended.step).map_or(1, |step| step.generation);
        let delay = state.seed().map_or(0, |root| {
            let seed = step_seed(root, &ended.step, generation);
            self.retry(facts, &ended.proposal).delay_ms(failures, seed)
        });
        now.plus(delay.max(asked_for))
    }

    /// Whether the other side may have forgotten the key.
    pub(crate) fn key_expired(
        &self,
        facts: &Facts,
        proposal: &Proposal,
        opened: &state::Opened,
        now: UnixMs,
    ) -> bool {
        let keyed = matches!(opened.recovery, Recovery::Keyed | Recovery::KeyedConcurrent);
        let first = facts.asked(&proposal.step).and_then(|asked| asked.first_sent);
        let ttl = self
            .shared
            .catalogue
            .get(&proposal.tool)
            .map_or(0, |tool| tool.manifest().key_ttl.ms());
        keyed && first.is_some_and(|first| now > first.plus(ttl))
    }

    /// Whether what a call changes can be told from what it returned.
    pub(crate) fn tells(&self, proposal: &Proposal, value: &Canon) -> Result<(), Failing> {
        let rules = self.shared.rules(&proposal.tool);
        rules.map_or(Ok(()), |rules| rules.tells(&proposal.args, value))
    }

    /// What a tool's result changes in the world.
    pub(crate) fn delta(
        &self,
        proposal: &Proposal,
        value: &Canon,
        world: &World,
    ) -> Result<Delta, Failing> {
        match self.shared.rules(&proposal.tool) {
            Some(rules) => rules.delta(&proposal.args, value, world),
            None => Ok(Delta::default()),
        }
    }

    /// A value as it stands in an entry: large ones are blobs. Waits until the store takes it: what
    /// has happened must not be lost because a disk is full.
    pub(crate) async fn content(&self, value: &Canon) -> Content {
        if value.as_bytes().len() <= MAX_INLINE_BYTES {
            Content::Inline(value.clone())
        } else {
            Content::Blob(self.keep(value.as_bytes()).await)
        }
    }

    /// Keeps bytes as a blob, however long it takes; once the lease is gone, in the spool, from where
    /// the report that names it will go too.
    pub(crate) async fn keep(&self, bytes: &[u8]) -> BlobRef {
        loop {
            let error = match self.shared.store.put_blob(bytes).await {
                Ok(blob) => return blob,
                Err(error) => error,
            };
            tracing::warn!(trajectory = %self.trajectory, %error, "an output cannot be kept yet");
            if !self.held()
                && let Some(spool) = &self.shared.spool
            {
                match spool.put_blob(bytes) {
                    Ok(blob) => return blob,
                    Err(error) => tracing::warn!(%error, "the spool cannot keep it either"),
                }
            }
            tokio::time::sleep(STORE_AGAIN).await;
        }
    }

    /// What this executor saw, signed; none when nothing was seen.
    pub(crate) fn report(
        &self,
        ended: &Ended,
        state: &State,
    ) -> Result<Option<Signed<EffectReport>>, RunError> {
        let result = match &ended.how {
            // Nothing was sent, and nobody else can know that.
            How::TurnedAway(error) => CallResult::Failed {
                certainty: Certainty::DidNotHappen,
                cost: Amounts::default(),
                error: error.clone(),
                retryable: true,
            },
            How::Succeeded { value, observation, cost } => {
                match self.delta(&ended.proposal, value, state.world()) {
                    Ok(delta) => CallResult::Succeeded(Settlement {
                        cost: *cost,
                        delta,
                        observation: observation.clone(),
                    }),
                    Err(error) => CallResult::Failed {
                        certainty: Certainty::Happened,
                        cost: *cost,
                        error,
                        retryable: false,
                    },
                }
            }
            How::Failed { certainty: Certainty::Unknown, .. } => return Ok(None),
            How::Failed { certainty, retryable, cost, error, .. } => CallResult::Failed {
                certainty: *certainty,
                cost: *cost,
                error: error.clone(),
                retryable: *retryable,
            },
        };
        self.sign(EffectReport {
            at: ended.at,
            key: self.shared.key.id(),
            result,
            started: ended.started,
            step: ended.step.clone(),
            trajectory: self.trajectory,
            type_: Tag::default(),
        })
        .map(Some)
    }
}

/// Whose keys have approved the step's proposal, and when each did.
pub(crate) fn approved_by(draft: &Draft<Facts>, step: &StepId) -> Vec<(KeyId, UnixMs)> {
    agreed(draft, step).map(|(at, statement)| (statement.doc().key, *at)).collect()
}

/// What was said for the call that the step has the chain's consent to.
fn agreed<'a>(draft: &'a Draft<Facts>, step: &'a StepId) -> impl Iterator<Item = &'a Spoken> {
    let grant = draft.state().step(step).and_then(|step| step.grant.as_deref());
    let spoken = grant.map(|_| draft.view().spoken_of(step)).into_iter().flatten();
    spoken.filter(move |(_, statement)| {
        let doc = statement.doc();
        doc.verdict == ApprovalVerdict::Approve
            && grant.is_some_and(|grant| grant.pending == doc.pending)
    })
}

/// An error as data.
pub(crate) fn failing(code: &str, message: &str) -> Failing {
    Failing { code: code.to_owned(), message: message.to_owned() }
}
