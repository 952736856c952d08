-- Which history of the store this is: one row. `copied_at` is set in a copy that nobody goes on with.
CREATE TABLE epoch (
    store BLOB NOT NULL,
    number INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    copied_at INTEGER
);
INSERT INTO epoch (store, number, opened_at, copied_at)
    VALUES (randomblob(32), 1, CAST(unixepoch('subsec') * 1000 AS INTEGER), NULL);

-- Every epoch that was opened in a copy, and by whom.
CREATE TABLE epochs (
    number INTEGER PRIMARY KEY NOT NULL,
    opened_at INTEGER NOT NULL,
    opened_by TEXT NOT NULL,
    copied_at INTEGER NOT NULL
);

-- What was open then, and who has said that it may go on.
CREATE TABLE held (
    trajectory BLOB PRIMARY KEY NOT NULL,
    epoch INTEGER NOT NULL,
    copied_at INTEGER NOT NULL,
    known_seq INTEGER,
    released_at INTEGER,
    released_by TEXT,
    ask INTEGER NOT NULL DEFAULT 0,
    note TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- What is held is in no queue.
ALTER TABLE trajectories ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
DROP INDEX trajectories_ready;
DROP INDEX trajectories_asleep;
CREATE INDEX trajectories_ready ON trajectories (rank, tenant, tools, changed_at, trajectory)
    WHERE owner IS NULL AND held = 0 AND runnable = 1
        AND status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX trajectories_asleep
    ON trajectories (rank, tenant, tools, wake_at, changed_at, trajectory)
    WHERE owner IS NULL AND held = 0 AND runnable = 0 AND wake_at IS NOT NULL
        AND status NOT IN ('completed', 'failed', 'cancelled');
