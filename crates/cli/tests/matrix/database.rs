//! Databases on the server that `cargo xtask test` starts: one for each workspace, whose rows are given to the
//! cases. To make and to drop a database costs a server more than all else that a case asks of it, so cases take
//! over the databases of those that are over.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use tokio_postgres::{NoTls, SimpleQueryMessage, SimpleQueryRow};

/// Where a workspace says which store it has, if it is not a file.
pub(crate) const NAMED_IN: &str = "store.url";

/// Databases that nobody has at the moment.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A database of a workspace. Dropped, it is gone.
pub(crate) struct Original {
    name: String,
    /// Statements that give another database with the same tables the same rows.
    rows: OnceLock<String>,
}

/// A database with the same rows, of a case.
pub(crate) struct Copy {
    name: String,
}

impl Original {
    /// An empty one; a workspace is told of it.
    pub(crate) fn new(workspace: &Path) -> Self {
        let name = make("template1");
        tell(workspace, &name);
        Self { name, rows: OnceLock::new() }
    }

    /// A copy as it is now; a workspace is told of it.
    pub(crate) fn copy(&self, workspace: &Path) -> Copy {
        let rows = self.rows.get_or_init(|| rows(&self.name));
        let free = FREE.lock().unwrap().pop();
        let name = free.unwrap_or_else(|| make(&self.name));
        // Whoever was killed may have left a session.
        let alone = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
        ask(&name, &format!("{alone}; BEGIN; {rows} COMMIT"));
        tell(workspace, &name);
        Copy { name }
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        FREE.lock().unwrap().push(std::mem::take(&mut self.name));
    }
}

/// Drops the databases of the cases that are over.
pub(crate) fn clear() {
    for name in std::mem::take(&mut *FREE.lock().unwrap()) {
        remove(&name);
    }
}

fn make(template: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("gesta_matrix_{}_{number}", std::process::id());
    ask("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}"));
    name
}

fn remove(name: &str) {
    ask("postgres", &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
}

fn tell(workspace: &Path, name: &str) {
    std::fs::write(workspace.join(NAMED_IN), format!("{}/{name}", server())).unwrap();
}

/// What gives every table the rows that it has in this database, and no others.
fn rows(database: &str) -> String {
    let tables = "SELECT table_name, string_agg(quote_ident(column_name), ',')
                  FROM information_schema.columns
                  WHERE table_schema = 'public' AND is_generated = 'NEVER' GROUP BY table_name";
    let mut statements = String::new();
    for table in ask(database, tables) {
        let (name, columns) = (table.get(0).unwrap(), table.get(1).unwrap());
        let there = ask(database, &format!("SELECT json_agg(t)::text FROM {name} t"));
        statements += &format!("DELETE FROM {name};");
        if let Some(rows) = there.first().and_then(|row| row.get(0)) {
            statements += &format!(
                "INSERT INTO {name} ({columns}) SELECT {columns} FROM
                 json_populate_recordset(NULL::{name}, $rows${rows}$rows$);"
            );
        }
    }
    assert!(statements.contains("INSERT INTO entries"), "{statements}");
    statements
}

/// The server, without a database: by its socket, which asks for no password. A password costs the one who
/// gives it more than all else that a short process does, and a case has half a dozen processes.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| {
        let url = std::env::var("GESTA_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!(
                "`GESTA_TEST_POSTGRES` is not set: `cargo xtask test` starts a server and sets it"
            )
        });
        let asked = "SELECT current_setting('unix_socket_directories'), current_setting('port')";
        let told = ask_at(&url, asked);
        let directory = told[0].get(0).unwrap().replace('/', "%2F");
        format!("postgres://gesta@{directory}:{}", told[0].get(1).unwrap())
    })
}

fn ask(database: &str, sql: &str) -> Vec<SimpleQueryRow> {
    ask_at(&format!("{}/{database}", server()), sql)
}

/// Runs statements; their rows.
fn ask_at(url: &str, sql: &str) -> Vec<SimpleQueryRow> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let told = client.simple_query(sql).await.unwrap();
        let rows = told.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.collect()
    })
}
