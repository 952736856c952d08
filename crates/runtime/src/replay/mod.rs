//! Replay: everything that can be derived is derived again, entry by entry, by the code that wrote it, with
//! the record in place of the world. No tool is called and nothing is appended.
//!
//! What came from outside (what a tool returned, what a person said, what time it was, what an account
//! held) is taken from the record. Everything else must come out as it is recorded: arguments, seeds and
//! keys, decisions, permits, deltas, receipts, waits, retries, rollbacks, the end and its run hash.
//! Whether signatures are genuine is for verification to say.

mod confirm;
mod derive;
mod difference;
mod library;
mod what_if;

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::body::Branch;
use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Entry, Head, Kind};
use gesta_core::ids::TrajectoryId;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_store::{ChainError, Follow as _, Store, StoreError};
use serde::Serialize;

use crate::desk::Desk;
use crate::error::RunError;
use crate::facts::Facts;
use crate::turn::{Blobs, Lists, Sealed};

pub use confirm::confirm;
pub use difference::Divergence;
pub use library::Library;
pub use what_if::{Change, Otherwise, Roles, WhatIf};

use self::derive::Derived;

/// How many entries are read at a time.
const PAGE: usize = 512;

/// How a replay went.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Session {
    /// Everything came out as it is recorded.
    Complete,
    /// Something did not.
    Diverged(Box<Divergence>),
    /// It could not be found out.
    Failed {
        /// The entry at which it stopped.
        seq: u64,
        /// Why.
        why: String,
    },
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// How it went.
    pub session: Session,
    /// How many entries were looked at.
    pub entries: u64,
    /// How many of each kind were derived again.
    pub derived: BTreeMap<String, u64>,
    /// How many of each kind came from outside, and were taken as they are.
    pub given: BTreeMap<String, u64>,
    /// The last entry that was looked at.
    pub head: Option<Head>,
    /// Its time.
    pub at: UnixMs,
    /// What was done, as it was recorded at the end; none while it has not ended.
    pub run_hash: Option<Digest>,
    /// The same, as the replay computes it.
    pub replay_hash: Digest,
    /// The digest of the world.
    pub world: Digest,
    /// What would have been decided otherwise, if that was asked.
    pub otherwise: Vec<Otherwise>,
    /// How many decisions were taken, in the time that is asked about.
    pub decisions: u64,
    /// How many of them could not be decided under what is asked about.
    pub undecided: u64,
    /// Why what is asked about does not fit what was recorded, where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfit: Option<String>,
    /// How many sensitive values were computed, and taken as they are committed to.
    pub committed: u64,
    /// Whether its sensitive values were erased.
    pub erased: bool,
}

/// What is asked of a replay.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The last entry to look at.
    pub until: Option<u64>,
    /// What to decide under, instead of what was in force.
    pub what_if: Option<WhatIf>,
    /// Only decisions of this time or later are counted.
    pub since: Option<UnixMs>,
    /// Only decisions before this time are counted.
    pub before: Option<UnixMs>,
}

impl Asked {
    /// Whether a decision of this time is asked about.
    fn counts(&self, at: UnixMs) -> bool {
        self.since.is_none_or(|since| at >= since) && self.before.is_none_or(|before| at < before)
    }
}

/// Replays a trajectory. `progress` is told how many entries were looked at.
pub async fn replay(
    library: &mut Library,
    trajectory: TrajectoryId,
    asked: &Asked,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(Report, State), RunError> {
    let mut player = Player::begin(library, trajectory, asked).await?;
    let mut from = 0;
    let session = loop {
        let page = player.library.store.entries(trajectory, from, PAGE).await?;
        let Some(last) = page.last() else { break Session::Complete };
        from = last.seq + 1;
        let mut over = None;
        for stored in &page {
            if asked.until.is_some_and(|until| stored.seq > until) {
                over = Some(Session::Complete);
                break;
            }
            let played = match gesta_store::read_entry(trajectory, stored) {
                Ok(entry) => player.play(&entry).await?,
                Err(error) => Err(Session::Failed { seq: stored.seq, why: error.to_string() }),
            };
            if let Err(session) = played {
                over = Some(session);
                break;
            }
        }
        progress(player.entries);
        if let Some(over) = over {
            break over;
        }
    };
    player.report(session)
}

/// A trajectory on its way through a replay.
struct Player<'a> {
    library: &'a mut Library,
    asked: &'a Asked,
    state: State,
    facts: Facts,
    desk: Option<Arc<Desk>>,
    /// The same desk under what is asked about.
    other: Option<Arc<Desk>>,
    blobs: Blobs,
    sealed: Sealed,
    lists: Lists,
    committed: u64,
    erased: bool,
    entries: u64,
    derived: BTreeMap<Kind, u64>,
    given: BTreeMap<Kind, u64>,
    run_hash: Option<Digest>,
    otherwise: Vec<Otherwise>,
    decisions: u64,
    undecided: u64,
    misfit: Option<String>,
}

impl<'a> Player<'a> {
    /// Before the first entry; a branch begins on top of its source.
    async fn begin(
        library: &'a mut Library,
        trajectory: TrajectoryId,
        asked: &'a Asked,
    ) -> Result<Self, RunError> {
        let first = library.store.entries(trajectory, 0, 1).await?;
        let first = first.first().ok_or(StoreError::NoTrajectory(trajectory))?;
        let first = gesta_store::read_entry(trajectory, first)?;
        let (state, facts) = match &first.payload().body {
            Body::Branch(branch) => source(&library.store, trajectory, branch).await?,
            _ => (State::new(trajectory), Facts::default()),
        };
        Ok(Self {
            library,
            asked,
            state,
            facts,
            desk: None,
            other: None,
            blobs: Blobs::default(),
            sealed: Sealed::default(),
            lists: Lists::default(),
            committed: 0,
            erased: false,
            entries: 0,
            derived: BTreeMap::new(),
            given: BTreeMap::new(),
            run_hash: None,
            otherwise: Vec::new(),
            decisions: 0,
            undecided: 0,
            misfit: None,
        })
    }

    /// One entry: derived from what was before it, compared, and then folded as it is recorded.
    async fn play(&mut self, entry: &Entry) -> Result<Result<(), Session>, RunError> {
        let (seq, kind) = (entry.seq(), entry.payload().body.kind());
        match self.derive(entry).await? {
            Derived::Same => *self.derived.entry(kind).or_default() += 1,
            Derived::Given => *self.given.entry(kind).or_default() += 1,
            Derived::Other(divergence) => return Ok(Err(Session::Diverged(divergence))),
            Derived::Missing(why) => return Ok(Err(Session::Failed { seq, why })),
        }
        if let Err(illegal) = self.state.apply(entry) {
            return Ok(Err(Session::Failed { seq, why: illegal.to_string() }));
        }
        self.facts.follow(entry);
        self.entries += 1;
        match &entry.payload().body {
            Body::Attempt(attempt) => {
                if let Err(why) = self.sit_down(attempt, entry).await? {
                    return Ok(Err(Session::Failed { seq, why }));
                }
            }
            Body::Erased(_) => self.erased = true,
            Body::Completed(completed) => self.run_hash = Some(completed.run_hash),
            Body::Failed(stopped) | Body::Cancelled(stopped) => {
                self.run_hash = Some(stopped.run_hash);
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    fn report(self, session: Session) -> Result<(Report, State), RunError> {
        let named = |counts: BTreeMap<Kind, u64>| {
            counts.into_iter().map(|(kind, count)| (kind.to_string(), count)).collect()
        };
        let report = Report {
            trajectory: self.state.trajectory(),
            session,
            entries: self.entries,
            derived: named(self.derived),
            given: named(self.given),
            head: self.state.head(),
            at: self.state.at(),
            run_hash: self.run_hash,
            replay_hash: self.state.run_hash()?,
            world: self.state.world().digest(),
            otherwise: self.otherwise,
            decisions: self.decisions,
            undecided: self.undecided,
            misfit: self.misfit,
            committed: self.committed,
            erased: self.erased,
        };
        Ok((report, self.state))
    }
}

async fn source(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    branch: &Branch,
) -> Result<(State, Facts), RunError> {
    let (source, facts) = gesta_store::as_of(store, branch.source, branch.source_commit).await?;
    if source.head().map(|head| head.id) != Some(branch.source_commit) {
        let (source_trajectory, commit) = (branch.source, branch.source_commit);
        return Err(ChainError::NoSource { trajectory, source_trajectory, commit }.into());
    }
    Ok((source.branching(trajectory), facts))
}
