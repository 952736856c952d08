//! What the tests share: a catalogue from TOML, a call, a pipe that tells who is still alive.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use gesta_core::document::Certainty;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_runtime::tools::{Call, Catalogue, CatalogueError, ProcessOptions, Reply};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

/// Longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Much longer still, so that what ends in time was not ended by its deadline.
const LONG: Duration = Duration::from_secs(600);

pub(crate) fn options() -> ProcessOptions {
    ProcessOptions { supervisor: vec![env!("CARGO_BIN_EXE_gesta-supervisor").into()] }
}

/// A directory with files, and the tools declared in it.
pub(crate) struct World {
    pub(crate) dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// An executable script for `/bin/sh`.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.write(name, format!("#!/bin/sh\n{body}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) fn try_catalogue(&self, toml: &str) -> Result<Catalogue, CatalogueError> {
        Catalogue::builder().process(options()).file("tools.toml", toml, self.dir.path())?.build()
    }

    pub(crate) fn catalogue(&self, toml: &str) -> Catalogue {
        self.try_catalogue(toml).unwrap()
    }

    /// A pipe whose reader learns when its last writer is gone.
    pub(crate) fn pipe(&self) -> Pipe {
        let path = self.path("alive");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        Pipe { path }
    }
}

/// A named pipe. Scripts open it for writing as descriptor 9 (`exec 9>alive`), and whatever they
/// start inherits that: at its end, all of them are dead.
pub(crate) struct Pipe {
    path: PathBuf,
}

impl Pipe {
    /// Waits for a writer and its first line.
    pub(crate) async fn line(self) -> (String, Alive) {
        let opened = blocking(move || {
            let mut reader = BufReader::new(File::open(&self.path).unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            (line.trim().to_owned(), Alive { reader })
        });
        opened.await
    }
}

/// A pipe with writers.
pub(crate) struct Alive {
    reader: BufReader<File>,
}

impl Alive {
    /// Waits until nobody holds the pipe open, and returns what they wrote.
    pub(crate) async fn ended(mut self) -> String {
        blocking(move || {
            let mut rest = String::new();
            self.reader.read_to_string(&mut rest).unwrap();
            rest
        })
        .await
    }
}

/// In a thread that nobody waits for when a test has failed: it may be stuck in the pipe.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || sender.send(work()).ok());
    within_patience(receiver).await.unwrap()
}

pub(crate) async fn within_patience<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.expect("it happens before long")
}

pub(crate) fn call(args: &Value) -> Call {
    call_within(args, LONG)
}

pub(crate) fn call_within(args: &Value, time: Duration) -> Call {
    Call {
        trajectory: TrajectoryId::from_bytes([7; 16]),
        step: "pay/1".parse().unwrap(),
        attempt: 3,
        key: "gesta-0123".to_owned(),
        args: Canon::of(args).unwrap(),
        deadline: Instant::now() + time,
        progress: None,
    }
}

/// Calls the only, or the named, tool of a catalogue.
pub(crate) fn ask<'a>(
    catalogue: &'a Catalogue,
    tool: &'a str,
    args: &Value,
) -> impl Future<Output = Reply> + use<'a> {
    send(catalogue, tool, call(args))
}

pub(crate) async fn send(catalogue: &Catalogue, tool: &str, call: Call) -> Reply {
    catalogue.get(&tool.parse().unwrap()).unwrap().call(call).await
}

/// What an answered call returned.
pub(crate) fn answer(reply: Reply) -> String {
    match reply {
        Reply::Answered { output, .. } => String::from_utf8(output).unwrap(),
        failed @ Reply::Failed { .. } => panic!("{failed:?}"),
    }
}

/// A failure in short: certainty, whether it may be retried, its code. And its message.
pub(crate) fn failure(reply: Reply) -> ((Certainty, bool, String), String) {
    match reply {
        Reply::Failed { certainty, retryable, error, .. } => {
            ((certainty, retryable, error.code), error.message)
        }
        answered @ Reply::Answered { .. } => panic!("{answered:?}"),
    }
}

pub(crate) fn check_failure(reply: Reply, certainty: Certainty, retryable: bool, code: &str) {
    let (found, message) = failure(reply);
    assert_eq!(found, (certainty, retryable, code.to_owned()), "{message}");
}
