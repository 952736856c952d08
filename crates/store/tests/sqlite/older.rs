//! Files of every older version, filled, opened by the present program.

use std::fs;
use std::path::Path;

use gesta_store::sqlite::{self, Options, SqliteStore};
use gesta_store::{Store as _, StoreError};
use rusqlite::Connection;

use crate::suite::{self, Has, Past, Time};

/// Every migration, in order.
fn migrations() -> Vec<String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite");
    let mut found: Vec<(u32, String)> = fs::read_dir(home)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let number = name.trim_start_matches('V').split("__").next().unwrap().parse().unwrap();
            (number, fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, sql)| sql).collect()
}

fn columns(db: &Connection, schema: &str, table: &str) -> Vec<String> {
    let sql = "SELECT name FROM pragma_table_info(?1, ?2)";
    let mut names = db.prepare(sql).unwrap();
    names.query_map([table, schema], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// A file of this version with what it could hold of `from`.
fn older(path: &Path, migrations: &[String], from: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL;").unwrap();
    for migration in migrations {
        db.execute_batch(migration).unwrap();
    }
    db.pragma_update(None, "application_id", 0x4765_7374).unwrap();
    db.pragma_update(None, "user_version", migrations.len()).unwrap();
    db.execute("ATTACH ?1 AS present", [from.to_str().unwrap()]).unwrap();
    let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> =
        db.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().flatten().collect();
    // Leases are of the moment.
    for table in tables.iter().filter(|table| !["workers", "shares"].contains(&table.as_str())) {
        let present = columns(&db, "present", table);
        let mut kept = columns(&db, "main", table);
        kept.retain(|column| present.contains(column));
        let kept = kept.join(", ");
        db.execute_batch(&format!(
            "DELETE FROM main.{table};
            INSERT INTO main.{table} ({kept}) SELECT {kept} FROM present.{table};"
        ))
        .unwrap();
    }
}

/// A file as it is now, and what is in it.
async fn filled(present: &Path, options: &Options) -> (SqliteStore, Past) {
    let original = SqliteStore::open(present, options.clone()).unwrap();
    let past = suite::fill(&original).await;
    (original, past)
}

#[tokio::test]
async fn a_file_of_every_older_version_is_brought_up_to_date() {
    let migrations = migrations();
    let home = tempfile::tempdir().unwrap();
    let present = home.path().join("present.db");
    let options = Options { clock: Time::manual().1, ..Options::default() };
    let (original, past) = filled(&present, &options).await;
    for version in 1..migrations.len() {
        let old = home.path().join(format!("version-{version}.db"));
        older(&old, &migrations[..version], &present);
        let opened = SqliteStore::open(&old, options.clone()).unwrap();
        suite::goes_on(&opened, &original, past.clone(), has(version)).await;
        drop(opened);
        let db = Connection::open(&old).unwrap();
        let now: usize = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(now, migrations.len());
    }
}

/// What a file of this version has.
fn has(version: usize) -> Has {
    Has { queues: version >= 2, accounts: version >= 3, notices: version >= 4 }
}

/// Whoever only looks sees what the newest tables would hold, and leaves the file as it was.
#[tokio::test]
async fn reading_a_file_of_an_older_version_changes_nothing() {
    let migrations = migrations();
    let home = tempfile::tempdir().unwrap();
    let present = home.path().join("present.db");
    let options = Options { clock: Time::manual().1, ..Options::default() };
    let (original, past) = filled(&present, &options).await;
    for version in 1..=migrations.len() {
        let old = home.path().join(format!("version-{version}.db"));
        older(&old, &migrations[..version], &present);
        let before = fs::read(&old).unwrap();
        let found = sqlite::schema(&old).unwrap();
        assert_eq!((found.version, found.newest), (version, migrations.len()));
        let opened = SqliteStore::open_to_read(&old, options.clone()).unwrap();
        suite::holds(&opened, &original, &past, has(version)).await;
        if version < migrations.len() {
            let refused = opened.put_blob(b"more").await.unwrap_err();
            assert!(matches!(refused, StoreError::ReadOnly { .. }), "{refused}");
        }
        drop(opened);
        assert!(fs::read(&old).unwrap() == before, "version {version} was changed");
        let beside = |what: &str| home.path().join(format!("version-{version}.db-{what}"));
        assert!(!beside("wal").exists() && !beside("shm").exists());
    }
}

/// A file that is no store yet is not made one by looking.
#[tokio::test]
async fn reading_makes_no_store() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("empty.db");
    fs::write(&path, b"").unwrap();
    let refused = SqliteStore::open_to_read(&path, Options::default()).err().unwrap();
    assert!(refused.to_string().contains("there is no store in it"), "{refused}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

/// SQLite takes a file that is shorter than a page for an empty one.
#[tokio::test]
async fn a_file_of_another_kind_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notes.txt");
    for length in [1, 15, 16, 511, 5_000] {
        fs::write(&path, "x".repeat(length)).unwrap();
        for open in [SqliteStore::open, SqliteStore::open_to_read] {
            let refused = open(&path, Options::default()).err().unwrap();
            assert!(refused.to_string().contains("not a database"), "{length}: {refused}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "x".repeat(length));
    }
}
