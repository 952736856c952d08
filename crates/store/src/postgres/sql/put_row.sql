-- Has a row end where the entries end: moves it if it still is as it was, or makes it if there was none. A
-- row that is made is in no queue until its projections are written again.
WITH ends AS (
    SELECT seq, id FROM entries
    WHERE trajectory = $1 AND seq = $2 AND id = $3
        AND NOT EXISTS (SELECT FROM entries WHERE trajectory = $1 AND seq > $2)
),
moved AS (
    UPDATE trajectories AS t
    SET head_seq = ends.seq, head_id = ends.id, unsealed = true
    FROM ends
    WHERE t.trajectory = $1 AND t.head_seq = $4 AND t.head_id = $5 AND t.bundle IS NULL
    RETURNING t.trajectory
),
made AS (
    INSERT INTO trajectories (
        trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, sealed, held
    )
    SELECT $1, ends.seq, ends.id, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::smallint, $16::text,
        coalesce((SELECT max(first_seq + length(ids) / 32) FROM log_runs WHERE trajectory = $1), 0),
        EXISTS (SELECT FROM held WHERE trajectory = $1 AND released_at IS NULL)
    FROM ends
    WHERE $4::bigint IS NULL
    ON CONFLICT (trajectory) DO NOTHING
    RETURNING trajectory
)
SELECT trajectory FROM moved
UNION ALL
SELECT trajectory FROM made
