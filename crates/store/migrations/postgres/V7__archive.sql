-- Where the entries of a trajectory are once they have left the store; all three null as long as they are
-- here. No append changes them, so the index costs none.
ALTER TABLE trajectories
    ADD COLUMN bundle text,
    ADD COLUMN bundle_sha256 bytea,
    ADD COLUMN archived_at bigint;
CREATE INDEX trajectories_archived ON trajectories (bundle) WHERE bundle IS NOT NULL;

-- When somebody last put the blob, about to name it; to the hour, on the database's clock.
ALTER TABLE blobs ADD COLUMN put_at bigint NOT NULL DEFAULT 0;
