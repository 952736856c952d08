//! Where a bundle's bytes are read from: anything that can be read at an offset.

use std::fs::File;
use std::io::{self, Read};

/// Bytes that can be read at any offset, by several threads at once.
pub trait Bytes: Send + Sync {
    /// How many there are.
    fn size(&self) -> io::Result<u64>;

    /// Reads some bytes from `offset` on; 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Bytes for File {
    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buffer, offset)
    }
}

impl Bytes for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        from.unwrap_or_default().read(buffer)
    }
}

/// A part of the bytes, read from its beginning to its end.
pub(super) struct Section<'a> {
    pub(super) bytes: &'a dyn Bytes,
    pub(super) offset: u64,
    pub(super) left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..most).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let read = self.bytes.read_at(buffer, self.offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}
