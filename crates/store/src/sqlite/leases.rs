//! Leases and claims, inside the writer's transaction.
//!
//! A lease that has ended takes its claims with it: whoever comes next removes both, be it another
//! worker or the same one late. Claiming then only looks at what nobody holds.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use gesta_core::ids::{ToolName, TrajectoryId, WorkerId};
use gesta_core::time::UnixMs;
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::rows;
use crate::claims::{self, Candidate, Standing};
use crate::port::{Profile, WorkerRow};
use crate::rations;

const GIVE_BACK_ENDED: &str = "
    UPDATE trajectories INDEXED BY trajectories_claimed SET owner = NULL
    WHERE owner IN (SELECT worker FROM workers WHERE lease_until < ?1)";
const FORGET_ENDED: &str = "DELETE FROM workers WHERE lease_until < ?1";
const EXTEND: &str = "
    INSERT INTO workers (worker, lease_until, since, beat_at, tools, host, pid, version, limits)
    VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (worker) DO UPDATE SET lease_until = excluded.lease_until,
        beat_at = excluded.beat_at, tools = excluded.tools, host = excluded.host,
        pid = excluded.pid, version = excluded.version, limits = excluded.limits";
const LIVE: &str = "
    SELECT worker, lease_until, since, beat_at, tools, host, pid, version, limits,
        (SELECT count(*) FROM trajectories INDEXED BY trajectories_claimed WHERE owner = worker)
    FROM workers WHERE lease_until >= ?1 ORDER BY worker";
const LIMITS: &str = "SELECT limits FROM workers WHERE lease_until >= ?1 AND limits <> ''";
const TOOLS: &str = "SELECT tools FROM workers WHERE worker = ?1";
const HAS_LEASE: &str = "SELECT 1 FROM workers WHERE worker = ?1";
const CLAIM: &str = "UPDATE trajectories SET owner = ?1 WHERE trajectory = ?2";
const CLAIM_FREE: &str = "
    UPDATE trajectories SET owner = ?1 WHERE trajectory = ?2 AND (owner IS NULL OR owner = ?1)
        AND held = 0 AND status NOT IN ('completed', 'failed', 'cancelled')";
const RELEASE: &str = "
    UPDATE trajectories SET owner = NULL WHERE trajectory = ?2 AND owner = ?1
    RETURNING runnable AND status NOT IN ('completed', 'failed', 'cancelled')";
const IN_HAND: &str = "
    SELECT tenant, count(*) FROM trajectories INDEXED BY trajectories_claimed
    WHERE owner IS NOT NULL AND tenant IS NOT NULL
        AND status NOT IN ('completed', 'failed', 'cancelled')
    GROUP BY tenant";
const GIVEN: &str = "SELECT given FROM turns WHERE tenant = ?1";
const NEXT_GIVEN: &str = "SELECT coalesce(max(given), 0) + 1 FROM turns";
const GIVE: &str = "
    INSERT INTO turns (tenant, given) VALUES (?1, ?2)
    ON CONFLICT (tenant) DO UPDATE SET given = excluded.given";
const GIVE_BACK: &str = "
    UPDATE trajectories INDEXED BY trajectories_claimed SET owner = NULL WHERE owner = ?1";
const HELD: &str = "
    SELECT trajectory FROM trajectories INDEXED BY trajectories_claimed WHERE owner = ?1";
const RETIRE: &str = "DELETE FROM workers WHERE worker = ?1";

/// The next queue. `INDEXED BY` makes it an error, and not a slow query, should an index stop fitting.
const READY_QUEUE: &str = "
    SELECT rank, tenant, tools FROM trajectories INDEXED BY trajectories_ready
    WHERE owner IS NULL AND held = 0 AND runnable = 1 AND status NOT IN ('completed', 'failed', 'cancelled')
        AND (rank, tenant, tools) > (?1, ?2, ?3)
    ORDER BY rank, tenant, tools LIMIT 1";
const ASLEEP_QUEUE: &str = "
    SELECT rank, tenant, tools FROM trajectories INDEXED BY trajectories_asleep
    WHERE owner IS NULL AND held = 0 AND runnable = 0 AND wake_at IS NOT NULL
        AND status NOT IN ('completed', 'failed', 'cancelled')
        AND (rank, tenant, tools) > (?1, ?2, ?3)
    ORDER BY rank, tenant, tools LIMIT 1";
/// The first of a queue.
const READY: &str = "
    SELECT rank, tenant, changed_at, trajectory FROM trajectories INDEXED BY trajectories_ready
    WHERE owner IS NULL AND held = 0 AND runnable = 1 AND status NOT IN ('completed', 'failed', 'cancelled')
        AND rank = ?1 AND tenant = ?2 AND tools = ?3 AND ?5 >= 0
    ORDER BY changed_at, trajectory LIMIT ?4";
const ASLEEP: &str = "
    SELECT rank, tenant, changed_at, trajectory FROM trajectories INDEXED BY trajectories_asleep
    WHERE owner IS NULL AND held = 0 AND runnable = 0 AND wake_at IS NOT NULL AND wake_at <= ?5
        AND status NOT IN ('completed', 'failed', 'cancelled')
        AND rank = ?1 AND tenant = ?2 AND tools = ?3
    ORDER BY changed_at, trajectory LIMIT ?4";

/// Extends or begins a lease.
pub(super) fn heartbeat(
    db: &Connection,
    worker: &WorkerId,
    profile: &Profile,
    lease_ms: u64,
    now: UnixMs,
) -> Result<()> {
    end_leases(db, now)?;
    let Profile { tools, host, pid, version, limits } = profile;
    let (lease_until, tools) = (bounded(now.plus(lease_ms)), claims::joined(tools));
    let limits = rations::joined(limits);
    let row = params![worker.as_str(), lease_until, now.0, tools, host, pid, version, limits];
    db.prepare_cached(EXTEND)?.execute(row)?;
    Ok(())
}

/// Those whose lease lives.
pub(super) fn workers(db: &Connection, now: UnixMs) -> Result<Vec<WorkerRow>> {
    let row = |row: &Row<'_>| {
        Ok(WorkerRow {
            worker: rows::worker_id(row, 0)?,
            lease_until: UnixMs(row.get(1)?),
            since: UnixMs(row.get(2)?),
            beat_at: UnixMs(row.get(3)?),
            profile: Profile {
                tools: rows::tools(row, 4)?,
                host: row.get(5)?,
                pid: row.get(6)?,
                version: row.get(7)?,
                limits: rows::limits(row, 8)?,
            },
            claimed: row.get(9)?,
        })
    };
    db.prepare_cached(LIVE)?.query_map([now.0], row)?.collect()
}

/// What those whose lease lives have declared.
pub(super) fn limits(db: &Connection, now: UnixMs) -> Result<BTreeMap<String, NonZeroU32>> {
    let declared = db
        .prepare_cached(LIMITS)?
        .query_map([now.0], |row| rows::limits(row, 0))?
        .collect::<Result<Vec<_>>>()?;
    let declared = declared.iter().flatten().map(|(name, limit)| (name.as_str(), *limit));
    Ok(rations::smallest(declared))
}

/// Reserves what is claimable, in turn.
pub(super) fn claim(
    db: &Connection,
    worker: &WorkerId,
    max: usize,
    now: UnixMs,
) -> Result<Vec<TrajectoryId>> {
    end_leases(db, now)?;
    let tools = db.prepare_cached(TOOLS)?.query_row([worker.as_str()], |row| rows::tools(row, 0));
    let Some(tools) = tools.optional()? else { return Ok(Vec::new()) };
    let mut candidates = Vec::new();
    for (queues, first) in [(READY_QUEUE, READY), (ASLEEP_QUEUE, ASLEEP)] {
        candidates.extend(look(db, (queues, first), &tools, max, now)?);
    }
    let contested = claims::contested(&candidates);
    let standing = if contested { standing(db, &candidates)? } else { BTreeMap::new() };
    let chosen = claims::next(candidates, standing, max);
    let mut claim = db.prepare_cached(CLAIM)?;
    for Candidate { trajectory, .. } in &chosen {
        claim.execute(params![worker.as_str(), trajectory.as_bytes()])?;
    }
    if contested {
        let given: u64 = db.prepare_cached(NEXT_GIVEN)?.query_row([], |row| row.get(0))?;
        for Candidate { tenant, .. } in &chosen {
            db.prepare_cached(GIVE)?.execute(params![tenant, given])?;
        }
    }
    Ok(chosen.into_iter().map(|candidate| candidate.trajectory).collect())
}

/// The first few of each queue that a worker with these tools can drive. Queues are hopped to, one by
/// one, so that the cost follows their number and not what waits in them.
fn look(
    db: &Connection,
    (queues, first): (&str, &str),
    tools: &[ToolName],
    max: usize,
    now: UnixMs,
) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    let (mut queues, mut first) = (db.prepare_cached(queues)?, db.prepare_cached(first)?);
    let mut queue = (i64::MIN, String::new(), String::new());
    loop {
        let next = queues.query_row(params![queue.0, queue.1, queue.2], |row| {
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), rows::tools(row, 2)?))
        });
        let Some((next, needs)) = next.optional()? else { return Ok(candidates) };
        queue = next;
        if !claims::fits(&needs, tools) {
            continue;
        }
        let row = params![queue.0, queue.1, queue.2, super::limit(max), now.0];
        let found = first.query_map(row, |row| {
            Ok(Candidate {
                rank: row.get(0)?,
                tenant: row.get(1)?,
                changed_at: UnixMs(row.get(2)?),
                trajectory: rows::trajectory_id(row, 3)?,
            })
        })?;
        for candidate in found {
            candidates.push(candidate?);
        }
    }
}

/// How many trajectories of each tenant are claimed, and when those who wait were last chosen.
fn standing(db: &Connection, waiting: &[Candidate]) -> Result<BTreeMap<String, Standing>> {
    let mut standing = db
        .prepare_cached(IN_HAND)?
        .query_map([], |row| Ok((row.get(0)?, Standing { in_hand: row.get(1)?, given: 0 })))?
        .collect::<Result<BTreeMap<String, Standing>>>()?;
    let tenants: BTreeSet<&String> = waiting.iter().map(|candidate| &candidate.tenant).collect();
    let mut given = db.prepare_cached(GIVEN)?;
    for tenant in tenants {
        let found = given.query_row([tenant], |row| row.get(0)).optional()?;
        standing.entry(tenant.clone()).or_default().given = found.unwrap_or(0);
    }
    Ok(standing)
}

/// Reserves one trajectory, unless another holds it.
pub(super) fn claim_one(
    db: &Connection,
    worker: &WorkerId,
    trajectory: TrajectoryId,
    now: UnixMs,
) -> Result<bool> {
    end_leases(db, now)?;
    if !db.prepare_cached(HAS_LEASE)?.exists([worker.as_str()])? {
        return Ok(false);
    }
    let row = params![worker.as_str(), trajectory.as_bytes()];
    Ok(db.prepare_cached(CLAIM_FREE)?.execute(row)? > 0)
}

/// Gives one trajectory back, if the worker holds it. True when there is something left to do.
pub(super) fn release(
    db: &Connection,
    worker: &WorkerId,
    trajectory: TrajectoryId,
) -> Result<bool> {
    let row = params![worker.as_str(), trajectory.as_bytes()];
    let left = db.prepare_cached(RELEASE)?.query_row(row, |row| row.get(0)).optional()?;
    Ok(left.unwrap_or(false))
}

/// Gives back everything that the worker holds but these.
pub(super) fn release_others(
    db: &Connection,
    worker: &WorkerId,
    keep: &[TrajectoryId],
) -> Result<()> {
    let held = db
        .prepare_cached(HELD)?
        .query_map([worker.as_str()], |row| rows::trajectory_id(row, 0))?
        .collect::<Result<Vec<_>>>()?;
    for trajectory in held.into_iter().filter(|held| !keep.contains(held)) {
        release(db, worker, trajectory)?;
    }
    Ok(())
}

/// Ends a lease before its time.
pub(super) fn retire(db: &Connection, worker: &WorkerId) -> Result<()> {
    db.prepare_cached(GIVE_BACK)?.execute([worker.as_str()])?;
    db.prepare_cached(RETIRE)?.execute([worker.as_str()])?;
    Ok(())
}

/// A time as the database holds it.
pub(super) fn bounded(at: UnixMs) -> u64 {
    at.0.min(i64::MAX.unsigned_abs())
}

fn end_leases(db: &Connection, now: UnixMs) -> Result<()> {
    db.prepare_cached(GIVE_BACK_ENDED)?.execute([now.0])?;
    db.prepare_cached(FORGET_ENDED)?.execute([now.0])?;
    Ok(())
}
