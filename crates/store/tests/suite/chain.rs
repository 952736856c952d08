//! Legal chains to store: jobs whose steps wait, which is all that stores can tell apart.

use std::collections::BTreeSet;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{
    Attempt, CancelRequested, Erased, Mandate, Plan, PlanStep, Purpose, Root, Signal, StepKind,
    Stopped, Waiting,
};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, EntryId, Seed};
use gesta_core::document::{CallResult, Certainty, EffectReport, Environment, Failing};
use gesta_core::entry::{Author, Body, Head};
use gesta_core::ids::{StepId, ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::projection::{Admitted, Projection};
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{Admission, AdmitError, State};
use gesta_core::time::{UnixMs, Window};
use gesta_core::writ::{Effect, Writ};

use super::worker;

/// A job as its owner sees it: what was admitted so far, stored or not.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) state: State,
    pub(crate) at: UnixMs,
    pub(crate) tenant: &'static str,
    pub(crate) priority: u8,
    pub(crate) tools: BTreeSet<ToolName>,
}

impl Job {
    /// A job that does not exist yet. Its number makes its id: higher numbers sort later.
    pub(crate) fn new(number: u8, at: UnixMs) -> Self {
        let state = State::new(TrajectoryId::from_bytes([number; 16]));
        Self { state, at, tenant: "acme", priority: 0, tools: BTreeSet::new() }
    }

    /// For workers with these tools.
    pub(crate) fn needing(mut self, tools: &[&str]) -> Self {
        self.tools = tools.iter().map(|tool| tool.parse().unwrap()).collect();
        self
    }

    /// Somebody's.
    pub(crate) fn of(mut self, tenant: &'static str) -> Self {
        self.tenant = tenant;
        self
    }

    /// More urgent than others.
    pub(crate) fn urgent(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    pub(crate) fn id(&self) -> TrajectoryId {
        self.state.trajectory()
    }

    /// The root, and a plan of two steps that wait.
    pub(crate) fn begin(&mut self) -> Admitted {
        let (root, plan) = (self.root("agent"), self.plan());
        self.admit(&operator(), [root, plan])
    }

    /// The same beginning by somebody else: another id at the same place.
    pub(crate) fn begin_as(&mut self, principal: &str) -> Admitted {
        let root = self.root(principal);
        self.admit(&operator(), [root])
    }

    /// A worker takes the job.
    pub(crate) fn attempt(&mut self, name: &str) -> Admitted {
        let author = Author::Worker { attempt: self.state.attempt() + 1, worker: worker(name) };
        self.admit(
            &author,
            [Body::Attempt(Box::new(Attempt {
                died: None,
                environment: gesta_core::sample::environment(),
                note: "claimed".to_owned(),
                restored: None,
            }))],
        )
    }

    /// The worker parks a step.
    pub(crate) fn wait(&mut self, name: &str, step: &str, until: Option<UnixMs>) -> Admitted {
        let body = self.waiting(step, until);
        self.admit(&self.owner(name), [body])
    }

    /// The worker parks both steps in one append.
    pub(crate) fn wait_for_both(&mut self, name: &str) -> Admitted {
        let bodies = [self.waiting("first", None), self.waiting("second", None)];
        self.admit(&self.owner(name), bodies)
    }

    /// Something arrives from outside, under no fence.
    pub(crate) fn signal(&mut self, id: &str) -> Admitted {
        self.admit(&operator(), [signal(id)])
    }

    /// Several things arrive in one append.
    pub(crate) fn signals(&mut self, ids: &[&str]) -> Admitted {
        self.admit(&operator(), ids.iter().copied().map(signal))
    }

    /// The job is cancelled.
    pub(crate) fn cancel(&mut self, name: &str) -> Admitted {
        let request = CancelRequested { compensate: false, reason: "enough".to_owned() };
        let mut admission = self.state.admit();
        admission.push(self.at, operator(), Body::CancelRequested(Box::new(request))).unwrap();
        let run_hash = admission.state().run_hash().unwrap();
        let end = Stopped { error: failing(), run_hash };
        admission.push(self.at, self.owner(name), Body::Cancelled(Box::new(end))).unwrap();
        let (admitted, state) = admission.finish().unwrap();
        self.state = state;
        admitted
    }

    /// As it would be, had it been begun and cancelled.
    pub(crate) fn also_ended(mut self) -> Self {
        self.begin();
        self.attempt("w");
        self.cancel("w");
        self
    }

    /// Something in it was erased: legal once it has ended, too.
    pub(crate) fn erased(&mut self) -> Admitted {
        let body = Erased { reason: "asked for".to_owned(), what: Digest::of(b"key") };
        self.admit(&operator(), [Body::Erased(Box::new(body))])
    }

    /// All projections of the job, as a rebuild computes them.
    pub(crate) fn projection(&self) -> Projection {
        Projection {
            summary: self.state.summary().unwrap(),
            unparked: Vec::new(),
            parked: self.state.parked().collect(),
        }
    }

    /// As [`Self::signal`], as long as another trajectory has this head.
    pub(crate) fn signal_under(&mut self, id: &str, under: (TrajectoryId, Head)) -> Admitted {
        let mut admission = self.state.admit();
        admission.push(self.at, operator(), signal(id)).unwrap();
        admission.under(under.0, under.1);
        let (admitted, state) = admission.finish().unwrap();
        self.state = state;
        admitted
    }

    fn admit(&mut self, by: &Author, bodies: impl IntoIterator<Item = Body>) -> Admitted {
        let mut admission = self.state.admit();
        for body in bodies {
            admission.push(self.at, by.clone(), body).unwrap();
        }
        let (admitted, state) = admission.finish().unwrap();
        self.state = state;
        admitted
    }

    fn owner(&self, name: &str) -> Author {
        Author::Worker { attempt: self.state.attempt(), worker: worker(name) }
    }

    fn root(&self, principal: &str) -> Body {
        let key = PrivateKey::from_seed(&[1; 32]);
        let nothing = Digest::of(b"");
        let writ = Writ {
            budget: Budget { calls: None, money_micros: None, tokens: None, wall_ms: None },
            depth: 0,
            effect: Effect::Read,
            guardians: false,
            holder: key.id(),
            key: key.id(),
            parent: None,
            principal: principal.parse().unwrap(),
            tenant: self.tenant.parse().unwrap(),
            tools: vec!["*".parse().unwrap()],
            trajectory: Some(self.id()),
            type_: Tag::default(),
            window: Window { not_before: UnixMs(0), not_after: self.at.plus(1_000_000) },
        };
        Body::Root(Box::new(Root {
            compiler: "test".to_owned(),
            principal: principal.parse().unwrap(),
            purpose: Purpose::Job(Mandate {
                delegated_by: None,
                environment: Environment { config: nothing, policy: nothing, tools: nothing },
                input: Content::Inline(Canon::null()),
                registry: None,
                writs: vec![Signed::sign(writ, &key).unwrap()],
            }),
            seed: Seed::new(nothing),
        }))
    }

    fn plan(&self) -> Body {
        let step = |id: &str| PlanStep {
            id: id.parse().unwrap(),
            kind: StepKind::Wait,
            needs: Vec::new(),
            spec: Canon::null(),
        };
        let plan = Plan::new(vec![step("first"), step("second")]).unwrap().needing(&self.tools);
        Body::Plan(Box::new(Plan { priority: self.priority, ..plan }))
    }

    fn waiting(&self, step: &str, until: Option<UnixMs>) -> Body {
        let step: StepId = step.parse().unwrap();
        let key = Some(format!("key-of-{step}").parse().unwrap());
        Body::Waiting(Box::new(Waiting { key, step, until }))
    }
}

/// What an executor saw of a call at some time.
pub(crate) fn report(trajectory: TrajectoryId, at: UnixMs) -> Signed<EffectReport> {
    let key = PrivateKey::from_seed(&[2; 32]);
    let result = CallResult::Failed {
        certainty: Certainty::Happened,
        cost: Amounts::ONE_CALL,
        error: failing(),
        retryable: false,
    };
    let report = EffectReport {
        at,
        key: key.id(),
        result,
        started: EntryId::new(Digest::of(b"started")),
        step: "first".parse().unwrap(),
        trajectory,
        type_: Tag::default(),
    };
    Signed::sign(report, &key).unwrap()
}

/// Something arrives from outside, in an append that is being built.
pub(crate) fn push_signal(
    admission: &mut Admission,
    at: UnixMs,
    id: &str,
) -> Result<(), AdmitError> {
    admission.push(at, operator(), signal(id)).map(drop)
}

fn operator() -> Author {
    Author::Principal("operator".parse().unwrap())
}

fn signal(id: &str) -> Body {
    Body::Signal(Box::new(Signal {
        id: id.parse().unwrap(),
        key: "elsewhere".parse().unwrap(),
        payload: Content::Inline(Canon::null()),
    }))
}

fn failing() -> Failing {
    Failing { code: "stopped".to_owned(), message: "it was stopped".to_owned() }
}
