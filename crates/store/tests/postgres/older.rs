//! Tables of every older version, filled, opened by the present program.

use std::fs;
use std::path::Path;

use gesta_store::StoreError;
use gesta_store::postgres::PostgresStore;
use refinery::{Migration, Runner, Target};

use crate::place::{self, Place};
use crate::suite::{self, Has};

/// Every migration, in order.
fn migrations() -> Vec<Migration> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/postgres");
    let mut found: Vec<Migration> = fs::read_dir(home)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            Migration::unapplied(name, &fs::read_to_string(&path).unwrap()).unwrap()
        })
        .collect();
    found.sort();
    found
}

const TABLES: &str = "
    SELECT tablename::text FROM pg_tables
    WHERE schemaname = $1 AND tablename NOT IN ('workers', 'shares', 'gesta_migrations')";
/// Columns that both have, but for those that are computed.
const COLUMNS: &str = "
    SELECT coalesce(string_agg(quote_ident(column_name), ', '), '') FROM information_schema.columns AS old
    WHERE table_schema = $1 AND table_name = $3 AND is_generated = 'NEVER' AND EXISTS (
        SELECT 1 FROM information_schema.columns AS present WHERE table_schema = $2
            AND table_name = $3 AND present.column_name = old.column_name)";

/// The tables of this version, with what they could hold of `from`.
async fn older(place: &Place, version: i32, from: &Place) {
    let mut admin = place.admin().await;
    let (old, present) = (&place.name, &from.name);
    admin.batch_execute(&format!("CREATE SCHEMA \"{old}\"")).await.unwrap();
    let mut runner = Runner::new(&migrations()).set_target(Target::Version(version));
    runner.set_migration_table_name("gesta_migrations");
    runner.run_async(&mut admin).await.unwrap();
    for row in admin.query(TABLES, &[old]).await.unwrap() {
        let table: String = row.get(0);
        let columns = admin.query_one(COLUMNS, &[old, present, &table]).await.unwrap();
        let columns: String = columns.get(0);
        let copy = format!(
            "DELETE FROM \"{old}\".{table};
            INSERT INTO \"{old}\".{table} ({columns}) SELECT {columns} FROM \"{present}\".{table};"
        );
        admin.batch_execute(&copy).await.unwrap();
    }
}

async fn looked(place: &Place) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect_to_read(&place::url(), &place.options()).await
}

#[tokio::test]
async fn tables_of_every_older_version_are_brought_up_to_date() {
    let newest = migrations().last().unwrap().version();
    let present = Place::new();
    let original = present.open().await;
    let past = suite::fill(&original).await;
    for version in 1..newest {
        let old = Place::new();
        older(&old, version, &present).await;
        let refused = looked(&old).await.err().unwrap();
        let StoreError::Older { found, .. } = refused else { panic!("{refused}") };
        assert_eq!(i32::try_from(found).unwrap(), version);
        let opened = old.open().await;
        let has = Has { queues: version >= 2, accounts: version >= 3, notices: version >= 4 };
        suite::goes_on(&opened, &original, past.clone(), has).await;
        looked(&old).await.unwrap();
    }
}

/// A schema without tables is not given any by looking.
#[tokio::test]
async fn reading_makes_no_tables() {
    let place = Place::new();
    for _ in 0..2 {
        let refused = looked(&place).await.err().unwrap();
        assert!(refused.to_string().contains("there is no store in it"), "{refused}");
    }
}
