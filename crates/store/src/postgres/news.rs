//! News between processes, by `NOTIFY` and `LISTEN`.
//!
//! A notification takes a lock that all commits with one share, so none travels with an append: they
//! are sent apart, at most one each few milliseconds from this process, each with all there is to tell.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gesta_core::ids::TrajectoryId;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::AsyncMessage;

use super::connect::{Link, Server};
use crate::error::StoreError;
use crate::news::{Bell, Listening, News};

const NOTIFY: &str =
    "SELECT pg_notify('gesta ' || hashtextextended(current_schema()::text, 0), $1::text)";
/// `LISTEN` takes no parameters.
const LISTEN: &str = "
    DO $$
    BEGIN
        EXECUTE format('LISTEN %I', 'gesta ' || hashtextextended(current_schema()::text, 0));
    END
    $$";

/// From one notification to the next.
const APART: Duration = Duration::from_millis(20);
/// A notification holds at most 8,000 bytes. Who is told of more looks at everything.
const MAX_TOLD: usize = 200;
const EVERYTHING: &str = "*";
/// How long to wait before listening again: this, doubled up to the other.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(5);

/// Tells other processes, and hears them.
pub(super) struct Herald {
    bell: Bell,
    outgoing: Arc<Outgoing>,
    server: Arc<Server>,
    ear: Mutex<Option<JoinHandle<()>>>,
}

struct Outgoing {
    link: Link,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    told_at: Option<Instant>,
    waiting: Waiting,
    /// Whether a task will send what waits.
    scheduled: bool,
}

#[derive(Default)]
struct Waiting {
    trajectories: BTreeSet<TrajectoryId>,
    everything: bool,
}

impl Herald {
    pub(super) fn new(server: Arc<Server>, link: &Link) -> Self {
        let outgoing = Outgoing { link: link.clone(), state: Mutex::default() };
        Self { bell: Bell::new(false), outgoing: Arc::new(outgoing), server, ear: Mutex::new(None) }
    }

    /// Tells everybody, this process first. Returns once it is sent, unless something was sent a
    /// moment ago: then it goes with the next. A process that ends right after has told.
    pub(super) async fn tell(&self, news: News) {
        self.bell.ring(news);
        let now = Instant::now();
        let at_once = {
            let mut state = self.outgoing.state();
            state.waiting.add(news);
            if state.scheduled {
                return;
            }
            let next = state.told_at.map_or(now, |told_at| told_at + APART);
            if next > now {
                state.scheduled = true;
                let outgoing = Arc::clone(&self.outgoing);
                tokio::spawn(async move {
                    tokio::time::sleep_until(next).await;
                    let text = outgoing.next();
                    outgoing.send(&text).await;
                });
                return;
            }
            state.begin(now)
        };
        self.outgoing.send(&at_once).await;
    }

    /// Listens. The first who does makes this process hear others.
    pub(super) fn listen(&self) -> Listening {
        let mut ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        if ear.is_none() {
            *ear = Some(tokio::spawn(hear(Arc::clone(&self.server), self.bell.clone())));
        }
        self.bell.listen()
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        if let Some(ear) = self.ear.lock().unwrap_or_else(PoisonError::into_inner).take() {
            ear.abort();
        }
    }
}

impl Outgoing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> String {
        let mut state = self.state();
        state.scheduled = false;
        state.begin(Instant::now())
    }

    /// What cannot be told is found by looking.
    async fn send(&self, text: &str) {
        if let Err(failure) = self.link.query(NOTIFY, &[&text]).await {
            tracing::debug!(error = %StoreError::from(failure), "others are not notified");
        }
    }
}

impl State {
    fn begin(&mut self, now: Instant) -> String {
        self.told_at = Some(now);
        std::mem::take(&mut self.waiting).text()
    }
}

impl Waiting {
    fn add(&mut self, news: News) {
        match news {
            News::Changed(trajectory) if self.trajectories.len() < MAX_TOLD => {
                self.trajectories.insert(trajectory);
            }
            News::Changed(_) | News::Missed => self.everything = true,
        }
    }

    fn text(self) -> String {
        if self.everything {
            return EVERYTHING.to_owned();
        }
        let names: Vec<String> = self.trajectories.iter().map(ToString::to_string).collect();
        names.join(" ")
    }
}

/// Hears what other processes tell, and begins again when the connection ends.
async fn hear(server: Arc<Server>, bell: Bell) {
    let mut again = AGAIN_FIRST;
    loop {
        match hear_once(&server, &bell).await {
            Ok(()) => again = AGAIN_FIRST,
            Err(error) => tracing::debug!(%error, "notifications are not heard"),
        }
        bell.hears_all(false);
        tokio::time::sleep(again).await;
        again = (again * 2).min(AGAIN_MOST);
    }
}

async fn hear_once(server: &Server, bell: &Bell) -> Result<(), StoreError> {
    let (client, mut connection) = server.dial().await?;
    let heard = bell.clone();
    let listening = async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                notification
                    .payload()
                    .split(' ')
                    .map(|name| name.parse().map_or(News::Missed, News::Changed))
                    .for_each(|news| heard.ring(news));
            }
        }
    };
    let beginning = async {
        server.prepare(&client).await?;
        client.batch_execute(LISTEN).await.map_err(|error| server.failed(&error))?;
        bell.hears_all(true);
        bell.ring(News::Missed);
        std::future::pending::<Result<(), StoreError>>().await
    };
    tokio::select! {
        () = listening => Ok(()),
        failed = beginning => failed,
    }
}
