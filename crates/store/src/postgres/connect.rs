//! Connections: the URL, the pool, what is set and checked on each of them, and one way to run a
//! statement. Knows nothing of the tables.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime, TimeoutType, Timeouts,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Connection, Row, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::{Certainty, Failure, no_connection, store_error};
use super::{Options, tls};
use crate::error::StoreError;

const SESSION: &str = include_str!("sql/session.sql");

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this long without a word the system asks whether the other side is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// How long to wait before connecting again after a failure: this, doubled up to the other.
const AGAIN_FIRST: Duration = Duration::from_millis(20);
const AGAIN_MOST: Duration = Duration::from_secs(1);
/// How often a statement is sent again after a deadlock or a serialization failure.
const MAX_HINDERED: u32 = 8;

/// A connection, as long as someone drives it.
pub(super) type Driven = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A database that can be connected to.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    schema: Option<String>,
    timeout: Duration,
    /// Host, port and database. No user, no password.
    pub(super) place: Arc<str>,
}

impl Server {
    /// Reads the URL. Nothing is connected yet.
    pub(super) fn new(url: &str, options: &Options) -> Result<Self, StoreError> {
        // The parser's own words are kept back: they may quote a part of the password.
        let mut config: Config = url.parse().map_err(|_| StoreError::Unreachable {
            place: "postgres".into(),
            why: "its URL cannot be read; write \
                `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require` with `disable`, \
                `prefer` or `require` (which verifies the server) and percent-encode special \
                characters of the password"
                .into(),
        })?;
        let place: Arc<str> = place(&config).into();
        let unreachable = |why: String| StoreError::Unreachable { place: place.to_string(), why };
        if options.ca_file.is_some() {
            if config.get_ssl_mode() == SslMode::Disable {
                return Err(unreachable(
                    "a certificate authority is given but its URL says `sslmode=disable`".into(),
                ));
            }
            config.ssl_mode(SslMode::Require);
        }
        if let (None, Some(password)) = (config.get_password(), &options.password) {
            config.password(&password.0);
        }
        if config.get_application_name().is_none() {
            config.application_name(&options.application_name);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(answer_timeout(options.timeout));
        }
        config.keepalives_idle(KEEPALIVE_IDLE);
        // Of several servers, one takes writes.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = tls::connector(config.get_ssl_mode(), options.ca_file.as_deref())
            .map_err(unreachable)?;
        let (schema, timeout) = (options.schema.clone(), options.timeout);
        Ok(Self { config, tls, schema, timeout, place })
    }

    /// The schema that was asked for.
    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// A connection of its own, checked and without a time-out for statements.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.dial().await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        self.prepare(&client).await?;
        Ok(client)
    }

    /// A connection of its own that someone must drive.
    pub(super) async fn dial(&self) -> Result<(Client, Driven), StoreError> {
        timeout(CONNECT_TIMEOUT, self.config.connect(self.tls.clone()))
            .await
            .map_err(|_| StoreError::from(Failure::not_answered(&self.place)))?
            .map_err(|error| self.failed(&error))
    }

    /// Checks a connection of its own.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), StoreError> {
        let session = Session { statement: Duration::ZERO, answer: answer_timeout(self.timeout) };
        session.prepare(client, self.schema(), &self.place).await
    }

    /// What an error means.
    pub(super) fn failed(&self, error: &tokio_postgres::Error) -> StoreError {
        store_error(&self.place, error)
    }

    /// A pool of connections, each checked when it is made.
    pub(super) fn pool(&self, max_connections: usize) -> Result<Link, StoreError> {
        let manager = Manager::from_config(
            self.config.clone(),
            self.tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let (schema, place) = (self.schema.clone(), Arc::clone(&self.place));
        let session = Session { statement: self.timeout, answer: answer_timeout(self.timeout) };
        let check = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
            let (schema, place) = (schema.clone(), Arc::clone(&place));
            Box::pin(async move {
                session
                    .prepare(client, schema.as_deref(), &place)
                    .await
                    .map_err(|error| HookError::message(error.to_string()))
            })
        });
        let pool = Pool::builder(manager)
            .max_size(max_connections.max(1))
            // The one that was used last has everything at hand.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(self.timeout),
                create: Some(CONNECT_TIMEOUT),
                recycle: Some(CONNECT_TIMEOUT),
            })
            .post_create(check)
            .build()
            .map_err(|error| StoreError::Unreachable {
                place: self.place.to_string(),
                why: error.to_string(),
            })?;
        let place = Arc::clone(&self.place);
        Ok(Link { pool, answer: session.answer, pause: Arc::default(), place })
    }
}

/// The way to the database.
#[derive(Clone)]
pub(super) struct Link {
    pool: Pool,
    /// How long a caller waits for an answer.
    answer: Duration,
    /// Until when not to connect again, and how long the pause after that will be.
    pause: Arc<Mutex<Option<(Instant, Duration)>>>,
    pub(super) place: Arc<str>,
}

/// A connection with a statement on its way. Whoever stops waiting for the answer leaves a connection
/// that nobody may use: the next statement would wait behind the lost one.
struct Busy(Option<Object>);

impl Busy {
    fn done(mut self) {
        drop(self.0.take());
    }
}

impl std::ops::Deref for Busy {
    type Target = deadpool_postgres::ClientWrapper;

    fn deref(&self) -> &Self::Target {
        #[expect(clippy::expect_used, reason = "it is taken only by what consumes the whole")]
        self.0.as_ref().expect("a busy connection is there until it is done")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

impl Link {
    /// Runs one statement, which is a transaction of its own, and sends it again while other
    /// transactions hinder it.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let mut hindered = 0;
        loop {
            match self.query_once(sql, params).await {
                Err(Failure { certainty: Certainty::Hindered, .. }) if hindered < MAX_HINDERED => {
                    hindered += 1;
                }
                done => return done,
            }
        }
    }

    async fn query_once(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let client = Busy(Some(self.client().await.map_err(Failure::not_sent)?));
        let statement = match timeout(self.answer, client.prepare_cached(sql)).await {
            Ok(Ok(statement)) => statement,
            Ok(Err(error)) => return Err(Failure::not_sent(self.failed(client, &error).error)),
            Err(_) => return Err(Failure::not_sent(Failure::not_answered(&self.place).error)),
        };
        match timeout(self.answer, client.query(&statement, params)).await {
            Ok(Ok(rows)) => {
                client.done();
                Ok(rows)
            }
            Ok(Err(error)) => Err(self.failed(client, &error)),
            Err(_) => Err(Failure::not_answered(&self.place)),
        }
    }

    /// What an error means. A connection that ends with it is not used again: for a moment the pool
    /// would still take it for a good one, and the next append would be unknown too.
    fn failed(&self, client: Busy, error: &tokio_postgres::Error) -> Failure {
        let failure = Failure::sent(&self.place, error);
        if failure.certainty != Certainty::Unknown {
            client.done();
        }
        failure
    }

    /// Runs several statements in one transaction. Whatever fails, nothing of it counts.
    pub(super) async fn transact<T>(
        &self,
        run: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        let client = Busy(Some(self.client().await?));
        let whole = async {
            client.batch_execute("BEGIN").await?;
            let done = run(&client).await?;
            client.batch_execute("COMMIT").await?;
            Ok(done)
        };
        match timeout(self.answer, whole).await {
            Ok(Ok(done)) => {
                client.done();
                Ok(done)
            }
            Ok(Err(error)) => Err(store_error(&self.place, &error)),
            Err(_) => Err(Failure::not_answered(&self.place).error),
        }
    }

    /// Runs one read that may take as long as it takes.
    pub(super) async fn query_slowly(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let mut client = self.client().await?;
        let slowly = async {
            let transaction = client.transaction().await?;
            transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
            transaction.query(sql, params).await
        };
        slowly.await.map_err(|error| store_error(&self.place, &error))
    }

    /// A connection: one that is there, or a new one. After a failure all who need one wait a while,
    /// so that a server that comes back is not overrun.
    async fn client(&self) -> Result<Object, StoreError> {
        let until = self.paused().map(|(until, _)| until).filter(|until| *until > Instant::now());
        if let Some(until) = until {
            sleep_until(until).await;
        }
        match self.pool.get().await {
            Ok(client) => {
                self.paused().take();
                Ok(client)
            }
            Err(error) => {
                if !matches!(error, PoolError::Timeout(TimeoutType::Wait)) {
                    let mut paused = self.paused();
                    let pause = paused.map_or(AGAIN_FIRST, |(_, pause)| pause);
                    *paused = Some((Instant::now() + pause, (pause * 2).min(AGAIN_MOST)));
                }
                Err(no_connection(&self.place, &error))
            }
        }
    }

    fn paused(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is set on a connection.
#[derive(Clone, Copy)]
struct Session {
    /// How long the server works on one statement before it gives up; for ever, if zero.
    statement: Duration,
    /// How long the caller waits.
    answer: Duration,
}

/// How long a caller waits for an answer: longer than the server works, so that the server's answer
/// comes first. What is left is a dead connection, or a standby that does not confirm.
fn answer_timeout(statement: Duration) -> Duration {
    statement + statement / 2
}

impl Session {
    /// Sets what must hold on every connection, and refuses a server that forgets what it
    /// acknowledged.
    async fn prepare(
        self,
        client: &Client,
        schema: Option<&str>,
        place: &str,
    ) -> Result<(), StoreError> {
        let statement = self.statement.as_millis().to_string();
        let row = timeout(self.answer, client.query_one(SESSION, &[&statement, &schema]))
            .await
            .map_err(|_| Failure::not_answered(place).error)?
            .map_err(|error| store_error(place, &error))?;
        let fsync: &str = row.try_get("fsync").map_err(|error| store_error(place, &error))?;
        if fsync == "on" {
            return Ok(());
        }
        Err(StoreError::Unsafe {
            place: place.to_owned(),
            why: "its server runs with `fsync = off` and loses acknowledged entries when the \
                machine dies; set `fsync = on` in its postgresql.conf and reload it"
                .into(),
        })
    }
}

fn place(config: &Config) -> String {
    let mut place = String::from("postgres://");
    let ports = config.get_ports();
    for (i, host) in config.get_hosts().iter().enumerate() {
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let comma = if i > 0 { "," } else { "" };
        let _infallible = match host {
            Host::Tcp(name) => write!(place, "{comma}{name}:{port}"),
            Host::Unix(path) => write!(place, "{comma}{}:{port}", path.display()),
        };
    }
    let _infallible = write!(place, "/{}", config.get_dbname().unwrap_or_default());
    place
}
