-- For entries that were not appended: what is stored in their place, the head there is, and whether the inbox
-- holds a report that was not read ($3, $4).
SELECT k.trajectory, k.seq, e.id, t.head_seq, t.head_id, t.attempt, t.bundle,
    EXISTS (
        SELECT FROM effects AS r
        WHERE r.trajectory = k.trajectory
            AND NOT EXISTS (
                SELECT FROM unnest($3::bytea[], $4::bytea[]) AS s (trajectory, digest)
                WHERE s.trajectory = r.trajectory AND s.digest = r.digest
            )
    ) AS unread
FROM unnest($1::bytea[], $2::bigint[]) AS k (trajectory, seq)
LEFT JOIN trajectories AS t ON t.trajectory = k.trajectory
LEFT JOIN entries AS e ON e.trajectory = k.trajectory AND e.seq = k.seq
