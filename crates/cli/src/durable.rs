//! Files that are there whole or not at all, whatever crashes: written beside their place, synced,
//! moved into it, and the directory synced too.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use crate::problem::Problem;

/// Who may read a file.
#[derive(Clone, Copy)]
pub(crate) enum Readers {
    /// Only its owner.
    Owner,
    /// Whoever the user's umask allows.
    Everyone,
}

/// Makes a file. One that is there already is left alone, and that is an error.
pub(crate) fn create(path: &Path, bytes: &[u8], readers: Readers) -> Result<()> {
    let mut beside = Beside::new(path, readers)?;
    beside.file().write_all(bytes).with_context(|| cannot_write(path))?;
    beside.create()
}

/// A file on its way to its place.
pub(crate) struct Beside<'a> {
    path: &'a Path,
    file: BufWriter<NamedTempFile>,
}

impl<'a> Beside<'a> {
    /// Begins a file. Nothing is at `path` until it is moved there.
    pub(crate) fn new(path: &'a Path, readers: Readers) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".gesta-");
        let permissions = permissions(readers);
        if let Some(permissions) = permissions {
            builder.permissions(permissions);
        }
        let file = builder.tempfile_in(directory(path)).with_context(|| cannot_write(path))?;
        Ok(Self { path, file: BufWriter::with_capacity(1 << 18, file) })
    }

    /// Where it is meanwhile.
    #[cfg(feature = "sqlite")]
    pub(crate) fn meanwhile(&self) -> &Path {
        self.file.get_ref().path()
    }

    /// What to write to.
    pub(crate) fn file(&mut self) -> &mut BufWriter<NamedTempFile> {
        &mut self.file
    }

    /// Moves it to its place unless something is there.
    pub(crate) fn create(self) -> Result<()> {
        self.place(|file, path| match file.persist_noclobber(path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Problem::new(format!("`{}` exists already", path.display())).into())
            }
            Err(error) => Err(error.error).with_context(|| cannot_write(path)),
        })
    }

    /// Moves it to its place, over what is there.
    pub(crate) fn replace(self) -> Result<()> {
        self.place(|file, path| {
            file.persist(path).map_err(|error| error.error).with_context(|| cannot_write(path))?;
            Ok(())
        })
    }

    fn place(self, put: impl FnOnce(NamedTempFile, &Path) -> Result<()>) -> Result<()> {
        let Self { path, file } = self;
        let file = file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.as_file().sync_all().map(|()| file))
            .with_context(|| cannot_write(path))?;
        put(file, path)?;
        sync_directory(directory(path)).with_context(|| cannot_write(path))
    }
}

/// Makes a file that is there survive a power failure, whoever wrote it.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .and_then(|()| sync_directory(directory(path)))
        .with_context(|| cannot_write(path))
}

/// Moves a file to a name in the same directory that nothing has.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to)
        .and_then(|()| sync_directory(directory(to)))
        .with_context(|| cannot_write(to))
}

/// Makes a directory that only its owner may enter, if it is not there.
pub(crate) fn private_directory(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(path)
        .and_then(|()| sync_directory(directory(path)))
        .with_context(|| cannot_write(path))
}

fn permissions(readers: Readers) -> Option<Permissions> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = match readers {
            Readers::Owner => 0o600,
            Readers::Everyone => 0o644,
        };
        Some(Permissions::from_mode(mode))
    }
    #[cfg(not(unix))]
    {
        let _ = readers;
        None
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write `{}`", path.display())
}
