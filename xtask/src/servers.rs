//! `cargo xtask servers`: the MCP servers that tests run against, from the npm registry.
//!
//! Installed once into the target directory, exactly as the lock file beside them says. Node comes from
//! PATH, or from Debian's packages where it is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tool;

/// What is installed, and the scripts that stand on it.
const SOURCE: &str = "crates/runtime/tests/mcp/servers";
const LOCK: &str = "package-lock.json";
/// A copy of the lock file, written when everything that it names is there.
const INSTALLED: &str = "installed.json";
const REMEDY: &str = "install Node 18 or newer so that `node` and `npm` are in PATH (Debian: apt-get install nodejs npm)";

pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.split_first() {
        None => {
            let (name, value) = prepare()?.variable();
            println!("export {name}='{value}'");
            Ok(())
        }
        Some((dashes, command)) if dashes == "--" => match command.split_first() {
            Some((program, args)) => {
                tool::run(tool::command(program).args(args).envs([prepare()?.variable()]))
            }
            None => bail!("no command after `--`"),
        },
        Some((arg, _)) => bail!("unknown argument `{arg}`; a command to run follows `--`"),
    }
}

/// Servers that are installed.
pub(crate) struct Servers(PathBuf);

impl Servers {
    /// What a test reads to find them.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        ("GESTA_TEST_MCP", self.0.display().to_string())
    }
}

/// Installs what is missing.
pub(crate) fn prepare() -> Result<Servers> {
    let source = tool::root().join(SOURCE);
    let to = target().join("mcp-servers");
    fs::create_dir_all(&to).with_context(|| format!("cannot create `{}`", to.display()))?;
    for entry in fs::read_dir(&source).with_context(|| format!("cannot read `{SOURCE}`"))? {
        let entry = entry.with_context(|| format!("cannot read `{SOURCE}`"))?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    find_or_install_node()?;
    let (lock, installed) = (to.join(LOCK), to.join(INSTALLED));
    if !to.join("node_modules").is_dir() || fs::read(&installed).ok() != fs::read(&lock).ok() {
        eprintln!("installing MCP servers into `{}`", to.display());
        let mut npm = tool::command("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&to);
        // What this command itself prints is for a shell to read.
        npm.stdout(std::io::stderr());
        tool::run(&mut npm).context("the servers could not be installed")?;
        copy(&lock, &installed)?;
    }
    Ok(Servers(to))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to);
    copied.with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))?;
    Ok(())
}

fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    tool::root().join(given.unwrap_or_else(|| "target".into()))
}

fn find_or_install_node() -> Result<()> {
    let there = || tool::find("node").is_some() && tool::find("npm").is_some();
    if there() {
        return Ok(());
    }
    let is_root = tool::output(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root || tool::find("apt-get").is_none() {
        bail!("Node is not installed; {REMEDY}");
    }
    eprintln!("Node is not installed; installing Debian's packages");
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        tool::run(command.args(args).env("DEBIAN_FRONTEND", "noninteractive")).context(REMEDY)
    };
    apt(&["update", "-qq"])?;
    apt(&["install", "-y", "-qq", "--no-install-recommends", "nodejs", "npm"])?;
    if there() { Ok(()) } else { bail!("Debian's packages have no `node` and `npm`; {REMEDY}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_names_no_addresses_and_everything_that_is_wanted() {
        let read = |name: &str| fs::read_to_string(tool::root().join(SOURCE).join(name)).unwrap();
        let (lock, package) = (read(LOCK), read("package.json"));
        assert!(!lock.contains("\"resolved\""), "write it with omit-lockfile-registry-resolved");
        let wanted = package.lines().filter(|line| line.contains("\"@modelcontextprotocol/"));
        for line in wanted {
            let line = line.trim().trim_end_matches(',');
            assert!(lock.contains(line), "{line}: run `npm install --package-lock-only`");
        }
        let integrity = lock.matches("\"integrity\"").count();
        assert_eq!(integrity, lock.matches("\"node_modules/").count(), "every package is pinned");
    }

    #[test]
    fn a_command_follows_the_dashes() {
        assert!(run(&["cargo".to_owned()]).unwrap_err().to_string().contains("follows `--`"));
        assert!(run(&["--".to_owned()]).is_err());
    }
}
