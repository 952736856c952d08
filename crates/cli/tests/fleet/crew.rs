//! A workspace with jobs, and workers that serve it.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::until;
use crate::witness::Witness;

/// A workspace whose jobs call the witness.
pub(crate) struct Crew {
    directory: tempfile::TempDir,
    /// The store, if it is not the file that `init` makes.
    store: Option<String>,
    pub(crate) witness: Witness,
    steps: usize,
    jobs: usize,
}

impl Crew {
    /// Jobs have `steps` calls, one after the other, each of which takes a while. `settings` are of
    /// `gesta.toml`.
    pub(crate) fn new(store: Option<&str>, steps: usize, takes: Duration, settings: &str) -> Self {
        let crew = Self {
            directory: tempfile::tempdir().unwrap(),
            store: store.map(str::to_owned),
            witness: Witness::new(takes),
            steps,
            jobs: 0,
        };
        let policy = "@id(\"all\") permit (principal, action, resource);\n";
        std::fs::write(crew.path().join("policy.cedar"), policy).unwrap();
        crew.run(&["init"]);
        let config = std::fs::read_to_string(crew.path().join("gesta.toml")).unwrap();
        let tools = tools(crew.witness.port);
        std::fs::write(crew.path().join("gesta.toml"), format!("{config}\n{settings}\n{tools}"))
            .unwrap();
        let mut job = "job: calls\ninput: { job: integer }\nsteps:\n".to_owned();
        for step in 0..steps {
            let tool = if step % 2 == 0 { "keyed" } else { "probed" };
            let needs = if step > 0 { format!(", needs: [s{}]", step - 1) } else { String::new() };
            job += &format!(
                "  - {{ id: s{step}, tool: {tool}, args: {{ item: '${{input.job * 1000 + {step}}}' }}{needs} }}\n"
            );
        }
        std::fs::write(crew.path().join("job.yaml"), job + "answer: 1\n").unwrap();
        crew
    }

    /// Declares one more tool that calls the witness.
    pub(crate) fn declare_tool(&self, name: &str, recovery: &str) {
        let path = self.path().join("gesta.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        let tool = tool(self.witness.port, name, recovery);
        std::fs::write(path, format!("{config}\n{tool}")).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Submits so many jobs more. What this returns from is acknowledged.
    pub(crate) fn submit(&mut self, jobs: usize) {
        self.submit_with(jobs, &[]);
    }

    /// The same, with more arguments.
    pub(crate) fn submit_with(&mut self, jobs: usize, more: &[&str]) {
        for _ in 0..jobs {
            let input = format!("job={}", self.jobs);
            let key = format!("key-{}", self.jobs);
            let job = ["submit", "job.yaml", "--input", &input, "--key", &key];
            let job = [&job[..], more].concat();
            // A database that is away for a moment is asked again; the key makes it one job.
            until("a submission", || self.gesta(&job).status.success().then_some(()));
            self.jobs += 1;
        }
    }

    /// How many effects there will be in the end.
    pub(crate) fn wanted(&self) -> usize {
        self.jobs * self.steps
    }

    pub(crate) fn worker(&self, name: &str) -> Process {
        self.worker_with(name, &[])
    }

    /// A worker with something in its environment.
    pub(crate) fn worker_with(&self, name: &str, variables: &[(&str, &str)]) -> Process {
        let log = File::options().create(true).append(true).open(self.path().join("log")).unwrap();
        let mut command = self.command();
        command.args(["worker", "--name", name]).stdout(Stdio::null()).stderr(log);
        command.envs(variables.iter().copied());
        Process(command.spawn().unwrap())
    }

    /// Waits until every job has completed, then looks at everything: each item has had one effect,
    /// and all chains verify.
    #[track_caller]
    pub(crate) fn all_is_well(&self) {
        until("all jobs complete", || {
            let listed = self.gesta(&["jobs", "--status", "completed", "--json"]);
            let completed = String::from_utf8_lossy(&listed.stdout).lines().count();
            (completed == self.jobs).then_some(())
        });
        let effects = self.witness.effects();
        let twice: Vec<_> = effects.iter().filter(|(_, count)| **count != 1).collect();
        assert!(twice.is_empty(), "items with more than one effect: {twice:?}\n{}", self.log());
        assert_eq!(effects.len(), self.wanted(), "items without an effect");
        self.run(&["verify"]);
        self.run(&["doctor"]);
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// What a command prints, one JSON document a line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let printed = self.run(&[arguments, &["--json"]].concat());
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What it prints when it succeeds.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.gesta(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {told}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    fn gesta(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gesta"));
        command.current_dir(self.path()).stdin(Stdio::null());
        for variable in ["GESTA_STORE", "GESTA_STORE_CA", "CLICOLOR_FORCE", "RUST_LOG"] {
            command.env_remove(variable);
        }
        if let Some(store) = &self.store {
            command.env("GESTA_STORE", store);
        }
        command
    }
}

/// A worker process. It is killed when this is dropped, without a chance to tidy up.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it is dead.
    #[cfg(feature = "cuts")]
    pub(crate) fn wait(&mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _it_may_be_dead = self.0.kill();
        let _it_is_waited_for = self.0.wait();
    }
}

fn tools(port: u16) -> String {
    format!(
        "{}{}[tools.asked]\neffect = \"read\"\ntimeout = \"5s\"\n{}",
        tool(port, "keyed", "recovery = \"keyed\"\n"),
        tool(port, "probed", "recovery = \"probe\"\nprobe = \"asked\"\n"),
        http(port, "asked")
    )
}

fn tool(port: u16, name: &str, recovery: &str) -> String {
    format!(
        "[tools.{name}]\neffect = \"external\"\n{recovery}timeout = \"1s\"\nsettle = \"0ms\"\n\
         retry = {{ attempts = 9, backoff = \"20ms\" }}\noutput = {{ type = \"object\" }}\n{}\n",
        http(port, name)
    )
}

fn http(port: u16, path: &str) -> String {
    format!(
        "driver.http = {{ method = \"POST\", url = \"http://127.0.0.1:{port}/{path}\", allow_private = true }}\n"
    )
}
