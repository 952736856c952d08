//! Workspaces with tools and jobs of a test's own, and processes that are watched, told and killed.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::World;

/// Nothing here takes that long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where this repository's examples are.
pub(crate) fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

impl World {
    /// With a copy of the examples in it, and nothing else.
    pub(crate) fn with_examples() -> Self {
        let world = Self::new();
        for example in ["delegation", "refund", "trip"] {
            copy(&examples().join(example), &world.path(&format!("examples/{example}")));
        }
        world
    }

    /// With a copy of what is in one example.
    pub(crate) fn with_example(name: &str) -> Self {
        let world = Self::new();
        copy(&examples().join(name), &world.path("."));
        world
    }

    /// With a workspace whose tools are these.
    pub(crate) fn with_tools(tools: &str) -> Self {
        let world = Self::with_workspace();
        world.set_tools(tools);
        world
    }

    /// Replaces the tools of the workspace. A policy lets all of them run.
    pub(crate) fn set_tools(&self, tools: &str) {
        let config = self.read("gesta.toml");
        let config = config.split("\n[").next().unwrap();
        self.write(
            "gesta.toml",
            &format!(
                "{config}\n[policy]\nfiles = [\"policy.cedar\"]\n\n[worker]\nskew = \"0ms\"\nlease = \"5s\"\n\n{tools}"
            ),
        );
        self.write("policy.cedar", "@id(\"all\") permit (principal, action, resource);\n");
        // Tools that are refused on purpose leave the policy that was there.
        self.gesta(&["policy", "publish"]);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A named pipe: whoever opens one end waits for the other.
    pub(crate) fn fifo(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.path(name)).status().unwrap();
        assert!(made.success());
    }

    /// Waits until somebody has written a line into a named pipe.
    #[track_caller]
    pub(crate) fn hear(&self, name: &str) -> String {
        let path = self.path(name);
        let (said, heard) = channel();
        std::thread::spawn(move || said.send(std::fs::read_to_string(path)));
        heard.recv_timeout(PATIENCE).unwrap().unwrap()
    }

    /// Starts the binary and goes on.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_with(arguments, &[])
    }

    /// Starts the binary with these variables and goes on.
    pub(crate) fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = self.command();
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running::new(command.spawn().unwrap())
    }

    /// The ids of all jobs, oldest first.
    pub(crate) fn jobs(&self) -> Vec<String> {
        let rows = self.gesta(&["jobs", "--json"]).json_lines();
        rows.iter().map(|row| row["trajectory"].as_str().unwrap().to_owned()).collect()
    }

    /// The only job.
    #[track_caller]
    pub(crate) fn job(&self) -> String {
        let mut jobs = self.jobs();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs.remove(0)
    }

    /// The kinds of a trajectory's entries.
    pub(crate) fn kinds(&self, id: &str) -> Vec<String> {
        let lines = self.gesta(&["log", id, "--json"]).json_lines();
        lines.iter().map(|line| line["entry"]["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// The bodies of a trajectory's entries of one kind.
    pub(crate) fn bodies(&self, id: &str, kind: &str) -> Vec<Value> {
        let lines = self.gesta(&["log", id, "--json"]).json_lines();
        let fitting = lines.iter().filter(|line| line["entry"]["kind"] == kind);
        fitting.map(|line| line["entry"]["body"].clone()).collect()
    }

    /// How many files there are in a directory; none if it is not there.
    pub(crate) fn files(&self, directory: &str) -> usize {
        std::fs::read_dir(self.path(directory)).map_or(0, Iterator::count)
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            // What an example has done on this machine is no part of it.
            true if entry.file_name() == "outside" => {}
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// A process of ours. It is killed if the test ends before it does.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    pub(crate) told: String,
}

impl Running {
    fn new(mut child: Child) -> Self {
        let (said, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let said = said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if said.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, told: String::new() }
    }

    /// Waits until it has written a line with this in it.
    #[track_caller]
    pub(crate) fn says(&mut self, what: &str) {
        self.says_times(what, 1);
    }

    /// Waits until it has written this so many times.
    #[track_caller]
    pub(crate) fn says_times(&mut self, what: &str, times: usize) {
        while self.told.matches(what).count() < times {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.told.push_str(&(line + "\n")),
                Err(error) => panic!("it did not say `{what}` ({error}):\n{}", self.told),
            }
        }
    }

    /// Waits until it has been stopped.
    #[cfg(feature = "cuts")]
    #[track_caller]
    pub(crate) fn stands_still(&mut self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        let begun = std::time::Instant::now();
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(begun.elapsed() < PATIENCE, "it was not stopped:\n{}", self.told);
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(20)) {
                self.told.push_str(&(line + "\n"));
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGKILL: no chance to tidy up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(crate) fn ends(mut self) -> (ExitStatus, String) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.told.push_str(&(line + "\n"));
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.told))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
