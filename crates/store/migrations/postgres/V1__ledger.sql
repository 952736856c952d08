-- Every table is keyed by trajectory first, and nothing on the write path is shared by trajectories:
-- no sequence, no foreign key, no counter. Texts that are compared or ordered are in byte order, as
-- the other stores order them. Times are milliseconds since 1970 as the entries tell them; only
-- leases are on the database's clock.

CREATE TABLE entries (
    trajectory bytea NOT NULL,
    seq bigint NOT NULL,
    id bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (trajectory, seq)
);
-- Digests and signatures do not compress, and the attempt costs every append.
ALTER TABLE entries ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Updated by every append. While a worker holds a trajectory, an append changes no indexed column but
-- the status, and each page has room for another version of its rows: most appends touch no index.
CREATE TABLE trajectories (
    trajectory bytea PRIMARY KEY,
    head_seq bigint NOT NULL,
    head_id bytea NOT NULL,
    attempt bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    principal text COLLATE "C" NOT NULL,
    runnable boolean NOT NULL,
    wake_at bigint,
    begun_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    -- The worker that has claimed it. Its word counts as long as its lease lives.
    owner text COLLATE "C",
    -- The queue. Of a trajectory that goes on and that nobody has claimed: `changed_at` if it is
    -- runnable, `wake_at` if it is not. Otherwise null, so that its index changes only with claims.
    free_since bigint,
    asleep_until bigint
) WITH (fillfactor = 50);

CREATE INDEX trajectories_free ON trajectories (free_since, trajectory)
    WHERE free_since IS NOT NULL;
CREATE INDEX trajectories_asleep ON trajectories (asleep_until)
    WHERE asleep_until IS NOT NULL;
CREATE INDEX trajectories_claimed ON trajectories (owner)
    WHERE owner IS NOT NULL;
CREATE INDEX trajectories_by_status ON trajectories (status, trajectory);

CREATE TABLE parked (
    trajectory bytea NOT NULL,
    step text COLLATE "C" NOT NULL,
    on_what text COLLATE "C" NOT NULL,
    entry bytea NOT NULL,
    key text,
    until_ms bigint,
    -- UTF-8. Not a text, since people's notes may hold a NUL, which a text cannot.
    note bytea NOT NULL,
    PRIMARY KEY (trajectory, step)
);
CREATE INDEX parked_by_what ON parked (on_what, trajectory, step);

CREATE TABLE workers (
    worker text COLLATE "C" PRIMARY KEY,
    lease_until timestamptz NOT NULL
);

CREATE TABLE effects (
    trajectory bytea NOT NULL,
    digest bytea NOT NULL,
    at_ms bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (trajectory, digest)
);
ALTER TABLE effects ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE blobs (
    digest bytea PRIMARY KEY,
    bytes bytea NOT NULL
);
ALTER TABLE blobs ALTER COLUMN bytes SET STORAGE EXTERNAL;
