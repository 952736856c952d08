//! Tells one trajectory of the demo, entry by entry: what is offered is made by the sample cast,
//! admitted by the state machine and appended to the store.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::body::{LateEffect, Mandate, Plan, Purpose, RegistryHead};
use gesta_core::document::{CallResult, Recovery, RegistryItem};
use gesta_core::entry::{Author, Body, Entry, Head};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::sample::{self, Cast, Dice, EPOCH};
use gesta_core::state::{Act, Offer, Scope, State};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::Store;

use crate::problem::Problem;

/// How many throws of the dice are tried until they fall as the story wants.
const THROWS: u64 = 1000;
/// How much time passes between two entries.
const PACE_MS: u64 = 40;

/// A trajectory that is being told.
pub(super) struct Teller {
    store: Arc<dyn Store>,
    cast: Cast,
    pub(super) state: State,
    pub(super) now: UnixMs,
}

impl Teller {
    /// Begins to tell, from nothing or from a branch's source.
    pub(super) fn new(store: &Arc<dyn Store>, cast: &Cast, state: State, now: UnixMs) -> Self {
        Self { store: Arc::clone(store), cast: cast.clone(), state, now: now.max(EPOCH) }
    }

    pub(super) fn id(&self) -> TrajectoryId {
        self.state.trajectory()
    }

    /// The newest entry.
    pub(super) fn head(&self) -> Result<Head> {
        Ok(self.state.head().ok_or_else(|| Problem::new("the demo has not begun"))?)
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
    }

    /// How the next calls are declared.
    pub(super) fn style(&mut self, effect: Effect, recovery: Recovery) {
        self.cast.style.fixed = Some((effect, recovery));
    }

    /// A job under the registry as it stands: root, plan, first attempt.
    pub(super) async fn begin(&mut self, at: &RegistryHead, plan: Plan) -> Result<()> {
        let mut mandate = self.cast.mandate(self.id())?;
        mandate.registry = Some(at.clone());
        self.begin_with(mandate, plan).await
    }

    /// A job under this mandate: root, plan, first attempt.
    pub(super) async fn begin_with(&mut self, mandate: Mandate, plan: Plan) -> Result<()> {
        let root = self.cast.root(Purpose::Job(mandate))?;
        self.by_person(root).await?;
        self.by_person(Body::Plan(Box::new(plan))).await?;
        self.whole(Act::Attempt).await?;
        Ok(())
    }

    /// Something happens to the trajectory.
    pub(super) async fn whole(&mut self, act: Act) -> Result<Entry> {
        self.offered(act, Scope::Trajectory, |_| true).await
    }

    /// Something happens to a step.
    pub(super) async fn act(&mut self, act: Act, step: &str) -> Result<Entry> {
        self.wanted(act, step, |_| true).await
    }

    /// Something happens to a step, in the way that is wanted.
    pub(super) async fn wanted(
        &mut self,
        act: Act,
        step: &str,
        wanted: impl Fn(&Body) -> bool,
    ) -> Result<Entry> {
        self.offered(act, Scope::Step(step.parse()?), wanted).await
    }

    async fn offered(
        &mut self,
        act: Act,
        on: Scope,
        wanted: impl Fn(&Body) -> bool,
    ) -> Result<Entry> {
        let offer = Offer { act, on };
        for throw in 0..THROWS {
            let mut dice = Dice::new(throw);
            let body = self.cast.body(&self.state, &offer, self.now, &mut dice)?;
            if wanted(&body) {
                let by = sample::author(&self.state, act)?;
                return self.push(by, body).await;
            }
        }
        Err(Problem::new(format!("the demo's dice never fall right for {act:?}")).into())
    }

    /// The owner registers something.
    pub(super) async fn register(&mut self, item: RegistryItem) -> Result<Entry> {
        let body = self.cast.registration(&self.state, item, self.now)?;
        self.by_person(body).await
    }

    /// What an executor saw of a call that was closed meanwhile arrives after all.
    pub(super) async fn report_late(
        &mut self,
        step: &str,
        started: &Entry,
        seen: CallResult,
    ) -> Result<Entry> {
        let step: StepId = step.parse()?;
        let report = self.cast.report(&self.state, &step, started.id(), seen, self.now)?;
        self.by_person(Body::LateEffect(Box::new(LateEffect { report, step }))).await
    }

    /// A person adds an entry.
    pub(super) async fn by_person(&mut self, body: Body) -> Result<Entry> {
        self.push(Author::Principal(sample::person()?), body).await
    }

    /// The worker that owns the trajectory adds an entry.
    pub(super) async fn by_worker(&mut self, body: Body) -> Result<Entry> {
        let by = Author::Worker { attempt: self.state.attempt(), worker: sample::worker()? };
        self.push(by, body).await
    }

    async fn push(&mut self, by: Author, body: Body) -> Result<Entry> {
        let mut admission = self.state.admit();
        let entry = admission.push(self.now, by, body)?.clone();
        if let Some((admitted, next)) = admission.finish() {
            self.store.append(admitted).await?;
            self.state = next;
        }
        self.pass(PACE_MS);
        Ok(entry)
    }
}
