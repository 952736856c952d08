//! A directory of its own for each test, and the binary run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A directory that goes away with the test.
pub(crate) struct World {
    directory: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// With a workspace in it.
    pub(crate) fn with_workspace() -> Self {
        let world = Self::new();
        world.gesta(&["init"]).ok();
        world
    }

    /// With a workspace whose policy lets everything happen: what is tried is something else.
    pub(crate) fn with_free_workspace() -> Self {
        let world = Self::new();
        world.free();
        world.gesta(&["init"]).ok();
        world
    }

    /// Lets everything happen in the workspace that is to be made.
    pub(crate) fn free(&self) {
        let all = "@id(\"all\") permit (principal, action, resource);\n";
        std::fs::write(self.path("policy.cedar"), all).unwrap();
    }

    /// With the kept demo in it.
    pub(crate) fn with_demo() -> Self {
        let world = Self::new();
        world.gesta(&["demo", "ledger", "--keep", "."]).ok();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn gesta(&self, arguments: &[&str]) -> Ran {
        self.gesta_with(arguments, &[])
    }

    pub(crate) fn gesta_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = command(self.directory.path());
        command.args(arguments).envs(variables.iter().copied());
        Ran::new(&command.output().unwrap(), self.directory.path())
    }

    /// The binary, not yet run.
    pub(crate) fn command(&self) -> Command {
        command(self.directory.path())
    }

    /// A copy of the binary, not yet run.
    pub(crate) fn command_of(&self, program: &Path) -> Command {
        command_of(program, self.directory.path())
    }

    /// What a command comes to.
    pub(crate) fn ran(&self, command: &mut Command) -> Ran {
        Ran::new(&command.output().unwrap(), self.directory.path())
    }
}

fn command(directory: &Path) -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_gesta")), directory)
}

fn command_of(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null()).env("COLUMNS", "100");
    for variable in ["GESTA_STORE", "GESTA_STORE_CA", "NO_COLOR", "CLICOLOR_FORCE", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

/// What a run came to.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    directory: String,
}

impl Ran {
    fn new(output: &Output, directory: &Path) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout.clone()).unwrap(),
            err: String::from_utf8(output.stderr.clone()).unwrap(),
            directory: directory.display().to_string(),
        }
    }

    /// It succeeded; what it printed.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        self.expect(0).out
    }

    /// It succeeded; the JSON it printed.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// It succeeded; the lines of JSON it printed.
    #[track_caller]
    pub(crate) fn json_lines(self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// It ended with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Everything at once, for snapshots, without the directory's name.
    pub(crate) fn whole(&self) -> String {
        let code = self.code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
        let whole = format!(
            "exit code: {code}\n----- stdout -----\n{}----- stderr -----\n{}",
            self.out, self.err
        );
        whole.replace(&self.directory, "[DIR]")
    }
}

/// What changes from run to run, for snapshots.
pub(crate) fn filters() -> Vec<(&'static str, &'static str)> {
    vec![
        (r"t_[0-9a-f]{32}", "t_[ID]"),
        (r"[0-9a-f]{64}", "[DIGEST]"),
        (r"\b(key|plan|run|world|by|from|undoes|confirms) [0-9a-f]{8}\b", "$1 [BRIEF]"),
        (r"` [0-9a-f]{8}:", "` [BRIEF]:"),
        (r"\b[0-9a-f]{8}: asked for", "[BRIEF]: asked for"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "[MOMENT]"),
        (r"\d{4}-\d\d-\d\d", "[DAY]"),
        (r"verified in [\d.]+ s", "verified in [SPAN]"),
        (r"links in \d+ ms", "links in [SPAN]"),
        (r"byte \d+:", "byte [OFFSET]:"),
        (r"\(\d+ bytes\)", "([SIZE])"),
    ]
}
