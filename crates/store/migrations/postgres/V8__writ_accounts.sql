-- Standing writs have accounts too: `writ` is theirs, and their day is 0. An account has the sums of its
-- slices, so that a draw reads only those that still hold something.
ALTER TABLE accounts
    ADD COLUMN writ text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN drawn bigint[] NOT NULL DEFAULT '{0, 0, 0, 0}',
    ADD COLUMN used bigint[] NOT NULL DEFAULT '{0, 0, 0, 0}',
    DROP CONSTRAINT accounts_pkey,
    ADD PRIMARY KEY (tenant, day, writ);

ALTER TABLE slices
    ADD COLUMN writ text COLLATE "C" NOT NULL DEFAULT '',
    DROP CONSTRAINT slices_pkey,
    ADD PRIMARY KEY (tenant, day, writ, holder);

UPDATE accounts SET drawn = sums.drawn, used = sums.used
FROM (
    SELECT tenant, day,
        ARRAY[sum(drawn[1]), sum(drawn[2]), sum(drawn[3]), sum(drawn[4])]::bigint[] AS drawn,
        ARRAY[sum(used[1]), sum(used[2]), sum(used[3]), sum(used[4])]::bigint[] AS used
    FROM slices GROUP BY tenant, day
) AS sums
WHERE sums.tenant = accounts.tenant AND sums.day = accounts.day;

CREATE INDEX slices_held ON slices (tenant, day, writ) WHERE drawn <> used;
