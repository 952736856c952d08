//! One case, played with real processes: a worker that is cut off, another that takes over, and an
//! operator who tells the truth.

pub(crate) mod again;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;

use crate::case::{Case, Class, Cut, Kind, Mode, On};
use crate::database::{Copy, NAMED_IN, Original};
use crate::tools::{self, Turn};
use crate::witness::Witness;

/// Nothing here takes that long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often somebody who waits for a process looks at what it has said.
const LOOK: Duration = Duration::from_millis(100);
/// When an effect lands that lands late.
const LATE: Duration = Duration::from_millis(400);

/// What a case came to.
pub(crate) struct Played {
    /// The chain when it was over, without `root` and `plan`.
    pub(crate) entries: Vec<Value>,
    /// Effects of each item, when the first worker was cut off and when all was over.
    pub(crate) at_cut: BTreeMap<u64, usize>,
    pub(crate) at_end: BTreeMap<u64, usize>,
}

/// A workspace with its job submitted, to be copied.
pub(crate) struct Template {
    directory: tempfile::TempDir,
    job: String,
    /// Unless its store is a file.
    database: Option<Original>,
}

impl Template {
    pub(crate) fn new(case: &Case, on: On) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let database = (on == On::Postgres).then(|| Original::new(path));
        std::fs::write(path.join("policy.cedar"), tools::POLICY).unwrap();
        run(path, &["init"]);
        let config = std::fs::read_to_string(path.join("gesta.toml")).unwrap();
        std::fs::write(path.join("founded.toml"), &config).unwrap();
        // Any port: a case writes its own.
        let settings = tools::settings(case, on, Turn::First, 9);
        std::fs::write(path.join("gesta.toml"), config + "\n" + &settings).unwrap();
        std::fs::write(path.join("job.yaml"), case.kind.job()).unwrap();
        let job = run(path, &["submit", "job.yaml"]).trim().to_owned();
        Self { directory, job, database }
    }
}

struct Scene<'a> {
    case: &'a Case,
    directory: tempfile::TempDir,
    job: &'a str,
    witness: Witness,
    database: Option<Copy>,
}

/// Plays a case to its end. None when the worker happened to be frozen while it was writing to SQLite:
/// it holds the lock of the whole file until it is woken, so nobody can take over. None also when the
/// machine was so busy that the effect landed later than its tool declares.
pub(crate) fn play(case: &Case, template: &Template) -> Option<Played> {
    scene(case, template).play()
}

fn scene<'a>(case: &'a Case, template: &'a Template) -> Scene<'a> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    copy(template.directory.path(), path);
    let database = template.database.as_ref().map(|of| of.copy(path));
    let witness = Witness::new(path, case.class, case.cut);
    let scene = Scene { case, directory, job: &template.job, witness, database };
    scene.set(Turn::First);
    scene
}

impl Scene<'_> {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the settings that one of the workers has.
    fn set(&self, turn: Turn) {
        let on = if self.database.is_some() { On::Postgres } else { On::Sqlite };
        let founded = std::fs::read_to_string(self.path().join("founded.toml")).unwrap();
        let settings = tools::settings(self.case, on, turn, self.witness.port);
        std::fs::write(self.path().join("gesta.toml"), founded + "\n" + &settings).unwrap();
    }

    fn play(&self) -> Option<Played> {
        let first = self.cut_off()?;
        if self.case.mode == Mode::Freeze && self.is_locked() {
            return None;
        }
        let at_cut = self.effects();
        self.set(Turn::Second);
        let (first, mut second) = match self.case.mode {
            Mode::Kill => (None, Process::start(self.path(), "second", None)),
            Mode::Freeze => (Some(first), Process::start(self.path(), "second", None)),
            Mode::Spare => (None, first),
        };
        let mut landed = UNIX_EPOCH;
        if self.case.cut == Cut::Landing {
            // Late enough for whoever does not wait, and early enough for whoever does.
            second.says("attempt 2");
            second.listen_for(LATE);
            self.witness.go();
            self.witness.reached(PATIENCE);
            landed = SystemTime::now();
        }
        let mut ended = self.case.cut.may_end() && self.has_ended();
        second.says("serves");
        let doubted = !ended && second.says_one_of(&[": completed", "in doubt"]);
        if let Some(first) = first {
            if doubted && self.case.class == Class::Probe {
                second.says(": completed");
            }
            // What the first has seen may end a doubt, so it is woken before anybody is asked; but not
            // before its permit is dead, for what it sends until then is in order.
            self.wait_for_death(&mut second);
            self.witness.go();
            first.signal(Signal::CONT);
            first.signal(Signal::TERM);
            // Once woken it may take the job again before it hears that it is to end.
            ended |= first.ends().contains(": completed");
        }
        self.witness.go();
        if !ended {
            self.finish(&mut second);
        }
        second.signal(Signal::TERM);
        second.ends();
        run(self.path(), &["verify", self.job]);
        let entries = self.entries();
        if self.case.cut == Cut::Landing {
            let started = entries.iter().find(|entry| entry["kind"] == "started").unwrap();
            let dead_at = started["body"]["permit"]["doc"]["dead_at"].as_u64().unwrap();
            if landed > UNIX_EPOCH + Duration::from_millis(dead_at) {
                return None;
            }
        }
        Some(Played { entries, at_cut, at_end: self.effects() })
    }

    /// The first worker: dead, frozen, or about to wait in vain. None when it lost its lease before it
    /// came to the cut, since what it does after that is not the case that is played.
    fn cut_off(&self) -> Option<Process> {
        let Case { cut, mode, kind, .. } = *self.case;
        let how = if mode == Mode::Kill { "kill" } else { "stop" };
        let order = cut.is_point().then(|| format!("{}:{how}", cut.text()));
        if !cut.is_point() && kind == Kind::Process {
            for name in ["reached", "go"] {
                assert!(
                    Command::new("mkfifo").arg(self.path().join(name)).status().unwrap().success()
                );
            }
        }
        let mut first = Process::start(self.path(), "first", order.as_deref());
        if !cut.is_point() {
            match kind {
                Kind::Process => hear(self.path().join("reached")),
                _ => self.witness.reached(PATIENCE),
            }
        }
        match mode {
            Mode::Spare => return Some(first),
            _ if cut.is_point() => {}
            Mode::Kill => first.signal(Signal::KILL),
            Mode::Freeze => first.signal(Signal::STOP),
        }
        first.is_cut_off(mode).then_some(first)
    }

    /// The chain, without `root` and `plan`.
    fn entries(&self) -> Vec<Value> {
        let lines = run(self.path(), &["log", self.job, "--json"]);
        let entries = lines.lines().skip(2).map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["entry"].clone()
        });
        entries.collect()
    }

    fn effects(&self) -> BTreeMap<u64, usize> {
        match self.case.kind {
            Kind::Process => tools::effects(self.path()),
            _ => self.witness.effects(self.path()),
        }
    }

    /// Whether somebody is writing to the store, and does not get done.
    fn is_locked(&self) -> bool {
        if self.database.is_some() {
            return false;
        }
        let store = rusqlite::Connection::open(self.path().join("gesta.db")).unwrap();
        store.busy_timeout(Duration::ZERO).unwrap();
        store.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
    }

    fn has_ended(&self) -> bool {
        let jobs = run(self.path(), &["jobs", "--json"]);
        jobs.lines().any(|job| {
            let job: Value = serde_json::from_str(job).unwrap();
            job["status"] == "completed"
        })
    }

    /// Waits until nothing that the first worker was permitted can land any more.
    fn wait_for_death(&self, second: &mut Process) {
        let entries = self.entries();
        let started = entries.iter().filter(|entry| {
            let worker = entry["by"]["worker"].as_str().unwrap_or_default();
            entry["kind"] == "started" && worker.starts_with("first-")
        });
        let dead_at =
            started.filter_map(|it| it["body"]["permit"]["doc"]["dead_at"].as_u64()).max();
        let dead_at = UNIX_EPOCH + Duration::from_millis(dead_at.unwrap_or_default());
        if let Ok(left) = dead_at.duration_since(SystemTime::now()) {
            second.listen_for(left);
        }
    }

    /// Sees the job to its end, and lets an operator end every doubt that only an operator can.
    fn finish(&self, second: &mut Process) {
        let mut resolved = 0;
        while !second.told.contains(": completed") {
            if self.case.class == Class::Never && second.told.matches("in doubt").count() > resolved
            {
                resolved += 1;
                self.resolve(second);
            } else {
                second.says_more();
            }
        }
    }

    /// An operator looks at what happened, and says so, unless the doubt has ended by itself.
    fn resolve(&self, second: &mut Process) {
        let begun = Instant::now();
        loop {
            let doubts = run(self.path(), &["doubts", "--json"]);
            let Some(doubt) = doubts.lines().next() else { return };
            let doubt: Value = serde_json::from_str(doubt).unwrap();
            let item = doubt["args"]["item"].as_u64().unwrap();
            let happened = self.effects().contains_key(&item);
            let step = format!("{}/{}", self.job, doubt["step"].as_str().unwrap());
            let said: &[&str] =
                if happened { &["--happened", "{\"n\":1}"] } else { &["--did-not-happen"] };
            let output = gesta(self.path(), &[&["resolve", &step][..], said].concat());
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                return;
            }
            // What can still land is not believed yet.
            assert!(told.contains("can still land until"), "{told}");
            assert!(begun.elapsed() < PATIENCE, "{told}");
            second.listen_for(Duration::from_millis(100));
        }
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = gesta(self.path(), &["log", self.job]);
            eprintln!("{}:\n{}", self.case.name(), String::from_utf8_lossy(&log.stdout));
        }
    }
}

/// A worker. It is killed if the test ends before it does.
struct Process {
    child: Child,
    lines: Receiver<String>,
    told: String,
}

impl Process {
    fn start(directory: &Path, name: &str, cut: Option<&str>) -> Self {
        let mut command = command(directory);
        command.args(["worker", "--name", name]);
        if let Some(cut) = cut {
            command.env("GESTA_CUT", cut);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (said, lines) = channel();
        let stream = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, told: String::new() }
    }

    fn pid(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it is dead, or frozen; false when it lost its lease before that.
    fn is_cut_off(&mut self, mode: Mode) -> bool {
        let pid = self.pid();
        let (say, heard) = channel();
        // Looked at and left as it is: its number stays its own until it is waited for.
        let changes = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        std::thread::spawn(move || {
            let status = waitid(WaitId::Pid(pid), changes).ok().flatten();
            say.send(status.is_some_and(|status| match mode {
                Mode::Kill => status.killed(),
                Mode::Freeze | Mode::Spare => status.stopped(),
            }))
        });
        let begun = Instant::now();
        loop {
            match heard.recv_timeout(LOOK) {
                Ok(is_so) => {
                    assert!(is_so, "it was not cut off: {}", self.heard());
                    return true;
                }
                Err(_) if self.heard().contains("lost trajectory") => return false,
                Err(_) => assert!(begun.elapsed() < PATIENCE, "not cut off: {}", self.heard()),
            }
        }
    }

    /// Everything that it has said so far.
    fn heard(&mut self) -> &str {
        while let Ok(line) = self.lines.try_recv() {
            self.told.push_str(&(line + "\n"));
        }
        &self.told
    }

    /// Listens for as long as that.
    fn listen_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.told.push_str(&(line + "\n"));
        }
    }

    fn says(&mut self, what: &str) {
        self.says_one_of(&[what]);
    }

    /// Waits until it has said one of these. True if it is the last one and none before.
    fn says_one_of(&mut self, what: &[&str]) -> bool {
        loop {
            if let Some(at) = what.iter().position(|what| self.told.contains(what)) {
                return at > 0 || self.told.contains("in doubt");
            }
            self.says_more();
        }
    }

    fn says_more(&mut self) {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.told.push_str(&(line + "\n")),
            Err(error) => panic!("it says nothing more ({error}):\n{}", self.told),
        }
    }

    /// Waits until it has ended by itself.
    fn ends(mut self) -> String {
        let begun = Instant::now();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            self.told.push_str(&(line + "\n"));
        }
        let status = self.child.try_wait().unwrap();
        let status = status.unwrap_or_else(|| self.child.wait().unwrap());
        assert!(status.success(), "{status}: {}", self.told);
        std::mem::take(&mut self.told)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gesta"));
    command.current_dir(directory).stdin(Stdio::null());
    let store = std::fs::read_to_string(directory.join(NAMED_IN)).ok();
    for variable in ["GESTA_STORE", "GESTA_STORE_CA", "GESTA_CUT", "CLICOLOR_FORCE", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command.envs(store.map(|store| ("GESTA_STORE", store)));
    command
}

fn gesta(directory: &Path, arguments: &[&str]) -> std::process::Output {
    command(directory).args(arguments).output().unwrap()
}

/// What it prints when it succeeds.
fn run(directory: &Path, arguments: &[&str]) -> String {
    let output = gesta(directory, arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until somebody has written into a named pipe.
fn hear(path: PathBuf) {
    let (said, heard) = channel();
    std::thread::spawn(move || said.send(std::fs::read_to_string(path)));
    heard.recv_timeout(PATIENCE).unwrap().unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
