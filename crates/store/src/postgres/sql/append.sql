-- A batch of appends, one per trajectory, sorted by trajectory. Returns those that won.
--
-- All parts see one snapshot, and each trajectory's row is locked by `moved` or `begun` before
-- anything else of it is touched. When `moved` has waited for a lock it looks at the row again as
-- it then is, so of two that expect the same head one wins. No row is both deleted and inserted:
-- `unparked` holds no step that `parked` holds.
--
-- What was decided under a registry (`under`) wins only while the registry's head, in the same snapshot,
-- is the one that it was decided on.
--
-- What somebody says of a doubt (`reads`) wins only while the effects inbox, in the same snapshot, holds no
-- report about the trajectory but those that were read first ($41, $42). No lock orders the two: a report that
-- was acknowledged before this statement began is in its snapshot. One that commits later is not, and is as one
-- that came after the entries: whoever stores it reads nothing before and is told nothing but that it is there,
-- and whoever takes it up folds the chain, finds what was said, and makes it a `late_effect`. A lock could only
-- make it wait, to arrive after the entries all the same.
--
-- `IS TRUE` keeps the planner from turning the look-up among the winners into a join.
WITH want AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[],
        $7::bigint[], $8::text[], $9::text[], $10::text[], $11::text[], $12::boolean[],
        $13::bigint[], $14::bigint[], $15::bigint[], $16::boolean[], $30::smallint[], $31::text[],
        $32::bytea[], $33::bigint[], $34::bytea[], $40::boolean[]
    ) AS w (
        trajectory, expected_seq, expected_id, fence, head_seq, head_id,
        attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, ended, rank, tools,
        under, under_seq, under_id, reads
    )
    WHERE NOT w.reads
        OR NOT EXISTS (
            SELECT FROM effects AS e
            WHERE e.trajectory = w.trajectory
                AND NOT EXISTS (
                    SELECT FROM unnest($41::bytea[], $42::bytea[]) AS k (trajectory, digest)
                    WHERE k.trajectory = e.trajectory AND k.digest = e.digest
                )
        )
),
moved AS (
    UPDATE trajectories AS t
    SET head_seq = w.head_seq,
        head_id = w.head_id,
        attempt = w.attempt,
        kind = w.kind,
        status = w.status,
        tenant = w.tenant,
        principal = w.principal,
        runnable = w.runnable,
        wake_at = w.wake_at,
        begun_at = w.begun_at,
        changed_at = w.changed_at,
        unsealed = true,
        rank = w.rank,
        tools = w.tools,
        owner = CASE WHEN NOT w.ended THEN t.owner END,
        free_since = CASE WHEN t.owner IS NULL AND NOT t.held AND w.runnable AND NOT w.ended THEN w.changed_at END,
        asleep_until = CASE WHEN t.owner IS NULL AND NOT t.held AND NOT w.runnable AND NOT w.ended THEN w.wake_at END
    FROM want AS w
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
begun AS (
    INSERT INTO trajectories (
        trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools, free_since, asleep_until
    )
    SELECT
        trajectory, head_seq, head_id, attempt, kind, status, tenant, principal, runnable,
        wake_at, begun_at, changed_at, rank, tools,
        CASE WHEN runnable AND NOT ended THEN changed_at END,
        CASE WHEN NOT runnable AND NOT ended THEN wake_at END
    FROM want
    WHERE expected_seq IS NULL
        AND (under IS NULL OR (under_seq, under_id) IN (
            SELECT r.head_seq, r.head_id FROM trajectories AS r WHERE r.trajectory = under
        ))
    ON CONFLICT (trajectory) DO NOTHING
    RETURNING trajectory
),
won AS MATERIALIZED (
    SELECT trajectory FROM moved
    UNION ALL
    SELECT trajectory FROM begun
),
written AS (
    INSERT INTO entries (trajectory, seq, id, bytes)
    SELECT e.trajectory, e.seq, e.id, e.bytes
    FROM unnest($17::bytea[], $18::bigint[], $19::bytea[], $20::bytea[])
        AS e (trajectory, seq, id, bytes)
    WHERE (e.trajectory IN (SELECT trajectory FROM won)) IS TRUE
),
removed AS (
    DELETE FROM parked AS p
    USING unnest($21::bytea[], $22::text[]) AS u (trajectory, step)
    WHERE p.trajectory = u.trajectory
        AND p.step = u.step
        AND (u.trajectory IN (SELECT trajectory FROM won)) IS TRUE
),
kept AS (
    INSERT INTO parked (trajectory, step, on_what, entry, key, until_ms, note)
    SELECT n.trajectory, n.step, n.on_what, n.entry, n.key, n.until_ms, n.note
    FROM unnest(
        $23::bytea[], $24::text[], $25::text[], $26::bytea[], $27::text[], $28::bigint[], $29::bytea[]
    ) AS n (trajectory, step, on_what, entry, key, until_ms, note)
    WHERE (n.trajectory IN (SELECT trajectory FROM won)) IS TRUE
    ON CONFLICT (trajectory, step) DO UPDATE
    SET on_what = excluded.on_what,
        entry = excluded.entry,
        key = excluded.key,
        until_ms = excluded.until_ms,
        note = excluded.note
),
told AS (
    INSERT INTO notices (id, topic, at, data)
    SELECT o.id, o.topic, o.at, o.data
    FROM unnest($35::bytea[], $36::bytea[], $37::text[], $38::bigint[], $39::bytea[])
        AS o (trajectory, id, topic, at, data)
    WHERE (o.trajectory IN (SELECT trajectory FROM won)) IS TRUE
    ON CONFLICT (id) DO NOTHING
)
SELECT trajectory FROM won
