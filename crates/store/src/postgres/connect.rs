//! Connections: the URL, the pool, what is set and checked on each of them, and one way to run a
//! statement. Knows nothing of the tables.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::{Certainty, Failure, no_connection, store_error};
use super::{Options, tls};
use crate::error::StoreError;

const SESSION: &str = include_str!("sql/session.sql");

/// How long the server works on one statement before it gives up.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a caller waits for an answer: longer than the server works, so that the server's answer
/// comes first. What is left is a dead connection, or a standby that does not confirm.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a statement is sent again after a deadlock or a serialization failure.
const MAX_HINDERED: u32 = 8;

/// A database that can be connected to.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    schema: Option<String>,
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
        if config.get_application_name().is_none() {
            config.application_name(&options.application_name);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(ANSWER_TIMEOUT);
        }
        let tls = tls::connector(config.get_ssl_mode(), options.ca_file.as_deref())
            .map_err(unreachable)?;
        Ok(Self { config, tls, schema: options.schema.clone(), place })
    }

    /// The schema that was asked for.
    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// A connection of its own, checked and without a time-out for statements.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, connection) = timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| StoreError::from(Failure::not_answered(&self.place)))?
            .map_err(|error| store_error(&self.place, &error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        prepare_session(&client, Duration::ZERO, self.schema(), &self.place).await?;
        Ok(client)
    }

    /// A pool of connections, each checked when it is made.
    pub(super) fn pool(&self, max_connections: usize) -> Result<Link, StoreError> {
        let manager = Manager::from_config(
            self.config.clone(),
            self.tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let (schema, place) = (self.schema.clone(), Arc::clone(&self.place));
        let check = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
            let (schema, place) = (schema.clone(), Arc::clone(&place));
            Box::pin(async move {
                prepare_session(client, STATEMENT_TIMEOUT, schema.as_deref(), &place)
                    .await
                    .map_err(|error| HookError::message(error.to_string()))
            })
        });
        let pool = Pool::builder(manager)
            .max_size(max_connections.max(1))
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(STATEMENT_TIMEOUT),
                create: Some(CONNECT_TIMEOUT),
                recycle: Some(CONNECT_TIMEOUT),
            })
            .post_create(check)
            .build()
            .map_err(|error| StoreError::Unreachable {
                place: self.place.to_string(),
                why: error.to_string(),
            })?;
        Ok(Link { pool, place: Arc::clone(&self.place) })
    }
}

/// The way to the database.
#[derive(Clone)]
pub(super) struct Link {
    pool: Pool,
    pub(super) place: Arc<str>,
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
        let client = self.client().await.map_err(Failure::not_sent)?;
        let statement = match timeout(ANSWER_TIMEOUT, client.prepare_cached(sql)).await {
            Ok(Ok(statement)) => statement,
            Ok(Err(error)) => return Err(Failure::not_sent(store_error(&self.place, &error))),
            Err(_) => {
                drop(Object::take(client));
                return Err(Failure::not_sent(Failure::not_answered(&self.place).error));
            }
        };
        match timeout(ANSWER_TIMEOUT, client.query(&statement, params)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(Failure::sent(&self.place, &error)),
            Err(_) => {
                drop(Object::take(client));
                Err(Failure::not_answered(&self.place))
            }
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

    async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| no_connection(&self.place, &error))
    }
}

/// Sets what must hold on every connection, and refuses a server that forgets what it acknowledged.
async fn prepare_session(
    client: &Client,
    statement_timeout: Duration,
    schema: Option<&str>,
    place: &str,
) -> Result<(), StoreError> {
    let statement_timeout = statement_timeout.as_millis().to_string();
    let row = timeout(ANSWER_TIMEOUT, client.query_one(SESSION, &[&statement_timeout, &schema]))
        .await
        .map_err(|_| Failure::not_answered(place).error)?
        .map_err(|error| store_error(place, &error))?;
    let fsync: &str = row.try_get("fsync").map_err(|error| store_error(place, &error))?;
    if fsync == "on" {
        return Ok(());
    }
    Err(StoreError::Unsafe {
        place: place.to_owned(),
        why: "its server runs with `fsync = off` and loses acknowledged entries when the machine \
            dies; set `fsync = on` in its postgresql.conf and reload it"
            .into(),
    })
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
