//! What people and programs ask of jobs: submit, signal, cancel, resolve, confirm. Each is one append by
//! whoever asks, needs no worker, and is safe to ask twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::body::{
    CancelRequested, Confirmation, ConfirmationMode, Mandate, Plan, Purpose, RegistryHead,
    Resolution, Root, Signal,
};
use gesta_core::content::{Content, MAX_INLINE_BYTES};
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::{Environment, ResolutionStatement, ResolutionVerdict, ResolvedBy};
use gesta_core::entry::{Author, Body, Entry};
use gesta_core::ids::{Principal, SignalKey, StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::ParkedOn;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{State, Status};
use gesta_core::time::UnixMs;
use gesta_core::writ::Writ;
use gesta_store::{Chain, ChainError, Follow, Store, StoreError};

use crate::cut;
use crate::desk::COMPILER;
use crate::effects;
use crate::error::RunError;
use crate::facts::Facts;
use crate::vault::Vault;

/// A job to be run.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The job's id: drawn, or [`keyed`].
    pub trajectory: TrajectoryId,
    /// The key it was made from, for errors.
    pub key: Option<String>,
    /// Who asks.
    pub principal: Principal,
    /// The seed of its random values: drawn, or [`seed_of`] a key.
    pub seed: Seed,
    /// What it works on.
    pub input: Canon,
    /// What is to be done.
    pub plan: Plan,
    /// The chain of writs down to the one that roots this job.
    pub writs: Vec<Signed<Writ>>,
    /// What is in force.
    pub environment: Environment,
    /// The registry, as it stands.
    pub registry: Option<RegistryHead>,
}

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is a new job.
    New,
    /// The same job was submitted before.
    Known,
}

/// The id of the job that a caller's key stands for. Whoever has another registry means another job by
/// the same key, in one store too: the outside sees keys that are made of this id.
pub fn keyed(registry: TrajectoryId, tenant: &str, key: &str) -> TrajectoryId {
    let (registry, tenant) = (registry.as_bytes(), tenant.as_bytes());
    id_of(&[b"gesta.job.v1", registry, tenant, key.as_bytes()])
}

/// The id of a job that was submitted before ids were made of the registry too.
pub(crate) fn keyed_before(tenant: &str, key: &str) -> TrajectoryId {
    id_of(&[b"gesta.job", tenant.as_bytes(), key.as_bytes()])
}

fn id_of(parts: &[&[u8]]) -> TrajectoryId {
    let digest = Digest::of_parts(parts);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
    TrajectoryId::from_bytes(bytes)
}

/// Begins a job. A crash leaves all of it or nothing; the same submission again is the same job.
pub async fn submit(
    store: &Arc<dyn Store>,
    submission: &Submission,
    now: UnixMs,
) -> Result<Submitted, RunError> {
    let input = content(store, &submission.input).await?;
    let mut chain = Chain::<Facts>::begin(Arc::clone(store), submission.trajectory);
    let written = chain
        .write(|draft| {
            if draft.state().head().is_some() {
                return Ok(());
            }
            let by = Author::Principal(submission.principal.clone());
            let root = Root {
                compiler: COMPILER.to_owned(),
                principal: submission.principal.clone(),
                purpose: Purpose::Job(Mandate {
                    delegated_by: None,
                    environment: submission.environment,
                    input: input.clone(),
                    registry: submission.registry.clone(),
                    writs: submission.writs.clone(),
                }),
                seed: submission.seed,
            };
            draft.push(now, by.clone(), Body::Root(Box::new(root)))?;
            draft.push(now, by, Body::Plan(Box::new(submission.plan.clone())))?;
            Ok::<_, RunError>(())
        })
        .await?;
    if !written.entries.is_empty() {
        return Ok(Submitted::New);
    }
    let facts = chain.view();
    let same = facts.plan_hash() == Some(submission.plan.hash)
        && facts.mandate().is_some_and(|mandate| mandate.input.digest() == input.digest());
    if same {
        return Ok(Submitted::Known);
    }
    Err(RunError::OtherJob {
        key: submission.key.clone().unwrap_or_else(|| submission.trajectory.to_string()),
        trajectory: submission.trajectory,
    })
}

/// Sends a signal. The same id twice is the same signal, in a job that has ended too; false when it was there
/// already. The same id for something else is refused.
pub async fn signal(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    by: &Principal,
    (id, key): (SignalKey, SignalKey),
    payload: &Canon,
    now: UnixMs,
) -> Result<bool, RunError> {
    let payload = content(store, &in_clear(payload)?).await?;
    signal_as(store, trajectory, by, Signal { id, key, payload }, now).await
}

/// Sends a signal whose payload is sensitive: the chain holds no more of it than a commitment.
pub async fn signal_sensitive(
    store: &Arc<dyn Store>,
    vault: &Vault,
    trajectory: TrajectoryId,
    by: &Principal,
    (id, key): (SignalKey, SignalKey),
    payload: &Canon,
    now: UnixMs,
) -> Result<bool, RunError> {
    let payload = in_clear(payload)?;
    let safe = vault.ensure(vault.family(trajectory).await?).await?;
    let chain = Chain::<Signals>::follow(Arc::clone(store), trajectory).await?;
    // No two commitments to one value are alike: the one that is there is opened.
    if let Some(there) = chain.view().0.get(&id)
        && let Content::Inline(held) = &there.payload
        && let Ok(commitment) = held.read()
    {
        let same = there.key == key && safe.opening(&commitment).await?.value == payload;
        return if same { Ok(false) } else { Err(RunError::OtherSignal { trajectory, id }) };
    }
    let value = serde_json::from_str(payload.as_str()).unwrap_or_default();
    let commitments = safe.seal(&[value]).await?;
    let payload = match commitments.first() {
        Some(commitment) => commitment.canon()?,
        None => Canon::null(),
    };
    let payload = content(store, &payload).await?;
    signal_as(store, trajectory, by, Signal { id, key, payload }, now).await
}

async fn signal_as(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    by: &Principal,
    signal: Signal,
    now: UnixMs,
) -> Result<bool, RunError> {
    let mut chain = Chain::<Signals>::follow(Arc::clone(store), trajectory).await?;
    let written = chain
        .write(|draft| {
            match draft.view().0.get(&signal.id) {
                Some(there) if *there == signal => return Ok(()),
                Some(_) => {
                    return Err(RunError::OtherSignal { trajectory, id: signal.id.clone() });
                }
                None => {}
            }
            if draft.state().ended().is_some() {
                return Err(RunError::Ended(trajectory));
            }
            let body = Body::Signal(Box::new(signal.clone()));
            draft.push(now, Author::Principal(by.clone()), body)?;
            Ok(())
        })
        .await?;
    Ok(!written.entries.is_empty())
}

/// The signals of a chain, by their senders' ids.
#[derive(Clone, Default)]
struct Signals(BTreeMap<SignalKey, Signal>);

impl Follow for Signals {
    fn follow(&mut self, entry: &Entry) {
        if let Body::Signal(signal) = &entry.payload().body {
            self.0.insert(signal.id.clone(), (**signal).clone());
        }
    }
}

/// What became of asking for a job to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is to stop now.
    New,
    /// It was to stop already.
    Known {
        /// Whether what was done is undone.
        compensate: bool,
    },
}

/// Asks for a job to stop, and with `compensate` for what it did to be undone. The first to ask has
/// decided that. Asked again, of a job that has stopped too, nothing is added.
pub async fn cancel(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    by: &Principal,
    (reason, compensate): (&str, bool),
    now: UnixMs,
) -> Result<Cancelled, RunError> {
    let mut chain = Chain::load(Arc::clone(store), trajectory).await?;
    let written = chain
        .write(|draft| {
            if let Some(compensate) = draft.state().cancelling() {
                return Ok(Cancelled::Known { compensate });
            }
            if draft.state().ended().is_some() {
                return Err(RunError::Ended(trajectory));
            }
            let body = CancelRequested { compensate, reason: reason.to_owned() };
            let body = Body::CancelRequested(Box::new(body));
            draft.push(now, Author::Principal(by.clone()), body)?;
            Ok(Cancelled::New)
        })
        .await?;
    Ok(written.made)
}

/// An operator's answer to a doubt.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The step in doubt.
    pub step: StepId,
    /// What was found out.
    pub verdict: ResolutionVerdict,
    /// What it rests on.
    pub evidence: Canon,
    /// Whether "did not happen" is to be believed although the effect could still land.
    pub forced: bool,
}

/// Resolves a doubt, signed by an operator. One that its executor has reported about by now is left to
/// that report: a report that arrives before the append is durable has it lose, and is read.
pub async fn resolve(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    by: &Principal,
    key: &PrivateKey,
    finding: &Finding,
    now: UnixMs,
) -> Result<Entry, RunError> {
    let evidence = content(store, &in_clear(&finding.evidence)?).await?;
    let mut chain = Chain::<Facts>::follow(Arc::clone(store), trajectory).await?;
    let step = &finding.step;
    loop {
        let reports = store.effects(trajectory).await?;
        let read: Vec<Digest> = reports.iter().map(Signed::digest).collect();
        // Its executor knows better than whoever looks from outside.
        if let Some(Status::InDoubt { opened, .. }) = chain.state().step(step).map(|it| &it.status)
            && effects::is_told(store, chain.view(), reports, opened).await?
        {
            return Err(RunError::Reported { trajectory, step: step.clone() });
        }
        cut::here("before_resolve");
        let written = chain
            .write(|draft| {
                let body = resolution(draft.state(), key, finding, &evidence, now)?;
                draft.having_read(read.iter().copied());
                draft.push(now, Author::Principal(by.clone()), body)?;
                Ok::<_, RunError>(())
            })
            .await;
        match written {
            Err(error) if error.unread() => chain.refresh().await?,
            written => return written?.entries.into_iter().next().ok_or(ChainError::Empty.into()),
        }
    }
}

/// An operator's answer to the doubt that a step is in.
fn resolution(
    state: &State,
    key: &PrivateKey,
    finding: &Finding,
    evidence: &Content,
    now: UnixMs,
) -> Result<Body, RunError> {
    let (trajectory, step) = (state.trajectory(), finding.step.clone());
    let (doubt, dead_at) = match state.step(&step).map(|step| &step.status) {
        Some(Status::InDoubt { entry, opened }) => (*entry, opened.dead_at),
        Some(Status::Blocked { entry }) => (*entry, UnixMs(0)),
        _ => return Err(RunError::NoDoubt { trajectory, step }),
    };
    let at = now.max(state.at());
    let denied = finding.verdict == ResolutionVerdict::DidNotHappen;
    if denied && !finding.forced && at < dead_at {
        return Err(RunError::TooEarly { step, dead_at_ms: dead_at.0 });
    }
    let statement = Signed::sign(
        ResolutionStatement {
            at,
            doubt,
            evidence: evidence.clone(),
            forced: finding.forced,
            key: key.id(),
            source: ResolvedBy::Operator,
            type_: Tag::default(),
            verdict: finding.verdict.clone(),
        },
        key,
    )?;
    Ok(Body::Resolution(Box::new(Resolution { statement, step })))
}

/// Lets a step go on although the world differs from what was recorded, or could not be checked; every
/// step of the job that waits for that, if none is named.
pub async fn confirm(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    by: &Principal,
    step: Option<&StepId>,
    now: UnixMs,
) -> Result<Vec<Entry>, RunError> {
    let mut chain = Chain::load(Arc::clone(store), trajectory).await?;
    let written = chain
        .write(|draft| {
            let parked: Vec<_> = draft
                .state()
                .parked()
                .filter(|row| row.on == ParkedOn::Confirmation)
                .filter(|row| step.is_none_or(|step| *step == row.step))
                .collect();
            if parked.is_empty() {
                return Err(RunError::NothingToConfirm(trajectory));
            }
            let now = now.max(draft.state().at());
            for row in parked {
                let body = Confirmation {
                    checks: Vec::new(),
                    confirms: Some(row.entry),
                    mode: ConfirmationMode::Human,
                    step: row.step,
                };
                let body = Body::Confirmation(Box::new(body));
                draft.push(now, Author::Principal(by.clone()), body)?;
            }
            Ok(())
        })
        .await?;
    Ok(written.entries)
}

/// What comes from outside must not pass for a commitment.
fn in_clear(value: &Canon) -> Result<Canon, RunError> {
    let tree = serde_json::from_str(value.as_str()).unwrap_or_default();
    match gesta_core::sensitive::reserved(&tree) {
        Some(pointer) => Err(RunError::Reserved(pointer)),
        None => Ok(value.clone()),
    }
}

async fn content(store: &Arc<dyn Store>, value: &Canon) -> Result<Content, StoreError> {
    if value.as_bytes().len() <= MAX_INLINE_BYTES {
        return Ok(Content::Inline(value.clone()));
    }
    store.put_blob(value.as_bytes()).await.map(Content::Blob)
}
