-- What claiming asks: whose turn it is, and which tools a worker must have. `rank` is the priority,
-- negated; `tools` are names joined by blanks, in order.
ALTER TABLE trajectories ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trajectories ADD COLUMN tools TEXT NOT NULL DEFAULT '';

-- The queues: one a rank, tenant and set of tools. Claiming hops from queue to queue and looks at
-- the first few of those that fit.
DROP INDEX trajectories_ready;
DROP INDEX trajectories_asleep;
DROP INDEX trajectories_claimed;
CREATE INDEX trajectories_ready ON trajectories (rank, tenant, tools, changed_at, trajectory)
    WHERE owner IS NULL AND runnable = 1 AND status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX trajectories_asleep
    ON trajectories (rank, tenant, tools, wake_at, changed_at, trajectory)
    WHERE owner IS NULL AND runnable = 0 AND wake_at IS NOT NULL
        AND status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX trajectories_claimed ON trajectories (owner, tenant) WHERE owner IS NOT NULL;

-- What workers say of themselves. Leases are short: nothing is lost with the old table.
DROP TABLE workers;
CREATE TABLE workers (
    worker TEXT PRIMARY KEY NOT NULL,
    lease_until INTEGER NOT NULL,
    since INTEGER NOT NULL,
    beat_at INTEGER NOT NULL,
    tools TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL
) WITHOUT ROWID;

-- Shares of limits that all workers keep together.
CREATE TABLE shares (
    scope TEXT NOT NULL,
    worker TEXT NOT NULL,
    held INTEGER NOT NULL,
    wanted INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (scope, worker)
) WITHOUT ROWID;
