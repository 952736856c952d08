//! A place outside for what a fold must know to the end and hardly looks at again. Whoever folds long
//! trajectories in little memory gives one; what is behind it the core does not know.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Keeps pages.
pub trait Shelf: fmt::Debug + Send + Sync {
    /// Keeps a page for as long as somebody holds what is returned. None if there is no room: it then stays in memory, and
    /// nothing more is brought.
    fn put(&self, page: &[u8]) -> Option<Arc<dyn Page>>;
}

/// A page that was put away.
pub trait Page: fmt::Debug + Send + Sync {
    /// The page, as it was brought. None if it cannot be had any more.
    fn read(&self) -> Option<Vec<u8>>;
}

/// Something that was put away is lost: nothing that is said of the trajectory counts from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what is known of earlier steps was put away and cannot be read again; make room where temporary files are kept, and begin anew"
)]
pub struct Forgotten;

/// Whether something was lost. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Loss(Arc<OnceLock<Forgotten>>);

impl Loss {
    /// Remembers a loss.
    pub(super) fn note<T>(&self, found: Result<T, Forgotten>) -> Option<T> {
        found.map_err(|lost| self.0.get_or_init(|| lost)).ok()
    }

    /// An error if something was lost.
    pub(super) fn check(&self) -> Result<(), Forgotten> {
        self.0.get().map_or(Ok(()), |lost| Err(*lost))
    }
}
