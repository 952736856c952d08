-- A batch of appends as almost all are: heads move on and entries are added, and nothing begins, parks,
-- is taken up or is told. What `append.sql` says of snapshots, locks and registries holds here too.
WITH moved AS (
    UPDATE trajectories AS t
    SET head_seq = w.head_seq,
        head_id = w.head_id,
        attempt = w.attempt,
        status = w.status,
        runnable = w.runnable,
        wake_at = w.wake_at,
        changed_at = w.changed_at,
        unsealed = true,
        rank = w.rank,
        tools = w.tools,
        owner = CASE WHEN NOT w.ended THEN t.owner END,
        free_since = CASE WHEN t.owner IS NULL AND NOT t.held AND w.runnable AND NOT w.ended THEN w.changed_at END,
        asleep_until = CASE WHEN t.owner IS NULL AND NOT t.held AND NOT w.runnable AND NOT w.ended THEN w.wake_at END
    FROM unnest(
        $1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[],
        $7::bigint[], $8::text[], $9::boolean[], $10::bigint[], $11::bigint[], $12::boolean[],
        $13::smallint[], $14::text[], $15::bytea[], $16::bigint[], $17::bytea[]
    ) AS w (
        trajectory, expected_seq, expected_id, fence, head_seq, head_id,
        attempt, status, runnable, wake_at, changed_at, ended,
        rank, tools, under, under_seq, under_id
    )
    WHERE t.trajectory = w.trajectory
        AND t.head_seq = w.expected_seq
        AND t.head_id = w.expected_id
        AND (w.fence IS NULL OR (t.attempt = w.fence AND NOT t.held))
        AND t.bundle IS NULL
        AND (w.under IS NULL OR (w.under_seq, w.under_id) IN (
            SELECT r.head_seq, r.head_id FROM trajectories AS r WHERE r.trajectory = w.under
        ))
    RETURNING t.trajectory
),
written AS (
    INSERT INTO entries (trajectory, seq, id, bytes)
    SELECT e.trajectory, e.seq, e.id, e.bytes
    FROM unnest($18::bytea[], $19::bigint[], $20::bytea[], $21::bytea[])
        AS e (trajectory, seq, id, bytes)
    WHERE (e.trajectory IN (SELECT trajectory FROM moved)) IS TRUE
)
SELECT trajectory FROM moved
