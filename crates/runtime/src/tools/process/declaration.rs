//! How a program is declared, and what of it is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::tools::secrets::{SecretName, SecretSource};
use crate::tools::size::SizeBytes;
use crate::tools::verdict::Verdict;

/// The variables that every program is given.
pub(super) const OURS: [&str; 5] =
    ["GESTA_KEY", "GESTA_TRAJECTORY", "GESTA_STEP", "GESTA_ATTEMPT", "GESTA_TOOL"];
/// By which the supervisor tells itself to become the program.
pub(super) const LAUNCH: &str = "GESTA_LAUNCH";

/// A tool that is a program. It is given its arguments as one line of JSON on its standard input, and
/// writes its result as JSON on its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessDeclaration {
    /// What is run.
    pub command: Command,
    /// Where: by default, and for relative paths, the directory of the declaring file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Variables that are passed on from the worker's environment if they are set there.
    #[serde(default)]
    pub env: Vec<String>,
    /// What exit codes mean for the effect, where that differs from the rule.
    #[serde(default)]
    pub exit: BTreeMap<String, Verdict>,
    /// How much it may write.
    #[serde(default = "mib")]
    pub max_output: SizeBytes,
    /// Variables with their values.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Whether the command is a line for `/bin/sh`.
    #[serde(default)]
    pub shell: bool,
}

fn mib() -> SizeBytes {
    SizeBytes::MIB
}

/// What is run: a program with arguments, or a line for the shell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// A program and its arguments.
    Program(Vec<String>),
    /// A line for the shell; needs `shell = true`.
    Line(String),
}

/// What is wrong with the declaration of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProcess {
    /// There is nobody to run it.
    #[error("it is a process, and this program has no supervisor to run processes")]
    NoSupervisor,
    /// Nothing to run.
    #[error("`command` is empty; name a program")]
    NoCommand,
    /// A shell was not asked for, or for nothing.
    #[error(
        "with `shell = true` the command is one string, and without it a list: [\"program\", \"argument\"]"
    )]
    Shell,
    /// No program can be told this.
    #[error("`command` holds a NUL byte")]
    Nul,
    /// Not the name of a variable.
    #[error("`{0}` is not the name of an environment variable")]
    Variable(String),
    /// Two sources for one variable, or one of ours.
    #[error(
        "the variable `{0}` is given twice; `env`, `set`, `secrets` and the variables GESTA_* are one environment"
    )]
    VariableTwice(String),
    /// Not an exit code.
    #[error("`exit` has `{0}`, which is not an exit code from 0 to 255")]
    ExitCode(String),
}

impl ProcessDeclaration {
    /// Where it is run.
    pub(super) fn directory(&self, base_dir: &Path) -> PathBuf {
        match &self.cwd {
            Some(cwd) => base_dir.join(cwd),
            None => base_dir.to_owned(),
        }
    }

    /// The program and its arguments, once everything that can be checked is.
    pub(super) fn checked(
        &self,
        secrets: &BTreeMap<SecretName, SecretSource>,
    ) -> Result<(String, Vec<String>), BadProcess> {
        let mut names = BTreeSet::from(OURS);
        names.insert(LAUNCH);
        let secrets = secrets.keys().map(SecretName::as_str);
        let declared = self.env.iter().chain(self.set.keys()).map(String::as_str);
        for name in declared.chain(secrets) {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(BadProcess::Variable(name.to_owned()));
            }
            if !names.insert(name) {
                return Err(BadProcess::VariableTwice(name.to_owned()));
            }
        }
        if let Some(value) = self.set.values().find(|value| value.contains('\0')) {
            return Err(BadProcess::Variable(value.clone()));
        }
        let canonical = |code: &&String| code.parse::<u8>().is_ok_and(|n| n.to_string() == **code);
        if let Some(code) = self.exit.keys().find(|code| !canonical(code)) {
            return Err(BadProcess::ExitCode(code.clone()));
        }
        let command: Vec<String> = match (&self.command, self.shell) {
            (Command::Program(command), false) => command.clone(),
            (Command::Line(line), true) if line.is_empty() => Vec::new(),
            (Command::Line(line), true) => ["/bin/sh", "-c", line].map(str::to_owned).into(),
            _ => return Err(BadProcess::Shell),
        };
        if command.iter().any(|part| part.contains('\0')) {
            return Err(BadProcess::Nul);
        }
        let mut command = command.into_iter();
        match command.next().filter(|program| !program.is_empty()) {
            Some(program) => Ok((program, command.collect())),
            None => Err(BadProcess::NoCommand),
        }
    }
}
