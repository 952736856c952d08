//! A small history in which everything that a bundle can hold occurs once: a registry that enrols
//! the keys, a job with a blob, a child that it delegates to, a branch. Fixed keys, clock and seeds.

use std::collections::BTreeMap;

use gesta_core::amounts::Amounts;
use gesta_core::body::{
    Branch, BranchMode, DelegatedBy, Mandate, Plan, PlanStep, Purpose, RegistryHead, StepKind,
};
use gesta_core::content::{BlobRef, Content};
use gesta_core::digest::{Digest, EntryId, Seed};
use gesta_core::document::{Decision, KeyRevocation, RegistryItem};
use gesta_core::entry::{Author, Body, Entry, Head, Payload};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::sample::{Cast, Dice, EPOCH, author, person};
use gesta_core::signed::{Document, Signed};
use gesta_core::state::{Act, Offer, Scope, State};
use gesta_core::time::UnixMs;
use gesta_core::trust::{Role, TrustRoot, TrustedKey};
use gesta_core::writ::Writ;
use gesta_verify::bundle::{Contents, Disclosed, Writer};
use gesta_verify::engine::Sealing;

pub(crate) mod disclosed;
pub(crate) mod forged;
pub(crate) mod notary;
pub(crate) mod pack;
pub(crate) mod tamper;

/// The registry.
pub(crate) const REGISTRY: TrajectoryId = TrajectoryId::from_bytes([0x0f; 16]);
/// The job.
pub(crate) const JOB: TrajectoryId = TrajectoryId::from_bytes([0x1a; 16]);
/// The branch of the job.
pub(crate) const BRANCH: TrajectoryId = TrajectoryId::from_bytes([0x2b; 16]);

/// The blob that the job works on.
pub(crate) const BLOB: &[u8] = br#"{"orders":[1042,1043]}"#;

/// A chain under construction.
pub(crate) struct Chain {
    pub(crate) state: State,
    pub(crate) entries: Vec<Entry>,
    clock: UnixMs,
}

impl Chain {
    pub(crate) fn new(state: State) -> Self {
        let clock = state.at().max(EPOCH);
        Self { state, entries: Vec::new(), clock }
    }

    /// Adds whatever the state accepts, what no writer is let do included.
    pub(crate) fn add(&mut self, by: Author, body: Body) -> Head {
        self.clock = self.clock.plus(10);
        let head = self.state.head();
        let payload = Payload {
            at: self.clock.max(self.state.at()),
            body,
            by,
            parent: head.map(|head| head.id),
            seq: head.map_or(0, |head| head.seq + 1),
            trajectory: self.state.trajectory(),
        };
        let entry = Entry::new(payload).unwrap();
        self.state.apply(&entry).unwrap();
        self.entries.push(entry);
        self.state.head().unwrap()
    }

    /// Adds what the sample makes of an act, after a last word on it.
    pub(crate) fn act_with(
        &mut self,
        cast: &Cast,
        act: Act,
        on: &str,
        change: impl FnOnce(Body) -> Body,
    ) -> Head {
        let on = if on.is_empty() { Scope::Trajectory } else { Scope::Step(on.parse().unwrap()) };
        let offer = Offer { act, on };
        let now = self.clock.plus(10);
        let body = cast.body(&self.state, &offer, now, &mut Dice::new(1)).unwrap();
        let by = author(&self.state, act).unwrap();
        self.add(by, change(body))
    }

    pub(crate) fn act(&mut self, cast: &Cast, act: Act, on: &str) -> Head {
        self.act_with(cast, act, on, |body| body)
    }

    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        self.entries.iter().map(|entry| entry.bytes().to_vec()).collect()
    }
}

/// What is done differently in a history, before it is signed and hashed.
#[derive(Clone, Default)]
pub(crate) struct Twists {
    /// The guardian signs with this key.
    pub(crate) guardian: Option<PrivateKey>,
    /// The registry revokes the guardian.
    pub(crate) revoke_guardian: bool,
    /// The registry revokes the writ that all others are narrowed from.
    pub(crate) revoke_writ: bool,
    /// It does so after the job's decision.
    pub(crate) revoke_later: bool,
    /// The job names a head that the registry does not have.
    pub(crate) foreign_registry_head: bool,
    /// A decision names a head that the registry does not have.
    pub(crate) foreign_decision_head: bool,
    /// So does the decision to hand on.
    pub(crate) foreign_delegation_head: bool,
    /// The parent says that the child used nothing.
    pub(crate) free_child: bool,
    /// A call of the child is given up and arrives late, and the parent says that it used so much.
    pub(crate) late_child: Option<fn(&State) -> Amounts>,
    /// The child begins under a writ that nobody delegated.
    pub(crate) other_writ: bool,
    /// The child does not say who delegated to it.
    pub(crate) orphan: bool,
    /// The branch names a head that the source does not have.
    pub(crate) foreign_source_head: bool,
    /// The branch takes over a result that its source does not have.
    pub(crate) invented_result: bool,
}

/// Chains and blobs, ready to be bundled.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) chains: BTreeMap<TrajectoryId, Vec<Vec<u8>>>,
    pub(crate) blobs: BTreeMap<Digest, Vec<u8>>,
    pub(crate) keys: Vec<TrustedKey>,
    pub(crate) child: TrajectoryId,
    /// What a transparency log shows of it.
    pub(crate) sealing: Option<Sealing>,
    /// Sensitive values that come along.
    pub(crate) openings: Vec<Disclosed>,
}

/// The people of the scene.
pub(crate) fn cast() -> Cast {
    Cast::new(3)
}

/// A key that nobody trusts.
pub(crate) fn stranger() -> PrivateKey {
    PrivateKey::from_seed(&[0xee; 32])
}

/// The trust root of the scene: the owner and the issuer. All others are in the registry.
pub(crate) fn trust() -> TrustRoot {
    let keys = cast().trust_root().keys;
    let known =
        |key: &TrustedKey| key.roles.contains(&Role::Owner) || key.roles.contains(&Role::Issuer);
    TrustRoot::new(keys.into_iter().filter(known).collect())
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(&Twists::default())
    }

    pub(crate) fn with(twists: &Twists) -> Self {
        let mut cast = cast();
        let registry = registry(&cast, twists);
        let last = registry.entries.iter().rev().nth(usize::from(twists.revoke_later));
        let head = last.unwrap().head();
        if let Some(key) = &twists.guardian {
            cast.guardian = key.clone();
        }
        let (job, child) = job_and_child(&cast, head, twists);
        let branch = branch(&cast, &job, head, twists);
        let id = child.state.trajectory();
        let chains = [(REGISTRY, registry), (JOB, job), (id, child), (BRANCH, branch)];
        Self {
            chains: chains.into_iter().map(|(id, chain)| (id, chain.lines())).collect(),
            blobs: [(Digest::of(BLOB), BLOB.to_vec())].into(),
            keys: trust().keys,
            child: id,
            sealing: None,
            openings: Vec::new(),
        }
    }

    /// A session with a blob that has only begun.
    pub(crate) fn small() -> Self {
        let cast = cast();
        let mut chain = Chain::new(State::new(JOB));
        let mut mandate = cast.mandate(JOB).unwrap();
        mandate.input = Content::Blob(BlobRef::of(BLOB));
        let root = cast.root(Purpose::Session(mandate)).unwrap();
        chain.add(Author::Principal(person().unwrap()), root);
        chain.act(&cast, Act::Attempt, "");
        let mut scene = Self::new();
        scene.chains = [(JOB, chain.lines())].into();
        scene
    }

    /// The bundle, as the product writes it.
    pub(crate) fn bundle(&self) -> Vec<u8> {
        let mut contents = Contents::default();
        for (id, lines) in &self.chains {
            for line in lines {
                let entry = Entry::from_bytes(line).unwrap();
                contents.entry(*id, entry.head(), line.len() as u64);
            }
        }
        for blob in self.blobs.values() {
            contents.blob(BlobRef::of(blob));
        }
        for key in &self.keys {
            contents.key(key.clone());
        }
        if let Some(sealing) = &self.sealing {
            contents.sealing(sealing.clone());
        }
        for disclosed in &self.openings {
            contents.opening(disclosed.clone());
        }
        let mut writer = Writer::new(Vec::new(), contents).unwrap();
        for (id, lines) in &self.chains {
            for line in lines {
                writer.entry(*id, line).unwrap();
            }
        }
        for blob in self.blobs.values() {
            writer.blob(blob).unwrap();
        }
        writer.finish().unwrap()
    }
}

fn registry(cast: &Cast, twists: &Twists) -> Chain {
    let by = Author::Principal(person().unwrap());
    let mut chain = Chain::new(State::new(REGISTRY));
    chain.add(by.clone(), cast.registry_root().unwrap());
    for key in cast.trust_root().keys.into_iter().filter(|key| !key.roles.contains(&Role::Owner)) {
        let body = cast.registration(&chain.state, RegistryItem::Key(key), EPOCH).unwrap();
        chain.add(by.clone(), body);
    }
    if twists.revoke_guardian {
        let item = RegistryItem::RevokeKey(KeyRevocation { at: EPOCH, key: cast.guardian.id() });
        let body = cast.registration(&chain.state, item, EPOCH).unwrap();
        chain.add(by.clone(), body);
    }
    if twists.revoke_writ {
        let item = RegistryItem::RevokeWrit(cast.standing_writ().unwrap().id());
        let body = cast.registration(&chain.state, item, EPOCH).unwrap();
        chain.add(by, body);
    }
    chain
}

fn job_and_child(cast: &Cast, registry: Head, twists: &Twists) -> (Chain, Chain) {
    let by = Author::Principal(person().unwrap());
    let mut job = Chain::new(State::new(JOB));
    let mut mandate = cast.mandate(JOB).unwrap();
    mandate.input = Content::Blob(BlobRef::of(BLOB));
    mandate.registry = Some(at_registry(registry, twists.foreign_registry_head));
    let writs = mandate.writs.clone();
    job.add(by.clone(), cast.root(Purpose::Job(mandate)).unwrap());
    let step = |id: &str, kind| PlanStep {
        id: id.parse().unwrap(),
        kind,
        needs: Vec::new(),
        spec: Canon::parse(b"{}").unwrap(),
    };
    let steps = vec![step("charge", StepKind::Call), step("research", StepKind::Delegate)];
    job.add(by, Body::Plan(Box::new(Plan::new(steps).unwrap())));
    job.act(cast, Act::Attempt, "");
    let decided_on = at_registry(registry, twists.foreign_decision_head).head;
    job.act_with(cast, Act::Start, "charge", |body| decided(cast, body, decided_on));
    job.act(cast, Act::CommitEffect, "charge");
    let decided_on = at_registry(registry, twists.foreign_delegation_head).head;
    let delegation =
        job.act_with(cast, Act::Delegate, "research", |body| decided(cast, body, decided_on));

    let Body::Delegation(delegated) = &job.entries.last().unwrap().payload().body else {
        unreachable!("a delegation was added last")
    };
    let child =
        child(cast, delegated.child, delegation.id, &writs, &delegated.writ, registry, twists);
    let end = child.state.head().unwrap();
    job.act_with(cast, Act::PullChild, "research", |body| {
        let Body::DelegationResult(mut result) = body else {
            unreachable!("a result was asked for")
        };
        result.answer = Content::Inline(Canon::parse(br#"{"refunded":1999}"#).unwrap());
        result.end = child.state.ended().unwrap();
        result.head = end;
        result.spent = if twists.free_child { Default::default() } else { child.state.spent() };
        result.spent = twists.late_child.map_or(result.spent, |says| says(&child.state));
        Body::DelegationResult(result)
    });
    job.act(cast, Act::Complete, "");
    (job, child)
}

fn child(
    cast: &Cast,
    id: TrajectoryId,
    delegation: EntryId,
    above: &[Signed<Writ>],
    delegated: &Signed<Writ>,
    registry: Head,
    twists: &Twists,
) -> Chain {
    let writ = if twists.other_writ {
        resigned(delegated, &cast.agent, |writ| writ.depth -= 1)
    } else {
        delegated.clone()
    };
    let mandate = Mandate {
        delegated_by: (!twists.orphan).then_some(DelegatedBy { delegation, trajectory: JOB }),
        registry: Some(at_registry(registry, false)),
        writs: above.iter().cloned().chain([writ]).collect(),
        ..cast.mandate(id).unwrap()
    };
    let mut chain = Chain::new(State::new(id));
    let root = cast.root(Purpose::Session(mandate)).unwrap();
    chain.add(Author::Principal(person().unwrap()), root);
    chain.act(cast, Act::Attempt, "");
    chain.act(cast, Act::Start, "look");
    chain.act(cast, Act::CommitEffect, "look");
    if twists.late_child.is_some() {
        for act in [Act::Start, Act::Doubt, Act::ResolveGiveUp] {
            chain.act(cast, act, "pay");
        }
        chain.act(cast, Act::LateEffect, "");
    }
    chain.act(cast, Act::Complete, "");
    chain
}

fn branch(cast: &Cast, job: &Chain, registry: Head, twists: &Twists) -> Chain {
    let commit = job.entries.get(4).unwrap();
    let mut source = State::new(JOB);
    for entry in job.entries.iter().take(5) {
        source.apply(entry).unwrap();
    }
    let mut source_head = job.entries.get(5).unwrap().head();
    if twists.foreign_source_head {
        source_head.id = EntryId::new(Digest::of(b"elsewhere"));
    }
    let mut mandate = cast.mandate(BRANCH).unwrap();
    mandate.registry = Some(at_registry(registry, false));
    let body = Branch {
        compiler: "gesta 0.1.0".to_owned(),
        mandate,
        mode: if twists.invented_result { BranchMode::Recorded } else { BranchMode::Ask },
        note: "what if".to_owned(),
        principal: person().unwrap(),
        seed: Seed::new(Digest::of(b"branch")),
        source: JOB,
        source_commit: commit.id(),
        source_head,
    };
    let mut chain = Chain::new(source.branching(BRANCH));
    chain.add(Author::Principal(person().unwrap()), Body::Branch(Box::new(body)));
    if twists.invented_result {
        let ship = PlanStep {
            id: "ship".parse().unwrap(),
            kind: StepKind::Call,
            needs: Vec::new(),
            spec: Canon::parse(b"{}").unwrap(),
        };
        let plan = Body::Plan(Box::new(Plan::new(vec![ship]).unwrap()));
        chain.add(Author::Principal(person().unwrap()), plan);
    }
    chain.act(cast, Act::Attempt, "");
    if twists.invented_result {
        chain.act(cast, Act::CommitRecorded, "ship");
    }
    chain
}

fn at_registry(head: Head, foreign: bool) -> RegistryHead {
    let id = if foreign { EntryId::new(Digest::of(b"elsewhere")) } else { head.id };
    RegistryHead { head: Head { id, ..head }, trajectory: REGISTRY }
}

/// A `started` whose decision names a head of the registry.
fn decided(cast: &Cast, body: Body, head: Head) -> Body {
    let on = |decision: &_| {
        resigned::<Decision>(decision, &cast.guardian, |it| it.registry = Some(head))
    };
    match body {
        Body::Started(mut started) => {
            started.decision = on(&started.decision);
            let decision = started.decision.id();
            started.permit = resigned(&started.permit, &cast.guardian, |it| it.decision = decision);
            Body::Started(started)
        }
        Body::Delegation(mut delegation) => {
            delegation.decision = on(&delegation.decision);
            Body::Delegation(delegation)
        }
        _ => unreachable!("something that is decided was asked for"),
    }
}

/// The document, changed and signed again.
pub(crate) fn resigned<D: Document + Clone>(
    signed: &Signed<D>,
    key: &PrivateKey,
    change: impl FnOnce(&mut D),
) -> Signed<D> {
    let mut doc = signed.doc().clone();
    change(&mut doc);
    Signed::sign(doc, key).unwrap()
}
