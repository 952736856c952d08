-- What of each trajectory the transparency log holds: entries below `sealed`. `unsealed` is true when there
-- is something new; an append changes it once after each sealing, so that most appends touch no index.
ALTER TABLE trajectories
    ADD COLUMN sealed bigint NOT NULL DEFAULT 0,
    ADD COLUMN unsealed boolean NOT NULL DEFAULT true;
CREATE INDEX trajectories_unsealed ON trajectories (trajectory) WHERE unsealed;

-- How many leaves the log has: one row, which sealers compare and swap. Appends never touch it.
CREATE TABLE log (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    size bigint NOT NULL
);
INSERT INTO log (size) VALUES (0);

CREATE TABLE log_checkpoints (
    size bigint PRIMARY KEY,
    at_ms bigint NOT NULL,
    witnesses bigint NOT NULL,
    note text NOT NULL
);
CREATE INDEX log_checkpoints_witnessed ON log_checkpoints (size) WHERE witnesses > 0;

-- Leaves: entries of one trajectory that follow each other in the log, all ids in order.
CREATE TABLE log_runs (
    first_leaf bigint PRIMARY KEY,
    trajectory bytea NOT NULL,
    first_seq bigint NOT NULL,
    ids bytea NOT NULL
);
CREATE INDEX log_runs_of ON log_runs (trajectory, first_seq);
ALTER TABLE log_runs ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE TABLE log_tiles (
    level bigint NOT NULL,
    number bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (level, number)
);
ALTER TABLE log_tiles ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Nodes of the map of heads, by their hash. `replaced` is how many leaves there were when the map changed
-- without them: they are kept for as long as an older checkpoint may be asked about.
CREATE TABLE log_map (
    hash bytea PRIMARY KEY,
    bytes bytea NOT NULL,
    replaced bigint
);
CREATE INDEX log_map_replaced ON log_map (replaced) WHERE replaced IS NOT NULL;
