-- What tenants use in a day. `reached` is the highest threshold, in percent, that somebody was warned of.
CREATE TABLE accounts (
    tenant text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    reached smallint NOT NULL,
    PRIMARY KEY (tenant, day)
);

-- What of it is in whose hands. Amounts are calls, money, tokens and wall time, in this order. Times
-- are the database's.
CREATE TABLE slices (
    tenant text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    holder text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    told_ms bigint NOT NULL,
    drawn bigint[] NOT NULL,
    used bigint[] NOT NULL,
    idle bigint[] NOT NULL,
    PRIMARY KEY (tenant, day, holder)
);
