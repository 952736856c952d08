-- Claims up to $2 trajectories for the worker $1: by rank, then whose tenant has the fewest in hand,
-- then whose tenant was chosen longest ago, then longest unchanged.
--
-- Candidates come from three small indexes: free and runnable, free and due, held by a worker whose
-- lease has ended. The first two are queues by rank, tenant and kit. Their names are hopped to in the
-- index, one by one, as are the names of those who hold anything; of each queue that fits only the
-- first few are looked at, $3 in all and 8 of each at least. So the cost follows the claim and the
-- number of queues, and not the store. What another claim or an append holds locked is left for the
-- next time. Which tenants were chosen is noted only while several wait, and not where another claim is
-- noting it: claims do not wait for each other.
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
ready (rank, tenant, kit, tools) AS (
    (
        SELECT rank, tenant, kit, tools FROM trajectories
        WHERE free_since IS NOT NULL
        ORDER BY rank, tenant, kit LIMIT 1
    )
    UNION ALL
    SELECT n.rank, n.tenant, n.kit, n.tools
    FROM ready AS r
    CROSS JOIN LATERAL (
        SELECT t.rank, t.tenant, t.kit, t.tools FROM trajectories AS t
        WHERE t.free_since IS NOT NULL AND (t.rank, t.tenant, t.kit) > (r.rank, r.tenant, r.kit)
        ORDER BY t.rank, t.tenant, t.kit LIMIT 1
    ) AS n
),
asleep (rank, tenant, kit, tools) AS (
    (
        SELECT rank, tenant, kit, tools FROM trajectories
        WHERE asleep_until IS NOT NULL
        ORDER BY rank, tenant, kit LIMIT 1
    )
    UNION ALL
    SELECT n.rank, n.tenant, n.kit, n.tools
    FROM asleep AS a
    CROSS JOIN LATERAL (
        SELECT t.rank, t.tenant, t.kit, t.tools FROM trajectories AS t
        WHERE t.asleep_until IS NOT NULL AND (t.rank, t.tenant, t.kit) > (a.rank, a.tenant, a.kit)
        ORDER BY t.rank, t.tenant, t.kit LIMIT 1
    ) AS n
),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms
),
me AS MATERIALIZED (
    SELECT tools FROM workers WHERE worker = $1 AND lease_until >= (SELECT at FROM clock)
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
ready_for_me AS MATERIALIZED (
    SELECT rank, tenant, kit FROM ready
    WHERE string_to_array(tools, ' ') <@ (SELECT tools FROM me)
),
asleep_for_me AS MATERIALIZED (
    SELECT rank, tenant, kit FROM asleep
    WHERE string_to_array(tools, ' ') <@ (SELECT tools FROM me)
),
candidates AS MATERIALIZED (
    (
        SELECT t.trajectory, t.rank, t.tenant, t.changed_at
        FROM ready_for_me AS q
        CROSS JOIN LATERAL (
            SELECT trajectory, rank, tenant, changed_at FROM trajectories
            WHERE free_since IS NOT NULL
                AND rank = q.rank AND tenant = q.tenant AND kit = q.kit
            ORDER BY free_since, trajectory
            LIMIT (SELECT greatest(8, $3::bigint / greatest(1, count(*))) FROM ready_for_me)
        ) AS t
    )
    UNION ALL
    (
        SELECT t.trajectory, t.rank, t.tenant, t.changed_at
        FROM asleep_for_me AS q
        CROSS JOIN LATERAL (
            SELECT trajectory, rank, tenant, changed_at FROM trajectories
            WHERE asleep_until IS NOT NULL AND asleep_until <= (SELECT ms FROM clock)
                AND rank = q.rank AND tenant = q.tenant AND kit = q.kit
            ORDER BY asleep_until
            LIMIT (SELECT greatest(8, $3::bigint / greatest(1, count(*))) FROM asleep_for_me)
        ) AS t
    )
    UNION ALL
    (
        SELECT t.trajectory, t.rank, t.tenant, t.changed_at
        FROM lapsed AS l
        JOIN trajectories AS t ON t.owner = l.worker
        WHERE (t.runnable OR t.wake_at <= (SELECT ms FROM clock))
            AND string_to_array(t.tools, ' ') <@ (SELECT tools FROM me)
        LIMIT $3
    )
),
in_hand AS MATERIALIZED (
    SELECT c.tenant, (
            SELECT count(*) FROM trajectories AS t
            WHERE t.owner IS NOT NULL AND t.tenant = c.tenant
                AND t.owner <> ALL (ARRAY(SELECT worker FROM lapsed))
        ) AS jobs,
        coalesce((SELECT g.given FROM turns AS g WHERE g.tenant = c.tenant), 0) AS given
    FROM (SELECT DISTINCT tenant FROM candidates) AS c
    WHERE (SELECT count(DISTINCT tenant) FROM candidates) > 1
),
fair AS MATERIALIZED (
    SELECT c.trajectory, c.rank, c.changed_at,
        coalesce((SELECT h.jobs FROM in_hand AS h WHERE h.tenant = c.tenant), 0)
            + row_number() OVER (
                PARTITION BY c.tenant ORDER BY c.rank, c.changed_at, c.trajectory
            ) AS turn,
        coalesce((SELECT h.given FROM in_hand AS h WHERE h.tenant = c.tenant), 0) AS given
    FROM candidates AS c
),
ordered AS MATERIALIZED (
    SELECT trajectory, row_number() OVER (ORDER BY rank, turn, given, changed_at, trajectory) AS place
    FROM fair
),
chosen AS MATERIALIZED (
    SELECT t.trajectory, t.tenant, o.place
    FROM ordered AS o
    JOIN trajectories AS t ON t.trajectory = o.trajectory
    WHERE (t.owner IS NULL OR t.owner = ANY (ARRAY(SELECT worker FROM lapsed)))
        AND NOT t.held
        AND t.status NOT IN ('completed', 'failed', 'cancelled')
        AND (t.runnable OR t.wake_at <= (SELECT ms FROM clock))
        AND string_to_array(t.tools, ' ') <@ (SELECT tools FROM me)
    ORDER BY o.place
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
),
taken AS (
    UPDATE trajectories AS t
    SET owner = $1, free_since = NULL, asleep_until = NULL
    FROM chosen AS c
    WHERE t.trajectory = c.trajectory
    RETURNING t.trajectory, c.place
),
served AS MATERIALIZED (
    SELECT DISTINCT tenant FROM chosen WHERE (SELECT count(*) FROM in_hand) > 1
),
served_before AS MATERIALIZED (
    SELECT tenant FROM turns WHERE tenant IN (SELECT tenant FROM served)
    FOR UPDATE SKIP LOCKED
),
noted AS (
    UPDATE turns AS g
    SET given = (SELECT max(given) + 1 FROM turns)
    FROM served_before AS s
    WHERE g.tenant = s.tenant
),
noted_first AS (
    INSERT INTO turns (tenant, given)
    SELECT s.tenant, (SELECT coalesce(max(given), 0) + 1 FROM turns)
    FROM served AS s
    WHERE NOT EXISTS (SELECT FROM turns AS g WHERE g.tenant = s.tenant)
    ORDER BY s.tenant
    ON CONFLICT (tenant) DO NOTHING
)
SELECT trajectory FROM taken ORDER BY place
