//! Files of every older version, filled, opened by the present program.

use std::fs;
use std::path::Path;

use gesta_store::sqlite::{Options, SqliteStore};
use rusqlite::Connection;

use crate::suite::{self, Has, Time};

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

#[tokio::test]
async fn a_file_of_every_older_version_is_brought_up_to_date() {
    let migrations = migrations();
    let home = tempfile::tempdir().unwrap();
    let present = home.path().join("present.db");
    let (_, clock) = Time::manual();
    let options = Options { clock, ..Options::default() };
    let original = SqliteStore::open(&present, options.clone()).unwrap();
    let past = suite::fill(&original).await;
    for version in 1..migrations.len() {
        let old = home.path().join(format!("version-{version}.db"));
        older(&old, &migrations[..version], &present);
        let opened = SqliteStore::open(&old, options.clone()).unwrap();
        let has = Has { queues: version >= 2, accounts: version >= 3, notices: version >= 4 };
        suite::goes_on(&opened, &original, past.clone(), has).await;
        drop(opened);
        let db = Connection::open(&old).unwrap();
        let now: usize = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(now, migrations.len());
    }
}
