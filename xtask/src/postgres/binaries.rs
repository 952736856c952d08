//! Where PostgreSQL's programs are: PATH, then where Debian's packages put them, then installed
//! from Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tool;

const DEBIAN: &str = "/usr/lib/postgresql";
const REMEDY: &str = "install PostgreSQL and OpenSSL so that `initdb`, `postgres` and `openssl` are in PATH (Debian: apt-get install postgresql openssl)";

/// The directory with `initdb` and `postgres`.
pub(super) fn find_or_install() -> Result<PathBuf> {
    // `openssl` makes the server's certificate.
    if let Some(bin) = find().filter(|_| tool::find("openssl").is_some()) {
        return Ok(bin);
    }
    let is_root = tool::output(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root || tool::find("apt-get").is_none() {
        bail!("PostgreSQL or OpenSSL is not installed; {REMEDY}");
    }
    eprintln!("PostgreSQL or OpenSSL is not installed; installing Debian's packages");
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        tool::run(command.args(args).env("DEBIAN_FRONTEND", "noninteractive")).context(REMEDY)
    };
    apt(&["update", "-qq"])?;
    apt(&["install", "-y", "-qq", "--no-install-recommends", "postgresql", "openssl"])?;
    match find() {
        Some(bin) => Ok(bin),
        None => {
            bail!("Debian's package is installed, but has no `initdb` and `postgres`; {REMEDY}")
        }
    }
}

fn find() -> Option<PathBuf> {
    let in_path = tool::find("initdb").and_then(|initdb| Some(initdb.parent()?.to_path_buf()));
    in_path.filter(|dir| is_complete(dir)).or_else(|| newest(Path::new(DEBIAN)))
}

/// `VERSION/bin` of the highest version below the directory.
fn newest(versions: &Path) -> Option<PathBuf> {
    fs::read_dir(versions)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| is_complete(bin))
        .max()
        .map(|(_, bin)| bin)
}

fn is_complete(bin: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| bin.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_version_wins() {
        let versions = std::env::temp_dir().join(format!("gesta-versions-{}", std::process::id()));
        for (version, programs) in [
            ("9", &["initdb", "postgres"][..]),
            ("15", &["initdb", "postgres"]),
            ("16", &["initdb"]),
        ] {
            let bin = versions.join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            for program in programs {
                fs::write(bin.join(program), "").unwrap();
            }
        }
        let found = newest(&versions);
        let expected = versions.join("15/bin");
        fs::remove_dir_all(&versions).unwrap();
        assert_eq!(found, Some(expected));
    }
}
