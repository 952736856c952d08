-- Which history of the store this is: one row. `copied_at` is set in a copy that nobody goes on with.
CREATE TABLE epoch (
    store bytea PRIMARY KEY,
    number bigint NOT NULL,
    opened_at bigint NOT NULL,
    copied_at bigint
);
INSERT INTO epoch (store, number, opened_at)
    SELECT sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 1,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- Every epoch that was opened in a copy, and by whom.
CREATE TABLE epochs (
    number bigint PRIMARY KEY,
    opened_at bigint NOT NULL,
    opened_by text NOT NULL,
    copied_at bigint NOT NULL
);

-- What was open then, and who has said that it may go on. Notes are bytes, since they may hold a NUL.
CREATE TABLE held (
    trajectory bytea PRIMARY KEY,
    epoch bigint NOT NULL,
    copied_at bigint NOT NULL,
    known_seq bigint,
    released_at bigint,
    released_by text,
    ask boolean NOT NULL DEFAULT false,
    note bytea NOT NULL DEFAULT ''
);

-- What is held is in no queue: `free_since` and `asleep_until` are null.
ALTER TABLE trajectories ADD COLUMN held boolean NOT NULL DEFAULT false;
