//! Rows and the values they hold. What does not parse is damage, never a panic and never a default.

use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZeroU32;
use std::str::FromStr;

use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::EffectReport;
use gesta_core::entry::Head;
use gesta_core::ids::{Principal, Tenant, ToolName, TrajectoryId, WorkerId};
use gesta_core::json::Canon;
use gesta_core::projection::{Parked, ParkedOn, Status, Summary, TrajectoryKind};
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use rusqlite::types::Type;
use rusqlite::{Result, Row};

use crate::archive::Archived;
use crate::claims;
use crate::port::{ParkedRow, TrajectoryRow};
use crate::rations;

/// Reads `head_seq, head_id` from there on.
pub(super) fn head(row: &Row<'_>, at: usize) -> Result<Head> {
    Ok(Head { seq: row.get(at)?, id: entry_id(row, at + 1)? })
}

/// Reads `trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
/// wake_at, begun_at, changed_at, rank, tools, bundle, bundle_sha256, archived_at`.
pub(super) fn trajectory(row: &Row<'_>) -> Result<TrajectoryRow> {
    Ok(TrajectoryRow {
        trajectory: trajectory_id(row, 0)?,
        head: head(row, 1)?,
        summary: Summary {
            attempt: row.get(3)?,
            kind: word(row, 4, TrajectoryKind::from_word)?,
            status: word(row, 5, Status::from_word)?,
            tenant: row.get_ref(6)?.as_str_or_null()?.map(|text| name(6, text)).transpose()?,
            principal: name(7, row.get_ref(7)?.as_str()?)?,
            runnable: row.get(8)?,
            wake_at: row.get::<_, Option<u64>>(9)?.map(UnixMs),
            begun_at: UnixMs(row.get(10)?),
            changed_at: UnixMs(row.get(11)?),
            priority: priority(row, 12)?,
            tools: tools(row, 13)?,
        },
        archived: archived(row, 14)?,
    })
}

/// Reads `bundle, bundle_sha256, archived_at` from there on.
fn archived(row: &Row<'_>, at: usize) -> Result<Option<Archived>> {
    let Some(bundle) = row.get(at)? else { return Ok(None) };
    let (sha256, archived_at) = (Digest::from_bytes(row.get(at + 1)?), UnixMs(row.get(at + 2)?));
    Ok(Some(Archived { bundle, sha256, at: archived_at }))
}

/// Reads `trajectory, step, on_what, entry, key, until, note`.
pub(super) fn parked(row: &Row<'_>) -> Result<ParkedRow> {
    Ok(ParkedRow {
        trajectory: trajectory_id(row, 0)?,
        parked: Parked {
            step: name(1, row.get_ref(1)?.as_str()?)?,
            on: word(row, 2, ParkedOn::from_word)?,
            entry: entry_id(row, 3)?,
            key: row.get(4)?,
            until: row.get::<_, Option<u64>>(5)?.map(UnixMs),
            note: row.get(6)?,
        },
    })
}

/// Reads `bytes`.
pub(super) fn effect(row: &Row<'_>) -> Result<Signed<EffectReport>> {
    Canon::parse(row.get_ref(0)?.as_blob()?)
        .and_then(|canon| canon.read())
        .map_err(|error| unreadable(0, Type::Blob, error))
}

/// Reads a trajectory's id.
pub(super) fn trajectory_id(row: &Row<'_>, at: usize) -> Result<TrajectoryId> {
    row.get(at).map(TrajectoryId::from_bytes)
}

/// Reads names of tools.
pub(super) fn tools(row: &Row<'_>, at: usize) -> Result<Vec<ToolName>> {
    claims::split(row.get_ref(at)?.as_str()?)
        .ok_or_else(|| unreadable(at, Type::Text, "it holds no names of tools"))
}

/// Reads declared limits.
pub(super) fn limits(row: &Row<'_>, at: usize) -> Result<BTreeMap<String, NonZeroU32>> {
    let limits = rations::split(row.get_ref(at)?.as_str()?)
        .ok_or_else(|| unreadable(at, Type::Text, "it holds no limits"))?;
    Ok(limits.into_iter().map(|(name, limit)| (name.to_owned(), limit)).collect())
}

/// Reads a principal.
pub(super) fn principal(row: &Row<'_>, at: usize) -> Result<Principal> {
    name(at, row.get_ref(at)?.as_str()?)
}

/// Reads a worker's id.
pub(super) fn worker_id(row: &Row<'_>, at: usize) -> Result<WorkerId> {
    name(at, row.get_ref(at)?.as_str()?)
}

fn priority(row: &Row<'_>, at: usize) -> Result<u8> {
    claims::priority(row.get(at)?).ok_or_else(|| unreadable(at, Type::Integer, "it is no priority"))
}

fn entry_id(row: &Row<'_>, at: usize) -> Result<EntryId> {
    row.get(at).map(Digest::from_bytes).map(EntryId::new)
}

/// Reads a tenant's name.
pub(super) fn tenant(row: &Row<'_>, at: usize) -> Result<Tenant> {
    name(at, row.get_ref(at)?.as_str()?)
}

fn name<T>(at: usize, text: &str) -> Result<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    text.parse().map_err(|error| unreadable(at, Type::Text, error))
}

fn word<T>(row: &Row<'_>, at: usize, read: fn(&str) -> Option<T>) -> Result<T> {
    let text = row.get_ref(at)?.as_str()?;
    read(text).ok_or_else(|| unreadable(at, Type::Text, format!("`{text}` is not a known word")))
}

pub(super) fn unreadable(
    at: usize,
    from: Type,
    why: impl Into<Box<dyn Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, from, why.into())
}
