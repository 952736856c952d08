//! What the tests share: a directory, servers in it, catalogues of what they offer, and calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gesta_core::document::Certainty;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_runtime::tools::{
    Call, Catalogue, CatalogueBuilder, CatalogueError, Offer, ProcessOptions, Progress, Reply,
    ServerName, Tool,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

/// Longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Much longer still, so that what ends in time was not ended by its deadline.
pub(crate) const LONG: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(crate) type Offers = BTreeMap<ServerName, Offer>;

/// Where the servers of the tests are installed.
pub(crate) fn servers() -> PathBuf {
    std::env::var_os("GESTA_TEST_MCP")
        .expect(
            "run the tests with `cargo xtask test`, or with `cargo xtask servers -- cargo test`",
        )
        .into()
}

/// A program of the installed packages.
pub(crate) fn program(name: &str) -> String {
    servers().join("node_modules/.bin").join(name).display().to_string()
}

pub(crate) struct World {
    dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn shown(&self) -> String {
        self.dir.path().display().to_string()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The declaration of one of our scripts as a program, called `odd` or `modern` after it.
    pub(crate) fn stdio(&self, script: &str, more: &str) -> String {
        let path = servers().join(format!("{script}.mjs"));
        let command = ["node", path.to_str().unwrap(), "stdio", &self.shown()];
        format!("[mcp.{script}]\ncommand = {}\n{more}", serde_json::to_string(&command).unwrap())
    }

    /// Starts one of our scripts as a web server. The declaration of it comes with it.
    pub(crate) async fn http(&self, script: &str, more: &str) -> (Web, String) {
        let mut command = Command::new("node");
        command.arg(servers().join(format!("{script}.mjs"))).args(["http", &self.shown()]);
        let web = Web::start(&mut command);
        let written = || Some(self.read("port")).filter(|port| port.ends_with('\n'));
        let port = eventually(written).await;
        let url = format!("http://127.0.0.1:{}/mcp", port.trim());
        (web, format!("[mcp.{script}]\nurl = \"{url}\"\nallow_private = true\n{more}"))
    }

    pub(crate) fn builder(&self, toml: &str) -> Result<CatalogueBuilder, CatalogueError> {
        let supervisor = vec![env!("CARGO_BIN_EXE_gesta-supervisor").into()];
        let builder = Catalogue::builder().process(ProcessOptions { supervisor });
        builder.file("tools.toml", toml, self.dir.path())
    }

    /// Asks the declared servers what they offer.
    pub(crate) async fn offers(&self, toml: &str) -> Result<Offers, String> {
        let mut offers = Offers::new();
        for server in self.builder(toml).unwrap().asking().unwrap() {
            offers.insert(server.name().clone(), server.offer().await?);
        }
        Ok(offers)
    }

    /// The tools as the servers offer them now.
    pub(crate) async fn pinned(&self, toml: &str) -> Catalogue {
        let offers = self.offers(toml).await.unwrap();
        self.builder(toml).unwrap().offers(offers).build().unwrap()
    }

    /// The messages that the server was sent with this method.
    pub(crate) fn journal(&self, method: &str) -> Vec<String> {
        let of = |line: &&str| {
            let message: Value = serde_json::from_str(line).unwrap();
            message["method"] == *method
        };
        self.read("journal").lines().filter(of).map(str::to_owned).collect()
    }

    /// The calls that reached the server.
    pub(crate) fn deliveries(&self) -> usize {
        self.journal("tools/call").len()
    }
}

/// A web server, ended when it is dropped.
pub(crate) struct Web(Child);

impl Web {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _buried = self.0.wait();
    }
}

/// Waits until there is something.
pub(crate) async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let looking = async {
        loop {
            ticks.tick().await;
            if let Some(found) = look() {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it happens before long")
}

pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    eventually(|| holds().then_some(())).await;
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

pub(crate) fn tool<'a>(catalogue: &'a Catalogue, name: &str) -> &'a Tool {
    catalogue.get(&name.parse().unwrap()).expect("the tool is there")
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

pub(crate) async fn ask(catalogue: &Catalogue, name: &str, args: &Value) -> Reply {
    let asked = tool(catalogue, name).call(call_within(args, LONG));
    tokio::time::timeout(PATIENCE, asked).await.expect("it ends before long")
}

/// What was heard of progress.
pub(crate) type Heard = Arc<Mutex<Vec<String>>>;

pub(crate) fn hearing(call: Call) -> (Call, Heard) {
    let heard = Heard::default();
    let to = Arc::clone(&heard);
    let progress = Progress(Arc::new(move |line| to.lock().unwrap().push(line)));
    (Call { progress: Some(progress), ..call }, heard)
}

pub(crate) fn output(reply: Reply) -> String {
    match reply {
        Reply::Answered { output, .. } => String::from_utf8(output).unwrap(),
        Reply::Failed { error, .. } => panic!("{}: {}", error.code, error.message),
    }
}

pub(crate) fn answer(reply: Reply) -> Value {
    serde_json::from_str(&output(reply)).unwrap()
}

/// How a call failed: certainty, whether it may be retried, code, message.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) certainty: Certainty,
    pub(crate) retryable: bool,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) output: String,
}

pub(crate) fn failure(reply: Reply) -> Failed {
    match reply {
        Reply::Answered { output, .. } => panic!("{}", String::from_utf8_lossy(&output)),
        Reply::Failed { certainty, retryable, error, output, .. } => Failed {
            certainty,
            retryable,
            code: error.code,
            message: error.message,
            output: String::from_utf8(output).unwrap(),
        },
    }
}

pub(crate) fn exists(path: &Path) -> bool {
    path.exists()
}
