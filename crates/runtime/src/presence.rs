//! Who is alive on this machine: each worker holds a lock on a file of its own for as long as it
//! lives. The system lets go of it when the process dies, however it dies, so a dead worker's
//! trajectories can be taken over at once instead of after its lease.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gesta_core::ids::WorkerId;

use crate::error::RunError;

/// How long the file of a dead worker stays.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// A worker's sign of life. Dropping it, or dying, ends it.
#[derive(Debug)]
pub(crate) struct Presence {
    directory: PathBuf,
    path: PathBuf,
    _locked: File,
}

impl Presence {
    /// Begins to show that this worker is alive.
    pub(crate) fn begin(directory: &Path, worker: &WorkerId) -> Result<Self, RunError> {
        let name = worker.as_str().replace('/', "_");
        let path = directory.join(&name);
        let held = (|| {
            fs::create_dir_all(directory)?;
            // Locked before it is seen: nobody takes it for the file of a dead worker.
            let unseen = directory.join(format!(".{name}"));
            let file = File::create(&unseen)?;
            file.lock()?;
            fs::rename(&unseen, &path)?;
            Ok(file)
        })();
        match held {
            Err::<File, std::io::Error>(error) => {
                Err(RunError::File { path: path.display().to_string(), why: error.to_string() })
            }
            Ok(locked) => Ok(Self { directory: directory.to_owned(), path, _locked: locked }),
        }
    }

    /// Workers of this directory that are dead. Their files stay for a day: whoever takes over from
    /// one wants to know that it is dead.
    pub(crate) fn dead(&self) -> Vec<WorkerId> {
        let Ok(listed) = fs::read_dir(&self.directory) else { return Vec::new() };
        listed
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| *path != self.path)
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?;
                let worker = name.parse().ok().filter(|_| !name.starts_with('.'))?;
                let file = File::open(&path).ok()?;
                file.try_lock().ok()?;
                let age = file.metadata().and_then(|data| data.modified()).ok()?.elapsed();
                if age.is_ok_and(|age| age > FORGOTTEN_AFTER)
                    && let Err(error) = fs::remove_file(&path)
                {
                    tracing::debug!(path = %path.display(), %error, "a dead worker's file stays");
                }
                Some(worker)
            })
            .collect()
    }
}

/// The workers of a directory that are alive, by name.
pub fn alive(directory: &Path) -> std::io::Result<Vec<String>> {
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut alive = Vec::new();
    for entry in listed {
        let entry = entry?;
        let file = File::open(entry.path())?;
        if matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)) {
            alive.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(alive)
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "a worker's file stays behind");
        }
    }
}
