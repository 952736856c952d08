//! Data keys in a schema of their own, `gesta_keys`, so that many workers on many machines have them.
//! Whoever dumps the database leaves the schema out (`pg_dump --exclude-schema=gesta_keys`), or keeps
//! the keys in another database.

use std::sync::Arc;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use tokio::sync::OnceCell;

use super::connect::{Link, Server};
use super::rows;
use super::{Options, schema};
use crate::data_keys::{DataKey, DataKeys, Kept, no_key};
use crate::error::StoreError;

/// The schema, unless the store's own has a name: then that, with this behind it.
const SCHEMA: &str = "gesta_keys";
const CONNECTIONS: usize = 2;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS data_keys (
        trajectory bytea PRIMARY KEY, digest bytea NOT NULL, key bytea);
    CREATE TABLE IF NOT EXISTS openings (
        trajectory bytea NOT NULL, commitment bytea NOT NULL, blob bytea NOT NULL,
        PRIMARY KEY (trajectory, commitment))";
const FOUND: &str = "SELECT to_regclass('openings') IS NOT NULL";
const ENSURE: &str = "
    INSERT INTO data_keys (trajectory, digest, key) VALUES ($1, $2, $3)
    ON CONFLICT (trajectory) DO NOTHING";
const KEY: &str = "SELECT digest, key FROM data_keys WHERE trajectory = $1";
const NOTE: &str = "
    INSERT INTO openings (trajectory, commitment, blob)
    SELECT k.trajectory, o.commitment, o.blob
    FROM data_keys AS k, unnest($2::bytea[], $3::bytea[]) AS o (commitment, blob)
    WHERE k.trajectory = $1 AND k.key IS NOT NULL
    ON CONFLICT (trajectory, commitment) DO UPDATE SET blob = openings.blob
    RETURNING commitment";
const OPENING: &str = "SELECT blob FROM openings WHERE trajectory = $1 AND commitment = $2";
const DESTROY: &str = "
    WITH gone AS (DELETE FROM openings WHERE trajectory = $1)
    UPDATE data_keys SET key = NULL WHERE trajectory = $1";
const DESTROYED: &str =
    "SELECT trajectory, digest FROM data_keys WHERE key IS NULL ORDER BY trajectory";
/// The row as it was stays in the table's file until it is written anew.
const REWRITE: &str = "VACUUM FULL data_keys";

/// Data keys in a database. Connects when it is first asked.
pub struct PostgresDataKeys {
    server: Server,
    link: OnceCell<Link>,
}

impl PostgresDataKeys {
    /// The keys in the database of a URL. Nothing is connected yet.
    pub fn new(url: &str, options: &Options) -> Result<Self, StoreError> {
        let schema = match &options.schema {
            Some(schema) => format!("{schema}_keys"),
            None => SCHEMA.to_owned(),
        };
        let options = Options { schema: Some(schema), ..options.clone() };
        Ok(Self { server: Server::new(url, &options)?, link: OnceCell::new() })
    }

    async fn link(&self) -> Result<&Link, StoreError> {
        let connect = || async {
            schema::create(&self.server, FOUND, TABLES).await?;
            self.server.pool(CONNECTIONS)
        };
        self.link.get_or_try_init(connect).await
    }

    async fn look(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        let link = self.link().await?;
        let found = link.query(KEY, &[&trajectory.as_bytes().as_slice()]).await?;
        let Some(row) = found.first() else { return Ok(Kept::Nothing) };
        let damaged = || StoreError::Damaged { what: "a data key has not 32 bytes".to_owned() };
        let array = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).map_err(|_| damaged());
        match rows::get::<Option<Vec<u8>>>(row, "key")?.map(zeroize::Zeroizing::new) {
            Some(key) => Ok(Kept::Key(DataKey::new(array(&key)?))),
            None => {
                let digest: Vec<u8> = rows::get(row, "digest")?;
                Ok(Kept::Destroyed(Digest::from_bytes(array(&digest)?)))
            }
        }
    }
}

#[async_trait]
impl DataKeys for PostgresDataKeys {
    fn place(&self) -> String {
        let schema = self.server.schema().unwrap_or(SCHEMA);
        format!("schema `{schema}` of {}", Arc::clone(&self.server.place))
    }

    async fn ensure(&self, trajectory: TrajectoryId, fresh: &DataKey) -> Result<Kept, StoreError> {
        let (id, digest) = (trajectory.as_bytes().as_slice(), fresh.digest());
        let key = fresh.expose().as_slice();
        self.link().await?.query(ENSURE, &[&id, &digest.as_bytes().as_slice(), &key]).await?;
        self.look(trajectory).await
    }

    async fn key(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        self.look(trajectory).await
    }

    async fn note(
        &self,
        trajectory: TrajectoryId,
        openings: &[(Digest, Digest)],
    ) -> Result<(), StoreError> {
        let commitments: Vec<&[u8]> =
            openings.iter().map(|(commitment, _)| commitment.as_bytes().as_slice()).collect();
        let blobs: Vec<&[u8]> =
            openings.iter().map(|(_, blob)| blob.as_bytes().as_slice()).collect();
        let id = trajectory.as_bytes().as_slice();
        let noted = self.link().await?.query(NOTE, &[&id, &commitments, &blobs]).await?;
        if noted.len() < openings.len() {
            return Err(no_key(trajectory));
        }
        Ok(())
    }

    async fn opening(
        &self,
        trajectory: TrajectoryId,
        commitment: Digest,
    ) -> Result<Option<Digest>, StoreError> {
        let (id, commitment) = (trajectory.as_bytes().as_slice(), commitment.as_bytes().as_slice());
        let found = self.link().await?.query(OPENING, &[&id, &commitment]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let blob: Vec<u8> = rows::get(row, "blob")?;
        let damaged = |_| StoreError::Damaged { what: "an opening's blob is no digest".to_owned() };
        <[u8; 32]>::try_from(blob.as_slice())
            .map(|blob| Some(Digest::from_bytes(blob)))
            .map_err(damaged)
    }

    async fn destroy(&self, trajectory: TrajectoryId) -> Result<Kept, StoreError> {
        let link = self.link().await?;
        link.query(DESTROY, &[&trajectory.as_bytes().as_slice()]).await?;
        link.query(REWRITE, &[]).await?;
        self.look(trajectory).await
    }

    async fn destroyed(&self) -> Result<Vec<(TrajectoryId, Digest)>, StoreError> {
        let found = self.link().await?.query(DESTROYED, &[]).await?;
        let row = |row| {
            let (trajectory, digest): (Vec<u8>, Vec<u8>) =
                (rows::get(row, "trajectory")?, rows::get(row, "digest")?);
            let read = || {
                let trajectory = <[u8; 16]>::try_from(trajectory.as_slice()).ok()?;
                let digest = <[u8; 32]>::try_from(digest.as_slice()).ok()?;
                Some((TrajectoryId::from_bytes(trajectory), Digest::from_bytes(digest)))
            };
            let what = || "the row of a data key that was destroyed".to_owned();
            read().ok_or_else(|| StoreError::Damaged { what: what() })
        };
        found.iter().map(row).collect()
    }
}
