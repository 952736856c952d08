//! The anchor: a file outside the store in which workers keep heads that the store has acknowledged. A
//! store that is behind it has forgotten something: an older copy was put in its place, and whoever drove
//! it would do again what was done since.
//!
//! Heads are noted in memory as they are acknowledged and written with the heartbeat and at the end, so
//! what was acknowledged since a dead worker's last heartbeat may be missing. Only the newest are kept: a
//! store that was set back as a whole lacks the newest of all. Whoever seals keeps the newest checkpoint's
//! size and root too: a log that went on from less would be a split view of what was published.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::log::checkpoint::{Checkpoint, TreeHead};
use gesta_core::log::note::Note;
use gesta_store::{Epoch, Store, Which};

use crate::error::RunError;

/// How many heads are kept.
const KEPT: usize = 256;
/// How long to wait for another worker that writes the file. One that was stopped in the middle of it
/// must not keep others from their heartbeats: what is not written now is written with a later one.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often to ask meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// The first line of the file.
const TITLE: &str = "gesta anchor 1";
/// How the line about the log begins. Files from before there was one have none.
const LOG: &str = "log ";

/// Why a store is not to be worked on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A head that was acknowledged is not there.
    #[error(
        "the store is behind its anchor `{anchor}`: {trajectory} was at entry {} ({}), and the store has {}; an older copy was put in its place, and working on it would repeat what was done since. `gesta restore --in-place` opens a new epoch in which nothing goes on until it is released",
        known.seq, known.id, found.map_or_else(|| "nothing of it".to_owned(), |head| format!("entry {} ({})", head.seq, head.id))
    )]
    Behind {
        /// The anchor.
        anchor: String,
        /// The trajectory.
        trajectory: TrajectoryId,
        /// What was acknowledged.
        known: Head,
        /// What is there.
        found: Option<Head>,
    },
    /// A checkpoint that was signed is not there.
    #[error(
        "the store is behind its anchor `{anchor}`: its log had a checkpoint with {size} leaves, and the store has {}; an older copy was put in its place, and sealing it would show another log than was published. `gesta restore --in-place` opens a new epoch, in which the log goes on under another name",
        found.map_or_else(|| "none".to_owned(), |found| match found >= *size { true => "another log".to_owned(), false => format!("{found} leaves") })
    )]
    LogBehind {
        /// The anchor.
        anchor: String,
        /// How many leaves it had.
        size: u64,
        /// How many the newest checkpoint of the store has.
        found: Option<u64>,
    },
    /// The anchor knows of a later epoch.
    #[error(
        "the store is in epoch {found}, and its anchor `{anchor}` in epoch {known}: it is a copy from before a restore, or a restore was cut short. `gesta restore` puts a backup in its place, `gesta restore --in-place` goes on with this copy"
    )]
    OlderEpoch {
        /// The anchor.
        anchor: String,
        /// The anchor's.
        known: u64,
        /// The store's.
        found: u64,
    },
    /// The anchor is of another store.
    #[error(
        "the anchor `{anchor}` belongs to another store: what it remembers is not in this one. If this store is meant to be here, `gesta restore --in-place` makes it the anchor's; nothing that is open goes on until it is released"
    )]
    OtherStore {
        /// The anchor.
        anchor: String,
    },
    /// A backup that was never restored.
    #[error(
        "this store is a backup that was copied here: what was started after it was made is not in it. `gesta restore --in-place` opens a new epoch in which nothing goes on until it is released"
    )]
    Copy,
    /// Somebody opened an epoch while a worker was at work.
    #[error("the store was restored while this worker was at work: it is in epoch {found} by now")]
    Reopened {
        /// The store's.
        found: u64,
    },
}

/// How many leaves a checkpoint has, and their root.
pub type LogHead = (u64, Digest);

/// What an anchor file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchored {
    /// The store.
    pub store: Digest,
    /// Its epoch.
    pub epoch: u64,
    /// The newest checkpoint of its log: how many leaves, and their root.
    pub log: Option<LogHead>,
    /// Heads, the newest last.
    pub heads: Vec<(TrajectoryId, Head)>,
}

impl Anchored {
    /// Reads a file. None when there is none; one that cannot be read is an error, since nobody knows
    /// what it would have said.
    pub fn read(path: &Path) -> Result<Option<Self>, RunError> {
        match fs::read_to_string(path) {
            Ok(text) => match parse(&text) {
                Some(anchored) => Ok(Some(anchored)),
                None => Err(file_error(
                    path,
                    &"it is no anchor, or damaged; if it is lost for good, move it away and run `gesta restore --in-place`",
                )),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error(path, &error)),
        }
    }

    /// Writes a file. On return it survives the death of the machine.
    pub fn write(&self, path: &Path) -> Result<(), RunError> {
        use std::fmt::Write as _;
        let mut text = format!("{TITLE}\nstore {}\nepoch {}\n", self.store, self.epoch);
        if let Some((size, root)) = self.log {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{LOG}{size} {root}");
        }
        for (trajectory, head) in &self.heads {
            // Neither does this.
            let _ = writeln!(text, "{trajectory} {} {}", head.seq, head.id);
        }
        let partial = path.with_extension("anchor.partial");
        let written = (|| {
            let mut file = File::create(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, path)?;
            sync_directory(path)
        })();
        written.map_err(|error| file_error(path, &error))
    }

    /// Compares a store with a file, and changes neither. Where there is no file, or one of an earlier
    /// epoch, nothing is known.
    pub async fn compare(path: &Path, store: &dyn Store) -> Result<(), RunError> {
        let epoch = store.epochs().epoch().await?;
        Self::of(path, epoch, store).await.map(|_| ())
    }

    /// Whether a log may be sealed. Makes the file if there is none.
    pub async fn weigh(path: PathBuf, store: &dyn Store) -> Result<(), RunError> {
        Anchor::weigh(path, store).await.map(|_| ())
    }

    /// Takes note of a checkpoint that was signed by somebody who is no worker.
    pub async fn note_checkpoint(
        path: PathBuf,
        store: &dyn Store,
        checkpoint: &Checkpoint,
    ) -> Result<(), RunError> {
        let anchor = Anchor { path, epoch: fit(store).await?, state: Mutex::default() };
        anchor.note_checkpoint(checkpoint);
        anchor.keep()
    }

    /// What a file remembers of a store in this epoch, all of it compared with what is there.
    async fn of(path: &Path, epoch: Epoch, store: &dyn Store) -> Result<Option<Self>, RunError> {
        let anchor = path.display().to_string();
        // Read without the lock: the file is replaced whole.
        let kept = match Self::read(path)? {
            Some(kept) if kept.store != epoch.store => {
                return Err(Unfit::OtherStore { anchor }.into());
            }
            Some(kept) if kept.epoch > epoch.number => {
                let (known, found) = (kept.epoch, epoch.number);
                return Err(Unfit::OlderEpoch { anchor, known, found }.into());
            }
            Some(kept) if kept.epoch == epoch.number => kept,
            _ => return Ok(None),
        };
        if let Some(log) = kept.log {
            compare_log(store, path, log).await?;
        }
        for (trajectory, head) in &kept.heads {
            compare(store, path, *trajectory, *head).await?;
        }
        Ok(Some(kept))
    }

    /// Takes note of heads: the newest go to the end, the oldest fall out.
    fn note(&mut self, log: Option<LogHead>, heads: &[(TrajectoryId, Head)]) {
        // Another worker may have written a newer one meanwhile.
        self.log = self.log.max(log);
        for (trajectory, head) in heads {
            let older =
                |(id, kept): &(TrajectoryId, Head)| id == trajectory && kept.seq <= head.seq;
            self.heads.retain(|kept| !older(kept));
            if !self.heads.iter().any(|(id, _)| id == trajectory) {
                self.heads.push((*trajectory, *head));
            }
        }
        let surplus = self.heads.len().saturating_sub(KEPT);
        self.heads.drain(..surplus);
    }
}

fn parse(text: &str) -> Option<Anchored> {
    let mut lines = text.lines();
    (lines.next()? == TITLE).then_some(())?;
    let store = Digest::from_hex(lines.next()?.strip_prefix("store ")?)?;
    let epoch = lines.next()?.strip_prefix("epoch ")?.parse().ok()?;
    let head = |line: &str| {
        let mut words = line.split(' ');
        let (trajectory, seq, id) = (words.next()?, words.next()?, words.next()?);
        words.next().is_none().then_some(())?;
        let id = EntryId::new(Digest::from_hex(id)?);
        Some((trajectory.parse().ok()?, Head { id, seq: seq.parse().ok()? }))
    };
    let mut lines = lines.peekable();
    let log = match lines.next_if(|line| line.starts_with(LOG)) {
        Some(line) => {
            let (size, root) = line.strip_prefix(LOG)?.split_once(' ')?;
            Some((size.parse().ok()?, Digest::from_hex(root)?))
        }
        None => None,
    };
    let heads = lines.map(head).collect::<Option<_>>()?;
    text.ends_with('\n').then_some(Anchored { store, epoch, log, heads })
}

/// A worker's hold on the anchor.
#[derive(Debug)]
pub(crate) struct Anchor {
    path: PathBuf,
    epoch: Epoch,
    state: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// What the file held at the start, and what was noted since, the newest last.
    known: Vec<(TrajectoryId, Head)>,
    /// What the file does not hold.
    unwritten: Vec<(TrajectoryId, Head)>,
    /// The newest checkpoint, if the file does not hold it.
    log: Option<LogHead>,
}

impl Anchor {
    /// Compares the store with the file, and makes the file if there is none. A later epoch than the
    /// file's was opened by somebody who restored the store: what the file remembers is of the past.
    async fn weigh(path: PathBuf, store: &dyn Store) -> Result<Self, RunError> {
        let epoch = fit(store).await?;
        let kept = Anchored::of(&path, epoch, store).await?;
        let fresh = kept.is_none();
        let known = kept.map(|kept| kept.heads).unwrap_or_default();
        let state = Mutex::new(Noted { known, ..Noted::default() });
        let weighed = Self { path, epoch, state };
        if fresh {
            weighed.write(None, &[])?;
        }
        Ok(weighed)
    }

    fn state(&self) -> MutexGuard<'_, Noted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has acknowledged a head.
    pub(crate) fn note(&self, trajectory: TrajectoryId, head: Head) {
        let mut state = self.state();
        if state.known.contains(&(trajectory, head)) {
            return;
        }
        state.unwritten.retain(|(id, _)| *id != trajectory);
        state.unwritten.push((trajectory, head));
        let surplus = state.unwritten.len().saturating_sub(KEPT);
        state.unwritten.drain(..surplus);
    }

    /// A checkpoint of the log was signed, and is durable.
    pub(crate) fn note_checkpoint(&self, checkpoint: &Checkpoint) {
        let mut state = self.state();
        state.log = state.log.max(Some((checkpoint.size, checkpoint.root)));
    }

    /// Whether a chain that was read reaches as far as it is known to.
    pub(crate) fn reaches(
        &self,
        trajectory: TrajectoryId,
        found: Option<Head>,
    ) -> Result<(), RunError> {
        let state = self.state();
        let mut newest =
            state.unwritten.iter().chain(&state.known).filter(|(id, _)| *id == trajectory);
        let Some((_, known)) = newest.next().copied() else { return Ok(()) };
        match found {
            Some(found) if found.seq > known.seq || found == known => Ok(()),
            found => {
                let anchor = self.path.display().to_string();
                Err(Unfit::Behind { anchor, trajectory, known, found }.into())
            }
        }
    }

    /// Whether the store is still the one that it was, as far as one look at its newest head tells.
    pub(crate) async fn still_fits(&self, store: &dyn Store) -> Result<(), RunError> {
        let found = fit(store).await?;
        if (found.store, found.number) != (self.epoch.store, self.epoch.number) {
            return Err(Unfit::Reopened { found: found.number }.into());
        }
        let newest = {
            let state = self.state();
            state.unwritten.last().or(state.known.last()).copied()
        };
        match newest {
            Some((trajectory, head)) => compare(store, &self.path, trajectory, head).await,
            None => Ok(()),
        }
    }

    /// Writes what was noted, together with what other workers of this machine have written.
    pub(crate) fn keep(&self) -> Result<(), RunError> {
        let (log, unwritten) = {
            let state = self.state();
            (state.log, state.unwritten.clone())
        };
        if unwritten.is_empty() && log.is_none() {
            return Ok(());
        }
        if let Some(kept) = self.write(log, &unwritten)? {
            let mut state = self.state();
            state.log = state.log.filter(|newest| Some(*newest) > kept.log);
            state.unwritten.retain(|head| !unwritten.contains(head));
            state.known = kept.heads;
        }
        Ok(())
    }

    /// Adds heads to the file, and makes it if there is none or only one of an earlier epoch. None when
    /// another worker is at it for too long.
    fn write(
        &self,
        log: Option<LogHead>,
        heads: &[(TrajectoryId, Head)],
    ) -> Result<Option<Anchored>, RunError> {
        let Some(_locked) = lock(&self.path)? else { return Ok(None) };
        let (store, epoch) = (self.epoch.store, self.epoch.number);
        let mut kept = match Anchored::read(&self.path)? {
            Some(kept) if kept.store != store || kept.epoch > epoch => {
                return Err(Unfit::Reopened { found: kept.epoch }.into());
            }
            Some(kept) if kept.epoch == epoch => kept,
            _ => Anchored { store, epoch, log: None, heads: Vec::new() },
        };
        kept.note(log, heads);
        kept.write(&self.path)?;
        Ok(Some(kept))
    }
}

/// The epoch of a store that may be worked on, as far as it and the anchor say, if there is one.
pub(crate) async fn weigh(
    path: Option<PathBuf>,
    store: &dyn Store,
) -> Result<(u64, Option<Anchor>), RunError> {
    match path {
        Some(path) => {
            let anchor = Anchor::weigh(path, store).await?;
            Ok((anchor.epoch.number, Some(anchor)))
        }
        None => Ok((fit(store).await?.number, None)),
    }
}

/// Whether anything may be driven in a store at all, and in which epoch.
async fn fit(store: &dyn Store) -> Result<Epoch, RunError> {
    let epoch = store.epochs().epoch().await?;
    match epoch.copied_at {
        Some(_) => Err(Unfit::Copy.into()),
        None => Ok(epoch),
    }
}

/// Whether an acknowledged head is still there.
async fn compare(
    store: &dyn Store,
    path: &Path,
    trajectory: TrajectoryId,
    known: Head,
) -> Result<(), RunError> {
    let row = store.trajectory(trajectory).await?;
    let found = row.as_ref().map(|row| row.head);
    if found == Some(known) {
        return Ok(());
    }
    // What was archived had this head and went on; a bundle that is away stands in nobody's way.
    let archived = row.is_some_and(|row| row.archived.is_some() && row.head.seq > known.seq);
    if archived {
        return Ok(());
    }
    let there = store.entries(trajectory, known.seq, 1).await?;
    if there.first().is_some_and(|entry| entry.id == known.id) {
        return Ok(());
    }
    let anchor = path.display().to_string();
    Err(Unfit::Behind { anchor, trajectory, known, found }.into())
}

/// Whether a checkpoint that was signed is still there.
async fn compare_log(
    store: &dyn Store,
    path: &Path,
    (size, root): LogHead,
) -> Result<(), RunError> {
    let there = store.log().checkpoint(Which::Size(size)).await?;
    let there = there.and_then(|row| Note::parse(row.note.as_bytes()).ok());
    let there = there.and_then(|note| TreeHead::parse(&note.text).ok());
    if there.is_some_and(|head| (head.size, head.root) == (size, root)) {
        return Ok(());
    }
    let found = store.log().checkpoint(Which::Newest).await?.map(|row| row.size);
    Err(Unfit::LogBehind { anchor: path.display().to_string(), size, found }.into())
}

/// Held while the file is read and written again: several workers share it. None when it cannot be had.
fn lock(path: &Path) -> Result<Option<File>, RunError> {
    let beside = path.with_extension("anchor.lock");
    let asked = Instant::now();
    let locked = OpenOptions::new().create(true).truncate(false).write(true).open(&beside);
    let locked = locked.and_then(|file| {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if asked.elapsed() < PATIENCE => {
                    std::thread::sleep(ASK_EVERY);
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    });
    if matches!(locked, Ok(None)) {
        let path = beside.display();
        tracing::warn!(%path, "another worker has been writing the anchor for long");
    }
    locked.map_err(|error| file_error(&beside, &error))
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

fn file_error(path: &Path, why: &dyn std::fmt::Display) -> RunError {
    RunError::File { path: path.display().to_string(), why: why.to_string() }
}
