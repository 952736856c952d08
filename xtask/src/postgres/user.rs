//! Who runs PostgreSQL: it refuses root, so root hands it to an unprivileged user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tool;

const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// The user that runs the server.
pub(super) enum User {
    /// Ourselves.
    Caller,
    /// Another one, because the caller is root.
    Unprivileged { uid: u32, gid: u32, prefix: Vec<String> },
}

impl User {
    pub(super) fn choose() -> Result<User> {
        if id(&["-u"])? != 0 {
            return Ok(User::Caller);
        }
        for name in UNPRIVILEGED {
            if let (Ok(uid), Ok(gid)) = (id(&["-u", name]), id(&["-g", name])) {
                return Ok(User::Unprivileged { uid, gid, prefix: prefix(name, uid, gid)? });
            }
        }
        bail!("root cannot run PostgreSQL and there is no user `postgres` or `nobody`; add one")
    }

    /// What to put in front of a command so that it runs as this user.
    pub(super) fn prefix(&self) -> &[String] {
        match self {
            User::Caller => &[],
            User::Unprivileged { prefix, .. } => prefix,
        }
    }

    /// Gives the directory and the files in it to this user; others may look into it.
    pub(super) fn own(&self, dir: &Path) -> Result<()> {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot set permissions of `{}`", dir.display()))?;
        let User::Unprivileged { uid, gid, .. } = self else { return Ok(()) };
        let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.with_context(|| format!("cannot list `{}`", dir.display()))?;
        for path in entries.iter().map(fs::DirEntry::path).chain([dir.to_path_buf()]) {
            chown(&path, Some(*uid), Some(*gid))
                .with_context(|| format!("cannot give `{}` to user {uid}", path.display()))?;
        }
        Ok(())
    }
}

/// Whichever of the two programs there is; minimal systems have but one.
fn prefix(name: &str, uid: u32, gid: u32) -> Result<Vec<String>> {
    let (program, args) = if let Some(setpriv) = tool::find("setpriv") {
        let ids = [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()];
        (setpriv, ids.to_vec())
    } else if let Some(runuser) = tool::find("runuser") {
        (runuser, ["-u", name, "--"].map(str::to_owned).to_vec())
    } else {
        bail!(
            "root cannot run PostgreSQL, and neither `setpriv` nor `runuser` is in PATH to become `{name}`; install util-linux"
        );
    };
    Ok([vec![program.display().to_string()], args].concat())
}

fn id(args: &[&str]) -> Result<u32> {
    let printed = tool::output(Command::new("id").args(args))?;
    let number = printed.trim();
    number.parse().with_context(|| format!("`id` printed `{number}`, which is not a number"))
}
