//! A trajectory under test: what it has, what it accepts, what it refuses and why.

use gesta_core::amounts::Amounts;
use gesta_core::body::{Plan, PlanStep, Purpose, StepKind};
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::Recovery;
use gesta_core::entry::{Author, Body};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::sample::{Cast, Dice, EPOCH, person, worker};
use gesta_core::signed::Signed;
use gesta_core::state::{Act, Admission, AdmitError, Offer, Scope, State, Step, Why};
use gesta_core::time::UnixMs;
use gesta_core::writ::{Effect, Writ};

use crate::edit;

/// The trajectory of most scenes.
pub(crate) const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);

/// What a sample call costs once it is settled.
pub(crate) const COST: Amounts = Amounts { calls: 1, money_micros: 1_500, tokens: 20, wall_ms: 30 };

/// What a scene's calls reserve: more in every dimension than they cost.
pub(crate) const RESERVE: Amounts =
    Amounts { calls: 2, money_micros: 5_000, tokens: 64, wall_ms: 700 };

/// Nothing at all.
pub(crate) const NOTHING: Amounts = Amounts { calls: 0, money_micros: 0, tokens: 0, wall_ms: 0 };

/// A node of a test's plan: id, kind, needs.
pub(crate) type Node<'a> = (&'a str, StepKind, &'a [&'a str]);

/// A trajectory under test.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) cast: Cast,
    pub(crate) admission: Admission,
    pub(crate) now: UnixMs,
}

impl Scene {
    /// A trajectory that has not begun, whose calls write and may never run again.
    pub(crate) fn unbegun() -> Self {
        let mut cast = Cast::new(1);
        cast.style.fixed = Some((Effect::Write, Recovery::Never));
        Self { cast, admission: State::new(ID).admit(), now: EPOCH }
    }

    /// A claimed session: calls need no plan.
    pub(crate) fn session() -> Self {
        Self::session_under(|_| ())
    }

    /// A claimed session under an edited writ.
    pub(crate) fn session_under(edit: impl FnOnce(&mut Writ)) -> Self {
        let mut scene = Self::unbegun();
        let root = scene.root_under(edit, Purpose::Session);
        scene.adds(root);
        scene.claims();
        scene
    }

    /// A claimed job with this plan.
    pub(crate) fn job(nodes: &[Node<'_>]) -> Self {
        let mut scene = Self::unbegun();
        let root = scene.root_under(|_| (), Purpose::Job);
        scene.adds(root);
        scene.adds(plan(nodes));
        scene.claims();
        scene
    }

    /// A first entry under an edited writ.
    pub(crate) fn root_under(
        &self,
        edit: impl FnOnce(&mut Writ),
        purpose: fn(gesta_core::body::Mandate) -> Purpose,
    ) -> Body {
        let mut mandate = self.cast.mandate(self.state().trajectory()).unwrap();
        let mut leaf = mandate.writs[1].doc().clone();
        edit(&mut leaf);
        mandate.writs[1] = Signed::sign(leaf, &self.cast.agent).unwrap();
        self.cast.root(purpose(mandate)).unwrap()
    }

    /// The same scene, whose calls are of another class from now on.
    pub(crate) fn calling(mut self, effect: Effect, recovery: Recovery) -> Self {
        self.cast.style.fixed = Some((effect, recovery));
        self
    }

    pub(crate) fn state(&self) -> &State {
        self.admission.state()
    }

    /// A sample body for this act.
    pub(crate) fn body(&self, act: Act, on: &str) -> Body {
        let on = if on.is_empty() { Scope::Trajectory } else { Scope::Step(step(on)) };
        self.cast.body(self.state(), &Offer { act, on }, self.now, &mut Dice::new(1)).unwrap()
    }

    /// A `started` that reserves [`RESERVE`].
    pub(crate) fn started(&self, on: &str) -> Body {
        edit::permit(&self.cast, self.body(Act::Start, on), |permit| permit.reserve = RESERVE)
    }

    /// Opens a call.
    #[track_caller]
    pub(crate) fn opens(&mut self, on: &str) -> EntryId {
        let body = self.started(on);
        self.adds(body)
    }

    /// Does what the act says, with the sample's body.
    #[track_caller]
    pub(crate) fn does(&mut self, act: Act, on: &str) -> EntryId {
        let body = self.body(act, on);
        self.adds(body)
    }

    /// Opens a call and commits it.
    #[track_caller]
    pub(crate) fn calls(&mut self, on: &str) -> EntryId {
        self.opens(on);
        self.does(Act::CommitEffect, on)
    }

    /// The next attempt, by the same worker.
    #[track_caller]
    pub(crate) fn claims(&mut self) -> EntryId {
        self.does(Act::Attempt, "")
    }

    /// Adds an entry, by whoever appends such entries.
    #[track_caller]
    pub(crate) fn adds(&mut self, body: Body) -> EntryId {
        let by = author(self.state(), &body);
        self.admission.push(self.now, by, body).unwrap().id()
    }

    /// Whether an entry would be accepted; it is not added.
    #[track_caller]
    pub(crate) fn accepts(&self, body: Body) -> Self {
        let mut trial = self.clone();
        trial.adds(body);
        trial
    }

    /// An entry is refused for exactly this reason, and leaves no trace.
    #[track_caller]
    pub(crate) fn refuses(&self, body: Body, why: Why) {
        let by = author(self.state(), &body);
        self.refuses_by(by, body, why);
    }

    /// As [`Scene::refuses`], by a given author.
    #[track_caller]
    pub(crate) fn refuses_by(&self, by: Author, body: Body, why: Why) {
        let kind = body.kind();
        let mut trial = self.admission.clone();
        let refusal = match trial.push(self.now, by, body) {
            Ok(_) => None,
            Err(AdmitError::Illegal(illegal)) => Some(illegal.why),
            Err(error) => panic!("not an entry: {error}"),
        };
        assert_eq!(refusal, Some(why), "`{kind}`");
        assert!(trial.state() == self.state(), "a refused `{kind}` left a trace");
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
    }

    pub(crate) fn step(&self, on: &str) -> &Step {
        self.state().step(&step(on)).unwrap()
    }

    pub(crate) fn status(&self, on: &str) -> &'static str {
        self.step(on).status.as_str()
    }

    /// What is spent and what is reserved.
    pub(crate) fn money(&self) -> (Amounts, Amounts) {
        (self.state().spent(), self.state().reserved())
    }
}

/// Who appends an entry of this kind: a person what anyone may append, the owner everything else.
pub(crate) fn author(state: &State, body: &Body) -> Author {
    match body {
        Body::Attempt(_) => by_worker(state.attempt() + 1),
        Body::Root(_)
        | Body::Branch(_)
        | Body::Plan(_)
        | Body::Approval(_)
        | Body::Resolution(_)
        | Body::Signal(_)
        | Body::CancelRequested(_)
        | Body::LateEffect(_)
        | Body::Registration(_)
        | Body::Erased(_) => by_person(),
        Body::Confirmation(body) if body.confirms.is_some() => by_person(),
        _ => by_worker(state.attempt()),
    }
}

pub(crate) fn by_person() -> Author {
    Author::Principal(person().unwrap())
}

pub(crate) fn by_worker(attempt: u64) -> Author {
    Author::Worker { attempt, worker: worker().unwrap() }
}

pub(crate) fn step(id: &str) -> StepId {
    id.parse().unwrap()
}

/// The refusal that names where a step stands.
pub(crate) fn stands(on: &str, status: &'static str) -> Why {
    Why::StepStatus { step: step(on), status }
}

pub(crate) fn plan_steps(nodes: &[Node<'_>]) -> Vec<PlanStep> {
    nodes
        .iter()
        .map(|(id, kind, needs)| PlanStep {
            id: step(id),
            kind: *kind,
            needs: needs.iter().map(|needs| step(needs)).collect(),
            spec: Canon::parse(b"{}").unwrap(),
        })
        .collect()
}

pub(crate) fn plan(nodes: &[Node<'_>]) -> Body {
    Body::Plan(Box::new(Plan::new(plan_steps(nodes)).unwrap()))
}

/// An entry that is not in the chain.
pub(crate) fn nowhere() -> EntryId {
    EntryId::new(Digest::of(b"nowhere"))
}
