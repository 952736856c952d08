//! A server of its own, for tests that would disturb the one that all tests share. It runs as that
//! one's user, with its files in that one's directory: a server whose directory is gone ends by
//! itself, so none outlives a test process that was killed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

use super::Place;

/// A running server. It listens on a socket in its directory, which no other process can take.
pub(super) struct Cluster {
    programs: Programs,
    settings: &'static [&'static str],
    server: Server,
}

impl Cluster {
    /// Makes a cluster and starts its server with `settings`, such as `fsync=off`.
    pub(super) async fn start(settings: &'static [&'static str]) -> Self {
        let programs = Programs::find(&Place::new()).await;
        let initdb = ["-D", "data", "-U", "gesta", "-A", "trust", "--no-sync"];
        let made = programs.command("initdb").args(initdb).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let server = Server::start(&programs, settings).await;
        Self { programs, settings, server }
    }

    pub(super) fn url(&self) -> String {
        format!("host={} user=gesta dbname=postgres", self.programs.dir.display())
    }

    pub(super) async fn admin(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Kills the server with everything that belongs to it, and returns when nothing of it is left.
    /// Its first process is stopped before: it would start others, and stop those it finds alone.
    pub(super) async fn kill(&mut self) {
        let admin = self.admin().await;
        let postmaster = self.server.postmaster.id().to_string();
        signal("STOP", std::slice::from_ref(&postmaster));
        let children = admin.query("SELECT pid FROM pg_stat_activity", &[]).await.unwrap();
        let children = children.iter().map(|row| row.get::<_, i32>(0).to_string());
        let all: Vec<_> = std::iter::once(postmaster).chain(children).collect();
        signal("KILL", &all);
        self.server.postmaster.wait().unwrap();
        while self.server.lines.recv().await.is_some() {}
    }

    /// Starts the server that was killed. It recovers from its log first.
    pub(super) async fn restart(&mut self) {
        self.server = Server::start(&self.programs, self.settings).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let postmaster = [self.server.postmaster.id().to_string()];
        signal("QUIT", &postmaster);
        signal("CONT", &postmaster);
        let _it_was_killed_before = self.server.postmaster.wait();
        let _goes_with_the_shared_server = fs::remove_dir_all(&self.programs.dir);
    }
}

struct Server {
    postmaster: Child,
    /// What it says. Ends when the last of its processes does, since all of them share the pipe.
    lines: mpsc::UnboundedReceiver<String>,
}

impl Server {
    /// Starts it and waits until it takes connections.
    async fn start(programs: &Programs, settings: &[&str]) -> Self {
        let mut postgres = programs.command("postgres");
        postgres.args(["-D", "data", "-c", "listen_addresses=", "-k"]).arg(&programs.dir);
        for setting in settings {
            postgres.args(["-c", setting]);
        }
        let mut postmaster = postgres.stderr(Stdio::piped()).spawn().unwrap();
        let pipe = BufReader::new(postmaster.stderr.take().unwrap());
        let (sender, mut lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            // To its end, even if nobody listens: a full pipe would stop the server.
            for line in pipe.lines().map_while(Result::ok) {
                let _nobody_listens = sender.send(line);
            }
        });
        let mut said = Vec::new();
        while let Some(line) = lines.recv().await {
            if line.ends_with("database system is ready to accept connections") {
                return Self { postmaster, lines };
            }
            said.push(line);
        }
        let ended = postmaster.wait().unwrap();
        panic!("PostgreSQL did not start ({ended}); it said:\n{}", said.join("\n"))
    }
}

/// The programs of the shared server, and where and as whom they run.
struct Programs {
    bin: PathBuf,
    dir: PathBuf,
    /// User and group, unless they are this process's own.
    owner: Option<(u32, u32)>,
}

impl Programs {
    async fn find(place: &Place) -> Self {
        let shared = place.admin().await;
        let text = async |sql: &str| shared.query_one(sql, &[]).await.unwrap().get::<_, String>(0);
        let bin = text("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await;
        let data = text("SHOW data_directory").await;
        let dir = Path::new(&data).parent().unwrap().join(&place.name);
        fs::create_dir(&dir).unwrap();
        let owner = fs::metadata(data).unwrap();
        let owner = (owner.uid(), owner.gid());
        let foreign = fs::metadata(&dir).unwrap().uid() != owner.0;
        if foreign {
            chown(&dir, Some(owner.0), Some(owner.1)).unwrap();
        }
        Self { bin: bin.into(), dir, owner: foreign.then_some(owner) }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(&self.dir).env("LC_ALL", "C").stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }
}

/// Some of the processes may be gone already.
fn signal(name: &str, processes: &[String]) {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -s \"$0\" \"$@\"", name]).args(processes).stderr(Stdio::null());
    kill.status().unwrap();
}
