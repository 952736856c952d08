//! Data keys: kept until they are destroyed, and never again after; on everything that keeps them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "postgres")]
use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_store::{DataKey, DataKeys, Kept, MemoryDataKeys};

const ONE: TrajectoryId = TrajectoryId::from_bytes([1; 16]);
const TWO: TrajectoryId = TrajectoryId::from_bytes([2; 16]);

async fn keeps(keys: &dyn DataKeys) {
    let (first, second) = (DataKey::new([1; 32]), DataKey::new([2; 32]));
    assert_eq!(keys.key(ONE).await.unwrap(), Kept::Nothing);
    assert_eq!(keys.destroy(ONE).await.unwrap(), Kept::Nothing);
    let (commitment, blob) = (Digest::of(b"commitment"), Digest::of(b"blob"));
    assert!(keys.note(ONE, &[(commitment, blob)]).await.is_err());
    assert_eq!(keys.ensure(ONE, &first).await.unwrap(), Kept::Key(first.clone()));
    assert_eq!(keys.ensure(ONE, &second).await.unwrap(), Kept::Key(first.clone()));
    assert_eq!(keys.ensure(TWO, &second).await.unwrap(), Kept::Key(second.clone()));

    keys.note(ONE, &[(commitment, blob), (Digest::of(b"other"), blob)]).await.unwrap();
    keys.note(ONE, &[(commitment, Digest::of(b"another"))]).await.unwrap();
    assert_eq!(keys.opening(ONE, commitment).await.unwrap(), Some(blob));
    assert_eq!(keys.opening(TWO, commitment).await.unwrap(), None);

    assert_eq!(keys.destroyed().await.unwrap(), []);
    let destroyed = Kept::Destroyed(first.digest());
    assert_eq!(keys.destroy(ONE).await.unwrap(), destroyed);
    assert_eq!(keys.destroy(ONE).await.unwrap(), destroyed);
    assert_eq!(keys.key(ONE).await.unwrap(), destroyed);
    assert_eq!(keys.ensure(ONE, &second).await.unwrap(), destroyed);
    assert_eq!(keys.opening(ONE, commitment).await.unwrap(), None);
    assert!(keys.note(ONE, &[(commitment, blob)]).await.is_err());
    assert_eq!(keys.key(TWO).await.unwrap(), Kept::Key(second));
    assert_eq!(keys.destroyed().await.unwrap(), [(ONE, first.digest())]);
}

#[tokio::test]
async fn memory_keeps_keys() {
    keeps(&MemoryDataKeys::default()).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_keeps_keys_and_nothing_of_those_that_are_destroyed() {
    use std::os::unix::fs::PermissionsExt as _;

    use gesta_store::sqlite::SqliteDataKeys;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("keys");
    let keys = SqliteDataKeys::at(&path);
    assert_eq!(keys.key(ONE).await.unwrap(), Kept::Nothing);
    assert!(!path.exists(), "looking makes no file");
    keeps(&keys).await;
    let bytes = std::fs::read(&path).unwrap();
    let holds = |byte: u8| bytes.windows(32).any(|window| window == [byte; 32]);
    assert!(holds(2) && !holds(1));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "no journal is left");

    // Another process sees the same; a file that others can read is refused.
    assert!(matches!(SqliteDataKeys::at(&path).key(TWO).await.unwrap(), Kept::Key(_)));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = SqliteDataKeys::at(&path).key(TWO).await.unwrap_err().to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
    // One that is gone is gone for whoever had it open, too.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(keys.key(TWO).await.unwrap(), Kept::Nothing);
    // A file of something else is left alone.
    let other = rusqlite::Connection::open(home.path().join("other")).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    std::fs::set_permissions(home.path().join("other"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    assert!(SqliteDataKeys::at(home.path().join("other")).key(TWO).await.is_err());
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_keeps_keys_in_a_schema_of_their_own() {
    use gesta_store::postgres::{Options, PostgresDataKeys};
    let url = std::env::var("GESTA_TEST_POSTGRES").unwrap();
    let schema = format!("data_keys_{}", std::process::id());
    let options = Options { schema: Some(schema.clone()), ..Options::default() };
    let keys = Arc::new(PostgresDataKeys::new(&url, &options).unwrap());
    assert!(keys.place().contains(&format!("{schema}_keys")), "{}", keys.place());
    keeps(&*keys).await;
    // Two that connect at once make the tables once.
    let (one, two) = (
        PostgresDataKeys::new(
            &url,
            &Options { schema: Some(format!("{schema}_2")), ..Options::default() },
        )
        .unwrap(),
        PostgresDataKeys::new(
            &url,
            &Options { schema: Some(format!("{schema}_2")), ..Options::default() },
        )
        .unwrap(),
    );
    let key = DataKey::new([3; 32]);
    let (one, two) = tokio::join!(one.ensure(ONE, &key), two.ensure(ONE, &key));
    assert_eq!(one.unwrap(), two.unwrap());
}
