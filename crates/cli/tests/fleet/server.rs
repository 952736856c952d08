//! PostgreSQL servers of a test's own, which it may stop, kill and promote. They run as the shared
//! server's user with their files in its directory: a server whose directory is gone ends by itself,
//! so none outlives a test process that was killed.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::NoTls;

use crate::until;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A database of its own on the shared server.
pub(crate) struct Database {
    shared: String,
    name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gesta_fleet_{}_{number}", std::process::id());
        ask(&shared(), &format!("CREATE DATABASE {name}")).unwrap();
        Self { shared: shared(), name }
    }

    pub(crate) fn url(&self) -> String {
        let (server, _) = self.shared.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name)
    }

    /// Runs one statement; the first column of the first row, if there is one.
    pub(crate) fn ask(&self, sql: &str) -> Option<String> {
        ask(&self.url(), sql).unwrap()
    }

    /// How many transactions it has seen, once everybody who asked it has gone.
    pub(crate) fn transactions(&self) -> u64 {
        let name = &self.name;
        let here = format!("SELECT count(*)::text FROM pg_stat_activity WHERE datname = '{name}'");
        until("everybody has gone", || {
            (ask(&self.shared, &here).unwrap() == Some("0".to_owned())).then_some(())
        });
        let seen =
            format!("SELECT xact_commit::text FROM pg_stat_database WHERE datname = '{name}'");
        ask(&self.shared, &seen).unwrap().unwrap().parse().unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        ask(&self.shared, &drop).unwrap();
    }
}

/// A server of its own.
pub(crate) struct Server {
    bin: PathBuf,
    dir: PathBuf,
    /// User and group, unless they are this process's own.
    owner: Option<(u32, u32)>,
    postmaster: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        let (bin, dir, owner) = room();
        let initdb = ["-D", "data", "-U", "gesta", "-A", "trust", "--no-sync"];
        let made = command(&bin, &dir, owner, "initdb").args(initdb).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self::on(bin, dir, owner)
    }

    /// A standby that this one waits for at every commit from now on.
    pub(crate) fn standby(&self) -> Self {
        let (bin, dir, owner) = room();
        let copied = command(&bin, &dir, owner, "pg_basebackup")
            .args(["-D", "data", "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"])
            .args(["-U", "gesta", "-h"])
            .arg(&self.dir)
            .output()
            .unwrap();
        assert!(copied.status.success(), "{copied:?}");
        let standby = Self::on(bin, dir, owner);
        ask(&self.url(), "ALTER SYSTEM SET synchronous_standby_names = '*'").unwrap();
        ask(&self.url(), "SELECT pg_reload_conf()").unwrap();
        let waits = "SELECT count(*)::text FROM pg_stat_replication WHERE sync_state = 'sync'";
        until("the standby is synchronous", || {
            (ask(&self.url(), waits).ok()? == Some("1".to_owned())).then_some(())
        });
        standby
    }

    fn on(bin: PathBuf, dir: PathBuf, owner: Option<(u32, u32)>) -> Self {
        let postmaster = serve(&bin, &dir, owner);
        let mut server = Self { bin, dir, owner, postmaster };
        server.wait();
        server
    }

    /// The directory of its socket, as a host of a URL.
    pub(crate) fn host(&self) -> String {
        self.dir.display().to_string().replace('/', "%2F")
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://gesta@{}/postgres", self.host())
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(".s.PGSQL.5432")
    }

    /// Ends at once, as `pg_ctl stop -m immediate` does; SIGKILL takes even that away.
    pub(crate) fn stop(&mut self, signal: Signal) {
        let pid = i32::try_from(self.postmaster.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
        self.postmaster.wait().unwrap();
    }

    /// Starts it again. It recovers from its log first.
    pub(crate) fn restart(&mut self) {
        self.postmaster = serve(&self.bin, &self.dir, self.owner);
        self.wait();
    }

    /// Makes a standby the one that takes writes.
    pub(crate) fn promote(&self) {
        let promote = ["promote", "-w", "-D", "data"];
        let mut pg_ctl = command(&self.bin, &self.dir, self.owner, "pg_ctl");
        let promoted = pg_ctl.args(promote).output().unwrap();
        assert!(promoted.status.success(), "{promoted:?}");
    }

    /// Waits until it takes connections. Processes of one that was killed may hold the directory for
    /// a moment: then it is started again.
    fn wait(&mut self) {
        until("PostgreSQL is ready", || {
            if self.postmaster.try_wait().unwrap().is_some() {
                self.postmaster = serve(&self.bin, &self.dir, self.owner);
            }
            ask(&self.url(), "SELECT 'ready'").ok()
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_may_be_dead = self.postmaster.try_wait();
        if let Some(pid) = i32::try_from(self.postmaster.id()).ok().and_then(Pid::from_raw) {
            let _it_may_be_dead = kill_process(pid, Signal::QUIT);
        }
        let _it_is_waited_for = self.postmaster.wait();
        let _goes_with_the_shared_server = fs::remove_dir_all(&self.dir);
    }
}

fn serve(bin: &Path, dir: &Path, owner: Option<(u32, u32)>) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    command(bin, dir, owner, "postgres")
        .args(["-D", "data", "-c", "listen_addresses=", "-c", "recovery_init_sync_method=syncfs"])
        .arg("-k")
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn command(bin: &Path, dir: &Path, owner: Option<(u32, u32)>, program: &str) -> Command {
    let mut command = Command::new(bin.join(program));
    command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null());
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// The shared server's programs, a directory in its own, and its user.
fn room() -> (PathBuf, PathBuf, Option<(u32, u32)>) {
    let text = |sql: &str| ask(&shared(), sql).unwrap().unwrap();
    let bin = text("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    let data = text("SELECT current_setting('data_directory')");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("f{}-{number}", std::process::id());
    let dir = Path::new(&data).parent().unwrap().join(name);
    fs::create_dir(&dir).unwrap();
    let owner = fs::metadata(data).unwrap();
    let owner = (owner.uid(), owner.gid());
    let foreign = fs::metadata(&dir).unwrap().uid() != owner.0;
    if foreign {
        chown(&dir, Some(owner.0), Some(owner.1)).unwrap();
    }
    (bin.into(), dir, foreign.then_some(owner))
}

fn shared() -> String {
    std::env::var("GESTA_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("`GESTA_TEST_POSTGRES` is not set: `cargo xtask test` starts a server and sets it")
    })
}

/// Runs one statement; the first column of the first row, if there is one.
fn ask(url: &str, sql: &str) -> Result<Option<String>, tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let rows = client.simple_query(sql).await?;
        Ok(rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    })
}
