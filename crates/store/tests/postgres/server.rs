//! Which servers are used and which are refused, and who makes the tables.

use std::fmt::Debug;

use gesta_store::postgres::{Options, PostgresStore};
use gesta_store::{Listing, Store as _, StoreError};

use super::cluster::Cluster;
use super::{Place, authority, url};

const ANOTHER_AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBjzCCATWgAwIBAgIUcz5mUP/19qettfe4johYUotgVXcwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYW5vdGhlciBhdXRob3JpdHkwIBcNMjYxMTE1MjM1MjM0WhgP
MjEyNjEwMjIyMzUyMzRaMBwxGjAYBgNVBAMMEWFub3RoZXIgYXV0aG9yaXR5MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEQfFPHy57na2xWWh5a7hAYckUy5Kc3IXB
nufyouSBejo+iDkyhYpp/AGtXEI5McGpud5LvH5RQdgkB9xoNbZZp6NTMFEwHQYD
VR0OBBYEFKkScspgMeXZ/Hyj22qx3cubMhS8MB8GA1UdIwQYMBaAFKkScspgMeXZ
/Hyj22qx3cubMhS8MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIg
REpttfG4eePpQ2SjugqKjT/nt4aEB2rqkueW71jNZ3oCIQCI2A/LB4NPqfTTS4b2
3SBtPSnj83Diuy5f5zqGpqcCEg==
-----END CERTIFICATE-----
";

/// Whether the connections of a place are encrypted.
async fn encrypted(place: &Place) -> Vec<bool> {
    let sql = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = $1";
    let rows = place.admin().await.query(sql, &[&place.name]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_server_of_the_given_authority_is_believed() {
    let place = Place::new();
    let options = Options { ca_file: Some(authority()), ..place.options() };
    let store = PostgresStore::connect(&url(), &options).await.unwrap();
    assert_eq!(store.list(&Listing::default(), 1).await.unwrap(), []);
    assert_eq!(encrypted(&place).await, [true]);
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let place = Place::new();
    let home = tempfile::tempdir().unwrap();
    let other = home.path().join("another.crt");
    std::fs::write(&other, ANOTHER_AUTHORITY).unwrap();
    let given = Options { ca_file: Some(other), ..place.options() };
    let required = format!("{}?sslmode=require", url());
    for (url, options) in [(&url(), &given), (&required, &place.options())] {
        let refused = PostgresStore::connect(url, options).await.unwrap_err().to_string();
        assert!(refused.contains("certificate"), "{refused}");
    }
    let nothing = home.path().join("empty.crt");
    std::fs::write(&nothing, "").unwrap();
    let empty = Options { ca_file: Some(nothing), ..place.options() };
    let refused = PostgresStore::connect(&url(), &empty).await.unwrap_err().to_string();
    assert!(refused.contains("empty.crt"), "{refused}");
}

#[tokio::test]
async fn the_url_decides_on_encryption() {
    for (mode, expected) in [("prefer", true), ("disable", false)] {
        let place = Place::new();
        let url = format!("{}?sslmode={mode}", url());
        let store = PostgresStore::connect(&url, &place.options()).await.unwrap();
        assert_eq!(store.list(&Listing::default(), 1).await.unwrap(), []);
        assert_eq!(encrypted(&place).await, [expected], "{mode}");
    }
    let disabled = format!("{}?sslmode=disable", url());
    let options = Options { ca_file: Some(authority()), ..Options::default() };
    let refused = PostgresStore::connect(&disabled, &options).await.unwrap_err().to_string();
    assert!(refused.contains("sslmode=disable"), "{refused}");
}

#[tokio::test]
async fn connections_commit_durably_whatever_the_url_says() {
    let place = Place::new();
    let url = format!("{}?options=-c%20synchronous_commit%3Doff", url());
    let store = PostgresStore::connect(&url, &place.options()).await.unwrap();
    let admin = place.admin().await;
    let spy = "CREATE TABLE seen AS SELECT current_setting('fsync') AS setting LIMIT 0;
        CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO seen SELECT current_setting('synchronous_commit'); RETURN NEW; END $$;
        CREATE TRIGGER spy BEFORE INSERT ON blobs FOR EACH ROW EXECUTE FUNCTION spy()";
    admin.batch_execute(spy).await.unwrap();
    store.put_blob(b"durable").await.unwrap();
    let seen: String = admin.query_one("SELECT setting FROM seen", &[]).await.unwrap().get(0);
    assert_eq!(seen, "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_start_at_once() {
    let place = Place::new();
    let starts = (0..12).map(|_| {
        let options = place.options();
        tokio::spawn(async move { PostgresStore::connect(&url(), &options).await })
    });
    for start in starts.collect::<Vec<_>>() {
        let store = start.await.unwrap().unwrap();
        assert_eq!(store.list(&Listing::default(), 1).await.unwrap(), []);
    }
    let applied =
        "SELECT count(*), count(DISTINCT version), max(version)::bigint FROM gesta_migrations";
    let applied = place.admin().await.query_one(applied, &[]).await.unwrap();
    let [rows, versions, newest]: [i64; 3] = std::array::from_fn(|column| applied.get(column));
    assert_eq!((rows, versions), (newest, newest), "each once, none left out");
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let place = Place::new();
    drop(place.open().await);
    let admin = place.admin().await;
    let newer = "INSERT INTO gesta_migrations (version, name, applied_on, checksum)
        VALUES (1000, 'later', '2100-01-01T00:00:00Z', '0')";
    admin.execute(newer, &[]).await.unwrap();
    admin.batch_execute("DROP TABLE blobs").await.unwrap();
    let refused = PostgresStore::connect(&url(), &place.options()).await.unwrap_err();
    let StoreError::Newer { found: 1000, known: ..1000, place: named } = refused else {
        panic!("{refused}")
    };
    assert!(!named.contains("gesta:"), "{named}");
    let blobs = admin.query_one("SELECT to_regclass('blobs') IS NULL", &[]).await.unwrap();
    assert!(blobs.get::<_, bool>(0), "something was changed");
}

#[tokio::test]
async fn tables_are_used_without_the_right_to_make_them() {
    let place = Place::new();
    drop(place.open().await);
    let admin = place.admin().await;
    let role = format!("user-{}", place.name);
    let grants = format!(
        "CREATE ROLE \"{role}\" LOGIN PASSWORD 'pw';
        GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO \"{role}\"",
        schema = place.name,
    );
    admin.batch_execute(&grants).await.unwrap();
    let url = url().replace("gesta:gesta@", &format!("{role}:pw@"));
    let store = PostgresStore::connect(&url, &place.options()).await.unwrap();
    store.put_blob(b"mine").await.unwrap();
}

#[tokio::test]
async fn a_server_without_fsync_is_refused() {
    let forgetful = Cluster::start(&["fsync=off"]).await;
    let refused = PostgresStore::connect(&forgetful.url(), &Options::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unsafe { .. }), "{refused}");
    assert!(refused.to_string().contains("fsync = on"), "{refused}");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let admin = forgetful.admin().await;
    let tables: i64 = admin.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(tables, 0, "nothing was changed");
}

#[tokio::test]
async fn passwords_stay_secret() {
    const SECRET: &str = "s3cr3t";
    let place = Place::new();
    let wrong = url().replace("gesta:gesta@", &format!("gesta:{SECRET}@"));
    assert!(wrong.contains(SECRET));
    let bad = [
        wrong.clone(),
        format!("{wrong}?sslmode=verify-full"),
        format!("postgres://gesta:{SECRET}@127.0.0.1:1/postgres"),
        format!("postgres://gesta:{SECRET}@no-such-host.invalid/postgres"),
        format!("postgres://gesta:?{SECRET}@127.0.0.1/postgres"),
        format!("postgres://gesta:%zz{SECRET}@127.0.0.1/postgres"),
        format!("host=127.0.0.1 password=two {SECRET}=words"),
        format!("gesta:{SECRET}"),
    ];
    for url in bad {
        let refused = PostgresStore::connect(&url, &place.options()).await.unwrap_err();
        assert_silent(&refused, SECRET);
        assert!(!refused.to_string().contains(SECRET), "{refused}");
        assert!(matches!(refused, StoreError::Unreachable { .. }), "{refused}");
    }
    let store = place.open().await;
    assert!(!store.place().contains("gesta"), "{}", store.place());
    assert_silent(&store, "gesta:");
}

fn assert_silent(value: &impl Debug, secret: &str) {
    let text = format!("{value:?}");
    assert!(!text.contains(secret), "{text}");
}
