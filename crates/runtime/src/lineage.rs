//! What the trajectories above a branch have sent and the branch did not inherit: read from their chains
//! again before every turn, since a source may still be running. Nothing of it is repeated unasked.
//!
//! What a source begins after a branch has decided is not known to that decision: two trajectories
//! have no common lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gesta_core::body::{BranchMode, Commit, Origin, Proposal, Started, external_key};
use gesta_core::digest::EntryId;
use gesta_core::document::{CallResult, Certainty, ResolutionVerdict};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::repeat::{Fate, Repeat};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::{Store, StoreError};

use crate::error::RunError;
use crate::facts::{Descent, Facts, Point};

/// How many entries are read at a time.
const PAGE: usize = 512;

/// Everything above one branch, as far as it was read.
#[derive(Default)]
pub(crate) struct Lineage(Mutex<Read>);

#[derive(Default)]
struct Read {
    mode: Option<BranchMode>,
    /// One a trajectory, the branch's own source first.
    above: Vec<Above>,
}

/// What one trajectory has done.
struct Above {
    point: Point,
    /// The number of the next entry to read.
    next: u64,
    deeds: Deeds,
}

/// What was sent, by step and generation.
#[derive(Default)]
struct Deeds {
    sent: BTreeMap<(StepId, u64), Deed>,
    /// Tasks that were handed to children, by step.
    handed: BTreeMap<StepId, TrajectoryId>,
}

/// One effect: everything that was sent under one key.
struct Deed {
    at: UnixMs,
    /// The `started` that sent it first.
    first: EntryId,
    /// Every `started` of it.
    started: Vec<EntryId>,
    /// Whether it was sent again without anyone knowing what had become of it before.
    again: bool,
    proposal: Proposal,
    effect: Effect,
    fate: Fate,
    /// The entry by which its step was done.
    settled: Option<EntryId>,
    /// That entry, if it is the commit of a call.
    commit: Option<Arc<Commit>>,
}

impl Lineage {
    /// Reads what was added above. Nothing is read for what is not a branch, or for one that runs everything.
    pub(crate) async fn look(&self, facts: &Facts, store: &dyn Store) -> Result<(), RunError> {
        let Some(Descent { mode, points }) = facts.descent() else { return Ok(()) };
        if *mode == BranchMode::Live {
            return Ok(());
        }
        for (number, point) in points.iter().rev().enumerate() {
            let mut from = self.read().above.get(number).map_or(0, |above| above.next);
            loop {
                let page = store.entries(point.trajectory, from, PAGE).await?;
                let mut entries = Vec::with_capacity(page.len());
                for stored in &page {
                    let entry = Entry::from_bytes(&stored.bytes).map_err(|why| {
                        let what = format!("entry {} of {}: {why}", stored.seq, point.trajectory);
                        StoreError::Damaged { what }
                    })?;
                    from = stored.seq + 1;
                    entries.push(entry);
                }
                self.read().take(number, *point, &entries);
                if page.len() < PAGE {
                    break;
                }
            }
        }
        self.read().mode = Some(*mode);
        Ok(())
    }

    /// What of it a proposal would repeat.
    pub(crate) fn repeats(&self, proposal: &Proposal) -> Vec<Repeat> {
        let read = self.read();
        let Some(mode) = read.mode else { return Vec::new() };
        let all = read.above.iter().flat_map(|above| {
            let trajectory = above.point.trajectory;
            let sent = above.deeds.sent.iter();
            let repeated = sent.filter(move |(_, deed)| deed.is_repeated_by(proposal, mode));
            repeated.map(move |((step, generation), deed)| Repeat {
                at: deed.at,
                fate: deed.fate,
                key: external_key(trajectory, step, *generation),
                started: deed.first,
                step: step.clone(),
                trajectory,
            })
        });
        all.collect()
    }

    /// The result that the nearest trajectory above has for this very proposal, if results are taken over.
    pub(crate) fn recorded(&self, proposal: &Proposal) -> Option<(EntryId, Arc<Commit>)> {
        let read = self.read();
        if read.mode != Some(BranchMode::Recorded) {
            return None;
        }
        let sent = read.above.iter().flat_map(|above| above.deeds.sent.values().rev());
        let mut done =
            sent.filter(|deed| deed.fate == Fate::Happened && deed.proposal == *proposal);
        done.find_map(|deed| Some((deed.settled?, Arc::clone(deed.commit.as_ref()?))))
    }

    /// The child that something above has handed the step's task to.
    pub(crate) fn handed(&self, step: &StepId) -> Option<(TrajectoryId, TrajectoryId)> {
        let read = self.read();
        let mut above = read.above.iter().filter(|_| read.mode.is_some());
        above.find_map(|above| Some((above.point.trajectory, *above.deeds.handed.get(step)?)))
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read {
    fn take(&mut self, number: usize, point: Point, entries: &[Entry]) {
        if self.above.len() <= number {
            self.above.push(Above { point, next: 0, deeds: Deeds::default() });
        }
        let Some(above) = self.above.get_mut(number) else { return };
        for entry in entries {
            above.deeds.follow(entry);
            above.next = entry.seq() + 1;
            if entry.seq() == above.point.seq {
                // What is done by then is inherited, so it is not done again.
                above.deeds.sent.retain(|_, deed| deed.settled.is_none());
            }
        }
    }
}

impl Deed {
    fn is_repeated_by(&self, proposal: &Proposal, mode: BranchMode) -> bool {
        let same_step = self.proposal.step == proposal.step;
        let same_call = self.proposal.tool == proposal.tool && self.proposal.args == proposal.args;
        let counts = match self.fate {
            // Only whoever wants what was recorded wants to know that it failed.
            Fate::DidNotHappen => mode == BranchMode::Recorded && same_step,
            Fate::Open | Fate::Happened | Fate::Undone | Fate::Unknown => true,
        };
        self.effect != Effect::Read && counts && (same_step || same_call)
    }
}

impl Deeds {
    fn follow(&mut self, entry: &Entry) {
        match &entry.payload().body {
            Body::Started(started) => self.started(started, entry),
            Body::Commit(commit) => {
                if let Origin::Effect { started, .. } = &commit.origin {
                    self.change(&commit.step, Some(*started), |deed| {
                        deed.fate = Fate::Happened;
                        deed.settled = Some(entry.id());
                        deed.commit = Some(Arc::new((**commit).clone()));
                    });
                }
            }
            Body::Failure(failure) => {
                let Some(started) = failure.started else { return };
                self.change(&failure.step, Some(started), |deed| {
                    deed.fate = match failure.certainty {
                        Certainty::Happened => Fate::Happened,
                        // One of several sends did not happen: that says nothing about the others.
                        Certainty::DidNotHappen if !deed.again => Fate::DidNotHappen,
                        Certainty::DidNotHappen | Certainty::Unknown => Fate::Unknown,
                    };
                });
            }
            Body::InDoubt(doubt) => {
                self.change(&doubt.step, Some(doubt.started), |deed| deed.fate = Fate::Unknown);
            }
            Body::Resolution(resolution) => {
                self.change(&resolution.step, None, |deed| {
                    if deed.fate != Fate::Unknown {
                        return;
                    }
                    match &resolution.statement.doc().verdict {
                        ResolutionVerdict::Happened(_) => {
                            (deed.fate, deed.settled) = (Fate::Happened, Some(entry.id()));
                        }
                        ResolutionVerdict::DidNotHappen => deed.fate = Fate::DidNotHappen,
                        ResolutionVerdict::GiveUp => {}
                    }
                });
            }
            Body::LateEffect(late) => {
                let report = late.report.doc();
                let happened = match &report.result {
                    CallResult::Succeeded(_) => true,
                    CallResult::Failed { certainty, .. } => *certainty == Certainty::Happened,
                };
                self.change(&late.step, Some(report.started), |deed| {
                    if happened && deed.settled.is_none() {
                        deed.fate = Fate::Happened;
                    }
                });
            }
            Body::Delegation(delegation) => {
                self.handed.insert(delegation.step.clone(), delegation.child);
            }
            _ => {}
        }
    }

    fn started(&mut self, body: &Started, entry: &Entry) {
        let Started { compensates, permit, proposal, .. } = body;
        let (permit, id) = (permit.doc(), entry.id());
        if let Some(commit) = compensates {
            let undone = self.sent.values_mut().filter(|deed| deed.settled == Some(*commit));
            undone.for_each(|deed| deed.fate = Fate::Undone);
        }
        let deed =
            self.sent.entry((proposal.step.clone(), permit.generation)).or_insert_with(|| Deed {
                at: entry.payload().at,
                first: id,
                started: Vec::new(),
                again: false,
                proposal: proposal.clone(),
                effect: permit.effect,
                fate: Fate::DidNotHappen,
                settled: None,
                commit: None,
            });
        deed.again |= deed.fate == Fate::Unknown;
        deed.started.push(id);
        deed.fate = Fate::Open;
    }

    /// Changes what is known of what was sent for a step: by this `started`, or last.
    fn change(&mut self, step: &StepId, started: Option<EntryId>, change: impl FnOnce(&mut Deed)) {
        let all = (step.clone(), 0)..=(step.clone(), u64::MAX);
        let mut newest_first = self.sent.range_mut(all).rev().map(|(_, deed)| deed);
        let deed =
            newest_first.find(|deed| started.is_none_or(|started| deed.started.contains(&started)));
        if let Some(deed) = deed {
            change(deed);
        }
    }
}
