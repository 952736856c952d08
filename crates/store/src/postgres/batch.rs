//! Group commit: appends wait in one queue, and a few tasks carry off what is there. Nobody waits
//! for a batch to fill: it fills while the one before it is on its way. An append that finds nobody
//! else is sent by its caller: two tasks less to wake.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use tokio::sync::{Notify, oneshot};

use super::append::{append, append_one};
use super::connect::Link;
use crate::error::{AppendError, StoreError};

/// The most appends in one batch.
const MAX_APPENDS: usize = 256;
/// A batch is closed when its entries reach this size.
const MAX_BYTES: usize = 4 << 20;

type Answer = Result<Head, AppendError>;

/// The queue of appends. Dropped, its tasks end.
pub(super) struct Batches {
    queue: Arc<Queue>,
    link: Link,
}

impl Batches {
    /// Starts `tasks` tasks on the current runtime.
    pub(super) fn start(link: &Link, tasks: usize) -> Self {
        let queue = Arc::new(Queue { state: Mutex::default(), wake: Notify::new() });
        for _ in 0..tasks.max(1) {
            let carrier = Carrier(Arc::clone(&queue));
            tokio::spawn(carry(carrier, link.clone()));
        }
        Self { queue, link: link.clone() }
    }

    /// Appends with the next batch.
    pub(super) async fn append(&self, admitted: Admitted) -> Answer {
        if let Some(_sending) = self.queue.send_alone(admitted.trajectory())? {
            return append_one(&self.link, &admitted).await;
        }
        let (answer, answered) = oneshot::channel();
        self.queue.push(Waiting { admitted, answer })?;
        // The task may have died with the append in its hands.
        answered.await.unwrap_or(Err(AppendError::Unknown(StoreError::Closed)))
    }
}

/// An append on its way from its caller, who may stop waiting.
struct Sending<'a> {
    queue: &'a Queue,
    trajectory: TrajectoryId,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.under_way.remove(&self.trajectory);
        if !state.waiting.is_empty() {
            state.quiet = false;
            self.queue.wake.notify_one();
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct Queue {
    state: Mutex<QueueState>,
    wake: Notify,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Waiting>,
    /// Trajectories with an append on its way. The next one of each stays until that is settled:
    /// sent beside it, it would only wait for the other's lock, and its batch with it.
    under_way: BTreeSet<TrajectoryId>,
    /// Whether the newest batch was one append.
    quiet: bool,
    closed: bool,
}

struct Waiting {
    admitted: Admitted,
    answer: oneshot::Sender<Answer>,
}

impl Queue {
    /// Nothing in here panics half-way through a change.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an append for the next batch.
    fn push(&self, waiting: Waiting) -> Result<(), AppendError> {
        self.open_state()?.waiting.push_back(waiting);
        self.wake.notify_one();
        Ok(())
    }

    fn open_state(&self) -> Result<MutexGuard<'_, QueueState>, AppendError> {
        let state = self.state();
        if state.closed { Err(AppendError::Refused(StoreError::Closed)) } else { Ok(state) }
    }

    /// Whether an append may be sent by its caller, since nobody else appends.
    fn send_alone(&self, trajectory: TrajectoryId) -> Result<Option<Sending<'_>>, AppendError> {
        let mut state = self.open_state()?;
        let alone = state.quiet && state.waiting.is_empty() && state.under_way.is_empty();
        Ok(alone.then(|| {
            state.under_way.insert(trajectory);
            Sending { queue: self, trajectory }
        }))
    }

    /// Nothing is appended any more. Those who wait are told, since their answers are dropped.
    fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.wake.notify_waiters();
        // For a task between looking and waiting.
        self.wake.notify_one();
    }
}

impl QueueState {
    /// What may go now, at most one append of each trajectory, sorted by trajectory.
    fn take(&mut self) -> Vec<Waiting> {
        let (mut batch, mut staying, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        while let Some(waiting) = self.waiting.pop_front() {
            if waiting.answer.is_closed() {
                continue; // its caller has gone
            }
            if !self.under_way.insert(waiting.admitted.trajectory()) {
                staying.push_back(waiting);
                continue;
            }
            bytes +=
                waiting.admitted.entries().iter().map(|entry| entry.bytes().len()).sum::<usize>();
            batch.push(waiting);
            if batch.len() >= MAX_APPENDS || bytes >= MAX_BYTES {
                break;
            }
        }
        staying.append(&mut self.waiting);
        self.waiting = staying;
        if !batch.is_empty() {
            self.quiet = batch.len() == 1 && self.waiting.is_empty();
        }
        batch.sort_by_key(|waiting| waiting.admitted.trajectory());
        batch
    }
}

/// A running task's hold on the queue. A task ends with the store, or before it with its runtime:
/// then nobody is there to carry what it leaves, and the queue closes.
struct Carrier(Arc<Queue>);

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn carry(carrier: Carrier, link: Link) {
    let queue = &carrier.0;
    loop {
        gather(queue).await;
        let (batch, more) = {
            let mut state = queue.state();
            if state.closed {
                return;
            }
            let batch = state.take();
            (batch, !state.waiting.is_empty())
        };
        if batch.is_empty() {
            queue.wake.notified().await;
            continue;
        }
        if more {
            queue.wake.notify_one();
        }
        let admitted: Vec<_> = batch.iter().map(|waiting| &waiting.admitted).collect();
        let answers = append(&link, &admitted).await;
        {
            let mut state = queue.state();
            for waiting in &batch {
                state.under_way.remove(&waiting.admitted.trajectory());
            }
        }
        for (waiting, answer) in batch.into_iter().zip(answers) {
            let _its_caller_has_gone = waiting.answer.send(answer);
        }
    }
}

/// Lets others run as long as they bring more. Those who were just answered often have the next
/// append ready. This waits for nothing but their turn on the processor.
async fn gather(queue: &Queue) {
    let mut seen = queue.state().waiting.len();
    loop {
        tokio::task::yield_now().await;
        let now = queue.state().waiting.len();
        if now <= seen || now >= MAX_APPENDS {
            return;
        }
        seen = now;
    }
}
