//! What SQLite's errors mean to a caller: which of the store's errors, and whether the write is
//! certainly absent.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::error::{AppendError, StoreError};

/// A transaction that did not succeed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    error: StoreError,
    pub(super) certainty: Certainty,
}

/// What is known of a failed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Nothing of it is in the file.
    Absent,
    /// It may be in the file.
    Unknown,
}

impl Failure {
    /// A statement before COMMIT failed. Whatever the reason, nothing in the file says that the
    /// transaction is complete: pages that spilled into the WAL have no commit mark.
    pub(super) fn before_commit(place: &str, error: &rusqlite::Error) -> Self {
        Self { error: store_error(place, error), certainty: Certainty::Absent }
    }

    /// COMMIT itself failed. The commit mark is in the last frame that COMMIT writes to the WAL:
    ///
    /// - *full*: a frame could be written in part at most, so its checksum fails and no recovery
    ///   takes it. SQLite reports a failing sync never as full, but as an I/O error. Absent.
    /// - *I/O error*: the frame may have been written and only its sync failed, or the write itself
    ///   reported an error and yet reached the disk. The next process to recover the WAL may find a
    ///   complete transaction. Unknown.
    /// - *busy*, *read-only* and the rest are found before a frame is written. Absent.
    pub(super) fn at_commit(place: &str, error: &rusqlite::Error) -> Self {
        let (error, certainty) = match (error.sqlite_error_code(), store_error(place, error)) {
            // That it is full says that nothing was changed, which nobody knows here.
            (Some(ErrorCode::SystemIoFailure), StoreError::Full { place }) => {
                let why = format!("{error}, and its file system is full");
                (StoreError::Unreachable { place, why }, Certainty::Unknown)
            }
            (Some(ErrorCode::SystemIoFailure), error) => (error, Certainty::Unknown),
            (_, error) => (error, Certainty::Absent),
        };
        Self { error, certainty }
    }

    /// The writer was gone before the job could be handed over.
    pub(super) fn not_sent() -> Self {
        Self { error: StoreError::Closed, certainty: Certainty::Absent }
    }

    /// The writer died with the job in its hands, perhaps between COMMIT and the answer.
    pub(super) fn not_answered() -> Self {
        Self { error: StoreError::Closed, certainty: Certainty::Unknown }
    }
}

impl From<Failure> for AppendError {
    fn from(failure: Failure) -> Self {
        match failure.certainty {
            Certainty::Absent => Self::Refused(failure.error),
            Certainty::Unknown => Self::Unknown(failure.error),
        }
    }
}

/// All writes but appends may simply be repeated, so their callers need not know the certainty.
impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// SQLite's error in the store's words.
pub(super) fn store_error(place: &str, error: &rusqlite::Error) -> StoreError {
    let place = place.to_owned();
    let why = error.to_string();
    let Some(code) = error.sqlite_error_code() else {
        // Not SQLite's but a row's that does not fit its Rust type.
        return StoreError::Damaged { what: format!("a row of `{place}` cannot be read: {why}") };
    };
    let extended = error.sqlite_error().map(|error| error.extended_code);
    match code {
        ErrorCode::DiskFull => StoreError::Full { place },
        ErrorCode::ReadOnly if extended == Some(ffi::SQLITE_READONLY_DIRECTORY) => {
            let why = "its directory, where the log beside it belongs, allows reading only".into();
            StoreError::ReadOnly { place, why }
        }
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => StoreError::ReadOnly { place, why },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            StoreError::Damaged { what: format!("`{place}`: {why}") }
        }
        // SQLite calls a disk full when a page cannot be written. What it keeps beside the file fails
        // otherwise.
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure if is_full(&place) => {
            StoreError::Full { place }
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => {
            StoreError::Unreachable { place, why }
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Refused {
            why: format!("another process kept `{place}` locked for too long; try again"),
        },
        _ => StoreError::Refused { why },
    }
}

/// The least that SQLite adds to what it keeps beside the file.
const BESIDE_BYTES: u64 = 32 * 1024;

/// Whether the file system of a file has no room left, for bytes or for another file.
fn is_full(place: &str) -> bool {
    let directory = Path::new(place).parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(room) = rustix::fs::statvfs(directory.unwrap_or(Path::new("."))) else { return false };
    // File systems that count no files say that there are none.
    let no_file_left = room.f_files > 0 && room.f_favail == 0;
    room.f_bavail.saturating_mul(room.f_frsize) < BESIDE_BYTES || no_file_left
}
