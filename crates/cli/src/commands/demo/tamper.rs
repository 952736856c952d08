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

/// How much of an entry is looked for: a page may end anywhere in it, so pieces are tried until one
/// lies in one place.
const PIECE: usize = 96;

/// Finds the bytes of an entry in the file and changes one of them.
pub(super) fn change(file: &Path, entry: &[u8], at: usize, to: u8) -> Result<Changed> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let pieces = entry.windows(PIECE).enumerate().take(at + 1).skip((at + 1).saturating_sub(PIECE));
    let start = pieces
        .filter_map(|(from, piece)| {
            let found = bytes.windows(PIECE).position(|window| window == piece)?;
            Some(found + at - from)
        })
        .next()
        .ok_or_else(|| Problem::new(format!("the entry is not in `{}`", file.display())))?;
    let offset = start as u64;
    let mut file_at = OpenOptions::new()
        .write(true)
        .open(file)
        .with_context(|| format!("cannot write `{}`", file.display()))?;
    file_at.seek(SeekFrom::Start(offset))?;
    file_at.write_all(&[to])?;
    file_at.sync_all()?;
    Ok(Changed { offset })
}
