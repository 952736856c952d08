//! Sample trajectories: legal entries of every kind, made from fixed keys and a given clock.
//!
//! The demo, the vectors, the benches and the tests of every crate write their histories with this.
//! It has no part in the path of a call: nothing here decides anything.

use crate::amounts::Amounts;
use crate::body::{Mandate, Plan, PlanStep, Purpose, Root, StepKind};
use crate::content::Content;
use crate::digest::{Digest, Seed};
use crate::document::Environment;
use crate::entry::{Author, Body};
use crate::ids::{BadName, Principal, TrajectoryId, WorkerId};
use crate::json::{Canon, JsonError};
use crate::keys::PrivateKey;
use crate::signed::{SignError, Signed, Tag};
use crate::state::{Act, Admission, AdmitError, Forgotten, Offer, Scope, State};
use crate::time::{UnixMs, Window};
use crate::trust::{Role, TrustRoot, TrustedKey};
use crate::writ::{Effect, ToolPattern, Writ};

mod calls;
mod dice;
mod history;
mod others;

pub use calls::CallStyle;
pub use dice::Dice;
pub use history::History;

/// Why a sample could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// A value has no canonical form.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Something was lost.
    #[error(transparent)]
    Forgotten(#[from] Forgotten),
    /// A document could not be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// A name was refused.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The state machine refuses what was made.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The state does not have what the act is about.
    #[error("nothing in this state to `{0:?}`")]
    NothingTo(Act),
}

/// All the keys that a trajectory needs, one a role.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Owns the registry.
    pub owner: PrivateKey,
    /// Issues root writs.
    pub issuer: PrivateKey,
    /// Decides.
    pub guardian: PrivateKey,
    /// Calls tools.
    pub executor: PrivateKey,
    /// Approves.
    pub approver: PrivateKey,
    /// Resolves doubts.
    pub operator: PrivateKey,
    /// Holds the writ of the trajectory.
    pub agent: PrivateKey,
    /// How its calls look.
    pub style: CallStyle,
}

/// A moment in November 2026: when samples begin.
pub const EPOCH: UnixMs = UnixMs(1_794_787_200_000);

/// Ten years, in milliseconds.
const LONG_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

impl Cast {
    /// Keys that follow from one number.
    pub fn new(number: u8) -> Self {
        let key = |role: u8| {
            PrivateKey::from_seed(&[number.wrapping_mul(16).wrapping_add(role).wrapping_add(1); 32])
        };
        Self {
            owner: key(0),
            issuer: key(1),
            guardian: key(2),
            executor: key(3),
            approver: key(4),
            operator: key(5),
            agent: key(6),
            style: CallStyle::default(),
        }
    }

    /// What a verifier who trusts this cast would supply.
    pub fn trust_root(&self) -> TrustRoot {
        let keys = [
            (&self.owner, "owner", Role::Owner),
            (&self.issuer, "issuer", Role::Issuer),
            (&self.guardian, "guardian", Role::Guardian),
            (&self.executor, "executor", Role::Executor),
            (&self.approver, "approver", Role::Approver),
            (&self.operator, "operator", Role::Operator),
        ];
        let trusted = keys.into_iter().map(|(key, name, role)| TrustedKey {
            key: key.id(),
            name: name.to_owned(),
            revoked_at: None,
            roles: [role].into(),
            tenant: None,
            valid: window(),
        });
        TrustRoot::new(trusted.collect())
    }

    /// A standing writ: everything, but unable to root anything.
    pub fn standing_writ(&self) -> Result<Signed<Writ>, SampleError> {
        let writ = Writ {
            budget: self.style.budget,
            depth: 8,
            effect: Effect::Irreversible,
            guardians: false,
            holder: self.agent.id(),
            key: self.issuer.id(),
            parent: None,
            principal: "agent:sample".parse()?,
            tenant: "acme".parse()?,
            tools: vec![ToolPattern::Any],
            trajectory: None,
            type_: Tag::default(),
            window: window(),
        };
        Ok(Signed::sign(writ, &self.issuer)?)
    }

    /// A writ that roots one trajectory, narrowed from `parent`.
    pub fn narrow(
        &self,
        parent: &Signed<Writ>,
        trajectory: TrajectoryId,
    ) -> Result<Signed<Writ>, SampleError> {
        let writ = Writ {
            depth: parent.doc().depth.saturating_sub(1),
            key: self.agent.id(),
            parent: Some(parent.id()),
            trajectory: Some(trajectory),
            ..parent.doc().clone()
        };
        Ok(Signed::sign(writ, &self.agent)?)
    }

    /// What a job or session of this cast starts with.
    pub fn mandate(&self, trajectory: TrajectoryId) -> Result<Mandate, SampleError> {
        let standing = self.standing_writ()?;
        let writ = self.narrow(&standing, trajectory)?;
        Ok(Mandate {
            delegated_by: None,
            environment: environment(),
            input: Content::Inline(Canon::parse(br#"{"order":1042}"#)?),
            registry: None,
            writs: vec![standing, writ],
        })
    }

    /// The first entry of a job, session or registry.
    pub fn root(&self, purpose: Purpose) -> Result<Body, SampleError> {
        Ok(Body::Root(Box::new(Root {
            compiler: compiler(),
            principal: person()?,
            purpose,
            seed: Seed::new(Digest::of(b"sample")),
        })))
    }

    /// The first entry of a registry that this cast's owner owns.
    pub fn registry_root(&self) -> Result<Body, SampleError> {
        self.root(Purpose::Registry { owner: self.owner.id() })
    }

    /// A state with a claimed job: root, the sample plan, one attempt.
    pub fn begin_job(&self, trajectory: TrajectoryId) -> Result<Admission, SampleError> {
        let mut admission = State::new(trajectory).admit();
        let by = Author::Principal(person()?);
        admission.push(EPOCH, by.clone(), self.root(Purpose::Job(self.mandate(trajectory)?))?)?;
        admission.push(EPOCH, by, Body::Plan(Box::new(sample_plan()?)))?;
        self.push(
            &mut admission,
            &Offer { act: Act::Attempt, on: Scope::Trajectory },
            EPOCH,
            &mut Dice::new(0),
        )?;
        Ok(admission)
    }

    /// A state with a claimed session: root, one attempt. Sessions have no end of steps.
    pub fn begin_session(&self, trajectory: TrajectoryId) -> Result<Admission, SampleError> {
        let mut admission = State::new(trajectory).admit();
        let root = self.root(Purpose::Session(self.mandate(trajectory)?))?;
        admission.push(EPOCH, Author::Principal(person()?), root)?;
        self.push(
            &mut admission,
            &Offer { act: Act::Attempt, on: Scope::Trajectory },
            EPOCH,
            &mut Dice::new(0),
        )?;
        Ok(admission)
    }

    /// Makes what the offer is about and adds it.
    pub fn push(
        &self,
        admission: &mut Admission,
        offer: &Offer,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<(), SampleError> {
        let body = self.body(admission.state(), offer, now, dice)?;
        let by = author(admission.state(), offer.act)?;
        admission.push(now, by, body)?;
        Ok(())
    }

    /// Whether what this act sets aside still fits the writ. What it is offered for stands; only the
    /// amount is refused.
    pub fn affords(state: &State, act: Act) -> bool {
        let Some((_, writ)) = state.writ() else { return true };
        let more = match act {
            Act::Start => CALL_COST,
            Act::Delegate => Self::childs(&writ.budget).carved(),
            _ => return true,
        };
        let used = state.spent().plus(state.reserved()).plus(more);
        writ.budget.exceeded_by(&used).is_none()
    }

    /// Adds `length` entries at random, whatever is offered and can be paid for. Ends are left out unless
    /// nothing else is offered, so that histories grow long.
    pub fn wander(
        &self,
        admission: &mut Admission,
        length: usize,
        now: &mut UnixMs,
        dice: &mut Dice,
    ) -> Result<(), SampleError> {
        for _ in 0..length {
            *now = now.plus(dice.below(400));
            let offers = admission.state().next(*now);
            let ends = |offer: &&Offer| {
                matches!(
                    offer.act,
                    Act::Complete | Act::EndFailed | Act::EndCancelled | Act::RequestCancel
                )
            };
            let paid = |offer: &&Offer| Self::affords(admission.state(), offer.act);
            let going: Vec<&Offer> =
                offers.iter().filter(|offer| !ends(offer)).filter(paid).collect();
            let Some(offer) = dice.pick(&going).copied().or_else(|| offers.first()) else {
                return Ok(());
            };
            self.push(admission, offer, *now, dice)?;
        }
        Ok(())
    }
}

/// Who does it: the owner of the trajectory, its next owner, or a person.
pub fn author(state: &State, act: Act) -> Result<Author, SampleError> {
    let attempt = match act {
        Act::Attempt => state.attempt() + 1,
        _ if act.open() => return Ok(Author::Principal(person()?)),
        _ => state.attempt(),
    };
    Ok(Author::Worker { attempt, worker: worker()? })
}

/// The worker of every sample.
pub fn worker() -> Result<WorkerId, BadName> {
    "worker-1".parse()
}

/// The person of every sample.
pub fn person() -> Result<Principal, BadName> {
    "user:ada".parse()
}

fn compiler() -> String {
    concat!("gesta ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// What is in force in samples.
pub fn environment() -> Environment {
    Environment {
        config: Digest::of(b"config"),
        policy: Digest::of(b"policy"),
        tools: Digest::of(b"tools"),
    }
}

fn window() -> Window {
    Window { not_before: UnixMs(EPOCH.0 - LONG_MS), not_after: EPOCH.plus(LONG_MS) }
}

/// One step of every kind, and more calls.
pub fn sample_plan() -> Result<Plan, SampleError> {
    let step = |id: &str, kind, needs: &[&str]| -> Result<PlanStep, SampleError> {
        Ok(PlanStep {
            id: id.parse()?,
            kind,
            needs: needs.iter().map(|needs| needs.parse()).collect::<Result<_, _>>()?,
            spec: Canon::parse(b"{}")?,
        })
    };
    Ok(Plan::new(vec![
        step("fetch", StepKind::Call, &[])?,
        step("total", StepKind::Compute, &["fetch"])?,
        step("triage", StepKind::Loop, &[])?,
        step("charge", StepKind::Call, &["total"])?,
        step("pause", StepKind::Wait, &[])?,
        step("research", StepKind::Delegate, &[])?,
        step("mail", StepKind::Call, &["charge", "pause"])?,
    ])?)
}

/// What a call costs in samples.
const CALL_COST: Amounts = Amounts { calls: 1, money_micros: 1_500, tokens: 20, wall_ms: 30 };
