//! The PostgreSQL store: the suite, the server it talks to, and appends that race or break off.

mod breaks;
mod claims;
mod clocks;
mod cluster;
mod crash;
mod older;
mod races;
mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gesta_core::digest::Digest;
use tokio_postgres::{Client, NoTls};

use crate::place::{Place, url, variable};
use crate::suite::{self, Subject, Time};

conformance!(subject);

async fn subject() -> Subject {
    let store = Place::new().open().await;
    Subject { store: Arc::new(store), time: Time::Real, _home: None }
}

#[tokio::test]
async fn a_damaged_blob_is_an_error() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let admin = place.admin().await;
    let damage = async move |digest: Digest| {
        let sql = "UPDATE blobs SET bytes = '\\x00' WHERE digest = $1";
        assert_eq!(admin.execute(sql, &[&digest.as_bytes().as_slice()]).await.unwrap(), 1);
    };
    let subject = Subject { store, time: Time::Real, _home: None };
    suite::a_damaged_blob_is_an_error(subject, damage).await;
}

impl Place {
    /// A connection beside the store's, to the same tables.
    async fn admin(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let sql = "SELECT set_config('search_path', quote_ident($1), false)";
        client.query(sql, &[&self.name]).await.unwrap();
        client
    }

    /// Waits until so many of the store's statements wait for a lock. On a connection of its own,
    /// since a transaction sees the activity of others as it was when it first looked.
    async fn until_blocked(&self, count: i64) {
        let watcher = self.admin().await;
        let sql = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = $1 AND wait_event_type = 'Lock'";
        let started = Instant::now();
        while watcher.query_one(sql, &[&self.name]).await.unwrap().get::<_, i64>(0) != count {
            assert!(started.elapsed() < Duration::from_secs(20), "nothing waits for a lock");
            tokio::task::yield_now().await; // asking takes time
        }
    }
}

fn authority() -> PathBuf {
    variable("GESTA_TEST_POSTGRES_CA").into()
}
