-- Ends the lease of the worker $1 and gives back what it holds. Leases that ended long ago are
-- forgotten on the way: who holds something without a lease counts as dead all the same.
WITH returned AS (
    UPDATE trajectories
    SET owner = NULL,
        free_since = CASE WHEN runnable THEN changed_at END,
        asleep_until = CASE WHEN NOT runnable THEN wake_at END
    WHERE trajectory = ANY (ARRAY(
        SELECT trajectory FROM trajectories WHERE owner = $1 ORDER BY trajectory FOR UPDATE
    ))
)
DELETE FROM workers WHERE worker = $1 OR lease_until < clock_timestamp() - interval '1 day'
