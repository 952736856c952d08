//! Ending processes and everything that they started. Only ever signals children of this process,
//! which keep their number until they are waited for: no stranger can be hit.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

/// How often a child may be there that the list of processes does not show.
const MAX_UNLISTED: usize = 10_000;

/// Whoever loses its parent below this process becomes its child, even after `setsid`.
pub(super) fn adopt() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(Pid::INIT))?;
    Ok(())
}

/// Has the kernel kill this process when the thread that started it ends, if it has not ended yet.
pub(super) fn die_with(parent: u32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let now = rustix::process::getppid().map(Pid::as_raw_nonzero);
    match now {
        Some(now) if u32::try_from(now.get()) == Ok(parent) => Ok(()),
        _ => Err(io::Error::other("the supervisor is gone")),
    }
}

/// Kills every member of a process group whose leader has not been waited for.
pub(super) fn kill_group(leader: Pid) {
    // It may have become empty, which is what is wanted.
    let _empty = kill_process_group(leader, Signal::KILL);
}

/// Kills and buries children, and the children that they leave behind, until there are none, or
/// none that can be killed: a program may have become another user.
pub(super) fn end_all() {
    let mut unlisted = 0;
    while let Ok(children) = children() {
        let kill = |child: &&Pid| kill_process(**child, Signal::KILL).is_ok();
        let killed = children.iter().filter(kill).count();
        // Without a child that is bound to die, waiting could take for ever.
        let waited = match (children.len(), killed) {
            (0, _) => wait(WaitOptions::NOHANG),
            (_, 0) => return,
            (_, _) => wait(WaitOptions::empty()),
        };
        match waited {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            // Someone was adopted after the list was read; or the list does not show everyone.
            Ok(None) if unlisted < MAX_UNLISTED => {
                unlisted += 1;
                std::thread::yield_now();
            }
            Ok(None) | Err(_) => return,
        }
    }
}

/// The children of this process, dead ones that nobody has waited for included.
fn children() -> io::Result<Vec<Pid>> {
    let me = std::process::id();
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // Whoever ends while the list is read is no child to be killed.
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        if parent_of(&stat) == Some(me) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// The parent in a line of `/proc/PID/stat`. The name, in parentheses, may hold anything.
fn parent_of(stat: &[u8]) -> Option<u32> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(after_name + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_a_parent() {
        assert_eq!(parent_of(b"7 (sh) S 42 7 7 0"), Some(42));
        assert_eq!(parent_of(b"7 (a) S 1 (b) R 42 7 7 0"), Some(42));
        assert_eq!(parent_of(b"7 (\xff) S 42 7"), Some(42));
        assert_eq!(parent_of(b""), None);
    }
}
