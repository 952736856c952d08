//! Verifying one trajectory, entry by entry, trusting nothing but a keyring: canonical bytes, ids,
//! links, legality, signatures, roles. Reading files, running in parallel and checking what spans
//! trajectories are the caller's.

use std::fmt;

use serde::Serialize;

use crate::body::{Mandate, Origin, Purpose};
use crate::content::{BlobRef, Content};
use crate::digest::{Digest, EntryId};
use crate::document::{
    CallResult, EffectReport, Environment, RegistryItem, ResolutionVerdict, Settlement,
};
use crate::entry::{Body, Entry, EntryError};
use crate::ids::TrajectoryId;
use crate::keys::{KeyId, Signature};
use crate::signed::{Document, Signed};
use crate::state::{Illegal, State, Why};
use crate::time::UnixMs;
use crate::trust::{Distrust, Keyring, Role};
use crate::writ::Writ;

/// What a finding means for whoever relies on the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Something was changed, moved, cut or forged.
    Tampered,
    /// It is intact, but signed by someone who is not trusted for it.
    Untrusted,
    /// Something that is needed to tell is missing.
    Incomplete,
    /// It cannot be read at all.
    Unreadable,
}

impl Class {
    /// The exit code of a program that reports it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Tampered => 3,
            Self::Untrusted => 4,
            Self::Incomplete => 5,
            Self::Unreadable => 6,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tampered => "tampered",
            Self::Untrusted => "untrusted",
            Self::Incomplete => "incomplete",
            Self::Unreadable => "unreadable",
        })
    }
}

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it means.
    pub class: Class,
    /// A stable code.
    pub code: &'static str,
    /// The trajectory.
    pub trajectory: Option<TrajectoryId>,
    /// The number of the entry.
    pub seq: Option<u64>,
    /// The id of the entry, as its bytes hash.
    pub entry: Option<EntryId>,
    /// For people.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.class, self.code)?;
        if let Some(trajectory) = self.trajectory {
            write!(f, " in {trajectory}")?;
        }
        if let Some(seq) = self.seq {
            write!(f, " at entry {seq}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Verifies one trajectory from its first entry on.
#[derive(Debug)]
pub struct Verifier<'a> {
    keyring: &'a Keyring,
    signatures: bool,
    /// Up to which entry, and when, somebody outside has seen the trajectory.
    witnessed: Option<(u64, UnixMs)>,
    state: State,
    checked: u64,
}

impl<'a> Verifier<'a> {
    /// Begins. `state` is `State::new`, or `State::branching` of the folded source for a branch.
    pub fn new(state: State, keyring: &'a Keyring) -> Self {
        Self { keyring, signatures: true, witnessed: None, state, checked: 0 }
    }

    /// Witnesses had seen the trajectory up to this entry at this time: what it holds so far was not signed
    /// with a key that was taken later.
    #[must_use]
    pub fn witnessed(mut self, seq: u64, at: UnixMs) -> Self {
        self.witnessed = Some((seq, at));
        self
    }

    /// Leaves signatures and keys unchecked: bytes, ids, links and legality only.
    #[must_use]
    pub fn without_signatures(mut self) -> Self {
        self.signatures = false;
        self
    }

    /// The state so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// How many signatures were checked.
    pub fn signatures(&self) -> u64 {
        self.checked
    }

    /// Verifies the next entry. `stored_id` is the id under which it was kept, if it was kept under one.
    pub fn entry(&mut self, bytes: &[u8], stored_id: Option<EntryId>) -> Result<Entry, Finding> {
        // Where it stands: what its bytes say of it may be what was changed.
        let place = self.state.head().map_or(0, |head| head.seq + 1);
        let entry = Entry::from_bytes(bytes).map_err(|error| self.unreadable(place, &error))?;
        let trajectory = self.state.trajectory();
        let finding = |class, code, what: String| Finding {
            class,
            code,
            trajectory: Some(trajectory),
            seq: Some(place),
            entry: Some(entry.id()),
            what,
        };
        if stored_id.is_some_and(|stored| stored != entry.id()) {
            return Err(finding(
                Class::Tampered,
                "id",
                "its bytes do not hash to the id it is stored under".into(),
            ));
        }
        let signed = if self.signatures { signed(&entry.payload().body) } else { Vec::new() };
        // Signatures before legality: a forged document should be called forged.
        let forged = |document: &&SignedRef<'_>| {
            let SignedRef { key, message, signature, .. } = document;
            !self.keyring.verifies(key, message, signature)
        };
        if let Some(forged) = signed.iter().find(forged) {
            let what =
                format!("the signature on its `{}` is not by key `{}`", forged.type_, forged.key);
            return Err(finding(Class::Tampered, "signature", what));
        }
        self.state.apply(&entry).map_err(|illegal| {
            let class = match illegal.why {
                Why::Forgotten(_) => Class::Unreadable,
                _ => Class::Tampered,
            };
            finding(class, code_of(&illegal), told(&illegal, place))
        })?;
        if self.signatures {
            self.check_trust(&entry, &signed).map_err(|(type_, distrust)| {
                finding(
                    Class::Untrusted,
                    distrust_code(&distrust),
                    format!("its `{type_}`: {distrust}"),
                )
            })?;
            self.checked += signed.len() as u64;
        }
        drop(signed);
        Ok(entry)
    }

    fn unreadable(&self, seq: u64, error: &EntryError) -> Finding {
        let (class, code) = match error {
            EntryError::Version(_) => (Class::Unreadable, "future_version"),
            EntryError::Json(_) => (Class::Tampered, "not_canonical"),
            EntryError::Shape(_) => (Class::Tampered, "not_an_entry"),
        };
        Finding {
            class,
            code,
            trajectory: Some(self.state.trajectory()),
            seq: Some(seq),
            entry: None,
            what: error.to_string(),
        }
    }

    /// Whether a holder's key still counts for what was seen at this time, if it was.
    fn holds(&self, key: KeyId, seen: Option<UnixMs>) -> Result<(), Distrust> {
        match self.keyring.get(&key) {
            Some(known) => known.unrevoked(seen),
            None => Ok(()),
        }
    }

    /// Whether every signature counts.
    fn check_trust(
        &self,
        entry: &Entry,
        signed: &[SignedRef<'_>],
    ) -> Result<(), (&'static str, Distrust)> {
        let at = entry.payload().at;
        let tenant = self.state.tenant();
        let seen = self.witnessed.filter(|(seq, _)| entry.seq() <= *seq).map(|(_, at)| at);
        let check = |key, roles| self.keyring.check_seen(key, roles, tenant, at, seen);
        for document in signed {
            let trusted = match document.needs {
                Needs::Role(roles) => check(document.key, roles),
                Needs::Holder => self.holds(document.key, seen),
                Needs::Narrower => match self.state.writ() {
                    Some((_, writ)) if writ.holder == document.key => {
                        self.holds(document.key, seen)
                    }
                    _ => check(document.key, GUARDIAN),
                },
                Needs::Registry(_) => Ok(()),
            };
            trusted.map_err(|distrust| (document.type_, distrust))?;
        }
        if let Body::Root(root) = &entry.payload().body
            && let Purpose::Registry { owner } = &root.purpose
        {
            self.keyring
                .check_seen(*owner, &[Role::Owner], None, at, seen)
                .map_err(|distrust| ("registry owner", distrust))?;
        }
        Ok(())
    }
}

/// Who may narrow a writ for a child beside its holder.
const GUARDIAN: &[Role] = &[Role::Guardian];

fn code_of(illegal: &Illegal) -> &'static str {
    match illegal.why {
        Why::OtherTrajectory => "other_trajectory",
        Why::Sequence { .. } => "sequence",
        Why::Parent => "parent",
        Why::Forgotten(_) => "forgotten",
        _ => "illegal",
    }
}

/// What is wrong with the entry at this place, for people. A link that does not fit tells of two entries:
/// which of them was changed, their bytes do not say.
fn told(illegal: &Illegal, place: u64) -> String {
    match (&illegal.why, place.checked_sub(1)) {
        (Why::Parent, Some(before)) => format!(
            "entry {before} is not the one that entry {place} (`{}`) names as its parent: entry {before} was \
             changed after it was written, or this link was",
            illegal.kind
        ),
        (Why::Sequence { expected }, _) => format!(
            "the entry (`{}`) at place {expected} of the chain says that it is entry {}",
            illegal.kind, illegal.seq
        ),
        (Why::OtherTrajectory, _) => format!(
            "the entry (`{}`) at place {place} of the chain belongs to another trajectory",
            illegal.kind
        ),
        (Why::Forgotten(forgotten), _) => forgotten.to_string(),
        _ => illegal.to_string(),
    }
}

/// The code of a finding that a signature does not count.
pub fn distrust_code(distrust: &Distrust) -> &'static str {
    match distrust {
        Distrust::Unknown(_) => "unknown_key",
        Distrust::WrongRole { .. } => "wrong_role",
        Distrust::WrongTenant { .. } => "wrong_tenant",
        Distrust::OutsideValidity { .. } => "key_validity",
        Distrust::Revoked { .. } => "revoked_key",
    }
}

/// What makes a signature count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The key has one of these roles.
    Role(&'static [Role]),
    /// The key holds the writ above; the chain of holders is checked by `apply`.
    Holder,
    /// The key holds the trajectory's writ, or is a guardian's; that the writ lets guardians narrow it
    /// is checked by `apply`.
    Narrower,
    /// The key has one of these roles in the registry that is being folded, which `apply` checks.
    Registry(&'static [Role]),
}

/// A signed document inside an entry.
#[derive(Clone, Copy, Debug)]
pub struct SignedRef<'a> {
    /// Its type.
    pub type_: &'static str,
    /// The key that it names.
    pub key: KeyId,
    /// What makes its signature count.
    pub needs: Needs,
    message: &'a [u8],
    signature: &'a Signature,
}

impl<'a> SignedRef<'a> {
    /// What was signed.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// The signature.
    pub fn signature(&self) -> Signature {
        *self.signature
    }

    /// Whether the signature is the key's.
    pub fn genuine(&self) -> bool {
        self.key.verifies(self.message, self.signature)
    }
}

fn by_role<D: Document>(document: &Signed<D>) -> SignedRef<'_> {
    needing(document, Needs::Role(D::ROLES))
}

fn needing<D: Document>(document: &Signed<D>, needs: Needs) -> SignedRef<'_> {
    SignedRef {
        type_: D::TYPE,
        key: document.doc().key(),
        message: document.canon().as_bytes(),
        signature: document.signature(),
        needs,
    }
}

/// Every signed document of an entry.
pub fn signed(body: &Body) -> Vec<SignedRef<'_>> {
    match body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => writs(mandate),
            Purpose::Registry { .. } => Vec::new(),
        },
        Body::Branch(branch) => writs(&branch.mandate),
        Body::Started(started) => vec![by_role(&started.decision), by_role(&started.permit)],
        Body::Commit(commit) => match &commit.origin {
            Origin::Effect { evidence, receipt, .. } => {
                evidence.iter().map(|report| by_role(report)).chain([by_role(receipt)]).collect()
            }
            Origin::Computed
            | Origin::Skipped
            | Origin::Woken { .. }
            | Origin::RecordedFrom { .. } => Vec::new(),
        },
        Body::Failure(failure) => failure
            .evidence
            .iter()
            .map(|report| by_role(report))
            .chain([by_role(&failure.receipt)])
            .collect(),
        Body::Rejection(rejection) => {
            vec![by_role(&rejection.decision), by_role(&rejection.receipt)]
        }
        Body::PendingApproval(pending) => vec![by_role(&pending.decision)],
        Body::Approval(approval) => vec![by_role(&approval.statement)],
        Body::Resolution(resolution) => vec![by_role(&resolution.statement)],
        Body::LateEffect(late) => vec![by_role(&late.report)],
        Body::Delegation(delegation) => {
            vec![by_role(&delegation.decision), needing(&delegation.writ, Needs::Narrower)]
        }
        Body::Registration(registration) => {
            let statement = &registration.statement;
            vec![needing(statement, Needs::Registry(statement.doc().item.roles()))]
        }
        Body::Plan(_)
        | Body::Attempt(_)
        | Body::InDoubt(_)
        | Body::Confirmation(_)
        | Body::Compensation(_)
        | Body::Waiting(_)
        | Body::Signal(_)
        | Body::Timer(_)
        | Body::DelegationResult(_)
        | Body::Delivered(_)
        | Body::Checkpoint(_)
        | Body::Erased(_)
        | Body::CancelRequested(_)
        | Body::Completed(_)
        | Body::Failed(_)
        | Body::Cancelled(_) => Vec::new(),
    }
}

/// The first writ needs an issuer; those below it need the holder of the one above, or a guardian.
fn writs(mandate: &Mandate) -> Vec<SignedRef<'_>> {
    let mut above: Option<&Writ> = None;
    let mut refs = Vec::with_capacity(mandate.writs.len());
    for writ in &mandate.writs {
        refs.push(needing(writ, needs_of_writ(writ.doc(), above)));
        above = Some(writ.doc());
    }
    refs
}

/// What makes the signature of a writ count, below another one or at the top.
pub fn needs_of_writ(writ: &Writ, above: Option<&Writ>) -> Needs {
    match above {
        None => Needs::Role(&[Role::Issuer]),
        Some(above) if above.holder == writ.key => Needs::Holder,
        Some(_) => Needs::Role(GUARDIAN),
    }
}

/// A place in another trajectory that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// What it is, for findings.
    pub what: &'static str,
    /// The other trajectory.
    pub trajectory: TrajectoryId,
    /// The entry there.
    pub entry: EntryId,
    /// Its number, when the link says it.
    pub seq: Option<u64>,
}

/// What an entry names in other trajectories.
pub fn links(body: &Body) -> Vec<Link> {
    let of_mandate = |mandate: &Mandate| {
        let delegated = mandate.delegated_by.as_ref().map(|by| Link {
            what: "delegation",
            trajectory: by.trajectory,
            entry: by.delegation,
            seq: None,
        });
        let registry = mandate.registry.as_ref().map(|registry| Link {
            what: "registry head",
            trajectory: registry.trajectory,
            entry: registry.head.id,
            seq: Some(registry.head.seq),
        });
        delegated.into_iter().chain(registry).collect::<Vec<_>>()
    };
    match body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => of_mandate(mandate),
            Purpose::Registry { .. } => Vec::new(),
        },
        Body::Branch(branch) => {
            let mut links = of_mandate(&branch.mandate);
            links.push(Link {
                what: "source head",
                trajectory: branch.source,
                entry: branch.source_head.id,
                seq: Some(branch.source_head.seq),
            });
            links
        }
        Body::DelegationResult(result) => vec![Link {
            what: "child head",
            trajectory: result.child,
            entry: result.head.id,
            seq: Some(result.head.seq),
        }],
        Body::Delivered(delivered) => vec![Link {
            what: "delivery",
            trajectory: delivered.to,
            entry: delivered.head.id,
            seq: Some(delivered.head.seq),
        }],
        _ => Vec::new(),
    }
}

/// Every blob that an entry names.
pub fn blobs(body: &Body) -> Vec<BlobRef> {
    let of_settlement = |settlement: &Settlement| settlement.observation.blob().copied();
    let of_report = |report: &Signed<EffectReport>| match &report.doc().result {
        CallResult::Succeeded(settlement) => of_settlement(settlement),
        CallResult::Failed { .. } => None,
    };
    let of = |content: &Content| content.blob().copied();
    let found = match body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => [of(&mandate.input), None],
            Purpose::Registry { .. } => [None, None],
        },
        Body::Branch(branch) => [of(&branch.mandate.input), None],
        Body::Commit(commit) => match &commit.origin {
            Origin::Effect { evidence: Some(report), .. } => {
                [of(&commit.observation), of_report(report)]
            }
            _ => [of(&commit.observation), None],
        },
        Body::Failure(failure) => [failure.evidence.as_deref().and_then(of_report), failure.output],
        Body::InDoubt(doubt) => [doubt.output, None],
        Body::Resolution(resolution) => {
            let statement = resolution.statement.doc();
            match &statement.verdict {
                ResolutionVerdict::Happened(settlement) => {
                    [of(&statement.evidence), of_settlement(settlement)]
                }
                ResolutionVerdict::DidNotHappen | ResolutionVerdict::GiveUp => {
                    [of(&statement.evidence), None]
                }
            }
        }
        Body::LateEffect(late) => [of_report(&late.report), None],
        Body::Signal(signal) => [of(&signal.payload), None],
        Body::Delegation(delegation) => [of(&delegation.task.input), None],
        Body::DelegationResult(result) => [of(&result.answer), None],
        Body::Completed(completed) => [of(&completed.answer), None],
        _ => [None, None],
    };
    found.into_iter().flatten().collect()
}

/// Policies, catalogues and configurations that an entry names by digest: they may be at hand, and a replay
/// needs them.
pub fn in_force(body: &Body) -> Vec<Digest> {
    let of = |environment: &Environment| {
        let Environment { config, policy, tools } = *environment;
        vec![config, policy, tools]
    };
    let of_mandate = |mandate: &Mandate| of(&mandate.environment);
    match body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => of_mandate(mandate),
            Purpose::Registry { .. } => Vec::new(),
        },
        Body::Branch(branch) => of_mandate(&branch.mandate),
        Body::Attempt(attempt) => of(&attempt.environment),
        Body::Registration(registration) => match registration.statement.doc().item {
            RegistryItem::Policy(digest) | RegistryItem::Catalogue(digest) => vec![digest],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
