//! Where calls are made from: what a worker shares between its trajectories, and what it knows of
//! the one in hand. Nothing here decides; the pipeline asks.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Mandate, Proposal, step_seed};
use gesta_core::content::{BlobRef, Content, MAX_INLINE_BYTES};
use gesta_core::digest::{Digest, WritId};
use gesta_core::document::{
    CallResult, Certainty, EffectReport, Environment, Failing, Recovery, Settlement,
};
use gesta_core::entry::{Author, Entry};
use gesta_core::guardian::{self, Rate};
use gesta_core::ids::{StepId, Tenant, ToolName, TrajectoryId, WorkerId};
use gesta_core::json::{Canon, JsonError, Limits};
use gesta_core::keys::Sign as _;
use gesta_core::signed::{Document, Signed, Tag};
use gesta_core::state::{Opened, State};
use gesta_core::time::UnixMs;
use gesta_core::trust::{Keyring, Role};
use gesta_core::world::{Delta, World};
use gesta_store::{Draft, Hearing, Store};
use tokio::sync::Notify;

use crate::budgets::{Budgets, Current};
use crate::clock::Pulse;
use crate::error::RunError;
use crate::facts::Facts;
use crate::job::Spec;
use crate::limits::Rations;
use crate::pipeline::{Ended, How};
use crate::rules::Rules;
use crate::signer::Signer;
use crate::tools::{Catalogue, Progress, Retry, Webhook};

/// What wrote an entry.
pub const COMPILER: &str = concat!("gesta ", env!("CARGO_PKG_VERSION"));

/// How large a tool's output may be, and how deep.
pub(crate) const OUTPUT_LIMITS: Limits = Limits { max_bytes: 16 << 20, max_depth: 64 };

/// How long to wait before asking a store again that failed.
const STORE_AGAIN: Duration = Duration::from_millis(100);

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// How far clocks may differ.
    pub skew_ms: u64,
    /// The largest arguments, in bytes.
    pub max_args_bytes: usize,
    /// How fast one trajectory may call tools.
    pub rate: Option<Rate>,
    /// How many trajectories are driven at once.
    pub jobs: usize,
    /// How often the store is asked for work, and a quiet trajectory for what others have added.
    pub poll_ms: u64,
    /// How long running calls are waited for when the worker is to stop.
    pub grace_ms: u64,
    /// How many attempts in a row may leave nothing behind before a job is given up.
    pub fruitless_most: u64,
    /// How many calls of a tenant may be under way at once, of all workers together.
    pub tenant_calls: BTreeMap<Tenant, NonZeroU32>,
    /// At which parts of a tenant's daily budget somebody is warned, in percent.
    pub warn_at: Vec<u8>,
    /// Who is told when something waits for a person.
    pub webhooks: Vec<Webhook>,
    /// What is broken on purpose.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::Sabotage>,
}

impl Options {
    /// The digest of what decisions rest on.
    pub fn digest(&self) -> Result<Digest, JsonError> {
        #[derive(serde::Serialize)]
        struct Decisive {
            lease_ms: u64,
            max_args_bytes: usize,
            rate: Option<Rate>,
            skew_ms: u64,
            #[serde(rename = "type")]
            type_: &'static str,
        }
        let decisive = Decisive {
            lease_ms: self.lease_ms,
            max_args_bytes: self.max_args_bytes,
            rate: self.rate,
            skew_ms: self.skew_ms,
            type_: "gesta.config.v0",
        };
        Canon::of(&decisive).map(|canon| Digest::of(canon.as_bytes()))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease_ms: 10_000,
            skew_ms: 1_000,
            max_args_bytes: 256 * 1024,
            rate: None,
            jobs: 64,
            poll_ms: 200,
            grace_ms: 30_000,
            fruitless_most: 8,
            tenant_calls: BTreeMap::new(),
            warn_at: vec![80],
            webhooks: Vec::new(),
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}

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
    /// Something that a person should know.
    Note(String),
}

/// Where events go.
pub type Listener = Arc<dyn Fn(Event) + Send + Sync>;

/// What a worker shares between its trajectories.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) worker: WorkerId,
    pub(crate) key: Signer,
    pub(crate) pulse: Pulse,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) rules: BTreeMap<ToolName, Rules>,
    /// Whether any of them says how to verify something.
    pub(crate) verifies: bool,
    pub(crate) environment: Environment,
    /// What decisions name it by.
    pub(crate) environment_digest: Digest,
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
    pub(crate) hearing: Hearing,
    pub(crate) registry: RwLock<Option<Arc<State>>>,
    pub(crate) spool: Option<crate::spool::Spool>,
    /// Workers of this machine that are dead, and when that was found.
    pub(crate) dead: Mutex<BTreeMap<WorkerId, UnixMs>>,
}

impl Shared {
    /// The registry as last read.
    pub(crate) fn registry(&self) -> Option<Arc<State>> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When a worker of this machine was found dead.
    pub(crate) fn died(&self, worker: &WorkerId) -> Option<UnixMs> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).get(worker).copied()
    }

    /// Those who drive a trajectory.
    pub(crate) fn drivers(&self) -> MutexGuard<'_, BTreeMap<TrajectoryId, Arc<Notify>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The lease under which the trajectory was claimed.
    lease: u64,
    /// Whether the writ's signatures count, asked once an attempt.
    pub(crate) writ: Result<(), String>,
    /// The writ and those above it.
    pub(crate) writ_chain: Vec<WritId>,
    /// Who acts and for whom, for freezes.
    pub(crate) state_at_claim: State,
    /// What of the tenant's budget its calls take from.
    pub(crate) slice: Current,
}

impl Desk {
    pub(crate) fn new(
        shared: Arc<Shared>,
        (lease, attempt): (u64, u64),
        state: &State,
        mandate: &Mandate,
    ) -> Self {
        let registry = shared.registry();
        let writ = check_writs(mandate, registry.as_deref(), state.at());
        let writ_chain = mandate.writs.iter().map(|writ| WritId::new(writ.digest())).collect();
        Self {
            shared,
            trajectory: state.trajectory(),
            attempt,
            lease,
            writ,
            writ_chain,
            state_at_claim: state.clone(),
            slice: Current::default(),
        }
    }

    /// Whether the lease under which the trajectory was claimed is certainly still held.
    pub(crate) fn held(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if self.shared.options.sabotage == Some(crate::Sabotage::IgnoreFence) {
            return true;
        }
        self.shared.pulse.held(self.lease)
    }

    pub(crate) fn author(&self) -> Author {
        Author::Worker { attempt: self.attempt, worker: self.shared.worker.clone() }
    }

    pub(crate) fn sign<D: Document>(&self, document: D) -> Result<Signed<D>, RunError> {
        Ok(Signed::sign(document, &self.shared.key)?)
    }

    /// What is frozen that a call of this tool would need.
    pub(crate) fn frozen(&self, tool: &ToolName, registry: Option<&State>) -> Option<&'static str> {
        guardian::frozen_by(tool, &self.state_at_claim, registry.map(State::registry))
    }

    /// Tells whoever listens how far a call says it is.
    pub(crate) fn progress(&self, proposal: &Proposal) -> Option<Progress> {
        let listener = Arc::clone(self.shared.listener.as_ref()?);
        let (step, tool) = (proposal.step.clone(), proposal.tool.clone());
        let tell = move |how: String| listener(Event::Note(format!("{step} ({tool}): {how}")));
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
        opened: &Opened,
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

/// Whether the chain of writs is signed by those who may. Signatures do not change: once an attempt.
fn check_writs(mandate: &Mandate, registry: Option<&State>, at: UnixMs) -> Result<(), String> {
    for writ in &mandate.writs {
        if !writ.verifies() {
            return Err(format!("the signature of writ `{}` does not hold", writ.digest()));
        }
    }
    let Some(root) = mandate.writs.first() else { return Err("there is no writ".to_owned()) };
    let none = Keyring::default();
    let keys = registry.map_or(&none, |state| state.registry().keys());
    keys.check(root.doc().key, &[Role::Issuer], Some(&root.doc().tenant), at)
        .map_err(|distrust| distrust.to_string())
}

/// The digest that stands for "no policy set".
pub fn no_policy() -> Digest {
    Digest::of(b"")
}

/// An error as data.
pub(crate) fn failing(code: &str, message: &str) -> Failing {
    Failing { code: code.to_owned(), message: message.to_owned() }
}
