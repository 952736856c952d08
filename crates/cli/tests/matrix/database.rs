//! Databases on the server that `cargo xtask test` starts: one for each workspace, copied for each
//! case.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::NoTls;

/// Where a workspace says which store it has, if it is not a file.
pub(crate) const NAMED_IN: &str = "store.url";

/// A database. Dropped, it is gone.
pub(crate) struct Database {
    name: String,
}

impl Database {
    /// An empty one, or a copy; a workspace is told of it.
    pub(crate) fn new(of: Option<&Self>, workspace: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        static ONE_COPY_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_COPY_AT_A_TIME.lock().unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gesta_matrix_{}_{number}", std::process::id());
        let template = of.map_or("template1", |of| &of.name);
        run(&format!("CREATE DATABASE {name} TEMPLATE {template}"));
        let server = server();
        let (server, _) = server.rsplit_once('/').unwrap();
        std::fs::write(workspace.join(NAMED_IN), format!("{server}/{name}")).unwrap();
        Self { name }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

fn server() -> String {
    std::env::var("GESTA_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("`GESTA_TEST_POSTGRES` is not set: `cargo xtask test` starts a server and sets it")
    })
}

fn run(sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(sql).await.unwrap();
    });
}
