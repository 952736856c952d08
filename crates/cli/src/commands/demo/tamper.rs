//! Changing one byte of a file behind everybody's back, as someone with access to the disk would.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::problem::Problem;

/// What was changed.
pub(super) struct Changed {
    /// Where in the file.
    pub(super) offset: u64,
}

/// Finds the bytes of an entry in the file and changes one of them.
pub(super) fn change(file: &Path, entry: &[u8], at: usize, to: u8) -> Result<Changed> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let start = bytes
        .windows(entry.len())
        .position(|window| window == entry)
        .ok_or_else(|| Problem::new(format!("the entry is not in `{}`", file.display())))?;
    let offset = (start + at) as u64;
    let mut file_at = OpenOptions::new()
        .write(true)
        .open(file)
        .with_context(|| format!("cannot write `{}`", file.display()))?;
    file_at.seek(SeekFrom::Start(offset))?;
    file_at.write_all(&[to])?;
    file_at.sync_all()?;
    Ok(Changed { offset })
}
