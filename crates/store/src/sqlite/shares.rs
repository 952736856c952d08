//! Shares of limits, inside the writer's transaction.

use std::collections::BTreeMap;

use gesta_core::ids::WorkerId;
use gesta_core::time::UnixMs;
use rusqlite::{Connection, Result, params};

use super::{leases, rows};
use crate::rations::{self, Ration, Share};

const SHARES: &str = "SELECT worker, held, wanted, since, until FROM shares WHERE scope = ?1";
const KEEP: &str = "
    INSERT OR REPLACE INTO shares (scope, worker, held, wanted, since, until)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const FORGET: &str = "DELETE FROM shares WHERE scope = ?1 AND worker = ?2";

/// Gives a worker its share of a limit.
pub(super) fn ration(
    db: &Connection,
    worker: &WorkerId,
    scope: &str,
    ask: Ration,
    now: UnixMs,
) -> Result<u32> {
    let before = db
        .prepare_cached(SHARES)?
        .query_map([scope], |row| {
            let (held, wanted) = (row.get(1)?, row.get(2)?);
            let (since, until) = (UnixMs(row.get(3)?), UnixMs(row.get(4)?));
            Ok((rows::worker_id(row, 0)?, Share { held, wanted, since, until }))
        })?
        .collect::<Result<BTreeMap<_, _>>>()?;
    let ask = ask.within(leases::limits(db, now)?.get(scope).copied());
    let mut shares = before.clone();
    let granted = rations::share(&mut shares, worker, ask, now);
    for gone in before.keys().filter(|worker| !shares.contains_key(worker)) {
        db.prepare_cached(FORGET)?.execute(params![scope, gone.as_str()])?;
    }
    if let Some(Share { held, wanted, since, until }) = shares.get(worker) {
        let until = leases::bounded(*until);
        let row = params![scope, worker.as_str(), held, wanted, since.0, until];
        db.prepare_cached(KEEP)?.execute(row)?;
    }
    Ok(granted)
}
