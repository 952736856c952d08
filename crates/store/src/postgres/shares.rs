//! Shares of limits: read, divided and written under one lock per limit.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use gesta_core::ids::WorkerId;
use gesta_core::time::UnixMs;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::connect::Link;
use super::rows::{self, bigint};
use crate::error::StoreError;
use crate::rations::{self, Ration, Share};

/// Apart from what follows, which must see what the last holder of the lock has written.
const LOCK: &str = "
    SELECT pg_advisory_xact_lock(hashtextextended('gesta share ' || current_schema() || ' ' || $1, 0))";
const SHARES: &str = "
    SELECT worker, held, wanted, since_ms, until_ms,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
        ARRAY(SELECT limits FROM workers WHERE lease_until >= clock_timestamp() AND limits <> '')
            AS declared
    FROM (SELECT) AS one LEFT JOIN shares ON scope = $1";
/// Keeps the worker's own share and removes those that have ended.
const KEEP: &str = "
    WITH gone AS (DELETE FROM shares WHERE scope = $1::text AND worker = ANY ($2::text[]))
    INSERT INTO shares (scope, worker, held, wanted, since_ms, until_ms)
    SELECT $1, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::bigint WHERE $4 IS NOT NULL
    ON CONFLICT (scope, worker) DO UPDATE
    SET held = excluded.held,
        wanted = excluded.wanted,
        since_ms = excluded.since_ms,
        until_ms = excluded.until_ms";

const LIMITS: &str =
    "SELECT limits FROM workers WHERE lease_until >= clock_timestamp() AND limits <> ''";

/// What live workers have declared.
pub(super) async fn limits(link: &Link) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
    let found = link.query(LIMITS, &[]).await?;
    let texts: Result<Vec<&str>, StoreError> =
        found.iter().map(|row| rows::get(row, "limits")).collect();
    smallest(&texts?)
}

fn smallest(texts: &[&str]) -> Result<BTreeMap<String, NonZeroU32>, StoreError> {
    let declared: Result<Vec<_>, StoreError> =
        texts.iter().map(|text| rows::limits(text)).collect();
    Ok(rations::smallest(declared?.into_iter().flatten()))
}

/// Gives a worker its share of a limit.
pub(super) async fn ration(
    link: &Link,
    worker: &WorkerId,
    scope: &str,
    ask: Ration,
) -> Result<u32, StoreError> {
    link.transact(async |client: &Client| {
        client.query(LOCK, &[&scope]).await?;
        let found = client.query(SHARES, &[&scope]).await?;
        let mut before: BTreeMap<WorkerId, Share> = BTreeMap::new();
        let mut now = UnixMs(0);
        for row in &found {
            now = match rows::number(row, "now_ms") {
                Ok(now) => UnixMs(now),
                Err(error) => return Ok(Err(error)),
            };
            if row.try_get::<_, Option<&str>>("worker")?.is_none() {
                continue;
            }
            match rows::share(row) {
                Ok((worker, share)) => before.insert(worker, share),
                Err(error) => return Ok(Err(error)),
            };
        }
        let declared = found.first().map(|row| row.try_get::<_, Vec<&str>>("declared"));
        let ask = match smallest(&declared.transpose()?.unwrap_or_default()) {
            Ok(limits) => ask.within(limits.get(scope).copied()),
            Err(error) => return Ok(Err(error)),
        };
        let mut shares = before.clone();
        let granted = rations::share(&mut shares, worker, ask, now);
        let gone: Vec<&str> =
            before.keys().filter(|held| !shares.contains_key(held)).map(WorkerId::as_str).collect();
        let mine = shares.get(worker);
        let number = |read: fn(&Share) -> u64| mine.map(|share| bigint(read(share))).transpose();
        let columns = (|| {
            let held = number(|share| u64::from(share.held))?;
            let wanted = number(|share| u64::from(share.wanted))?;
            let since = number(|share| share.since.0)?;
            let until = number(|share| share.until.0)?;
            Ok((held, wanted, since, until))
        })();
        let (held, wanted, since, until) = match columns {
            Ok(columns) => columns,
            Err(error) => return Ok(Err(error)),
        };
        let worker = worker.as_str();
        let row: [&(dyn ToSql + Sync); 7] =
            [&scope, &gone, &worker, &held, &wanted, &since, &until];
        client.query(KEEP, &row).await?;
        Ok(Ok(granted))
    })
    .await?
}
