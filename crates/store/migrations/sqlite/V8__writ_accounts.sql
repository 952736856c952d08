-- Standing writs have accounts too: `writ` is theirs, and their day is 0. An account has the sums of its
-- slices, so that a draw reads only those that still hold something.
ALTER TABLE accounts RENAME TO daily_accounts;
ALTER TABLE slices RENAME TO daily_slices;

CREATE TABLE accounts (
    tenant TEXT NOT NULL,
    day INTEGER NOT NULL,
    writ TEXT NOT NULL,
    reached INTEGER NOT NULL,
    drawn_calls INTEGER NOT NULL,
    drawn_money INTEGER NOT NULL,
    drawn_tokens INTEGER NOT NULL,
    drawn_wall INTEGER NOT NULL,
    used_calls INTEGER NOT NULL,
    used_money INTEGER NOT NULL,
    used_tokens INTEGER NOT NULL,
    used_wall INTEGER NOT NULL,
    PRIMARY KEY (tenant, day, writ)
) WITHOUT ROWID;

CREATE TABLE slices (
    tenant TEXT NOT NULL,
    day INTEGER NOT NULL,
    writ TEXT NOT NULL,
    holder TEXT NOT NULL,
    seq INTEGER NOT NULL,
    told_at INTEGER NOT NULL,
    drawn_calls INTEGER NOT NULL,
    drawn_money INTEGER NOT NULL,
    drawn_tokens INTEGER NOT NULL,
    drawn_wall INTEGER NOT NULL,
    used_calls INTEGER NOT NULL,
    used_money INTEGER NOT NULL,
    used_tokens INTEGER NOT NULL,
    used_wall INTEGER NOT NULL,
    idle_calls INTEGER NOT NULL,
    idle_money INTEGER NOT NULL,
    idle_tokens INTEGER NOT NULL,
    idle_wall INTEGER NOT NULL,
    PRIMARY KEY (tenant, day, writ, holder)
) WITHOUT ROWID;

INSERT INTO accounts
SELECT tenant, day, '', reached,
    CAST(coalesce((SELECT sum(drawn_calls) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(drawn_money) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(drawn_tokens) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(drawn_wall) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(used_calls) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(used_money) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(used_tokens) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER),
    CAST(coalesce((SELECT sum(used_wall) FROM daily_slices AS slice WHERE slice.tenant = account.tenant
        AND slice.day = account.day), 0) AS INTEGER)
FROM daily_accounts AS account;

INSERT INTO slices
SELECT tenant, day, '', holder, seq, told_at, drawn_calls, drawn_money, drawn_tokens, drawn_wall,
    used_calls, used_money, used_tokens, used_wall,
    idle_calls, idle_money, idle_tokens, idle_wall
FROM daily_slices;

DROP TABLE daily_accounts;
DROP TABLE daily_slices;

CREATE INDEX slices_held ON slices (tenant, day, writ)
WHERE drawn_calls <> used_calls OR drawn_money <> used_money
    OR drawn_tokens <> used_tokens OR drawn_wall <> used_wall;
