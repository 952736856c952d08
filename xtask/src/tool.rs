//! Running other programs: cargo without the variables of the cargo that started us, and the
//! search through PATH. Knows nothing of what the programs are for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository's root. Cargo tells it when it runs us; the place where xtask was compiled may be
/// another checkout that shares the target directory.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.parent().unwrap_or(&package).to_path_buf()
}

/// Cargo, in the repository's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// A program that does not see what `cargo run` told xtask about itself: build scripts that watch
/// those variables would otherwise run again whenever xtask and the developer take turns.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_") && !is_setting(name)) {
            command.env_remove(name);
        }
    }
    command
}

/// Tells the user's settings of cargo from the facts that cargo adds about one package.
fn is_setting(name: &str) -> bool {
    let facts = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    !facts.iter().any(|fact| name.starts_with(fact))
}

/// Runs the command with our standard streams; anything but success is an error naming it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs the command and returns its standard output; errors carry what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` did not print UTF-8"))
}

/// The program of this name in PATH, links followed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
        .and_then(|candidate| candidate.canonicalize().ok())
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut shown = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for arg in command.get_args() {
        shown.push(' ');
        shown.push_str(&arg.to_string_lossy());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(Command::new("/bin/false").arg("--loudly")).unwrap_err().to_string();
        assert!(error.starts_with("`false --loudly` failed"), "{error}");
    }

    #[test]
    fn cargo_keeps_settings_and_drops_facts_about_xtask() {
        assert!(is_setting("CARGO_TARGET_DIR"));
        assert!(!is_setting("CARGO_PKG_NAME"));
        let command = cargo(&["--version"]);
        let dropped = |name: &str| command.get_envs().any(|(key, v)| key == name && v.is_none());
        assert!(dropped("CARGO_PKG_NAME"));
        assert!(!dropped("CARGO_TARGET_DIR"));
    }

    #[test]
    fn find_looks_through_path() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}
