//! The outbox: each statement is a transaction of its own.

use gesta_core::digest::Digest;
use gesta_core::ids::WorkerId;
use gesta_core::json::Canon;
use gesta_core::projection::{Notice, Topic};
use gesta_core::time::UnixMs;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Link;
use super::rows::{self, bigint};
use crate::error::StoreError;
use crate::outbox::{NoticeRow, Tried, WANTED_MS};

pub(super) const PUT: &str = "
    INSERT INTO notices (id, topic, at, data) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING";
const LIST: &str = "
    SELECT id, topic, at, data, tries, reached, error, failed FROM notices
    ORDER BY at, id LIMIT $1";
const FORGET: &str = "
    DELETE FROM notices
    WHERE tries = 0 AND at < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1";
const CLAIM: &str = "
    UPDATE notices AS n
    SET owner = $1, owned_until = clock_timestamp() + make_interval(secs => $3::bigint / 1000.0)
    FROM (
        SELECT id FROM notices
        WHERE NOT failed AND due_at <= clock_timestamp()
            AND (owner IS NULL OR owned_until < clock_timestamp())
        ORDER BY at, id LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS due
    WHERE n.id = due.id
    RETURNING n.id, topic, at, data, tries, reached, error, failed";
const DONE: &str = "DELETE FROM notices WHERE id = $1 AND owner = $2";
const LACKING: &str = "
    UPDATE notices
    SET owner = NULL, owned_until = NULL, tries = tries + 1, reached = $4, error = $5,
        due_at = clock_timestamp() + make_interval(secs => coalesce($3::bigint, 0) / 1000.0),
        failed = $3::bigint IS NULL
    WHERE id = $1 AND owner = $2";
const RETRY: &str = "
    UPDATE notices SET failed = false, due_at = clock_timestamp() WHERE failed RETURNING id";

pub(super) async fn list(link: &Link, max: usize) -> Result<Vec<NoticeRow>, StoreError> {
    let found = link.query(LIST, &[&rows::limit(max)]).await?;
    found.iter().map(row).collect()
}

pub(super) async fn claim(
    link: &Link,
    worker: &WorkerId,
    max: usize,
    lease_ms: u64,
) -> Result<Vec<NoticeRow>, StoreError> {
    link.query(FORGET, &[&bigint(WANTED_MS)?]).await?;
    let params: [&(dyn ToSql + Sync); 3] =
        [&worker.as_str(), &rows::limit(max), &bigint(lease_ms)?];
    let found = link.query(CLAIM, &params).await?;
    let mut claimed: Vec<NoticeRow> = found.iter().map(row).collect::<Result<_, _>>()?;
    claimed.sort_by_key(|row| (row.notice.at, row.notice.id));
    Ok(claimed)
}

pub(super) async fn settle(
    link: &Link,
    worker: &WorkerId,
    id: Digest,
    tried: &Tried,
) -> Result<(), StoreError> {
    let (id, worker) = (id.as_bytes().as_slice(), worker.as_str());
    match tried {
        Tried::Delivered => link.query(DONE, &[&id, &worker]).await?,
        Tried::Lacking { reached, error, again_in_ms } => {
            let again_in_ms = again_in_ms.map(bigint).transpose()?;
            let reached: Vec<&str> = reached.iter().map(String::as_str).collect();
            let row: [&(dyn ToSql + Sync); 5] =
                [&id, &worker, &again_in_ms, &reached, &error.as_bytes()];
            link.query(LACKING, &row).await?
        }
    };
    Ok(())
}

pub(super) async fn retry(link: &Link) -> Result<u64, StoreError> {
    Ok(link.query(RETRY, &[]).await?.len() as u64)
}

fn row(row: &Row) -> Result<NoticeRow, StoreError> {
    let id: &[u8] = rows::get(row, "id")?;
    let id = id.try_into().map_err(|_| rows::damaged("id"))?;
    let notice = Notice {
        id: Digest::from_bytes(id),
        topic: Topic::from_word(rows::get(row, "topic")?).ok_or_else(|| rows::damaged("topic"))?,
        at: UnixMs(rows::number(row, "at")?),
        data: Canon::parse(rows::get(row, "data")?).map_err(|_| rows::damaged("data"))?,
    };
    let reached: Vec<String> = rows::get(row, "reached")?;
    let error: Option<Vec<u8>> = rows::get(row, "error")?;
    Ok(NoticeRow {
        notice,
        tries: u32::try_from(rows::number(row, "tries")?).map_err(|_| rows::damaged("tries"))?,
        reached: reached.into_iter().collect(),
        error: error.map(|text| String::from_utf8_lossy(&text).into_owned()),
        failed: rows::get(row, "failed")?,
    })
}
