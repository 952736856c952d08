//! A trajectory in hand: its folded state and the store that holds it. Every append goes through
//! the state machine first, and every entry that is read goes through it again.

use std::collections::VecDeque;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::{Author, Body, Entry, EntryError, Head, Payload};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use gesta_core::state::{Admission, AdmitError, Illegal, State};
use gesta_core::time::UnixMs;
use tokio::sync::oneshot;

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

/// What a reader keeps of the entries beside the state: it sees each of them once, in order. Cheap to
/// clone, since every append works on a copy.
pub trait Follow: Clone + Send + Sync {
    /// One more entry of the chain.
    fn follow(&mut self, entry: &Entry);
}

impl Follow for () {
    fn follow(&mut self, _: &Entry) {}
}

/// Entries on their way into one append, and what following them yields.
pub struct Draft<F> {
    admission: Admission,
    view: F,
    rehearsal: Option<Rehearsal>,
}

/// Nothing yet, or the first entry that was to be added.
enum Rehearsal {
    Begun,
    Over(Box<Rehearsed>),
}

/// An entry as it would have been added.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsed {
    /// When.
    pub at: UnixMs,
    /// By whom.
    pub by: Author,
    /// What.
    pub body: Body,
}

impl<F: Follow> Draft<F> {
    /// A draft that takes note of the first entry that is to be added and lets none in: whoever replays
    /// sees what would have been appended, from the very code that appends.
    pub fn rehearsal(state: &State, view: F) -> Self {
        Self { admission: state.admit(), view, rehearsal: Some(Rehearsal::Begun) }
    }

    /// A draft that lets in what is legal, and is never appended: slower than a rehearsal, and true to
    /// what follows when something is refused.
    pub fn trial(state: &State, view: F) -> Self {
        Self { admission: state.admit(), view, rehearsal: None }
    }

    /// The first entry that was to be added, if there was one.
    pub fn first(self) -> Option<Rehearsed> {
        match self.rehearsal {
            Some(Rehearsal::Over(rehearsed)) => Some(*rehearsed),
            Some(Rehearsal::Begun) => None,
            None => self.admission.entries().first().map(|entry| {
                let Payload { at, by, body, .. } = entry.payload().clone();
                Rehearsed { at, by, body }
            }),
        }
    }

    /// Adds an entry. A refused one changes nothing, and others may still be added.
    pub fn push(&mut self, at: UnixMs, by: Author, body: Body) -> Result<&Entry, AdmitError> {
        if let Some(rehearsal) = &mut self.rehearsal {
            if matches!(rehearsal, Rehearsal::Begun) {
                let at = at.max(self.admission.state().at());
                *rehearsal = Rehearsal::Over(Box::new(Rehearsed { at, by, body }));
            }
            return Err(AdmitError::Rehearsed);
        }
        let entry = self.admission.push(at, by, body)?;
        self.view.follow(entry);
        Ok(entry)
    }

    /// Makes the append depend on the head of a registry: see [`Admission::under`].
    pub fn under(&mut self, registry: TrajectoryId, head: Head) {
        self.admission.under(registry, head);
    }

    /// Names reports in the inbox that were read: see [`Admission::having_read`].
    pub fn having_read(&mut self, reports: impl IntoIterator<Item = Digest>) {
        self.admission.having_read(reports);
    }

    /// Tells when the trajectory comes to a threshold of its own budget: see [`Admission::warn_at`].
    pub fn warn_at(&mut self, thresholds: &[u8]) {
        self.admission.warn_at(thresholds);
    }

    /// The state with everything added so far.
    pub fn state(&self) -> &State {
        self.admission.state()
    }

    /// The view with everything added so far.
    pub fn view(&self) -> &F {
        &self.view
    }
}

/// What one append did.
pub struct Written<T> {
    /// The entries that are now durable; none when nothing was added.
    pub entries: Vec<Entry>,
    /// What was built along with them.
    pub made: T,
}

/// A trajectory in hand.
pub struct Chain<F = ()> {
    store: Arc<dyn Store>,
    state: State,
    view: F,
}

impl Chain {
    /// A trajectory that has not begun.
    pub fn unbegun(store: Arc<dyn Store>, trajectory: TrajectoryId) -> Self {
        Self::begin(store, trajectory)
    }

    /// Reads a trajectory and folds it, a branch on top of its source.
    pub async fn load(store: Arc<dyn Store>, trajectory: TrajectoryId) -> Result<Self, ChainError> {
        Self::follow(store, trajectory).await
    }

    /// Appends what `build` adds. When someone else was first, their entries are folded and `build`
    /// runs again on the new state, so it must decide from the state it is given.
    pub async fn append(
        &mut self,
        mut build: impl FnMut(&mut Admission) -> Result<(), ChainError>,
    ) -> Result<Head, ChainError> {
        let written = self.write(|draft| build(&mut draft.admission)).await?;
        written.entries.last().map(Entry::head).ok_or(ChainError::Empty)
    }
}

impl<F: Follow + Default> Chain<F> {
    /// A trajectory that has not begun, with a view of it.
    pub fn begin(store: Arc<dyn Store>, trajectory: TrajectoryId) -> Self {
        Self { store, state: State::new(trajectory), view: F::default() }
    }

    /// Reads a trajectory and folds it, a branch on top of its source, with a view of it all.
    pub async fn follow(
        store: Arc<dyn Store>,
        trajectory: TrajectoryId,
    ) -> Result<Self, ChainError> {
        let (state, view) = fold(&store, trajectory, None).await?;
        if state.head().is_none() {
            return Err(StoreError::NoTrajectory(trajectory).into());
        }
        Ok(Self { store, state, view })
    }
}

impl<F: Follow + Default> Chain<F> {
    /// A trajectory that is to begin as a branch from this commit of another, with a view of what it takes
    /// over.
    pub async fn branching(
        store: Arc<dyn Store>,
        trajectory: TrajectoryId,
        (source, commit): (TrajectoryId, EntryId),
    ) -> Result<Self, ChainError> {
        let (state, view) = branching(&store, trajectory, (source, commit)).await?;
        Ok(Self { store, state, view })
    }
}

impl<F: Follow> Chain<F> {
    /// The state as of the newest entry that was read or appended.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The view as of the newest entry that was read or appended.
    pub fn view(&self) -> &F {
        &self.view
    }

    /// Folds what others have appended since.
    pub async fn refresh(&mut self) -> Result<(), ChainError> {
        let so_far = (self.state.clone(), self.view.clone());
        (self.state, self.view) = fold_on(&self.store, so_far, None).await?;
        Ok(())
    }

    /// Appends what `build` adds. When someone else was first, their entries are folded and `build` runs
    /// again on the new state.
    pub async fn write<T, E: From<ChainError>>(
        &mut self,
        mut build: impl FnMut(&mut Draft<F>) -> Result<T, E>,
    ) -> Result<Written<T>, E> {
        for _ in 0..REBUILDS {
            let (admission, view) = (self.state.admit(), self.view.clone());
            let mut draft = Draft { admission, view, rehearsal: None };
            let made = build(&mut draft)?;
            let Draft { admission, view, .. } = draft;
            let Some((admitted, next)) = admission.finish() else {
                return Ok(Written { entries: Vec::new(), made });
            };
            match settle(&*self.store, &admitted).await {
                Ok(_) => {
                    self.state = next;
                    self.view = view;
                    return Ok(Written { entries: admitted.entries().to_vec(), made });
                }
                Err(AppendError::Conflict { .. }) => self.refresh().await?,
                Err(error) => return Err(ChainError::from(error).into()),
            }
        }
        Err(ChainError::Contended(self.state.trajectory()).into())
    }
}

/// Appends until the outcome is known: an unknown append is settled by sending the identical bytes
/// again, since absence on a re-read would prove nothing.
async fn settle(store: &dyn Store, admitted: &Admitted) -> Result<Head, AppendError> {
    let mut outcome = store.append(admitted.clone()).await;
    for _ in 0..RESENDS {
        let Err(AppendError::Unknown(why)) = &outcome else { return outcome };
        tracing::warn!(trajectory = %admitted.trajectory(), %why, "append of unknown fate, sending it again");
        outcome = match store.append(admitted.clone()).await {
            // This one was not written, which says nothing of those before it.
            Err(AppendError::Refused(why)) => Err(AppendError::Unknown(why)),
            told => told,
        };
    }
    outcome
}

/// What a trajectory was after one of its entries, and a view of it.
pub async fn as_of<F: Follow + Default>(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    entry: EntryId,
) -> Result<(State, F), ChainError> {
    fold(store, trajectory, Some(entry)).await
}

/// A stored entry, read and checked.
pub fn read_entry(trajectory: TrajectoryId, stored: &StoredEntry) -> Result<Entry, ChainError> {
    read(trajectory, stored)
}

/// Boxed, since the fold of a branch begins with that of its source.
type Folding<'a, F> = Pin<Box<dyn Future<Output = Result<(State, F), ChainError>> + Send + 'a>>;

/// Folds a trajectory, up to and including `until` when given.
fn fold<'a, F: Follow + Default + 'a>(
    store: &'a Arc<dyn Store>,
    trajectory: TrajectoryId,
    until: Option<EntryId>,
) -> Folding<'a, F> {
    Box::pin(async move {
        let first = store.entries(trajectory, 0, 1).await?;
        let mut state = State::new(trajectory);
        let mut view = F::default();
        if let Some(stored) = first.first() {
            let entry = read(trajectory, stored)?;
            if let Body::Branch(branch) = &entry.payload().body {
                let from = (branch.source, branch.source_commit);
                (state, view) = branching(store, trajectory, from).await?;
            }
        }
        fold_on(store, (state, view), until).await
    })
}

/// Folds the source of a branch up to the commit that the branch begins from.
async fn branching<F: Follow + Default>(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    (source_trajectory, commit): (TrajectoryId, EntryId),
) -> Result<(State, F), ChainError> {
    let (source, view) = fold::<F>(store, source_trajectory, Some(commit)).await?;
    if source.head().map(|head| head.id) != Some(commit) {
        return Err(ChainError::NoSource { trajectory, source_trajectory, commit });
    }
    Ok((source.branching(trajectory), view))
}

/// Folds what follows `state`. While a page is folded, the next ones are checked on threads of their own
/// and the one after those is on its way: a long history is read as fast as the machine allows. What is folded
/// goes back to the thread that read it, which frees it best.
async fn fold_on<F: Follow>(
    store: &Arc<dyn Store>,
    (mut state, mut view): (State, F),
    until: Option<EntryId>,
) -> Result<(State, F), ChainError> {
    let trajectory = state.trajectory();
    let mut from = Some(state.head().map_or(0, |head| head.seq + 1));
    let mut checking = VecDeque::new();
    let mut checkers = Checkers::default();
    let ahead = std::thread::available_parallelism().map_or(1, NonZero::get);
    loop {
        let mut coming = from.map(|from| store.entries(trajectory, from, PAGE));
        // Asked for before the fold, and waited for after it.
        let begun = match &mut coming {
            Some(coming) => std::future::poll_fn(|cx| Poll::Ready(coming.as_mut().poll(cx))).await,
            None => Poll::Pending,
        };
        if (coming.is_none() || checking.len() > ahead)
            && let Some(checked) = checking.pop_front()
        {
            let (entries, checker) = Checking::done(checked).await?;
            if fold_page(&mut state, &mut view, &entries, until)? {
                return Ok((state, view));
            }
            checkers.take_back(checker, entries);
        }
        let page = match (begun, coming) {
            (Poll::Ready(page), _) => page?,
            (Poll::Pending, Some(coming)) => coming.await?,
            (Poll::Pending, None) if checking.is_empty() => return Ok((state, view)),
            (Poll::Pending, None) => continue,
        };
        from = page.last().filter(|_| page.len() == PAGE).map(|last| last.seq + 1);
        checking.push_back(Checking::begin(trajectory, page, &mut checkers, ahead));
    }
}

/// Threads that check pages in turn, as soon as there are enough entries for it. They end with the fold.
#[derive(Default)]
struct Checkers {
    threads: Vec<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    next: usize,
}

impl Checkers {
    /// Has one of so many threads do something, and says which. None when it cannot.
    fn begin(&mut self, most: usize, task: Box<dyn FnOnce() + Send>) -> Option<usize> {
        if self.threads.len() < most {
            let (give, given) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
            std::thread::spawn(move || given.into_iter().for_each(|task| task()));
            self.threads.push(give);
        }
        let checker = self.next.checked_rem(self.threads.len())?;
        self.next = checker + 1;
        self.threads.get(checker)?.send(task).ok().map(|()| checker)
    }

    /// Has a thread free what it has read.
    fn take_back(&self, checker: Option<usize>, entries: Vec<Entry>) {
        if let Some(checker) = checker.and_then(|checker| self.threads.get(checker)) {
            // A thread that has ended drops them here.
            let _ = checker.send(Box::new(move || drop(entries)));
        }
    }
}

/// Stored entries that are being read.
enum Checking {
    /// A few: read when they are asked for.
    Here(TrajectoryId, Vec<StoredEntry>),
    /// Many: on this thread.
    There(oneshot::Receiver<Result<Vec<Entry>, ChainError>>, Option<usize>),
}

impl Checking {
    fn begin(
        trajectory: TrajectoryId,
        page: Vec<StoredEntry>,
        checkers: &mut Checkers,
        most: usize,
    ) -> Self {
        if page.len() < PAGE {
            return Self::Here(trajectory, page);
        }
        let (tell, told) = oneshot::channel();
        let check = move || {
            // Whoever asked may have found what it looked for.
            let _ = tell.send(read_all(trajectory, &page));
        };
        Self::There(told, checkers.begin(most, Box::new(check)))
    }

    /// The entries, and the thread that has read them.
    async fn done(self) -> Result<(Vec<Entry>, Option<usize>), ChainError> {
        match self {
            Self::Here(trajectory, page) => Ok((read_all(trajectory, &page)?, None)),
            Self::There(told, checker) => {
                Ok((told.await.unwrap_or(Err(StoreError::Closed.into()))?, checker))
            }
        }
    }
}

fn read_all(trajectory: TrajectoryId, page: &[StoredEntry]) -> Result<Vec<Entry>, ChainError> {
    page.iter().map(|stored| read(trajectory, stored)).collect()
}

/// Folds checked entries. True when the last one that is wanted was among them.
fn fold_page<F: Follow>(
    state: &mut State,
    view: &mut F,
    entries: &[Entry],
    until: Option<EntryId>,
) -> Result<bool, ChainError> {
    for entry in entries {
        let trajectory = state.trajectory();
        state.apply(entry).map_err(|why| ChainError::Illegal { trajectory, why: Box::new(why) })?;
        view.follow(entry);
        if until == Some(entry.id()) {
            return Ok(true);
        }
    }
    Ok(false)
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
