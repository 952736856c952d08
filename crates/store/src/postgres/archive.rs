//! Archiving: entries leave the database, and come back, in a transaction that holds the trajectory's
//! row. An append that waits for it finds the row as it then is.

use async_trait::async_trait;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::PostgresStore;
use super::rows::{self, bigint};
use crate::archive::{Archives, Archiving, BundleRow, Size, Whole};
use crate::error::StoreError;

const ARCHIVE: &str = "
    UPDATE trajectories AS t SET bundle = $4, bundle_sha256 = $5, archived_at = $6
    WHERE t.trajectory = $1 AND t.head_seq = $2 AND t.head_id = $3 AND t.bundle IS NULL
        AND t.status IN ('completed', 'failed', 'cancelled')
        AND NOT EXISTS (SELECT FROM effects WHERE trajectory = $1)";
const ARCHIVED_IN: &str = "
    SELECT FROM trajectories
    WHERE trajectory = $1 AND head_seq = $2 AND head_id = $3 AND bundle_sha256 = $4";
const REMOVE: &str = "DELETE FROM entries WHERE trajectory = $1";
/// A report in the inbox names blobs too, by their digests in hexadecimal.
const REMOVE_BLOBS: &str = "
    DELETE FROM blobs AS b WHERE b.digest = ANY ($1::bytea[]) AND b.put_at < $2
        AND NOT EXISTS (
            SELECT FROM effects
            WHERE position(convert_to(encode(b.digest, 'hex'), 'UTF8') IN bytes) > 0)";
const BRING_BACK: &str = "
    UPDATE trajectories SET bundle = NULL, bundle_sha256 = NULL, archived_at = NULL
    WHERE trajectory = $1 AND head_seq = $2 AND head_id = $3 AND bundle IS NOT NULL";
const INSERT: &str = "
    INSERT INTO entries (trajectory, seq, id, bytes)
    SELECT $1::bytea, e.* FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS e (seq, id, bytes)";
const IS_HERE: &str = "
    SELECT FROM trajectories
    WHERE trajectory = $1 AND head_seq = $2 AND head_id = $3 AND bundle IS NULL";
const BUNDLES: &str = r#"
    SELECT bundle, bundle_sha256, count(*) AS trajectories FROM trajectories
    WHERE bundle IS NOT NULL
    GROUP BY bundle, bundle_sha256 ORDER BY bundle COLLATE "C", bundle_sha256"#;
/// Tables with their indexes and what is stored beside them.
const SIZE: &str = "
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
        AND relkind = 'r'";

#[async_trait]
impl Archives for PostgresStore {
    async fn archive(&self, archiving: &Archiving) -> Result<Option<u64>, StoreError> {
        let Archiving { trajectory, head, archived, blobs, unused_since } = archiving;
        let (id, sha256) =
            (trajectory.as_bytes().as_slice(), archived.sha256.as_bytes().as_slice());
        let (head_seq, head_id) = (bigint(head.seq)?, head.id.as_bytes().as_slice());
        let (at, since) = (bigint(archived.at.0)?, bigint(unused_since.0)?);
        let blobs: Vec<&[u8]> = blobs.iter().map(|digest| digest.as_bytes().as_slice()).collect();
        self.link
            .transact(async |client: &Client| {
                let row: [&(dyn ToSql + Sync); 6] =
                    [&id, &head_seq, &head_id, &archived.bundle, &sha256, &at];
                if client.execute(ARCHIVE, &row).await? == 0 {
                    let there: [&(dyn ToSql + Sync); 4] = [&id, &head_seq, &head_id, &sha256];
                    let there = client.query_opt(ARCHIVED_IN, &there).await?;
                    return Ok(there.map(|_| 0));
                }
                client.execute(REMOVE, &[&id]).await?;
                client.execute(REMOVE_BLOBS, &[&blobs, &since]).await.map(Some)
            })
            .await
    }

    async fn bring_back(&self, whole: &Whole) -> Result<bool, StoreError> {
        let (trajectory, head) = (whole.trajectory(), whole.head());
        let id = trajectory.as_bytes().as_slice();
        let (head_seq, head_id) = (bigint(head.seq)?, head.id.as_bytes().as_slice());
        let entries = whole.entries();
        let seqs: Vec<i64> =
            entries.iter().map(|entry| bigint(entry.seq())).collect::<Result<_, _>>()?;
        let ids: Vec<Vec<u8>> =
            entries.iter().map(|entry| entry.id().as_bytes().to_vec()).collect();
        let bytes: Vec<&[u8]> = entries.iter().map(|entry| entry.bytes()).collect();
        self.link
            .transact(async |client: &Client| {
                let row: [&(dyn ToSql + Sync); 3] = [&id, &head_seq, &head_id];
                if client.execute(BRING_BACK, &row).await? == 0 {
                    return Ok(client.query_opt(IS_HERE, &row).await?.is_some());
                }
                client.execute(INSERT, &[&id, &seqs, &ids, &bytes]).await?;
                Ok(true)
            })
            .await
    }

    async fn bundles(&self) -> Result<Vec<BundleRow>, StoreError> {
        let row = |row: &Row| {
            Ok(BundleRow {
                bundle: rows::get(row, "bundle")?,
                sha256: rows::digest(row, "bundle_sha256")?,
                trajectories: rows::number(row, "trajectories")?,
            })
        };
        self.link.query(BUNDLES, &[]).await?.iter().map(row).collect()
    }

    async fn size(&self) -> Result<Size, StoreError> {
        let found = self.link.query(SIZE, &[]).await?;
        let bytes = found.first().map(|row| rows::number(row, "bytes")).transpose()?;
        Ok(Size { bytes: bytes.unwrap_or_default(), free: 0 })
    }
}
