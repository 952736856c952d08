-- Begins or extends the lease of the worker $1 by $2 ms and tells the time. A lease that has ended
-- takes its claims with it, even if nobody has asked for them since.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
returned AS (
    UPDATE trajectories
    SET owner = NULL,
        free_since = CASE WHEN runnable THEN changed_at END,
        asleep_until = CASE WHEN NOT runnable THEN wake_at END
    WHERE trajectory = ANY (ARRAY(
        SELECT trajectory FROM trajectories
        WHERE owner = $1
            AND NOT EXISTS (
                SELECT FROM workers
                WHERE worker = $1 AND lease_until >= (SELECT at FROM clock)
            )
        ORDER BY trajectory
        FOR UPDATE
    ))
),
extended AS (
    INSERT INTO workers AS w (worker, lease_until, since, beat_at, tools, host, pid, version, limits)
    SELECT $1, at + $2::bigint * interval '1 millisecond', at, at, $3, $4, $5, $6, $7 FROM clock
    ON CONFLICT (worker) DO UPDATE
    SET lease_until = excluded.lease_until,
        since = CASE WHEN w.lease_until >= excluded.beat_at THEN w.since ELSE excluded.since END,
        beat_at = excluded.beat_at,
        tools = excluded.tools,
        host = excluded.host,
        pid = excluded.pid,
        version = excluded.version,
        limits = excluded.limits
)
SELECT floor(extract(epoch FROM at) * 1000)::bigint AS now_ms FROM clock
