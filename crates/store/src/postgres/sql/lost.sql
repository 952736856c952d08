-- For entries that were not appended: what is stored in their place, and the head there is.
SELECT k.trajectory, k.seq, e.id, t.head_seq, t.head_id, t.attempt, t.bundle
FROM unnest($1::bytea[], $2::bigint[]) AS k (trajectory, seq)
LEFT JOIN trajectories AS t ON t.trajectory = k.trajectory
LEFT JOIN entries AS e ON e.trajectory = k.trajectory AND e.seq = k.seq
