//! `cargo xtask postgres`: a throw-away PostgreSQL cluster, for the tests, the benchmarks and a
//! developer's shell.
//!
//! Finds the binaries, chooses user, directory and port, and waits until the server is ready.
//! `postgres/cluster.sh` runs the server and removes it when this process is gone. The cluster
//! listens on 127.0.0.1 with TLS and a password; the database user `gesta` is its superuser.

mod binaries;
mod user;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::tool;
use user::User;

const CLUSTER: &str = include_str!("postgres/cluster.sh");
const SERVER_EXTENSIONS: &str =
    "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n";
const PASSWORD: &str = "gesta";
const READY_WITHIN: Duration = Duration::from_secs(120);
const READY_POLL: Duration = Duration::from_millis(20);
const START_ATTEMPTS: u32 = 3;

pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.split_first() {
        None => stay(),
        Some((dashes, command)) if dashes == "--" => match command.split_first() {
            Some((program, args)) => {
                let cluster = Cluster::start()?;
                tool::run(tool::command(program).args(args).envs(cluster.variables()))?;
                cluster.stop()
            }
            None => bail!("no command after `--`"),
        },
        Some((arg, _)) => bail!("unknown argument `{arg}`; a command to run follows `--`"),
    }
}

fn stay() -> Result<()> {
    let mut cluster = Cluster::start()?;
    for (name, value) in cluster.variables() {
        println!("export {name}='{value}'");
    }
    eprintln!("PostgreSQL runs in `{}` until Ctrl-C", cluster.dir.display());
    // Waiting closes a child's standard input, and that is what the cluster lives by.
    let _lifeline = cluster.guardian.stdin.take();
    let status = cluster.guardian.wait().context("cannot wait for PostgreSQL")?;
    bail!("PostgreSQL ended by itself ({status}):\n{}", cluster.log())
}

/// A running cluster; dropped, it is stopped and its directory removed.
pub(crate) struct Cluster {
    dir: PathBuf,
    port: u16,
    guardian: Child,
    log: File,
}

impl Cluster {
    /// Starts a cluster and returns when it accepts connections.
    pub(crate) fn start() -> Result<Cluster> {
        let bin = binaries::find_or_install()?;
        let user = User::choose()?;
        // Another process may take the free port before PostgreSQL does.
        for _ in 1..START_ATTEMPTS {
            let mut cluster = Cluster::spawn(&bin, &user)?;
            match cluster.wait_until_ready() {
                Ok(()) => return Ok(cluster),
                Err(_) if cluster.log().contains("could not bind") => {}
                Err(error) => return Err(error),
            }
        }
        let mut cluster = Cluster::spawn(&bin, &user)?;
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// What a test reads to find the cluster: its URL, and the authority of its certificate.
    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        let url = format!("postgres://gesta:{PASSWORD}@127.0.0.1:{}/postgres", self.port);
        let authority = self.dir.join("ca.crt").display().to_string();
        [("GESTA_TEST_POSTGRES", url), ("GESTA_TEST_POSTGRES_CA", authority)]
    }

    /// Stops the cluster and says whether anything of it was left behind.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()?;
        if self.dir.exists() {
            bail!("the cluster's directory `{}` was left behind; remove it", self.dir.display());
        }
        Ok(())
    }

    fn spawn(bin: &Path, user: &User) -> Result<Cluster> {
        let dir = fresh_directory()?;
        fs::write(dir.join("password"), PASSWORD).context("cannot write the password file")?;
        fs::write(dir.join("server.ext"), SERVER_EXTENSIONS)
            .context("cannot write the certificate's extensions")?;
        user.own(&dir)?;
        let port = free_port()?;

        let log_path = dir.join("log");
        let log = File::options().create_new(true).read(true).append(true).open(&log_path);
        let log = log.with_context(|| format!("cannot create `{}`", log_path.display()))?;
        let guardian = Command::new("sh")
            .args(["-c", CLUSTER, "cluster"])
            .args([&dir, bin])
            .arg(port.to_string())
            .args(user.prefix())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log.try_clone().context("cannot share the log")?)
            // Ctrl-C is for us; the cluster follows when the pipe closes.
            .process_group(0)
            .spawn()
            .context("cannot start `sh`")?;
        Ok(Cluster { dir, port, guardian, log })
    }

    /// Ready is what the server writes on the eighth line of its pid file, as `pg_ctl` reads it.
    fn wait_until_ready(&mut self) -> Result<()> {
        let pid_file = self.dir.join("data/postmaster.pid");
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let status = fs::read_to_string(&pid_file).unwrap_or_default();
            if status.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            if let Some(status) = self.guardian.try_wait().context("cannot watch PostgreSQL")? {
                bail!("PostgreSQL did not start ({status}); it said:\n{}", self.log());
            }
            if Instant::now() > deadline {
                let seconds = READY_WITHIN.as_secs();
                bail!("PostgreSQL was not ready after {seconds} s; it said:\n{}", self.log());
            }
            std::thread::sleep(READY_POLL);
        }
    }

    /// All that the cluster printed, readable also after its directory is gone.
    fn log(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.log.rewind().and_then(|()| self.log.read_to_end(&mut bytes));
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(its log cannot be read: {error})"),
        }
    }

    fn end(&mut self) -> Result<()> {
        drop(self.guardian.stdin.take());
        self.guardian.wait().context("cannot wait for PostgreSQL to stop")?;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("warning: {error:#}");
        }
    }
}

fn fresh_directory() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    for attempt in 0..1000 {
        let dir = parent.join(format!("gesta-postgres-{}-{attempt}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot create `{}`", dir.display()));
            }
        }
    }
    Err(anyhow!("`{}` is full of `gesta-postgres-*`; remove them", parent.display()))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr().context("cannot read the free port")?.port())
}
