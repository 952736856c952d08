-- When each tenant was last given a trajectory while others waited: the greater, the later.
CREATE TABLE turns (
    tenant text COLLATE "C" PRIMARY KEY,
    given bigint NOT NULL
);
CREATE INDEX turns_given ON turns (given);
