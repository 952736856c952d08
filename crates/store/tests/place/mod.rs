//! Where tests of the PostgreSQL store have their tables: each in a schema of its own, on the server
//! that `cargo xtask test` starts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use gesta_store::postgres::{Options, PostgresStore};

/// An empty schema of the server. Its name is also the name of the connections that it opens.
pub(crate) struct Place {
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // A server that runs for long sees processes with the same number.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        Self { name: format!("test-{since}-{}-{count}", std::process::id()) }
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            application_name: self.name.clone(),
            schema: Some(self.name.clone()),
            ..Options::default()
        }
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        PostgresStore::connect(&url(), &self.options()).await.unwrap()
    }
}

pub(crate) fn url() -> String {
    variable("GESTA_TEST_POSTGRES")
}

#[expect(clippy::panic, reason = "a test fails by panicking")]
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("`{name}` is not set: run `cargo xtask test`, which starts a server")
    })
}
