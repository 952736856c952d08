//! What can go wrong with a store, told apart by what the caller must do about it.

use gesta_core::digest::Digest;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;

/// The store could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file or database belongs to a newer program.
    #[error(
        "`{place}` has schema version {found}, this program knows up to {known}; use a newer gesta"
    )]
    Newer {
        /// Where.
        place: String,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The database belongs to an older program, and was to be read only.
    #[error("`{place}` has schema version {found}; reading does not bring it to {known}")]
    Older {
        /// Where.
        place: String,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The place cannot be written.
    #[error("`{place}` cannot be written: {why}; nothing was changed")]
    ReadOnly {
        /// Where.
        place: String,
        /// What the system said.
        why: String,
    },
    /// There is no room.
    #[error("no space left for `{place}`; nothing was changed. Free some space and try again")]
    Full {
        /// Where.
        place: String,
    },
    /// The place cannot be opened or reached.
    #[error("cannot reach the store `{place}`: {why}")]
    Unreachable {
        /// Where, without credentials.
        place: String,
        /// What the system said.
        why: String,
    },
    /// The store is set up in a way that loses data.
    #[error("the store `{place}` is not safe to use: {why}")]
    Unsafe {
        /// Where.
        place: String,
        /// What is wrong, and what to set.
        why: String,
    },
    /// What was read is not what was written.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What was found.
        what: String,
    },
    /// A blob's bytes do not have the blob's digest.
    #[error("blob `{0}` is damaged: its bytes have another digest")]
    DamagedBlob(Digest),
    /// The trajectory is not there.
    #[error("there is no trajectory `{0}` in this store")]
    NoTrajectory(TrajectoryId),
    /// The entries of the trajectory are not in the store any more.
    #[error("the entries of {trajectory} are archived in `{bundle}`{why}")]
    Archived {
        /// The trajectory.
        trajectory: TrajectoryId,
        /// The file that they are in, as it was called when it was written.
        bundle: String,
        /// Why they cannot be had from there, if somebody has tried.
        why: String,
    },
    /// The database refused a statement.
    #[error("the database refused: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
    /// The store was closed, or its thread died.
    #[error("the store is closed")]
    Closed,
}

/// An append did not succeed, or nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Someone else appended first. Fold what they wrote and build again.
    #[error("another entry was appended first")]
    Conflict {
        /// The head there is now.
        head: Option<Head>,
    },
    /// A newer attempt owns the trajectory. Stop.
    #[error("attempt {attempt} has taken over this trajectory")]
    FenceLost {
        /// The newer attempt.
        attempt: u64,
    },
    /// The registry that it was decided under has changed. Read it and decide again.
    #[error("the registry {registry} has changed since this was decided")]
    Outdated {
        /// The registry.
        registry: TrajectoryId,
    },
    /// The effects inbox holds a report that was not read before this was said. Read it.
    #[error("an executor has reported something about {trajectory} in the meantime")]
    Unread {
        /// The trajectory.
        trajectory: TrajectoryId,
    },
    /// Certainly not written.
    #[error("not appended: {0}")]
    Refused(StoreError),
    /// Perhaps written. Send the same again until it is known.
    #[error("it is unknown whether this was appended: {0}")]
    Unknown(StoreError),
}

impl StoreError {
    /// The entries are elsewhere.
    pub(crate) fn archived(trajectory: TrajectoryId, bundle: String) -> Self {
        Self::Archived { trajectory, bundle, why: String::new() }
    }
}

impl AppendError {
    /// What becomes of an append to an archived trajectory with this head, where being archived is all that
    /// stands against it. One that was appended before counts; its entries are not there to compare, and
    /// its head is enough.
    pub(crate) fn to_archived(
        admitted: &Admitted,
        head: Head,
        bundle: &str,
    ) -> Option<Result<Head, Self>> {
        if admitted.head() == head {
            return Some(Ok(head));
        }
        let error = || StoreError::archived(admitted.trajectory(), bundle.to_owned());
        (admitted.expected() == Some(head)).then(|| Err(Self::Refused(error())))
    }

    /// Why an append lost where this head was found: its own trajectory has moved, or the inbox holds something
    /// `unread`, or the registry has moved.
    pub(crate) fn lost(admitted: &Admitted, head: Option<Head>, unread: bool) -> Self {
        let trajectory = admitted.trajectory();
        match admitted.under() {
            _ if admitted.expected() != head => Self::Conflict { head },
            _ if unread => Self::Unread { trajectory },
            Some((registry, _)) => Self::Outdated { registry },
            None => Self::Conflict { head },
        }
    }
}
