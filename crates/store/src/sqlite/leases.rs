//! Leases and claims, inside the writer's transaction.
//!
//! A lease that has ended takes its claims with it: whoever comes next removes both, be it another
//! worker or the same one late. Claiming then only looks at what nobody holds.

use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::time::UnixMs;
use rusqlite::{Connection, Result, params};

use super::rows;

const GIVE_BACK_ENDED: &str = "
    UPDATE trajectories INDEXED BY trajectories_claimed SET owner = NULL
    WHERE owner IN (SELECT worker FROM workers WHERE lease_until < ?1)";
const FORGET_ENDED: &str = "DELETE FROM workers WHERE lease_until < ?1";
const EXTEND: &str = "INSERT OR REPLACE INTO workers (worker, lease_until) VALUES (?1, ?2)";
const HAS_LEASE: &str = "SELECT 1 FROM workers WHERE worker = ?1";
const CLAIM: &str = "UPDATE trajectories SET owner = ?1 WHERE trajectory = ?2";
const RELEASE: &str = "UPDATE trajectories SET owner = NULL WHERE trajectory = ?2 AND owner = ?1";
const GIVE_BACK: &str = "
    UPDATE trajectories INDEXED BY trajectories_claimed SET owner = NULL WHERE owner = ?1";
const RETIRE: &str = "DELETE FROM workers WHERE worker = ?1";

/// `INDEXED BY` makes it an error, and not a slow query, should an index stop fitting.
const CLAIMABLE: &str = "
    SELECT trajectory FROM (
        SELECT * FROM (
            SELECT changed_at, trajectory FROM trajectories INDEXED BY trajectories_ready
            WHERE owner IS NULL AND runnable = 1
                AND status NOT IN ('completed', 'failed', 'cancelled')
            ORDER BY changed_at, trajectory LIMIT ?2)
        UNION ALL
        SELECT * FROM (
            SELECT changed_at, trajectory FROM trajectories INDEXED BY trajectories_asleep
            WHERE owner IS NULL AND runnable = 0 AND wake_at IS NOT NULL AND wake_at <= ?1
                AND status NOT IN ('completed', 'failed', 'cancelled')
            ORDER BY changed_at, trajectory LIMIT ?2))
    ORDER BY changed_at, trajectory LIMIT ?2";

/// Extends or begins a lease.
pub(super) fn heartbeat(
    db: &Connection,
    worker: &WorkerId,
    lease_ms: u64,
    now: UnixMs,
) -> Result<()> {
    end_leases(db, now)?;
    let lease_until = now.plus(lease_ms).0.min(i64::MAX.unsigned_abs());
    db.prepare_cached(EXTEND)?.execute(params![worker.as_str(), lease_until])?;
    Ok(())
}

/// Reserves what is claimable, longest unchanged first.
pub(super) fn claim(
    db: &Connection,
    worker: &WorkerId,
    max: usize,
    now: UnixMs,
) -> Result<Vec<TrajectoryId>> {
    end_leases(db, now)?;
    if !db.prepare_cached(HAS_LEASE)?.exists([worker.as_str()])? {
        return Ok(Vec::new());
    }
    let claimed = db
        .prepare_cached(CLAIMABLE)?
        .query_map(params![now.0, super::limit(max)], |row| rows::trajectory_id(row, 0))?
        .collect::<Result<Vec<_>>>()?;
    let mut claim = db.prepare_cached(CLAIM)?;
    for trajectory in &claimed {
        claim.execute(params![worker.as_str(), trajectory.as_bytes()])?;
    }
    Ok(claimed)
}

/// Gives one trajectory back, if the worker holds it.
pub(super) fn release(db: &Connection, worker: &WorkerId, trajectory: TrajectoryId) -> Result<()> {
    db.prepare_cached(RELEASE)?.execute(params![worker.as_str(), trajectory.as_bytes()])?;
    Ok(())
}

/// Ends a lease before its time.
pub(super) fn retire(db: &Connection, worker: &WorkerId) -> Result<()> {
    db.prepare_cached(GIVE_BACK)?.execute([worker.as_str()])?;
    db.prepare_cached(RETIRE)?.execute([worker.as_str()])?;
    Ok(())
}

fn end_leases(db: &Connection, now: UnixMs) -> Result<()> {
    db.prepare_cached(GIVE_BACK_ENDED)?.execute([now.0])?;
    db.prepare_cached(FORGET_ENDED)?.execute([now.0])?;
    Ok(())
}
