//! What PostgreSQL's errors mean to a caller: which of the store's errors, and whether the write is
//! certainly absent.

use std::error::Error as _;
use std::fmt::Write as _;

use deadpool_postgres::{HookError, PoolError, TimeoutType};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::{AppendError, StoreError};

/// A statement that did not succeed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) certainty: Certainty,
}

/// What is known of a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Nothing of it was done, and the same would fail again.
    Absent,
    /// Nothing of it was done; another transaction was in the way, and it may be sent again at once.
    Hindered,
    /// It may have been done.
    Unknown,
}

impl Failure {
    /// Nothing was sent.
    pub(super) fn not_sent(error: StoreError) -> Self {
        Self { error, certainty: Certainty::Absent }
    }

    /// There was no answer in time. The statement may be under way still, even in COMMIT.
    pub(super) fn not_answered(place: &str) -> Self {
        let error =
            StoreError::Unreachable { place: place.to_owned(), why: "no answer in time".into() };
        Self { error, certainty: Certainty::Unknown }
    }

    /// The statement was sent and this came back. Each statement is a transaction of its own:
    ///
    /// - *An error of the statement* (severity ERROR): the server has rolled it back. Absent; after
    ///   a deadlock (40P01) or a serialization failure (40001), hindered. A time-out of the server
    ///   (57014) is such an error: it is switched off before COMMIT begins.
    /// - *The server ends the session* (57P01 and its like, FATAL, PANIC), or *the connection
    ///   breaks* (class 08, no SQLSTATE at all): it may have been in COMMIT. Unknown.
    pub(super) fn sent(place: &str, error: &Error) -> Self {
        let certainty = match error.as_db_error() {
            Some(db) if ends_session(db) => Certainty::Unknown,
            Some(db)
                if [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE]
                    .contains(db.code()) =>
            {
                Certainty::Hindered
            }
            Some(_) => Certainty::Absent,
            None => Certainty::Unknown,
        };
        Self { error: store_error(place, error), certainty }
    }
}

impl From<Failure> for AppendError {
    fn from(failure: Failure) -> Self {
        match failure.certainty {
            Certainty::Absent | Certainty::Hindered => Self::Refused(failure.error),
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

/// PostgreSQL's error in the store's words.
pub(super) fn store_error(place: &str, error: &Error) -> StoreError {
    let place = place.to_owned();
    let why = text(error);
    let Some(db) = error.as_db_error() else {
        return StoreError::Unreachable { place, why };
    };
    match db.code() {
        &SqlState::DISK_FULL => StoreError::Full { place },
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly { place, why },
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => {
            StoreError::Damaged { what: format!("`{place}`: {why}") }
        }
        _ if ends_session(db) => StoreError::Unreachable { place, why },
        _ => StoreError::Refused { why },
    }
}

/// Why no connection could be had.
pub(super) fn no_connection(place: &str, error: &PoolError) -> StoreError {
    let unreachable = |why: String| StoreError::Unreachable { place: place.to_owned(), why };
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            store_error(place, error)
        }
        PoolError::PostCreateHook(HookError::Message(why)) => unreachable(why.to_string()),
        PoolError::Timeout(TimeoutType::Wait) => {
            unreachable("all connections are busy; allow more of them".into())
        }
        PoolError::Timeout(_) => unreachable("no answer in time".into()),
        PoolError::Closed => StoreError::Closed,
        PoolError::NoRuntimeSpecified => unreachable("there is no tokio runtime".into()),
    }
}

/// The whole chain of causes in one line. Neither the server nor the client puts a password in.
pub(super) fn text(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _infallible = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

fn ends_session(db: &DbError) -> bool {
    let code = db.code().code();
    db.parsed_severity() != Some(Severity::Error)
        || code.starts_with("08")
        || code.starts_with("57P0")
}
