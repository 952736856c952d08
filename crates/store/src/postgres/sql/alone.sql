-- One append that finds nobody else, as almost all do that one job makes: its head moves on and entries are
-- added, and nothing begins, parks, is taken up or is told. What `append.sql` says of snapshots, locks and
-- registries holds here too. Scalars: there is one of each.
WITH moved AS (
    UPDATE trajectories AS t
    SET head_seq = $5::bigint,
        head_id = $6::bytea,
        attempt = $7::bigint,
        status = $8::text,
        runnable = $9::boolean,
        wake_at = $10::bigint,
        changed_at = $11::bigint,
        unsealed = true,
        rank = $13::smallint,
        tools = $14::text,
        owner = CASE WHEN NOT $12::boolean THEN t.owner END,
        free_since = CASE WHEN t.owner IS NULL AND NOT t.held AND $9 AND NOT $12 THEN $11 END,
        asleep_until = CASE WHEN t.owner IS NULL AND NOT t.held AND NOT $9 AND NOT $12 THEN $10 END
    WHERE t.trajectory = $1::bytea
        AND t.head_seq = $2::bigint
        AND t.head_id = $3::bytea
        AND ($4::bigint IS NULL OR (t.attempt = $4 AND NOT t.held))
        AND t.bundle IS NULL
        AND ($15::bytea IS NULL OR ($16::bigint, $17::bytea) IN (
            SELECT r.head_seq, r.head_id FROM trajectories AS r WHERE r.trajectory = $15
        ))
    RETURNING t.trajectory
)
INSERT INTO entries (trajectory, seq, id, bytes)
SELECT m.trajectory, e.seq, e.id, e.bytes
FROM moved AS m, unnest($18::bigint[], $19::bytea[], $20::bytea[]) AS e (seq, id, bytes)
RETURNING trajectory
