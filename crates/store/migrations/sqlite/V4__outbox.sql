-- The outbox. `reached` names who has a notice already, separated by blanks.
CREATE TABLE notices (
    id BLOB PRIMARY KEY NOT NULL,
    topic TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT NOT NULL,
    tries INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    reached TEXT NOT NULL,
    error TEXT,
    failed INTEGER NOT NULL,
    owner TEXT,
    owned_until INTEGER
) WITHOUT ROWID;
