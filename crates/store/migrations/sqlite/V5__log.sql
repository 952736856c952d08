-- What of each trajectory the transparency log holds: entries below `sealed`. `unsealed` is 1 when there is
-- something new; an append changes it once after each sealing, and nothing else of its index.
ALTER TABLE trajectories ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trajectories ADD COLUMN unsealed INTEGER NOT NULL DEFAULT 1;
CREATE INDEX trajectories_unsealed ON trajectories (trajectory) WHERE unsealed = 1;

-- How many leaves the log has: one row, which sealers compare and swap.
CREATE TABLE log (size INTEGER NOT NULL);
INSERT INTO log (size) VALUES (0);

CREATE TABLE log_checkpoints (
    size INTEGER PRIMARY KEY NOT NULL,
    at INTEGER NOT NULL,
    witnesses INTEGER NOT NULL,
    note TEXT NOT NULL
);
CREATE INDEX log_checkpoints_witnessed ON log_checkpoints (size) WHERE witnesses > 0;

-- Leaves: entries of one trajectory that follow each other in the log, all ids in order.
CREATE TABLE log_runs (
    first_leaf INTEGER PRIMARY KEY NOT NULL,
    trajectory BLOB NOT NULL,
    first_seq INTEGER NOT NULL,
    ids BLOB NOT NULL
);
CREATE INDEX log_runs_of ON log_runs (trajectory, first_seq);

CREATE TABLE log_tiles (
    level INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (level, number)
);

-- Nodes of the map of heads, by their hash. `replaced` is how many leaves there were when the map changed
-- without them: they are kept for as long as an older checkpoint may be asked about.
CREATE TABLE log_map (
    hash BLOB PRIMARY KEY NOT NULL,
    bytes BLOB NOT NULL,
    replaced INTEGER
) WITHOUT ROWID;
CREATE INDEX log_map_replaced ON log_map (replaced) WHERE replaced IS NOT NULL;
