-- One append that finds nobody else, as almost all do that one job makes: the head of a trajectory that a
-- worker has claimed moves on and entries are added; nothing begins, parks, is taken up or is told, and neither
-- its status nor its queue changes. What does change them finds no row here and goes by `move.sql`: to name a
-- column costs every append, even where its value stays. What `append.sql` says of snapshots, locks and
-- registries holds here too. Scalars: there is one of each.
WITH moved AS (
    UPDATE trajectories AS t
    SET head_seq = $5::bigint,
        head_id = $6::bytea,
        attempt = $7::bigint,
        runnable = $9::boolean,
        wake_at = $10::bigint,
        changed_at = $11::bigint
    WHERE t.trajectory = $1::bytea
        AND t.head_seq = $2::bigint
        AND t.head_id = $3::bytea
        AND ($4::bigint IS NULL OR (t.attempt = $4 AND NOT t.held))
        AND t.bundle IS NULL
        AND ($14::bytea IS NULL OR ($15::bigint, $16::bytea) IN (
            SELECT r.head_seq, r.head_id FROM trajectories AS r WHERE r.trajectory = $14
        ))
        AND t.status = $8::text
        AND t.rank = $12::smallint
        AND t.tools = $13::text
        AND t.unsealed
        AND t.owner IS NOT NULL
    RETURNING t.trajectory
)
INSERT INTO entries (trajectory, seq, id, bytes)
SELECT m.trajectory, e.seq, e.id, e.bytes
FROM moved AS m, unnest($17::bigint[], $18::bytea[], $19::bytea[]) AS e (seq, id, bytes)
RETURNING trajectory
