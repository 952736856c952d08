//! A trajectory in hand: its folded state and the store that holds it. Every append goes through
//! the state machine first, and every entry that is read goes through it again.

use std::sync::Arc;

use gesta_core::digest::EntryId;
use gesta_core::entry::{Body, Entry, EntryError, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use gesta_core::state::{Admission, AdmitError, Illegal, State};

use crate::error::{AppendError, StoreError};
use crate::port::{Store, StoredEntry};

/// How many entries are read at a time.
const PAGE: usize = 512;
/// How often an append of unknown fate is sent again before the caller is told.
const RESENDS: usize = 8;
/// How often an append is built again after losing to another.
const REBUILDS: usize = 64;

/// Why a trajectory could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The append failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// What was to be appended is not legal.
    #[error(transparent)]
    Admit(Box<AdmitError>),
    /// A stored entry is not one.
    #[error("entry {seq} of {trajectory} is damaged: {why}; run `gesta verify` for a full report")]
    Damaged {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The entry's number.
        seq: u64,
        /// What is wrong.
        why: Box<EntryError>,
    },
    /// A stored entry is kept under another id than its bytes have.
    #[error(
        "entry {seq} of {trajectory} was altered: it is stored under another id; run `gesta verify`"
    )]
    Altered {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The entry's number.
        seq: u64,
    },
    /// A stored entry may not follow.
    #[error(
        "the stored chain of {trajectory} is not legal: {why}; run `gesta verify` for a full report"
    )]
    Illegal {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// What is wrong.
        why: Box<Illegal>,
    },
    /// A branch names a commit that its source does not have.
    #[error("{trajectory} branches from entry {commit} of {source_trajectory}, which is not there")]
    NoSource {
        /// The branch.
        trajectory: TrajectoryId,
        /// Its source.
        source_trajectory: TrajectoryId,
        /// The commit that is missing.
        commit: EntryId,
    },
    /// Nothing was to be appended.
    #[error("nothing to append")]
    Empty,
    /// Others appended again and again.
    #[error("others keep appending to {0}; try again")]
    Contended(TrajectoryId),
}

impl From<AdmitError> for ChainError {
    fn from(error: AdmitError) -> Self {
        Self::Admit(Box::new(error))
    }
}

/// A trajectory in hand.
pub struct Chain {
    store: Arc<dyn Store>,
    state: State,
}

impl Chain {
    /// A trajectory that has not begun.
    pub fn unbegun(store: Arc<dyn Store>, trajectory: TrajectoryId) -> Self {
        Self { store, state: State::new(trajectory) }
    }

    /// Reads a trajectory and folds it, a branch on top of its source.
    pub async fn load(store: Arc<dyn Store>, trajectory: TrajectoryId) -> Result<Self, ChainError> {
        let state = fold(&store, trajectory, None).await?;
        if state.head().is_none() {
            return Err(StoreError::NoTrajectory(trajectory).into());
        }
        Ok(Self { store, state })
    }

    /// The state as of the newest entry that was read or appended.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Folds what others have appended since.
    pub async fn refresh(&mut self) -> Result<(), ChainError> {
        self.state = fold_on(&self.store, self.state.clone(), None).await?;
        Ok(())
    }

    /// Appends what `build` adds. When someone else was first, their entries are folded and `build`
    /// runs again on the new state, so it must decide from the state it is given.
    pub async fn append(
        &mut self,
        mut build: impl FnMut(&mut Admission) -> Result<(), ChainError>,
    ) -> Result<Head, ChainError> {
        for _ in 0..REBUILDS {
            let mut admission = self.state.admit();
            build(&mut admission)?;
            let (admitted, next) = admission.finish().ok_or(ChainError::Empty)?;
            match settle(&*self.store, admitted).await {
                Ok(head) => {
                    self.state = next;
                    return Ok(head);
                }
                Err(AppendError::Conflict { .. }) => self.refresh().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(ChainError::Contended(self.state.trajectory()))
    }
}

/// Appends until the outcome is known: an unknown append is settled by sending the identical bytes
/// again, since absence on a re-read would prove nothing.
async fn settle(store: &dyn Store, admitted: Admitted) -> Result<Head, AppendError> {
    let mut outcome = store.append(admitted.clone()).await;
    for _ in 0..RESENDS {
        match outcome {
            Err(AppendError::Unknown(why)) => {
                tracing::warn!(trajectory = %admitted.trajectory(), %why, "append of unknown fate, sending it again");
                outcome = store.append(admitted.clone()).await;
            }
            known => return known,
        }
    }
    outcome
}

/// Folds a trajectory, up to and including `until` when given.
fn fold<'a>(
    store: &'a Arc<dyn Store>,
    trajectory: TrajectoryId,
    until: Option<EntryId>,
) -> std::pin::Pin<Box<dyn Future<Output = Result<State, ChainError>> + Send + 'a>> {
    Box::pin(async move {
        let first = store.entries(trajectory, 0, 1).await?;
        let mut state = State::new(trajectory);
        if let Some(stored) = first.first() {
            let entry = read(trajectory, stored)?;
            if let Body::Branch(branch) = &entry.payload().body {
                let source = fold(store, branch.source, Some(branch.source_commit)).await?;
                if source.head().map(|head| head.id) != Some(branch.source_commit) {
                    return Err(ChainError::NoSource {
                        trajectory,
                        source_trajectory: branch.source,
                        commit: branch.source_commit,
                    });
                }
                state = source.branching(trajectory);
            }
        }
        fold_on(store, state, until).await
    })
}

/// Folds what follows `state`.
async fn fold_on(
    store: &Arc<dyn Store>,
    mut state: State,
    until: Option<EntryId>,
) -> Result<State, ChainError> {
    let trajectory = state.trajectory();
    loop {
        let from = state.head().map_or(0, |head| head.seq + 1);
        let page = store.entries(trajectory, from, PAGE).await?;
        for stored in &page {
            let entry = read(trajectory, stored)?;
            state
                .apply(&entry)
                .map_err(|why| ChainError::Illegal { trajectory, why: Box::new(why) })?;
            if until == Some(entry.id()) {
                return Ok(state);
            }
        }
        if page.len() < PAGE {
            return Ok(state);
        }
    }
}

fn read(trajectory: TrajectoryId, stored: &StoredEntry) -> Result<Entry, ChainError> {
    let seq = stored.seq;
    let entry = Entry::from_bytes(&stored.bytes).map_err(|why| ChainError::Damaged {
        trajectory,
        seq,
        why: Box::new(why),
    })?;
    if entry.id() != stored.id {
        return Err(ChainError::Altered { trajectory, seq });
    }
    Ok(entry)
}
