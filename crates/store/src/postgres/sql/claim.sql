-- Claims up to $2 trajectories for the worker $1, longest unchanged first.
--
-- Candidates come from three small indexes: free and runnable, free and due, held by a worker whose
-- lease has ended. Of each only the first $3 are looked at, so the cost follows the claim and not
-- the store. The names of those who hold anything are hopped to in their index, one by one.
-- What another claim or an append holds locked is left for the next time.
WITH RECURSIVE holders (worker) AS (
    (SELECT owner FROM trajectories WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (
        SELECT owner FROM trajectories
        WHERE owner IS NOT NULL AND owner > h.worker
        ORDER BY owner LIMIT 1
    )
    FROM holders AS h
    WHERE h.worker IS NOT NULL
),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms
),
lapsed AS MATERIALIZED (
    SELECT h.worker
    FROM holders AS h
    WHERE h.worker IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM workers AS w
            WHERE w.worker = h.worker AND w.lease_until >= (SELECT at FROM clock)
        )
),
candidates AS MATERIALIZED (
    (
        SELECT trajectory FROM trajectories
        WHERE free_since IS NOT NULL
        ORDER BY free_since, trajectory LIMIT $3
    )
    UNION ALL
    (
        SELECT trajectory FROM trajectories
        WHERE asleep_until IS NOT NULL AND asleep_until <= (SELECT ms FROM clock)
        ORDER BY asleep_until LIMIT $3
    )
    UNION ALL
    (
        SELECT t.trajectory
        FROM lapsed AS l
        JOIN trajectories AS t ON t.owner = l.worker
        WHERE t.runnable OR t.wake_at <= (SELECT ms FROM clock)
        LIMIT $3
    )
),
chosen AS MATERIALIZED (
    SELECT t.trajectory
    FROM trajectories AS t
    WHERE t.trajectory = ANY (ARRAY(SELECT trajectory FROM candidates))
        AND EXISTS (
            SELECT FROM workers AS w
            WHERE w.worker = $1 AND w.lease_until >= (SELECT at FROM clock)
        )
        AND (t.owner IS NULL OR t.owner = ANY (ARRAY(SELECT worker FROM lapsed)))
        AND t.status NOT IN ('completed', 'failed', 'cancelled')
        AND (t.runnable OR t.wake_at <= (SELECT ms FROM clock))
    ORDER BY t.changed_at, t.trajectory
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
),
taken AS (
    UPDATE trajectories AS t
    SET owner = $1, free_since = NULL, asleep_until = NULL
    FROM chosen AS c
    WHERE t.trajectory = c.trajectory
    RETURNING t.trajectory, t.changed_at
)
SELECT trajectory FROM taken ORDER BY changed_at, trajectory
