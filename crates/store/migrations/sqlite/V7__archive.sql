-- Where the entries of a trajectory are once they have left the store; all three null as long as they are
-- here.
ALTER TABLE trajectories ADD COLUMN bundle TEXT;
ALTER TABLE trajectories ADD COLUMN bundle_sha256 BLOB;
ALTER TABLE trajectories ADD COLUMN archived_at INTEGER;
CREATE INDEX trajectories_archived ON trajectories (bundle) WHERE bundle IS NOT NULL;

-- When somebody last put the blob, about to name it; to the hour.
ALTER TABLE blobs ADD COLUMN put_at INTEGER NOT NULL DEFAULT 0;
