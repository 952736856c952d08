//! The outbox, inside the writer's transaction.

use gesta_core::digest::Digest;
use gesta_core::ids::WorkerId;
use gesta_core::json::Canon;
use gesta_core::projection::{Notice, Topic};
use gesta_core::time::UnixMs;
use rusqlite::types::Type;
use rusqlite::{Connection, Result, Row, params};

use super::leases::bounded;
use super::rows;
use crate::outbox::{NoticeRow, Tried, WANTED_MS};

const PUT: &str = "
    INSERT INTO notices (id, topic, at, data, tries, due_at, reached, failed)
    VALUES (?1, ?2, ?3, ?4, 0, 0, '', 0) ON CONFLICT (id) DO NOTHING";
const LIST: &str = "
    SELECT id, topic, at, data, tries, reached, error, failed FROM notices
    ORDER BY at, id LIMIT ?1";
const FORGET: &str = "DELETE FROM notices WHERE tries = 0 AND at < ?1";
const DUE: &str = "
    SELECT id, topic, at, data, tries, reached, error, failed FROM notices
    WHERE failed = 0 AND due_at <= ?1 AND (owner IS NULL OR owned_until < ?1)
    ORDER BY at, id LIMIT ?2";
const TAKE: &str = "UPDATE notices SET owner = ?2, owned_until = ?3 WHERE id = ?1";
const DONE: &str = "DELETE FROM notices WHERE id = ?1 AND owner = ?2";
const LACKING: &str = "
    UPDATE notices
    SET owner = NULL, owned_until = NULL, tries = tries + 1, due_at = ?3, reached = ?4, error = ?5,
        failed = ?6
    WHERE id = ?1 AND owner = ?2";
const RETRY: &str = "UPDATE notices SET failed = 0, due_at = 0 WHERE failed = 1";

pub(super) fn put(db: &Connection, notices: &[Notice]) -> Result<()> {
    for Notice { id, topic, at, data } in notices {
        let row = params![id.as_bytes(), topic.as_str(), at.0, data.as_str()];
        db.prepare_cached(PUT)?.execute(row)?;
    }
    Ok(())
}

pub(super) fn list(db: &Connection, max: usize) -> Result<Vec<NoticeRow>> {
    db.prepare_cached(LIST)?.query_map([super::limit(max)], row)?.collect()
}

pub(super) fn claim(
    db: &Connection,
    worker: &WorkerId,
    max: usize,
    lease_ms: u64,
    now: UnixMs,
) -> Result<Vec<NoticeRow>> {
    db.prepare_cached(FORGET)?.execute([now.0.saturating_sub(WANTED_MS)])?;
    let due = db
        .prepare_cached(DUE)?
        .query_map(params![now.0, super::limit(max)], row)?
        .collect::<Result<Vec<_>>>()?;
    for row in &due {
        let until = bounded(now.plus(lease_ms));
        let taken = params![row.notice.id.as_bytes(), worker.as_str(), until];
        db.prepare_cached(TAKE)?.execute(taken)?;
    }
    Ok(due)
}

pub(super) fn settle(
    db: &Connection,
    worker: &WorkerId,
    id: Digest,
    tried: &Tried,
    now: UnixMs,
) -> Result<()> {
    match tried {
        Tried::Delivered => {
            db.prepare_cached(DONE)?.execute(params![id.as_bytes(), worker.as_str()])?;
        }
        Tried::Lacking { reached, error, again_in_ms } => {
            let due_at = bounded(now.plus(again_in_ms.unwrap_or(0)));
            let reached = reached.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            let failed = again_in_ms.is_none();
            let row = params![id.as_bytes(), worker.as_str(), due_at, reached, error, failed];
            db.prepare_cached(LACKING)?.execute(row)?;
        }
    }
    Ok(())
}

pub(super) fn retry(db: &Connection) -> Result<u64> {
    Ok(db.prepare_cached(RETRY)?.execute([])? as u64)
}

fn row(row: &Row<'_>) -> Result<NoticeRow> {
    let topic = row.get_ref(1)?.as_str()?;
    let topic = Topic::from_word(topic)
        .ok_or_else(|| rows::unreadable(1, Type::Text, "it is no topic of notices"))?;
    let data = Canon::parse(row.get_ref(3)?.as_str()?.as_bytes())
        .map_err(|error| rows::unreadable(3, Type::Text, error))?;
    let notice =
        Notice { id: Digest::from_bytes(row.get(0)?), topic, at: UnixMs(row.get(2)?), data };
    let reached = row.get_ref(5)?.as_str()?.split_whitespace().map(str::to_owned).collect();
    let (tries, error, failed) = (row.get(4)?, row.get(6)?, row.get(7)?);
    Ok(NoticeRow { notice, tries, reached, error, failed })
}
