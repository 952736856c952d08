//! Writing. A thread takes whatever jobs are waiting, runs them in one transaction, and answers once
//! COMMIT has succeeded: under load many trajectories share one sync. A job that finds nobody else
//! writing, on a disk that is quick, is run by its caller: waking two threads would take as long as
//! the sync itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::desk::Desk;
use super::fault::{Certainty, Failure};
use super::room;

/// How many jobs may share a transaction. More would make the first wait for the last.
const MAX_BATCH: usize = 256;
/// After so many transactions, and every so many again, the WAL is given room: a short visit to the
/// file is over before that pays.
const BUSY: u32 = 32;
/// A caller does not block for longer than about this: past it, the thread does.
const QUICK: Duration = Duration::from_millis(3);

/// Something to do inside a transaction.
trait Job: Send {
    /// Does it. May be called again after a rollback. An error rolls the transaction back.
    fn run(&mut self, desk: &Desk<'_>) -> rusqlite::Result<()>;

    /// Tells whoever waits how it ended: well, if the transaction is durable.
    fn answer(self: Box<Self>, ended: Result<(), Failure>);
}

struct Work<F, T, E> {
    run: F,
    result: Option<Result<T, E>>,
    answer: oneshot::Sender<(Result<T, E>, F)>,
}

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnMut(&Desk<'_>) -> rusqlite::Result<Result<T, E>> + Send,
    T: Send,
    E: From<Failure> + Send,
{
    fn run(&mut self, desk: &Desk<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.run)(desk)?);
        Ok(())
    }

    fn answer(self: Box<Self>, ended: Result<(), Failure>) {
        let answer = match (ended, self.result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => return, // dropping the sender is an answer: nobody knows
            (Err(failure), _) => Err(failure.into()),
        };
        // What was written goes back with the answer: freeing it would keep the others waiting. Whoever
        // asked may have stopped waiting.
        let _ = self.answer.send((answer, self.run));
    }
}

/// The writing half of the store.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    file: Arc<File>,
}

/// The file, and how writing to it went last.
struct File {
    /// None once it is closed because of a fault.
    db: Mutex<Option<Connection>>,
    /// Transactions since it was opened.
    written: AtomicU32,
    place: String,
    /// How long to wait for another process that writes.
    busy_timeout: Duration,
    /// Whether the last transaction was quick and one job's alone.
    quiet: AtomicBool,
}

impl File {
    /// Runs a batch and answers it. False when the file is closed.
    fn write(&self, db: &mut Option<Connection>, batch: Vec<Box<dyn Job>>, begun: bool) -> bool {
        let Some(open) = db else { return false };
        let (since, alone) = (Instant::now(), batch.len() == 1);
        settle(open, &self.place, batch, begun);
        self.quiet.store(alone && since.elapsed() < QUICK, Ordering::Relaxed);
        let written = self.written.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if written.is_multiple_of(BUSY)
            && let Err(error) = self.make_room(open)
        {
            tracing::debug!(self.place, %error, "the WAL could not be given room");
        }
        if !open.is_autocommit() {
            tracing::error!(self.place, "a transaction could not be rolled back; the store closes");
            *db = None;
        }
        db.is_some()
    }

    /// Makes the WAL as long as it will get, unless it is or somebody else is writing.
    fn make_room(&self, db: &Connection) -> rusqlite::Result<()> {
        let Some(bytes) = room::missing(db)? else { return Ok(()) };
        if !begin_at_once(db, self.busy_timeout) {
            return Ok(());
        }
        let filled = room::fill(db, bytes);
        roll_back(db, &self.place);
        filled
    }

    /// Runs a job on the caller's thread, if nobody else is writing.
    fn write_here(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        if !self.quiet.load(Ordering::Relaxed) {
            return Err(job);
        }
        let Ok(mut db) = self.db.try_lock() else { return Err(job) };
        let Some(open) = &mut *db else { return Err(job) };
        if !begin_at_once(open, self.busy_timeout) {
            self.quiet.store(false, Ordering::Relaxed);
            return Err(job);
        }
        // A bug in a job must not take the caller with it: it gets no answer, and the file closes.
        let written = catch_unwind(AssertUnwindSafe(|| self.write(&mut db, vec![job], true)));
        if written.is_err() {
            *db = None;
        }
        Ok(())
    }
}

impl Writer {
    /// Starts the thread on a connection that is ready to write.
    pub(super) fn start(
        db: Connection,
        place: String,
        busy_timeout: Duration,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel(2 * MAX_BATCH);
        let (db, quiet) = (Mutex::new(Some(db)), AtomicBool::new(false));
        let written = AtomicU32::new(0);
        let file = Arc::new(File { db, written, place, busy_timeout, quiet });
        let served = Arc::clone(&file);
        let thread = std::thread::Builder::new()
            .name("gesta-writer".to_owned())
            .spawn(move || serve(&served, waiting))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), file })
    }

    /// Runs something in a transaction. `Ok` and the job's own errors are durable facts.
    pub(super) async fn run<F, T, E>(&self, run: F) -> Result<T, E>
    where
        F: FnMut(&Desk<'_>) -> rusqlite::Result<Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<Failure> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(Work { run, result: None, answer });
        let Some(jobs) = &self.jobs else { return Err(Failure::not_sent().into()) };
        let nobody_waits = jobs.capacity() == jobs.max_capacity();
        let left = if nobody_waits { self.file.write_here(job) } else { Err(job) };
        if let Err(job) = left {
            jobs.send(job).await.map_err(|_| Failure::not_sent())?;
        }
        match answered.await {
            Ok((answer, _written)) => answer,
            Err(_) => Err(Failure::not_answered().into()),
        }
    }
}

impl Drop for Writer {
    /// Waits for the jobs at hand and for the connection to close, so that the file may be opened,
    /// moved or removed afterwards.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the writer thread had died");
        }
    }
}

fn serve(file: &File, mut waiting: mpsc::Receiver<Box<dyn Job>>) {
    while let Some(first) = waiting.blocking_recv() {
        let mut db = file.db.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(next) = waiting.try_recv()
        {
            batch.push(next);
        }
        if !file.write(&mut db, batch, false) {
            return;
        }
    }
}

/// Runs a batch and answers it. When one of several jobs spoils the transaction, each gets one of
/// its own, so that it fails alone.
fn settle(db: &Connection, place: &str, mut batch: Vec<Box<dyn Job>>, begun: bool) {
    match transact(db, place, &mut batch, begun) {
        Ok(()) => answer(batch, &Ok(())),
        Err(Stopped::InJobs(failure))
            if batch.len() > 1 && failure.certainty == Certainty::Absent && db.is_autocommit() =>
        {
            for job in batch {
                settle(db, place, vec![job], false);
            }
        }
        Err(Stopped::AtBegin(failure) | Stopped::InJobs(failure)) => answer(batch, &Err(failure)),
    }
}

fn answer(batch: Vec<Box<dyn Job>>, ended: &Result<(), Failure>) {
    for job in batch {
        job.answer(ended.clone());
    }
}

/// Where a transaction stopped.
enum Stopped {
    /// It is no job's fault.
    AtBegin(Failure),
    /// It may be one job's fault.
    InJobs(Failure),
}

/// IMMEDIATE takes the write lock now: what is read inside cannot be stale when it is written.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// Begins a transaction, unless somebody else is writing.
fn begin_at_once(db: &Connection, busy_timeout: Duration) -> bool {
    let begun = db.busy_timeout(Duration::ZERO).and_then(|()| execute(db, BEGIN)).is_ok();
    match db.busy_timeout(busy_timeout) {
        Ok(()) => begun,
        Err(error) => {
            tracing::warn!(%error, "the file's patience cannot be set");
            begun
        }
    }
}

fn transact(
    db: &Connection,
    place: &str,
    batch: &mut [Box<dyn Job>],
    begun: bool,
) -> Result<(), Stopped> {
    if !begun {
        execute(db, BEGIN)
            .map_err(|error| Stopped::AtBegin(Failure::before_commit(place, &error)))?;
    }
    let desk = Desk::new(db);
    let run = batch.iter_mut().try_for_each(|job| job.run(&desk));
    drop(desk);
    if let Err(error) = run {
        roll_back(db, place);
        return Err(Stopped::InJobs(Failure::before_commit(place, &error)));
    }
    // Commit point: once this returns, the whole batch is durable.
    execute(db, "COMMIT").map_err(|error| {
        roll_back(db, place);
        Stopped::InJobs(Failure::at_commit(place, &error))
    })
}

/// Ends a failed transaction. Some errors have ended it already.
fn roll_back(db: &Connection, place: &str) {
    if !db.is_autocommit()
        && let Err(error) = execute(db, "ROLLBACK")
    {
        tracing::error!(place, %error, "rolling back failed");
    }
}

fn execute(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{AppendError, StoreError};

    fn start() -> Writer {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE numbers (n INTEGER UNIQUE)").unwrap();
        Writer::start(db, "numbers".to_owned(), Duration::from_secs(1)).unwrap()
    }

    async fn insert(writer: &Writer, n: i64) -> Result<usize, AppendError> {
        writer
            .run(move |desk| (**desk).execute("INSERT INTO numbers VALUES (?1)", [n]).map(Ok))
            .await
    }

    #[tokio::test]
    async fn a_job_that_spoils_its_batch_fails_alone() {
        let writer = start();
        let (one, again, two) =
            tokio::join!(insert(&writer, 1), insert(&writer, 1), insert(&writer, 2));
        assert_eq!((one, two), (Ok(1), Ok(1)));
        assert!(matches!(again, Err(AppendError::Refused(StoreError::Refused { .. }))));
    }

    #[tokio::test]
    async fn a_lone_job_that_dies_does_not_take_its_caller_with_it() {
        let writer = start();
        writer.file.quiet.store(true, Ordering::Relaxed);
        let died: Result<(), AppendError> = writer.run(|_| panic!("a bug")).await;
        assert_eq!(died, Err(AppendError::Unknown(StoreError::Closed)));
        assert!(writer.file.db.lock().unwrap().is_none(), "nobody writes after a bug");
        assert_eq!(insert(&writer, 1).await, Err(AppendError::Unknown(StoreError::Closed)));
    }

    #[tokio::test]
    async fn callers_of_a_dead_writer_get_an_answer() {
        let writer = start();
        let died: Result<(), AppendError> = writer.run(|_| panic!("a bug")).await;
        assert_eq!(died, Err(AppendError::Unknown(StoreError::Closed)));
        // The next may still be taken by the dying thread: then nobody knows, which is an answer too.
        let next = insert(&writer, 1).await;
        let closed = matches!(
            next,
            Err(AppendError::Refused(StoreError::Closed) | AppendError::Unknown(StoreError::Closed))
        );
        assert!(closed, "{next:?}");
    }
}
