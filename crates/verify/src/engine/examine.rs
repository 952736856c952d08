//! Examining one trajectory: the core's verifier over its entries, its blobs, the registry heads it
//! names, and what others will want to know of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Commit, DelegationResult, End, Origin, Purpose};
use gesta_core::digest::{Digest, EntryId, ProposalId, WritId};
use gesta_core::document::{Decision, Outcome};
use gesta_core::entry::{Body, Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::signed::Signed;
use gesta_core::state::{Registry, State};
use gesta_core::trust::Keyring;
use gesta_core::verification::{Class, Finding, Verifier};
use gesta_core::writ::Writ;

use super::sensitive::Committed;
use super::{Audit, Begins, Registries, Standing};
use crate::report::NotChecked;

/// How far the clocks of those who revoke and those who decide may differ.
const SKEW_MS: u64 = 5 * 60 * 1000;
/// How often progress is told.
const PROGRESS_EVERY: u64 = 1024;

/// What is known of a trajectory after it was examined.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) trajectory: TrajectoryId,
    /// Entries that hold, from the first on.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) signatures: u64,
    pub(super) blobs: u64,
    pub(super) links: u64,
    pub(super) head: Option<Head>,
    /// The entry that has the number of the last one that the log held.
    pub(super) at_sealed: Option<EntryId>,
    /// Why the examination stopped before the end.
    pub(super) bad: Option<Finding>,
    /// What is wrong besides the chain itself.
    pub(super) beside: Vec<Finding>,
    pub(super) not_checked: Vec<NotChecked>,
    /// The entries that others name, where they are.
    pub(super) seen: BTreeMap<EntryId, Seen>,
    pub(super) delegations: Vec<Delegated>,
    pub(super) results: Vec<Returned>,
    /// The heads of other chains at which something of this one had reached them.
    pub(super) delivered: Vec<Named>,
    /// For a child: its last entries, from the one that ended it on.
    pub(super) closing: Vec<Found>,
    /// For a registry: what it says, and its ids.
    pub(super) registry: Option<(Registry, Vec<EntryId>)>,
    /// The sensitive values that it commits to.
    pub(super) committed: Committed,
    /// Whether its last entry that holds has ended it.
    pub(super) ended: bool,
    /// Its results, if something below it may have taken them over.
    pub(super) results_of_calls: BTreeMap<EntryId, CallResult>,
    /// Results that it took over from above.
    pub(super) taken_over: Vec<TakenOver>,
}

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallResult {
    proposal: ProposalId,
    outcome: Outcome,
    observation: Digest,
    /// None if it has no canonical form, which no entry's has.
    delta: Option<Digest>,
}

/// A result that was taken over.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenOver {
    pub(super) at: Head,
    /// The commit that it is taken from.
    pub(super) from: EntryId,
    pub(super) result: CallResult,
}

/// An entry that another trajectory names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) seq: u64,
    /// If it is a delegation: to whom, under which writ.
    pub(super) delegates: Option<(TrajectoryId, WritId)>,
}

/// A task handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delegated {
    pub(super) at: Head,
    pub(super) child: TrajectoryId,
}

/// A head of another trajectory that an entry names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) at: Head,
    pub(super) of: TrajectoryId,
    pub(super) head: Head,
}

/// What a child is said to have come to.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    pub(super) at: Head,
    pub(super) child: TrajectoryId,
    pub(super) says: Closing,
}

/// How a child stands after one of its last entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    pub(super) head: Head,
    pub(super) end: End,
    pub(super) spent: Amounts,
    /// The digest of the answer, if it completed.
    pub(super) answer: Option<Digest>,
}

/// What a child was found to have come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) closing: Closing,
    /// What it has spent, as programs counted it that wrote version 1 first.
    pub(super) at_most: Amounts,
}

impl Found {
    /// Whether its parent may say so.
    pub(super) fn is(&self, says: &Closing) -> bool {
        self.spent(says.spent) && *says == Closing { spent: says.spent, ..self.closing }
    }

    /// Whether its parent may say that it has spent this.
    pub(super) fn spent(&self, says: Amounts) -> bool {
        says == self.closing.spent || says == self.at_most
    }
}

impl Closing {
    fn said(result: &DelegationResult) -> Self {
        let answer = (result.end == End::Completed).then(|| result.answer.digest());
        Self { head: result.head, end: result.end, spent: result.spent, answer }
    }
}

impl Examined {
    fn new(trajectory: TrajectoryId) -> Self {
        Self {
            trajectory,
            entries: 0,
            bytes: 0,
            signatures: 0,
            blobs: 0,
            links: 0,
            head: None,
            at_sealed: None,
            bad: None,
            beside: Vec::new(),
            not_checked: Vec::new(),
            seen: BTreeMap::new(),
            delegations: Vec::new(),
            results: Vec::new(),
            delivered: Vec::new(),
            closing: Vec::new(),
            registry: None,
            ended: false,
            results_of_calls: BTreeMap::new(),
            taken_over: Vec::new(),
            committed: Committed::default(),
        }
    }

    /// Whether the chain was examined to its end and holds.
    pub(super) fn is_sound(&self) -> bool {
        self.bad.is_none()
    }

    /// A registry is not sound, and what it says does not count: whether it enrolled a key that
    /// nobody else knows cannot be told.
    pub(super) fn lack_registry(&mut self) {
        if let Some(bad) = self.bad.as_mut().filter(|bad| bad.code == "unknown_key") {
            bad.class = Class::Incomplete;
            bad.what.push_str("; a registry that may know it is not sound");
        }
    }

    /// A finding at one of its entries.
    pub(super) fn finding(
        &self,
        class: Class,
        code: &'static str,
        at: Option<Head>,
        what: String,
    ) -> Finding {
        Finding {
            class,
            code,
            trajectory: Some(self.trajectory),
            seq: at.map(|head| head.seq),
            entry: at.map(|head| head.id),
            what,
        }
    }
}

impl Audit<'_> {
    /// Examines one trajectory under a keyring. `heads` are the registries that are known to hold.
    pub(super) fn examine(
        &self,
        trajectory: TrajectoryId,
        keyring: &Keyring,
        heads: &Registries<'_>,
    ) -> Examined {
        let mut examined = Examined::new(trajectory);
        let state = match self.initial_state(trajectory, keyring) {
            Ok(state) => state,
            Err(finding) => {
                examined.bad = Some(finding);
                return examined;
            }
        };
        let mut verifier = Verifier::new(state, keyring);
        if let Some((seq, at)) = self.log.witnessed(trajectory) {
            verifier = verifier.witnessed(seq, at);
        }
        if !self.options.signatures {
            verifier = verifier.without_signatures();
        }
        let mut notes = Notes::new(self, trajectory, heads);
        let mut told = (0, 0);
        let read = self.chains.entries(trajectory, &mut |bytes, stored_id| {
            match verifier.entry(bytes, stored_id) {
                Ok(entry) => {
                    examined.entries += 1;
                    examined.bytes += bytes.len() as u64;
                    examined.head = Some(entry.head());
                    notes.take(&entry, verifier.state(), &mut examined);
                }
                Err(finding) => {
                    examined.bad = Some(finding);
                    return ControlFlow::Break(());
                }
            }
            if examined.entries.is_multiple_of(PROGRESS_EVERY) {
                self.advance(examined.entries - told.0, examined.bytes - told.1);
                told = (examined.entries, examined.bytes);
            }
            ControlFlow::Continue(())
        });
        self.advance(examined.entries - told.0, examined.bytes - told.1);
        examined.signatures = verifier.signatures();
        if let (Err(finding), None) = (read, &examined.bad) {
            let trajectory = finding.trajectory.or(Some(trajectory));
            examined.bad = Some(Finding { trajectory, ..finding });
        }
        if examined.bad.is_none() {
            examined.bad = self.check_head(&examined);
        }
        examined.beside.extend(self.chains.misfiled(trajectory));
        if self.is_registry(trajectory) {
            examined.registry = Some((verifier.state().registry().clone(), notes.ids));
        }
        examined
    }

    /// The chain must end where it is said to end.
    fn check_head(&self, examined: &Examined) -> Option<Finding> {
        let expected = self.chains.expected_head(examined.trajectory);
        let tampered = |code, at, what| Some(examined.finding(Class::Tampered, code, at, what));
        match (examined.head, expected) {
            (found, Some(expected)) if found == Some(expected) => None,
            (Some(_), None) => None,
            (None, None) => {
                let what = "it has no entries".to_owned();
                Some(examined.finding(Class::Incomplete, "empty", None, what))
            }
            (found, Some(expected)) if found.is_none_or(|found| found.seq < expected.seq) => {
                let what = format!(
                    "it has {} entries, but should reach entry {}",
                    examined.entries, expected.seq
                );
                tampered("truncated", found, what)
            }
            (found, Some(expected)) => {
                let what = format!("it should end with entry {} `{}`", expected.seq, expected.id);
                tampered("head", found, what)
            }
        }
    }

    /// The state before the first entry: empty, or on top of the commit that a branch begins from.
    fn initial_state(&self, trajectory: TrajectoryId, keyring: &Keyring) -> Result<State, Finding> {
        let refuse = |class, code, what: String| Finding {
            class,
            code,
            trajectory: Some(trajectory),
            seq: Some(0),
            entry: None,
            what,
        };
        let mut path = Vec::new();
        let mut visited = BTreeSet::from([trajectory]);
        let mut at = trajectory;
        while let Some(Begins::Branch { source, commit, .. }) =
            self.beginnings.get(&at).map(|beginning| beginning.as_)
        {
            if !visited.insert(source) {
                let what = format!("it descends from itself, by way of {source}");
                return Err(refuse(Class::Tampered, "branch_cycle", what));
            }
            if !self.beginnings.contains_key(&source) {
                let what = format!("it branches from {source}, which is not here");
                return Err(refuse(Class::Incomplete, "missing_source", what));
            }
            path.push((source, commit));
            at = source;
        }
        let mut state: Option<State> = None;
        for (source, commit) in path.into_iter().rev() {
            let start = self.beginning_of(source, state);
            let folded = self.fold_until(start, commit, keyring).map_err(|finding| {
                let what = format!("its source is not sound that far: {finding}");
                refuse(Class::Incomplete, "source", what)
            })?;
            let missing = || {
                let what =
                    format!("it branches from entry `{commit}`, which {source} does not have");
                refuse(Class::Tampered, "source_commit", what)
            };
            state = Some(folded.ok_or_else(missing)?);
        }
        Ok(self.beginning_of(trajectory, state))
    }

    /// A trajectory before its first entry, on top of the fold of its source if it has one.
    fn beginning_of(&self, trajectory: TrajectoryId, source: Option<State>) -> State {
        let state =
            source.map_or_else(|| State::new(trajectory), |source| source.branching(trajectory));
        state.on(Arc::clone(&self.shelf))
    }

    /// Folds a chain up to one of its entries: bytes and legality only, since its signatures are
    /// checked when it is examined itself. None if it does not have the entry.
    fn fold_until(
        &self,
        state: State,
        last: EntryId,
        keyring: &Keyring,
    ) -> Result<Option<State>, Finding> {
        let trajectory = state.trajectory();
        let mut verifier = Verifier::new(state, keyring).without_signatures();
        let mut folded = Ok(None);
        self.chains.entries(trajectory, &mut |bytes, stored_id| {
            match verifier.entry(bytes, stored_id) {
                Ok(entry) if entry.id() == last => folded = Ok(Some(verifier.state().clone())),
                Ok(_) => return ControlFlow::Continue(()),
                Err(finding) => folded = Err(finding),
            }
            ControlFlow::Break(())
        })?;
        folded
    }
}

/// The writs of a mandate.
fn writs(body: &Body) -> Vec<WritId> {
    let mandate = match body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => mandate,
            Purpose::Registry { .. } => return Vec::new(),
        },
        Body::Branch(branch) => &branch.mandate,
        _ => return Vec::new(),
    };
    mandate.writs.iter().map(Signed::<Writ>::id).collect()
}

/// What is noted of each entry besides that it holds.
struct Notes<'a> {
    audit: &'a Audit<'a>,
    wanted: Option<&'a BTreeSet<EntryId>>,
    /// The number of the last entry that the log held.
    sealed: Option<u64>,
    is_child: bool,
    is_registry: bool,
    /// Whether something below it may take over its results.
    lends: bool,
    /// The registry that decisions name heads of, and what it says in the end.
    registry: Option<Standing<'a>>,
    /// The writs that everything here is done under.
    writs: Vec<WritId>,
    ids: Vec<EntryId>,
    answer: Option<Digest>,
}

impl<'a> Notes<'a> {
    fn new(audit: &'a Audit<'a>, trajectory: TrajectoryId, heads: &Registries<'a>) -> Self {
        let beginning = audit.beginnings.get(&trajectory);
        let registry = beginning.and_then(|beginning| beginning.registry.as_ref());
        Self {
            audit,
            wanted: audit.wanted.get(&trajectory),
            sealed: audit.log.head(trajectory).map(|head| head.seq),
            is_child: beginning.is_some_and(|beginning| beginning.delegated_by.is_some()),
            is_registry: audit.is_registry(trajectory),
            lends: audit.lenders.contains(&trajectory),
            registry: registry.and_then(|registry| heads.get(&registry.trajectory)).copied(),
            writs: Vec::new(),
            ids: Vec::new(),
            answer: None,
        }
    }

    fn take(&mut self, entry: &Entry, state: &State, examined: &mut Examined) {
        let body = &entry.payload().body;
        let at = entry.head();
        examined.committed.note(entry);
        examined.blobs += self.audit.named.check(self.audit.chains, entry, &mut examined.beside);
        if self.is_registry {
            self.ids.push(at.id);
        }
        if self.sealed == Some(at.seq) {
            examined.at_sealed = Some(at.id);
        }
        if self.wanted.is_some_and(|wanted| wanted.contains(&at.id)) {
            let delegates = match body {
                Body::Delegation(delegation) => Some((delegation.child, delegation.writ.id())),
                _ => None,
            };
            examined.seen.insert(at.id, Seen { seq: at.seq, delegates });
        }
        match body {
            Body::Root(_) | Body::Branch(_) => {
                self.writs = writs(body);
                self.mandate(at, examined);
            }
            Body::Started(body) => {
                self.head(body.decision.doc().registry, at, examined);
                self.revoked(body.decision.doc(), at, examined);
            }
            Body::Rejection(body) => self.head(body.decision.doc().registry, at, examined),
            Body::PendingApproval(body) => self.head(body.decision.doc().registry, at, examined),
            Body::Delegation(body) => {
                self.head(body.decision.doc().registry, at, examined);
                self.revoked(body.decision.doc(), at, examined);
                examined.delegations.push(Delegated { at, child: body.child });
            }
            Body::DelegationResult(body) => {
                let says = Closing::said(body);
                examined.results.push(Returned { at, child: body.child, says });
            }
            Body::Delivered(body) => {
                examined.delivered.push(Named { at, of: body.to, head: body.head });
            }
            Body::Completed(body) => self.answer = Some(body.answer.digest()),
            Body::Commit(body) => self.commit(body, at, examined),
            _ => {}
        }
        examined.ended = state.ended().is_some();
        if let Some(end) = state.ended().filter(|_| self.is_child) {
            let (spent, answer) = (state.spent(), self.answer);
            let closing = Closing { head: at, end, spent, answer };
            examined.closing.push(Found { closing, at_most: state.spent_at_most() });
        }
    }

    /// A result that was taken over, or that may be.
    fn commit(&self, body: &Commit, at: Head, examined: &mut Examined) {
        let result = |proposal| CallResult {
            proposal,
            outcome: body.outcome,
            observation: body.observation.digest(),
            delta: body.delta.digest().ok(),
        };
        match &body.origin {
            Origin::Effect { proposal, .. } if self.lends => {
                examined.results_of_calls.insert(at.id, result(*proposal));
            }
            Origin::RecordedFrom { commit, proposal } => {
                if let Ok(proposal) = proposal.id() {
                    let (from, result) = (*commit, result(proposal));
                    examined.taken_over.push(TakenOver { at, from, result });
                }
            }
            _ => {}
        }
    }

    /// The registry that the mandate names, which must be here to be asked.
    fn mandate(&self, at: Head, examined: &mut Examined) {
        let beginning = self.audit.beginnings.get(&examined.trajectory);
        let Some(registry) = beginning.and_then(|beginning| beginning.registry.as_ref()) else {
            return;
        };
        if self.registry.is_some() {
            self.head(Some(registry.head), at, examined);
        } else {
            examined.not_checked.push(NotChecked {
                trajectory: Some(examined.trajectory),
                seq: Some(at.seq),
                what: "registry head",
                of: Some(registry.trajectory),
                blob: None,
            });
        }
    }

    /// A call or a delegation that was allowed under a writ after the writ, or one above it, was revoked: it was
    /// decided on a registry that knew, or at a time when every worker had to know.
    fn revoked(&self, decision: &Decision, at: Head, examined: &mut Examined) {
        let Some(Standing { says, .. }) = self.registry else { return };
        for writ in &self.writs {
            let Some(revocation) = says.revocation(writ) else { continue };
            let knew = decision.registry.is_some_and(|head| head.seq >= revocation.seq);
            if knew || decision.at > revocation.at.plus(SKEW_MS) {
                let what = format!("it was allowed under the writ `{writ}` after that was revoked");
                let finding = examined.finding(Class::Tampered, "revoked_writ", Some(at), what);
                examined.beside.push(finding);
            }
        }
    }

    /// A head of the registry that an entry names: the registry must have it there.
    fn head(&self, named: Option<Head>, at: Head, examined: &mut Examined) {
        let (Some(named), Some(Standing { ids: registry, .. })) = (named, self.registry) else {
            return;
        };
        examined.links += 1;
        let found = usize::try_from(named.seq).ok().and_then(|seq| registry.get(seq));
        let what = match found {
            Some(found) if *found == named.id => return,
            Some(_) => format!("the registry's entry {} is not the one it names", named.seq),
            None => format!("the registry ends before entry {}, which it names", named.seq),
        };
        let finding = examined.finding(Class::Tampered, "registry_head", Some(at), what);
        examined.beside.push(finding);
    }
}
