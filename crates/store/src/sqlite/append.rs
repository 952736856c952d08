//! Appending, inside the writer's transaction: compare-and-swap, entries, projections.

use gesta_core::digest::Digest;
use gesta_core::entry::Head;
use gesta_core::ids::{Tenant, TrajectoryId};
use gesta_core::projection::{Admitted, Fence, Projection, Summary};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, named_params, params};

use super::desk::Desk;
use super::{entries, outbox, rows};
use crate::claims;
use crate::error::AppendError;

const BEGIN_TRAJECTORY: &str = "
    INSERT INTO trajectories (trajectory, head_seq, head_id, attempt, kind, status, tenant,
        principal, runnable, wake_at, begun_at, changed_at, rank, tools)
    VALUES (:trajectory, :head_seq, :head_id, :attempt, :kind, :status, :tenant, :principal,
        :runnable, :wake_at, :begun_at, :changed_at, :rank, :tools)
    ON CONFLICT (trajectory) DO NOTHING";

/// The fence is implied by the head, since a newer attempt is a newer head; it is checked all the same.
/// What is held takes nothing from an attempt, and what is archived nothing at all.
const MOVE: &str = "
    UPDATE trajectories
    SET head_seq = ?5, head_id = ?6, attempt = ?7, runnable = ?8, wake_at = ?9, changed_at = ?10,
        status = ?11, rank = ?12, tools = ?13, unsealed = 1
    WHERE trajectory = ?1 AND head_seq = ?2 AND head_id = ?3
        AND (?4 IS NULL OR (attempt = ?4 AND held = 0)) AND bundle IS NULL";

/// The same where what the other indexes hold stays as it is, as it does for almost all appends: SQLite rewrites an
/// index for every update that names its column.
const MOVE_ON: &str = "
    UPDATE trajectories
    SET head_seq = ?5, head_id = ?6, attempt = ?7, runnable = ?8, wake_at = ?9, changed_at = ?10
    WHERE trajectory = ?1 AND head_seq = ?2 AND head_id = ?3
        AND (?4 IS NULL OR (attempt = ?4 AND held = 0)) AND bundle IS NULL
        AND status = ?11 AND rank = ?12 AND tools = ?13 AND unsealed = 1";

/// What the first entry fixed: only a rebuild writes it again.
const SET_BEGINNING: &str = "
    UPDATE trajectories SET kind = ?2, tenant = ?3, principal = ?4, begun_at = ?5
    WHERE trajectory = ?1";

const HEAD: &str =
    "SELECT head_seq, head_id, attempt, bundle FROM trajectories WHERE trajectory = ?1";
const REPORTS: &str = "SELECT digest FROM effects WHERE trajectory = ?1";
const UNPARK: &str = "DELETE FROM parked WHERE trajectory = ?1 AND step = ?2";
const UNPARK_ALL: &str = "DELETE FROM parked WHERE trajectory = ?1";
const PARK: &str = "
    INSERT OR REPLACE INTO parked (trajectory, step, on_what, entry, key, until, note)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Appends, or says why this append loses. Losing writes nothing.
pub(super) fn append(db: &Desk<'_>, admitted: &Admitted) -> Result<Result<Head, AppendError>> {
    let trajectory = admitted.trajectory();
    let projection = admitted.projection();
    let fence = match admitted.fence() {
        Fence::Attempt(attempt) => Some(attempt),
        Fence::Open => None,
    };
    let stands = match admitted.under() {
        Some((other, head)) => standing(db, other)?.is_some_and(|there| there.head == head),
        None => true,
    };
    let won = stands
        && !unread(db, admitted)?
        && match admitted.expected() {
            None => begin_trajectory(db, trajectory, admitted.head(), &projection.summary)?,
            Some(expected) => {
                move_head(db, trajectory, expected, fence, admitted.head(), projection)?
            }
        };
    if !won {
        return lost(db, admitted);
    }
    entries::insert(db, trajectory, admitted.entries())?;
    park(db, trajectory, projection)?;
    outbox::put(db, admitted.notices())?;
    Ok(Ok(admitted.head()))
}

/// Replaces the projections of a trajectory whose head is still `head`.
pub(super) fn reproject(
    db: &Desk<'_>,
    trajectory: TrajectoryId,
    head: Head,
    projection: &Projection,
) -> Result<Result<(), AppendError>> {
    if !move_head(db, trajectory, head, None, head, projection)? {
        let head = standing(db, trajectory)?.map(|there| there.head);
        return Ok(Err(AppendError::Conflict { head }));
    }
    let summary = &projection.summary;
    db.prepare_cached(SET_BEGINNING)?.execute(params![
        trajectory.as_bytes(),
        summary.kind.as_str(),
        summary.tenant.as_ref().map(Tenant::as_str),
        summary.principal.as_str(),
        summary.begun_at.0,
    ])?;
    db.prepare_cached(UNPARK_ALL)?.execute([trajectory.as_bytes()])?;
    park(db, trajectory, projection)?;
    Ok(Ok(()))
}

/// Why an append lost. Entries that are there already under the same ids were not lost at all: this
/// is how a caller who never got an answer finds out, however much has followed since.
fn lost(db: &Connection, admitted: &Admitted) -> Result<Result<Head, AppendError>> {
    let trajectory = admitted.trajectory();
    if entries::all_there(db, trajectory, admitted.entries())? {
        return Ok(Ok(admitted.head()));
    }
    let Some(Standing { head, attempt, bundle }) = standing(db, trajectory)? else {
        return Ok(Err(AppendError::lost(admitted, None, unread(db, admitted)?)));
    };
    if let Some(answer) =
        bundle.and_then(|bundle| AppendError::to_archived(admitted, head, &bundle))
    {
        return Ok(answer);
    }
    Ok(Err(match admitted.fence() {
        Fence::Attempt(mine) if attempt > mine => AppendError::FenceLost { attempt },
        _ => AppendError::lost(admitted, Some(head), unread(db, admitted)?),
    }))
}

/// Whether the inbox holds a report that was to be read first. Nobody else writes during this transaction: a report
/// is there by now, or comes after what is appended here.
fn unread(db: &Connection, admitted: &Admitted) -> Result<bool> {
    let Some(read) = admitted.read() else { return Ok(false) };
    let mut reports = db.prepare_cached(REPORTS)?;
    let mut reports = reports.query([admitted.trajectory().as_bytes()])?;
    while let Some(row) = reports.next()? {
        if !read.contains(&Digest::from_bytes(row.get(0)?)) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn begin_trajectory(
    db: &Connection,
    trajectory: TrajectoryId,
    head: Head,
    summary: &Summary,
) -> Result<bool> {
    let inserted = db.prepare_cached(BEGIN_TRAJECTORY)?.execute(named_params! {
        ":trajectory": trajectory.as_bytes(),
        ":head_seq": head.seq,
        ":head_id": head.id.as_bytes(),
        ":attempt": summary.attempt,
        ":kind": summary.kind.as_str(),
        ":status": summary.status.as_str(),
        ":tenant": summary.tenant.as_ref().map(Tenant::as_str),
        ":principal": summary.principal.as_str(),
        ":runnable": summary.runnable,
        ":wake_at": summary.wake_at.map(|at| at.0),
        ":begun_at": summary.begun_at.0,
        ":changed_at": summary.changed_at.0,
        ":rank": claims::rank(summary.priority),
        ":tools": claims::joined(&summary.tools),
    })?;
    Ok(inserted == 1)
}

fn move_head(
    db: &Desk<'_>,
    trajectory: TrajectoryId,
    expected: Head,
    fence: Option<u64>,
    head: Head,
    projection: &Projection,
) -> Result<bool> {
    let summary = &projection.summary;
    let moved = params![
        trajectory.as_bytes(),
        expected.seq,
        expected.id.as_bytes(),
        fence,
        head.seq,
        head.id.as_bytes(),
        summary.attempt,
        summary.runnable,
        summary.wake_at.map(|at| at.0),
        summary.changed_at.0,
        summary.status.as_str(),
        claims::rank(summary.priority),
        claims::joined(&summary.tools),
    ];
    Ok(db.execute(&db.moving, MOVE_ON, moved)? == 1
        || db.prepare_cached(MOVE)?.execute(moved)? == 1)
}

fn park(db: &Connection, trajectory: TrajectoryId, projection: &Projection) -> Result<()> {
    for step in &projection.unparked {
        db.prepare_cached(UNPARK)?.execute(params![trajectory.as_bytes(), step.as_str()])?;
    }
    for parked in &projection.parked {
        db.prepare_cached(PARK)?.execute(params![
            trajectory.as_bytes(),
            parked.step.as_str(),
            parked.on.as_str(),
            parked.entry.as_bytes(),
            parked.key,
            parked.until.map(|at| at.0),
            parked.note,
        ])?;
    }
    Ok(())
}

/// How a trajectory stands.
pub(super) struct Standing {
    pub(super) head: Head,
    attempt: u64,
    /// The bundle that its entries are in, if they are not here.
    pub(super) bundle: Option<String>,
}

pub(super) fn standing(db: &Connection, trajectory: TrajectoryId) -> Result<Option<Standing>> {
    let read = |row: &Row<'_>| {
        Ok(Standing { head: rows::head(row, 0)?, attempt: row.get(2)?, bundle: row.get(3)? })
    };
    db.prepare_cached(HEAD)?.query_row([trajectory.as_bytes()], read).optional()
}
