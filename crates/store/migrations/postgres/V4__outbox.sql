-- The outbox. `reached` names who has a notice already. Texts that may hold anything are bytes.
CREATE TABLE notices (
    id bytea PRIMARY KEY,
    topic text NOT NULL,
    at bigint NOT NULL,
    data bytea NOT NULL,
    tries bigint NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT '-infinity',
    reached text[] NOT NULL DEFAULT '{}',
    error bytea,
    failed boolean NOT NULL DEFAULT false,
    owner text COLLATE "C",
    owned_until timestamptz
);
