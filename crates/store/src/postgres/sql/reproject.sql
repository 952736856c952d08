-- Replaces the projections of a trajectory whose head is still the expected one. Rows that stay are
-- updated in place: an append that waits for this statement must find them when it looks again.
WITH same AS (
    UPDATE trajectories AS t
    SET attempt = $4,
        kind = $5,
        status = $6,
        tenant = $7,
        principal = $8,
        runnable = $9,
        wake_at = $10,
        begun_at = $11,
        changed_at = $12,
        rank = $20::smallint,
        tools = $21::text,
        owner = CASE WHEN NOT $13::boolean THEN t.owner END,
        free_since = CASE WHEN t.owner IS NULL AND NOT t.held AND $9 AND NOT $13 THEN $12::bigint END,
        asleep_until = CASE WHEN t.owner IS NULL AND NOT t.held AND NOT $9 AND NOT $13 THEN $10::bigint END
    WHERE t.trajectory = $1 AND t.head_seq = $2 AND t.head_id = $3 AND t.bundle IS NULL
    RETURNING t.trajectory
),
removed AS (
    DELETE FROM parked AS p
    USING same
    WHERE p.trajectory = same.trajectory AND p.step <> ALL ($14::text[])
),
kept AS (
    INSERT INTO parked (trajectory, step, on_what, entry, key, until_ms, note)
    SELECT same.trajectory, n.step, n.on_what, n.entry, n.key, n.until_ms, n.note
    FROM same, unnest($14::text[], $15::text[], $16::bytea[], $17::text[], $18::bigint[], $19::bytea[])
        AS n (step, on_what, entry, key, until_ms, note)
    ON CONFLICT (trajectory, step) DO UPDATE
    SET on_what = excluded.on_what,
        entry = excluded.entry,
        key = excluded.key,
        until_ms = excluded.until_ms,
        note = excluded.note
)
SELECT trajectory FROM same
