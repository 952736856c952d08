//! The files of jobs that other jobs delegate to, in directories.

use std::fs;
use std::path::{Path, PathBuf};

use crate::job::Files;

/// Job files where they lie: a path in one is relative to the directory that it is in.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFiles;

impl Files for JobFiles {
    fn read(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let directory = Path::new(from).parent().map(Path::to_owned).unwrap_or_default();
        let found = plain(&directory.join(path));
        let text = fs::read_to_string(&found).map_err(|error| error.to_string())?;
        Ok((found.display().to_string(), text))
    }
}

/// The same path without detours, so that one file has one name.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}
