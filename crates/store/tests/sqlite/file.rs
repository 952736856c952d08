//! The file: whose it is, which version it has, who else has it open.

use std::fs;
use std::path::Path;

use gesta_core::time::UnixMs;
use gesta_store::sqlite::{Options, SqliteStore};
use gesta_store::{Listing, Store as _, StoreError};

use super::open;
use crate::suite::{Job, fold};

fn refusal(path: &Path) -> StoreError {
    SqliteStore::open(path, Options::default()).err().unwrap()
}

#[tokio::test]
async fn a_file_survives_its_store() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let mut job = Job::new(1, UnixMs(1_000));
    for admitted in [job.begin(), job.attempt("w"), job.wait_for_both("w")] {
        open(&path).append(admitted).await.unwrap();
        assert!(!home.path().join("gesta.db-wal").exists(), "the WAL outlived the store");
    }
    assert_eq!(fold(&open(&path), job.id()).await, job.state);
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_its_owners() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let store = open(&path);
    store.put_blob(b"private").await.unwrap();
    for name in ["gesta.db", "gesta.db-wal", "gesta.db-shm"] {
        let mode = fs::metadata(home.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_newer_file_is_refused_untouched() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    drop(open(&path));
    let db = rusqlite::Connection::open(&path).unwrap();
    let known: u32 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    db.pragma_update(None, "user_version", known + 1).unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    let place = path.display().to_string();
    assert_eq!(refusal(&path), StoreError::Newer { place, found: known + 1, known });
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_of_another_program_is_refused_untouched() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("other.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    assert!(refusal(&path).to_string().ends_with("it is a database of another program"));
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::write(&path, "certainly not a database, but long enough to be taken for one".repeat(99))
        .unwrap();
    assert!(matches!(refusal(&path), StoreError::Damaged { .. }));
}

#[test]
fn a_file_without_a_directory_is_unreachable() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("missing").join("gesta.db");
    assert!(matches!(refusal(&place), StoreError::Unreachable { .. }));
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_damage() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let store = open(&path);
    let mut job = Job::new(1, UnixMs(1_000));
    store.append(job.begin()).await.unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE trajectories SET status = 'confused'", []).unwrap();
    let error = store.list(&Listing::default(), 10).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }));
    assert!(error.to_string().contains("`confused`"), "{error}");
}
