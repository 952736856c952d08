//! Leases are on the database's clock. Here it is a table that a test sets: a function of the test's
//! schema stands before the one of the system. No clock of this process shows anything like it.

use std::sync::Arc;

use gesta_store::postgres::{Options, PostgresStore};

use super::{Place, url};
use crate::suite::{NOON, Pair, StoreClock};

clocks!(pair);

async fn pair() -> Pair {
    let place = Place::new();
    let admin = place.admin().await;
    let schema = format!(
        "CREATE SCHEMA \"{}\";
        CREATE TABLE clock AS SELECT 'epoch'::timestamptz AS now;
        CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT now FROM clock'",
        place.name
    );
    admin.batch_execute(&schema).await.unwrap();
    let clock = StoreClock::Database(admin);
    clock.set(NOON).await;
    // The system's own names are looked up first, unless the path gives them another place.
    let path = format!("-c%20search_path%3D%22{}%22%2Cpg_catalog", place.name);
    let url = format!("{}?options={path}", url());
    let open = async || PostgresStore::connect(&url, &Options::default()).await.unwrap();
    let stores = [Arc::new(open().await) as _, Arc::new(open().await) as _];
    Pair { stores, clock, _home: None }
}
