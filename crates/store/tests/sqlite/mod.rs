//! The SQLite store: the suite, the file, and what happens when the disk does not play along.

mod clocks;
mod faults;
mod file;
mod older;

use std::path::Path;
use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_store::sqlite::{Options, SqliteStore};

use crate::suite::{self, Subject, Time};

conformance!(subject);

async fn subject() -> Subject {
    let (time, clock) = Time::manual();
    let home = tempfile::tempdir().unwrap();
    let options = Options { clock, ..Options::default() };
    let store = SqliteStore::open(home.path().join("gesta.db"), options).unwrap();
    Subject { store: Arc::new(store), time, _home: Some(home) }
}

#[tokio::test]
async fn a_damaged_blob_is_an_error() {
    let subject = subject().await;
    let path = subject._home.as_ref().unwrap().path().join("gesta.db");
    let damage = async move |digest: Digest| {
        let db = rusqlite::Connection::open(&path).unwrap();
        let sql = "UPDATE blobs SET bytes = x'00' WHERE digest = ?1";
        assert_eq!(db.execute(sql, [digest.as_bytes()]).unwrap(), 1);
    };
    suite::a_damaged_blob_is_an_error(subject, damage).await;
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options::default()).unwrap()
}
