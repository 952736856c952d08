-- What tenants use in a day. `reached` is the highest threshold, in percent, that somebody was warned of.
CREATE TABLE accounts (
    tenant TEXT NOT NULL,
    day INTEGER NOT NULL,
    reached INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) WITHOUT ROWID;

-- What of it is in whose hands. Amounts are calls, money, tokens and wall time, in this order.
CREATE TABLE slices (
    tenant TEXT NOT NULL,
    day INTEGER NOT NULL,
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
    PRIMARY KEY (tenant, day, holder)
) WITHOUT ROWID;
