//! Rows and their types. What does not fit is damage, named by its column.

use std::num::NonZeroU32;
use std::str::FromStr;

use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::json::Canon;
use gesta_core::projection::{Parked, ParkedOn, Status, Summary, TrajectoryKind};
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::archive::Archived;
use crate::claims;
use crate::error::StoreError;
use crate::port::{ParkedRow, Profile, StoredEntry, TrajectoryRow, WorkerRow};
use crate::rations::{self, Share};

/// A number as the database holds it.
pub(super) fn bigint(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Refused {
        why: format!("`{number}` is more than a bigint can hold"),
    })
}

/// A limit as the database holds it; what is past a bigint is no limit.
pub(super) fn limit(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}

/// A column's value.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|_| damaged(column))
}

pub(super) fn number(row: &Row, column: &str) -> Result<u64, StoreError> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| damaged(column))
}

pub(super) fn trajectory(row: &Row) -> Result<TrajectoryId, StoreError> {
    let bytes: &[u8] = get(row, "trajectory")?;
    bytes.try_into().map(TrajectoryId::from_bytes).map_err(|_| damaged("trajectory"))
}

pub(super) fn digest(row: &Row, column: &str) -> Result<Digest, StoreError> {
    let bytes: &[u8] = get(row, column)?;
    bytes.try_into().map(Digest::from_bytes).map_err(|_| damaged(column))
}

pub(super) fn entry_id(row: &Row, column: &str) -> Result<EntryId, StoreError> {
    digest(row, column).map(EntryId::new)
}

pub(super) fn head(row: &Row) -> Result<Head, StoreError> {
    Ok(Head { id: entry_id(row, "head_id")?, seq: number(row, "head_seq")? })
}

pub(super) fn entry(row: &Row) -> Result<StoredEntry, StoreError> {
    Ok(StoredEntry {
        id: entry_id(row, "id")?,
        seq: number(row, "seq")?,
        bytes: get(row, "bytes")?,
    })
}

pub(super) fn trajectory_row(row: &Row) -> Result<TrajectoryRow, StoreError> {
    let tenant: Option<&str> = get(row, "tenant")?;
    let summary = Summary {
        attempt: number(row, "attempt")?,
        begun_at: UnixMs(number(row, "begun_at")?),
        changed_at: UnixMs(number(row, "changed_at")?),
        kind: word(row, "kind", TrajectoryKind::from_word)?,
        principal: name(row, "principal")?,
        priority: claims::priority(get(row, "rank")?).ok_or_else(|| damaged("rank"))?,
        runnable: get(row, "runnable")?,
        status: word(row, "status", Status::from_word)?,
        tenant: tenant.map(str::parse).transpose().map_err(|_| damaged("tenant"))?,
        tools: claims::split(get(row, "tools")?).ok_or_else(|| damaged("tools"))?,
        wake_at: time(row, "wake_at")?,
    };
    let archived = archived(row)?;
    Ok(TrajectoryRow { trajectory: trajectory(row)?, head: head(row)?, summary, archived })
}

fn archived(row: &Row) -> Result<Option<Archived>, StoreError> {
    let Some(bundle) = get(row, "bundle")? else { return Ok(None) };
    let at = UnixMs(number(row, "archived_at")?);
    Ok(Some(Archived { bundle, sha256: digest(row, "bundle_sha256")?, at }))
}

pub(super) fn parked_row(row: &Row) -> Result<ParkedRow, StoreError> {
    let parked = Parked {
        entry: entry_id(row, "entry")?,
        key: get(row, "key")?,
        note: String::from_utf8(get(row, "note")?).map_err(|_| damaged("note"))?,
        on: word(row, "on_what", ParkedOn::from_word)?,
        step: name(row, "step")?,
        until: time(row, "until_ms")?,
    };
    Ok(ParkedRow { trajectory: trajectory(row)?, parked })
}

pub(super) fn worker_row(row: &Row) -> Result<WorkerRow, StoreError> {
    let tools: Vec<&str> = get(row, "tools")?;
    let tools: Option<_> = tools.into_iter().map(|tool| tool.parse().ok()).collect();
    Ok(WorkerRow {
        worker: name(row, "worker")?,
        profile: Profile {
            tools: tools.ok_or_else(|| damaged("tools"))?,
            host: get(row, "host")?,
            pid: u32::try_from(number(row, "pid")?).map_err(|_| damaged("pid"))?,
            version: get(row, "version")?,
            limits: limits(get(row, "limits")?)?
                .map(|(name, limit)| (name.to_owned(), limit))
                .collect(),
        },
        since: UnixMs(number(row, "since_ms")?),
        beat_at: UnixMs(number(row, "beat_ms")?),
        lease_until: UnixMs(number(row, "until_ms")?),
        claimed: number(row, "claimed")?,
    })
}

/// The limits in a text.
pub(super) fn limits(text: &str) -> Result<impl Iterator<Item = (&str, NonZeroU32)>, StoreError> {
    Ok(rations::split(text).ok_or_else(|| damaged("limits"))?.into_iter())
}

pub(super) fn share(row: &Row) -> Result<(WorkerId, Share), StoreError> {
    let count = |column| u32::try_from(number(row, column)?).map_err(|_| damaged(column));
    let share = Share {
        held: count("held")?,
        wanted: count("wanted")?,
        since: UnixMs(number(row, "since_ms")?),
        until: UnixMs(number(row, "until_ms")?),
    };
    Ok((name(row, "worker")?, share))
}

pub(super) fn effect(row: &Row) -> Result<Signed<EffectReport>, StoreError> {
    let bytes: &[u8] = get(row, "bytes")?;
    Canon::parse(bytes).and_then(|canon| canon.read()).map_err(|error| StoreError::Damaged {
        what: format!("a report in the effects inbox cannot be read: {error}"),
    })
}

pub(super) fn time(row: &Row, column: &str) -> Result<Option<UnixMs>, StoreError> {
    let at: Option<i64> = get(row, column)?;
    at.map(u64::try_from).transpose().map_err(|_| damaged(column)).map(|at| at.map(UnixMs))
}

pub(super) fn name<T: FromStr>(row: &Row, column: &str) -> Result<T, StoreError> {
    get::<&str>(row, column)?.parse().map_err(|_| damaged(column))
}

fn word<T>(row: &Row, column: &str, from: fn(&str) -> Option<T>) -> Result<T, StoreError> {
    from(get(row, column)?).ok_or_else(|| damaged(column))
}

pub(super) fn damaged(column: &str) -> StoreError {
    StoreError::Damaged { what: format!("the column `{column}` holds what no gesta has written") }
}
