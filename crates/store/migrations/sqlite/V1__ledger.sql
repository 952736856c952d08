-- Trajectories are 16 bytes, ids and digests 32; times are milliseconds since 1970.

CREATE TABLE trajectories (
    trajectory BLOB PRIMARY KEY NOT NULL,
    head_seq INTEGER NOT NULL,
    head_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    tenant TEXT,
    principal TEXT NOT NULL,
    runnable INTEGER NOT NULL,
    wake_at INTEGER,
    begun_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    owner TEXT
);

-- The three indexes of claiming hold no ended trajectory that was given back. A claimed one is in
-- the last of them only, which its appends do not touch.
CREATE INDEX trajectories_ready ON trajectories (changed_at, trajectory)
    WHERE owner IS NULL AND runnable = 1 AND status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX trajectories_asleep ON trajectories (wake_at, changed_at, trajectory)
    WHERE owner IS NULL AND runnable = 0 AND wake_at IS NOT NULL
        AND status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX trajectories_claimed ON trajectories (owner) WHERE owner IS NOT NULL;
CREATE INDEX trajectories_by_status ON trajectories (status, trajectory);

-- What one append added is one row: the number of its first entry, all ids in order, and the entries,
-- one a line. A rowid table: rows are appended, and only the narrow index is written at random.
CREATE TABLE entries (
    trajectory BLOB NOT NULL,
    seq INTEGER NOT NULL,
    ids BLOB NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (trajectory, seq)
);

CREATE TABLE parked (
    trajectory BLOB NOT NULL,
    step TEXT NOT NULL,
    on_what TEXT NOT NULL,
    entry BLOB NOT NULL,
    key TEXT,
    until INTEGER,
    note TEXT NOT NULL,
    PRIMARY KEY (trajectory, step)
) WITHOUT ROWID;
CREATE INDEX parked_by_what ON parked (on_what, trajectory, step);

CREATE TABLE workers (
    worker TEXT PRIMARY KEY NOT NULL,
    lease_until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE effects (
    trajectory BLOB NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (trajectory, digest)
);

CREATE TABLE blobs (
    digest BLOB PRIMARY KEY NOT NULL,
    bytes BLOB NOT NULL
);
