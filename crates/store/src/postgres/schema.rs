//! Migrations, forward only. Many processes may start at once; one of them migrates.

use refinery::{Migration, Runner};
use tokio_postgres::Client;

use super::connect::Server;
use super::fault::store_error;
use crate::error::StoreError;

const MIGRATIONS: &[(&str, &str)] = &[
    ("V1__ledger", include_str!("../../migrations/postgres/V1__ledger.sql")),
    ("V2__workers", include_str!("../../migrations/postgres/V2__workers.sql")),
    ("V3__accounts", include_str!("../../migrations/postgres/V3__accounts.sql")),
    ("V4__outbox", include_str!("../../migrations/postgres/V4__outbox.sql")),
    ("V5__log", include_str!("../../migrations/postgres/V5__log.sql")),
    ("V6__epochs", include_str!("../../migrations/postgres/V6__epochs.sql")),
    ("V7__archive", include_str!("../../migrations/postgres/V7__archive.sql")),
    ("V8__writ_accounts", include_str!("../../migrations/postgres/V8__writ_accounts.sql")),
    ("V9__short_entries", include_str!("../../migrations/postgres/V9__short_entries.sql")),
    ("V10__turns", include_str!("../../migrations/postgres/V10__turns.sql")),
    ("V11__limits", include_str!("../../migrations/postgres/V11__limits.sql")),
];
const TABLE: &str = "gesta_migrations";

const HAS_TABLE: &str = "SELECT to_regclass('gesta_migrations') IS NOT NULL";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM gesta_migrations";
/// Held until the connection ends.
const LOCK: &str =
    "SELECT pg_advisory_lock(hashtextextended('gesta migrations ' || coalesce($1::text, ''), 0))";
/// `DO` takes no parameters: the name travels in a setting.
const NAME_SCHEMA: &str = "SELECT set_config('gesta.schema', $1::text, false)";
const CREATE_SCHEMA: &str = "
    DO $$
    BEGIN
        IF to_regnamespace(quote_ident(current_setting('gesta.schema'))) IS NULL THEN
            EXECUTE format('CREATE SCHEMA %I', current_setting('gesta.schema'));
        END IF;
    END
    $$";

/// Brings the tables to this program's version. A database of a newer program is left as it is, and
/// so is one that needs nothing: then no right to create anything is needed either.
pub(super) async fn migrate(server: &Server) -> Result<(), StoreError> {
    let mut client = server.connect().await?;
    let runner = runner()?;
    let known = newest(&runner);
    if version(&client, server, known).await? == known {
        return Ok(());
    }
    let failed = |error: tokio_postgres::Error| store_error(&server.place, &error);
    client.query(LOCK, &[&server.schema()]).await.map_err(failed)?;
    create_schema(&client, server).await?;
    if version(&client, server, known).await? < known {
        runner.run_async(&mut client).await.map_err(refused)?;
    }
    Ok(())
}

/// Refuses a database whose tables are not this program's: nothing is changed.
pub(super) async fn check(server: &Server) -> Result<(), StoreError> {
    let client = server.connect().await?;
    let known = newest(&runner()?);
    match version(&client, server, known).await? {
        0 => Err(StoreError::Unreachable {
            place: server.place.to_string(),
            why: "there is no store in it".to_owned(),
        }),
        found if found < known => Err(StoreError::Older {
            place: server.place.to_string(),
            found: found.unsigned_abs(),
            known: known.unsigned_abs(),
        }),
        _ => Ok(()),
    }
}

fn newest(runner: &Runner) -> i32 {
    runner.get_migrations().iter().map(Migration::version).max().unwrap_or_default()
}

/// Makes the server's schema with these tables, unless `found` finds them there. One that needs nothing
/// takes no right to create anything.
pub(super) async fn create(server: &Server, found: &str, tables: &str) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&server.place, &error);
    let client = server.connect().await?;
    let row = client.query_one(found, &[]).await.map_err(failed)?;
    if row.try_get::<_, bool>(0).map_err(failed)? {
        return Ok(());
    }
    client.query(LOCK, &[&server.schema()]).await.map_err(failed)?;
    create_schema(&client, server).await?;
    client.batch_execute(tables).await.map_err(failed)
}

async fn create_schema(client: &Client, server: &Server) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&server.place, &error);
    if let Some(schema) = server.schema() {
        client.query(NAME_SCHEMA, &[&schema]).await.map_err(failed)?;
        client.batch_execute(CREATE_SCHEMA).await.map_err(failed)?;
    }
    Ok(())
}

/// The version found, which is not above `known`; 0 when there is nothing yet.
async fn version(client: &Client, server: &Server, known: i32) -> Result<i32, StoreError> {
    let failed = |error: tokio_postgres::Error| store_error(&server.place, &error);
    let row = client.query_one(HAS_TABLE, &[]).await.map_err(failed)?;
    if !row.try_get::<_, bool>(0).map_err(failed)? {
        return Ok(0);
    }
    let row = client.query_one(VERSION, &[]).await.map_err(failed)?;
    let found: i32 = row.try_get(0).map_err(failed)?;
    if found > known {
        return Err(StoreError::Newer {
            place: server.place.to_string(),
            found: found.unsigned_abs(),
            known: known.unsigned_abs(),
        });
    }
    Ok(found)
}

fn runner() -> Result<Runner, StoreError> {
    let migrations = MIGRATIONS
        .iter()
        .map(|(name, sql)| Migration::unapplied(name, sql).map_err(refused))
        .collect::<Result<Vec<_>, _>>()?;
    let mut runner = Runner::new(&migrations);
    runner.set_migration_table_name(TABLE);
    Ok(runner)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn refused(error: refinery::Error) -> StoreError {
    StoreError::Refused { why: format!("migrating the tables failed: {error}") }
}
