//! The local spool: what an executor saw while the store could not be reached. Each report, and each
//! blob that one names, is a synced file of its own, delivered when the store can be reached again,
//! blobs first, and removed only then.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use gesta_core::content::BlobRef;
use gesta_core::document::EffectReport;
use gesta_core::json::{self, Canon};
use gesta_core::signed::Signed;
use gesta_store::Store;

use crate::error::RunError;

/// A directory of reports and blobs.
#[derive(Clone, Debug)]
pub struct Spool {
    directory: PathBuf,
}

impl Spool {
    /// The spool in this directory, which is made when the first report needs it.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps a report. On return it survives the death of the machine.
    pub(crate) fn put(&self, report: &Signed<EffectReport>) -> Result<(), RunError> {
        self.write(&format!("{}.json", report.digest()), &json::to_canonical(report)?)
    }

    /// Keeps a blob. On return it survives the death of the machine.
    pub(crate) fn put_blob(&self, bytes: &[u8]) -> Result<BlobRef, RunError> {
        let blob = BlobRef::of(bytes);
        self.write(&format!("{}.blob", blob.sha256), bytes)?;
        Ok(blob)
    }

    /// Hands everything over to the store, and removes what it has taken.
    pub async fn deliver(&self, store: &dyn Store) -> Result<(), RunError> {
        // Listed before the blobs: whatever a listed report names is there by then.
        let reports = self.reports()?;
        for path in self.files("blob")? {
            let Some(bytes) = read(&path)? else { continue };
            store.put_blob(&bytes).await?;
            remove(&path)?;
        }
        for (path, report) in reports {
            store.put_effect(&report).await?;
            remove(&path)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RunError> {
        let path = self.directory.join(name);
        let partial = path.with_extension("partial");
        let written = (|| {
            fs::create_dir_all(&self.directory)?;
            let mut file = File::create(&partial)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            File::open(&self.directory)?.sync_all()
        })();
        written.map_err(|error| file_error(&path, &error))
    }

    /// The files that end so, in the order of their names.
    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, RunError> {
        let listed = match fs::read_dir(&self.directory) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(file_error(&self.directory, &error)),
        };
        let mut paths: Vec<PathBuf> = listed
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect();
        paths.sort();
        Ok(paths)
    }

    /// Every report. What cannot be read stays where it is, and is told.
    fn reports(&self) -> Result<Vec<(PathBuf, Signed<EffectReport>)>, RunError> {
        let mut reports = Vec::new();
        for path in self.files("json")? {
            let Some(bytes) = read(&path)? else { continue };
            match Canon::parse(&bytes).and_then(|canon| canon.read()) {
                Ok(report) => reports.push((path, report)),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a spooled report cannot be read");
                }
            }
        }
        Ok(reports)
    }
}

/// Reads a file, unless somebody else has delivered it in the meantime.
fn read(path: &Path) -> Result<Option<Vec<u8>>, RunError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path, &error)),
    }
}

/// Removes what the store has.
fn remove(path: &Path) -> Result<(), RunError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file_error(path, &error)),
        _ => Ok(()),
    }
}

fn file_error(path: &Path, error: &std::io::Error) -> RunError {
    RunError::File { path: path.display().to_string(), why: error.to_string() }
}
