//! The demo's story: five trajectories that between them hold every kind of entry.
//!
//! A refund that goes wrong in most of the ways a call can, the child that it delegates to, a branch
//! of it that fails, an order that is cancelled and undone, and the registry that knows the keys.
//! Clock and keys are fixed, so the demo writes the same bytes every time.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::amounts::Amounts;
use gesta_core::body::{
    Branch, BranchMode, CancelRequested, CheckVerdict, Completed, DelegatedBy, DelegationResult,
    Delivered, Delivery, End, Plan, PlanStep, RegistryHead, StepKind,
};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::{
    ApprovalVerdict, CallResult, FreezeTarget, Recovery, RegistryItem, Settlement,
};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::sample::{self, Cast, EPOCH, SampleError};
use gesta_core::state::{Act, Failed, State};
use gesta_core::trust::TrustRoot;
use gesta_core::world::Delta;
use gesta_core::writ::Effect;
use gesta_store::Store;

use super::teller::Teller;
use crate::problem::Problem;

/// What was written.
pub(super) struct Story {
    /// Titles and trajectories, in the order of telling.
    pub(super) trajectories: Vec<(&'static str, TrajectoryId)>,
    /// The registry.
    pub(super) registry: TrajectoryId,
    /// The main job.
    pub(super) job: TrajectoryId,
    /// Whom to trust: the owner; the registry knows the others.
    pub(super) trust: TrustRoot,
}

/// Writes it all.
pub(super) async fn write(store: &Arc<dyn Store>) -> Result<Story> {
    let cast = Cast::new(1);
    let known = cast.trust_root().keys;
    let owner = known.iter().filter(|key| key.key == cast.owner.id()).cloned().collect();

    let mut registry = teller(store, &cast, "registry");
    registry.by_person(cast.registry_root()?).await?;
    for key in known {
        registry.register(RegistryItem::Key(key)).await?;
    }
    let mail = FreezeTarget::Tool("mail.send".parse()?);
    registry.register(RegistryItem::Freeze(mail.clone())).await?;
    registry.register(RegistryItem::Unfreeze(mail)).await?;
    let at = RegistryHead { head: registry.head()?, trajectory: registry.id() };

    let mut job = teller(store, &cast, "refund");
    let (total, delegation) = refund(&mut job, &at).await?;
    let mut child = research(store, &cast, &at, &job, &delegation).await?;
    ending(&mut job, &mut child).await?;
    let order = cancelled(store, &cast, &at).await?;
    let branch = branched(store, &cast, &at, &job, &total).await?;

    Ok(Story {
        trajectories: vec![
            ("The registry: whose keys may do what", registry.id()),
            ("The job: a refund that goes wrong in most of the ways a call can", job.id()),
            ("Its child: what the job delegated", child.id()),
            ("Another job: cancelled, and undone", order),
            ("A branch of the first job: tried again from its total, and failed", branch),
        ],
        registry: registry.id(),
        job: job.id(),
        trust: TrustRoot::new(owner),
    })
}

/// The first part: a retry, an approval, a doubt, a wait, a rejection. Ends with the delegation.
async fn refund(job: &mut Teller, at: &RegistryHead) -> Result<(State, Entry)> {
    job.begin(at, sample::sample_plan()?).await?;
    // A retry: the tool says no, and then yes.
    job.style(Effect::Read, Recovery::Safe);
    job.act(Act::Start, "fetch").await?;
    job.act(Act::Fail(Failed::RetryableDidNotHappen), "fetch").await?;
    job.act(Act::Start, "fetch").await?;
    job.act(Act::CommitEffect, "fetch").await?;
    job.act(Act::CommitComputed, "total").await?;
    let total = job.state.clone();
    // An approval; then a worker dies, and nobody knows.
    job.style(Effect::Irreversible, Recovery::Never);
    job.act(Act::Escalate, "charge").await?;
    job.wanted(Act::Approve, "charge", |body| {
        matches!(body, Body::Approval(it) if it.statement.doc().verdict == ApprovalVerdict::Approve)
    })
    .await?;
    job.act(Act::Start, "charge").await?;
    job.whole(Act::Attempt).await?;
    job.act(Act::Doubt, "charge").await?;
    job.pass(60_000);
    job.act(Act::ResolveHappened, "charge").await?;
    // A wait that a signal ends, and inside the loop one that a timer ends.
    job.wanted(Act::Wait, "pause", |body| matches!(body, Body::Waiting(it) if it.until.is_none()))
        .await?;
    job.whole(Act::Signal).await?;
    job.act(Act::CommitWoken, "pause").await?;
    job.wanted(
        Act::Wait,
        "triage/1/nap",
        |body| matches!(body, Body::Waiting(it) if it.until.is_some()),
    )
    .await?;
    job.pass(1_000);
    job.act(Act::FireTimer, "triage/1/nap").await?;
    job.act(Act::CommitWoken, "triage/1/nap").await?;
    job.act(Act::Reject, "triage/2/mail").await?;
    job.act(Act::CommitComputed, "triage").await?;
    let delegation = job.act(Act::Delegate, "research").await?;
    Ok((total, delegation))
}

/// The child, from its delegation to its end.
async fn research(
    store: &Arc<dyn Store>,
    cast: &Cast,
    at: &RegistryHead,
    parent: &Teller,
    delegation: &Entry,
) -> Result<Teller> {
    let Body::Delegation(task) = &delegation.payload().body else {
        return Err(Problem::new("the demo's delegation is none").into());
    };
    let mut child =
        Teller::new(store, cast, State::new(task.child), delegation.payload().at.plus(5));
    let mut mandate = cast.mandate(parent.id())?;
    mandate.delegated_by =
        Some(DelegatedBy { delegation: delegation.id(), trajectory: parent.id() });
    mandate.input = task.task.input.clone();
    mandate.registry = Some(at.clone());
    mandate.writs.push(task.writ.clone());
    child.begin_with(mandate, Plan::new(vec![call("lookup", &[])?])?).await?;
    child.style(Effect::Read, Recovery::Safe);
    child.act(Act::Start, "lookup").await?;
    child.act(Act::CommitEffect, "lookup").await?;
    let done = Completed { answer: answer()?, run_hash: child.state.run_hash()? };
    child.by_worker(Body::Completed(Box::new(done))).await?;
    Ok(child)
}

/// The rest of the job: the child's answer, an unknown outcome that is sent again, the end, and what
/// arrives after it.
async fn ending(job: &mut Teller, child: &mut Teller) -> Result<()> {
    job.now = child.now;
    let result = DelegationResult {
        answer: answer()?,
        child: child.id(),
        end: End::Completed,
        head: child.head()?,
        spent: child.state.spent(),
        step: "research".parse()?,
    };
    job.by_worker(Body::DelegationResult(Box::new(result))).await?;
    let (head, to, what) = (job.head()?, job.id(), Delivery::Result);
    let delivered = Delivered { head, step: None, to, what };
    child.now = job.now;
    child.by_worker(Body::Delivered(Box::new(delivered))).await?;
    job.wanted(Act::Confirm, "mail", |body| {
        matches!(body, Body::Confirmation(it) if it.checks.iter().all(|check| check.verdict == CheckVerdict::Ok))
    })
    .await?;
    job.style(Effect::External, Recovery::Keyed);
    let lost = job.act(Act::Start, "mail").await?;
    job.act(Act::Fail(Failed::RetryableUnknown), "mail").await?;
    job.pass(2_000);
    job.act(Act::Start, "mail").await?;
    job.act(Act::CommitEffect, "mail").await?;
    job.whole(Act::Checkpoint).await?;
    job.whole(Act::Complete).await?;
    job.pass(30_000);
    let seen = CallResult::Succeeded(Settlement {
        cost: Amounts::ONE_CALL,
        delta: Delta::default(),
        observation: Content::Inline(Canon::parse(br#"{"id":"mail","ok":true}"#)?),
    });
    job.report_late("mail", &lost, seen).await?;
    job.whole(Act::Erase).await?;
    Ok(())
}

/// A job that is cancelled once it has changed something.
async fn cancelled(store: &Arc<dyn Store>, cast: &Cast, at: &RegistryHead) -> Result<TrajectoryId> {
    let mut job = teller(store, cast, "order");
    job.begin(at, Plan::new(vec![call("reserve", &[])?, call("ship", &["reserve"])?])?).await?;
    job.style(Effect::External, Recovery::Keyed);
    job.act(Act::Start, "reserve").await?;
    job.act(Act::CommitEffect, "reserve").await?;
    let request =
        CancelRequested { compensate: true, reason: "the customer changed their mind".to_owned() };
    job.by_person(Body::CancelRequested(Box::new(request))).await?;
    job.whole(Act::Compensate).await?;
    job.act(Act::Start, "reserve/undo").await?;
    job.act(Act::CommitEffect, "reserve/undo").await?;
    job.whole(Act::EndCancelled).await?;
    Ok(job.id())
}

/// What would have happened otherwise: a branch from the job's total.
async fn branched(
    store: &Arc<dyn Store>,
    cast: &Cast,
    at: &RegistryHead,
    source: &Teller,
    total: &State,
) -> Result<TrajectoryId> {
    let id = named("branch");
    let commit =
        total.head().ok_or_else(|| Problem::new("the demo has no commit to branch from"))?;
    let mut mandate = cast.mandate(id)?;
    mandate.registry = Some(at.clone());
    let branch = Branch {
        compiler: format!("gesta {}", env!("CARGO_PKG_VERSION")),
        mandate,
        mode: BranchMode::Ask,
        note: "with another total".to_owned(),
        principal: sample::person()?,
        seed: Seed::new(Digest::of(b"branch")),
        source: source.id(),
        source_commit: commit.id,
        source_head: source.head()?,
    };
    let body = Body::Branch(Box::new(branch));
    let mut branch = Teller::new(store, cast, total.branching(id), source.now);
    branch.by_person(body).await?;
    branch.whole(Act::Attempt).await?;
    branch.act(Act::FailUnstarted, "charge").await?;
    branch.whole(Act::EndFailed).await?;
    Ok(id)
}

fn teller(store: &Arc<dyn Store>, cast: &Cast, name: &str) -> Teller {
    Teller::new(store, cast, State::new(named(name)), EPOCH)
}

fn answer() -> Result<Content, SampleError> {
    Ok(Content::Inline(Canon::parse(br#"{"invoice":"2026-17"}"#)?))
}

fn call(id: &str, needs: &[&str]) -> Result<PlanStep, SampleError> {
    Ok(PlanStep {
        id: id.parse()?,
        kind: StepKind::Call,
        needs: needs.iter().map(|step| step.parse()).collect::<Result<_, _>>()?,
        spec: Canon::parse(br#"{"tool":"pay.refund"}"#)?,
    })
}

/// A trajectory of the story, by its name.
fn named(name: &str) -> TrajectoryId {
    let digest = Digest::of_parts(&[b"gesta.demo", name.as_bytes()]);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
    TrajectoryId::from_bytes(bytes)
}
