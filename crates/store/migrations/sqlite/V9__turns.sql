-- When each tenant was last given a trajectory while others waited: the greater, the later.
CREATE TABLE turns (
    tenant TEXT NOT NULL PRIMARY KEY,
    given INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX turns_given ON turns (given);
