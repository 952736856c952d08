-- What claiming asks: whose turn it is, and which tools a worker must have. `rank` is the priority,
-- negated; `tools` are names joined by blanks, in order; `kit` stands for them in the indexes, which
-- cannot hold long texts.
ALTER TABLE trajectories
    ADD COLUMN rank smallint NOT NULL DEFAULT 0,
    ADD COLUMN tools text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE trajectories
    ADD COLUMN kit bigint NOT NULL GENERATED ALWAYS AS (hashtextextended(tools, 0)) STORED;

-- The queues: one a rank, tenant and kit. Claiming hops from queue to queue and looks at the first
-- few of those that fit.
DROP INDEX trajectories_free;
DROP INDEX trajectories_asleep;
CREATE INDEX trajectories_free ON trajectories (rank, tenant, kit, free_since, trajectory)
    WHERE free_since IS NOT NULL;
CREATE INDEX trajectories_asleep ON trajectories (rank, tenant, kit, asleep_until)
    WHERE asleep_until IS NOT NULL;
CREATE INDEX trajectories_in_hand ON trajectories (tenant)
    WHERE owner IS NOT NULL;

-- What workers say of themselves. Leases are short: nothing is lost with the old table.
DROP TABLE workers;
CREATE TABLE workers (
    worker text COLLATE "C" PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    since timestamptz NOT NULL,
    beat_at timestamptz NOT NULL,
    tools text[] NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL
);

-- Shares of limits that all workers keep together. Times are the database's.
CREATE TABLE shares (
    scope text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    held bigint NOT NULL,
    wanted bigint NOT NULL,
    since_ms bigint NOT NULL,
    until_ms bigint NOT NULL,
    PRIMARY KEY (scope, worker)
);
